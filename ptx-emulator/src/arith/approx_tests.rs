//! Approximate functions against series and digit-by-digit algorithms in f64, within the manual's
//! bounds, and its tables of special values.

use super::*;
use crate::arith::samples::Random;
use ApproxOp::*;

const INF: f32 = f32::INFINITY;
const SUBNORMAL: f32 = f32::from_bits(1);

fn f32_op(op: ApproxOp, ftz: bool, x: f32) -> f32 {
    f32::from_bits(approx(op, ScalarType::F32, ftz, x.to_bits().into()) as u32)
}

#[track_caller]
fn table(op: ApproxOp, ftz: bool, rows: &[(f32, f32)]) {
    for (x, want) in rows {
        let got = f32_op(op, ftz, *x);
        let same = if want.is_nan() {
            got.to_bits() == 0x7fff_ffff
        } else {
            got.to_bits() == want.to_bits()
        };
        assert!(
            same,
            "{op:?} ftz {ftz} of {x:e}: {got:e}, the manual has {want:e}"
        );
    }
}

#[test]
fn special_values_are_the_manuals() {
    let nan = f32::NAN;
    for ftz in [false, true] {
        table(
            Rcp,
            ftz,
            &[
                (-INF, -0.0),
                (-0.0, -INF),
                (0.0, INF),
                (INF, 0.0),
                (nan, nan),
            ],
        );
        table(
            Sqrt,
            ftz,
            &[
                (-INF, nan),
                (-1.0, nan),
                (-0.0, -0.0),
                (0.0, 0.0),
                (INF, INF),
            ],
        );
        table(
            Rsqrt,
            ftz,
            &[
                (-INF, nan),
                (-1.0, nan),
                (-0.0, -INF),
                (0.0, INF),
                (INF, 0.0),
            ],
        );
        table(
            Ex2,
            ftz,
            &[(-INF, 0.0), (-0.0, 1.0), (0.0, 1.0), (INF, INF), (nan, nan)],
        );
        table(
            Ex2,
            ftz,
            &[
                (SUBNORMAL, 1.0),
                (-SUBNORMAL, 1.0),
                (128.0, INF),
                (1e30, INF),
            ],
        );
        table(
            Ex2,
            ftz,
            &[
                (-200.0, 0.0),
                (-1e30, 0.0),
                (3.0, 8.0),
                (-126.0, f32::MIN_POSITIVE),
            ],
        );
        table(
            Lg2,
            ftz,
            &[
                (-INF, nan),
                (-1.0, nan),
                (-0.0, -INF),
                (0.0, -INF),
                (INF, INF),
            ],
        );
        table(
            Sin,
            ftz,
            &[
                (-INF, nan),
                (-0.0, -0.0),
                (0.0, 0.0),
                (INF, nan),
                (nan, nan),
            ],
        );
        table(
            Cos,
            ftz,
            &[(-INF, nan), (-0.0, 1.0), (0.0, 1.0), (INF, nan), (nan, nan)],
        );
        table(
            Tanh,
            ftz,
            &[
                (-INF, -1.0),
                (-0.0, -0.0),
                (0.0, 0.0),
                (INF, 1.0),
                (nan, nan),
            ],
        );
    }
    // Subnormals: numbers without .ftz, zeros with it.
    table(Lg2, false, &[(SUBNORMAL, -149.0), (-SUBNORMAL, nan)]);
    table(Lg2, true, &[(SUBNORMAL, -INF), (-SUBNORMAL, -INF)]);
    table(Rcp, true, &[(-SUBNORMAL, -INF), (3e38, 0.0), (-3e38, -0.0)]);
    table(
        Rcp,
        false,
        &[(f32::from_bits(0x7f00_0000), f32::from_bits(0x0040_0000))],
    );
    table(Rsqrt, true, &[(-SUBNORMAL, -INF), (SUBNORMAL, INF)]);
    table(Rsqrt, false, &[(-SUBNORMAL, nan)]);
    table(Sqrt, true, &[(-SUBNORMAL, -0.0)]);
    table(Ex2, false, &[(-149.0, SUBNORMAL)]);
    table(Ex2, true, &[(-149.0, 0.0), (-127.0, 0.0)]);
    table(
        Tanh,
        false,
        &[(SUBNORMAL, SUBNORMAL), (-SUBNORMAL, -SUBNORMAL)],
    );
}

