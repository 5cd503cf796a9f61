//! The `.approx` functions within the manual's error bounds of f64's, and their special values.

use std::f32::consts::PI;

use crate::harness::{Column, Random, Value, run};
use crate::reference::{BF16, F16, flush};

/// How far a result may be from the exact one.
#[derive(Clone, Copy)]
enum Bound {
    Relative(f64),
    Absolute(f64),
}

/// Runs `op` on special values (a copy of each per table row) and on random values in a range.
#[track_caller]
fn check<T: Value>(
    op: &str,
    inputs: Vec<T>,
    want: impl Fn(T) -> f64,
    value: impl Fn(T) -> f64,
    bound: Bound,
    smallest: f64,
) {
    let mut values: Vec<u64> = inputs.iter().map(|x| x.bits()).collect();
    values.resize(values.len().next_multiple_of(128), values[0]);
    let column = Column {
        register: T::REGISTER,
        bytes: T::BYTES,
        values: values.clone(),
    };
    let got = run(&format!("{op} %d, %a;"), (T::REGISTER, T::BYTES), &[column]);
    for (x, y) in values.into_iter().zip(got) {
        let (want, got) = (want(T::of(x)), value(T::of(y)));
        let near = match bound {
            Bound::Relative(bound) => bound * want.abs() + smallest,
            Bound::Absolute(bound) => bound,
        };
        let same_zero = want != 0.0 || want.is_sign_negative() == got.is_sign_negative();
        let ok = if want.is_nan() {
            y == T::of(y).bits() && got.is_nan()
        } else {
            got == want && same_zero || want.is_finite() && (got - want).abs() <= near
        };
        assert!(ok, "{op} of {x:#x} is {got:e}, want {want:e}");
    }
}

fn f32_inputs(low: f32, high: f32) -> Vec<f32> {
    let mut random = Random(21);
    let mut inputs: Vec<f32> = f32::special().into_iter().map(f32::of).collect();
    for _ in 0..480 {
        let unit = random.next() as f64 / 2f64.powi(64);
        inputs.push((f64::from(low) + unit * f64::from(high - low)) as f32);
        inputs.push(f32::from_bits(random.next() as u32));
    }
    inputs
}

/// `op` and `op.ftz` over all of f32; an f32 result above the range is infinite.
#[track_caller]
fn f32_op(name: &str, range: (f32, f32), f: impl Fn(f64) -> f64, bound: Bound) {
    let greatest = f64::from(f32::MAX);
    let narrow = |y: f64| {
        if y.abs() > greatest {
            f64::INFINITY.copysign(y)
        } else {
            y
        }
    };
    let least = f64::from(f32::from_bits(1));
    let plain = |x: f32| narrow(f(x.into()));
    let inputs = f32_inputs(range.0, range.1);
    let op = format!("{name}.approx.f32");
    check(&op, inputs.clone(), plain, |y| y.into(), bound, least);
    if name != "tanh" {
        let ftz = |x: f32| {
            let y = narrow(f(flush(x).into()));
            if y.abs() < f64::from(f32::MIN_POSITIVE) * (1.0 - 2f64.powi(-25)) {
                0f64.copysign(y)
            } else {
                y
            }
        };
        let op = format!("{name}.approx.ftz.f32");
        check(&op, inputs, ftz, |y| y.into(), bound, 0.0);
    }
}

#[test]
fn f32_functions_are_within_the_manuals_bounds() {
    let relative = |exp: i32| Bound::Relative(2f64.powi(exp));
    f32_op("rcp", (-4.0, 4.0), |x| 1.0 / x, relative(-23));
    f32_op("sqrt", (0.0, 1e6), f64::sqrt, relative(-23));
    // −0 gives −∞ here and in the manual.
    f32_op(
        "rsqrt",
        (0.0, 1e6),
        |x| 1.0 / x.sqrt(),
        Bound::Relative(2f64.powf(-22.9)),
    );
    f32_op("ex2", (-130.0, 130.0), f64::exp2, relative(-22));
    f32_op("tanh", (-10.0, 10.0), f64::tanh, relative(-11));
    f32_op(
        "lg2",
        (0.0, 100.0),
        f64::log2,
        Bound::Relative(2f64.powi(-22)),
    );
}

