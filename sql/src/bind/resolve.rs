//! Which operator or function an expression means: PostgreSQL 15, chapter 10.2 and 10.3.
//!
//! Invariants:
//! - The rules are applied in PostgreSQL's order: exact match; candidates reachable by implicit casts; most exact matches;
//!   most preferred types; then unknown literals by category, then by the one known type.
//! - The answer says to which type each argument must be coerced; nothing is coerced here.

use model::{Type, types::TypeCategory};

use crate::functions::{Accepts, CastContext, Gives, cast};

/// What the rules say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// This candidate, with the types its arguments must have and the type of `anyelement`, if it has one.
    One { candidate: usize, types: Vec<Type>, element: Option<Type> },
    /// None fits.
    None,
    /// Several fit equally well.
    Ambiguous,
}

/// Chooses among candidates by the types of the arguments. All candidates have as many parameters as there are arguments.
pub(super) fn choose(candidates: &[Vec<Accepts>], arguments: &[Type], is_operator: bool) -> Choice {
    if let Some(found) = exact(candidates, arguments, is_operator) {
        return answer(candidates, found, arguments);
    }
    let fitting: Vec<usize> = (0..candidates.len()).filter(|at| fits(&candidates[*at], arguments)).collect();
    match fitting[..] {
        [] => Choice::None,
        [only] => answer(candidates, only, arguments),
        _ => best(candidates, fitting, arguments),
    }
}

fn exact(candidates: &[Vec<Accepts>], arguments: &[Type], is_operator: bool) -> Option<usize> {
    let wanted: Vec<Type> = match arguments {
        [Type::Unknown, known] if is_operator && *known != Type::Unknown => vec![*known, *known],
        [known, Type::Unknown] if is_operator && *known != Type::Unknown => vec![*known, *known],
        _ => arguments.to_vec(),
    };
    let equal = |parameters: &[Accepts]| {
        parameters.iter().zip(&wanted).all(|(parameter, ty)| *parameter == Accepts::Exact(*ty))
    };
    candidates.iter().position(|parameters| equal(parameters))
}

/// Whether every argument reaches its parameter by implicit casts.
fn fits(parameters: &[Accepts], arguments: &[Type]) -> bool {
    let reaches = |(parameter, ty): (&Accepts, &Type)| match parameter {
        Accepts::Exact(to) => *ty == Type::Unknown || is_implicit(*ty, *to),
        Accepts::Any | Accepts::Element => true,
        Accepts::NonArray => !ty.is_array(),
        Accepts::Array => *ty == Type::Unknown || ty.element().is_some(),
    };
    parameters.iter().zip(arguments).all(reaches) && element(parameters, arguments).is_some()
}

/// Whether a type becomes another without being asked.
pub(super) fn is_implicit(from: Type, to: Type) -> bool {
    from == to || cast::find(from, to) == Some(CastContext::Implicit)
}

/// The type of `anyelement`: `Some(None)` if there is none, nothing if the arguments disagree.
fn element(parameters: &[Accepts], arguments: &[Type]) -> Option<Option<Type>> {
    let mut element: Option<Type> = None;
    let mut polymorphic = false;
    for (parameter, ty) in parameters.iter().zip(arguments) {
        let found = match parameter {
            Accepts::Exact(_) | Accepts::Any => continue,
            Accepts::Element | Accepts::NonArray => *ty,
            Accepts::Array => match ty.element() {
                Some(element) => element,
                None => Type::Unknown,
            },
        };
        polymorphic = true;
        if found == Type::Unknown {
            continue;
        }
        match element {
            None => element = Some(found),
            Some(known) if known == found => {}
            Some(known) => {
                // Text types count as one; PostgreSQL 15 has `anycompatible` for most of these functions.
                match (is_implicit(known, found), is_implicit(found, known)) {
                    (_, true) => {}
                    (true, false) => element = Some(found),
                    (false, false) => return None,
                }
            }
        }
    }
    Some(element.or_else(|| polymorphic.then_some(Type::Text)))
}

fn answer(candidates: &[Vec<Accepts>], at: usize, arguments: &[Type]) -> Choice {
    let parameters = &candidates[at];
    let Some(element) = element(parameters, arguments) else { return Choice::None };
    let resolved = element.unwrap_or(Type::Text);
    let types = parameters.iter().zip(arguments).map(|(parameter, ty)| match parameter {
        Accepts::Exact(to) => *to,
        Accepts::Any => *ty,
        Accepts::Element | Accepts::NonArray => resolved,
        // An int2vector stays what it is; other arrays get the element type all agreed on.
        Accepts::Array if ty.element().is_some() && !ty.is_array() => *ty,
        Accepts::Array => resolved.array().unwrap_or(*ty),
    });
    Choice::One { candidate: at, types: types.collect(), element }
}

