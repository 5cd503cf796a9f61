//! The scalar types of PTX, in the manual's spelling.

/// A type suffix of a PTX instruction or declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(
    missing_docs,
    reason = "each variant is the manual's suffix of the same name"
)]
pub enum ScalarType {
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    TF32,
    F32,
    F64,
}

/// Every type with its suffix: the one table that parsing and printing share.
const NAMES: &[(ScalarType, &str)] = &[
    (ScalarType::Pred, "pred"),
    (ScalarType::B8, "b8"),
    (ScalarType::B16, "b16"),
    (ScalarType::B32, "b32"),
    (ScalarType::B64, "b64"),
    (ScalarType::B128, "b128"),
    (ScalarType::U8, "u8"),
    (ScalarType::U16, "u16"),
    (ScalarType::U32, "u32"),
    (ScalarType::U64, "u64"),
    (ScalarType::S8, "s8"),
    (ScalarType::S16, "s16"),
    (ScalarType::S32, "s32"),
    (ScalarType::S64, "s64"),
    (ScalarType::F16, "f16"),
    (ScalarType::F16x2, "f16x2"),
    (ScalarType::BF16, "bf16"),
    (ScalarType::BF16x2, "bf16x2"),
    (ScalarType::TF32, "tf32"),
    (ScalarType::F32, "f32"),
    (ScalarType::F64, "f64"),
];

impl ScalarType {
    /// The type of a suffix without its dot (`"u32"`), `None` for anything else.
    pub fn from_suffix(suffix: &str) -> Option<Self> {
        NAMES
            .iter()
            .find(|(_, name)| *name == suffix)
            .map(|(ty, _)| *ty)
    }

    /// The suffix without its dot.
    pub fn suffix(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// Width in bits; a predicate counts as 1.
    #[inline]
    pub const fn bits(self) -> u32 {
        use ScalarType::*;
        match self {
            Pred => 1,
            B8 | U8 | S8 => 8,
            B16 | U16 | S16 | F16 | BF16 => 16,
            B32 | U32 | S32 | F32 | TF32 | F16x2 | BF16x2 => 32,
            B64 | U64 | S64 | F64 => 64,
            B128 => 128,
        }
    }

    /// Width in memory in bytes; a predicate has none and counts as 1.
    #[inline]
    pub const fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Whether this is one of `.s8` to `.s64`.
    #[inline]
    pub const fn is_signed(self) -> bool {
        use ScalarType::*;
        matches!(self, S8 | S16 | S32 | S64)
    }

    /// Whether this is a floating-point type, packed ones included.
    #[inline]
    pub const fn is_float(self) -> bool {
        use ScalarType::*;
        matches!(self, F16 | F16x2 | BF16 | BF16x2 | TF32 | F32 | F64)
    }

    /// Whether this is `.u8` to `.u64` or `.s8` to `.s64` (`.b` types are not).
    #[inline]
    pub const fn is_integer(self) -> bool {
        use ScalarType::*;
        matches!(self, U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64)
    }

    /// The element of a packed type, otherwise the type itself.
    #[inline]
    pub const fn element(self) -> Self {
        match self {
            Self::F16x2 => Self::F16,
            Self::BF16x2 => Self::BF16,
            other => other,
        }
    }

    /// Signedness and width for the integer functions: `.b` types count as unsigned; `None` for
    /// floating-point types, predicates and `.b128`.
    #[inline]
    pub const fn int(self) -> Option<IntType> {
        use ScalarType::*;
        match self {
            B8 | B16 | B32 | B64 | U8 | U16 | U32 | U64 => Some(IntType {
                signed: false,
                bits: self.bits(),
            }),
            S8 | S16 | S32 | S64 => Some(IntType {
                signed: true,
                bits: self.bits(),
            }),
            _ => None,
        }
    }
}

impl std::fmt::Display for ScalarType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.suffix())
    }
}

/// An integer type: signedness and width in bits (8, 16, 32 or 64).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntType {
    /// Two's complement if set.
    pub signed: bool,
    /// 8, 16, 32 or 64.
    pub bits: u32,
}