/// 2^x by square roots: every binary digit of the fraction is one of them.
fn exp2_by_roots(x: f64) -> f64 {
    let (mut result, mut root) = (1.0f64, 2.0f64);
    let mut fraction = x - x.floor();
    for _ in 0..52 {
        root = root.sqrt();
        fraction *= 2.0;
        if fraction >= 1.0 {
            fraction -= 1.0;
            result *= root;
        }
    }
    (0..x.floor().abs() as i32).fold(result, |r, _| if x < 0.0 { r / 2.0 } else { r * 2.0 })
}

/// log2 by squaring: every square gives a binary digit.
fn log2_by_squares(x: f64) -> f64 {
    let (mut x, mut result) = (x, 0.0);
    while x >= 2.0 {
        (x, result) = (x / 2.0, result + 1.0);
    }
    while x < 1.0 {
        (x, result) = (x * 2.0, result - 1.0);
    }
    let mut digit = 1.0;
    for _ in 0..45 {
        x *= x;
        digit /= 2.0;
        if x >= 2.0 {
            (x, result) = (x / 2.0, result + digit);
        }
    }
    result
}

/// Σ terms of the sine (`odd`) or cosine series.
fn sine_series(x: f64, odd: bool) -> f64 {
    let (mut term, mut sum) = (if odd { x } else { 1.0 }, 0.0);
    let mut n = odd as i32 as f64;
    for _ in 0..40 {
        sum += term;
        term *= -x * x / ((n + 1.0) * (n + 2.0));
        n += 2.0;
    }
    sum
}

/// tanh by its continued fraction x/(1 + x²/(3 + x²/(5 + …))).
fn tanh_by_fraction(x: f64) -> f64 {
    let mut tail = 0.0;
    for n in (0..60).rev() {
        tail = x * x / (f64::from(2 * n + 1) + tail);
    }
    // The outermost step has x instead of x².
    tail / x
}

#[track_caller]
fn relative(op: ApproxOp, x: f32, want: f64, bound: f64) {
    let got = f64::from(f32_op(op, false, x));
    let error = (got - want).abs();
    // Half the least subnormal comes on top for tiny results.
    let allowed = bound * want.abs() + 0.5 * f64::from(SUBNORMAL);
    assert!(error <= allowed, "{op:?}({x:e}) = {got:e}, want {want:e}");
}

#[test]
fn functions_stay_within_a_rounding_of_independent_algorithms() {
    // 2^-24 is half a unit in the last place; the rest is for the two f64 computations.
    let rounding = 2f64.powi(-24) * (1.0 + 1e-5);
    let mut random = Random::new(11);
    for _ in 0..20_000 {
        let unit = random.next() as f64 / 2f64.powi(64);
        let x = (unit * 277.9 - 150.0) as f32;
        relative(Ex2, x, exp2_by_roots(x.into()), rounding);
        let small = (unit - 0.5) as f32;
        relative(Ex2, small, exp2_by_roots(small.into()), rounding);
        let angle = ((unit - 0.5) * 6.0) as f32;
        for (op, odd) in [(Sin, true), (Cos, false)] {
            let want = sine_series(angle.into(), odd);
            let error = (f64::from(f32_op(op, false, angle)) - want).abs();
            assert!(error <= rounding, "{op:?}({angle:e}), want {want:e}");
        }
        let wide = ((unit - 0.5) * 30.0) as f32;
        relative(Tanh, wide, tanh_by_fraction(wide.into()), rounding);
        let positive = f32::from_bits((random.next() as u32 >> 1) % 0x7f80_0000);
        if positive > 0.0 {
            let log = log2_by_squares(positive.into());
            let error = (f64::from(f32_op(Lg2, false, positive)) - log).abs();
            assert!(
                error <= rounding * log.abs() + 2f64.powi(-44),
                "lg2({positive:e})"
            );
            // y = 1/√x means y²·x = 1, and twice the relative error.
            let y = f64::from(f32_op(Rsqrt, false, positive));
            assert!(
                (y * y * f64::from(positive) - 1.0).abs() <= 2.0 * rounding,
                "{positive:e}"
            );
            let y = f64::from(f32_op(Sqrt, false, positive));
            assert!(
                (y * y / f64::from(positive) - 1.0).abs() <= 2.0 * rounding,
                "{positive:e}"
            );
            let y = f64::from(f32_op(Rcp, false, positive));
            let tiny = f64::from(SUBNORMAL) * f64::from(positive);
            let error = (y * f64::from(positive) - 1.0).abs();
            assert!(
                y.is_infinite() || error <= rounding + 0.5 * tiny,
                "{positive:e}"
            );
        }
    }
}