fn best(candidates: &[Vec<Accepts>], mut left: Vec<usize>, arguments: &[Type]) -> Choice {
    let count = |at: usize, good: &dyn Fn(&Accepts, Type) -> bool| {
        candidates[at]
            .iter()
            .zip(arguments)
            .filter(|(parameter, ty)| **ty != Type::Unknown && good(parameter, **ty))
            .count()
    };
    keep_most(&mut left, |at| count(at, &|parameter, ty| *parameter == Accepts::Exact(ty)));
    if let [only] = left[..] {
        return answer(candidates, only, arguments);
    }
    keep_most(&mut left, |at| {
        count(at, &|parameter, ty| match parameter {
            Accepts::Exact(to) => *to == ty || (to.is_preferred() && to.category() == ty.category()),
            Accepts::Any | Accepts::Element | Accepts::Array | Accepts::NonArray => false,
        })
    });
    if let [only] = left[..] {
        return answer(candidates, only, arguments);
    }
    if !arguments.contains(&Type::Unknown) {
        return Choice::Ambiguous;
    }
    if !narrow_unknown(candidates, &mut left, arguments) {
        return by_known_type(candidates, &left, arguments);
    }
    match left[..] {
        [only] => answer(candidates, only, arguments),
        _ => by_known_type(candidates, &left, arguments),
    }
}

fn keep_most(left: &mut Vec<usize>, score: impl Fn(usize) -> usize) {
    let best = left.iter().map(|at| score(*at)).max().unwrap_or(0);
    left.retain(|at| score(*at) == best);
}

fn category(parameter: &Accepts) -> TypeCategory {
    match parameter {
        Accepts::Exact(ty) => ty.category(),
        Accepts::Any | Accepts::Element | Accepts::NonArray => TypeCategory::Pseudo,
        Accepts::Array => TypeCategory::Array,
    }
}

fn is_preferred(parameter: &Accepts) -> bool {
    match parameter {
        Accepts::Exact(ty) => ty.is_preferred(),
        Accepts::Any | Accepts::Element | Accepts::Array | Accepts::NonArray => false,
    }
}

/// Keeps the candidates whose parameters at unknown places are of the chosen categories; false if none can be chosen.
fn narrow_unknown(candidates: &[Vec<Accepts>], left: &mut Vec<usize>, arguments: &[Type]) -> bool {
    let mut chosen: Vec<Option<(TypeCategory, bool)>> = vec![None; arguments.len()];
    for (place, ty) in arguments.iter().enumerate() {
        if *ty != Type::Unknown {
            continue;
        }
        let categories: Vec<TypeCategory> = left.iter().map(|at| category(&candidates[*at][place])).collect();
        let pick = if categories.contains(&TypeCategory::String) {
            TypeCategory::String
        } else if categories.iter().all(|category| *category == categories[0]) {
            categories[0]
        } else {
            return false;
        };
        let preferred = left
            .iter()
            .any(|at| category(&candidates[*at][place]) == pick && is_preferred(&candidates[*at][place]));
        chosen[place] = Some((pick, preferred));
    }
    let suits = |at: &usize| {
        chosen.iter().zip(&candidates[*at]).all(|(chosen, parameter)| match chosen {
            None => true,
            Some((pick, preferred)) => {
                category(parameter) == *pick && (!preferred || is_preferred(parameter))
            }
        })
    };
    let suited: Vec<usize> = left.iter().copied().filter(suits).collect();
    if !suited.is_empty() {
        *left = suited;
    }
    true
}

/// If all known arguments are of one type, unknown ones are taken to be of it too.
fn by_known_type(candidates: &[Vec<Accepts>], left: &[usize], arguments: &[Type]) -> Choice {
    let mut known = arguments.iter().filter(|ty| **ty != Type::Unknown);
    let Some(first) = known.next() else { return Choice::Ambiguous };
    if known.any(|ty| ty != first) {
        return Choice::Ambiguous;
    }
    let assumed = vec![*first; arguments.len()];
    let fitting: Vec<usize> = left.iter().copied().filter(|at| fits(&candidates[*at], &assumed)).collect();
    match fitting[..] {
        [only] => answer(candidates, only, arguments),
        _ => Choice::Ambiguous,
    }
}

/// The type a definition gives.
pub(super) fn result_type(gives: Gives, element: Option<Type>) -> Type {
    match gives {
        Gives::Exact(ty) => ty,
        Gives::Element => element.unwrap_or(Type::Text),
        Gives::Array => element.and_then(Type::array).unwrap_or(Type::Text),
    }
}
