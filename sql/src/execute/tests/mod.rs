//! Operators against naive evaluation on rows of values, with memory enough and with so little that they must spill.

mod dml;
mod naive;
mod queries;
mod relational;
mod scans;

use model::{Result, Type, Value};

use super::{Operator, Runtime};
use crate::{
    batch::Batch,
    expr::{Expr, Kind, SortKey},
    functions::{self, Accepts},
    plan::{Column, Node, Plan},
};

/// A plan whose rows are never asked for: it says which columns an input has.
fn shape(types: &[Type]) -> Box<Plan> {
    Box::new(plan(Node::Values(Vec::new()), types))
}

fn plan(node: Node, types: &[Type]) -> Plan {
    let columns = types.iter().map(|ty| Column { name: "c".to_owned(), ty: *ty, typmod: -1 }).collect();
    Plan { id: 0, node, columns, rows: 0.0, cost: 0.0 }
}

/// Rows in small batches, some of them with a selection.
struct Given(std::vec::IntoIter<Batch>);

fn given(types: &[Type], rows: &[Vec<Value>]) -> Box<dyn Operator> {
    let batches: Vec<Batch> = rows
        .chunks(5)
        .enumerate()
        .map(|(number, chunk)| {
            let batch = Batch::from_rows(types, chunk);
            if number % 2 == 0 {
                return batch;
            }
            let mut doubled = chunk.to_vec();
            doubled.extend(chunk.iter().cloned());
            let keep: Vec<u32> = (chunk.len() as u32..2 * chunk.len() as u32).collect();
            Batch::from_rows(types, &doubled).select(&keep)
        })
        .collect();
    Box::new(Given(batches.into_iter()))
}

impl Operator for Given {
    fn next(&mut self) -> model::port::BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move { Ok(self.0.next()) })
    }
}

fn column(index: usize, ty: Type) -> Expr {
    Expr::column(index, ty, -1)
}

fn operator(symbol: &str, left: Expr, right: Expr) -> Expr {
    let is = |accepts: Accepts, ty: Type| accepts == Accepts::Exact(ty);
    let found = functions::find_operators(symbol)
        .iter()
        .find(|at| at.left.is_some_and(|at| is(at, left.ty)) && is(at.right, right.ty))
        .expect("an operator of these types");
    let ty = match found.gives {
        functions::Gives::Exact(ty) => ty,
        functions::Gives::Element | functions::Gives::Array => left.ty,
    };
    Expr::new(Kind::Operator(found, vec![left, right]), ty)
}

fn int(value: i32) -> Expr {
    Expr::constant(Value::Int4(value), Type::Int4)
}

fn key(index: usize, ty: Type, descending: bool, nulls_first: bool) -> SortKey {
    SortKey { value: column(index, ty), descending, nulls_first }
}

fn function(name: &str, types: &[Type]) -> &'static functions::Function {
    functions::find_functions(name)
        .iter()
        .find(|function| {
            let accepts = |(at, ty): (&Accepts, &Type)| {
                matches!(at, Accepts::Exact(at) if at == ty) || !matches!(at, Accepts::Exact(_))
            };
            function.parameters.len() == types.len() && function.parameters.iter().zip(types).all(accepts)
        })
        .expect("a function of these types")
}

/// Memory that is enough, and memory that is not.
const BUDGETS: [usize; 2] = [super::fixture::PLENTY, 24 * 1024];

fn runtimes() -> Vec<Runtime> {
    BUDGETS.iter().map(|bytes| super::fixture::runtime(*bytes)).collect()
}
