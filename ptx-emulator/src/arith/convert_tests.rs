//! Conversions against exact values, Rust's own casts and loops.

use super::*;
use crate::arith::exact::{Dyadic, check_rounded, compare};
use crate::arith::samples::{floats, integers};

use ScalarType::*;

const INTEGERS: [ScalarType; 8] = [U8, S8, U16, S16, U32, S32, U64, S64];
const FLOATS: [ScalarType; 4] = [F16, BF16, F32, F64];

fn rounded(rounding: CvtRounding) -> CvtMode {
    CvtMode {
        rounding: Some(rounding),
        ..CvtMode::default()
    }
}

fn plain() -> CvtMode {
    CvtMode::default()
}

fn patterns(ty: ScalarType) -> Vec<u64> {
    let format = Format::of(ty).unwrap();
    let mut patterns: Vec<u64> = floats(format).into_iter().flatten().collect();
    if ty.bits() == 16 {
        patterns = (0..=0xffff).collect();
    }
    // Values around the limits of integer types and halves: where clamping and ties happen.
    for bits in [7, 8, 15, 16, 31, 32, 63, 64] {
        let limit = (2f64).powi(bits);
        for value in [
            limit,
            limit - 1.0,
            limit - 0.5,
            limit + 0.5,
            limit + 1.0,
            limit + 1.5,
        ] {
            for value in [value, -value] {
                let pattern = match ty {
                    F64 => value.to_bits(),
                    F32 => u64::from((value as f32).to_bits()),
                    F16 => f32_to_f16(value as f32).into(),
                    _ => f32_to_bf16(value as f32).into(),
                };
                patterns.push(pattern);
            }
        }
    }
    for value in [
        0.5f32,
        1.5,
        2.5,
        0.49999997,
        1e9 + 0.5,
        3.7,
        254.5,
        255.5,
        127.5,
        128.5,
    ] {
        for value in [value, -value] {
            patterns.push(match ty {
                F64 => f64::from(value).to_bits(),
                F32 => value.to_bits().into(),
                F16 => f32_to_f16(value).into(),
                _ => f32_to_bf16(value).into(),
            });
        }
    }
    patterns
}

/// The value of a pattern in f64, exact.
fn value(ty: ScalarType, x: u64) -> f64 {
    match ty {
        F64 => f64::from_bits(x),
        F32 => f32::from_bits(x as u32).into(),
        F16 => f16_to_f32(x as u16).into(),
        _ => bf16_to_f32(x as u16).into(),
    }
}

/// Rust's rounding functions on the exact value.
fn integral(rounding: CvtRounding, x: f64) -> f64 {
    match rounding {
        CvtRounding::Rni => x.round_ties_even(),
        CvtRounding::Rzi => x.trunc(),
        CvtRounding::Rmi => x.floor(),
        CvtRounding::Rpi => x.ceil(),
        other => panic!("{other:?} is not integral"),
    }
}

const INTEGRAL: [CvtRounding; 4] = [
    CvtRounding::Rni,
    CvtRounding::Rzi,
    CvtRounding::Rmi,
    CvtRounding::Rpi,
];
const TO_PRECISION: [CvtRounding; 4] = [
    CvtRounding::Rn,
    CvtRounding::Rz,
    CvtRounding::Rm,
    CvtRounding::Rp,
];

#[test]
fn integers_convert_as_rusts_casts() {
    for (a, _) in integers(64) {
        for src in INTEGERS {
            for dst in INTEGERS {
                // Rust's casts extend by the source's sign and truncate.
                let wide = match src {
                    U8 => a as u8 as u64,
                    S8 => a as i8 as u64,
                    U16 => a as u16 as u64,
                    S16 => a as i16 as u64,
                    U32 => a as u32 as u64,
                    S32 => a as i32 as u64,
                    _ => a,
                };
                let cut = |x: u64| match dst.bits() {
                    8 => u64::from(x as u8),
                    16 => u64::from(x as u16),
                    32 => u64::from(x as u32),
                    _ => x,
                };
                assert_eq!(cvt(dst, src, plain(), a), cut(wide), "{dst} {src} {a:#x}");
                let exact = if src.is_signed() {
                    wide as i64 as i128
                } else {
                    wide as i128
                };
                let (low, high): (i128, i128) = match dst {
                    U8 => (0, 255),
                    S8 => (-128, 127),
                    U16 => (0, 65535),
                    S16 => (-32768, 32767),
                    U32 => (0, u32::MAX.into()),
                    S32 => (i32::MIN.into(), i32::MAX.into()),
                    U64 => (0, u64::MAX.into()),
                    _ => (i64::MIN.into(), i64::MAX.into()),
                };
                let sat = CvtMode {
                    sat: true,
                    ..plain()
                };
                let want = cut(exact.max(low).min(high) as u64);
                assert_eq!(cvt(dst, src, sat, a), want, "sat {dst} {src} {a:#x}");
            }
        }
    }
}

