//! Random control flow: a warp must give each lane what the lane computes alone.

use std::fmt::Write;

use proptest::prelude::*;

use crate::support::{cases, run};

/// One block of a random program: some arithmetic, then a jump.
#[derive(Clone, Debug)]
struct Node {
    multiplier: u32,
    /// The lane jumps if this bit of its state is set.
    bit: u32,
    target: usize,
    /// What the block has besides: nothing, a call, a guarded call, a table jump, a guarded exit.
    extra: u8,
}

fn node(count: usize) -> impl Strategy<Value = Node> {
    (any::<u32>(), 0..32u32, 0..count, 0..8u8).prop_map(|(multiplier, bit, target, extra)| Node {
        multiplier: multiplier | 1,
        bit,
        target,
        extra,
    })
}

const FUNCTION: &str = ".func (.reg .b32 %y) scramble(.reg .b32 %x) {
    .reg .pred %p; .reg .b32 %t;
    shr.u32 %t, %x, 7; xor.b32 %y, %x, %t; and.b32 %t, %y, 3; setp.eq.u32 %p, %t, 0; @%p ret;
    LOOP: mad.lo.u32 %y, %y, 69069, 1; sub.u32 %t, %t, 1; setp.ne.u32 %p, %t, 0; @%p bra LOOP;
    ret; }";

/// The state is %r1; %r2 counts down so that every lane ends.
fn program(nodes: &[Node]) -> String {
    let mut text = "ld.global.u32 %r1, [%rd2]; mov.u32 %r2, 40;\n".to_string();
    for (i, node) in nodes.iter().enumerate() {
        let Node {
            multiplier,
            bit,
            target,
            extra,
        } = node;
        let next = (i + 1) % nodes.len();
        write!(
            text,
            "B{i}: mad.lo.u32 %r1, %r1, {multiplier}, {i};
             sub.u32 %r2, %r2, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra END;
             shr.u32 %r3, %r1, {bit}; and.b32 %r4, %r3, 1; setp.ne.u32 %p2, %r4, 0;\n"
        )
        .expect("a string");
        match extra {
            0 => text.push_str("call (%r1), scramble, (%r1);\n"),
            1 => text.push_str("@%p2 call (%r1), scramble, (%r1);\n"),
            2 => {
                writeln!(text, "T{i}: .branchtargets B{target}, B{next}, B0, END;")
                    .expect("a string");
                writeln!(text, "and.b32 %r5, %r3, 3; @%p2 brx.idx %r5, T{i};").expect("a string");
            }
            3 => text.push_str("setp.gt.u32 %p3, %r1, 0xf8000000; @%p3 bra.uni OUT;\n"),
            _ => {}
        }
        writeln!(text, "@%p2 bra B{target};").expect("a string");
    }
    text.push_str(
        "END: add.u32 %r1, %r1, 17;
         OUT: cvt.u64.u32 %rd4, %r1; st.global.u64 [%rd1], %rd4; ret;",
    );
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(24), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lanes_compute_together_what_they_compute_alone(
        nodes in (1..9usize).prop_flat_map(|n| prop::collection::vec(node(n), n)),
        seed in any::<u32>(),
    ) {
        let body = program(&nodes);
        let input: Vec<u64> = (0..40).map(|i| u64::from(seed.wrapping_mul(2 * i + 1))).collect();
        let together = run(FUNCTION, &body, &input);
        for (lane, x) in input.iter().enumerate() {
            let alone = run(FUNCTION, &body, &[*x]);
            prop_assert_eq!(together[lane], alone[0], "lane {} of\n{}", lane, body);
        }
    }
}
