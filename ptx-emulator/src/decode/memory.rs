//! Loads, stores, atomics, asynchronous copies and matrix loads.

use super::mods::Mods;
use super::moves::space_of;
use super::{Cx, Decoded, Decoder, Res};
use crate::arith::{FloatMode, IntType, ScalarType, float, int};
use crate::ast::Operand;
use crate::code::{Addr, AtomOp, CpAsyncOp, LdMatrixOp, MemOp, MemSpace, NONE, Op, Reg};
use crate::table::{Class, Opcode};

use ScalarType as T;

type AtomFn = Box<dyn Fn(u64, u64, u64) -> u64 + Send + Sync>;

/// Cache operators, eviction hints, memory orders and scopes: accepted, without effect here.
fn is_hint(name: &str) -> bool {
    matches!(
        name,
        "ca" | "cg"
            | "cs"
            | "lu"
            | "cv"
            | "wb"
            | "wt"
            | "nc"
            | "weak"
            | "volatile"
            | "relaxed"
            | "acquire"
            | "release"
            | "acq_rel"
            | "cta"
            | "cluster"
            | "gpu"
            | "sys"
            | "unified"
    ) || (name.starts_with("L1::") && name != "L1::cache_hint")
        || (name.starts_with("L2::") && name != "L2::cache_hint")
}

