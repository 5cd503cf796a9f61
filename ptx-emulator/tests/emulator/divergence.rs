//! Divergent control flow and warp communication.

use ptx_emulator::{FaultKind, Options};

use crate::support::{checked, fault, run, try_run};

fn indices() -> Vec<u64> {
    (0..64).collect()
}

#[test]
fn loops_with_different_trip_counts_meet_behind_the_loop() {
    // Sum of 0..=tid, then the lanes are counted where they meet.
    let body = "mov.u32 %r1, 0; mov.u32 %r2, 0;
        LOOP: add.u32 %r1, %r1, %r2; add.u32 %r2, %r2, 1;
        setp.le.u32 %p1, %r2, %r0; @%p1 bra LOOP;
        activemask.b32 %r3; popc.b32 %r3, %r3;
        mad.lo.u32 %r1, %r1, 100, %r3;
        cvt.u64.u32 %rd4, %r1; st.global.u64 [%rd1], %rd4; ret;";
    let want: Vec<u64> = (0..64).map(|i| i * (i + 1) / 2 * 100 + 32).collect();
    assert_eq!(run("", body, &indices()), want);
}

#[test]
fn nested_branches_meet_inside_out() {
    let body = "mov.u32 %r1, 0;
        and.b32 %r2, %r0, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra EVEN;
        and.b32 %r2, %r0, 2; setp.eq.u32 %p2, %r2, 0; @%p2 bra ODD_A;
        add.u32 %r1, %r1, 1; bra ODD_END;
        ODD_A: add.u32 %r1, %r1, 2;
        ODD_END: activemask.b32 %r3; popc.b32 %r3, %r3; mad.lo.u32 %r1, %r3, 10, %r1; bra END;
        EVEN: add.u32 %r1, %r1, 3;
        END: activemask.b32 %r3; popc.b32 %r3, %r3; mad.lo.u32 %r1, %r3, 1000, %r1;
        cvt.u64.u32 %rd4, %r1; st.global.u64 [%rd1], %rd4; ret;";
    let want = (0..64u64).map(|i| {
        32_000
            + match i % 4 {
                1 => 160 + 2,
                3 => 160 + 1,
                _ => 3,
            }
    });
    assert_eq!(run("", body, &indices()), want.collect::<Vec<_>>());
}

#[test]
fn functions_called_by_part_of_a_warp_return_to_it() {
    let declarations = ".func (.reg .b32 %out) half(.reg .b32 %in) {
        .reg .pred %p;
        setp.lt.u32 %p, %in, 8;
        @%p bra SMALL;
        shr.u32 %out, %in, 1;
        ret;
        SMALL: mov.u32 %out, 0;
        ret; }";
    let body = "mov.u32 %r1, 77; setp.lt.u32 %p1, %r0, 16;
        @%p1 call (%r1), half, (%r0);
        activemask.b32 %r3; popc.b32 %r3, %r3; mad.lo.u32 %r1, %r3, 1000, %r1;
        cvt.u64.u32 %rd4, %r1; st.global.u64 [%rd1], %rd4; ret;";
    let want = (0..64u64).map(|i| match i {
        0..8 => 32_000,
        8..16 => 32_000 + i / 2,
        _ => 32_077,
    });
    assert_eq!(
        run(declarations, body, &indices()),
        want.collect::<Vec<_>>()
    );
}

