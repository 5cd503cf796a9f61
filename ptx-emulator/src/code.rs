//! Decoded code of one entry: a flat array of instructions over register indices.

use crate::arith::ScalarType;
use crate::arith::compare::CmpOp;
use crate::ast::Special;
use crate::table::Class;

/// Index of a register in the file that the instruction says.
pub(crate) type R = u32;

/// Stands for "no register": a sink.
pub(crate) const NONE: R = u32::MAX;
/// The predicate register that is always true.
pub(crate) const TRUE: R = 0;

/// A register with its file. 16-bit values live in the 32-bit file, zero-extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reg {
    P(R),
    R16(R),
    R32(R),
    R64(R),
    Sink,
}

/// A predicate operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pred {
    pub reg: R,
    /// All ones when negated.
    pub flip: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub op: Op,
    pub guard: Pred,
    pub line: u32,
    /// Where the two sides of a divergent branch here meet again.
    pub meet: Meet,
    pub class: Class,
}

/// Immediate post-dominator of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meet {
    At(u32),
    /// The return of the function (or the exit of the entry).
    Return,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int2 {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    Shl,
    ShrU,
    ShrS,
    MinU,
    MinS,
    MaxU,
    MaxS,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

/// Results of a comparison: `p` and, unless `NONE`, `q`, combined with a predicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetpOut {
    pub p: R,
    pub q: R,
    pub combine: Option<(Logic, Pred)>,
}

/// A 32-bit register of all lanes.
pub(crate) type Lanes32 = [u32; 32];
/// Whole-warp functions with a flush-to-zero flag; see `arith::lanes`.
pub(crate) type Lane1 = fn(bool, &Lanes32, &mut Lanes32);
pub(crate) type Lane2 = fn(bool, &Lanes32, &Lanes32, &mut Lanes32);
pub(crate) type Lane3 = fn(bool, &Lanes32, &Lanes32, &Lanes32, &mut Lanes32);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Nop,
    Mov32 {
        d: R,
        a: R,
    },
    Mov64 {
        d: R,
        a: R,
    },
    MovP {
        d: R,
        a: Pred,
    },
    Pack64 {
        d: R,
        lo: R,
        hi: R,
    },
    Unpack64 {
        lo: R,
        hi: R,
        a: R,
    },
    /// A 32-bit register cut into 16-bit halves.
    Unpack32 {
        lo: R,
        hi: R,
        a: R,
    },
    Pack32 {
        d: R,
        lo: R,
        hi: R,
    },
    Clock {
        d: Reg,
        shift: u32,
    },
    Int32 {
        f: Int2,
        d: R,
        a: R,
        b: R,
    },
    Int64 {
        f: Int2,
        d: R,
        a: R,
        b: R,
    },
    Mad32 {
        d: R,
        a: R,
        b: R,
        c: R,
    },
    Mad64 {
        d: R,
        a: R,
        b: R,
        c: R,
    },
    /// 32 × 32 + 64 → 64 bits; `c` may be the register of zeros.
    MadWide {
        signed: bool,
        d: R,
        a: R,
        b: R,
        c: R,
    },
    Lane1 {
        f: Lane1,
        ftz: bool,
        d: R,
        a: R,
    },
    Lane2 {
        f: Lane2,
        ftz: bool,
        d: R,
        a: R,
        b: R,
    },
    Lane3 {
        f: Lane3,
        ftz: bool,
        d: R,
        a: R,
        b: R,
        c: R,
    },
    SetpI32 {
        cmp: CmpOp,
        signed: bool,
        a: R,
        b: R,
        out: u32,
    },
    SetpI64 {
        cmp: CmpOp,
        signed: bool,
        a: R,
        b: R,
        out: u32,
    },
    SetpF32 {
        cmp: CmpOp,
        ftz: bool,
        a: R,
        b: R,
        out: u32,
    },
    LogicP {
        f: Logic,
        d: R,
        a: Pred,
        b: Pred,
    },
    Selp32 {
        d: R,
        a: R,
        b: R,
        p: Pred,
    },
    Selp64 {
        d: R,
        a: R,
        b: R,
        p: Pred,
    },
    /// 32 → 64 bits.
    Widen {
        signed: bool,
        d: R,
        a: R,
    },
    /// 64 → 32 bits.
    Narrow {
        d: R,
        a: R,
    },
    /// Any pure function of up to four operands: index into [`Code::slow`].
    Slow(u32),
    Ld(u32),
    St(u32),
    Atom(u32),
    CpAsync(u32),
    CpCommit,
    CpWait {
        pending: u32,
    },
    CpWaitAll,
    LdMatrix(u32),
    MovMatrix {
        d: R,
        a: R,
    },
    Mma(u32),
    Shfl(u32),
    Vote(u32),
    ActiveMask {
        d: R,
    },
    WarpSync {
        mask: R,
    },
    Bar(u32),
    Fence,
    Bra {
        target: u32,
    },
    /// A jump through table number `table` of [`Code::tables`].
    Brx {
        index: R,
        table: u32,
    },
    /// A parameter or result of a call: bytes of local memory, written or not.
    CopyLocal {
        dst: u32,
        src: u32,
        bytes: u32,
    },
    Call {
        target: u32,
    },
    Ret,
    Exit,
    Trap,
}

/// 32 lanes as raw bits.
pub(crate) type Lanes = [u64; 32];