#[test]
fn sine_and_cosine_are_within_their_absolute_bound_near_zero() {
    // The manual bounds the error on [−π, π]; larger angles are not asked for.
    let small = |x: f32| {
        if x.abs() <= PI || !x.is_finite() {
            x
        } else {
            0.5
        }
    };
    let inputs: Vec<f32> = f32_inputs(-PI, PI).into_iter().map(small).collect();
    let bound = Bound::Absolute(2f64.powf(-20.5));
    check(
        "sin.approx.f32",
        inputs.clone(),
        |x| f64::from(x).sin(),
        |y| y.into(),
        bound,
        0.0,
    );
    check(
        "cos.approx.f32",
        inputs,
        |x| f64::from(x).cos(),
        |y| y.into(),
        bound,
        0.0,
    );
}

#[test]
fn sixteen_bit_functions_take_every_pattern() {
    let f16 = || (0..=u16::MAX).map(F16::from_bits).collect::<Vec<_>>();
    let bf16 = || (0..=u16::MAX).map(BF16::from_bits).collect::<Vec<_>>();
    // Overflow to infinity begins halfway past the greatest value.
    let f16_range = |y: f64| if y >= 65520.0 { f64::INFINITY } else { y };
    let relative = Bound::Relative;
    let least = 2f64.powi(-24);
    let value = |y: F16| y.value();
    let ex2 = |x: F16| f16_range(x.value().exp2());
    check(
        "ex2.approx.f16",
        f16(),
        ex2,
        value,
        relative(2f64.powf(-9.9)),
        least,
    );
    let tanh = |x: F16| x.value().tanh();
    check(
        "tanh.approx.f16",
        f16(),
        tanh,
        value,
        relative(2f64.powf(-10.9)),
        least,
    );
    let greatest = 2f64.powi(128) * (1.0 - 2f64.powi(-9));
    let flushed = |x: f64| {
        if x.abs() < 2f64.powi(-126) {
            0f64.copysign(x)
        } else {
            x
        }
    };
    let value = |y: BF16| y.value();
    let ex2 = |x: BF16| match flushed(x.value()).exp2() {
        y if y >= greatest => f64::INFINITY,
        y => flushed(y),
    };
    check(
        "ex2.approx.ftz.bf16",
        bf16(),
        ex2,
        value,
        relative(2f64.powi(-7)),
        2f64.powi(-126),
    );
    let tanh = |x: BF16| x.value().tanh();
    check(
        "tanh.approx.bf16",
        bf16(),
        tanh,
        value,
        relative(2f64.powi(-8)),
        2f64.powi(-133),
    );
}

#[test]
fn approximate_division() {
    let div = |a: f32, b: f32| f64::from(a) / f64::from(b);
    let mut random = Random(4);
    let pairs: Vec<(f32, f32)> = (0..1024)
        .map(|i| {
            let specials = f32::special();
            let at = |j: usize| f32::of(specials[j % specials.len()]);
            if i < specials.len() * specials.len() {
                (at(i / specials.len()), at(i))
            } else {
                (
                    f32::from_bits(random.next() as u32),
                    f32::from_bits(random.next() as u32),
                )
            }
        })
        .collect();
    for op in ["div.approx.f32", "div.full.f32"] {
        let column = |f: fn(&(f32, f32)) -> f32| Column {
            register: "f32",
            bytes: 4,
            values: pairs.iter().map(|pair| f(pair).to_bits().into()).collect(),
        };
        let args = [column(|pair| pair.0), column(|pair| pair.1)];
        let got = run(&format!("{op} %d, %a, %b;"), ("f32", 4), &args);
        for ((a, b), got) in pairs.iter().zip(got) {
            let size = b.abs();
            let got = f64::from(f32::from_bits(got as u32));
            let want = div(*a, *b);
            // The manual's special range, where the reciprocal counts as zero.
            let zero = op == "div.approx.f32" && size > 2f32.powi(126) && size.is_finite();
            let want = if zero {
                f64::from(*a) * 0f64.copysign((*b).into())
            } else {
                want
            };
            // Outside the range of the bound only special values are promised.
            let bounded = want.is_finite() && size >= f32::MIN_POSITIVE;
            let ulps = 2.0 * 2f64.powi(-23) * want.abs() + 2.0 * f64::from(f32::from_bits(1));
            let overflow = want.abs() >= f64::from(f32::MAX) && got.is_infinite();
            let ok = want.is_nan() && got.is_nan()
                || got == want
                || overflow
                || bounded && (got - want).abs() <= ulps
                || size < f32::MIN_POSITIVE;
            assert!(ok, "{op} of {a:e} and {b:e} is {got:e}, want {want:e}");
        }
    }
}
