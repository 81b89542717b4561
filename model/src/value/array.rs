//! Arrays: elements in row-major order with dimensions and lower bounds, as PostgreSQL keeps them.
//!
//! Invariants:
//! - The product of the lengths is the number of elements; an empty array has no dimensions.
//! - At most six dimensions; every element is null or fits the element type.
//!
//! Not here: text and binary forms (`text_io`, `binary`), array functions (`sql`).

use std::cmp::Ordering;
use std::hash::Hasher;

use super::{Value, ValueError, ValueErrorKind};
use crate::types::Scalar;

/// Most dimensions an array may have.
pub const DIMENSIONS_MAX: usize = 6;
/// Most elements an array may have.
pub const ELEMENTS_MAX: usize = 134_217_727;

/// Length and first subscript of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dimension {
    /// Number of elements along it.
    pub length: i32,
    /// Subscript of the first, normally 1.
    pub lower: i32,
}

/// An array of one element type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    element: Scalar,
    dimensions: Vec<Dimension>,
    values: Vec<Value>,
}

impl Array {
    /// An array without elements.
    pub fn empty(element: Scalar) -> Self {
        Array { element, dimensions: Vec::new(), values: Vec::new() }
    }

    /// A one-dimensional array with subscripts from 1.
    pub fn from_values(element: Scalar, values: Vec<Value>) -> Self {
        if values.is_empty() {
            return Array::empty(element);
        }
        let dimensions = vec![Dimension { length: values.len() as i32, lower: 1 }];
        Array { element, dimensions, values }
    }

    /// A vector of the catalogs (`int2vector`): one dimension with subscripts from 0.
    pub fn from_vector(element: Scalar, values: Vec<Value>) -> Self {
        let dimensions = vec![Dimension { length: values.len() as i32, lower: 0 }];
        Array { element, dimensions, values }
    }

    /// An array of any shape; refused when shape and elements do not agree.
    pub fn new(element: Scalar, dimensions: Vec<Dimension>, values: Vec<Value>) -> Result<Self, ValueError> {
        if dimensions.len() > DIMENSIONS_MAX {
            let message = format!(
                "number of array dimensions ({}) exceeds the maximum allowed ({DIMENSIONS_MAX})",
                dimensions.len()
            );
            return Err(ValueError::new(ValueErrorKind::LimitExceeded, message));
        }
        let count = element_count(&dimensions)?;
        if count != values.len() {
            return Err(ValueError::new(ValueErrorKind::ArraySubscript, "wrong number of array elements"));
        }
        if count == 0 {
            return Ok(Array::empty(element));
        }
        Ok(Array { element, dimensions, values })
    }

    /// The element type.
    pub fn element(&self) -> Scalar {
        self.element
    }

    /// The dimensions, outermost first; none when the array is empty.
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// The elements in row-major order.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Number of elements over all dimensions.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The element at these subscripts, `None` outside the bounds or with a wrong number of subscripts.
    pub fn get(&self, subscripts: &[i32]) -> Option<&Value> {
        if subscripts.len() != self.dimensions.len() || subscripts.is_empty() {
            return None;
        }
        let mut index = 0usize;
        for (subscript, dimension) in subscripts.iter().zip(&self.dimensions) {
            let offset = i64::from(*subscript) - i64::from(dimension.lower);
            if offset < 0 || offset >= i64::from(dimension.length) {
                return None;
            }
            index = index * dimension.length as usize + offset as usize;
        }
        self.values.get(index)
    }

    /// The part between two subscripts in each dimension, with subscripts from 1; empty when out of bounds.
    pub fn slice(&self, bounds: &[(i32, i32)]) -> Array {
        let mut clipped = Vec::with_capacity(self.dimensions.len());
        for (index, dimension) in self.dimensions.iter().enumerate() {
            let last = i64::from(dimension.lower) + i64::from(dimension.length) - 1;
            let (low, high) = bounds.get(index).copied().unwrap_or((dimension.lower, last as i32));
            let low = i64::from(low.max(dimension.lower));
            let high = i64::from(high).min(last);
            if low > high {
                return Array::empty(self.element);
            }
            clipped.push(((low - i64::from(dimension.lower)) as usize, (high - low + 1) as usize));
        }
        if clipped.is_empty() || bounds.len() > self.dimensions.len() {
            return Array::empty(self.element);
        }
        let mut values = Vec::new();
        self.collect(&clipped, 0, 0, &mut values);
        let dimensions =
            clipped.iter().map(|(_, length)| Dimension { length: *length as i32, lower: 1 }).collect();
        Array { element: self.element, dimensions, values }
    }

