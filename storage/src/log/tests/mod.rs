//! The log's own fault suite.

mod basics;