#[test]
fn shuffles_follow_the_manual() {
    let shuffle = |mode: &str, b: &str, c: &str| {
        format!(
            "add.u32 %r1, %r0, 100; shfl.sync.{mode}.b32 %r2|%p1, %r1, {b}, {c}, -1;
            selp.u32 %r3, 1000, 0, %p1; add.u32 %r2, %r2, %r3;
            cvt.u64.u32 %rd4, %r2; st.global.u64 [%rd1], %rd4; ret;"
        )
    };
    let want = |source: &dyn Fn(u64) -> Option<u64>| -> Vec<u64> {
        (0..64u64)
            .map(|i| {
                let (lane, warp) = (i % 32, i / 32 * 32);
                match source(lane) {
                    Some(from) => 1100 + warp + from,
                    None => 100 + i,
                }
            })
            .collect()
    };
    let run = |mode, b, c| run("", &shuffle(mode, b, c), &indices());
    assert_eq!(run("up", "3", "0"), want(&|l| l.checked_sub(3)));
    assert_eq!(
        run("down", "5", "31"),
        want(&|l| Some(l + 5).filter(|j| *j < 32))
    );
    assert_eq!(run("bfly", "16", "31"), want(&|l| Some(l ^ 16)));
    assert_eq!(run("idx", "7", "31"), want(&|_| Some(7)));
    // Segments of 8 lanes: the segment mask is 0x18, in bits 8..13 of c.
    assert_eq!(run("idx", "2", "0x1807"), want(&|l| Some((l & 24) | 2)));
    assert_eq!(
        run("down", "2", "0x1807"),
        want(&|l| Some(l + 2).filter(|j| j / 8 == l / 8))
    );
    assert_eq!(
        run("up", "2", "0x1800"),
        want(&|l| l.checked_sub(2).filter(|j| j / 8 == l / 8))
    );
}

#[test]
fn votes_matches_and_reductions() {
    let store = "cvt.u64.u32 %rd4, %r2; st.global.u64 [%rd1], %rd4; ret;";
    let go = |body: &str| run("", &format!("{body}{store}"), &indices());
    let test = "setp.lt.u32 %p1, %laneid, 3;";
    assert_eq!(
        go(&format!("{test} vote.sync.ballot.b32 %r2, %p1, -1;")),
        vec![7; 64]
    );
    assert_eq!(
        go(&format!("{test} vote.sync.ballot.b32 %r2, !%p1, -1;")),
        vec![0xffff_fff8; 64]
    );
    assert_eq!(
        go(&format!(
            "{test} vote.sync.any.pred %p2, %p1, -1; selp.u32 %r2, 1, 0, %p2;"
        )),
        vec![1; 64]
    );
    assert_eq!(
        go(&format!(
            "{test} vote.sync.all.pred %p2, %p1, -1; selp.u32 %r2, 1, 0, %p2;"
        )),
        vec![0; 64]
    );
    assert_eq!(
        go(&format!(
            "{test} vote.sync.uni.pred %p2, %p1, -1; selp.u32 %r2, 1, 0, %p2;"
        )),
        vec![0; 64]
    );
    assert_eq!(go("redux.sync.add.u32 %r2, %laneid, -1;"), vec![496; 64]);
    assert_eq!(
        go("sub.s32 %r1, %laneid, 5; redux.sync.min.s32 %r2, %r1, -1;"),
        vec![0xffff_fffb; 64]
    );
    assert_eq!(go("redux.sync.xor.b32 %r2, %laneid, -1;"), vec![0; 64]);
    let by_parity = (0..64).map(|i| if i % 2 == 0 { 0x5555_5555 } else { 0xaaaa_aaaa });
    let parity = "and.b32 %r1, %r0, 1;";
    assert_eq!(
        go(&format!("{parity} match.any.sync.b32 %r2, %r1, -1;")),
        by_parity.collect::<Vec<_>>()
    );
    assert_eq!(
        go(&format!("{parity} match.all.sync.b32 %r2|%p1, %r1, -1;")),
        vec![0; 64]
    );
    assert_eq!(
        go("match.all.sync.b64 %r2|%p1, 9, -1;"),
        vec![0xffff_ffff; 64]
    );
}

#[test]
fn halves_of_a_warp_shuffle_with_their_own_masks() {
    let body = "setp.lt.u32 %p1, %laneid, 16; selp.b32 %r4, 0xffff, 0xffff0000, %p1;
        shfl.sync.bfly.b32 %r2, %r0, 8, 31, %r4;
        cvt.u64.u32 %rd4, %r2; st.global.u64 [%rd1], %rd4; ret;";
    let want: Vec<u64> = (0..64).map(|i| i ^ 8).collect();
    assert_eq!(run("", body, &indices()), want);
    let reach = body.replace("%r0, 8, 31", "%r0, 16, 31");
    let fault = fault(try_run("", &reach, &indices(), &checked()));
    assert!(
        matches!(fault.kind, FaultKind::InactiveLane { lane: 16, .. }),
        "{fault}"
    );
}

