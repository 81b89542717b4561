//! An apply whose right is one row by its key: the keys of a whole batch of the left are looked up in one call.
//!
//! What the right takes from its row around it ([`Kind::Outer`]) becomes columns beside the rows that were found, so that
//! its filter and its projection run over batches too.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use model::{Error, Result, Type, Value, key, port::BoxFuture, schema::IndexPart};

use crate::{
    batch::{Batch, stored::Decoder},
    execute::{
        Expressions, Operator, Runtime,
        range::{partitions, parts_of},
        scan::look_up,
    },
    expr::{Expr, Kind},
    plan::{self, Access, JoinKind, Keys, Node, Partitions, Plan},
};

/// The operator.
pub(super) struct Lookup {
    runtime: Runtime,
    kind: JoinKind,
    left: Box<dyn Operator>,
    outer: Expressions,
    scan: plan::Scan,
    parts: Vec<IndexPart>,
    decoder: Decoder,
    /// Over the outer values.
    keys: Expressions,
    /// Over the scan's columns, then the outer values.
    filter: Option<Expressions>,
    project: Option<Expressions>,
    residual: Option<Expressions>,
    right_types: Vec<Type>,
}

/// The scan and the projection of a plan that is one lookup by key.
fn shape(right: &Plan) -> Option<(&plan::Scan, &[Vec<Expr>], Option<&[Expr]>)> {
    let (scan, project) = match &right.node {
        Node::Scan(scan) => (scan, None),
        Node::Project { input, expressions } => match &input.node {
            Node::Scan(scan) => (scan, Some(expressions.as_slice())),
            _ => return None,
        },
        _ => return None,
    };
    let Access::Keys { index, keys: Keys::List(keys) } = &scan.access else { return None };
    let table = &scan.table;
    let unique = index.is_none_or(|id| table.find_index(id).is_some_and(|index| index.unique));
    let plain = |expr: &Expr| !expr.any(&mut |at| matches!(at.kind, Kind::Subquery(_)));
    let all_plain = keys.iter().flatten().chain(&scan.filter).chain(project.unwrap_or_default()).all(plain);
    let one = keys.len() == 1 && matches!(scan.partitions, Partitions::Default);
    (unique && all_plain && one).then_some((scan, keys, project))
}

impl Lookup {
    /// If the right of an apply is one row by its key, the operator that looks up whole batches.
    pub(super) fn find(
        apply: &plan::Apply,
        left: Box<dyn Operator>,
        runtime: &Runtime,
    ) -> Result<Self, Box<dyn Operator>> {
        let Some((scan, keys, project)) = shape(&apply.right) else { return Err(left) };
        let index = match &scan.access {
            Access::Keys { index, .. } => *index,
            Access::Full { .. } | Access::Range { .. } => return Err(left),
        };
        let written = index.is_some() && runtime.statement.overlay.touches(scan.table.id);
        let Ok(parts) = parts_of(&scan.table, index) else { return Err(left) };
        if written || keys[0].len() != parts.len() {
            return Err(left);
        }
        let left_width = apply.left.columns.len();
        let scan_width = scan.columns.len();
        let beside = scan_width + apply.outer.len();
        let shifted = |expr: &Expr| outer_to_columns(expr.clone(), scan_width);
        let key_values: Vec<Expr> = keys[0].iter().map(|expr| outer_to_columns(expr.clone(), 0)).collect();
        let project = project.map(|list| list.iter().map(shifted).collect::<Vec<_>>());
        let width = left_width + apply.right.columns.len();
        Ok(Self {
            runtime: runtime.clone(),
            kind: apply.kind,
            left,
            outer: Expressions::new(&apply.outer, left_width),
            parts: parts.to_vec(),
            decoder: Decoder::new(&scan.table, &scan.columns),
            keys: Expressions::new(&key_values, apply.outer.len()),
            filter: scan.filter.as_ref().map(|filter| Expressions::condition(&shifted(filter), beside)),
            project: project.map(|list| Expressions::new(&list, beside)),
            residual: apply.residual.as_ref().map(|residual| Expressions::condition(residual, width)),
            right_types: apply.right.columns.iter().map(|column| column.ty).collect(),
            scan: scan.clone(),
        })
    }

    /// The key of each row of the left; none where it finds nothing.
    async fn keys_of(&mut self, outer: &Batch) -> Result<Vec<Option<Bytes>>> {
        let columns = self.keys.columns(&self.runtime, outer).await?;
        let mut keys = Vec::with_capacity(outer.len());
        for row in 0..outer.len() {
            if columns.iter().any(|column| column.is_null(row)) {
                keys.push(None);
                continue;
            }
            let mut bytes = Vec::new();
            for (column, part) in columns.iter().zip(&self.parts) {
                key::encode_part(&mut bytes, &column.value(row), part.order)
                    .map_err(|fault| Error::internal(fault.to_string()))?;
            }
            keys.push(Some(bytes.into()));
        }
        Ok(keys)
    }

