//! Floating-point arithmetic of f16, bf16, f32, f64 and the packed types.
//!
//! Round-to-nearest f32 and f64 use the machine's own IEEE arithmetic, 16-bit types f64 with one
//! rounding at the end; directed roundings are computed exactly in `soft`.

use super::soft::{self, Format};
use super::types::{FloatMode, Rounding, ScalarType};

/// The format of a type; a caller that passes an integer type has mixed up its instruction table.
#[inline]
pub(super) fn format_of(ty: ScalarType) -> Format {
    match Format::of(ty) {
        Some(format) => format,
        None => panic!("floating-point instruction on .{ty}"),
    }
}

/// Applies `f` to the element, or to each half of a packed type.
#[inline]
pub(super) fn per_element<const N: usize>(
    ty: ScalarType,
    args: [u64; N],
    f: impl Fn([u64; N]) -> u64,
) -> u64 {
    if matches!(ty, ScalarType::F16x2 | ScalarType::BF16x2) {
        let low = f(args.map(|x| x & 0xffff));
        let high = f(args.map(|x| x >> 16 & 0xffff));
        low | high << 16
    } else {
        let mask = u64::MAX >> (64 - ty.bits());
        f(args.map(|x| x & mask))
    }
}

/// What follows rounding: canonical NaN, `.ftz`, `.sat`, `.relu`.
#[inline]
pub(super) fn finish(format: Format, mode: FloatMode, x: u64) -> u64 {
    if format.is_nan(x) {
        return if mode.sat { 0 } else { format.nan };
    }
    let x = if mode.ftz { format.flush(x) } else { x };
    let negative = x & format.sign_bit() != 0;
    if negative && (mode.sat || mode.relu) {
        0
    } else if mode.sat {
        x.min(format.one())
    } else {
        x
    }
}

/// a + b rounded to odd: truncated, with the last bit set if that was inexact. Rounding the result
/// again to at most 51 bits is as good as rounding the exact sum.
#[inline]
pub(super) fn add_to_odd(a: f64, b: f64) -> f64 {
    // Knuth's two-sum: sum + error is exactly a + b. Without overflow here: |a|, |b| < 2^300.
    let sum = a + b;
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    // A NaN error (infinite arguments) compares false twice.
    let inexact = (error > 0.0) | (error < 0.0);
    let even = sum.to_bits() & 1 == 0;
    let outwards = (error > 0.0) == (sum > 0.0);
    let step = if outwards { 1 } else { u64::MAX };
    f64::from_bits(
        sum.to_bits()
            .wrapping_add(if inexact & even { step } else { 0 }),
    )
}

/// The f64 of a 16-bit pattern; exact.
#[inline]
fn widen(format: Format, x: u64) -> f64 {
    if format == Format::BF16 {
        f32::from_bits((x as u32) << 16).into()
    } else {
        super::half::f16_to_f32(x as u16).into()
    }
}

/// Rounds an f64 to a 16-bit format.
#[inline]
pub(super) fn narrow(format: Format, rounding: Rounding, x: f64) -> u64 {
    if rounding == Rounding::Rn {
        let x = super::half::f64_to_f32_odd(x);
        return if format == Format::BF16 {
            super::half::f32_to_bf16(x).into()
        } else {
            super::half::f32_to_f16(x).into()
        };
    }
    soft::encode_value(format, rounding, soft::decode(Format::F64, x.to_bits()))
}

/// The four operations that share their handling of modes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Add,
    Mul,
    Div,
}

