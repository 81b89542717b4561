//! Tools, resources and prompts for agents.
