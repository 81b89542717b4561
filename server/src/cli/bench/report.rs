//! What a bench found: figures, ratios with gates, the table that is printed and the file that is written.
//!
//! Invariants: a gate holds or not by its value alone; whether it is judged is said by its row.

use std::{fmt::Write as _, fs, path::Path};

use serde::Serialize;

use crate::exit::{Failure, Kind};

/// A ratio (or a bound) that must hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Gate {
    /// What is compared with what.
    pub(super) name: String,
    /// What was found.
    pub(super) value: f64,
    /// What it is held to.
    pub(super) bound: Bound,
}

/// Which side of a number is good.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Bound {
    /// The value or more.
    AtLeast(f64),
    /// The value or less.
    AtMost(f64),
}

impl Gate {
    /// Whether it holds.
    pub(super) fn holds(&self) -> bool {
        match self.bound {
            Bound::AtLeast(bound) => self.value >= bound,
            Bound::AtMost(bound) => self.value <= bound,
        }
    }

    /// As it is printed, with the mark of what came out.
    pub(super) fn text(&self, is_judged: bool) -> String {
        let bound = match self.bound {
            Bound::AtLeast(bound) => format!("≥ {bound}"),
            Bound::AtMost(bound) => format!("≤ {bound}"),
        };
        let verdict = match (is_judged, self.holds()) {
            (false, _) => "not judged",
            (true, true) => "holds",
            (true, false) => "FAILS",
        };
        format!("{} {:.2} ({bound}) {verdict}", self.name, self.value)
    }
}

/// Figures of one server under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    /// Median over the slices.
    pub(super) per_sec: f64,
    /// Each slice.
    pub(super) slices: Vec<f64>,
    /// CPU of the server process per operation, in microseconds.
    pub(super) cpu_micros: Option<f64>,
    /// Memory of the server process at the end.
    pub(super) resident_bytes: Option<u64>,
}

/// One line of the table.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    /// Name of the load.
    pub(super) workload: String,
    /// Connections.
    pub(super) clients: usize,
    /// What a number per second counts.
    pub(super) unit: &'static str,
    /// We, with `log.priority = normal`.
    pub(super) ours: Figures,
    /// PostgreSQL.
    pub(super) peer: Option<Figures>,
    /// A server that does nothing.
    pub(super) ceiling: Option<Figures>,
    /// We, with `log.priority = auto`.
    pub(super) auto: Option<Figures>,
    /// Ours to the peer's, median over pairs of slices.
    pub(super) ratio: Option<f64>,
    /// Median raw sync before, microseconds.
    pub(super) sync_before_micros: f64,
    /// The same after.
    pub(super) sync_after_micros: f64,
    /// Whether the machine was calm enough.
    pub(super) is_judged: bool,
    /// What it is held to.
    pub(super) gates: Vec<Gate>,
    /// More to know, such as sums that were compared.
    pub(super) notes: Vec<String>,
    /// Why there are no figures.
    pub(super) failure: Option<String>,
}

impl Row {
    /// Whether nothing that is judged fails.
    pub(super) fn holds(&self) -> bool {
        self.failure.is_none() && (!self.is_judged || self.gates.iter().all(Gate::holds))
    }
}

/// The head of the table that [`line`] fills.
pub(super) fn head() -> String {
    format!(
        "{:<18} {:>7} {:>12} {:>12} {:>6} {:>12} {:>12} {:>8} {:>8} {:>8} {:>8} {:>13}  gates",
        "workload",
        "clients",
        "ours/s",
        "peer/s",
        "ratio",
        "ceiling/s",
        "auto/s",
        "µs/op",
        "peer µs",
        "RSS MB",
        "peer MB",
        "sync µs"
    )
}

/// One row as text, with its notes below.
pub(super) fn line(row: &Row) -> String {
    let mut out = String::new();
    if let Some(failure) = &row.failure {
        let _ = write!(out, "{:<18} {:>7} FAILS: {failure}", row.workload, row.clients);
        return out;
    }
    let rate =
        |figures: Option<&Figures>| figures.map_or_else(|| "-".to_owned(), |figures| number(figures.per_sec));
    let cpu = |figures: Option<&Figures>| {
        figures
            .and_then(|figures| figures.cpu_micros)
            .map_or_else(|| "-".to_owned(), |micros| format!("{micros:.1}"))
    };
    let memory = |figures: Option<&Figures>| {
        let bytes = figures.and_then(|figures| figures.resident_bytes);
        bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.0}", bytes as f64 / f64::from(1 << 20)))
    };
    let gates: Vec<String> = row.gates.iter().map(|gate| gate.text(row.is_judged)).collect();
    let _ = write!(
        out,
        "{:<18} {:>7} {:>12} {:>12} {:>6} {:>12} {:>12} {:>8} {:>8} {:>8} {:>8} {:>13}  {}",
        row.workload,
        row.clients,
        rate(Some(&row.ours)),
        rate(row.peer.as_ref()),
        row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
        rate(row.ceiling.as_ref()),
        rate(row.auto.as_ref()),
        cpu(Some(&row.ours)),
        cpu(row.peer.as_ref()),
        memory(Some(&row.ours)),
        memory(row.peer.as_ref()),
        format!("{:.0} → {:.0}", row.sync_before_micros, row.sync_after_micros),
        gates.join("; "),
    );
    for note in &row.notes {
        let _ = write!(out, "\n    {note}");
    }
    out
}

fn number(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// Writes figures for machines.
pub(super) fn write_json(path: &Path, figures: &impl Serialize) -> Result<(), Failure> {
    let bytes = serde_json::to_vec_pretty(figures)
        .map_err(|error| Failure::new(Kind::Software, format!("figures cannot be written: {error}")))?;
    fs::write(path, bytes).map_err(|error| Failure::from_io(path.display(), &error))
}

/// The end of a bench: silence, or what did not hold.
pub(super) fn verdict(failed: &[String]) -> Result<(), Failure> {
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        Kind::Answer,
        format!("{} of the judged gates do not hold: {}", failed.len(), failed.join("; ")),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: f64, is_judged: bool) -> Row {
        let gate = Gate { name: "÷ peer".to_owned(), value, bound: Bound::AtLeast(2.0) };
        Row { gates: vec![gate], is_judged, ..Row::default() }
    }

    #[test]
    fn a_gate_fails_a_run_only_when_it_is_judged() {
        assert!(row(2.0, true).holds());
        assert!(!row(1.99, true).holds());
        assert!(row(1.99, false).holds());
        assert!(line(&row(1.99, true)).contains("FAILS"));
        assert!(line(&row(1.99, false)).contains("not judged"));
    }

    #[test]
    fn a_load_that_did_not_run_is_a_failure() {
        let row = Row { failure: Some("refused".to_owned()), ..Row::default() };
        assert!(!row.holds());
        assert!(line(&row).contains("refused"));
    }

    #[test]
    fn bounds_have_a_good_side() {
        let at_most = |value| Gate { name: String::new(), value, bound: Bound::AtMost(64.0) };
        assert!(at_most(64.0).holds());
        assert!(!at_most(64.1).holds());
    }
}
