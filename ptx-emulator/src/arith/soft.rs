//! Binary floating point in integer arithmetic: any format up to f64, any rounding.
//!
//! A finite value is `±sig · 2^exp`. Operations give an exact value, or one whose lowest bit is
//! "jammed": it is set when anything below it was non-zero. Jamming leaves every rounding right as
//! long as at least two bits lie between the result's last place and the jammed bit, which the
//! 126-bit windows used here ensure for 53-bit results.

use super::types::{Rounding, ScalarType};

/// A format with an implicit leading bit, subnormals, infinities and NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Width of the pattern.
    pub bits: u32,
    /// Bits of the significand, the implicit one included.
    pub precision: u32,
    /// Exponent bias.
    pub bias: i32,
    /// The NaN that operations return.
    pub nan: u64,
}

impl Format {
    pub const F16: Self = Self {
        bits: 16,
        precision: 11,
        bias: 15,
        nan: 0x7fff,
    };
    pub const BF16: Self = Self {
        bits: 16,
        precision: 8,
        bias: 127,
        nan: 0x7fff,
    };
    pub const F32: Self = Self {
        bits: 32,
        precision: 24,
        bias: 127,
        nan: 0x7fff_ffff,
    };
    pub const F64: Self = Self {
        bits: 64,
        precision: 53,
        bias: 1023,
        nan: 0x7ff8_0000_0000_0000,
    };
    /// The upper 19 bits of an f32; patterns here are not yet shifted to their place.
    pub const TF32: Self = Self {
        bits: 19,
        precision: 11,
        bias: 127,
        nan: 0x3_ffff,
    };

    /// The format of a scalar type, or of a packed type's element; `None` for other types.
    #[inline]
    pub const fn of(ty: ScalarType) -> Option<Self> {
        Some(match ty.element() {
            ScalarType::F16 => Self::F16,
            ScalarType::BF16 => Self::BF16,
            ScalarType::F32 => Self::F32,
            ScalarType::F64 => Self::F64,
            ScalarType::TF32 => Self::TF32,
            _ => return None,
        })
    }

    #[inline]
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    #[inline]
    pub const fn sign_bit(self) -> u64 {
        1 << (self.bits - 1)
    }

    /// +∞, which is also the mask of the exponent bits.
    #[inline]
    pub const fn infinity(self) -> u64 {
        (2 * self.bias as u64 + 1) << (self.precision - 1)
    }

    /// The greatest finite value.
    #[inline]
    pub const fn max_finite(self) -> u64 {
        self.infinity() - 1
    }

    /// 1.0.
    #[inline]
    pub const fn one(self) -> u64 {
        (self.bias as u64) << (self.precision - 1)
    }

    /// The pattern without its sign.
    #[inline]
    pub const fn magnitude(self, x: u64) -> u64 {
        x & (self.sign_bit() - 1)
    }

    #[inline]
    pub const fn is_nan(self, x: u64) -> bool {
        self.magnitude(x) > self.infinity()
    }

    /// Zero or subnormal.
    #[inline]
    pub const fn is_tiny(self, x: u64) -> bool {
        x & self.infinity() == 0
    }

    /// A subnormal becomes the zero of its sign.
    #[inline]
    pub const fn flush(self, x: u64) -> u64 {
        if self.is_tiny(x) {
            x & self.sign_bit()
        } else {
            x
        }
    }

    /// A key that orders patterns as their values, −0 below +0; NaN lies at the ends.
    #[inline]
    pub const fn order_key(self, x: u64) -> u64 {
        let x = x & self.mask();
        if x & self.sign_bit() != 0 {
            !x & self.mask()
        } else {
            x | self.sign_bit()
        }
    }
}

/// A decoded pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nan,
    Infinite { negative: bool },
    Finite(Finite),
}

/// `±sig · 2^exp`; zero has `sig` 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finite {
    pub negative: bool,
    pub exp: i32,
    pub sig: u128,
}

impl Finite {
    const fn zero(negative: bool) -> Self {
        Self {
            negative,
            exp: 0,
            sig: 0,
        }
    }

