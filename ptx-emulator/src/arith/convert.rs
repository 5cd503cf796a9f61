//! `cvt`: conversions between all integer and floating-point types.

use super::float::{finish, format_of};
use super::soft::{self, Finite, Format, Value};
use super::types::{FloatMode, IntType, Rounding, ScalarType};

pub use super::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

/// Modifiers of `cvt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CvtMode {
    /// The rounding modifier, if there is one.
    pub rounding: Option<CvtRounding>,
    /// `.ftz`: subnormal f32 inputs and results become zero of the same sign.
    pub ftz: bool,
    /// `.sat`: to the range of an integer type, to [0, 1] of a floating-point type.
    pub sat: bool,
    /// `.relu`: negative results become +0.
    pub relu: bool,
    /// `.satfinite`: infinite results become the greatest finite value of their sign.
    pub satfinite: bool,
}

/// Rounding of `cvt`: to the destination's precision, or (`.rni` and so on) to an integral value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "each variant is the manual's suffix of the same name"
)]
pub enum CvtRounding {
    Rn,
    Rz,
    Rm,
    Rp,
    Rna,
    Rni,
    Rzi,
    Rmi,
    Rpi,
}

impl CvtRounding {
    /// The rounding of a suffix without its dot (`"rzi"`).
    pub fn from_suffix(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "rn" => Self::Rn,
            "rz" => Self::Rz,
            "rm" => Self::Rm,
            "rp" => Self::Rp,
            "rna" => Self::Rna,
            "rni" => Self::Rni,
            "rzi" => Self::Rzi,
            "rmi" => Self::Rmi,
            "rpi" => Self::Rpi,
            _ => return None,
        })
    }

    /// Whether this rounds to an integral value.
    #[inline]
    pub fn is_integral(self) -> bool {
        matches!(self, Self::Rni | Self::Rzi | Self::Rmi | Self::Rpi)
    }

    /// The direction.
    #[inline]
    pub fn direction(self) -> Rounding {
        match self {
            Self::Rn | Self::Rni => Rounding::Rn,
            Self::Rz | Self::Rzi => Rounding::Rz,
            Self::Rm | Self::Rmi => Rounding::Rm,
            Self::Rp | Self::Rpi => Rounding::Rp,
            Self::Rna => Rounding::Rna,
        }
    }
}

/// `cvt.dst.src`. The result has the width of `dst`; what a wider destination register holds of a
/// signed result is [`IntType::extend`]. A conversion without rounding modifier is exact by the
/// manual's rules; should it not be, it rounds to nearest (to an integer: towards zero).
#[inline]
pub fn cvt(dst: ScalarType, src: ScalarType, mode: CvtMode, a: u64) -> u64 {
    match (dst.int(), src.int()) {
        (Some(to), Some(from)) => int_to_int(to, from, mode.sat, a),
        (Some(to), None) => float_to_int(to, format_of(src), mode, a),
        (None, Some(from)) => int_to_float(dst, from, mode, a),
        (None, None) => float_to_float(dst, src, mode, a),
    }
}

/// Packed `cvt.dst.f32` with `dst` f16x2 or bf16x2: a becomes the upper half, b the lower.
#[inline]
pub fn cvt_pack(dst: ScalarType, mode: CvtMode, a: u64, b: u64) -> u64 {
    let half = |x| float_to_float(dst.element(), ScalarType::F32, mode, x);
    half(a) << 16 | half(b)
}

#[inline]
fn int_to_int(to: IntType, from: IntType, sat: bool, a: u64) -> u64 {
    if sat {
        from.value(a).clamp(to.min_value(), to.max_value()) as u64 & to.mask()
    } else {
        from.extend(a) & to.mask()
    }
}

/// Rounds to an integral value; the result has exponent 0 unless it was integral already.
fn round_to_integral(rounding: Rounding, x: Finite) -> Finite {
    if x.exp >= 0 || x.sig == 0 {
        return x;
    }
    // Significands have at most 64 bits here.
    let shift = x.exp.unsigned_abs().min(100);
    let kept = x.sig >> shift;
    let lost = x.sig & ((1 << shift) - 1);
    let half = 1u128 << (shift - 1);
    let up = match rounding {
        Rounding::Rn => lost > half || (lost == half && kept & 1 == 1),
        Rounding::Rna => lost >= half,
        Rounding::Rz => false,
        Rounding::Rm => x.negative && lost != 0,
        Rounding::Rp => !x.negative && lost != 0,
    };
    Finite {
        negative: x.negative,
        exp: 0,
        sig: kept + up as u128,
    }
}

