//! What rounding means, for tests: an exact result is compared with the returned value, its two
//! neighbours and the midpoints to them. Nothing here rounds, and nothing is shared with
//! [`super::soft`] but the format's constants.

use std::cmp::Ordering;

use super::soft::Format;
use super::types::Rounding;

/// `sig · 2^exp`, exactly.
#[derive(Clone, Copy, Debug)]
pub struct Dyadic {
    pub sig: i128,
    pub exp: i32,
}

impl Dyadic {
    /// The value of a pattern by the definition of the format. Infinity becomes the power of two
    /// that would follow the greatest finite value, which is how rounding treats it.
    pub fn of(format: Format, x: u64) -> Self {
        let fraction_bits = format.precision - 1;
        let exponent_bits = format.bits - format.precision;
        let fraction = (x % (1 << fraction_bits)) as i128;
        let biased = ((x >> fraction_bits) % (1 << exponent_bits)) as i32;
        let negative = x >> (format.bits - 1) & 1 == 1;
        let (magnitude, exp) = if biased == 0 {
            (fraction, 1 - format.bias)
        } else {
            (fraction + (1 << fraction_bits), biased - format.bias)
        };
        let sig = if negative { -magnitude } else { magnitude };
        Self {
            sig,
            exp: exp - fraction_bits as i32,
        }
    }

    pub fn integer(sig: i128) -> Self {
        Self { sig, exp: 0 }
    }

    pub fn times(self, other: Self) -> Self {
        let sig = self
            .sig
            .checked_mul(other.sig)
            .expect("products of 64-bit significands");
        Self {
            sig,
            exp: self.exp + other.exp,
        }
    }

    /// (self + other) / 2, for neighbours: their exponents differ by at most one.
    fn midpoint(self, other: Self) -> Self {
        let exp = self.exp.min(other.exp);
        let at = |x: Self| x.sig << (x.exp - exp);
        Self {
            sig: at(self) + at(other),
            exp: exp - 1,
        }
    }
}

/// Fixed point wide enough for every sum of f64 products: units of 2^-2240, two's complement.
#[derive(Clone)]
pub struct Fixed([u64; 70]);

const LOWEST: i32 = -2240;

impl Fixed {
    pub fn of(x: Dyadic) -> Self {
        let mut limbs = [0; 70];
        let start = (x.exp - LOWEST) as usize;
        let (first, shift) = (start / 64, start % 64);
        // Three limbs hold the significand, the sign fills the rest.
        let low = (x.sig as u128) << shift;
        let high = if shift == 0 {
            x.sig >> 127
        } else {
            x.sig >> (128 - shift)
        };
        let sign = (x.sig >> 127) as u64;
        for (i, limb) in limbs.iter_mut().enumerate().skip(first) {
            *limb = match i - first {
                0 => low as u64,
                1 => (low >> 64) as u64,
                2 => high as u64,
                _ => sign,
            };
        }
        Self(limbs)
    }

    pub fn plus(&self, other: &Self) -> Self {
        let mut carry = 0u128;
        let mut limbs = [0; 70];
        for (i, limb) in limbs.iter_mut().enumerate() {
            let sum = self.0[i] as u128 + other.0[i] as u128 + carry;
            *limb = sum as u64;
            carry = sum >> 64;
        }
        Self(limbs)
    }