#[allow(
    missing_docs,
    reason = "each constant is the manual's type of the same name"
)]
impl IntType {
    pub const U8: Self = Self {
        signed: false,
        bits: 8,
    };
    pub const U16: Self = Self {
        signed: false,
        bits: 16,
    };
    pub const U32: Self = Self {
        signed: false,
        bits: 32,
    };
    pub const U64: Self = Self {
        signed: false,
        bits: 64,
    };
    pub const S8: Self = Self {
        signed: true,
        bits: 8,
    };
    pub const S16: Self = Self {
        signed: true,
        bits: 16,
    };
    pub const S32: Self = Self {
        signed: true,
        bits: 32,
    };
    pub const S64: Self = Self {
        signed: true,
        bits: 64,
    };
}

impl IntType {
    /// The bits of this width, set.
    #[inline]
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// The value of a bit pattern (higher bits are ignored); exact for every type.
    #[inline]
    pub const fn value(self, bits: u64) -> i128 {
        if self.signed {
            self.sext(bits) as i128
        } else {
            (bits & self.mask()) as i128
        }
    }

    /// The pattern, extended to 64 bits as its signedness says: what a wider register holds.
    #[inline]
    pub const fn extend(self, bits: u64) -> u64 {
        if self.signed {
            self.sext(bits) as u64
        } else {
            bits & self.mask()
        }
    }

    /// The least value.
    #[inline]
    pub const fn min_value(self) -> i128 {
        if self.signed {
            -(1i128 << (self.bits - 1))
        } else {
            0
        }
    }

    /// The greatest value.
    #[inline]
    pub const fn max_value(self) -> i128 {
        if self.signed {
            (1i128 << (self.bits - 1)) - 1
        } else {
            self.mask() as i128
        }
    }

    /// The pattern as a two's complement number, whatever the signedness.
    #[inline]
    pub(crate) const fn sext(self, bits: u64) -> i64 {
        let unused = 64 - self.bits;
        ((bits << unused) as i64) >> unused
    }
}

/// Rounding of a floating-point result: `.rn` to nearest even, `.rz` towards zero, `.rm` towards
/// −∞, `.rp` towards +∞, `.rna` to nearest with ties away from zero (only `cvt` has it).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "each variant is the manual's suffix of the same name"
)]
pub enum Rounding {
    #[default]
    Rn,
    Rz,
    Rm,
    Rp,
    Rna,
}

/// Modifiers of a floating-point instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FloatMode {
    /// Rounding of the result.
    pub rounding: Rounding,
    /// `.ftz`: subnormal inputs and results become zero of the same sign.
    pub ftz: bool,
    /// `.sat`: the result is clamped to [0, 1], NaN becomes +0.
    pub sat: bool,
    /// `.relu`: a negative result becomes +0, NaN stays NaN.
    pub relu: bool,
}

impl FloatMode {
    /// `.rn` and nothing else.
    pub const RN: Self = Self {
        rounding: Rounding::Rn,
        ftz: false,
        sat: false,
        relu: false,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_table_is_in_the_order_of_the_enum() {
        for (index, (ty, name)) in NAMES.iter().enumerate() {
            assert_eq!(*ty as usize, index);
            assert_eq!(ScalarType::from_suffix(name), Some(*ty));
            assert_eq!(ty.suffix(), *name);
        }
        assert_eq!(ScalarType::from_suffix("u128"), None);
    }

    #[test]
    fn limits_equal_rusts() {
        assert_eq!(IntType::S8.min_value(), i8::MIN.into());
        assert_eq!(IntType::S64.min_value(), i64::MIN.into());
        assert_eq!(IntType::S64.max_value(), i64::MAX.into());
        assert_eq!(IntType::U64.max_value(), u64::MAX.into());
        assert_eq!(IntType::S16.value(0xffff_8000), -32768);
        assert_eq!(IntType::U16.value(0xffff_8000), 32768);
        assert_eq!(IntType::S8.extend(0x80), 0xffff_ffff_ffff_ff80);
        assert_eq!(IntType::U8.extend(0x180), 0x80);
    }
}
