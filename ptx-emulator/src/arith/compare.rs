//! `setp` and `set`: comparisons of integers and floating-point numbers.

use super::soft::Format;
use super::types::ScalarType;

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "each variant is the manual's suffix of the same name"
)]
pub enum CmpOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Lo,
    Ls,
    Hi,
    Hs,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

const NAMES: [(CmpOp, &str); 18] = [
    (CmpOp::Eq, "eq"),
    (CmpOp::Ne, "ne"),
    (CmpOp::Lt, "lt"),
    (CmpOp::Le, "le"),
    (CmpOp::Gt, "gt"),
    (CmpOp::Ge, "ge"),
    (CmpOp::Lo, "lo"),
    (CmpOp::Ls, "ls"),
    (CmpOp::Hi, "hi"),
    (CmpOp::Hs, "hs"),
    (CmpOp::Equ, "equ"),
    (CmpOp::Neu, "neu"),
    (CmpOp::Ltu, "ltu"),
    (CmpOp::Leu, "leu"),
    (CmpOp::Gtu, "gtu"),
    (CmpOp::Geu, "geu"),
    (CmpOp::Num, "num"),
    (CmpOp::Nan, "nan"),
];

impl CmpOp {
    /// The operator of a suffix without its dot (`"ltu"`).
    pub fn from_suffix(suffix: &str) -> Option<Self> {
        NAMES
            .iter()
            .find(|(_, name)| *name == suffix)
            .map(|(op, _)| *op)
    }

    /// Whether the manual allows the operator on the type.
    pub fn applies_to(self, ty: ScalarType) -> bool {
        use CmpOp::*;
        match self {
            Eq | Ne => ty != ScalarType::Pred,
            Lt | Le | Gt | Ge => ty.is_integer() || ty.is_float(),
            Lo | Ls | Hi | Hs => ty.is_integer() && !ty.is_signed(),
            Equ | Neu | Ltu | Leu | Gtu | Geu | Num | Nan => ty.is_float(),
        }
    }

    /// The result for an ordering of the arguments.
    #[inline]
    fn holds(self, less: bool, equal: bool) -> bool {
        use CmpOp::*;
        match self {
            Eq | Equ => equal,
            Ne | Neu => !equal,
            Lt | Lo | Ltu => less,
            Le | Ls | Leu => less | equal,
            Gt | Hi | Gtu => !(less | equal),
            Ge | Hs | Geu => !less,
            Num => true,
            Nan => false,
        }
    }

    /// The result when an argument is NaN: the `u` forms and `nan` are true.
    #[inline]
    fn holds_unordered(self) -> bool {
        use CmpOp::*;
        matches!(self, Equ | Neu | Ltu | Leu | Gtu | Geu | Nan)
    }
}

/// Compares two scalars; `ftz` makes subnormal arguments zero.
#[inline]
pub fn compare(op: CmpOp, ty: ScalarType, ftz: bool, a: u64, b: u64) -> bool {
    if let Some(int) = ty.int() {
        let (x, y) = (a & int.mask(), b & int.mask());
        // lo, ls, hi and hs are unsigned whatever the type.
        let unsigned = matches!(op, CmpOp::Lo | CmpOp::Ls | CmpOp::Hi | CmpOp::Hs);
        let less = if int.signed && !unsigned {
            int.sext(a) < int.sext(b)
        } else {
            x < y
        };
        return op.holds(less, x == y);
    }
    let format = super::float::format_of(ty);
    compare_float(op, format, ftz, a, b)
}

#[inline]
fn compare_float(op: CmpOp, format: Format, ftz: bool, a: u64, b: u64) -> bool {
    let [a, b] = [a, b].map(|x| {
        let x = x & format.mask();
        if ftz { format.flush(x) } else { x }
    });
    if format.is_nan(a) || format.is_nan(b) {
        return op.holds_unordered();
    }
    // The zeros are equal; any other two values differ in their keys.
    let zeros = format.magnitude(a) | format.magnitude(b) == 0;
    let (x, y) = (format.order_key(a), format.order_key(b));
    op.holds(!zeros && x < y, zeros || x == y)
}