#[inline]
fn binary(op: Op, ty: ScalarType, mode: FloatMode, a: u64, b: u64) -> u64 {
    let format = format_of(ty);
    per_element(ty, [a, b], |[a, b]| {
        let [a, b] = [a, b].map(|x| if mode.ftz { format.flush(x) } else { x });
        let nearest = mode.rounding == Rounding::Rn;
        let raw = match ty.element() {
            ScalarType::F32 if nearest => {
                let [a, b] = [a, b].map(|x| f32::from_bits(x as u32));
                let x = match op {
                    Op::Add => a + b,
                    Op::Mul => a * b,
                    Op::Div => a / b,
                };
                x.to_bits().into()
            }
            ScalarType::F64 if nearest => {
                let [a, b] = [a, b].map(f64::from_bits);
                let x = match op {
                    Op::Add => a + b,
                    Op::Mul => a * b,
                    Op::Div => a / b,
                };
                x.to_bits()
            }
            ScalarType::F16 | ScalarType::BF16 if op != Op::Div => {
                let [x, y] = [a, b].map(|x| widen(format, x));
                let exact = if op == Op::Add {
                    add_to_odd(x, y)
                } else {
                    x * y
                };
                if exact == 0.0 && op == Op::Add && mode.rounding == Rounding::Rm {
                    // An exact zero is −0 in this mode unless both are +0.
                    if (a | b) & format.sign_bit() == 0 {
                        0
                    } else {
                        format.sign_bit()
                    }
                } else {
                    narrow(format, mode.rounding, exact)
                }
            }
            _ => {
                let [a, b] = [a, b].map(|x| soft::decode(format, x));
                let exact = match op {
                    Op::Add => soft::add(mode.rounding, a, b),
                    Op::Mul => soft::mul(a, b),
                    Op::Div => soft::div(a, b),
                };
                soft::encode_value(format, mode.rounding, exact)
            }
        };
        finish(format, mode, raw)
    })
}

/// `add`.
#[inline]
pub fn add(ty: ScalarType, mode: FloatMode, a: u64, b: u64) -> u64 {
    binary(Op::Add, ty, mode, a, b)
}

/// `sub`: a + (−b).
#[inline]
pub fn sub(ty: ScalarType, mode: FloatMode, a: u64, b: u64) -> u64 {
    binary(Op::Add, ty, mode, a, b ^ sign_mask(ty))
}

/// `mul`.
#[inline]
pub fn mul(ty: ScalarType, mode: FloatMode, a: u64, b: u64) -> u64 {
    binary(Op::Mul, ty, mode, a, b)
}

/// `div` with a rounding (f32, f64); the approximate ones are in [`super::approx`].
#[inline]
pub fn div(ty: ScalarType, mode: FloatMode, a: u64, b: u64) -> u64 {
    binary(Op::Div, ty, mode, a, b)
}

/// `rcp` with a rounding (f32, f64).
#[inline]
pub fn rcp(ty: ScalarType, mode: FloatMode, a: u64) -> u64 {
    binary(Op::Div, ty, mode, format_of(ty).one(), a)
}

/// `sqrt` with a rounding (f32, f64).
#[inline]
pub fn sqrt(ty: ScalarType, mode: FloatMode, a: u64) -> u64 {
    let format = format_of(ty);
    per_element(ty, [a], |[a]| {
        let a = if mode.ftz { format.flush(a) } else { a };
        let raw = match (ty, mode.rounding) {
            (ScalarType::F32, Rounding::Rn) => f32::from_bits(a as u32).sqrt().to_bits().into(),
            (ScalarType::F64, Rounding::Rn) => f64::from_bits(a).sqrt().to_bits(),
            _ => {
                let root = soft::sqrt(soft::decode(format, a));
                soft::encode_value(format, mode.rounding, root)
            }
        };
        finish(format, mode, raw)
    })
}

/// f32 a·b + c with one rounding to nearest, with or without the machine's FMA.
#[inline]
pub(super) fn fused_f32(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
        a.mul_add(b, c)
    } else {
        // 48 bits: the product is exact; the odd rounding keeps the second one right.
        add_to_odd(f64::from(a) * f64::from(b), c.into()) as f32
    }
}

/// `fma`: a·b + c with one rounding.
#[inline]
pub fn fma(ty: ScalarType, mode: FloatMode, a: u64, b: u64, c: u64) -> u64 {
    let format = format_of(ty);
    per_element(ty, [a, b, c], |args| {
        let args = args.map(|x| if mode.ftz { format.flush(x) } else { x });
        let nearest = mode.rounding == Rounding::Rn;
        let raw = match ty.element() {
            ScalarType::F32 if nearest => {
                let [a, b, c] = args.map(|x| f32::from_bits(x as u32));
                fused_f32(a, b, c).to_bits().into()
            }
            ScalarType::F64 if nearest => {
                let [a, b, c] = args.map(f64::from_bits);
                a.mul_add(b, c).to_bits()
            }
            ScalarType::F16 | ScalarType::BF16 if nearest => {
                let [a, b, c] = args.map(|x| widen(format, x));
                narrow(format, mode.rounding, add_to_odd(a * b, c))
            }
            _ => {
                let [a, b, c] = args.map(|x| soft::decode(format, x));
                let exact = soft::add(mode.rounding, soft::mul(a, b), c);
                soft::encode_value(format, mode.rounding, exact)
            }
        };
        finish(format, mode, raw)
    })
}

