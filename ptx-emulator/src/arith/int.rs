//! Integer instructions: arithmetic, comparison-like selections and carries.
//!
//! Bit manipulation is in [`super::bits`].

use super::types::IntType;

/// `add`, modulo 2^bits.
#[inline]
pub fn add(ty: IntType, a: u64, b: u64) -> u64 {
    a.wrapping_add(b) & ty.mask()
}

/// `sub`, modulo 2^bits.
#[inline]
pub fn sub(ty: IntType, a: u64, b: u64) -> u64 {
    a.wrapping_sub(b) & ty.mask()
}

/// Clamps an exact value to the range of the type.
#[inline]
fn clamp(ty: IntType, value: i128) -> u64 {
    value.clamp(ty.min_value(), ty.max_value()) as u64 & ty.mask()
}

/// `add.sat`: clamped to the range of the type.
#[inline]
pub fn add_sat(ty: IntType, a: u64, b: u64) -> u64 {
    clamp(ty, ty.value(a) + ty.value(b))
}

/// `sub.sat`: clamped to the range of the type.
#[inline]
pub fn sub_sat(ty: IntType, a: u64, b: u64) -> u64 {
    clamp(ty, ty.value(a) - ty.value(b))
}

/// `add.cc` and `addc`: the sum and the carry out of the top bit.
#[inline]
pub fn add_carry(ty: IntType, a: u64, b: u64, carry_in: bool) -> (u64, bool) {
    let sum = (a & ty.mask()) as u128 + (b & ty.mask()) as u128 + carry_in as u128;
    (sum as u64 & ty.mask(), (sum >> ty.bits) != 0)
}

/// `sub.cc` and `subc`: the difference and the borrow into the top bit.
#[inline]
pub fn sub_borrow(ty: IntType, a: u64, b: u64, borrow_in: bool) -> (u64, bool) {
    let (a, b) = (a & ty.mask(), b & ty.mask());
    let subtrahend = b as u128 + borrow_in as u128;
    (
        a.wrapping_sub(b).wrapping_sub(borrow_in as u64) & ty.mask(),
        (a as u128) < subtrahend,
    )
}

/// `mul.lo`, modulo 2^bits.
#[inline]
pub fn mul_lo(ty: IntType, a: u64, b: u64) -> u64 {
    a.wrapping_mul(b) & ty.mask()
}

/// `mul.hi`: bits `bits..2·bits` of the exact product.
#[inline]
pub fn mul_hi(ty: IntType, a: u64, b: u64) -> u64 {
    let product = match (ty.signed, ty.bits) {
        (false, 64) => return ((a as u128 * b as u128) >> 64) as u64,
        (true, 64) => return ((a as i64 as i128 * b as i64 as i128) >> 64) as u64,
        (false, _) => (a & ty.mask()) * (b & ty.mask()),
        (true, _) => (ty.sext(a) * ty.sext(b)) as u64,
    };
    (product >> ty.bits) & ty.mask()
}

/// `mul.wide`: the exact product, twice as wide as `ty` (16- and 32-bit types only).
#[inline]
pub fn mul_wide(ty: IntType, a: u64, b: u64) -> u64 {
    debug_assert!(ty.bits < 64, "mul.wide has no 64-bit form");
    let product = if ty.signed {
        (ty.sext(a) * ty.sext(b)) as u64
    } else {
        (a & ty.mask()) * (b & ty.mask())
    };
    product
        & IntType {
            signed: ty.signed,
            bits: 2 * ty.bits,
        }
        .mask()
}

/// `mad.lo`: a·b + c, modulo 2^bits.
#[inline]
pub fn mad_lo(ty: IntType, a: u64, b: u64, c: u64) -> u64 {
    a.wrapping_mul(b).wrapping_add(c) & ty.mask()
}

/// `mad.hi`: the upper half of a·b, plus c.
#[inline]
pub fn mad_hi(ty: IntType, a: u64, b: u64, c: u64) -> u64 {
    add(ty, mul_hi(ty, a, b), c)
}

/// `mad.hi.sat`: [`mad_hi`] with the addition clamped (`.s32` only in the manual).
#[inline]
pub fn mad_hi_sat(ty: IntType, a: u64, b: u64, c: u64) -> u64 {
    add_sat(ty, mul_hi(ty, a, b), c)
}

/// `mad.wide`: the exact product plus a c of twice the width of `ty`.
#[inline]
pub fn mad_wide(ty: IntType, a: u64, b: u64, c: u64) -> u64 {
    mul_wide(ty, a, b).wrapping_add(c)
        & IntType {
            signed: ty.signed,
            bits: 2 * ty.bits,
        }
        .mask()
}