/// Values out of range are clamped with or without `.sat`. NaN becomes 0 for types of up to 32
/// bits out of types of up to 32 bits, otherwise the pattern with only the top bit set.
#[inline]
fn float_to_int(to: IntType, format: Format, mode: CvtMode, a: u64) -> u64 {
    let a = a & format.mask();
    let a = if mode.ftz && format == Format::F32 {
        format.flush(a)
    } else {
        a
    };
    let rounding = mode.rounding.map_or(Rounding::Rz, CvtRounding::direction);
    let limit = |negative: bool| {
        if negative {
            to.min_value()
        } else {
            to.max_value()
        }
    };
    let value = match soft::decode(format, a) {
        Value::Nan if format == Format::F64 || to.bits == 64 => return 1 << (to.bits - 1),
        Value::Nan => 0,
        Value::Infinite { negative } => limit(negative),
        Value::Finite(x) => {
            let x = round_to_integral(rounding, x);
            // From 2^65 on it is out of every range; up to there 53 bits more fit.
            if x.sig != 0 && x.exp > 64 {
                limit(x.negative)
            } else {
                let magnitude = (x.sig as i128) << x.exp.max(0);
                let value = if x.negative { -magnitude } else { magnitude };
                value.clamp(to.min_value(), to.max_value())
            }
        }
    };
    value as u64 & to.mask()
}

#[inline]
fn int_to_float(dst: ScalarType, from: IntType, mode: CvtMode, a: u64) -> u64 {
    let value = from.value(a);
    let rounding = mode.rounding.map_or(Rounding::Rn, CvtRounding::direction);
    let raw = match (dst, rounding) {
        // The machine rounds to nearest too.
        (ScalarType::F32, Rounding::Rn) if from.signed => (value as i64 as f32).to_bits().into(),
        (ScalarType::F32, Rounding::Rn) => (value as u64 as f32).to_bits().into(),
        _ => {
            let exact = Finite {
                negative: value < 0,
                exp: 0,
                sig: value.unsigned_abs(),
            };
            soft::encode(format_of(dst), rounding, exact)
        }
    };
    finish(format_of(dst), float_mode(mode, dst), raw)
}

/// The modifiers as the end of a floating-point instruction applies them.
#[inline]
fn float_mode(mode: CvtMode, dst: ScalarType) -> FloatMode {
    let ftz = mode.ftz && dst == ScalarType::F32;
    FloatMode {
        rounding: Rounding::Rn,
        ftz,
        sat: mode.sat,
        relu: mode.relu,
    }
}

#[inline]
fn float_to_float(dst: ScalarType, src: ScalarType, mode: CvtMode, a: u64) -> u64 {
    let (to, from) = (format_of(dst), format_of(src));
    let a = a & from.mask();
    let a = if mode.ftz && from == Format::F32 {
        from.flush(a)
    } else {
        a
    };
    let raw = match (dst, src, mode.rounding) {
        (ScalarType::F32, ScalarType::F16, _) => f16_to_f32(a as u16).to_bits().into(),
        (ScalarType::F32, ScalarType::BF16, _) => bf16_to_f32(a as u16).to_bits().into(),
        (ScalarType::F16, ScalarType::F32, Some(CvtRounding::Rn)) => {
            f32_to_f16(f32::from_bits(a as u32)).into()
        }
        (ScalarType::BF16, ScalarType::F32, Some(CvtRounding::Rn)) => {
            f32_to_bf16(f32::from_bits(a as u32)).into()
        }
        (_, _, rounding) => {
            let rounding = rounding.unwrap_or(CvtRounding::Rn);
            let value = match soft::decode(from, a) {
                Value::Finite(x) if rounding.is_integral() => {
                    Value::Finite(round_to_integral(rounding.direction(), x))
                }
                value => value,
            };
            soft::encode_value(to, rounding.direction(), value)
        }
    };
    let raw = if mode.satfinite && to.magnitude(raw) == to.infinity() {
        raw - 1
    } else {
        raw
    };
    let result = finish(to, float_mode(mode, dst), raw);
    // A tf32 sits in the upper bits of its register.
    if dst == ScalarType::TF32 {
        result << 13
    } else {
        result
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