#[test]
fn floats_convert_to_clamped_integers() {
    for src in FLOATS {
        for a in patterns(src) {
            let x = value(src, a);
            for rounding in INTEGRAL {
                let x = integral(rounding, x);
                for dst in INTEGERS {
                    // Rust's casts clamp as PTX does, and give 0 for NaN.
                    let want = match dst {
                        _ if x.is_nan() && (src == F64 || dst.bits() == 64) => {
                            1 << (dst.bits() - 1)
                        }
                        U8 => x as u8 as u64,
                        S8 => x as i8 as u8 as u64,
                        U16 => x as u16 as u64,
                        S16 => x as i16 as u16 as u64,
                        U32 => x as u32 as u64,
                        S32 => x as i32 as u32 as u64,
                        U64 => x as u64,
                        _ => x as i64 as u64,
                    };
                    let got = cvt(dst, src, rounded(rounding), a);
                    assert_eq!(got, want, "{rounding:?} {dst} {src} {a:#x} {x}");
                }
            }
        }
    }
}

#[test]
fn integers_convert_to_correctly_rounded_floats() {
    for src in INTEGERS {
        for (a, _) in integers(src.bits()) {
            let exact = Dyadic::integer(src.int().unwrap().value(a));
            for dst in FLOATS {
                for rounding in TO_PRECISION {
                    let got = cvt(dst, src, rounded(rounding), a);
                    let format = Format::of(dst).unwrap();
                    let against = |y| compare(y, exact);
                    check_rounded(format, rounding.direction(), got, against, &(dst, src, a));
                    if exact.sig == 0 {
                        assert_eq!(got, 0, "the integer zero is +0");
                    }
                }
            }
        }
    }
    assert_eq!(cvt(F16, U32, rounded(CvtRounding::Rn), 65520), 0x7c00);
    assert_eq!(
        cvt(F16, U32, rounded(CvtRounding::Rz), u32::MAX.into()),
        0x7bff
    );
    let sat = CvtMode {
        sat: true,
        ..rounded(CvtRounding::Rn)
    };
    assert_eq!(cvt(F32, S32, sat, 5), 0x3f80_0000);
    assert_eq!(cvt(F32, S32, sat, 0xffff_fffb), 0);
}

#[test]
fn floats_convert_to_correctly_rounded_floats() {
    for src in FLOATS {
        for a in patterns(src) {
            let x = value(src, a);
            for dst in FLOATS.into_iter().chain([TF32]) {
                let format = Format::of(dst).unwrap();
                for rounding in TO_PRECISION.into_iter().chain([CvtRounding::Rna]) {
                    let mut got = cvt(dst, src, rounded(rounding), a);
                    if dst == TF32 {
                        assert_eq!(got & 0x1fff, 0);
                        got >>= 13;
                    }
                    let sign = if x.is_sign_negative() {
                        format.sign_bit()
                    } else {
                        0
                    };
                    if x.is_nan() {
                        assert_eq!(got, format.nan, "{dst} {src} {a:#x}");
                    } else if x.is_infinite() {
                        assert_eq!(got, format.infinity() | sign, "{dst} {src} {a:#x}");
                    } else {
                        let exact = Dyadic::of(Format::of(src).unwrap(), a);
                        let against = |y| compare(y, exact);
                        check_rounded(format, rounding.direction(), got, against, &(dst, src, a));
                        assert_eq!(got & format.sign_bit(), sign, "{dst} {src} {a:#x}");
                    }
                }
            }
        }
    }
}

