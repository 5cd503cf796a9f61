//! From parsed statements to the flat code of one entry.

mod control;
mod convert;
mod float;
mod int;
mod link;
mod logic;
mod memory;
mod mods;
mod moves;
mod operands;
mod warp;

use std::collections::HashMap;

use crate::arith::ScalarType;
use crate::ast::{Ast, Func, RawInst, Special};
use crate::cfg;
use crate::code::{Code, Const64, Inst, Lanes, Meet, Op, Pred, R, Reg, Slow, SlowFn, TRUE};
use crate::error::LoadError;
use crate::table::{Class, Opcode};
use mods::Mods;

type Res<T> = Result<T, LoadError>;

/// Decodes `ast.funcs[root]` and everything it calls.
pub(crate) fn decode(ast: &Ast, root: usize) -> Res<Code> {
    let order = link::closure(ast, root)?;
    let mut decoder = Decoder::new(ast, root);
    for &f in &order {
        decoder.lay_out(f)?;
    }
    decoder.finish_shared();
    let mut starts = HashMap::new();
    for &f in &order {
        let start = decoder.code.insts.len();
        starts.insert(f, start as u32);
        decoder.function(f)?;
        let end = decoder.code.insts.len();
        let Code { insts, tables, .. } = &mut decoder.code;
        cfg::set_meeting_points(insts, tables, start, end);
    }
    for inst in &mut decoder.code.insts {
        if let Op::Call { target } = &mut inst.op {
            *target = starts[&(*target as usize)];
        }
    }
    Ok(decoder.code)
}

/// Where the registers and variables of one function are.
struct Layout {
    regs: Vec<Reg>,
    /// Offset of each variable of [`Func::vars`] in its space.
    vars: Vec<u64>,
}

struct Decoder<'a> {
    ast: &'a Ast,
    code: Code,
    layouts: HashMap<usize, Layout>,
    /// Offsets of module-level shared variables that the entry uses.
    module_shared: HashMap<usize, u64>,
    dynamic_align: u64,
    const32: HashMap<u32, R>,
    const64: HashMap<Const64, R>,
    specials: HashMap<Special, Reg>,
    /// Function being decoded, and its current instruction.
    func: usize,
    carry: Option<R>,
}

/// An instruction being decoded.
struct Cx<'a> {
    raw: &'a RawInst,
}

impl<'a> Cx<'a> {
    fn unsupported(&self) -> LoadError {
        LoadError::Unsupported {
            line: self.raw.line,
            instruction: self.raw.text.clone(),
        }
    }

    fn operand_error(&self, index: usize, wanted: &str) -> LoadError {
        let found = match self.raw.operands.get(index) {
            Some(operand) => operand.describe(),
            None => "missing".to_string(),
        };
        LoadError::Operand {
            line: self.raw.line,
            instruction: self.raw.text.clone(),
            index,
            wanted: wanted.to_string(),
            found,
        }
    }

    fn count(&self, min: usize, max: usize) -> Res<()> {
        let found = self.raw.operands.len();
        if (min..=max).contains(&found) {
            return Ok(());
        }
        if found < min {
            return Err(self.operand_error(found, "present"));
        }
        Err(self.operand_error(max, "absent"))
    }
}

/// What a decoder of one opcode gives: the operation and its class.
type Decoded = Res<(Op, Class)>;

