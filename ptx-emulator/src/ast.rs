//! A module as it was written: declarations, and statements with names resolved to registers.

use crate::arith::ScalarType;

#[derive(Debug, Default)]
pub(crate) struct Ast {
    pub version: (u32, u32),
    pub target: String,
    pub vars: Vec<Var>,
    pub funcs: Vec<Func>,
}

/// State space of a declared variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VarSpace {
    Global,
    Const,
    Shared,
    /// Per thread: `.local`, and `.param` inside a function body or of a device function.
    Local,
    /// A kernel's parameter; `address` is its offset in the buffer.
    EntryParam,
}

#[derive(Clone, Debug)]
pub(crate) struct Var {
    pub name: String,
    pub scope: ScopeId,
    pub space: VarSpace,
    pub align: u64,
    /// 0 with `unsized_array`.
    pub size: u64,
    /// `name[]`: dynamic shared memory.
    pub unsized_array: bool,
    pub init: Vec<Init>,
}

/// A piece of an initialiser.
#[derive(Clone, Debug)]
pub(crate) enum Init {
    /// `bytes` low bytes of the value.
    Value { offset: u64, bytes: u32, value: u64 },
    /// The address of another variable.
    Address {
        offset: u64,
        bytes: u32,
        name: String,
        plus: i64,
        line: u32,
    },
}

/// Register of a function: its index in [`Func::regs`].
pub(crate) type RegId = u32;
/// Lexical scope of a function; 0 is the module.
pub(crate) type ScopeId = u32;

/// What a register can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RegClass {
    Pred,
    B16,
    B32,
    B64,
}

impl RegClass {
    pub(crate) fn of(ty: ScalarType) -> Option<RegClass> {
        match ty {
            ScalarType::Pred => Some(RegClass::Pred),
            _ => match ty.bits() {
                8 | 16 => Some(RegClass::B16),
                32 => Some(RegClass::B32),
                64 => Some(RegClass::B64),
                _ => None,
            },
        }
    }

    pub(crate) fn bits(self) -> u32 {
        match self {
            RegClass::Pred => 1,
            RegClass::B16 => 16,
            RegClass::B32 => 32,
            RegClass::B64 => 64,
        }
    }
}

/// A parameter or a return value of a function.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub name: String,
    pub size: u64,
    pub align: u64,
    /// Declared with `.reg`: its register.
    pub reg: Option<RegId>,
}

#[derive(Debug)]
pub(crate) struct Func {
    pub name: String,
    pub entry: bool,
    pub line: u32,
    pub has_body: bool,
    pub params: Vec<Param>,
    pub returns: Vec<Param>,
    pub regs: Vec<RegClass>,
    pub vars: Vec<Var>,
    pub scopes: Vec<ScopeId>,
    pub body: Vec<RawInst>,
    /// Label by scope and name: index into `body` of the instruction that follows.
    pub labels: std::collections::HashMap<(ScopeId, String), usize>,
    /// `.branchtargets` by scope and name.
    pub tables: std::collections::HashMap<(ScopeId, String), Vec<String>>,
    pub max_threads: Option<u64>,
    pub required_block: Option<[u32; 3]>,
}

#[derive(Clone, Debug)]
pub(crate) struct RawInst {
    pub line: u32,
    pub scope: ScopeId,
    /// Predicate register, and whether it is negated.
    pub guard: Option<(RegId, bool)>,
    /// Opcode with modifiers, as written.
    pub text: String,
    pub operands: Vec<Operand>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    Reg(RegId),
    /// `!p`.
    Not(RegId),
    Special(Special),
    Int(u64),
    F32(u32),
    F64(u64),
    /// A variable, function or label, with an offset.
    Symbol(String, i64),
    /// `[base+offset]`.
    Address(Base, i64),
    /// `{a, b, …}`.
    Vector(Vec<Operand>),
    /// `(a, b, …)` of a call.
    Group(Vec<Operand>),
    /// `d|p`.
    Pair(Box<Operand>, Box<Operand>),
    /// `_`.
    Sink,
}

impl Operand {
    pub(crate) fn describe(&self) -> String {
        match self {
            Operand::Reg(_) => "a register".into(),
            Operand::Not(_) => "a negated predicate".into(),
            Operand::Special(s) => format!("`{}`", s.name()),
            Operand::Int(v) => format!("the integer {}", *v as i64),
            Operand::F32(_) | Operand::F64(_) => "a floating-point constant".into(),
            Operand::Symbol(name, _) => format!("`{name}`"),
            Operand::Address(..) => "an address".into(),
            Operand::Vector(items) => format!("a vector of {}", items.len()),
            Operand::Group(_) => "a list in parentheses".into(),
            Operand::Pair(..) => "a pair `d|p`".into(),
            Operand::Sink => "`_`".into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Base {
    Reg(RegId),
    Symbol(String),
    /// An absolute address.
    None,
}

macro_rules! specials {
    ($($variant:ident $name:literal $class:ident,)*) => {
        /// Special registers that the emulator knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Special { $($variant,)* }

        impl Special {
            pub(crate) fn from_name(name: &str) -> Option<Special> {
                match name { $($name => Some(Special::$variant),)* _ => None }
            }
            pub(crate) fn name(self) -> &'static str {
                match self { $(Special::$variant => $name,)* }
            }
            pub(crate) fn class(self) -> RegClass {
                match self { $(Special::$variant => RegClass::$class,)* }
            }
        }
    };
}

specials! {
    TidX "%tid.x" B32,
    TidY "%tid.y" B32,
    TidZ "%tid.z" B32,
    NtidX "%ntid.x" B32,
    NtidY "%ntid.y" B32,
    NtidZ "%ntid.z" B32,
    CtaidX "%ctaid.x" B32,
    CtaidY "%ctaid.y" B32,
    CtaidZ "%ctaid.z" B32,
    NctaidX "%nctaid.x" B32,
    NctaidY "%nctaid.y" B32,
    NctaidZ "%nctaid.z" B32,
    LaneId "%laneid" B32,
    WarpId "%warpid" B32,
    NwarpId "%nwarpid" B32,
    SmId "%smid" B32,
    NsmId "%nsmid" B32,
    GridId "%gridid" B64,
    LanemaskEq "%lanemask_eq" B32,
    LanemaskLe "%lanemask_le" B32,
    LanemaskLt "%lanemask_lt" B32,
    LanemaskGe "%lanemask_ge" B32,
    LanemaskGt "%lanemask_gt" B32,
    Clock "%clock" B32,
    ClockHi "%clock_hi" B32,
    Clock64 "%clock64" B64,
    GlobalTimer "%globaltimer" B64,
    TotalSmem "%total_smem_size" B32,
    DynamicSmem "%dynamic_smem_size" B32,
}
