//! One binary of end-to-end tests: the code checks itself, then the server is asked from outside.

mod crash;
mod subject;
mod tidy;
mod wire;
