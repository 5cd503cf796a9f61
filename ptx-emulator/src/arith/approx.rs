//! The `.approx` functions: computed in f64 and rounded to nearest, which is within the manual's
//! error bounds, with the manual's results for special values.

use super::float::{finish, format_of, per_element};
use super::half::{bf16_to_f32, f16_to_f32};
use super::soft::Format;
use super::types::{FloatMode, Rounding, ScalarType};

/// A function of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "each variant is the manual's instruction of the same name"
)]
pub enum ApproxOp {
    Rcp,
    Sqrt,
    Rsqrt,
    Ex2,
    Lg2,
    Sin,
    Cos,
    Tanh,
}

impl ApproxOp {
    /// Whether the manual has the function for the type.
    pub fn applies_to(self, ty: ScalarType) -> bool {
        use ScalarType::*;
        match ty {
            F32 => true,
            F16 | F16x2 | BF16 | BF16x2 => matches!(self, Self::Ex2 | Self::Tanh),
            F64 => matches!(self, Self::Rcp | Self::Rsqrt),
            _ => false,
        }
    }

    #[inline]
    fn eval(self, x: f64) -> f64 {
        match self {
            Self::Rcp => 1.0 / x,
            Self::Sqrt => x.sqrt(),
            // 1/√−0 is −∞ since √−0 is −0, as the manual has it.
            Self::Rsqrt => 1.0 / x.sqrt(),
            Self::Ex2 => exp2(x),
            Self::Lg2 => x.log2(),
            Self::Sin => x.sin(),
            Self::Cos => x.cos(),
            Self::Tanh => x.tanh(),
        }
    }
}

/// 1/0! to 1/11!.
const INVERSE_FACTORIALS: [f64; 12] = {
    let mut table = [1.0; 12];
    let mut k = 1;
    while k < 12 {
        table[k] = table[k - 1] / k as f64;
        k += 1;
    }
    table
};

/// 2^x for an f32 in f64, relative error below 2^-45. No library call, so that a loop over lanes
/// becomes vector code and gives the same bits everywhere.
#[inline(always)]
pub(super) fn exp2(x: f64) -> f64 {
    // Beyond these an f32 result is infinite or zero; NaN passes through clamp.
    let x = x.clamp(-200.0, 200.0);
    // Adding 1.5 · 2^52 rounds to an integer, which then sits in the low bits.
    const SHIFTER: f64 = 6_755_399_441_055_744.0;
    let shifted = x + SHIFTER;
    let integer = shifted - SHIFTER;
    let t = (x - integer) * std::f64::consts::LN_2;
    // The series of e^t for |t| ≤ ln 2 / 2; the first term left out is below 2^-47.
    let mut sum = 0.0;
    for coefficient in INVERSE_FACTORIALS.into_iter().rev() {
        sum = sum * t + coefficient;
    }
    let scale = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    sum * scale
}

/// `op.approx{.ftz}.ty`.
#[inline]
pub fn approx(op: ApproxOp, ty: ScalarType, ftz: bool, a: u64) -> u64 {
    if ty == ScalarType::F64 {
        return approx_f64(op, ftz, a);
    }
    let format = format_of(ty);
    let mode = FloatMode {
        ftz,
        ..FloatMode::RN
    };
    per_element(ty, [a], |[a]| {
        let a = if ftz { format.flush(a) } else { a };
        let x = match format {
            Format::F16 => f16_to_f32(a as u16),
            Format::BF16 => bf16_to_f32(a as u16),
            _ => f32::from_bits(a as u32),
        };
        let y = op.eval(x.into());
        let raw = match format {
            Format::F32 => (y as f32).to_bits().into(),
            _ => super::float::narrow(format, Rounding::Rn, y),
        };
        finish(format, mode, raw)
    })
}

/// f64 has `rcp` and `rsqrt`; with `.ftz` they read and give the upper 32 bits only.
fn approx_f64(op: ApproxOp, ftz: bool, a: u64) -> u64 {
    let upper = 0xffff_ffff_0000_0000;
    let mode = FloatMode {
        ftz,
        ..FloatMode::RN
    };
    let a = if ftz { Format::F64.flush(a & upper) } else { a };
    let y = finish(Format::F64, mode, op.eval(f64::from_bits(a)).to_bits());
    if ftz { y & upper } else { y }
}

/// `div.approx.f32`: a · (1/b). For 2^126 < |b| < 2^128 the reciprocal counts as 0, as the manual
/// says: the quotient is 0, or NaN for an infinite a.
#[inline]
pub fn div_approx(ftz: bool, a: u64, b: u64) -> u64 {
    let f32 = Format::F32;
    let (a, b) = (a & f32.mask(), b & f32.mask());
    let magnitude = f32.magnitude(b);
    let two_126 = 0x7e80_0000;
    if magnitude > two_126 && magnitude < f32.infinity() {
        let zero = b & f32.sign_bit();
        return super::float::mul(
            ScalarType::F32,
            FloatMode {
                ftz,
                ..FloatMode::RN
            },
            a,
            zero,
        );
    }
    div_full(ftz, a, b)
}

/// `div.full.f32`: the quotient over the whole range.
#[inline]
pub fn div_full(ftz: bool, a: u64, b: u64) -> u64 {
    super::float::div(
        ScalarType::F32,
        FloatMode {
            ftz,
            ..FloatMode::RN
        },
        a,
        b,
    )
}

#[cfg(test)]
#[path = "approx_tests.rs"]
mod tests;
