//! Listeners, sessions and the node.
