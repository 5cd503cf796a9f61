//! Floating-point arithmetic against the definition of correct rounding.

use super::*;
use crate::arith::exact::{Dyadic, Fixed, check_rounded, compare};
use crate::arith::samples::{Random, floats};

const MODES: [Rounding; 4] = [Rounding::Rn, Rounding::Rz, Rounding::Rm, Rounding::Rp];
const TYPES: [ScalarType; 4] = [
    ScalarType::F16,
    ScalarType::BF16,
    ScalarType::F32,
    ScalarType::F64,
];

fn mode(rounding: Rounding) -> FloatMode {
    FloatMode {
        rounding,
        ..FloatMode::RN
    }
}

/// The value of a pattern as an f64 (for 16- and 32-bit types exact), to find the special cases.
fn class(format: Format, x: u64) -> f64 {
    let infinity = format.infinity();
    let magnitude = x & (format.sign_bit() - 1);
    let sign = if x & format.sign_bit() != 0 {
        -1.0
    } else {
        1.0
    };
    match magnitude {
        0 => 0.0 * sign,
        m if m > infinity => f64::NAN,
        m if m == infinity => f64::INFINITY * sign,
        _ => sign,
    }
}

/// What an operation gives on zeros, infinities and NaN follows from the same operation in f64 on
/// the classes of its arguments; `None` if the result is an ordinary number.
fn special(format: Format, by_class: f64, all_finite: bool) -> Option<u64> {
    let sign = if by_class.is_sign_negative() {
        format.sign_bit()
    } else {
        0
    };
    if by_class.is_nan() {
        Some(format.nan)
    } else if by_class.is_infinite() {
        Some(format.infinity() | sign)
    } else if !all_finite {
        Some(sign)
    } else {
        None
    }
}

struct Case {
    format: Format,
    ty: ScalarType,
    rounding: Rounding,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        TYPES.into_iter().flat_map(|ty| {
            let format = Format::of(ty).unwrap();
            MODES.into_iter().map(move |rounding| Self {
                format,
                ty,
                rounding,
            })
        })
    }

    fn value(&self, x: u64) -> Dyadic {
        Dyadic::of(self.format, x)
    }

    #[track_caller]
    fn check(
        &self,
        result: u64,
        by_class: f64,
        args: &[u64],
        against: impl Fn(Dyadic) -> std::cmp::Ordering,
    ) {
        let finite = args.iter().all(|x| class(self.format, *x).is_finite());
        match special(self.format, by_class, finite) {
            Some(want) => assert_eq!(result, want, "{:?} {:?} {args:x?}", self.ty, self.rounding),
            None => check_rounded(self.format, self.rounding, result, against, &args),
        }
    }
}

#[test]
fn sums_are_correctly_rounded() {
    for case in Case::all() {
        for [a, b, _] in floats(case.format) {
            let exact = Fixed::of(case.value(a)).plus(&Fixed::of(case.value(b)));
            let by_class = class(case.format, a) + class(case.format, b);
            let got = add(case.ty, mode(case.rounding), a, b);
            case.check(got, by_class, &[a, b], |y| Fixed::of(y).compare(&exact));
            // The sign of an exact zero.
            if exact.compare(&Fixed::of(Dyadic::integer(0))).is_eq() && by_class.is_finite() {
                let sign = case.format.sign_bit();
                let want = match (a & sign, b & sign) {
                    (x, y) if x == y => x,
                    _ if case.rounding == Rounding::Rm => sign,
                    _ => 0,
                };
                assert_eq!(got, want, "{:?} {a:#x} {b:#x}", case.rounding);
            }
            // A difference is the sum with the other sign.
            let minus_b = b ^ case.format.sign_bit();
            assert_eq!(sub(case.ty, mode(case.rounding), a, minus_b), got);
        }
    }
}

#[test]
fn products_are_correctly_rounded() {
    for case in Case::all() {
        for [a, b, _] in floats(case.format) {
            let exact = case.value(a).times(case.value(b));
            let by_class = class(case.format, a) * class(case.format, b);
            let got = mul(case.ty, mode(case.rounding), a, b);
            case.check(got, by_class, &[a, b], |y| compare(y, exact));
            if !by_class.is_nan() {
                assert_eq!(
                    got & case.format.sign_bit(),
                    (a ^ b) & case.format.sign_bit()
                );
            }
        }
    }
}

#[test]
fn fused_products_and_sums_round_once() {
    for case in Case::all() {
        for [a, b, c] in floats(case.format) {
            let product = case.value(a).times(case.value(b));
            let exact = Fixed::of(product).plus(&Fixed::of(case.value(c)));
            let by_class = class(case.format, a) * class(case.format, b) + class(case.format, c);
            let got = fma(case.ty, mode(case.rounding), a, b, c);
            case.check(got, by_class, &[a, b, c], |y| Fixed::of(y).compare(&exact));
        }
    }
}

