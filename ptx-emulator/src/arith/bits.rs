//! Bit manipulation: shifts, fields, permutations and counts.

use super::types::IntType;

/// `shl`: an amount at or above the width gives 0.
#[inline]
pub fn shl(ty: IntType, a: u64, amount: u64) -> u64 {
    let amount = amount as u32;
    if amount >= ty.bits {
        0
    } else {
        (a << amount) & ty.mask()
    }
}

/// `shr`: the sign fills a signed type; an amount at or above the width counts as the width.
#[inline]
pub fn shr(ty: IntType, a: u64, amount: u64) -> u64 {
    let amount = amount as u32;
    if ty.signed {
        (ty.sext(a) >> amount.min(63)) as u64 & ty.mask()
    } else if amount >= ty.bits {
        0
    } else {
        (a & ty.mask()) >> amount
    }
}

/// The `len` lowest bits, set; all of them from 64 on.
#[inline]
fn low_mask(len: u32) -> u64 {
    if len >= 64 { u64::MAX } else { (1 << len) - 1 }
}

/// `bfe`: `len` bits of a from `pos` up (each 0..=255, higher bits ignored). Bits past the top
/// and above the field are 0, or copies of the field's highest existing bit if signed.
#[inline]
pub fn bfe(ty: IntType, a: u64, pos: u64, len: u64) -> u64 {
    let (pos, len) = (pos as u32 & 0xff, len as u32 & 0xff);
    if len == 0 {
        return 0;
    }
    let a = a & ty.mask();
    let sign = ty.signed && a >> (pos + len - 1).min(ty.bits - 1) & 1 == 1;
    let shifted = if pos >= ty.bits { 0 } else { a >> pos };
    // How many bits of the field exist.
    let existing = len.min(ty.bits.saturating_sub(pos));
    let fill = if sign { ty.mask() } else { 0 };
    let field = low_mask(existing);
    (shifted & field) | (fill & !field)
}

/// `bfi`: b with its `len` bits from `pos` up replaced by the low bits of a.
#[inline]
pub fn bfi(ty: IntType, a: u64, b: u64, pos: u64, len: u64) -> u64 {
    let (pos, len) = (pos as u32 & 0xff, len as u32 & 0xff);
    if pos >= ty.bits {
        return b & ty.mask();
    }
    let field = low_mask(len) << pos;
    ((b & !field) | ((a << pos) & field)) & ty.mask()
}

/// `bfind`: the position of the highest set bit (for a negative number, of the highest clear one),
/// or with `.shiftamt` the left shift that brings it to the top; `0xffffffff` if there is none.
#[inline]
pub fn bfind(ty: IntType, a: u64, shiftamt: bool) -> u64 {
    let a = if ty.signed && ty.sext(a) < 0 { !a } else { a } & ty.mask();
    if a == 0 {
        return 0xffff_ffff;
    }
    let position = 63 - a.leading_zeros();
    u64::from(if shiftamt {
        ty.bits - 1 - position
    } else {
        position
    })
}

/// `popc`.
#[inline]
pub fn popc(ty: IntType, a: u64) -> u64 {
    (a & ty.mask()).count_ones().into()
}

/// `clz`; the width for 0.
#[inline]
pub fn clz(ty: IntType, a: u64) -> u64 {
    u64::from((a & ty.mask()).leading_zeros() - (64 - ty.bits))
}

/// `brev`.
#[inline]
pub fn brev(ty: IntType, a: u64) -> u64 {
    a.reverse_bits() >> (64 - ty.bits)
}

/// `fns.b32`: the position of the n-th set bit of a 32-bit mask from bit `base` on, upwards for a
/// positive n, downwards for a negative one; n = 0 asks whether bit `base` is set. `0xffffffff` if
/// there is none, and for a base above 31, which the manual leaves undefined.
#[inline]
pub fn fns(mask: u64, base: u64, n: u64) -> u64 {
    let (mask, base, n) = (mask as u32, base as u32, n as i32);
    let not_found = 0xffff_ffff;
    if base > 31 {
        return not_found;
    }
    // Drop the bits on the wrong side, then all but the last of the wanted ones.
    let mut rest = match n.signum() {
        0 => mask & 1 << base,
        1 => mask >> base << base,
        _ => mask << (31 - base) >> (31 - base),
    };
    for _ in 1..n.unsigned_abs().min(33) {
        let nearest = if n > 0 {
            rest.trailing_zeros()
        } else {
            31u32.wrapping_sub(rest.leading_zeros())
        };
        rest &= !1u32.checked_shl(nearest).unwrap_or(0);
    }
    match rest {
        0 => not_found,
        _ if n > 0 => rest.trailing_zeros().into(),
        _ => (31 - rest.leading_zeros()).into(),
    }
}

