//! Numbers: arithmetic, rounding, powers, trigonometry, bits.
//!
//! Integer arithmetic is checked at the width of its result (`22003`); division by zero is `22012` for every type. Results
//! of mixed integer widths have the wider type, as in PostgreSQL's `int24pl` and its siblings.

use model::{
    Code, Error, Result, Type, Value,
    value::{Numeric, ValueError},
};

use super::{Definitions, float, int, int4, numeric};
use crate::context::Context;

pub(super) fn define(d: &mut Definitions) {
    integers(d);
    floats(d);
    numerics(d);
    bits(d);
    d.scalar("pi", (), Type::Float8, |_, _| Ok(Value::Float8(std::f64::consts::PI)));
    d.scalar("random", (), Type::Float8, |context, _| {
        // 53 random bits: every multiple of 2^-53 in [0, 1) is as likely.
        Ok(Value::Float8(((context.random)() >> 11) as f64 / (1_u64 << 53) as f64))
    })
    .volatile();
}

/// An integer type, as the result of checked arithmetic.
trait Width {
    const TYPE: Type;
    fn narrow(value: Option<i64>) -> Result<Value>;
}

struct Two;
struct Four;
struct Eight;

impl Width for Two {
    const TYPE: Type = Type::Int2;
    fn narrow(value: Option<i64>) -> Result<Value> {
        let value = value.and_then(|value| i16::try_from(value).ok());
        Ok(Value::Int2(value.ok_or_else(|| ValueError::out_of_range("smallint"))?))
    }
}

impl Width for Four {
    const TYPE: Type = Type::Int4;
    fn narrow(value: Option<i64>) -> Result<Value> {
        let value = value.and_then(|value| i32::try_from(value).ok());
        Ok(Value::Int4(value.ok_or_else(|| ValueError::out_of_range("integer"))?))
    }
}

impl Width for Eight {
    const TYPE: Type = Type::Int8;
    fn narrow(value: Option<i64>) -> Result<Value> {
        Ok(Value::Int8(value.ok_or_else(|| ValueError::out_of_range("bigint"))?))
    }
}

fn add<W: Width>(_: &mut Context, a: &[Value]) -> Result<Value> {
    W::narrow(int(&a[0]).checked_add(int(&a[1])))
}

fn subtract<W: Width>(_: &mut Context, a: &[Value]) -> Result<Value> {
    W::narrow(int(&a[0]).checked_sub(int(&a[1])))
}

fn multiply<W: Width>(_: &mut Context, a: &[Value]) -> Result<Value> {
    W::narrow(int(&a[0]).checked_mul(int(&a[1])))
}

fn divide<W: Width>(_: &mut Context, a: &[Value]) -> Result<Value> {
    match int(&a[1]) {
        0 => Err(ValueError::division_by_zero().into()),
        divisor => W::narrow(int(&a[0]).checked_div(divisor)),
    }
}

fn modulo<W: Width>(_: &mut Context, a: &[Value]) -> Result<Value> {
    match int(&a[1]) {
        0 => Err(ValueError::division_by_zero().into()),
        // The smallest number modulo -1 is 0, though the quotient does not fit.
        divisor => W::narrow(Some(int(&a[0]).wrapping_rem(divisor))),
    }
}

fn negate<W: Width>(_: &mut Context, a: &[Value]) -> Result<Value> {
    W::narrow(int(&a[0]).checked_neg())
}

fn absolute<W: Width>(_: &mut Context, a: &[Value]) -> Result<Value> {
    W::narrow(int(&a[0]).checked_abs())
}

fn same(_: &mut Context, a: &[Value]) -> Result<Value> {
    Ok(a[0].clone())
}

