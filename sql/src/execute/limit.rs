//! A part of the rows.

use model::{Code, Error, Result, Value, key::KeyPart, port::BoxFuture};

use super::{Expressions, Operator, Runtime};
use crate::{
    batch::{Batch, Column, key::Keys},
    expr::{Expr, SortKey},
};

/// The operator.
pub(super) struct Limit {
    runtime: Runtime,
    input: Box<dyn Operator>,
    limit: Option<Expr>,
    offset: Option<Expr>,
    ties: Option<(Expressions, Vec<KeyPart>)>,
    state: State,
}

enum State {
    Fresh,
    /// So many rows to leave out, then so many to give (none for all).
    Counting {
        skip: u64,
        left: Option<u64>,
        last: Option<Vec<u8>>,
    },
    Done,
}

impl Limit {
    pub(super) fn new(
        input: Box<dyn Operator>,
        limit: Option<&Expr>,
        offset: Option<&Expr>,
        ties: Option<&[SortKey]>,
        width: usize,
        runtime: &Runtime,
    ) -> Self {
        let ties = ties.map(|keys| {
            let values: Vec<Expr> = keys.iter().map(|key| key.value.clone()).collect();
            (Expressions::new(&values, width), super::sort::parts(keys))
        });
        Self {
            runtime: runtime.clone(),
            input,
            limit: limit.cloned(),
            offset: offset.cloned(),
            ties,
            state: State::Fresh,
        }
    }
}

/// The counts of LIMIT and OFFSET: what to leave out, and what to give.
pub(super) async fn counts(
    runtime: &Runtime,
    limit: Option<&Expr>,
    offset: Option<&Expr>,
) -> Result<(u64, Option<u64>)> {
    let limit = match limit {
        Some(limit) => count(runtime, limit, Code::InvalidRowCountInLimitClause, "LIMIT").await?,
        None => None,
    };
    let offset = match offset {
        Some(offset) => count(runtime, offset, Code::InvalidRowCountInResultOffsetClause, "OFFSET").await?,
        None => None,
    };
    Ok((offset.unwrap_or(0), limit))
}

async fn count(runtime: &Runtime, expr: &Expr, code: Code, word: &str) -> Result<Option<u64>> {
    let values = Expressions::new(std::slice::from_ref(expr), 0).row(runtime, &[], &[]).await?;
    match values.first().and_then(Value::as_i64) {
        None => Ok(None),
        Some(count) => match u64::try_from(count) {
            Ok(count) => Ok(Some(count)),
            Err(_) => Err(Error::new(code, format!("{word} must not be negative"))),
        },
    }
}

impl Operator for Limit {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            if matches!(self.state, State::Fresh) {
                let (skip, left) = counts(&self.runtime, self.limit.as_ref(), self.offset.as_ref()).await?;
                self.state = State::Counting { skip, left, last: None };
            }
            loop {
                let State::Counting { skip, left, last } = &mut self.state else { return Ok(None) };
                if *left == Some(0) && (self.ties.is_none() || last.is_none()) {
                    self.state = State::Done;
                    return Ok(None);
                }
                let Some(batch) = self.input.next().await? else {
                    self.state = State::Done;
                    return Ok(None);
                };
                let rows = batch.len() as u64;
                if *skip >= rows {
                    *skip -= rows;
                    continue;
                }
                let from = std::mem::take(skip) as usize;
                let fits = left.map_or(batch.len() - from, |left| (batch.len() - from).min(left as usize));
                let mut to = from + fits;
                if let Some(left) = left {
                    *left -= fits as u64;
                }
                if let (Some((keys, parts)), Some(0)) = (&mut self.ties, *left) {
                    let columns = keys.columns(&self.runtime, &batch).await?;
                    let refs: Vec<&Column> = columns.iter().map(AsRef::as_ref).collect();
                    let packed = Keys::of(&refs, parts, batch.len());
                    if fits > 0 {
                        *last = Some(packed.get(to - 1).to_vec());
                    }
                    while to < batch.len() && last.as_deref() == Some(packed.get(to)) {
                        to += 1;
                    }
                    if to < batch.len() {
                        self.state = State::Done;
                    }
                }
                if to > from {
                    return Ok(Some(batch.slice(from, to - from)));
                }
            }
        })
    }
}
