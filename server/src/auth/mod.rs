//! Who is it: passwords on the SQL door, tokens on the others, certificates on the wire.
//!
//! Invariants:
//! - There is no trust mode and no anonymous principal.
//! - An unknown name, a name without a password and a wrong password run the same exchange and get the same answer.
//! - Only verifiers are kept. Secrets have no `Debug`.

pub mod delay;
pub mod scram;
pub mod secrets;
pub mod tls;