/// Modifiers of `min` and `max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MinMaxMode {
    /// `.ftz`.
    pub ftz: bool,
    /// `.NaN`: a NaN argument makes the result NaN; without it the other argument wins.
    pub nan: bool,
    /// `.xorsign.abs`: magnitudes are compared, and the signs' exclusive or goes to the result.
    pub xorsign_abs: bool,
}

#[inline]
fn min_max(ty: ScalarType, mode: MinMaxMode, want_max: bool, a: u64, b: u64) -> u64 {
    let format = format_of(ty);
    per_element(ty, [a, b], |args| {
        let sign = if mode.xorsign_abs {
            (args[0] ^ args[1]) & format.sign_bit()
        } else {
            0
        };
        let [a, b] = args.map(|x| {
            let x = if mode.ftz { format.flush(x) } else { x };
            if mode.xorsign_abs {
                format.magnitude(x)
            } else {
                x
            }
        });
        let chosen = match (format.is_nan(a), format.is_nan(b)) {
            (true, true) => return format.nan,
            (true, _) | (_, true) if mode.nan => return format.nan,
            (true, false) => b,
            (false, true) => a,
            (false, false) => {
                let a_is_less = format.order_key(a) < format.order_key(b);
                if a_is_less != want_max { a } else { b }
            }
        };
        chosen | sign
    })
}

/// `min`; −0 is less than +0.
#[inline]
pub fn min(ty: ScalarType, mode: MinMaxMode, a: u64, b: u64) -> u64 {
    min_max(ty, mode, false, a, b)
}

/// `max`; −0 is less than +0.
#[inline]
pub fn max(ty: ScalarType, mode: MinMaxMode, a: u64, b: u64) -> u64 {
    min_max(ty, mode, true, a, b)
}

/// The sign bits of a type, two for a packed one.
#[inline]
fn sign_mask(ty: ScalarType) -> u64 {
    let sign = format_of(ty).sign_bit();
    if ty.element() == ty {
        sign
    } else {
        sign | sign << 16
    }
}

#[inline]
fn map_sign(ty: ScalarType, ftz: bool, a: u64, f: impl Fn(u64, u64) -> u64) -> u64 {
    let format = format_of(ty);
    per_element(ty, [a], |[a]| {
        f(if ftz { format.flush(a) } else { a }, format.sign_bit())
    })
}

/// `abs`: clears the sign.
#[inline]
pub fn abs(ty: ScalarType, ftz: bool, a: u64) -> u64 {
    map_sign(ty, ftz, a, |a, sign| a & !sign)
}

/// `neg`: flips the sign.
#[inline]
pub fn neg(ty: ScalarType, ftz: bool, a: u64) -> u64 {
    map_sign(ty, ftz, a, |a, sign| a ^ sign)
}

/// `copysign`: b with the sign of a.
#[inline]
pub fn copysign(ty: ScalarType, a: u64, b: u64) -> u64 {
    let sign = format_of(ty).sign_bit();
    (a & sign) | (b & (sign - 1))
}

/// Classes that `testp` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "each variant is the manual's suffix of the same name"
)]
pub enum TestP {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

impl TestP {
    /// The class of a suffix without its dot (`"notanumber"`).
    pub fn from_suffix(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "finite" => Self::Finite,
            "infinite" => Self::Infinite,
            "number" => Self::Number,
            "notanumber" => Self::NotANumber,
            "normal" => Self::Normal,
            "subnormal" => Self::Subnormal,
            _ => return None,
        })
    }
}

/// `testp` (f32, f64). Zero counts as normal, as the manual says.
#[inline]
pub fn testp(class: TestP, ty: ScalarType, a: u64) -> bool {
    let format = format_of(ty);
    let magnitude = format.magnitude(a);
    let tiny = format.is_tiny(a);
    match class {
        TestP::Finite => magnitude < format.infinity(),
        TestP::Infinite => magnitude == format.infinity(),
        TestP::Number => magnitude <= format.infinity(),
        TestP::NotANumber => magnitude > format.infinity(),
        TestP::Normal => magnitude == 0 || (!tiny && magnitude < format.infinity()),
        TestP::Subnormal => magnitude != 0 && tiny,
    }
}

#[cfg(test)]
#[path = "float_tests.rs"]
mod tests;