/// The 48-bit product of the low 24 bits of each argument, in two's complement.
#[inline]
fn product_24(ty: IntType, a: u64, b: u64) -> i64 {
    let low = |x: u64| {
        if ty.signed {
            ((x << 40) as i64) >> 40
        } else {
            (x & 0xff_ffff) as i64
        }
    };
    low(a) * low(b)
}

/// `mul24.lo`: bits 0..32 of the 48-bit product of 24-bit arguments.
#[inline]
pub fn mul24_lo(ty: IntType, a: u64, b: u64) -> u64 {
    product_24(ty, a, b) as u64 & ty.mask()
}

/// `mul24.hi`: bits 16..48 of the 48-bit product of 24-bit arguments.
#[inline]
pub fn mul24_hi(ty: IntType, a: u64, b: u64) -> u64 {
    (product_24(ty, a, b) >> 16) as u64 & ty.mask()
}

/// `div`, truncated towards zero; `None` for a zero divisor. `INT_MIN / -1` is `INT_MIN`.
#[inline]
pub fn div(ty: IntType, a: u64, b: u64) -> Option<u64> {
    if ty.signed {
        let divisor = ty.sext(b);
        (divisor != 0).then(|| ty.sext(a).wrapping_div(divisor) as u64 & ty.mask())
    } else {
        (a & ty.mask()).checked_div(b & ty.mask())
    }
}

/// `rem`, with the sign of the dividend; `None` for a zero divisor. `INT_MIN % -1` is 0.
#[inline]
pub fn rem(ty: IntType, a: u64, b: u64) -> Option<u64> {
    if ty.signed {
        let divisor = ty.sext(b);
        (divisor != 0).then(|| ty.sext(a).wrapping_rem(divisor) as u64 & ty.mask())
    } else {
        (a & ty.mask()).checked_rem(b & ty.mask())
    }
}

/// Whether a < b in the type's order.
#[inline]
fn less(ty: IntType, a: u64, b: u64) -> bool {
    if ty.signed {
        ty.sext(a) < ty.sext(b)
    } else {
        a & ty.mask() < b & ty.mask()
    }
}

/// `min`.
#[inline]
pub fn min(ty: IntType, a: u64, b: u64) -> u64 {
    (if less(ty, b, a) { b } else { a }) & ty.mask()
}

/// `max`.
#[inline]
pub fn max(ty: IntType, a: u64, b: u64) -> u64 {
    (if less(ty, a, b) { b } else { a }) & ty.mask()
}

/// `abs`; the least value stays itself.
#[inline]
pub fn abs(ty: IntType, a: u64) -> u64 {
    ty.sext(a).wrapping_abs() as u64 & ty.mask()
}

/// `neg`; the least value stays itself.
#[inline]
pub fn neg(ty: IntType, a: u64) -> u64 {
    a.wrapping_neg() & ty.mask()
}

/// `not`.
#[inline]
pub fn not(ty: IntType, a: u64) -> u64 {
    !a & ty.mask()
}

/// `sad`: |a − b| + c.
#[inline]
pub fn sad(ty: IntType, a: u64, b: u64, c: u64) -> u64 {
    let (low, high) = if less(ty, a, b) { (a, b) } else { (b, a) };
    high.wrapping_sub(low).wrapping_add(c) & ty.mask()
}

/// Byte `index` of `x`, extended by its signedness.
#[inline]
fn byte(signed: bool, x: u64, index: u32) -> i64 {
    let byte = (x >> (8 * index)) as u8;
    if signed {
        byte as i8 as i64
    } else {
        byte as i64
    }
}

/// `dp4a`: the products of the four byte pairs of a and b, plus c, modulo 2^32.
#[inline]
pub fn dp4a(a_signed: bool, b_signed: bool, a: u64, b: u64, c: u64) -> u64 {
    let sum: i64 = (0..4)
        .map(|i| byte(a_signed, a, i) * byte(b_signed, b, i))
        .sum();
    c.wrapping_add(sum as u64) & 0xffff_ffff
}

/// `dp2a`: the two halves of a times two bytes of b (the lower two, or the upper two with `hi`),
/// plus c, modulo 2^32.
#[inline]
pub fn dp2a(a_signed: bool, b_signed: bool, hi: bool, a: u64, b: u64, c: u64) -> u64 {
    let half = |index: u32| {
        let half = (a >> (16 * index)) as u16;
        if a_signed {
            half as i16 as i64
        } else {
            half as i64
        }
    };
    let first = if hi { 2 } else { 0 };
    let sum: i64 = (0..2).map(|i| half(i) * byte(b_signed, b, first + i)).sum();
    c.wrapping_add(sum as u64) & 0xffff_ffff
}

#[cfg(test)]
#[path = "int_tests.rs"]
mod tests;
