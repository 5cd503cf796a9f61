//! Random programs over shared memory: a race is reported exactly when plain vector clocks, kept
//! for every thread and every access, find one.

use std::fmt::Write;

use proptest::prelude::*;
use ptx_emulator::{Detectors, Error, FaultKind, Options};

use crate::support::{cases, checked, try_run};

const THREADS: usize = 96;
const WORDS: u32 = 64;

#[derive(Clone, Debug)]
enum Step {
    /// Threads with this bit of their index set (all for 7) access `bytes` bytes at
    /// ((a·tid + b) mod 64) words plus `byte`.
    Access {
        write: bool,
        bit: u32,
        a: u32,
        b: u32,
        bytes: u32,
        byte: u32,
    },
    /// `bar.sync` of the block.
    Block,
    /// `bar.warp.sync` of the whole warp.
    Warp,
    /// `bar.warp.sync` of each half of the warp.
    Halves,
    /// A barrier of warps 0 and 1.
    Pair,
    /// Warp 1 arrives, warp 2 waits.
    Signal,
}

fn step() -> impl Strategy<Value = Step> {
    let access = (any::<bool>(), 0..8u32, 0..4u32, 0..WORDS, 0..4u32, 0..4u32);
    prop_oneof![
        6 => access.prop_map(|(write, bit, a, b, size, byte)| {
            // Mostly words, now and then bytes and halves of them.
            let bytes = [4, 4, 2, 1][size as usize];
            Step::Access { write, bit, a: [1, 1, 33, 5][a as usize], b, bytes, byte: byte / bytes * bytes }
        }),
        2 => Just(Step::Block),
        2 => Just(Step::Warp),
        1 => Just(Step::Halves),
        1 => Just(Step::Pair),
        1 => Just(Step::Signal),
    ]
}

fn active(bit: u32, thread: usize) -> bool {
    bit == 7 || thread >> bit & 1 == 1
}

fn program(steps: &[Step]) -> String {
    let mut text = format!(
        ".shared .align 16 .b8 tile[{}]; mov.u32 %r1, tile; mov.u16 %h1, 3;
         setp.lt.u32 %p1, %r0, 64; setp.ge.u32 %p2, %r0, 64; setp.ge.u32 %p3, %r0, 32;
         and.pred %p3, %p3, %p1; setp.lt.u32 %p4, %laneid, 16;
         selp.b32 %r9, 0x0000ffff, 0xffff0000, %p4;\n",
        WORDS * 4
    );
    let mut signal = 2;
    for step in steps {
        match step {
            Step::Access {
                write,
                bit,
                a,
                b,
                bytes,
                byte,
            } => {
                let guard = if *bit == 7 {
                    "setp.ge.u32 %p5, %r0, 0;".to_string()
                } else {
                    format!(
                        "shr.u32 %r2, %r0, {bit}; and.b32 %r2, %r2, 1; setp.ne.u32 %p5, %r2, 0;"
                    )
                };
                let (ty, value, target) = match bytes {
                    4 => ("u32", "%r0", "%r4"),
                    2 => ("u16", "%h1", "%h2"),
                    _ => ("u8", "%h1", "%h2"),
                };
                let access = if *write {
                    format!("@%p5 st.shared.{ty} [%r3+{byte}], {value};")
                } else {
                    format!("@%p5 ld.shared.{ty} {target}, [%r3+{byte}];")
                };
                writeln!(
                    text,
                    "{guard} mad.lo.u32 %r3, %r0, {a}, {b}; and.b32 %r3, %r3, 63;
                     mad.lo.u32 %r3, %r3, 4, %r1; {access}"
                )
                .expect("a string");
            }
            Step::Block => text.push_str("bar.sync 0;\n"),
            Step::Warp => text.push_str("bar.warp.sync 0xffffffff;\n"),
            Step::Halves => text.push_str("bar.warp.sync %r9;\n"),
            Step::Pair => text.push_str("@%p1 bar.sync 1, 64;\n"),
            Step::Signal => {
                // Warp 1 may arrive twice before warp 2 waits: each time another barrier.
                write!(
                    text,
                    "@%p3 bar.arrive {signal}, 64; @%p2 bar.sync {signal}, 64;"
                )
                .expect("a string");
                signal += 1;
            }
        }
    }
    text.push_str("ret;");
    text
}

/// `clocks[t][u]`: thread t knows of the accesses of thread u before this time of u.
type Clocks = Vec<[u32; THREADS]>;

/// The members learn what all of `sources` know, each source's own past included.
fn join(clocks: &mut Clocks, sources: &[usize], members: &[usize]) {
    let mut joined = [0; THREADS];
    for &t in sources {
        for (j, c) in joined.iter_mut().zip(&clocks[t]) {
            *j = (*j).max(*c);
        }
    }
    // What a source has done so far lies before its next time.
    for &t in sources {
        joined[t] = clocks[t][t] + 1;
    }
    for &t in members {
        for (c, j) in clocks[t].iter_mut().zip(&joined) {
            *c = (*c).max(*j);
        }
    }
    for &t in sources {
        clocks[t][t] = joined[t];
    }
}

/// Whether any two accesses conflict without an order: a plain list, every pair compared.
fn has_race(steps: &[Step]) -> bool {
    let mut clocks: Clocks = (0..THREADS)
        .map(|t| std::array::from_fn(|u| u32::from(t == u)))
        .collect();
    let mut past: Vec<(usize, u32, u32, bool, u32)> = Vec::new();
    let range = |r: std::ops::Range<usize>| -> Vec<usize> { r.collect() };
    for step in steps {
        match step {
            Step::Access {
                write,
                bit,
                a,
                b,
                bytes,
                byte,
            } => {
                for t in (0..THREADS).filter(|t| active(*bit, *t)) {
                    let start = (t as u32 * a + b) % WORDS * 4 + byte;
                    for &(u, from, to, wrote, time) in &past {
                        let overlap = start < to && from < start + bytes;
                        if u != t && overlap && (*write || wrote) && clocks[t][u] <= time {
                            return true;
                        }
                    }
                    past.push((t, start, start + bytes, *write, clocks[t][t]));
                }
            }
            Step::Block => join(&mut clocks, &range(0..THREADS), &range(0..THREADS)),
            Step::Warp | Step::Halves => {
                let size = if matches!(step, Step::Warp) { 32 } else { 16 };
                for first in (0..THREADS).step_by(size) {
                    join(
                        &mut clocks,
                        &range(first..first + size),
                        &range(first..first + size),
                    );
                }
            }
            Step::Pair => join(&mut clocks, &range(0..64), &range(0..64)),
            Step::Signal => join(&mut clocks, &range(32..96), &range(64..96)),
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(150), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn races_are_those_that_plain_vector_clocks_find(
        steps in prop::collection::vec(step(), 1..12),
    ) {
        let detectors = Detectors { uninitialised: false, ..Detectors::all() };
        let options = Options { detectors, ..checked() };
        let found = match try_run("", &program(&steps), &[0; THREADS], &options) {
            Ok(_) => false,
            Err(Error::Fault(fault)) => {
                prop_assert!(matches!(fault.kind, FaultKind::SharedRace { .. }), "{}", fault);
                true
            }
            Err(other) => panic!("{other}"),
        };
        prop_assert_eq!(found, has_race(&steps));
    }
}
