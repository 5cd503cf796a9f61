//! Counters, against numbers counted by hand.

use ptx_emulator::{Class, Counters, Launch, Memory, Options, Report};

use crate::support::{checked, load, module};

/// Runs `body` with %r0 = tid and %rd1 = out over 2 blocks of 64 threads; `out` has 64 KiB.
#[track_caller]
fn report(body: &str, options: &Options) -> Report {
    let text = module(
        "",
        &format!("mov.u32 %r0, %tid.x; ld.param.u64 %rd1, [out];\n{body}\nret;"),
    );
    let memory = Memory::new();
    let out = memory.alloc(65536, 256, "pool").expect("memory");
    memory.fill(out, 1, 65536).expect("inside");
    let params = [out.to_le_bytes(), 0u64.to_le_bytes()].concat();
    let launch = Launch {
        grid: [2, 1, 1],
        block: [64, 1, 1],
        shared_bytes: 0,
    };
    match load(&text).launch(&memory, "test", launch, &params, options) {
        Ok(report) => report,
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn count(body: &str) -> Counters {
    report(body, &checked()).counters
}

#[test]
fn neighbours_share_sectors() {
    let load = "mad.wide.u32 %rd2, %r0, 4, %rd1; ld.global.u32 %r1, [%rd2];";
    let pool = count(load).allocations["pool"];
    // 4 warps of 128 bytes; both blocks load the same 256 bytes.
    assert_eq!(
        (pool.requests, pool.loaded, pool.loaded_per_block),
        (4, 16, 16)
    );
    let twice = count(&format!("{load}{load}")).allocations["pool"];
    assert_eq!(
        (twice.requests, twice.loaded, twice.loaded_per_block),
        (8, 32, 16)
    );
}

#[test]
fn strided_lanes_take_a_sector_each() {
    let pool = count("mad.wide.u32 %rd2, %r0, 128, %rd1; ld.global.u32 %r1, [%rd2];");
    assert_eq!(pool.allocations["pool"].loaded, 128);
    // Descending addresses, four to a sector.
    let body = "sub.u32 %r1, 63, %r0; mad.wide.u32 %rd2, %r1, 8, %rd1; ld.global.u64 %rd3, [%rd2];";
    assert_eq!(count(body).allocations["pool"].loaded, 4 * 8);
    let wide = "mad.wide.u32 %rd2, %r0, 16, %rd1; ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd2];";
    assert_eq!(count(wide).allocations["pool"].loaded, 4 * 16);
    let broadcast = count("ld.global.u32 %r1, [%rd1];").allocations["pool"];
    assert_eq!((broadcast.loaded, broadcast.loaded_per_block), (4, 2));
}

#[test]
fn stores_and_bytes_are_counted_apart() {
    let counters = count(
        "mov.u32 %r2, %ctaid.x; mad.lo.u32 %r2, %r2, 64, %r0;
         mad.wide.u32 %rd2, %r2, 4, %rd1; st.global.u32 [%rd2], %r0;",
    );
    let pool = counters.allocations["pool"];
    assert_eq!((pool.stored, pool.loaded), (16, 0));
    assert_eq!(
        (counters.bytes.global_written, counters.bytes.global_read),
        (512, 0)
    );
}

#[test]
fn predicated_off_lanes_request_nothing() {
    let pool = count(
        "setp.lt.u32 %p1, %r0, 8; mad.wide.u32 %rd2, %r0, 4, %rd1;
         @%p1 ld.global.u32 %r1, [%rd2];",
    );
    // One warp of each block, 32 bytes.
    assert_eq!(pool.allocations["pool"].loaded, 2);
    assert_eq!(pool.bytes.global_read, 2 * 8 * 4);
    // Issued by all four warps all the same.
    assert_eq!(pool.class(Class::LoadGlobal), 4);
}

#[test]
fn bank_conflicts_are_passes_beyond_the_least() {
    let shared = |stride: u32, store: &str| {
        let body = format!(
            ".shared .align 16 .b8 tile[16384]; mov.u32 %r5, tile; and.b32 %r6, %r0, 31;
             shr.u32 %r7, %r0, 5; mad.lo.u32 %r5, %r7, 8192, %r5;
             mad.lo.u32 %r5, %r6, {stride}, %r5; {store};"
        );
        count(&body).shared
    };
    let one = shared(4, "st.shared.u32 [%r5], %r0");
    assert_eq!(
        (one.requests, one.wavefronts, one.least_wavefronts),
        (4, 4, 4)
    );
    let two = shared(8, "st.shared.u32 [%r5], %r0");
    assert_eq!((two.wavefronts, two.conflicts()), (8, 4));
    let column = shared(128, "st.shared.u32 [%r5], %r0");
    assert_eq!(column.wavefronts, 4 * 32);
    // 16 bytes a lane: four groups of eight lanes.
    let wide = shared(16, "st.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0}");
    assert_eq!((wide.wavefronts, wide.conflicts()), (16, 0));
    let apart = shared(32, "st.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0}");
    assert_eq!((apart.wavefronts, apart.conflicts()), (32, 16));
}

#[test]
fn classes_lines_and_barriers_add_up() {
    let options = Options {
        hot_lines: true,
        ..checked()
    };
    let body = "mov.u32 %r1, 0;\nLOOP: add.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 10;\n\
                @%p1 bra LOOP;\nbar.sync 0;";
    let report = report(body, &options);
    let counters = &report.counters;
    assert_eq!(counters.class(Class::Integer), 40);
    assert_eq!(counters.class(Class::Compare), 40);
    assert_eq!(counters.class(Class::Control), 44);
    assert_eq!(counters.class(Class::Barrier), 4);
    // mov %r0, mov %r1; ld.param is a load of a constant.
    assert_eq!(counters.class(Class::Move), 8);
    assert_eq!(counters.class(Class::LoadConst), 4);
    assert_eq!(counters.total(), 140);
    assert_eq!(counters.total_without_moves(), 132);
    assert_eq!((counters.barriers, counters.blocks), (2, 2));
    let hottest = &report.hot_lines[0];
    assert_eq!(
        (hottest.warp_instructions, hottest.instruction.as_str()),
        (40, "add.u32")
    );
    let sum: u64 = report.hot_lines.iter().map(|l| l.warp_instructions).sum();
    assert_eq!(sum, 140);
}