#[test]
fn half_precision_functions_are_correctly_rounded() {
    for bits in 0..=u16::MAX {
        for (ty, widen, ulp) in [
            (
                ScalarType::F16,
                f16_to_f32 as fn(u16) -> f32,
                2f64.powi(-11),
            ),
            (
                ScalarType::BF16,
                bf16_to_f32 as fn(u16) -> f32,
                2f64.powi(-8),
            ),
        ] {
            let x = f64::from(widen(bits));
            let ex2 = f64::from(widen(approx(Ex2, ty, false, bits.into()) as u16));
            let tanh = f64::from(widen(approx(Tanh, ty, false, bits.into()) as u16));
            if x.is_nan() {
                assert!(ex2.is_nan() && tanh.is_nan(), "{ty} {bits:#x}");
                continue;
            }
            let (max, least) = match ty {
                ScalarType::F16 => (65520.0, 2f64.powi(-24)),
                _ => (2f64.powi(128) * (1.0 - 2f64.powi(-9)), 2f64.powi(-133)),
            };
            let want = if x.abs() > 300.0 {
                2f64.powf(x)
            } else {
                exp2_by_roots(x)
            };
            if want >= max {
                assert_eq!(ex2, f64::INFINITY, "{ty} {bits:#x}");
            } else {
                let allowed = ulp * want * (1.0 + 1e-9) + 0.5 * least;
                assert!((ex2 - want).abs() <= allowed, "{ty} ex2({x:e}) = {ex2:e}");
            }
            let want = match x {
                _ if x == 0.0 => x,
                _ if x.abs() > 15.0 => x.signum(),
                _ => tanh_by_fraction(x),
            };
            let allowed = ulp * want.abs() * (1.0 + 1e-9) + 0.5 * least;
            assert!(
                (tanh - want).abs() <= allowed,
                "{ty} tanh({x:e}) = {tanh:e}"
            );
        }
    }
    // −1 and 1, packed; a bf16 subnormal is flushed with .ftz.
    assert_eq!(
        approx(Ex2, ScalarType::F16x2, false, 0xbc00_3c00),
        0x3800_4000
    );
    assert_eq!(approx(Tanh, ScalarType::BF16, true, 1), 0);
    assert_eq!(approx(Tanh, ScalarType::BF16, false, 1), 1);
}

#[test]
fn approximate_division_follows_the_manuals_ranges() {
    let div = |ftz: bool, a: f32, b: f32| {
        f32::from_bits(div_approx(ftz, a.to_bits().into(), b.to_bits().into()) as u32)
    };
    let two_127 = 2f32.powi(127);
    assert_eq!(div(false, 1.0, two_127).to_bits(), 0);
    assert_eq!(div(false, -1.0, two_127).to_bits(), 0x8000_0000);
    assert_eq!(div(false, INF, two_127).to_bits(), 0x7fff_ffff);
    assert_eq!(div(false, 1.0, 2f32.powi(126)), 2f32.powi(-126));
    assert_eq!(div(false, 1.0, INF).to_bits(), 0);
    assert_eq!(div(true, 1.0, SUBNORMAL), INF);
    assert_eq!(div(false, 7.0, -2.0), -3.5);
    let full = |a: f32, b: f32| {
        f32::from_bits(div_full(false, a.to_bits().into(), b.to_bits().into()) as u32)
    };
    assert_eq!(full(2.0, two_127), 2f32.powi(-126));
}

#[test]
fn f64_forms_keep_the_upper_half_with_ftz() {
    for x in [3.0f64, -0.7, 1e300, 5e-200] {
        let y = approx(Rcp, ScalarType::F64, true, x.to_bits());
        assert_eq!(y & 0xffff_ffff, 0);
        assert!(
            (f64::from_bits(y) * x - 1.0).abs() < 2f64.powi(-19),
            "{x:e}"
        );
    }
    let y = f64::from_bits(approx(Rsqrt, ScalarType::F64, false, 2f64.to_bits()));
    assert!((y * y * 2.0 - 1.0).abs() < 1e-15);
    assert_eq!(
        approx(Rsqrt, ScalarType::F64, false, (-1f64).to_bits()),
        Format::F64.nan
    );
    assert_eq!(
        approx(Rcp, ScalarType::F64, true, 1),
        f64::INFINITY.to_bits()
    );
}