fn integers(d: &mut Definitions) {
    fn of_widths<W: Width>(d: &mut Definitions, left: Type, right: Type) {
        d.infix("+", left, right, W::TYPE, add::<W>);
        d.infix("-", left, right, W::TYPE, subtract::<W>);
        d.infix("*", left, right, W::TYPE, multiply::<W>);
        d.infix("/", left, right, W::TYPE, divide::<W>);
    }
    fn of_width<W: Width>(d: &mut Definitions) {
        of_widths::<W>(d, W::TYPE, W::TYPE);
        d.infix("%", W::TYPE, W::TYPE, W::TYPE, modulo::<W>);
        d.scalar("mod", [W::TYPE, W::TYPE], W::TYPE, modulo::<W>);
        d.prefix("-", W::TYPE, W::TYPE, negate::<W>);
        d.prefix("+", W::TYPE, W::TYPE, same);
        d.prefix("@", W::TYPE, W::TYPE, absolute::<W>);
        d.scalar("abs", [W::TYPE], W::TYPE, absolute::<W>);
    }
    of_width::<Two>(d);
    of_width::<Four>(d);
    of_width::<Eight>(d);
    of_widths::<Four>(d, Type::Int2, Type::Int4);
    of_widths::<Four>(d, Type::Int4, Type::Int2);
    of_widths::<Eight>(d, Type::Int2, Type::Int8);
    of_widths::<Eight>(d, Type::Int8, Type::Int2);
    of_widths::<Eight>(d, Type::Int4, Type::Int8);
    of_widths::<Eight>(d, Type::Int8, Type::Int4);
    gcd_and_lcm::<Four>(d);
    gcd_and_lcm::<Eight>(d);
}

fn gcd_and_lcm<W: Width>(d: &mut Definitions) {
    d.scalar("gcd", [W::TYPE, W::TYPE], W::TYPE, |_, a| {
        W::narrow(i64::try_from(gcd(int(&a[0]), int(&a[1]))).ok())
    });
    d.scalar("lcm", [W::TYPE, W::TYPE], W::TYPE, |_, a| {
        let (left, right) = (int(&a[0]), int(&a[1]));
        if left == 0 || right == 0 {
            return W::narrow(Some(0));
        }
        let product =
            u128::from(left.unsigned_abs()) / u128::from(gcd(left, right)) * u128::from(right.unsigned_abs());
        W::narrow(i64::try_from(product).ok())
    });
}

