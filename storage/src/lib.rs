//! One node's data: engine, log, partition state machine.