    async fn join(&mut self, left: Batch) -> Result<Batch> {
        let outer = Batch::new(self.outer.columns(&self.runtime, &left).await?, left.len());
        let keys = self.keys_of(&outer).await?;
        let mut numbers: HashMap<&Bytes, u32> = HashMap::new();
        let mut asked: Vec<Bytes> = Vec::new();
        for key in keys.iter().flatten() {
            numbers.entry(key).or_insert_with(|| {
                asked.push(key.clone());
                asked.len() as u32 - 1
            });
        }
        let partition = partitions(&self.runtime, &self.scan.table, &Partitions::Default).await?;
        let partition =
            partition.into_iter().next().ok_or_else(|| Error::internal("no default partition"))?;
        let index = match &self.scan.access {
            Access::Keys { index, .. } | Access::Full { index } | Access::Range { index, .. } => *index,
        };
        let found = look_up(&self.runtime, &self.scan.table, index, &partition, asked.clone()).await?;
        let mut places = vec![None; found.len()];
        let mut stored = Vec::new();
        for (place, row) in places.iter_mut().zip(found) {
            if let Some(row) = row {
                *place = Some(stored.len() as u32);
                stored.push(row);
            }
        }
        let rows = self.decoder.decode(&partition, stored.as_slice())?;
        let (mut left_rows, mut right_rows) = (Vec::new(), Vec::new());
        for (row, key) in keys.iter().enumerate() {
            let place =
                key.as_ref().and_then(|key| numbers.get(key)).and_then(|number| places[*number as usize]);
            if let Some(place) = place {
                left_rows.push(row as u32);
                right_rows.push(place);
            }
        }
        let beside = crate::execute::join::pairs(&rows, &right_rows, &outer, &left_rows);
        self.finish(left, left_rows, beside).await
    }

    /// Filters and projects what was found, then gives what the kind of join gives.
    async fn finish(&mut self, left: Batch, mut left_rows: Vec<u32>, mut beside: Batch) -> Result<Batch> {
        if let Some(filter) = &mut self.filter {
            let kept = filter.filter(&self.runtime, beside).await?;
            left_rows = kept.physical_rows().iter().map(|at| left_rows[*at as usize]).collect();
            beside = kept.compact();
        }
        let right = match &mut self.project {
            Some(project) => Batch::new(project.columns(&self.runtime, &beside).await?, beside.len()),
            None => beside.project(&(0..self.right_types.len()).collect::<Vec<_>>()),
        };
        let all: Vec<u32> = (0..right.len() as u32).collect();
        let mut pairs = crate::execute::join::pairs(&left, &left_rows, &right, &all);
        if let Some(residual) = &mut self.residual {
            let kept = residual.filter(&self.runtime, pairs).await?;
            left_rows = kept.physical_rows().iter().map(|at| left_rows[*at as usize]).collect();
            pairs = kept.compact();
        }
        let mut matched = vec![false; left.len()];
        left_rows.iter().for_each(|row| matched[*row as usize] = true);
        let of = |wanted: bool| -> Vec<u32> {
            (0..left.len() as u32).filter(|row| matched[*row as usize] == wanted).collect()
        };
        Ok(match self.kind {
            JoinKind::Semi => left.select(&of(true)),
            JoinKind::Anti | JoinKind::NullAwareAnti => left.select(&of(false)),
            JoinKind::Left | JoinKind::Single => self.with_lonely(&left, &left_rows, pairs, &matched),
            JoinKind::Inner | JoinKind::Right | JoinKind::Full => pairs,
        })
    }

    /// Every row of the left once, in order: with its partner, or with nulls.
    fn with_lonely(&self, left: &Batch, left_rows: &[u32], pairs: Batch, matched: &[bool]) -> Batch {
        if left_rows.len() == left.len() {
            return pairs;
        }
        let mut places = vec![crate::batch::NO_ROW; left.len()];
        for (place, row) in left_rows.iter().enumerate() {
            places[*row as usize] = place as u32;
        }
        debug_assert_eq!(matched.iter().filter(|at| **at).count(), left_rows.len());
        let mut columns = left.columns().to_vec();
        let right = &pairs.columns()[left.width()..];
        columns.extend(right.iter().map(|column| Arc::new(column.gather_or_null(&places))));
        Batch::new(columns, left.len())
    }
}

/// Outer values as columns from a place on.
fn outer_to_columns(mut expr: Expr, from: usize) -> Expr {
    if let Kind::Outer(place) = expr.kind {
        expr.kind = Kind::Column(from + place);
        return expr;
    }
    expr.for_each_child_mut(&mut |child| {
        let taken = std::mem::replace(child, Expr::constant(Value::Null, Type::Bool));
        *child = outer_to_columns(taken, from);
    });
    expr
}

impl Operator for Lookup {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            while let Some(batch) = self.left.next().await? {
                self.runtime.pace().await?;
                if batch.is_empty() {
                    continue;
                }
                let made = self.join(batch.compact()).await?;
                if !made.is_empty() {
                    return Ok(Some(made));
                }
            }
            Ok(None)
        })
    }
}
