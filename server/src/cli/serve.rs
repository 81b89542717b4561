//! `keystead serve`: reads the configuration, starts the node, and ends when it is told to.

use std::path::PathBuf;

use clap::Args;

use crate::exit::Failure;

/// Arguments of `keystead serve`.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// Data directory; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Runs `keystead serve`.
pub(super) fn run(_: Options) -> Result<(), Failure> {
    Ok(())
}