fn gcd(left: i64, right: i64) -> u64 {
    let (mut left, mut right) = (left.unsigned_abs(), right.unsigned_abs());
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

/// A float result that left the range from finite operands is an error, as PostgreSQL's `CHECKFLOATVAL`.
fn checked(result: f64, from_finite: bool, nonzero: bool) -> Result<f64> {
    if result.is_infinite() && from_finite {
        return Err(Error::new(Code::NumericValueOutOfRange, "value out of range: overflow"));
    }
    if result == 0.0 && nonzero {
        return Err(Error::new(Code::NumericValueOutOfRange, "value out of range: underflow"));
    }
    Ok(result)
}

/// A float type, as the result of checked arithmetic.
trait Precision {
    const TYPE: Type;
    fn wrap(result: f64, from_finite: bool, nonzero: bool) -> Result<Value>;
}

struct Single;
struct Double;

impl Precision for Single {
    const TYPE: Type = Type::Float4;
    fn wrap(result: f64, from_finite: bool, nonzero: bool) -> Result<Value> {
        let single = result as f32;
        checked(f64::from(single), from_finite, nonzero)?;
        Ok(Value::Float4(single))
    }
}

impl Precision for Double {
    const TYPE: Type = Type::Float8;
    fn wrap(result: f64, from_finite: bool, nonzero: bool) -> Result<Value> {
        Ok(Value::Float8(checked(result, from_finite, nonzero)?))
    }
}

fn floats(d: &mut Definitions) {
    fn of_types<P: Precision>(d: &mut Definitions, left: Type, right: Type) {
        d.infix("+", left, right, P::TYPE, |_, a| {
            let (x, y) = (float(&a[0]), float(&a[1]));
            P::wrap(x + y, x.is_finite() && y.is_finite(), false)
        });
        d.infix("-", left, right, P::TYPE, |_, a| {
            let (x, y) = (float(&a[0]), float(&a[1]));
            P::wrap(x - y, x.is_finite() && y.is_finite(), false)
        });
        d.infix("*", left, right, P::TYPE, |_, a| {
            let (x, y) = (float(&a[0]), float(&a[1]));
            P::wrap(x * y, x.is_finite() && y.is_finite(), x != 0.0 && y != 0.0)
        });
        d.infix("/", left, right, P::TYPE, |_, a| {
            let (x, y) = (float(&a[0]), float(&a[1]));
            if y == 0.0 && !x.is_nan() {
                return Err(ValueError::division_by_zero().into());
            }
            P::wrap(x / y, x.is_finite(), x != 0.0 && y.is_finite())
        });
    }
    fn of_type<P: Precision>(d: &mut Definitions) {
        of_types::<P>(d, P::TYPE, P::TYPE);
        d.prefix("-", P::TYPE, P::TYPE, |_, a| P::wrap(-float(&a[0]), false, false));
        d.prefix("+", P::TYPE, P::TYPE, same);
        d.prefix("@", P::TYPE, P::TYPE, |_, a| P::wrap(float(&a[0]).abs(), false, false));
        d.scalar("abs", [P::TYPE], P::TYPE, |_, a| P::wrap(float(&a[0]).abs(), false, false));
    }
    of_type::<Single>(d);
    of_type::<Double>(d);
    of_types::<Double>(d, Type::Float4, Type::Float8);
    of_types::<Double>(d, Type::Float8, Type::Float4);

    let plain: [(&'static str, super::Scalar); 26] = [
        ("ceil", |_, a| Ok(Value::Float8(float(&a[0]).ceil()))),
        ("ceiling", |_, a| Ok(Value::Float8(float(&a[0]).ceil()))),
        ("floor", |_, a| Ok(Value::Float8(float(&a[0]).floor()))),
        ("round", |_, a| Ok(Value::Float8(float(&a[0]).round_ties_even()))),
        ("trunc", |_, a| Ok(Value::Float8(float(&a[0]).trunc()))),
        ("sign", |_, a| {
            let x = float(&a[0]);
            Ok(Value::Float8(if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                0.0
            }))
        }),
        ("cbrt", |_, a| Ok(Value::Float8(float(&a[0]).cbrt()))),
        ("exp", |_, a| {
            let x = float(&a[0]);
            Double::wrap(x.exp(), x.is_finite(), x.is_finite())
        }),
        ("sqrt", |_, a| square_root(float(&a[0]))),
        ("ln", |_, a| Ok(Value::Float8(logarithm_domain(float(&a[0]))?.ln()))),
        ("log", |_, a| Ok(Value::Float8(logarithm_domain(float(&a[0]))?.log10()))),
        ("log10", |_, a| Ok(Value::Float8(logarithm_domain(float(&a[0]))?.log10()))),
        ("degrees", |_, a| Double::wrap(float(&a[0]).to_degrees(), float(&a[0]).is_finite(), false)),
        ("radians", |_, a| Ok(Value::Float8(float(&a[0]).to_radians()))),
        ("sin", |_, a| Ok(Value::Float8(finite(float(&a[0]))?.sin()))),
        ("cos", |_, a| Ok(Value::Float8(finite(float(&a[0]))?.cos()))),
        ("tan", |_, a| Ok(Value::Float8(finite(float(&a[0]))?.tan()))),
        ("cot", |_, a| Ok(Value::Float8(1.0 / finite(float(&a[0]))?.tan()))),
        ("asin", |_, a| Ok(Value::Float8(unit(float(&a[0]))?.asin()))),
        ("acos", |_, a| Ok(Value::Float8(unit(float(&a[0]))?.acos()))),
        ("atan", |_, a| Ok(Value::Float8(float(&a[0]).atan()))),
        ("sinh", |_, a| Ok(Value::Float8(float(&a[0]).sinh()))),
        ("cosh", |_, a| Ok(Value::Float8(float(&a[0]).cosh()))),
        ("tanh", |_, a| Ok(Value::Float8(float(&a[0]).tanh()))),
        ("asinh", |_, a| Ok(Value::Float8(float(&a[0]).asinh()))),
        ("sind", |_, a| Ok(Value::Float8(sine_of_degrees(finite(float(&a[0]))?)))),
    ];
    for (name, body) in plain {
        d.scalar(name, [Type::Float8], Type::Float8, body);
    }
    d.scalar("cosd", [Type::Float8], Type::Float8, |_, a| {
        Ok(Value::Float8(sine_of_degrees(finite(float(&a[0]))? + 90.0)))
    });
    d.prefix("|/", Type::Float8, Type::Float8, |_, a| square_root(float(&a[0])));
    d.prefix("||/", Type::Float8, Type::Float8, |_, a| Ok(Value::Float8(float(&a[0]).cbrt())));
    d.scalar("atan2", [Type::Float8, Type::Float8], Type::Float8, |_, a| {
        Ok(Value::Float8(float(&a[0]).atan2(float(&a[1]))))
    });
    for name in ["power", "pow"] {
        d.scalar(name, [Type::Float8, Type::Float8], Type::Float8, |_, a| power(float(&a[0]), float(&a[1])));
    }
    d.infix("^", Type::Float8, Type::Float8, Type::Float8, |_, a| power(float(&a[0]), float(&a[1])));
    d.scalar("width_bucket", [Type::Float8, Type::Float8, Type::Float8, Type::Int4], Type::Int4, |_, a| {
        width_bucket(float(&a[0]), float(&a[1]), float(&a[2]), int4(&a[3]))
    });
}

fn square_root(x: f64) -> Result<Value> {
    if x < 0.0 {
        let message = "cannot take square root of a negative number";
        return Err(Error::new(Code::InvalidArgumentForPowerFunction, message));
    }
    Ok(Value::Float8(x.sqrt()))
}

fn logarithm_domain(x: f64) -> Result<f64> {
    let message = if x == 0.0 {
        "cannot take logarithm of zero"
    } else if x < 0.0 {
        "cannot take logarithm of a negative number"
    } else {
        return Ok(x);
    };
    Err(Error::new(Code::InvalidArgumentForLogarithm, message))
}

fn finite(x: f64) -> Result<f64> {
    if x.is_infinite() {
        return Err(Error::new(Code::NumericValueOutOfRange, "input is out of range"));
    }
    Ok(x)
}

fn unit(x: f64) -> Result<f64> {
    if x.abs() > 1.0 {
        return Err(Error::new(Code::NumericValueOutOfRange, "input is out of range"));
    }
    Ok(x)
}

/// Exact where a right triangle is: multiples of 30 degrees.
fn sine_of_degrees(degrees: f64) -> f64 {
    let turn = degrees.rem_euclid(360.0);
    let (turn, sign) = if turn >= 180.0 { (turn - 180.0, -1.0) } else { (turn, 1.0) };
    let turn = if turn > 90.0 { 180.0 - turn } else { turn };
    let sine = if turn == 30.0 {
        0.5
    } else if turn == 90.0 {
        1.0
    } else {
        turn.to_radians().sin()
    };
    sign * sine
}

fn power(x: f64, y: f64) -> Result<Value> {
    if x == 0.0 && y < 0.0 {
        let message = "zero raised to a negative power is undefined";
        return Err(Error::new(Code::InvalidArgumentForPowerFunction, message));
    }
    if x < 0.0 && x.is_finite() && y.is_finite() && y.fract() != 0.0 {
        let message = "a negative number raised to a non-integer power yields a complex result";
        return Err(Error::new(Code::InvalidArgumentForPowerFunction, message));
    }
    Double::wrap(x.powf(y), x.is_finite() && y.is_finite(), x != 0.0 && x.is_finite() && y.is_finite())
}

fn width_bucket(x: f64, low: f64, high: f64, count: i32) -> Result<Value> {
    let refuse = |message: &str| Err(Error::new(Code::InvalidArgumentForWidthBucketFunction, message));
    if count <= 0 {
        return refuse("count must be greater than zero");
    }
    if x.is_nan() || low.is_nan() || high.is_nan() {
        return refuse("operand, lower bound, and upper bound cannot be NaN");
    }
    if low.is_infinite() || high.is_infinite() {
        return refuse("lower and upper bounds must be finite");
    }
    if low == high {
        return refuse("lower bound cannot equal upper bound");
    }
    let (before, share) =
        if low < high { (x < low, (x - low) / (high - low)) } else { (x > low, (low - x) / (low - high)) };
    let overflow = || Error::from(ValueError::out_of_range("integer"));
    Ok(Value::Int4(if before {
        0
    } else if share >= 1.0 {
        count.checked_add(1).ok_or_else(overflow)?
    } else {
        (share * f64::from(count)) as i32 + 1
    }))
}

fn numerics(d: &mut Definitions) {
    const N: Type = Type::Numeric;
    fn give(result: Result<Numeric, ValueError>) -> Result<Value> {
        Ok(Value::Numeric(result?))
    }
    d.infix("+", N, N, N, |_, a| give(numeric(&a[0]).add(numeric(&a[1]))));
    d.infix("-", N, N, N, |_, a| give(numeric(&a[0]).sub(numeric(&a[1]))));
    d.infix("*", N, N, N, |_, a| give(numeric(&a[0]).mul(numeric(&a[1]))));
    d.infix("/", N, N, N, |_, a| give(numeric(&a[0]).div(numeric(&a[1]))));
    d.infix("%", N, N, N, |_, a| give(numeric(&a[0]).rem(numeric(&a[1]))));
    d.infix("^", N, N, N, |_, a| give(numeric(&a[0]).power(numeric(&a[1]))));
    d.prefix("-", N, N, |_, a| Ok(Value::Numeric(numeric(&a[0]).neg())));
    d.prefix("+", N, N, same);
    d.prefix("@", N, N, |_, a| Ok(Value::Numeric(numeric(&a[0]).abs())));
    d.scalar("abs", [N], N, |_, a| Ok(Value::Numeric(numeric(&a[0]).abs())));
    d.scalar("sign", [N], N, |_, a| Ok(Value::Numeric(numeric(&a[0]).sign())));
    d.scalar("ceil", [N], N, |_, a| Ok(Value::Numeric(numeric(&a[0]).ceil())));
    d.scalar("ceiling", [N], N, |_, a| Ok(Value::Numeric(numeric(&a[0]).ceil())));
    d.scalar("floor", [N], N, |_, a| Ok(Value::Numeric(numeric(&a[0]).floor())));
    d.scalar("round", [N], N, |_, a| Ok(Value::Numeric(numeric(&a[0]).round(0))));
    d.scalar("round", [N, Type::Int4], N, |_, a| Ok(Value::Numeric(numeric(&a[0]).round(int4(&a[1])))));
    d.scalar("trunc", [N], N, |_, a| Ok(Value::Numeric(numeric(&a[0]).trunc(0))));
    d.scalar("trunc", [N, Type::Int4], N, |_, a| Ok(Value::Numeric(numeric(&a[0]).trunc(int4(&a[1])))));
    d.scalar("sqrt", [N], N, |_, a| give(numeric(&a[0]).sqrt()));
    d.scalar("exp", [N], N, |_, a| give(numeric(&a[0]).exp()));
    d.scalar("ln", [N], N, |_, a| give(numeric(&a[0]).ln()));
    for name in ["log", "log10"] {
        d.scalar(name, [N], N, |_, a| give(numeric(&a[0]).log10()));
    }
    d.scalar("log", [N, N], N, |_, a| give(numeric(&a[1]).log(numeric(&a[0]))));
    for name in ["power", "pow"] {
        d.scalar(name, [N, N], N, |_, a| give(numeric(&a[0]).power(numeric(&a[1]))));
    }
    d.scalar("mod", [N, N], N, |_, a| give(numeric(&a[0]).rem(numeric(&a[1]))));
    d.scalar("div", [N, N], N, |_, a| give(numeric(&a[0]).div_trunc(numeric(&a[1]))));
    d.scalar("gcd", [N, N], N, |_, a| give(numeric(&a[0]).gcd(numeric(&a[1]))));
    d.scalar("lcm", [N, N], N, |_, a| give(numeric(&a[0]).lcm(numeric(&a[1]))));
    d.scalar("scale", [N], Type::Int4, |_, a| Ok(scale_or_null(numeric(&a[0]).scale())));
    d.scalar("min_scale", [N], Type::Int4, |_, a| Ok(scale_or_null(numeric(&a[0]).min_scale())));
    d.scalar("numeric_inc", [N], N, |_, a| give(numeric(&a[0]).add(&Numeric::from(1_i64))));
    d.scalar("trim_scale", [N], N, |_, a| Ok(Value::Numeric(numeric(&a[0]).trim_scale())));
    d.scalar("factorial", [Type::Int8], N, |_, a| factorial(int(&a[0])));
}

fn scale_or_null(scale: Option<u16>) -> Value {
    scale.map_or(Value::Null, |scale| Value::Int4(i32::from(scale)))
}

/// The largest argument whose factorial has no more than the 131,072 digits of a numeric.
const FACTORIAL_MAX: i64 = 32_177;

fn factorial(n: i64) -> Result<Value> {
    if n < 0 {
        return Err(Error::new(Code::NumericValueOutOfRange, "factorial of a negative number is undefined"));
    }
    if n > FACTORIAL_MAX {
        return Err(ValueError::numeric_overflow().into());
    }
    let mut product = Numeric::from(1_i64);
    for factor in 2..=n {
        product = product.mul(&Numeric::from(factor))?;
    }
    Ok(Value::Numeric(product))
}

fn bits(d: &mut Definitions) {
    fn of_width<W: Width>(d: &mut Definitions, shift: [super::Scalar; 2]) {
        d.infix("&", W::TYPE, W::TYPE, W::TYPE, |_, a| W::narrow(Some(int(&a[0]) & int(&a[1]))));
        d.infix("|", W::TYPE, W::TYPE, W::TYPE, |_, a| W::narrow(Some(int(&a[0]) | int(&a[1]))));
        d.infix("#", W::TYPE, W::TYPE, W::TYPE, |_, a| W::narrow(Some(int(&a[0]) ^ int(&a[1]))));
        d.prefix("~", W::TYPE, W::TYPE, |_, a| W::narrow(Some(!int(&a[0]))));
        let [left, right] = shift;
        d.infix("<<", W::TYPE, Type::Int4, W::TYPE, left);
        d.infix(">>", W::TYPE, Type::Int4, W::TYPE, right);
    }
    // Shift counts wrap at the machine word that PostgreSQL computes in: 32 bits for int2 and int4.
    of_width::<Two>(
        d,
        [
            |_, a| Ok(Value::Int2(((int(&a[0]) as i32).wrapping_shl(int(&a[1]) as u32)) as i16)),
            |_, a| Ok(Value::Int2(((int(&a[0]) as i32).wrapping_shr(int(&a[1]) as u32)) as i16)),
        ],
    );
    of_width::<Four>(
        d,
        [
            |_, a| Ok(Value::Int4((int(&a[0]) as i32).wrapping_shl(int(&a[1]) as u32))),
            |_, a| Ok(Value::Int4((int(&a[0]) as i32).wrapping_shr(int(&a[1]) as u32))),
        ],
    );
    of_width::<Eight>(
        d,
        [
            |_, a| Ok(Value::Int8(int(&a[0]).wrapping_shl(int(&a[1]) as u32))),
            |_, a| Ok(Value::Int8(int(&a[0]).wrapping_shr(int(&a[1]) as u32))),
        ],
    );
}
