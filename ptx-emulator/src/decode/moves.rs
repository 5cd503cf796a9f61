//! `mov`, `cvta`, `isspacep` and `createpolicy`.

use super::mods::Mods;
use super::{Cx, Decoded, Decoder, Res, lanes_where};
use crate::arith::ScalarType;
use crate::ast::{Operand, Special};
use crate::code::{Int2, Lanes, MemSpace, NONE, Op, Reg, SetpOut, SlowFn};
use crate::exec::windows;
use crate::table::Class;

use ScalarType as T;

impl Decoder<'_> {
    pub(super) fn mov(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let ty = m.take_type_or(cx)?;
        cx.count(2, 2)?;
        let class = Class::Move;
        if ty == T::Pred {
            let d = self.pred_dest(cx, 0, self.operand(cx, 0)?)?;
            return Ok((
                Op::MovP {
                    d,
                    a: self.pred(cx, 1)?,
                },
                Class::Compare,
            ));
        }
        if ty.bits() < 16 || ty.bits() > 64 || ty == T::TF32 {
            return Err(cx.unsupported());
        }
        if let Operand::Vector(items) = self.operand(cx, 0)? {
            return Ok((self.unpack(cx, ty, items)?, class));
        }
        if let Operand::Vector(items) = self.operand(cx, 1)? {
            return Ok((self.pack(cx, ty, items)?, class));
        }
        let d = self.dest(cx, 0, ty)?;
        if let Operand::Special(special) = self.operand(cx, 1)? {
            let shift = match special {
                Special::ClockHi => 32,
                _ => 0,
            };
            if matches!(
                special,
                Special::Clock | Special::ClockHi | Special::Clock64 | Special::GlobalTimer
            ) {
                return Ok((Op::Clock { d, shift }, class));
            }
        }
        let a = self.source(cx, 1, ty)?;
        Ok((mov_op(d, a), class))
    }

    fn elements(cx: &Cx<'_>, ty: T, count: usize) -> Res<T> {
        let bits = ty.bits() as usize / count.max(1);
        match (ty.bits() as usize % count.max(1), bits) {
            (0, 8) => Ok(T::B8),
            (0, 16) => Ok(T::B16),
            (0, 32) => Ok(T::B32),
            _ => Err(cx.unsupported()),
        }
    }

    /// `mov.b64 {a, b}, r`.
    fn unpack(&mut self, cx: &Cx<'_>, ty: T, items: &[Operand]) -> Res<Op> {
        let element = Self::elements(cx, ty, items.len())?;
        let a = self.source(cx, 1, ty)?;
        let mut parts = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let d = self.dest_of(cx, 0, item, element, false)?;
            parts.push((d, i as u32 * element.bits(), element.bits()));
        }
        let index = |r: &Reg| match r {
            Reg::R32(r) | Reg::R16(r) => *r,
            _ => NONE,
        };
        match (a, &parts[..]) {
            (Reg::R64(a), [(lo, ..), (hi, ..)]) => {
                return Ok(Op::Unpack64 {
                    lo: index(lo),
                    hi: index(hi),
                    a,
                });
            }
            (Reg::R32(a), [(lo, ..), (hi, ..)]) => {
                return Ok(Op::Unpack32 {
                    lo: index(lo),
                    hi: index(hi),
                    a,
                });
            }
            _ => {}
        }
        Ok(self.slow(
            Reg::Sink,
            [a, Reg::Sink, Reg::Sink, Reg::Sink],
            SlowFn::Unpack(parts),
        ))
    }

    /// `mov.b64 r, {a, b}`.
    fn pack(&mut self, cx: &Cx<'_>, ty: T, items: &[Operand]) -> Res<Op> {
        let element = Self::elements(cx, ty, items.len())?;
        let d = self.dest(cx, 0, ty)?;
        let mut parts = [Reg::Sink; 4];
        if items.len() > 4 {
            return Err(cx.unsupported());
        }
        for (part, item) in parts.iter_mut().zip(items) {
            *part = self.source_of(cx, 1, item, element, false)?;
        }
        if let (Reg::R64(d), [Reg::R32(lo), Reg::R32(hi), Reg::Sink, _]) = (d, parts) {
            return Ok(Op::Pack64 { d, lo, hi });
        }
        if let (Reg::R32(d), [Reg::R16(lo), Reg::R16(hi), Reg::Sink, _]) = (d, parts) {
            return Ok(Op::Pack32 { d, lo, hi });
        }
        let bits = element.bits();
        let lanes = move |s: &[Lanes; 4], out: &mut Lanes| {
            for i in 0..32 {
                out[i] = s.iter().enumerate().fold(0, |value, (part, lanes)| {
                    let field = lanes[i] & (u64::MAX >> (64 - bits));
                    value | field.checked_shl(bits * part as u32).unwrap_or(0)
                });
            }
        };
        Ok(self.slow(d, parts, SlowFn::Value(Box::new(lanes))))
    }

    pub(super) fn cvta(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let to = m.flag("to");
        let space = m.find(space_of);
        let ty = m.type_of(cx, &[T::U32, T::U64])?;
        cx.count(2, 2)?;
        let Some(space) = space.filter(|_| ty == T::U64) else {
            return Err(cx.unsupported());
        };
        let d = self.dest64(cx, 0)?;
        // `cvta.shared.u64 d, variable` takes the variable's address in its space.
        let a = self.source_in64(cx, 1, ty)?;
        let Some(window) = windows::base(space) else {
            return Ok((Op::Mov64 { d, a }, Class::Move));
        };
        let b = self.constant64(crate::code::Const64::Value(window));
        let f = if to { Int2::Sub } else { Int2::Add };
        Ok((Op::Int64 { f, d, a, b }, Class::Move))
    }

    pub(super) fn isspacep(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let Some(space) = m.find(space_of) else {
            return Err(cx.unsupported());
        };
        cx.count(2, 2)?;
        let p = self.pred_dest(cx, 0, self.operand(cx, 0)?)?;
        let a = self.source(cx, 1, T::U64)?;
        let out = SetpOut {
            p,
            q: NONE,
            combine: None,
        };
        let f = move |s: &[Lanes; 4]| lanes_where(s, |a, _| windows::classify(a).0 == space);
        let src = [a, Reg::Sink, Reg::Sink, Reg::Sink];
        Ok((
            self.slow(Reg::Sink, src, SlowFn::Compare(Box::new(f), out)),
            Class::Compare,
        ))
    }

    /// A cache policy is a hint: any value will do.
    pub(super) fn createpolicy(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        m.drop_all(|s| s == "fractional" || s.starts_with("L2::"));
        m.type_of(cx, &[T::B64])?;
        let d = self.dest(cx, 0, T::B64)?;
        let zero = self.constant(64, 0);
        Ok((mov_op(d, zero), Class::Other))
    }
}

/// The move between two registers of one width.
pub(super) fn mov_op(d: Reg, a: Reg) -> Op {
    match (d, a) {
        (Reg::R16(d) | Reg::R32(d), Reg::R16(a) | Reg::R32(a)) => Op::Mov32 { d, a },
        (Reg::R64(d), Reg::R64(a)) => Op::Mov64 { d, a },
        _ => Op::Nop,
    }
}

/// The space that a modifier names.
pub(super) fn space_of(name: &str) -> Option<MemSpace> {
    Some(match name {
        "global" | "const" => MemSpace::Global,
        "shared" | "shared::cta" => MemSpace::Shared,
        "local" => MemSpace::Local,
        "param" | "param::entry" | "param::func" => MemSpace::Param,
        _ => return None,
    })
}