/// `bmsk`: b bits set from position a up, of a 32-bit word. Both are taken modulo 32 with
/// `.wrap`; with `.clamp` they are clamped to 32.
#[inline]
pub fn bmsk(clamp: bool, a: u64, b: u64) -> u64 {
    let (a, b) = (a as u32, b as u32);
    let (a, b) = if clamp {
        (a.min(32), b.min(32))
    } else {
        (a & 31, b & 31)
    };
    (low_mask(b) << a) & 0xffff_ffff
}

/// `szext`: the low b bits of a 32-bit word, sign- or zero-extended; b is taken modulo 32 with
/// `.wrap`, clamped to 32 with `.clamp`.
#[inline]
pub fn szext(ty: IntType, clamp: bool, a: u64, b: u64) -> u64 {
    let len = if clamp {
        (b as u32).min(32)
    } else {
        b as u32 & 31
    };
    if len == 0 {
        return 0;
    }
    IntType {
        signed: ty.signed,
        bits: len,
    }
    .extend(a)
        & 0xffff_ffff
}

/// `lop3.b32`: bit `4·a + 2·b + c` of the table, for each bit position.
#[inline]
pub fn lop3(a: u64, b: u64, c: u64, lut: u8) -> u64 {
    let mut result = 0;
    for row in 0..8u32 {
        // All ones where the table has a one in this row.
        let chosen = 0u64.wrapping_sub(u64::from(lut >> row & 1));
        let on = |x: u64, bit: u32| if row >> bit & 1 == 1 { x } else { !x };
        result |= chosen & on(a, 2) & on(b, 1) & on(c, 0);
    }
    result & 0xffff_ffff
}

/// Modes of `prmt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "each variant is the manual's mode of the same name"
)]
pub enum PrmtMode {
    Default,
    F4e,
    B4e,
    Rc8,
    Ecl,
    Ecr,
    Rc16,
}

impl PrmtMode {
    /// The mode of a suffix without its dot (`"f4e"`).
    pub fn from_suffix(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "f4e" => Self::F4e,
            "b4e" => Self::B4e,
            "rc8" => Self::Rc8,
            "ecl" => Self::Ecl,
            "ecr" => Self::Ecr,
            "rc16" => Self::Rc16,
            _ => return None,
        })
    }
}

/// `prmt.b32`: four bytes chosen out of b:a (a holds bytes 0..4).
#[inline]
pub fn prmt(mode: PrmtMode, a: u64, b: u64, c: u64) -> u64 {
    let bytes = (a & 0xffff_ffff) | (b << 32);
    let n = (c & 3) as u32;
    let mut result = 0;
    for i in 0..4u32 {
        let (source, replicate_sign) = match mode {
            PrmtMode::Default => {
                let nibble = (c >> (4 * i)) as u32;
                (nibble & 7, nibble & 8 != 0)
            }
            PrmtMode::F4e => (n + i, false),
            PrmtMode::B4e => (n.wrapping_sub(i) & 7, false),
            PrmtMode::Rc8 => (n, false),
            PrmtMode::Ecl => (i.max(n), false),
            PrmtMode::Ecr => (i.min(n), false),
            PrmtMode::Rc16 => ((n & 1) * 2 + (i & 1), false),
        };
        let byte = bytes >> (8 * source) & 0xff;
        let byte = if replicate_sign {
            (byte >> 7) * 0xff
        } else {
            byte
        };
        result |= byte << (8 * i);
    }
    result
}

/// The amount of a funnel shift: clamped to 32, or modulo 32.
#[inline]
fn funnel_amount(c: u64, clamp: bool) -> u32 {
    if clamp {
        (c as u32).min(32)
    } else {
        c as u32 & 31
    }
}

/// `shf.l.b32`: the upper word of b:a shifted left (b is the upper word).
#[inline]
pub fn shf_l(a: u64, b: u64, c: u64, clamp: bool) -> u64 {
    let pair = (b << 32) | (a & 0xffff_ffff);
    (pair << funnel_amount(c, clamp)) >> 32
}

/// `shf.r.b32`: the lower word of b:a shifted right (b is the upper word).
#[inline]
pub fn shf_r(a: u64, b: u64, c: u64, clamp: bool) -> u64 {
    let pair = (b << 32) | (a & 0xffff_ffff);
    (pair >> funnel_amount(c, clamp)) & 0xffff_ffff
}

#[cfg(test)]
#[path = "bits_tests.rs"]
mod tests;
