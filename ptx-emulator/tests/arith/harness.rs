//! One instruction as a kernel: thread i reads sample i, executes it, writes the result.

use std::fmt::Write;

use crate::reference::{BF16, F16};
use ptx_emulator::{Launch, Memory, Module, Options};

/// A Rust type that stands for a register: what it is declared as, and its bits.
pub trait Value: Copy + std::fmt::Debug {
    /// Type of the register and of the load or store.
    const REGISTER: &'static str;
    const BYTES: usize;
    fn of(bits: u64) -> Self;
    /// NaN has the bits that the manual promises.
    fn bits(self) -> u64;
    fn special() -> Vec<u64>;
}

const WORDS: [u64; 20] = [
    0,
    1,
    2,
    7,
    31,
    32,
    33,
    63,
    64,
    255,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
    0x0123_4567_89ab_cdef,
];

macro_rules! integer_value {
    ($($ty:ty, $unsigned:ty, $register:literal;)*) => {$(
        impl Value for $ty {
            const REGISTER: &'static str = $register;
            const BYTES: usize = size_of::<$ty>();
            fn of(bits: u64) -> Self {
                bits as $ty
            }
            fn bits(self) -> u64 {
                (self as $unsigned).into()
            }
            fn special() -> Vec<u64> {
                WORDS.to_vec()
            }
        }
    )*};
}

integer_value! {
    u16, u16, "b16";
    i16, u16, "b16";
    u32, u32, "b32";
    i32, u32, "b32";
    u64, u64, "b64";
    i64, u64, "b64";
}

/// Zeros, subnormals, the least normal, around 1, halves, the greatest, infinities, NaN.
macro_rules! float_value {
    ($($ty:ident, $bits:ty, $register:literal, $nan:expr, $infinity:expr, $normal:expr;)*) => {$(
        impl Value for $ty {
            const REGISTER: &'static str = $register;
            const BYTES: usize = size_of::<$ty>();
            fn of(bits: u64) -> Self {
                $ty::from_bits(bits as $bits)
            }
            fn bits(self) -> u64 {
                if self.is_nan() { $nan } else { self.to_bits().into() }
            }
            fn special() -> Vec<u64> {
                let (normal, infinity): (u64, u64) = ($normal, $infinity);
                let one = infinity / 2 / normal * normal;
                let sign = (infinity / normal + 1) * normal;
                [0, 1, normal - 1, normal, one - 1, one, one + 1, one - normal, one + normal,
                    one + normal + normal / 2, one + 5 * normal / 2, infinity - 1, infinity,
                    infinity + normal / 2].into_iter().flat_map(|x| [x, x | sign]).collect()
            }
        }
    )*};
}

float_value! {
    f32, u32, "f32", 0x7fff_ffff, 0x7f80_0000, 1 << 23;
    f64, u64, "f64", 0x7ff8_0000_0000_0000, 0x7ff0_0000_0000_0000, 1 << 52;
    F16, u16, "b16", 0x7fff, 0x7c00, 1 << 10;
    BF16, u16, "b16", 0x7fff, 0x7f80, 1 << 7;
}

/// A packed pair: lower half, upper half.
#[derive(Clone, Copy, Debug)]
pub struct Pair<T>(pub T, pub T);

impl<T: Value> Value for Pair<T> {
    const REGISTER: &'static str = "b32";
    const BYTES: usize = 4;
    fn of(bits: u64) -> Self {
        Self(T::of(bits & 0xffff), T::of(bits >> 16))
    }
    fn bits(self) -> u64 {
        self.0.bits() | self.1.bits() << 16
    }
    fn special() -> Vec<u64> {
        let halves = T::special();
        let other = |i: usize| halves[(5 * i + 3) % halves.len()] << 16;
        halves
            .iter()
            .enumerate()
            .map(|(i, x)| x & 0xffff | (other(i) & 0xffff_0000))
            .collect()
    }
}