#[test]
fn quotients_and_roots_are_correctly_rounded() {
    for case in Case::all().filter(|case| matches!(case.ty, ScalarType::F32 | ScalarType::F64)) {
        for [a, b, _] in floats(case.format) {
            let (va, vb) = (case.value(a), case.value(b));
            // y against a/b is y·b against a, turned round for a negative b.
            let against = |va: Dyadic, vb: Dyadic| {
                move |y: Dyadic| match vb.sig < 0 {
                    false => compare(y.times(vb), va),
                    true => compare(va, y.times(vb)),
                }
            };
            let by_class = class(case.format, a) / class(case.format, b);
            let got = div(case.ty, mode(case.rounding), a, b);
            case.check(got, by_class, &[a, b], against(va, vb));
            let got = rcp(case.ty, mode(case.rounding), b);
            let by_class = 1.0 / class(case.format, b);
            case.check(got, by_class, &[b], against(Dyadic::integer(1), vb));
            let got = sqrt(case.ty, mode(case.rounding), a);
            let by_class = class(case.format, a).sqrt();
            case.check(got, by_class, &[a], |y| match y.sig < 0 {
                true => std::cmp::Ordering::Less,
                false => compare(y.times(y), va),
            });
            if va.sig == 0 && class(case.format, a) == 0.0 {
                assert_eq!(got, a, "the root of a zero is that zero");
            }
        }
    }
}

#[test]
fn ftz_flushes_inputs_and_results_keeping_the_sign() {
    let ftz = FloatMode {
        ftz: true,
        ..FloatMode::RN
    };
    let (tiny, min, half) = (0x8000_0001, 0x0080_0000, 0x3f00_0000);
    let f32 = ScalarType::F32;
    assert_eq!(
        mul(f32, ftz, tiny, 0x7f00_0000),
        0x8000_0000,
        "a subnormal input"
    );
    assert_eq!(
        mul(f32, ftz, min | 1 << 31, half),
        0x8000_0000,
        "a subnormal result"
    );
    assert_eq!(add(f32, ftz, tiny, 0x8000_0000), 0x8000_0000);
    assert_eq!(add(f32, ftz, tiny, 0), 0);
    assert_eq!(fma(f32, ftz, half, min, 0), 0);
    assert_eq!(
        mul(f32, FloatMode::RN, min, half),
        0x0040_0000,
        "kept without the modifier"
    );
    assert_eq!(mul(ScalarType::F16, ftz, 0x0400, 0x3800), 0);
    assert_eq!(mul(ScalarType::F16, FloatMode::RN, 0x0400, 0x3800), 0x0200);
    assert_eq!(abs(f32, true, tiny), 0);
    assert_eq!(neg(f32, true, tiny), 0);
    assert_eq!(div(f32, ftz, 0x3f80_0000, tiny), 0xff80_0000);
    assert_eq!(sqrt(f32, ftz, 1), 0);
}

#[test]
fn sat_clamps_to_zero_and_one_and_relu_to_zero() {
    let f32 = |x: f32| u64::from(x.to_bits());
    let sat = FloatMode {
        sat: true,
        ..FloatMode::RN
    };
    for (x, want) in [
        (-1.0, 0.0),
        (-0.0, 0.0),
        (0.25, 0.25),
        (1.0, 1.0),
        (1.5, 1.0),
        (f32::INFINITY, 1.0),
        (f32::NEG_INFINITY, 0.0),
        (f32::NAN, 0.0),
    ] {
        assert_eq!(
            mul(ScalarType::F32, sat, f32(x), f32(1.0)),
            f32(want),
            "{x}"
        );
        assert_eq!(
            fma(ScalarType::F32, sat, f32(x), f32(1.0), f32(-0.0)),
            f32(want),
            "{x}"
        );
    }
    let relu = FloatMode {
        relu: true,
        ..FloatMode::RN
    };
    let fma = |a: u64| fma(ScalarType::F16x2, relu, a, 0x3c00_3c00, 0x8000_8000);
    assert_eq!(fma(0xc000_4000), 0x0000_4000, "−2 becomes 0, 2 stays");
    assert_eq!(fma(0xfe00_fc00), 0x7fff_0000, "NaN stays NaN");
}