impl<'a> Decoder<'a> {
    fn func_ref(&self) -> &'a Func {
        &self.ast.funcs[self.func]
    }

    /// Appends the body of function `f`.
    fn function(&mut self, f: usize) -> Res<()> {
        self.func = f;
        let func = self.func_ref();
        // Where each statement starts: one statement may become several instructions.
        let mut starts = Vec::with_capacity(func.body.len() + 1);
        let first = self.code.insts.len();
        for raw in &func.body {
            starts.push(self.code.insts.len() as u32);
            self.instruction(raw)?;
        }
        starts.push(self.code.insts.len() as u32);
        // Running past the end is an end; a label there needs an instruction to point at.
        let line = func.body.last().map_or(func.line, |raw| raw.line);
        self.push(
            line,
            Pred { reg: TRUE, flip: 0 },
            Op::Ret,
            Class::Control,
            "ret",
        );
        for inst in &mut self.code.insts[first..] {
            match &mut inst.op {
                Op::Bra { target } => *target = starts[*target as usize],
                Op::Brx { table, .. } => {
                    for target in &mut self.code.tables[*table as usize] {
                        *target = starts[*target as usize];
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn push(&mut self, line: u32, guard: Pred, op: Op, class: Class, text: &str) {
        self.code.insts.push(Inst {
            op,
            guard,
            line,
            meet: Meet::Return,
            class,
        });
        self.code.texts.push(text.to_string());
    }

    fn instruction(&mut self, raw: &RawInst) -> Res<()> {
        let cx = Cx { raw };
        let guard = match raw.guard {
            Some((reg, negated)) => match self.reg(reg) {
                Reg::P(reg) => Pred {
                    reg,
                    flip: if negated { u32::MAX } else { 0 },
                },
                _ => {
                    return Err(LoadError::syntax(
                        raw.line,
                        "a predicate register",
                        "another one",
                    ));
                }
            },
            None => Pred { reg: TRUE, flip: 0 },
        };
        let mut parts = raw.text.split('.');
        let name = parts.next().unwrap_or("");
        let opcode = Opcode::from_name(name).ok_or_else(|| cx.unsupported())?;
        let mut mods = Mods::new(parts);
        if opcode == Opcode::Call {
            return self.call(&cx, guard, &mut mods);
        }
        let (op, class) = self.decode(opcode, &cx, &mut mods)?;
        if !mods.is_empty() {
            return Err(cx.unsupported());
        }
        self.push(raw.line, guard, op, class, &raw.text);
        Ok(())
    }

    fn decode(&mut self, opcode: Opcode, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        use Opcode as O;
        match opcode {
            O::Add
            | O::Sub
            | O::Mul
            | O::Mad
            | O::Fma
            | O::Div
            | O::Abs
            | O::Neg
            | O::Min
            | O::Max => match m.last_type() {
                Some(ty) if ty.is_float() => self.float_arith(opcode, cx, m),
                Some(_) => self.int_arith(opcode, cx, m),
                None => Err(cx.unsupported()),
            },
            O::Addc | O::Subc | O::Madc => self.int_arith(opcode, cx, m),
            O::Mul24
            | O::Mad24
            | O::Sad
            | O::Rem
            | O::Popc
            | O::Clz
            | O::Bfind
            | O::Fns
            | O::Brev
            | O::Bfe
            | O::Bfi
            | O::Bmsk
            | O::Szext
            | O::Dp4a
            | O::Dp2a => self.int_misc(opcode, cx, m),
            O::And
            | O::Or
            | O::Xor
            | O::Not
            | O::Cnot
            | O::Lop3
            | O::Shf
            | O::Shl
            | O::Shr
            | O::Prmt => self.logic(opcode, cx, m),
            O::Rcp | O::Sqrt | O::Rsqrt | O::Sin | O::Cos | O::Lg2 | O::Ex2 | O::Tanh => {
                self.float_function(opcode, cx, m)
            }
            O::Copysign | O::Testp => self.float_misc(opcode, cx, m),
            O::Set | O::Setp | O::Selp | O::Slct => self.compare(opcode, cx, m),
            O::Mov => self.mov(cx, m),
            O::Cvt => self.cvt(cx, m),
            O::Cvta => self.cvta(cx, m),
            O::Isspacep => self.isspacep(cx, m),
            O::Ld | O::Ldu => self.load(cx, m),
            O::St => self.store(cx, m),
            O::Prefetch | O::Prefetchu => self.prefetch(cx, m),
            O::Createpolicy => self.createpolicy(cx, m),
            O::Cp => self.cp_async(cx, m),
            O::Ldmatrix => self.ldmatrix(cx, m),
            O::Movmatrix => self.movmatrix(cx, m),
            O::Mma => self.mma(cx, m),
            O::Shfl => self.shfl(cx, m),
            O::Vote => self.vote(cx, m),
            O::Match => self.match_sync(cx, m),
            O::Redux => self.redux(cx, m),
            O::Activemask => self.activemask(cx, m),
            O::Bra => self.bra(cx, m),
            O::Brx => self.brx(cx, m),
            O::Call => Err(cx.unsupported()),
            O::Ret => {
                m.flag("uni");
                cx.count(0, 0)?;
                Ok((Op::Ret, Class::Control))
            }
            O::Exit => {
                cx.count(0, 0)?;
                Ok((Op::Exit, Class::Control))
            }
            O::Trap => {
                cx.count(0, 0)?;
                Ok((Op::Trap, Class::Control))
            }
            O::Bar | O::Barrier => self.barrier(opcode, cx, m),
            O::Membar | O::Fence => self.fence(opcode, cx, m),
            O::Atom | O::Red => self.atom(opcode, cx, m),
            O::Nanosleep => {
                self.source(cx, 0, m.take_type_or(cx)?)?;
                Ok((Op::Nop, Class::Other))
            }
        }
    }

    fn slow(&mut self, d: Reg, src: [Reg; 4], f: SlowFn) -> Op {
        self.code.slow.push(Slow { d, src, f });
        Op::Slow(self.code.slow.len() as u32 - 1)
    }

    /// A function of one operand, applied to every lane.
    fn slow1(&mut self, d: Reg, a: Reg, f: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Op {
        self.slow(
            d,
            [a, Reg::Sink, Reg::Sink, Reg::Sink],
            SlowFn::Value(Box::new(move |s, out| {
                for i in 0..32 {
                    out[i] = f(s[0][i]);
                }
            })),
        )
    }

    fn slow2(
        &mut self,
        d: Reg,
        [a, b]: [Reg; 2],
        f: impl Fn(u64, u64) -> u64 + Send + Sync + 'static,
    ) -> Op {
        self.slow(
            d,
            [a, b, Reg::Sink, Reg::Sink],
            SlowFn::Value(Box::new(move |s, out| {
                for i in 0..32 {
                    out[i] = f(s[0][i], s[1][i]);
                }
            })),
        )
    }

    fn slow3(
        &mut self,
        d: Reg,
        [a, b, c]: [Reg; 3],
        f: impl Fn(u64, u64, u64) -> u64 + Send + Sync + 'static,
    ) -> Op {
        self.slow(
            d,
            [a, b, c, Reg::Sink],
            SlowFn::Value(Box::new(move |s, out| {
                for i in 0..32 {
                    out[i] = f(s[0][i], s[1][i], s[2][i]);
                }
            })),
        )
    }
}

/// Applies a comparison to every lane.
fn lanes_where(s: &[Lanes; 4], f: impl Fn(u64, u64) -> bool) -> u32 {
    (0..32).fold(0, |mask, i| mask | u32::from(f(s[0][i], s[1][i])) << i)
}

/// Class of arithmetic on a type.
fn class_of(ty: ScalarType) -> Class {
    match ty {
        ScalarType::F32 | ScalarType::TF32 => Class::Float,
        ScalarType::F64 => Class::Double,
        t if t.is_float() => Class::Half,
        _ => Class::Integer,
    }
}
