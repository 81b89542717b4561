//! `keystead import` and `keystead export`: CSV and JSONL files to and from tables, over COPY.
//!
//! Invariants:
//! - Import sends bounded chunks, each one statement: a chunk is in the table whole or not at all. After each chunk the
//!   place in the file is written beside it (`FILE.keystead-import`), so that the same command goes on where it stopped.
//!   A chunk is a command named by its rows: one that was applied, but not noted, is not applied again.
//! - A row that the server refuses is found by halving its chunk, counted, and left out; skipped rows make the exit code 1.
//! - Export reads one statement: one state of the table.

mod export;
mod import;
mod rows;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::target::Where;
pub(super) use export::export;
pub(super) use import::import;

/// How a file is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Layout {
    /// Comma-separated values
    Csv,
    /// One JSON object per line
    Jsonl,
}

/// Arguments of `keystead import`.
#[derive(Args, Debug)]
pub(super) struct ImportOptions {
    #[command(flatten)]
    to: Where,
    /// Table, with its schema if it is not in the search path
    table: String,
    /// File; `-` is standard input
    file: PathBuf,
    /// Layout; the default follows the file's name
    #[arg(long, value_enum)]
    layout: Option<Layout>,
    /// Columns in the order of the file; the default is the CSV header, or the table's columns
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    columns: Vec<String>,
    /// The CSV file has no header line
    #[arg(long)]
    no_header: bool,
    /// What separates CSV fields
    #[arg(long, default_value = ",")]
    delimiter: char,
    /// CSV text that means null
    #[arg(long, default_value = "")]
    null: String,
    /// Rows per statement
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    chunk_rows_max: u32,
    /// Give up after so many refused rows
    #[arg(long, default_value_t = 1_000)]
    skipped_max: u64,
    /// Begin at the file's start, whatever an earlier run left
    #[arg(long)]
    restart: bool,
}

/// Arguments of `keystead export`.
#[derive(Args, Debug)]
pub(super) struct ExportOptions {
    #[command(flatten)]
    to: Where,
    /// Table, or a query in parentheses
    source: String,
    /// File; `-` is standard output
    file: PathBuf,
    /// Layout; the default follows the file's name
    #[arg(long, value_enum)]
    layout: Option<Layout>,
}

/// The layout that was named, or that the file's name says.
fn layout_of(named: Option<Layout>, file: &Path) -> Layout {
    let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    named.unwrap_or(match ending {
        "jsonl" | "ndjson" | "json" => Layout::Jsonl,
        _ => Layout::Csv,
    })
}

/// `schema.table` as SQL names it.
fn quoted_table(table: &str) -> String {
    table
        .split('.')
        .map(|part| super::client::quote(part.trim_matches('"'), '"'))
        .collect::<Vec<_>>()
        .join(".")
}