/// Compares both halves of a packed type: the lower one, the upper one.
#[inline]
pub fn compare_x2(op: CmpOp, ty: ScalarType, ftz: bool, a: u64, b: u64) -> (bool, bool) {
    let element = ty.element();
    (
        compare(op, element, ftz, a, b),
        compare(op, element, ftz, a >> 16, b >> 16),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arith::half::{bf16_to_f32, f16_to_f32};
    use crate::arith::samples::{floats, integers};

    /// Rust's own comparisons of the values.
    fn want<T: PartialOrd>(op: CmpOp, a: T, b: T) -> bool {
        use CmpOp::*;
        let unordered = a.partial_cmp(&b).is_none();
        match op {
            Eq => a == b,
            Ne => !unordered && a != b,
            Lt | Lo => a < b,
            Le | Ls => a <= b,
            Gt | Hi => a > b,
            Ge | Hs => a >= b,
            Equ => unordered || a == b,
            Neu => a != b,
            Ltu => unordered || a < b,
            Leu => unordered || a <= b,
            Gtu => unordered || a > b,
            Geu => unordered || a >= b,
            Num => !unordered,
            Nan => unordered,
        }
    }

    #[test]
    fn integers_compare_as_their_values() {
        use ScalarType::*;
        for ty in [B16, B32, B64, U16, U32, U64, S16, S32, S64] {
            for (a, b) in integers(ty.bits()) {
                for (op, _) in NAMES.into_iter().filter(|(op, _)| op.applies_to(ty)) {
                    let want = match ty {
                        S16 => want(op, a as i16, b as i16),
                        S32 => want(op, a as i32, b as i32),
                        S64 => want(op, a as i64, b as i64),
                        _ => want(op, a, b),
                    };
                    assert_eq!(
                        compare(op, ty, false, a, b),
                        want,
                        "{op:?} {ty} {a:#x} {b:#x}"
                    );
                }
            }
        }
        assert!(compare(CmpOp::Lo, U32, false, 1, 0x8000_0000));
        assert!(!CmpOp::Lt.applies_to(B32));
        assert!(!CmpOp::Lo.applies_to(S32));
    }

    #[test]
    fn floats_compare_as_their_values() {
        for (op, _) in NAMES
            .into_iter()
            .filter(|(op, _)| op.applies_to(ScalarType::F32))
        {
            for ty in [
                ScalarType::F16,
                ScalarType::BF16,
                ScalarType::F32,
                ScalarType::F64,
            ] {
                let value = |x: u64| match ty {
                    ScalarType::F16 => f16_to_f32(x as u16).into(),
                    ScalarType::BF16 => bf16_to_f32(x as u16).into(),
                    ScalarType::F32 => f64::from(f32::from_bits(x as u32)),
                    _ => f64::from_bits(x),
                };
                for [a, b, _] in floats(Format::of(ty).unwrap()) {
                    let want = want(op, value(a), value(b));
                    assert_eq!(
                        compare(op, ty, false, a, b),
                        want,
                        "{op:?} {ty} {a:#x} {b:#x}"
                    );
                }
            }
        }
    }

    #[test]
    fn ftz_makes_subnormals_equal_to_zero() {
        for (a, b) in [(1, 0x8000_0000), (0x007f_ffff, 0x8000_0001)] {
            assert!(compare(CmpOp::Eq, ScalarType::F32, true, a, b));
            assert!(compare(CmpOp::Gt, ScalarType::F32, false, a, b));
        }
    }

    #[test]
    fn packed_comparisons_are_lower_then_upper() {
        let (a, b) = (0x3c00_4000, 0x4000_3c00);
        assert_eq!(
            compare_x2(CmpOp::Gt, ScalarType::F16x2, false, a, b),
            (true, false)
        );
    }

    #[test]
    fn every_suffix_is_found() {
        for (op, name) in NAMES {
            assert_eq!(CmpOp::from_suffix(name), Some(op));
        }
        assert_eq!(CmpOp::from_suffix("neq"), None);
    }
}
