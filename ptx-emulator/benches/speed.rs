//! Warp instructions per second of the shipped decode kernels, on one host thread.
//!
//! Plain program (`harness = false`): best of several runs, with the result checked first.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use half::f16;
use paged_attention::emulator::{Emulator, upload};
use paged_attention::{
    AttentionConfig, BlockTable, CacheLayout, CacheView, DType, DecodeInputs, DeviceLimits,
    Element, Plan, RowsView, SplitPolicy,
};
use ptx_emulator::{Detectors, Memory, Options, Report};

const HEAD_DIM: usize = 128;
const BLOCK: usize = 16;
const TOKENS: usize = 2048;

fn main() {
    // One kernel that multiplies on tensor cores and one that does not.
    bench::<f16>(DType::F16);
    bench::<f32>(DType::F32);
}

/// One sequence, one kv head, eight query heads.
fn bench<T: Element>(dtype: DType) {
    let group = 8;
    let config = AttentionConfig::new(dtype, group, 1, HEAD_DIM, BLOCK);
    let limits = DeviceLimits::this_cpu();
    let policy = SplitPolicy::Tokens(512);
    let plan = Plan::new(&config, 1, TOKENS, policy, &limits).expect("a plan");
    let blocks = TOKENS / BLOCK;
    let wave = |i: usize| T::from_f32((i as f32 * 0.37).sin());
    let q: Vec<T> = (0..group * HEAD_DIM).map(wave).collect();
    let k: Vec<T> = (0..TOKENS * HEAD_DIM).map(wave).collect();
    // Constant values: the output must be that constant.
    let v = vec![T::from_f32(0.5); TOKENS * HEAD_DIM];
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
        let (mut best, mut merge) = (Duration::MAX, 0);
        for _ in 0..25 {
            let device = upload(&plan, &inputs, false).expect("memory");
            let start = clock();
            let reports = emulator.launch(&plan, &device, &options).expect("no fault");
            best = best.min(clock() - start);
            check::<T>(&device.memory, device.tensors.out.address, group * HEAD_DIM);
            report = reports.decode.expect("a decode launch");
            merge = reports.merge.map_or(0, |r| r.counters.total());
        }
        let total = report.counters.total() + merge;
        let rate = total as f64 / best.as_secs_f64() / 1e6;
        println!("{dtype:?}, {name:34} {rate:7.2} M warp instructions/s ({total} in {best:.2?})");
    }
    for (class, count) in &report.counters.warp_instructions {
        println!("  {class:14} {count:9}");
    }
}

/// All outputs are the constant value.
fn check<T: Element>(memory: &Memory, out: u64, count: usize) {
    let mut bytes = vec![0; count * size_of::<T>()];
    memory.read(out, &mut bytes).expect("inside");
    for bytes in bytes.chunks_exact(size_of::<T>()) {
        let found = match bytes {
            [a, b] => f16::from_le_bytes([*a, *b]).to_f32(),
            [a, b, c, d] => f32::from_le_bytes([*a, *b, *c, *d]),
            _ => unreachable!("elements have 2 or 4 bytes"),
        };
        assert!((found - 0.5).abs() < 1e-3, "found {found}");
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