    /// Moves the leading bit to bit 126; not for zero.
    fn normalised(self) -> Self {
        let shift = self.sig.leading_zeros() as i32 - 1;
        if shift >= 0 {
            Self {
                exp: self.exp - shift,
                sig: self.sig << shift,
                ..self
            }
        } else {
            Self {
                exp: self.exp + 1,
                sig: shift_right_jam(self.sig, 1),
                ..self
            }
        }
    }
}

/// Right shift whose lowest bit remembers whether a set bit was lost.
#[inline]
fn shift_right_jam(x: u128, amount: u32) -> u128 {
    if amount == 0 {
        x
    } else if amount >= 128 {
        (x != 0) as u128
    } else {
        (x >> amount) | (x << (128 - amount) != 0) as u128
    }
}

/// Decodes a pattern.
#[inline]
pub(crate) fn decode(format: Format, x: u64) -> Value {
    let negative = x & format.sign_bit() != 0;
    let magnitude = format.magnitude(x);
    if magnitude >= format.infinity() {
        return if magnitude > format.infinity() {
            Value::Nan
        } else {
            Value::Infinite { negative }
        };
    }
    let fraction_bits = format.precision - 1;
    let biased = (magnitude >> fraction_bits) as i32;
    let fraction = magnitude & ((1 << fraction_bits) - 1);
    let sig = if biased == 0 {
        fraction
    } else {
        fraction | 1 << fraction_bits
    };
    // Subnormals share the least normal exponent.
    let exp = biased.max(1) - format.bias - fraction_bits as i32;
    Value::Finite(Finite {
        negative,
        exp,
        sig: sig.into(),
    })
}

/// Rounds a finite value to a pattern. Overflow gives ∞ or the greatest finite value, as the
/// rounding says.
pub(crate) fn encode(format: Format, rounding: Rounding, value: Finite) -> u64 {
    let Finite {
        negative,
        mut exp,
        sig,
    } = value;
    let sign = if negative { format.sign_bit() } else { 0 };
    if sig == 0 {
        return sign;
    }
    // 63 bits hold 53 of a result and at least ten below it.
    let excess = 65u32.saturating_sub(sig.leading_zeros());
    let sig = shift_right_jam(sig, excess) as u64;
    exp += excess as i32;

    let top = 63 - sig.leading_zeros() as i32;
    let last_place = (exp + top).max(1 - format.bias) - (format.precision as i32 - 1);
    let shift = last_place - exp;
    let (kept, up) = if shift <= 0 {
        (sig << -shift, false)
    } else {
        let (kept, lost, half) = if shift < 64 {
            (sig >> shift, sig & ((1 << shift) - 1), 1 << (shift - 1))
        } else {
            // sig < 2^63: below half of the least subnormal.
            (0, sig, u64::MAX)
        };
        let up = match rounding {
            Rounding::Rn => lost > half || (lost == half && kept & 1 == 1),
            Rounding::Rna => lost >= half,
            Rounding::Rz => false,
            Rounding::Rm => negative && lost != 0,
            Rounding::Rp => !negative && lost != 0,
        };
        (kept, up)
    };
    // A carry out of the fraction moves into the exponent by itself, up to infinity.
    let implicit = 1u64 << (format.precision - 1);
    let magnitude = if kept < implicit {
        kept + up as u64
    } else {
        let biased = last_place + (format.precision as i32 - 1) + format.bias;
        if biased > 2 * format.bias {
            return sign | overflow(format, rounding, negative);
        }
        ((biased as u64) << (format.precision - 1)) + (kept - implicit) + up as u64
    };
    if magnitude >= format.infinity() {
        return sign | overflow(format, rounding, negative);
    }
    sign | magnitude
}

/// The magnitude that a result too large for the format becomes.
fn overflow(format: Format, rounding: Rounding, negative: bool) -> u64 {
    let to_infinity = match rounding {
        Rounding::Rn | Rounding::Rna => true,
        Rounding::Rz => false,
        Rounding::Rm => negative,
        Rounding::Rp => !negative,
    };
    if to_infinity {
        format.infinity()
    } else {
        format.max_finite()
    }
}

/// Rounds any value to a pattern; NaN becomes the canonical one.
#[inline]
pub(crate) fn encode_value(format: Format, rounding: Rounding, value: Value) -> u64 {
    match value {
        Value::Nan => format.nan,
        Value::Infinite { negative } => {
            format.infinity() | if negative { format.sign_bit() } else { 0 }
        }
        Value::Finite(finite) => encode(format, rounding, finite),
    }
}