    fn collect(&self, clipped: &[(usize, usize)], depth: usize, base: usize, out: &mut Vec<Value>) {
        let (start, length) = clipped[depth];
        let width = self.dimensions[depth].length as usize;
        for offset in start..start + length {
            let index = base * width + offset;
            if depth + 1 == clipped.len() {
                out.push(self.values[index].clone());
            } else {
                self.collect(clipped, depth + 1, index, out);
            }
        }
    }

    /// Compares elements first, then their number, then dimensions and bounds; null is greatest.
    pub fn cmp_sql(&self, other: &Array) -> Ordering {
        let unequal =
            self.values.iter().zip(&other.values).map(|(a, b)| a.cmp_sql(b)).find(|order| order.is_ne());
        unequal
            .unwrap_or_else(|| self.values.len().cmp(&other.values.len()))
            .then_with(|| self.dimensions.len().cmp(&other.dimensions.len()))
            .then_with(|| {
                let shape = |array: &Array| {
                    let lengths = array.dimensions.iter().map(|dimension| dimension.length);
                    lengths
                        .chain(array.dimensions.iter().map(|dimension| dimension.lower))
                        .collect::<Vec<_>>()
                };
                shape(self).cmp(&shape(other))
            })
    }

    /// Hashes the elements; shapes are left to the comparison.
    pub fn hash_sql<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.values.len());
        self.values.iter().for_each(|value| value.hash_sql(state));
    }
}

/// Number of elements of a shape, checked against the limits.
pub(crate) fn element_count(dimensions: &[Dimension]) -> Result<usize, ValueError> {
    let too_many = || {
        let message = format!("array size exceeds the maximum allowed ({ELEMENTS_MAX})");
        ValueError::new(ValueErrorKind::LimitExceeded, message)
    };
    if dimensions.is_empty() {
        return Ok(0);
    }
    let mut count = 1usize;
    for dimension in dimensions {
        let length = usize::try_from(dimension.length).map_err(|_| too_many())?;
        if dimension.lower.checked_add(dimension.length).is_none() {
            let message = format!("array lower bound is too large: {}", dimension.lower);
            return Err(ValueError::new(ValueErrorKind::LimitExceeded, message));
        }
        count = count.checked_mul(length).filter(|count| *count <= ELEMENTS_MAX).ok_or_else(too_many)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Array {
        let values = (1..=6).map(Value::Int4).collect();
        let dimensions = vec![Dimension { length: 2, lower: 1 }, Dimension { length: 3, lower: 1 }];
        Array::new(Scalar::Int4, dimensions, values).expect("two by three")
    }

    #[test]
    fn subscripts_find_elements_in_row_major_order() {
        assert_eq!(matrix().get(&[2, 1]), Some(&Value::Int4(4)));
        assert_eq!(matrix().get(&[0, 1]), None);
        assert_eq!(matrix().get(&[1]), None);
        assert_eq!(matrix().get(&[i32::MIN, 1]), None);
    }

    #[test]
    fn a_slice_is_clipped_to_the_bounds() {
        let slice = matrix().slice(&[(1, 9), (2, 3)]);
        let values: Vec<_> = slice.values().iter().map(|value| value.as_i64().expect("int")).collect();
        assert_eq!(values, [2, 3, 5, 6]);
        assert!(matrix().slice(&[(3, 4)]).is_empty());
    }

    #[test]
    fn a_shape_that_does_not_fit_its_elements_is_refused() {
        let wide = vec![Dimension { length: i32::MAX, lower: 1 }; 3];
        assert!(Array::new(Scalar::Int4, wide, Vec::new()).is_err());
        let one = vec![Dimension { length: 1, lower: 1 }];
        assert!(Array::new(Scalar::Int4, one, Vec::new()).is_err());
    }
}
