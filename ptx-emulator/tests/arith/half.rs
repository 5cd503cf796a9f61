//! f16, bf16 and packed arithmetic: exact in f64 (sums marked where inexact), rounded once.

use crate::harness::{Pair, binary, ternary, unary};
use crate::reference::{BF16, F16, To, sum};

fn both<T: Copy, U>(f: impl Fn(T, T) -> U) -> impl Fn(Pair<T>, Pair<T>) -> Pair<U> {
    move |a, b| Pair(f(a.0, b.0), f(a.1, b.1))
}

fn all<T: Copy, U>(f: impl Fn(T, T, T) -> U) -> impl Fn(Pair<T>, Pair<T>, Pair<T>) -> Pair<U> {
    move |a, b, c| Pair(f(a.0, b.0, c.0), f(a.1, b.1, c.1))
}

macro_rules! arithmetic {
    ($test:ident, $ty:ident, $scalar:literal, $packed:literal) => {
        #[test]
        fn $test() {
            let add = |a: $ty, b: $ty| $ty::nearest(sum(a.value(), b.value()));
            let sub = |a: $ty, b: $ty| $ty::nearest(sum(a.value(), -b.value()));
            let mul = |a: $ty, b: $ty| $ty::nearest(a.value() * b.value());
            let fma = |a: $ty, b: $ty, c: $ty| $ty::nearest(sum(a.value() * b.value(), c.value()));
            let relu = |a: $ty, b: $ty, c: $ty| {
                let x = sum(a.value() * b.value(), c.value());
                $ty::nearest(if x <= 0.0 { 0.0 } else { x })
            };
            binary(concat!("add.rn.", $scalar), add);
            binary(concat!("sub.rn.", $scalar), sub);
            binary(concat!("mul.rn.", $scalar), mul);
            ternary(concat!("fma.rn.", $scalar), fma);
            ternary(concat!("fma.rn.relu.", $scalar), relu);
            binary(concat!("add.rn.", $packed), both(add));
            binary(concat!("sub.rn.", $packed), both(sub));
            binary(concat!("mul.rn.", $packed), both(mul));
            ternary(concat!("fma.rn.", $packed), all(fma));
            ternary(concat!("fma.rn.relu.", $packed), all(relu));
            let pick = |a: $ty, b: $ty, max: bool| {
                let (x, y) = (a.value(), b.value());
                match (x.is_nan(), y.is_nan()) {
                    (true, _) => b,
                    (_, true) => a,
                    _ if x == y => {
                        if x.is_sign_negative() != max {
                            a
                        } else {
                            b
                        }
                    }
                    _ => {
                        if (x < y) != max {
                            a
                        } else {
                            b
                        }
                    }
                }
            };
            let nan = |a: $ty, b: $ty, x: $ty| match a.is_nan() || b.is_nan() {
                true => $ty::nearest(f64::NAN),
                false => x,
            };
            let min = |a: $ty, b: $ty| pick(a, b, false);
            let max = |a: $ty, b: $ty| pick(a, b, true);
            let max_nan = |a: $ty, b: $ty| nan(a, b, pick(a, b, true));
            binary(concat!("min.", $scalar), min);
            binary(concat!("max.", $scalar), max);
            binary(concat!("max.NaN.", $scalar), max_nan);
            binary(concat!("min.", $packed), both(min));
            binary(concat!("max.", $packed), both(max));
            binary(concat!("max.NaN.", $packed), both(max_nan));
            unary(concat!("neg.", $scalar), |a: u16| a ^ 0x8000);
            unary(concat!("abs.", $scalar), |a: u16| a & 0x7fff);
            unary(concat!("neg.", $packed), |a: u32| a ^ 0x8000_8000);
            unary(concat!("abs.", $packed), |a: u32| a & 0x7fff_7fff);
        }
    };
}

arithmetic!(f16_rounds_once, F16, "f16", "f16x2");
arithmetic!(bf16_rounds_once, BF16, "bf16", "bf16x2");

#[test]
fn f16_modifiers_flush_and_saturate() {
    let flush = |x: f64| {
        if x.abs() < 2f64.powi(-14) {
            0f64.copysign(x)
        } else {
            x
        }
    };
    let sat = |x: f64| if x > 0.0 { x.min(1.0) } else { 0.0 };
    let ftz = |x: f64| F16::nearest(flush(F16::round(x, To::Nearest).value()));
    binary("add.ftz.f16", |a: F16, b: F16| {
        ftz(sum(flush(a.value()), flush(b.value())))
    });
    binary("mul.ftz.f16", |a: F16, b: F16| {
        ftz(flush(a.value()) * flush(b.value()))
    });
    binary("add.sat.f16", |a: F16, b: F16| {
        F16::nearest(sat(sum(a.value(), b.value())))
    });
    binary(
        "mul.sat.f16x2",
        both(|a: F16, b: F16| F16::nearest(sat(a.value() * b.value()))),
    );
    ternary("fma.rn.ftz.f16", |a: F16, b: F16, c: F16| {
        ftz(sum(flush(a.value()) * flush(b.value()), flush(c.value())))
    });
}
