//! Numbers against big-integer arithmetic done another way, and at their limits.

use num_bigint::BigInt;
use proptest::prelude::*;

use super::*;

fn number(text: &str) -> Numeric {
    text.parse().expect("a numeric")
}

#[test]
fn limits_are_postgresqls() {
    let most = format!("1{}", "0".repeat(131_071));
    assert_eq!(number(&most).to_string(), most);
    assert_eq!(number("1e131071").to_string(), most);
    assert_eq!("1e131072".parse::<Numeric>(), Err(ValueError::numeric_overflow()));
    assert_eq!(number(&most).mul(&Numeric::from(10)), Err(ValueError::numeric_overflow()));
    assert_eq!(number("1e-16383").scale(), Some(SCALE_MAX));
    assert_eq!("1e-16384".parse::<Numeric>(), Err(ValueError::numeric_overflow()));
    assert!(number(&most).round(-131_071).is_finite());
}

#[test]
fn the_ends_of_the_small_form_are_crossed_without_loss() {
    let most = Numeric::from(i128::MAX);
    let least = Numeric::from(i128::MIN);
    assert_eq!(most.add(&Numeric::ONE).expect("sum").to_string(), "170141183460469231731687303715884105728");
    assert_eq!(least.neg().to_string(), "170141183460469231731687303715884105728");
    assert_eq!(least.abs().neg(), least);
    assert_eq!(least.sub(&Numeric::ONE).expect("difference").add(&Numeric::ONE), Ok(least.clone()));
    assert_eq!(
        least.div(&Numeric::from(-1)).expect("quotient").round(0).to_string(),
        most.add(&Numeric::ONE).expect("sum").to_string()
    );
    assert_eq!(least.rem(&Numeric::from(-1)).expect("remainder"), Numeric::ZERO);
    assert!(least.cmp_sql(&Numeric::from_parts(1, 5).expect("small")).is_lt());
}

#[test]
fn a_sum_equals_its_additions_in_any_order() {
    let texts = [
        "0.10",
        "99999999999999999999999999999999999999",
        "-5.125",
        "1e-30",
        "-99999999999999999999999999999999999999",
        "3",
    ];
    let mut forward = NumericSum::default();
    let mut backward = NumericSum::default();
    texts.iter().try_for_each(|text| forward.add(&number(text))).expect("a sum");
    texts.iter().rev().try_for_each(|text| backward.add(&number(text))).expect("a sum");
    let expected = "-2.024999999999999999999999999999";
    assert_eq!(forward.total().expect("a total").to_string(), expected);
    assert!(backward.total().expect("a total").cmp_sql(&number(expected)).is_eq());
    forward.remove(&number("3")).expect("a difference");
    backward.merge(&forward).expect("a sum");
    assert!(backward.total().expect("a total").cmp_sql(&number("-7.049999999999999999999999999998")).is_eq());
    forward.add(&Numeric::NAN).expect("a sum");
    assert!(forward.total().expect("a total").is_nan());
}

#[test]
fn a_modifier_says_what_it_cannot_hold() {
    let error = number("1000").with_typmod(Typmod::of_numeric(5, 2)).expect_err("too large");
    assert_eq!((error.code(), error.message()), ("22003", "numeric field overflow"));
    let detail = "A field with precision 5, scale 2 must round to an absolute value less than 10^3.";
    assert_eq!(error.detail(), Some(detail));
    let error = number("1").with_typmod(Typmod::of_numeric(3, 3)).expect_err("too large");
    assert!(error.detail().is_some_and(|detail| detail.ends_with("less than 1.")));
}

fn numbers() -> impl Strategy<Value = Numeric> {
    let parts = (any::<i128>(), 0..128u32, 0..30u16);
    parts.prop_map(|(mantissa, shift, scale)| {
        Numeric::from_parts(mantissa.checked_shr(shift).unwrap_or(0), scale).expect("a small scale")
    })
}

/// Numerator over 10^60.
fn exact(number: &Numeric) -> BigInt {
    let parts = number.parts().expect("finite");
    parts.mantissa * pow10_big(120 - u32::from(parts.scale))
}

proptest! {
    #[test]
    fn sums_and_products_are_exact(a in numbers(), b in numbers()) {
        prop_assert_eq!(exact(&a.add(&b).expect("sum")), exact(&a) + exact(&b));
        prop_assert_eq!(exact(&a.sub(&b).expect("difference")), exact(&a) - exact(&b));
        prop_assert_eq!(exact(&a.mul(&b).expect("product")) * pow10_big(120), exact(&a) * exact(&b));
        prop_assert_eq!(a.cmp_sql(&b), exact(&a).cmp(&exact(&b)));
    }

    #[test]
    fn a_quotient_is_within_half_a_unit_of_its_last_digit(a in numbers(), b in numbers()) {
        prop_assume!(!b.is_zero());
        let quotient = a.div(&b).expect("quotient");
        let scale = quotient.scale().expect("finite");
        // |a - q b| * 2 * 10^scale <= |b|
        let rest = exact(&a) * pow10_big(120) - exact(&quotient) * exact(&b);
        let twice = BigInt::from(rest.magnitude().clone()) * 2 * pow10_big(u32::from(scale));
        prop_assert!(twice <= BigInt::from(exact(&b).magnitude().clone()) * pow10_big(120));
        let remainder = a.rem(&b).expect("remainder");
        let whole = a.div_trunc(&b).expect("whole quotient");
        prop_assert!(whole.mul(&b).expect("product").add(&remainder).expect("sum").cmp_sql(&a).is_eq());
    }

    #[test]
    fn text_and_bytes_lead_back(a in numbers()) {
        prop_assert_eq!(number(&a.to_string()), a.clone());
        let (digits, exponent) = a.decimal_digits();
        if !a.is_zero() {
            let again = Numeric::from_decimal_digits(&digits, exponent, a.signum() < 0).expect("in range");
            prop_assert!(again.cmp_sql(&a).is_eq());
        }
    }

    #[test]
    fn exponential_and_logarithm_undo_each_other(mantissa in 1..10_000_000i128, scale in 0..6u16) {
        let a = Numeric::from_parts(mantissa, scale).expect("small");
        let there = a.ln().expect("a logarithm");
        // ln keeps at least 15 significant digits, of which exp loses those before the point.
        let back = there.exp().expect("an exponential").to_f64();
        prop_assert!((back / a.to_f64() - 1.0).abs() < 1e-12, "{} {} {}", a, there, back);
    }

    #[test]
    fn hostile_wire_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let _ = Numeric::read_wire(&bytes);
        if let Some(number) = Numeric::read_compact(&bytes) {
            let mut again = Vec::new();
            number.write_compact(&mut again);
            prop_assert_eq!(Numeric::read_compact(&again), Some(number));
        }
    }
}