/// a + b; an exact zero out of unlike signs is −0 for `.rm`, otherwise +0.
pub(crate) fn add(rounding: Rounding, a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
        (Value::Infinite { negative: x }, Value::Infinite { negative: y }) if x != y => Value::Nan,
        (Value::Infinite { negative }, _) | (_, Value::Infinite { negative }) => {
            Value::Infinite { negative }
        }
        (Value::Finite(a), Value::Finite(b)) => Value::Finite(add_finite(rounding, a, b)),
    }
}

fn add_finite(rounding: Rounding, a: Finite, b: Finite) -> Finite {
    let cancelled = Finite::zero(rounding == Rounding::Rm);
    match (a.sig, b.sig) {
        (0, 0) if a.negative == b.negative => return a,
        (0, 0) => return cancelled,
        (0, _) => return b,
        (_, 0) => return a,
        _ => {}
    }
    let (a, b) = (a.normalised(), b.normalised());
    let (large, small) = if (a.exp, a.sig) >= (b.exp, b.sig) {
        (a, b)
    } else {
        (b, a)
    };
    let aligned = shift_right_jam(small.sig, (large.exp - small.exp) as u32);
    if large.negative == small.negative {
        Finite {
            sig: large.sig + aligned,
            ..large
        }
    } else if large.sig == aligned {
        cancelled
    } else {
        Finite {
            sig: large.sig - aligned,
            ..large
        }
    }
}

/// a · b, exact for significands of up to 64 bits.
pub(crate) fn mul(a: Value, b: Value) -> Value {
    let sign = |v: Value| match v {
        Value::Nan => false,
        Value::Infinite { negative } => negative,
        Value::Finite(finite) => finite.negative,
    };
    let negative = sign(a) != sign(b);
    match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
        (Value::Infinite { .. }, Value::Finite(Finite { sig: 0, .. }))
        | (Value::Finite(Finite { sig: 0, .. }), Value::Infinite { .. }) => Value::Nan,
        (Value::Infinite { .. }, _) | (_, Value::Infinite { .. }) => Value::Infinite { negative },
        (Value::Finite(a), Value::Finite(b)) => Value::Finite(Finite {
            negative,
            exp: a.exp + b.exp,
            sig: a.sig * b.sig,
        }),
    }
}

/// a / b for significands of up to 64 bits, jammed.
pub(crate) fn div(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
        (Value::Infinite { .. }, Value::Infinite { .. }) => Value::Nan,
        (Value::Infinite { negative }, Value::Finite(b)) => Value::Infinite {
            negative: negative != b.negative,
        },
        (Value::Finite(a), Value::Infinite { negative }) => {
            Value::Finite(Finite::zero(a.negative != negative))
        }
        (Value::Finite(a), Value::Finite(b)) => {
            let negative = a.negative != b.negative;
            match (a.sig, b.sig) {
                (0, 0) => Value::Nan,
                (0, _) => Value::Finite(Finite::zero(negative)),
                (_, 0) => Value::Infinite { negative },
                _ => {
                    // At least 126 − 64 bits of quotient.
                    let a = a.normalised();
                    let (quotient, rest) = (a.sig / b.sig, a.sig % b.sig);
                    let sig = quotient | (rest != 0) as u128;
                    Value::Finite(Finite {
                        negative,
                        exp: a.exp - b.exp,
                        sig,
                    })
                }
            }
        }
    }
}

/// √a, jammed; √−0 is −0.
pub(crate) fn sqrt(a: Value) -> Value {
    match a {
        Value::Finite(a) if a.sig == 0 => Value::Finite(a),
        Value::Finite(a) if !a.negative => {
            let mut a = a.normalised();
            if a.exp & 1 != 0 {
                // Bit 127 is free: the leading bit is bit 126.
                a = Finite {
                    exp: a.exp - 1,
                    sig: a.sig << 1,
                    ..a
                };
            }
            let root = a.sig.isqrt();
            let sig = root | (root * root != a.sig) as u128;
            Value::Finite(Finite {
                negative: false,
                exp: a.exp / 2,
                sig,
            })
        }
        Value::Infinite { negative: false } => a,
        _ => Value::Nan,
    }
}