impl Decoder<'_> {
    /// The address of a load or store, in the space that it names or that its symbol lies in.
    fn mem_address(
        &mut self,
        cx: &Cx<'_>,
        index: usize,
        named: Option<MemSpace>,
    ) -> Res<(MemSpace, Addr)> {
        let (addr, symbol) = self.address(cx, index)?;
        let space = match (named, symbol) {
            // `ld.param` of a device function's parameter, which lives in local memory.
            (Some(MemSpace::Param), Some(MemSpace::Local)) => MemSpace::Local,
            (Some(MemSpace::Global), Some(MemSpace::Global)) => MemSpace::Global,
            (Some(named), Some(symbol)) if named != symbol => {
                return Err(
                    cx.operand_error(index, "a variable of the space that the instruction names")
                );
            }
            (None, Some(symbol)) => symbol,
            (Some(named), _) => named,
            (None, None) => MemSpace::Generic,
        };
        if matches!(space, MemSpace::Generic | MemSpace::Global) && matches!(addr.base, Reg::R32(_))
        {
            return Err(cx.operand_error(index, "a 64-bit address"));
        }
        Ok((space, addr))
    }

    fn mem_op(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>, load: bool) -> Res<MemOp> {
        let space = m.find(space_of);
        let hint = m.flag("L2::cache_hint");
        m.drop_all(is_hint);
        let count = m.find(|s| match s {
            "v2" => Some(2usize),
            "v4" => Some(4),
            _ => None,
        });
        let ty = m.take_type_or(cx)?;
        let width = ty.bytes();
        if ty == T::Pred
            || width > 8
            || count.unwrap_or(1) * width as usize > 16
            || matches!(ty, T::TF32 | T::F16x2 | T::BF16x2)
        {
            return Err(cx.unsupported());
        }
        let operands = if hint { 3 } else { 2 };
        cx.count(operands, operands)?;
        let (data, address) = if load { (0, 1) } else { (1, 0) };
        let (space, addr) = self.mem_address(cx, address, space)?;
        let items = match (self.operand(cx, data)?, count) {
            (Operand::Vector(items), Some(n)) if items.len() == n => &items[..],
            (Operand::Vector(items), None) if items.len() == 1 => &items[..],
            (single, None) => std::slice::from_ref(single),
            (_, Some(n)) => return Err(cx.operand_error(data, &format!("a vector of {n}"))),
        };
        let mut regs = [Reg::Sink; 4];
        for (reg, item) in regs.iter_mut().zip(items) {
            *reg = if load {
                self.dest_of(cx, data, item, ty, true)?
            } else {
                self.source_of(cx, data, item, bit_type(ty), true)?
            };
        }
        Ok(MemOp {
            space,
            addr,
            width,
            signed: ty.is_signed(),
            count: items.len() as u32,
            regs,
        })
    }

    pub(super) fn load(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let is_const = cx.raw.text.contains(".const");
        let op = self.mem_op(cx, m, true)?;
        let class = match op.space {
            MemSpace::Generic => Class::LoadGeneric,
            MemSpace::Global if is_const => Class::LoadConst,
            MemSpace::Global => Class::LoadGlobal,
            MemSpace::Shared => Class::LoadShared,
            MemSpace::Local => Class::LoadLocal,
            MemSpace::Param => Class::LoadConst,
        };
        self.code.mem.push(op);
        Ok((Op::Ld(self.code.mem.len() as u32 - 1), class))
    }

    pub(super) fn store(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let op = self.mem_op(cx, m, false)?;
        let class = match op.space {
            MemSpace::Generic => Class::StoreGeneric,
            MemSpace::Global => Class::StoreGlobal,
            MemSpace::Shared => Class::StoreShared,
            MemSpace::Local => Class::StoreLocal,
            MemSpace::Param => return Err(cx.unsupported()),
        };
        self.code.mem.push(op);
        Ok((Op::St(self.code.mem.len() as u32 - 1), class))
    }

    pub(super) fn prefetch(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        m.find(space_of);
        m.drop_all(|s| matches!(s, "L1" | "L2") || s.starts_with("L2::evict"));
        cx.count(1, 1)?;
        self.address(cx, 0)?;
        Ok((Op::Nop, Class::Other))
    }

    /// `cp.async` and its groups.
    pub(super) fn cp_async(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let class = Class::AsyncCopy;
        if !m.flag("async") {
            return Err(cx.unsupported());
        }
        if m.flag("commit_group") {
            cx.count(0, 0)?;
            return Ok((Op::CpCommit, class));
        }
        if m.flag("wait_all") {
            cx.count(0, 0)?;
            return Ok((Op::CpWaitAll, class));
        }
        if m.flag("wait_group") {
            cx.count(1, 1)?;
            let Operand::Int(pending) = *self.operand(cx, 0)? else {
                return Err(cx.operand_error(0, "an integer constant"));
            };
            let pending = pending.min(u32::MAX.into()) as u32;
            return Ok((Op::CpWait { pending }, class));
        }
        let (ca, cg) = (m.flag("ca"), m.flag("cg"));
        let shared = m.flag("shared") || m.flag("shared::cta");
        if ca == cg || !shared || !m.flag("global") {
            return Err(cx.unsupported());
        }
        let hint = m.flag("L2::cache_hint");
        m.drop_all(|s| matches!(s, "L2::64B" | "L2::128B" | "L2::256B"));
        cx.count(3, if hint { 5 } else { 4 })?;
        let (_, dst) = self.mem_address(cx, 0, Some(MemSpace::Shared))?;
        let (_, src) = self.mem_address(cx, 1, Some(MemSpace::Global))?;
        let bytes = match self.operand(cx, 2)? {
            Operand::Int(n @ (4 | 8)) if ca => *n as u32,
            Operand::Int(16) => 16,
            _ => return Err(cx.operand_error(2, if cg { "16" } else { "4, 8 or 16" })),
        };
        let mut op = CpAsyncOp {
            dst,
            src,
            bytes,
            src_bytes: None,
            ignore: None,
        };
        let extra = cx.raw.operands.len() - usize::from(hint);
        if extra > 3 {
            match self.operand(cx, 3)? {
                Operand::Reg(id) if matches!(self.reg(*id), Reg::P(_)) => {
                    op.ignore = Some(self.pred(cx, 3)?)
                }
                Operand::Not(_) => op.ignore = Some(self.pred(cx, 3)?),
                _ => op.src_bytes = Some(self.source32(cx, 3)?),
            }
        }
        self.code.copies.push(op);
        Ok((Op::CpAsync(self.code.copies.len() as u32 - 1), class))
    }

    pub(super) fn ldmatrix(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let form = m.flag("sync") && m.flag("aligned") && m.flag("m8n8");
        let count = m.find(|s| match s {
            "x1" => Some(1usize),
            "x2" => Some(2),
            "x4" => Some(4),
            _ => None,
        });
        let trans = m.flag("trans");
        let shared = m.flag("shared") || m.flag("shared::cta");
        let (Some(count), true) = (count, form) else {
            return Err(cx.unsupported());
        };
        m.type_of(cx, &[T::B16])?;
        cx.count(2, 2)?;
        let named = if shared { Some(MemSpace::Shared) } else { None };
        let (space, addr) = self.mem_address(cx, 1, named)?;
        let d = self.vector32::<4>(cx, 0, count, true)?;
        let generic = space == MemSpace::Generic;
        if !matches!(space, MemSpace::Generic | MemSpace::Shared) {
            return Err(cx.operand_error(1, "an address in shared memory"));
        }
        self.code.ldmatrix.push(LdMatrixOp {
            addr,
            generic,
            trans,
            d,
            count: count as u32,
        });
        Ok((
            Op::LdMatrix(self.code.ldmatrix.len() as u32 - 1),
            Class::MatrixLoad,
        ))
    }

    /// `{r, …}` of exactly `count` 32-bit registers, or a single one without braces.
    pub(super) fn vector32<const N: usize>(
        &mut self,
        cx: &Cx<'_>,
        index: usize,
        count: usize,
        dest: bool,
    ) -> Res<[u32; N]> {
        let items = match self.operand(cx, index)? {
            Operand::Vector(items) => &items[..],
            single => std::slice::from_ref(single),
        };
        if items.len() != count || count > N {
            return Err(cx.operand_error(index, &format!("a vector of {count}")));
        }
        let mut out = [NONE; N];
        for (slot, item) in out.iter_mut().zip(items) {
            let reg = if dest {
                self.dest_of(cx, index, item, T::B32, false)?
            } else {
                self.source_of(cx, index, item, T::B32, false)?
            };
            *slot = match reg {
                Reg::R32(r) => r,
                Reg::Sink => NONE,
                _ => return Err(cx.operand_error(index, "32-bit registers")),
            };
        }
        Ok(out)
    }

    pub(super) fn atom(&mut self, opcode: Opcode, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let returns = opcode == Opcode::Atom;
        let space = m.find(space_of);
        m.flag("noftz");
        let hint = m.flag("L2::cache_hint");
        m.drop_all(is_hint);
        let name = m.find(|s| {
            [
                "and", "or", "xor", "cas", "exch", "add", "inc", "dec", "min", "max",
            ]
            .into_iter()
            .find(|n| *n == s)
        });
        let Some(name) = name else {
            return Err(cx.unsupported());
        };
        let ty = m.take_type_or(cx)?;
        let f = atomic(name, ty).ok_or_else(|| cx.unsupported())?;
        let cas = name == "cas";
        if !returns && matches!(name, "cas" | "exch") {
            return Err(cx.unsupported());
        }
        let first = usize::from(returns);
        let operands = first + 2 + usize::from(cas) + usize::from(hint);
        cx.count(operands, operands)?;
        let (space, addr) = self.mem_address(cx, first, space)?;
        if matches!(space, MemSpace::Local | MemSpace::Param) {
            return Err(cx.unsupported());
        }
        let d = if returns {
            self.dest(cx, 0, ty)?
        } else {
            Reg::Sink
        };
        let b = self.source(cx, first + 1, ty)?;
        let c = if cas {
            self.source(cx, first + 2, ty)?
        } else {
            Reg::Sink
        };
        self.code.atoms.push(AtomOp {
            space,
            addr,
            bytes: ty.bytes(),
            d,
            b,
            c,
            f,
        });
        Ok((Op::Atom(self.code.atoms.len() as u32 - 1), Class::Atomic))
    }
}

