//! COPY: rows in and out as text, CSV and PostgreSQL's binary format.
//!
//! The life of a COPY FROM: chunks as the client cut them → [`split`](Splitter) into rows of fields → values of the columns'
//! types → whole rows with defaults, through the same writer as INSERT → the statement's buffer; or, once there is much and
//! it stands alone, in their stored form to the owner, who stages them. Nothing of a COPY that failed is kept, because the
//! session drops the buffer, and gives up what is staged.
//!
//! Invariants:
//! - A row may be cut anywhere between chunks, inside a quoted field, an escape or a length too.
//! - What COPY TO writes, COPY FROM with the same options reads back to the same values.
//! - An error of the data names its line, and where there is one its column and value, as PostgreSQL does.
//!
//! Files: `options` · `split` rows from bytes (`text`, `csv`, `binary`) · `load` rows into a table · `stage`
//! rows on their way to the owner · `write` rows to bytes.

mod binary;
mod csv;
mod load;
mod options;
mod split;
mod stage;
mod text;
mod write;

#[cfg(test)]
mod tests;

pub use load::CopyFrom;
pub use options::{Format, Header, OptionValue, Options, QuoteColumns};
pub use split::{Fields, Splitter};
pub use stage::Stage;
pub use write::CopyTo;