#[test]
fn barrier_reductions_count_the_block() {
    let body = "setp.lt.u32 %p1, %r0, 40;
        bar.red.popc.u32 %r2, 0, %p1;
        barrier.cta.red.or.pred %p2, 1, %p1; barrier.cta.red.and.pred %p3, 2, %p1;
        selp.u32 %r3, 100, 0, %p2; add.u32 %r2, %r2, %r3;
        selp.u32 %r3, 1000, 0, %p3; add.u32 %r2, %r2, %r3;
        cvt.u64.u32 %rd4, %r2; st.global.u64 [%rd1], %rd4; ret;";
    assert_eq!(run("", body, &indices()), vec![140; 64]);
}

#[test]
fn barriers_without_aligned_may_be_reached_from_two_places() {
    let body = ".shared .b32 word[64]; mov.u32 %r5, word; mad.lo.u32 %r5, %r0, 4, %r5;
        and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra EVEN;
        st.shared.u32 [%r5], %r0; barrier.sync 0; bra END;
        EVEN: add.u32 %r1, %r0, 100; st.shared.u32 [%r5], %r1; barrier.sync 0;
        END: mov.u32 %r5, word; sub.u32 %r6, 63, %r0; mad.lo.u32 %r5, %r6, 4, %r5;
        ld.shared.u32 %r2, [%r5]; cvt.u64.u32 %rd4, %r2; st.global.u64 [%rd1], %rd4; ret;";
    let value = |i: u64| if i.is_multiple_of(2) { i + 100 } else { i };
    let want: Vec<u64> = (0..64).map(|i| value(63 - i)).collect();
    assert_eq!(run("", body, &indices()), want);
}

#[test]
fn lanes_that_spin_see_what_other_warps_write() {
    // Warp 1 waits for a flag that warp 0 sets after a long loop.
    let body = "setp.lt.u32 %p1, %r0, 32; ld.param.u64 %rd5, [out]; @%p1 bra SETTER;
        WAIT: ld.volatile.global.u64 %rd6, [%rd5]; setp.ne.u64 %p2, %rd6, 7; @%p2 bra WAIT;
        mov.u64 %rd4, 1; st.global.u64 [%rd1], %rd4; ret;
        SETTER: mov.u32 %r1, 0;
        MORE: add.u32 %r1, %r1, 1; setp.lt.u32 %p3, %r1, 150000; @%p3 bra MORE;
        setp.eq.u32 %p4, %r0, 0; mov.u64 %rd4, 7; @%p4 st.global.u64 [%rd5], %rd4; ret;";
    let out = run("", body, &indices());
    assert_eq!(&out[..1], &[7]);
    assert_eq!(&out[32..], &[1; 32]);
}

#[test]
fn results_and_counters_do_not_depend_on_host_threads() {
    let body = "mov.u32 %r1, 0; LOOP: add.u32 %r1, %r1, %r0; setp.lt.u32 %p1, %r1, 50;
        setp.ne.u32 %p2, %r0, 0; and.pred %p1, %p1, %p2; @%p1 bra LOOP;
        cvt.u64.u32 %rd4, %r1; st.global.u64 [%rd1], %rd4; ret;";
    let one = try_run("", body, &indices(), &checked()).expect("no fault");
    let many = Options {
        threads: Some(7),
        hot_lines: false,
        ..checked()
    };
    assert_eq!(try_run("", body, &indices(), &many).expect("no fault"), one);
}

#[test]
fn branch_tables_split_a_warp_and_join_it() {
    let body = "and.b32 %r1, %r0, 3; mov.u32 %r2, 0;
        TABLE: .branchtargets ZERO, ONE, END, ZERO;
        setp.ge.u32 %p1, %r0, 4; @%p1 brx.idx %r1, TABLE;
        bra END;
        ZERO: add.u32 %r2, %r2, 5;
        ONE: add.u32 %r2, %r2, 100;
        END: activemask.b32 %r3; popc.b32 %r3, %r3; mad.lo.u32 %r2, %r3, 1000, %r2;
        cvt.u64.u32 %rd4, %r2; st.global.u64 [%rd1], %rd4; ret;";
    let want = (0..64u64).map(|i| match i % 4 {
        _ if i < 4 => 32_000,
        0 | 3 => 32_105,
        1 => 32_100,
        _ => 32_000,
    });
    assert_eq!(run("", body, &indices()), want.collect::<Vec<_>>());
}
