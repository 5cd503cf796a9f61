//! Warp communication and matrix products.

use super::mods::Mods;
use super::{Cx, Decoded, Decoder};
use crate::arith::ScalarType;
use crate::ast::Operand;
use crate::code::{MmaOp, NONE, Op, Reg, ShflMode, ShflOp, VoteMode, VoteOp};
use crate::table::Class;

use ScalarType as T;

impl Decoder<'_> {
    pub(super) fn shfl(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let sync = m.flag("sync");
        let mode = m.find(|s| match s {
            "up" => Some(ShflMode::Up),
            "down" => Some(ShflMode::Down),
            "bfly" => Some(ShflMode::Bfly),
            "idx" => Some(ShflMode::Idx),
            _ => None,
        });
        let ty = m.type_of(cx, &[T::B32, T::U32, T::S32, T::F32])?;
        let (Some(mode), true) = (mode, sync) else {
            return Err(cx.unsupported());
        };
        cx.count(5, 5)?;
        let (d, p) = match self.operand(cx, 0)? {
            Operand::Pair(d, p) => (
                self.dest_of(cx, 0, d, T::B32, false)?,
                self.pred_dest(cx, 0, p)?,
            ),
            single => (self.dest_of(cx, 0, single, T::B32, false)?, NONE),
        };
        let d = match d {
            Reg::R32(d) => d,
            _ => NONE,
        };
        let a = self.source_in32(cx, 1, ty)?;
        let (b, c, mask) = (
            self.source32(cx, 2)?,
            self.source32(cx, 3)?,
            self.source32(cx, 4)?,
        );
        self.code.shfl.push(ShflOp {
            mode,
            d,
            p,
            a,
            b,
            c,
            mask,
        });
        Ok((Op::Shfl(self.code.shfl.len() as u32 - 1), Class::Warp))
    }

    fn vote_op(&mut self, op: VoteOp) -> Decoded {
        self.code.vote.push(op);
        Ok((Op::Vote(self.code.vote.len() as u32 - 1), Class::Warp))
    }

    pub(super) fn vote(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let sync = m.flag("sync");
        let mode = m.find(|s| match s {
            "all" => Some(VoteMode::All),
            "any" => Some(VoteMode::Any),
            "uni" => Some(VoteMode::Uni),
            "ballot" => Some(VoteMode::Ballot),
            _ => None,
        });
        let ty = m.type_of(cx, &[T::Pred, T::B32])?;
        let (Some(mode), true) = (mode, sync) else {
            return Err(cx.unsupported());
        };
        if (mode == VoteMode::Ballot) != (ty == T::B32) {
            return Err(cx.unsupported());
        }
        cx.count(3, 3)?;
        let (d, p) = if mode == VoteMode::Ballot {
            (self.dest(cx, 0, T::B32)?, NONE)
        } else {
            (Reg::Sink, self.pred_dest(cx, 0, self.operand(cx, 0)?)?)
        };
        let a = self.pred(cx, 1)?;
        let mask = self.source32(cx, 2)?;
        self.vote_op(VoteOp {
            mode,
            d,
            p,
            a: Reg::P(a.reg),
            flip: a.flip,
            mask,
        })
    }

    pub(super) fn match_sync(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let (any, all, sync) = (m.flag("any"), m.flag("all"), m.flag("sync"));
        let ty = m.type_of(cx, &[T::B32, T::B64])?;
        if any == all || !sync {
            return Err(cx.unsupported());
        }
        cx.count(3, 3)?;
        let (d, p) = match self.operand(cx, 0)? {
            Operand::Pair(d, p) if all => (
                self.dest_of(cx, 0, d, T::B32, false)?,
                self.pred_dest(cx, 0, p)?,
            ),
            single => (self.dest_of(cx, 0, single, T::B32, false)?, NONE),
        };
        let a = self.source(cx, 1, ty)?;
        let mask = self.source32(cx, 2)?;
        let mode = if any {
            VoteMode::MatchAny
        } else {
            VoteMode::MatchAll
        };
        self.vote_op(VoteOp {
            mode,
            d,
            p,
            a,
            flip: 0,
            mask,
        })
    }

    pub(super) fn redux(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let sync = m.flag("sync");
        let name = m.find(|s| {
            ["add", "min", "max", "and", "or", "xor"]
                .into_iter()
                .find(|n| *n == s)
        });
        let ty = m.type_of(cx, &[T::U32, T::S32, T::B32])?;
        let mode = match (name, ty) {
            (Some("add"), T::U32 | T::S32) => VoteMode::Add,
            (Some("min"), T::U32) => VoteMode::MinU,
            (Some("min"), T::S32) => VoteMode::MinS,
            (Some("max"), T::U32) => VoteMode::MaxU,
            (Some("max"), T::S32) => VoteMode::MaxS,
            (Some("and"), T::B32) => VoteMode::And,
            (Some("or"), T::B32) => VoteMode::Or,
            (Some("xor"), T::B32) => VoteMode::Xor,
            _ => return Err(cx.unsupported()),
        };
        if !sync {
            return Err(cx.unsupported());
        }
        cx.count(3, 3)?;
        let (d, a) = (self.dest(cx, 0, ty)?, self.source(cx, 1, ty)?);
        let mask = self.source32(cx, 2)?;
        self.vote_op(VoteOp {
            mode,
            d,
            p: NONE,
            a,
            flip: 0,
            mask,
        })
    }

    pub(super) fn activemask(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        m.type_of(cx, &[T::B32])?;
        cx.count(1, 1)?;
        Ok((
            Op::ActiveMask {
                d: self.dest32(cx, 0)?,
            },
            Class::Warp,
        ))
    }

    pub(super) fn mma(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let form = m.flag("sync") && m.flag("aligned") && m.flag("row") && m.flag("col");
        let k = m.find(|s| match s {
            "m16n8k8" => Some(8u32),
            "m16n8k16" => Some(16),
            _ => None,
        });
        let (Some(k), true) = (k, form) else {
            return Err(cx.unsupported());
        };
        let d_type = m.type_of(cx, &[T::F16, T::F32])?;
        let input = m.type_of(cx, &[T::F16, T::BF16])?;
        let b_type = m.take_type_or(cx)?;
        let c_type = m.type_of(cx, &[T::F16, T::F32])?;
        if b_type != input || d_type != c_type || (input == T::BF16 && c_type == T::F16) {
            return Err(cx.unsupported());
        }
        cx.count(4, 4)?;
        let accumulators = if c_type == T::F32 { 4 } else { 2 };
        let (a_count, b_count) = if k == 16 { (4, 2) } else { (2, 1) };
        let op = MmaOp {
            k,
            input,
            c_type,
            d: self.vector32(cx, 0, accumulators, true)?,
            a: self.vector32(cx, 1, a_count, false)?,
            b: self.vector32(cx, 2, b_count, false)?,
            c: self.vector_f32(cx, 3, accumulators)?,
        };
        self.code.mma.push(op);
        Ok((Op::Mma(self.code.mma.len() as u32 - 1), Class::Matrix))
    }

    /// Accumulators may be f32 constants.
    fn vector_f32(&mut self, cx: &Cx<'_>, index: usize, count: usize) -> super::Res<[u32; 4]> {
        self.vector32::<4>(cx, index, count, false)
    }

    pub(super) fn movmatrix(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        if !(m.flag("sync") && m.flag("aligned") && m.flag("m8n8") && m.flag("trans")) {
            return Err(cx.unsupported());
        }
        m.type_of(cx, &[T::B16])?;
        cx.count(2, 2)?;
        let (d, a) = (self.dest32(cx, 0)?, self.source32(cx, 1)?);
        Ok((Op::MovMatrix { d, a }, Class::MatrixLoad))
    }
}