/// Operands of a slow instruction, zero-extended, to the result of every lane.
pub(crate) type ValueFn = Box<dyn Fn(&[Lanes; 4], &mut Lanes) + Send + Sync>;
/// To the lanes where a comparison holds.
pub(crate) type CompareFn = Box<dyn Fn(&[Lanes; 4]) -> u32 + Send + Sync>;
/// With the carries in, to the results and the carries out.
pub(crate) type CarryFn = Box<dyn Fn(&[Lanes; 4], u32, &mut Lanes) -> u32 + Send + Sync>;

pub(crate) enum SlowFn {
    Value(ValueFn),
    /// As `Value`, but it is a fault if the second operand is 0.
    Division(ValueFn),
    Compare(CompareFn, SetpOut),
    /// The flag says whether the carries out are kept.
    Carry(CarryFn, bool),
    /// Several destinations cut out of one value: register, shift, bits.
    Unpack(Vec<(Reg, u32, u32)>),
}

pub(crate) struct Slow {
    pub d: Reg,
    pub src: [Reg; 4],
    pub f: SlowFn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemSpace {
    Generic,
    /// `.global` and `.const`.
    Global,
    Shared,
    Local,
    Param,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Addr {
    pub base: Reg,
    pub offset: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct MemOp {
    pub space: MemSpace,
    pub addr: Addr,
    /// Bytes of one element: 1, 2, 4, 8.
    pub width: u32,
    pub signed: bool,
    pub count: u32,
    pub regs: [Reg; 4],
}

impl MemOp {
    /// Bytes of the whole access of one lane.
    pub(crate) fn bytes(&self) -> u32 {
        self.width * self.count
    }
}

pub(crate) struct AtomOp {
    pub space: MemSpace,
    pub addr: Addr,
    pub bytes: u32,
    pub d: Reg,
    pub b: Reg,
    pub c: Reg,
    /// (old, b, c) → new.
    pub f: Box<dyn Fn(u64, u64, u64) -> u64 + Send + Sync>,
}

#[derive(Clone, Debug)]
pub(crate) struct CpAsyncOp {
    pub dst: Addr,
    pub src: Addr,
    pub bytes: u32,
    /// Bytes read from the source; the rest is zero.
    pub src_bytes: Option<R>,
    /// With this predicate the source is not read.
    pub ignore: Option<Pred>,
}

#[derive(Clone, Debug)]
pub(crate) struct LdMatrixOp {
    pub addr: Addr,
    pub generic: bool,
    pub trans: bool,
    pub d: [R; 4],
    pub count: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct MmaOp {
    /// 8 or 16.
    pub k: u32,
    pub input: ScalarType,
    /// f32 or f16: C and D.
    pub c_type: ScalarType,
    pub d: [R; 4],
    pub a: [R; 4],
    pub b: [R; 2],
    pub c: [R; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShflMode {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Clone, Debug)]
pub(crate) struct ShflOp {
    pub mode: ShflMode,
    pub d: R,
    pub p: R,
    pub a: R,
    pub b: R,
    pub c: R,
    pub mask: R,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VoteMode {
    All,
    Any,
    Uni,
    Ballot,
    MatchAny,
    MatchAll,
    Add,
    MinU,
    MinS,
    MaxU,
    MaxS,
    And,
    Or,
    Xor,
}

/// `vote`, `match` and `redux`: one value per lane in, a value for each out.
#[derive(Clone, Debug)]
pub(crate) struct VoteOp {
    pub mode: VoteMode,
    pub d: Reg,
    pub p: R,
    pub a: Reg,
    /// All ones when a predicate source is negated.
    pub flip: u32,
    pub mask: R,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarKind {
    Sync,
    Arrive,
    RedPopc,
    RedAnd,
    RedOr,
}

#[derive(Clone, Debug)]
pub(crate) struct BarOp {
    pub kind: BarKind,
    pub aligned: bool,
    pub id: R,
    /// Number of threads; `None` for the whole block.
    pub count: Option<R>,
    pub d: Reg,
    pub pred: Pred,
}

/// A 64-bit constant of the register file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Const64 {
    Value(u64),
    /// Address of a module variable (its index) plus an offset.
    Variable(u32, i64),
}

#[derive(Clone, Debug)]
pub(crate) struct SharedVar {
    pub name: String,
    pub offset: u64,
    /// 0 for the dynamic part, which ends where the block's shared memory ends.
    pub size: u64,
}

/// One linked entry: the kernel and all functions it can call.
#[derive(Default)]
pub(crate) struct Code {
    pub insts: Vec<Inst>,
    pub slow: Vec<Slow>,
    pub mem: Vec<MemOp>,
    pub atoms: Vec<AtomOp>,
    pub copies: Vec<CpAsyncOp>,
    pub ldmatrix: Vec<LdMatrixOp>,
    pub mma: Vec<MmaOp>,
    pub shfl: Vec<ShflOp>,
    pub vote: Vec<VoteOp>,
    pub bar: Vec<BarOp>,
    pub setp: Vec<SetpOut>,
    pub tables: Vec<Vec<u32>>,
    pub count32: u32,
    pub count64: u32,
    pub count_pred: u32,
    pub const32: Vec<(R, u32)>,
    pub const64: Vec<(R, Const64)>,
    pub specials: Vec<(Special, Reg)>,
    pub shared: Vec<SharedVar>,
    pub static_shared: u32,
    pub local_bytes: u32,
    /// Instruction text by index, for messages.
    pub texts: Vec<String>,
}