/// The type for a stored value: constants of any type are just bits.
fn bit_type(ty: T) -> T {
    match ty.bits() {
        8 => T::B8,
        16 => T::B16,
        _ => ty,
    }
}

/// (old, b, c) → new, for the types that the manual allows.
fn atomic(name: &str, ty: T) -> Option<AtomFn> {
    let it = ty.int();
    let bits = matches!(ty, T::B32 | T::B64);
    let b16 = ty == T::B16;
    let unsigned = matches!(ty, T::U32 | T::U64);
    let signed = matches!(ty, T::S32 | T::S64);
    let f: AtomFn = match (name, it) {
        ("and", Some(_)) if bits => Box::new(|a, b, _| a & b),
        ("or", Some(_)) if bits => Box::new(|a, b, _| a | b),
        ("xor", Some(_)) if bits => Box::new(|a, b, _| a ^ b),
        ("cas", Some(_)) if bits || b16 => Box::new(|a, b, c| if a == b { c } else { a }),
        ("exch", Some(_)) if bits => Box::new(|_, b, _| b),
        ("add", Some(it)) if unsigned || ty == T::S32 => {
            Box::new(move |a, b, _| int::add(it, a, b))
        }
        ("inc", Some(IntType::U32)) if ty == T::U32 => {
            Box::new(|a, b, _| if a >= b { 0 } else { a + 1 })
        }
        ("dec", Some(IntType::U32)) if ty == T::U32 => {
            Box::new(|a, b, _| if a == 0 || a > b { b } else { a - 1 })
        }
        ("min", Some(it)) if unsigned || signed => Box::new(move |a, b, _| int::min(it, a, b)),
        ("max", Some(it)) if unsigned || signed => Box::new(move |a, b, _| int::max(it, a, b)),
        ("add", None)
            if matches!(
                ty,
                T::F16 | T::F16x2 | T::BF16 | T::BF16x2 | T::F32 | T::F64
            ) =>
        {
            Box::new(move |a, b, _| float::add(ty, FloatMode::RN, a, b))
        }
        _ => return None,
    };
    Some(f)
}