#[test]
fn packed_types_work_on_their_halves() {
    let mut random = Random::new(3);
    for _ in 0..20_000 {
        let [a, b, c] = [0; 3].map(|_: u8| random.next() & 0xffff_ffff);
        let m = FloatMode::RN;
        for (packed, ty) in [
            (ScalarType::F16x2, ScalarType::F16),
            (ScalarType::BF16x2, ScalarType::BF16),
        ] {
            let halves =
                |f: &dyn Fn(fn(u64) -> u64) -> u64| f(|x| x & 0xffff) | f(|x| x >> 16) << 16;
            assert_eq!(add(packed, m, a, b), halves(&|h| add(ty, m, h(a), h(b))));
            assert_eq!(sub(packed, m, a, b), halves(&|h| sub(ty, m, h(a), h(b))));
            assert_eq!(mul(packed, m, a, b), halves(&|h| mul(ty, m, h(a), h(b))));
            assert_eq!(
                fma(packed, m, a, b, c),
                halves(&|h| fma(ty, m, h(a), h(b), h(c)))
            );
            let nan = MinMaxMode {
                nan: true,
                ..MinMaxMode::default()
            };
            assert_eq!(
                min(packed, nan, a, b),
                halves(&|h| min(ty, nan, h(a), h(b)))
            );
            assert_eq!(neg(packed, false, a), halves(&|h| neg(ty, false, h(a))));
            assert_eq!(abs(packed, false, a), halves(&|h| abs(ty, false, h(a))));
        }
    }
}

#[test]
fn min_and_max_order_values_and_choose_numbers_over_nan() {
    for ty in TYPES {
        let format = Format::of(ty).unwrap();
        for [a, b, _] in floats(format) {
            let nans = [a, b].map(|x| class(format, x).is_nan());
            // −0 is below +0: the order of values, then of signs.
            let positive = |x: u64| x & format.sign_bit() == 0;
            let less = || {
                // Infinity decodes as the power above the greatest value: the order is kept.
                let order = compare(Dyadic::of(format, a), Dyadic::of(format, b));
                order.then(positive(a).cmp(&positive(b))).is_lt()
            };
            let plain = MinMaxMode::default();
            let (want_min, want_max) = match nans {
                [true, true] => (format.nan, format.nan),
                [true, false] => (b, b),
                [false, true] => (a, a),
                _ if less() => (a, b),
                _ => (b, a),
            };
            assert_eq!(min(ty, plain, a, b), want_min, "{ty} {a:#x} {b:#x}");
            assert_eq!(max(ty, plain, a, b), want_max, "{ty} {a:#x} {b:#x}");
            let propagate = MinMaxMode { nan: true, ..plain };
            let any = nans[0] || nans[1];
            let or_nan = |x| if any { format.nan } else { x };
            assert_eq!(
                min(ty, propagate, a, b),
                or_nan(want_min),
                "{ty} {a:#x} {b:#x}"
            );
            assert_eq!(
                max(ty, propagate, a, b),
                or_nan(want_max),
                "{ty} {a:#x} {b:#x}"
            );
            let xorsign = MinMaxMode {
                xorsign_abs: true,
                ..plain
            };
            let clear = |x: u64| x & !format.sign_bit();
            let magnitude = min(ty, plain, clear(a), clear(b));
            let sign = (a ^ b) & format.sign_bit();
            let want = if nans == [true, true] {
                format.nan
            } else {
                magnitude | sign
            };
            assert_eq!(min(ty, xorsign, a, b), want, "{ty} {a:#x} {b:#x}");
        }
    }
    let ftz = MinMaxMode {
        ftz: true,
        ..MinMaxMode::default()
    };
    assert_eq!(max(ScalarType::F32, ftz, 1, 0x8000_0001), 0);
    assert_eq!(min(ScalarType::F32, ftz, 1, 0x8000_0001), 0x8000_0000);
}

#[test]
fn testp_partitions_every_f16_class_seen_in_f32() {
    use TestP::*;
    let cases: [(f32, &[TestP]); 7] = [
        (0.0, &[Finite, Number, Normal]),
        (-1.5, &[Finite, Number, Normal]),
        (f32::MIN_POSITIVE, &[Finite, Number, Normal]),
        (f32::MIN_POSITIVE / 2.0, &[Finite, Number, Subnormal]),
        (f32::INFINITY, &[Infinite, Number]),
        (f32::NEG_INFINITY, &[Infinite, Number]),
        (f32::NAN, &[NotANumber]),
    ];
    for (x, classes) in cases {
        for test in [Finite, Infinite, Number, NotANumber, Normal, Subnormal] {
            let want = classes.contains(&test);
            assert_eq!(
                testp(test, ScalarType::F32, x.to_bits().into()),
                want,
                "{x} {test:?}"
            );
            if x != f32::MIN_POSITIVE / 2.0 {
                let wide = f64::from(x).to_bits();
                assert_eq!(testp(test, ScalarType::F64, wide), want, "{x} {test:?}");
            }
        }
    }
}

#[test]
fn signs_are_only_bits() {
    let nan = 0xffc0_1234;
    assert_eq!(neg(ScalarType::F32, false, nan), 0x7fc0_1234);
    assert_eq!(abs(ScalarType::F32, false, nan), 0x7fc0_1234);
    assert_eq!(
        copysign(ScalarType::F32, 0x8000_0000, 0x3f80_0000),
        0xbf80_0000
    );
    assert_eq!(copysign(ScalarType::F64, 0, 1 << 63 | 5), 5);
    assert_eq!(neg(ScalarType::F16x2, false, 0x0000_8000), 0x8000_0000);
}
