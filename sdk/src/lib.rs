//! The Rust client of Keystead, and the public gRPC contract.