#[test]
fn floats_round_to_integral_floats() {
    for ty in FLOATS {
        for a in patterns(ty) {
            for rounding in INTEGRAL {
                let got = cvt(ty, ty, rounded(rounding), a);
                let want = integral(rounding, value(ty, a));
                if want.is_nan() {
                    assert_eq!(got, Format::of(ty).unwrap().nan);
                } else {
                    let same = value(ty, got).to_bits() == want.to_bits();
                    assert!(same, "{rounding:?} {ty} {a:#x}: {got:#x}, want {want}");
                }
            }
        }
    }
}

#[test]
fn modifiers_apply_where_the_manual_has_them() {
    let ftz = |mode: CvtMode| CvtMode { ftz: true, ..mode };
    // A subnormal f32 rounds up to 1 towards +∞, unless it is flushed first.
    assert_eq!(cvt(S32, F32, rounded(CvtRounding::Rpi), 1), 1);
    assert_eq!(cvt(S32, F32, ftz(rounded(CvtRounding::Rpi)), 1), 0);
    assert_eq!(cvt(F64, F32, ftz(plain()), 0x8000_0001), 1 << 63);
    assert_eq!(
        cvt(F32, F64, ftz(rounded(CvtRounding::Rn)), 1e-40f64.to_bits()),
        0
    );
    assert_ne!(
        cvt(F32, F64, rounded(CvtRounding::Rn), 1e-40f64.to_bits()),
        0
    );
    // Subnormal f16 values are kept: the modifier is about f32.
    assert_eq!(
        cvt(F32, F16, ftz(plain()), 1),
        2f32.powi(-24).to_bits().into()
    );
    let sat = CvtMode {
        sat: true,
        ..rounded(CvtRounding::Rn)
    };
    for (x, want) in [(1.5f32, 0x3c00), (-2.0, 0), (f32::NAN, 0), (0.5, 0x3800)] {
        assert_eq!(cvt(F16, F32, sat, x.to_bits().into()), want);
    }
    let relu = CvtMode {
        relu: true,
        ..rounded(CvtRounding::Rn)
    };
    for (x, want) in [(1.5f32, 0x3fc0), (-2.0, 0), (-0.0, 0), (f32::NAN, 0x7fff)] {
        assert_eq!(cvt(BF16, F32, relu, x.to_bits().into()), want);
    }
    let finite = CvtMode {
        satfinite: true,
        ..rounded(CvtRounding::Rn)
    };
    for (x, want) in [
        (1e6f32, 0x7bff),
        (f32::NEG_INFINITY, 0xfbff),
        (f32::NAN, 0x7fff),
    ] {
        assert_eq!(cvt(F16, F32, finite, x.to_bits().into()), want);
    }
}

#[test]
fn packed_conversion_puts_the_first_argument_above() {
    let (one, two) = (u64::from(1f32.to_bits()), u64::from(2f32.to_bits()));
    assert_eq!(
        cvt_pack(F16x2, rounded(CvtRounding::Rn), one, two),
        0x3c00_4000
    );
    assert_eq!(
        cvt_pack(BF16x2, rounded(CvtRounding::Rn), one, two),
        0x3f80_4000
    );
    let relu = CvtMode {
        relu: true,
        ..rounded(CvtRounding::Rz)
    };
    assert_eq!(cvt_pack(F16x2, relu, 0xbf80_0000, two), 0x0000_4000);
}

#[test]
fn conversions_without_rounding_are_exact_ones() {
    assert_eq!(
        cvt(F64, F32, plain(), 1.25f32.to_bits().into()),
        1.25f64.to_bits()
    );
    assert_eq!(cvt(F32, F32, plain(), 0x0000_0001), 1);
    assert_eq!(cvt(U32, U16, plain(), 0xffff_8001), 0x8001);
    for name in ["rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"] {
        let rounding = CvtRounding::from_suffix(name).unwrap();
        assert_eq!(format!("{rounding:?}").to_lowercase(), name);
        assert_eq!(rounding.is_integral(), name.ends_with('i'));
    }
}