    pub fn compare(&self, other: &Self) -> Ordering {
        let sign = |x: &Self| (x.0[69] as i64) >> 63;
        sign(self)
            .cmp(&sign(other))
            .then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

/// Compares two exact values.
pub fn compare(a: Dyadic, b: Dyadic) -> Ordering {
    if a.sig.signum() != b.sig.signum() || a.sig == 0 {
        return a.sig.signum().cmp(&b.sig.signum());
    }
    // The same sign: first by the position of the leading bit, then aligned.
    let top = |x: Dyadic| x.exp + 127 - x.sig.unsigned_abs().leading_zeros() as i32;
    let exp = a.exp.min(b.exp);
    let order = top(a).cmp(&top(b)).then_with(|| {
        let at = |x: Dyadic| x.sig.unsigned_abs() << (x.exp - exp);
        at(a).cmp(&at(b))
    });
    if a.sig > 0 { order } else { order.reverse() }
}

/// Asserts that `result` is the correct rounding of a finite exact value x, which is known only by
/// `against(y)`: how y compares with x. The sign of an exact zero is the caller's to check.
#[track_caller]
pub fn check_rounded(
    format: Format,
    rounding: Rounding,
    result: u64,
    against: impl Fn(Dyadic) -> Ordering,
    what: &dyn std::fmt::Debug,
) {
    let ok = is_rounded(format, rounding, result, against);
    assert!(
        ok,
        "{result:#x} is not the {rounding:?} rounding to {format:?} of {what:x?}"
    );
}

fn is_rounded(
    format: Format,
    rounding: Rounding,
    result: u64,
    against: impl Fn(Dyadic) -> Ordering,
) -> bool {
    use Ordering::{Equal, Greater, Less};
    let infinity = ((1u64 << (format.bits - format.precision)) - 1) << (format.precision - 1);
    let sign_bit = 1u64 << (format.bits - 1);
    let magnitude = result % sign_bit;
    if magnitude > infinity || result > 2 * (sign_bit - 1) + 1 {
        return false;
    }
    let negative = result >= sign_bit;
    let zero = against(Dyadic::integer(0));
    if magnitude == 0 && zero != Equal && negative != (zero == Greater) {
        return false;
    }
    let value = |magnitude: u64, negative: bool| {
        Dyadic::of(format, magnitude + if negative { sign_bit } else { 0 })
    };
    let own = value(magnitude, negative);
    // Away from zero there is nothing beyond infinity; towards zero, zero's neighbour is the
    // least value of the other sign.
    let outer = (magnitude < infinity).then(|| value(magnitude + 1, negative));
    let inner = if magnitude == 0 {
        value(1, !negative)
    } else {
        value(magnitude - 1, negative)
    };
    let (below, above) = if negative {
        (outer, Some(inner))
    } else {
        (Some(inner), outer)
    };
    match rounding {
        Rounding::Rn | Rounding::Rna => {
            let tie_allowed = |neighbour_is_outer: bool| match rounding {
                Rounding::Rn => magnitude.is_multiple_of(2),
                _ => !neighbour_is_outer,
            };
            let low = below.is_none_or(|below| match against(below.midpoint(own)) {
                Less => true,
                Equal => tie_allowed(negative),
                Greater => false,
            });
            let high = above.is_none_or(|above| match against(above.midpoint(own)) {
                Greater => true,
                Equal => tie_allowed(!negative),
                Less => false,
            });
            low && high
        }
        Rounding::Rm | Rounding::Rp | Rounding::Rz => {
            let down = match rounding {
                Rounding::Rz => zero == Less,
                other => other == Rounding::Rm,
            };
            // Rounded down: own ≤ x < above, where −∞ is below and +∞ above every finite x.
            let next_is_infinite = magnitude + 1 == infinity;
            if down {
                (against(own) != Greater || (negative && magnitude == infinity))
                    && above.is_some_and(|above| {
                        (next_is_infinite && !negative) || against(above) == Greater
                    })
            } else {
                (against(own) != Less || (!negative && magnitude == infinity))
                    && below.is_some_and(|below| {
                        (next_is_infinite && negative) || against(below) == Less
                    })
            }
        }
    }
}

/// Asserts that `result` is the value of `x` rounded to nearest even, NaN and infinity included.
#[track_caller]
pub fn check_nearest(format: Format, x: f32, result: u16) {
    if x.is_nan() {
        assert_eq!(u64::from(result), format.nan);
    } else if x.is_infinite() {
        let infinity = if format.precision == 11 {
            0x7c00
        } else {
            0x7f80
        };
        assert_eq!(result, infinity | (x.is_sign_negative() as u16) << 15);
    } else {
        let exact = Dyadic::of(Format::F32, x.to_bits().into());
        let against = |y| compare(y, exact);
        check_rounded(format, Rounding::Rn, result.into(), against, &x.to_bits());
        assert_eq!(result >> 15 == 1, x.is_sign_negative(), "{x:e}");
    }
}

#[test]
fn the_judge_accepts_one_result_only() {
    // 1 + 2^-11 lies midway between two f16 values; 1 + 2^-12 below; 65520 midway to infinity.
    let cases = [
        (
            Dyadic {
                sig: (1 << 11) + 1,
                exp: -11,
            },
            [0x3c00, 0x3c00, 0x3c00, 0x3c01, 0x3c01],
        ),
        (
            Dyadic {
                sig: (1 << 12) + 1,
                exp: -12,
            },
            [0x3c00, 0x3c00, 0x3c00, 0x3c01, 0x3c00],
        ),
        (
            Dyadic {
                sig: -(1 << 12) - 1,
                exp: -12,
            },
            [0xbc00, 0xbc00, 0xbc01, 0xbc00, 0xbc00],
        ),
        (
            Dyadic { sig: 65520, exp: 0 },
            [0x7c00, 0x7bff, 0x7bff, 0x7c00, 0x7c00],
        ),
        (
            Dyadic { sig: -1, exp: -25 },
            [0x8000, 0x8000, 0x8001, 0x8000, 0x8001],
        ),
        (
            Dyadic { sig: -3, exp: 40 },
            [0xfc00, 0xfbff, 0xfc00, 0xfbff, 0xfc00],
        ),
    ];
    let modes = [
        Rounding::Rn,
        Rounding::Rz,
        Rounding::Rm,
        Rounding::Rp,
        Rounding::Rna,
    ];
    for (x, want) in cases {
        for (rounding, want) in modes.into_iter().zip(want) {
            let accepted: Vec<u64> = (0..=0xffff)
                .filter(|r| is_rounded(Format::F16, rounding, *r, |y| compare(y, x)))
                .collect();
            assert_eq!(accepted, [want], "{x:?} {rounding:?}");
        }
    }
}
