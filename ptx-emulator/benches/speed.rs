//! Warp instructions per second of the shipped decode kernels, on one host thread.
//!
//! Plain program (`harness = false`): best of several runs, with the result checked first.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use half::f16;
use paged_attention::emulator::{Emulator, upload};
use paged_attention::{
    AttentionConfig, BlockTable, CacheLayout, CacheView, DType, DecodeInputs, DeviceLimits, Plan,
    RowsView, SplitPolicy,
};
use ptx_emulator::{Detectors, Options, Report};

const HEAD_DIM: usize = 128;
const BLOCK: usize = 16;
const TOKENS: usize = 2048;

fn main() {
    for group in [1, 8] {
        bench(group);
    }
}

/// One sequence, one kv head, `group` query heads.
fn bench(group: usize) {
    let config = AttentionConfig::new(DType::F16, group, 1, HEAD_DIM, BLOCK);
    let limits = DeviceLimits::this_cpu();
    let policy = SplitPolicy::Tokens(512);
    let plan = Plan::new(&config, 1, TOKENS, policy, &limits).expect("a plan");
    let blocks = TOKENS / BLOCK;
    let wave = |i: usize| f16::from_f32((i as f32 * 0.37).sin());
    let q: Vec<f16> = (0..group * HEAD_DIM).map(wave).collect();
    let k: Vec<f16> = (0..TOKENS * HEAD_DIM).map(wave).collect();
    // Constant values: the output must be that constant.
    let v = vec![f16::from_f32(0.5); TOKENS * HEAD_DIM];
    let table: Vec<i32> = (0..blocks as i32).rev().collect();
    let inputs = DecodeInputs {
        q: RowsView::contiguous(&q, 1, group, HEAD_DIM),
        k_cache: CacheView::dense(&k, CacheLayout::Nhd, blocks, BLOCK, 1, HEAD_DIM),
        v_cache: CacheView::dense(&v, CacheLayout::Nhd, blocks, BLOCK, 1, HEAD_DIM),
        block_table: BlockTable::new(&table, 1, blocks),
        seq_lens: &[TOKENS as i32],
    };
    let emulator = Emulator::embedded();
    let mut report = Report::default();
    for (name, detectors, count_memory) in [
        (
            "detectors off, memory not counted",
            Detectors::none(),
            false,
        ),
        ("detectors off", Detectors::none(), true),
        ("all detectors on", Detectors::all(), true),
    ] {
        let options = Options {
            detectors,
            count_memory,
            threads: Some(1),
            ..Options::default()
        };
        let mut best = Duration::MAX;
        for _ in 0..25 {
            let device = upload(&plan, &inputs, false).expect("memory");
            let start = clock();
            let reports = emulator.launch(&plan, &device, &options).expect("no fault");
            best = best.min(clock() - start);
            let mut row = vec![0; group * HEAD_DIM * 2];
            device
                .memory
                .read(device.tensors.out.address, &mut row)
                .expect("inside");
            for bytes in row.chunks_exact(2) {
                let found = f16::from_le_bytes([bytes[0], bytes[1]]);
                assert!((found.to_f32() - 0.5).abs() < 1e-3, "found {found}");
            }
            report = reports.decode.expect("a decode launch");
            let merge = reports.merge.map_or(0, |r| r.counters.total());
            report
                .counters
                .warp_instructions
                .insert(ptx_emulator::Class::Other, merge);
        }
        let total = report.counters.total();
        let rate = total as f64 / best.as_secs_f64() / 1e6;
        println!(
            "group {group}, {name:34} {rate:7.2} M warp instructions/s ({total} in {best:.2?})"
        );
    }
    for (class, count) in &report.counters.warp_instructions {
        println!("  {class:14} {count:9}");
    }
}

/// Time that this thread has had a processor, where the system says so, else the time of day: a
/// busy machine should not make the emulator look slow.
fn clock() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .map_or_else(|| START.elapsed(), Duration::from_nanos)
}
