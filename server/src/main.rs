//! The `keystead` binary: everything is in the library, so that tests can reach it.

use std::process::ExitCode;

/// Half the cost per allocation of the system's allocator on the point-read path, and memory goes back to the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    server::cli::run()
}