/// A predicate result; it is stored as 0 or 1.
impl Value for bool {
    const REGISTER: &'static str = "pred";
    const BYTES: usize = 4;
    fn of(bits: u64) -> Self {
        bits & 1 == 1
    }
    fn bits(self) -> u64 {
        self.into()
    }
    fn special() -> Vec<u64> {
        vec![0, 1]
    }
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Samples in all: every pair of special values of the first two operands comes first.
const SAMPLES: usize = 1024;
const BLOCK: usize = 128;

/// The type of a load or store of so many bytes.
fn word(bytes: usize) -> String {
    format!("b{}", 8 * bytes)
}

pub struct Column {
    pub register: &'static str,
    pub bytes: usize,
    pub values: Vec<u64>,
}

fn column(kind: &Kind, values: Vec<u64>) -> Column {
    let mask = match kind.register {
        "pred" => 1,
        _ => u64::MAX >> (64 - 8 * kind.bytes),
    };
    let values = values.into_iter().map(|x| x & mask).collect();
    Column {
        register: kind.register,
        bytes: kind.bytes,
        values,
    }
}

/// The kernel around one or more lines of PTX over `%d` and the operands `%a`, `%b`, `%c`.
fn kernel(body: &str, d: (&str, usize), args: &[Column]) -> String {
    let mut text = String::from(".version 8.6\n.target sm_90\n.address_size 64\n\n");
    let params = ["pd", "pa", "pb", "pc"][..=args.len()]
        .iter()
        .map(|p| format!(".param .u64 {p}"))
        .collect::<Vec<_>>()
        .join(", ");
    writeln!(text, ".visible .entry k({params})\n{{").unwrap();
    text += "\t.reg .b32 %r<8>;\n\t.reg .b64 %rd<8>;\n\t.reg .pred %p<4>;\n";
    writeln!(text, "\t.reg .{} %d;", d.0).unwrap();
    text += "\tmov.u32 %r1, %ctaid.x;\n\tmov.u32 %r2, %ntid.x;\n\tmov.u32 %r3, %tid.x;\n";
    text += "\tmad.lo.s32 %r1, %r1, %r2, %r3;\n";
    for (arg, name) in args.iter().zip(["a", "b", "c"]) {
        writeln!(text, "\t.reg .{} %{name};", arg.register).unwrap();
        writeln!(text, "\tld.param.u64 %rd1, [p{name}];").unwrap();
        writeln!(text, "\tmad.wide.u32 %rd1, %r1, {}, %rd1;", arg.bytes).unwrap();
        if arg.register == "pred" {
            writeln!(
                text,
                "\tld.global.u32 %r4, [%rd1];\n\tsetp.ne.u32 %{name}, %r4, 0;"
            )
            .unwrap();
        } else {
            writeln!(text, "\tld.global.{} %{name}, [%rd1];", word(arg.bytes)).unwrap();
        }
    }
    for line in body.lines() {
        writeln!(text, "\t{line}").unwrap();
    }
    writeln!(text, "\tld.param.u64 %rd1, [pd];").unwrap();
    writeln!(text, "\tmad.wide.u32 %rd1, %r1, {}, %rd1;", d.1).unwrap();
    if d.0 == "pred" {
        text += "\tselp.u32 %r4, 1, 0, %d;\n\tst.global.u32 [%rd1], %r4;\n";
    } else {
        writeln!(text, "\tst.global.{} [%rd1], %d;", word(d.1)).unwrap();
    }
    text + "\tret;\n}\n"
}

/// Writes the text where `PTX_DUMP_DIR` says, for an assembler to check it.
pub fn dump(name: &str, text: &str) {
    if let Some(folder) = std::env::var_os("PTX_DUMP_DIR") {
        // File names have a limit: the head of the text, and its length against collisions.
        let name: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .take(100)
            .chain(text.len().to_string().chars())
            .collect();
        let path = std::path::Path::new(&folder).join(format!("{name}.ptx"));
        std::fs::write(path, text).expect("PTX_DUMP_DIR is a folder");
    }
}

/// Runs the lines on every sample with all detectors on.
#[track_caller]
pub fn run(body: &str, d: (&str, usize), args: &[Column]) -> Vec<u64> {
    let text = kernel(body, d, args);
    dump(body, &text);
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{body}: {error}"));
    let memory = Memory::new();
    let count = args[0].values.len();
    assert_eq!(count % BLOCK, 0);
    let result = memory.alloc((count * d.1) as u64, 256, "d").unwrap();
    let mut params = result.to_le_bytes().to_vec();
    for arg in args {
        let bytes: Vec<u8> = arg
            .values
            .iter()
            .flat_map(|x| x.to_le_bytes()[..arg.bytes].to_vec())
            .collect();
        let address = memory.alloc(bytes.len() as u64, 256, "operand").unwrap();
        memory.write(address, &bytes).unwrap();
        params.extend(address.to_le_bytes());
    }
    let launch = Launch {
        grid: [(count / BLOCK) as u32, 1, 1],
        block: [BLOCK as u32, 1, 1],
        shared_bytes: 0,
    };
    module
        .launch(&memory, "k", launch, &params, &Options::default())
        .unwrap_or_else(|error| panic!("{body}: {error}"));
    let mut bytes = vec![0; count * d.1];
    memory.read(result, &mut bytes).unwrap();
    bytes
        .chunks(d.1)
        .map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        })
        .collect()
}

