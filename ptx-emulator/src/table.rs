//! The instruction table: every opcode that the emulator executes, in the manual's spelling.
//!
//! The first part of an instruction selects a row; what follows the dots is read by the decoder
//! of that row, which refuses modifiers it does not know. A row without an arm in
//! `decode::Decoder::decode` does not compile.

macro_rules! opcodes {
    ($($variant:ident $name:literal,)*) => {
        /// First part of an instruction.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Opcode { $($variant,)* }

        impl Opcode {
            pub(crate) fn from_name(name: &str) -> Option<Opcode> {
                match name { $($name => Some(Opcode::$variant),)* _ => None }
            }
        }

        /// Opcodes that the emulator executes, in the manual's spelling.
        pub const OPCODES: &[&str] = &[$($name,)*];
    };
}

opcodes! {
    // Integer arithmetic
    Add "add",
    Addc "addc",
    Sub "sub",
    Subc "subc",
    Mul "mul",
    Mul24 "mul24",
    Mad "mad",
    Mad24 "mad24",
    Madc "madc",
    Sad "sad",
    Div "div",
    Rem "rem",
    Abs "abs",
    Neg "neg",
    Min "min",
    Max "max",
    Popc "popc",
    Clz "clz",
    Bfind "bfind",
    Fns "fns",
    Brev "brev",
    Bfe "bfe",
    Bfi "bfi",
    Bmsk "bmsk",
    Szext "szext",
    Dp4a "dp4a",
    Dp2a "dp2a",
    // Floating point (and the shared names above)
    Fma "fma",
    Rcp "rcp",
    Sqrt "sqrt",
    Rsqrt "rsqrt",
    Sin "sin",
    Cos "cos",
    Lg2 "lg2",
    Ex2 "ex2",
    Tanh "tanh",
    Copysign "copysign",
    Testp "testp",
    // Comparison and selection
    Set "set",
    Setp "setp",
    Selp "selp",
    Slct "slct",
    // Logic and shift
    And "and",
    Or "or",
    Xor "xor",
    Not "not",
    Cnot "cnot",
    Lop3 "lop3",
    Shf "shf",
    Shl "shl",
    Shr "shr",
    Prmt "prmt",
    // Data movement and conversion
    Mov "mov",
    Cvt "cvt",
    Cvta "cvta",
    Isspacep "isspacep",
    Ld "ld",
    Ldu "ldu",
    St "st",
    Prefetch "prefetch",
    Prefetchu "prefetchu",
    Createpolicy "createpolicy",
    Cp "cp",
    Ldmatrix "ldmatrix",
    Movmatrix "movmatrix",
    Mma "mma",
    // Warp communication
    Shfl "shfl",
    Vote "vote",
    Match "match",
    Redux "redux",
    Activemask "activemask",
    // Control flow
    Bra "bra",
    Brx "brx",
    Call "call",
    Ret "ret",
    Exit "exit",
    Trap "trap",
    // Synchronisation
    Bar "bar",
    Barrier "barrier",
    Membar "membar",
    Fence "fence",
    Atom "atom",
    Red "red",
    Nanosleep "nanosleep",
}

macro_rules! classes {
    ($($variant:ident $name:literal $doc:literal,)*) => {
        /// Class of an instruction, for the counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Class { $(#[doc = $doc] $variant,)* }

        impl Class {
            /// All classes, in order.
            pub const ALL: &[Class] = &[$(Class::$variant,)*];

            /// Short name for tables.
            pub fn name(self) -> &'static str {
                match self { $(Class::$variant => $name,)* }
            }
        }

        impl std::fmt::Display for Class {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

classes! {
    Move "move" "`mov` and `cvta`.",
    Integer "integer" "Integer arithmetic, logic and shifts.",
    Float "float" "f32 arithmetic.",
    Double "double" "f64 arithmetic.",
    Half "half" "f16 and bf16 arithmetic, packed or not.",
    Special "special" "Approximate and iterated functions: rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh, div of floats.",
    Convert "convert" "`cvt`.",
    Compare "compare" "`setp`, `set`, `selp`, `slct` and predicate logic.",
    Control "control" "Branches, calls, `exit`.",
    LoadGlobal "load global" "`ld.global`.",
    LoadShared "load shared" "`ld.shared`.",
    LoadLocal "load local" "`ld.local`, and `ld.param` in device functions.",
    LoadConst "load const" "`ld.const` and `ld.param` of kernel parameters.",
    LoadGeneric "load generic" "`ld` without a space.",
    StoreGlobal "store global" "`st.global`.",
    StoreShared "store shared" "`st.shared`.",
    StoreLocal "store local" "`st.local`, and `st.param`.",
    StoreGeneric "store generic" "`st` without a space.",
    Atomic "atomic" "`atom` and `red`.",
    AsyncCopy "async copy" "`cp.async` and its commits and waits.",
    Matrix "matrix" "`mma`.",
    MatrixLoad "matrix load" "`ldmatrix` and `movmatrix`.",
    Warp "warp" "`shfl`, `vote`, `match`, `redux`, `activemask`.",
    Barrier "barrier" "`bar`, `barrier`, `bar.warp`, `membar`, `fence`.",
    Other "other" "`prefetch`, `nanosleep` and the like.",
}
