//! The 16-bit formats to and from f32, round to nearest: the conversions that kernels spend their
//! time in. Other roundings are in [`super::convert`].

/// The value of an f16; exact, NaN becomes the canonical f32 NaN.
#[inline]
pub fn f16_to_f32(x: u16) -> f32 {
    let sign = u32::from(x & 0x8000) << 16;
    let magnitude = u32::from(x & 0x7fff);
    // Exponent and fraction in place but biased by 15: multiplying by 2^112 corrects the bias and
    // normalises subnormals, exactly.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23);
    let bits = if magnitude == 0x7c00 {
        0x7f80_0000
    } else {
        scaled.to_bits()
    } | sign;
    f32::from_bits(if magnitude > 0x7c00 {
        0x7fff_ffff
    } else {
        bits
    })
}

/// The value of a bf16; exact, NaN becomes the canonical f32 NaN.
#[inline]
pub fn bf16_to_f32(x: u16) -> f32 {
    if x & 0x7fff > 0x7f80 {
        f32::from_bits(0x7fff_ffff)
    } else {
        f32::from_bits(u32::from(x) << 16)
    }
}

/// The f16 nearest to x, ties to even; NaN becomes `0x7fff`.
#[inline]
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    // At least the least normal, 2^-14: rebias and round the 13 lost bits; a carry out of the
    // fraction is right, up to infinity. (Wraps for lesser values, which do not use it.)
    let rebiased = magnitude.wrapping_sub(112 << 23);
    let normal = rebiased.wrapping_add(0xfff + (rebiased >> 13 & 1)) >> 13;
    // Below, adding 0.5 puts the f16's last place (2^-24) at the f32's, which rounds.
    let shifted = f32::from_bits(magnitude) + 0.5;
    let subnormal = shifted.to_bits().wrapping_sub(0.5f32.to_bits());
    // Selections rather than branches, for loops over lanes.
    let rounded = if magnitude < 0x3880_0000 {
        subnormal
    } else {
        normal
    };
    let rounded = if magnitude >= 0x4780_0000 {
        0x7c00
    } else {
        rounded
    } as u16;
    if magnitude > 0x7f80_0000 {
        0x7fff
    } else {
        rounded | sign
    }
}

/// The bf16 nearest to x, ties to even; NaN becomes `0x7fff`.
#[inline]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        0x7fff
    } else {
        rounded as u16
    }
}

/// x rounded to odd in f32: truncated, with the last bit set if that was inexact. Rounding the
/// result to a 16-bit format is as good as rounding x.
#[inline]
pub(super) fn f64_to_f32_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let back = f64::from(nearest);
    let outward = (back.abs() > x.abs()) as u32;
    let inexact = ((back > x) | (back < x)) as u32;
    // Steps back from infinity to the greatest finite value, too.
    f32::from_bits((nearest.to_bits() - outward) | inexact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arith::exact::check_nearest;
    use crate::arith::soft::Format;

    /// 2^exp by repeated multiplication; exact in f64 here.
    fn power_of_two(exp: i32) -> f64 {
        let step = if exp < 0 { 0.5 } else { 2.0 };
        (0..exp.abs()).fold(1.0, |product, _| product * step)
    }

    /// The definition of a binary format, in f64.
    fn by_definition(x: u16, fraction_bits: u32, bias: i32) -> f64 {
        let exponent_mask = (1 << (15 - fraction_bits)) - 1;
        let biased = i32::from(x >> fraction_bits) & exponent_mask;
        let fraction = f64::from(x & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
        let magnitude = match (biased, fraction) {
            (b, 0.0) if b == exponent_mask => f64::INFINITY,
            (b, _) if b == exponent_mask => f64::NAN,
            (0, f) => f * power_of_two(1 - bias),
            (b, f) => (1.0 + f) * power_of_two(b - bias),
        };
        if x >> 15 == 1 { -magnitude } else { magnitude }
    }

    #[test]
    fn every_pattern_widens_to_its_definition() {
        for x in 0..=u16::MAX {
            for (got, want) in [
                (f16_to_f32(x), by_definition(x, 10, 15)),
                (bf16_to_f32(x), by_definition(x, 7, 127)),
            ] {
                if want.is_nan() {
                    assert_eq!(got.to_bits(), 0x7fff_ffff, "{x:#x}");
                } else {
                    assert_eq!(f64::from(got).to_bits(), want.to_bits(), "{x:#x}");
                }
            }
        }
    }

    #[test]
    fn narrowing_rounds_to_the_nearest_even_neighbour() {
        // Around every value and every midpoint between values.
        for x in 0..=u16::MAX {
            for step in [
                -0x1001i32, -0x1000, -0xfff, -1, 0, 1, 0xfff, 0x1000, 0x1001, 0x1fff,
            ] {
                let f16 = f16_to_f32(x).to_bits().wrapping_add_signed(step);
                check_nearest(
                    Format::F16,
                    f32::from_bits(f16),
                    f32_to_f16(f32::from_bits(f16)),
                );
                let bf16 = f32::from_bits((u32::from(x) << 16).wrapping_add_signed(8 * step));
                check_nearest(Format::BF16, bf16, f32_to_bf16(bf16));
            }
            // f16 subnormals have midpoints at other places.
            let tiny = f32::from_bits(0x3300_0000 + (u32::from(x) << 8));
            check_nearest(Format::F16, tiny, f32_to_f16(tiny));
        }
    }
}