fn samples(lists: [Vec<u64>; 3]) -> [Vec<u64>; 3] {
    let mut random = Random(9);
    let [a, b, c] = &lists;
    let mut columns = [vec![], vec![], vec![]];
    for i in 0..SAMPLES {
        let in_grid = i < a.len() * b.len();
        let pick = |list: &Vec<u64>, index: usize, random: &mut Random| match random.next() % 4 {
            0 if !in_grid => list[random.next() as usize % list.len()],
            _ if in_grid => list[index % list.len()],
            _ => random.next(),
        };
        columns[0].push(pick(a, i / b.len(), &mut random));
        columns[1].push(pick(b, i, &mut random));
        columns[2].push(pick(c, (7 * i + i / c.len()) % c.len(), &mut random));
    }
    columns
}

/// Everything about an operand or result but its Rust type. What follows is not generic: there are
/// hundreds of instructions, and each would compile its own copy.
pub struct Kind {
    register: &'static str,
    bytes: usize,
    special: fn() -> Vec<u64>,
}

impl Kind {
    fn of<T: Value>() -> Self {
        Self {
            register: T::REGISTER,
            bytes: T::BYTES,
            special: T::special,
        }
    }
}

/// Runs `op` (or the lines, if they have operands of their own) and compares with `want`.
#[track_caller]
fn compare(op: &str, d: Kind, kinds: &[Kind], want: &dyn Fn(&[u64]) -> u64) {
    let body = if op.contains('%') {
        op.to_string()
    } else {
        format!(
            "{op} {};",
            ["%d", "%a", "%b", "%c"][..=kinds.len()].join(", ")
        )
    };
    let special = |i: usize| kinds.get(i).map_or(vec![0], |kind| (kind.special)());
    let columns = samples([special(0), special(1), special(2)]);
    let args: Vec<Column> = kinds
        .iter()
        .zip(columns)
        .map(|(kind, values)| column(kind, values))
        .collect();
    let got = run(&body, (d.register, d.bytes), &args);
    for (i, got) in got.into_iter().enumerate() {
        let at: Vec<u64> = args.iter().map(|x| x.values[i]).collect();
        let want = want(&at);
        assert_eq!(got, want, "{body}\non {at:#x?}: {got:#x}, want {want:#x}");
    }
}

/// `op %d, %a` against `want(a)`; a text with its own operands is taken as it is.
#[track_caller]
pub fn unary<A: Value, D: Value>(op: &str, want: impl Fn(A) -> D) {
    compare(op, Kind::of::<D>(), &[Kind::of::<A>()], &|x| {
        want(A::of(x[0])).bits()
    });
}

/// `op %d, %a, %b` against `want(a, b)`.
#[track_caller]
pub fn binary<A: Value, B: Value, D: Value>(op: &str, want: impl Fn(A, B) -> D) {
    let kinds = [Kind::of::<A>(), Kind::of::<B>()];
    compare(op, Kind::of::<D>(), &kinds, &|x| {
        want(A::of(x[0]), B::of(x[1])).bits()
    });
}

/// `op %d, %a, %b, %c` against `want(a, b, c)`.
#[track_caller]
pub fn ternary<A: Value, B: Value, C: Value, D: Value>(op: &str, want: impl Fn(A, B, C) -> D) {
    let kinds = [Kind::of::<A>(), Kind::of::<B>(), Kind::of::<C>()];
    let want = |x: &[u64]| want(A::of(x[0]), B::of(x[1]), C::of(x[2])).bits();
    compare(op, Kind::of::<D>(), &kinds, &want);
}
