//! The types of parameters: what the client said, else what the first context asks for, else text.
//!
//! Invariants:
//! - A type once decided stays; a second context that needs another one casts the parameter (`42P08` only where PostgreSQL
//!   says so: two different types asked of a parameter that had none).

use model::{Code, Error, Result, Type};

/// What is known of the parameters of a statement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters {
    types: Vec<Slot>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// Stands in the text.
    used: bool,
    ty: Option<Type>,
}

/// `$65536` and above cannot be sent.
const NUMBER_MAX: usize = 65_535;

impl Parameters {
    /// With the types the client gave; `Unknown` and none are left to the text.
    pub(crate) fn new(given: &[Option<Type>]) -> Self {
        let slot = |ty: &Option<Type>| Slot { used: false, ty: ty.filter(|ty| *ty != Type::Unknown) };
        Self { types: given.iter().map(slot).collect() }
    }

    /// The type of `$n`, if it is known; `Unknown` otherwise. The parameter now counts as used.
    pub(super) fn read(&mut self, text: &str) -> Result<(usize, Type)> {
        let number = text.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
        let number = number.filter(|number| (1..=NUMBER_MAX).contains(number));
        let Some(number) = number else {
            return Err(Error::new(Code::UndefinedParameter, format!("there is no parameter {text}")));
        };
        if self.types.len() < number {
            self.types.resize(number, Slot::default());
        }
        let slot = &mut self.types[number - 1];
        slot.used = true;
        Ok((number - 1, slot.ty.unwrap_or(Type::Unknown)))
    }

    /// Decides the type of a parameter that had none.
    pub(super) fn decide(&mut self, number: usize, ty: Type) -> Result<()> {
        let slot = &mut self.types[number];
        match slot.ty {
            None => {
                slot.ty = Some(ty);
                Ok(())
            }
            Some(known) if known == ty => Ok(()),
            Some(known) => Err(Error::new(
                Code::AmbiguousParameter,
                format!("inconsistent types deduced for parameter ${}", number + 1),
            )
            .with_detail(format!("{known} versus {ty}"))),
        }
    }

    /// The types of all parameters; `42P18` for one that nothing decided.
    pub(crate) fn finish(&self) -> Result<Vec<Type>> {
        let decided = |(number, slot): (usize, &Slot)| {
            slot.ty.ok_or_else(|| {
                let message = format!("could not determine data type of parameter ${}", number + 1);
                Error::new(Code::IndeterminateDatatype, message)
            })
        };
        self.types.iter().enumerate().map(decided).collect()
    }
}
