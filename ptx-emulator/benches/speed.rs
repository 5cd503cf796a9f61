//! Warp instructions per second of the shipped f16 decode kernel, on one host thread.
//!
//! Plain program (`harness = false`): best of several runs, with the result checked first.

use std::path::Path;
use std::time::{Duration, Instant};

use paged_attention_kernels::abi::{DecodeArgs, block_shift};
use paged_attention_kernels::geometry::{self, THREADS};
use paged_attention_kernels::variants::DType;
use ptx_emulator::{Detectors, Launch, Memory, Module, Options};

const ENTRY: &str = "decode_f16_d128_h8";
const HEAD_DIM: u32 = 128;
const HEADS: u32 = 8;
const BLOCK: u32 = 16;
const TOKENS: u32 = 2048;
const SPLIT: u32 = 512;
const ONE_F16: [u8; 2] = 0x3c00u16.to_le_bytes();

fn main() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host-crate/ptx/f16_d128.ptx");
    let text = std::fs::read_to_string(&path).expect("the shipped f16, d 128 artefact");
    let start = Instant::now();
    let module = Module::parse(&text).expect("it loads");
    println!("load: {} bytes in {:.1?}", text.len(), start.elapsed());

    let memory = Memory::new();
    let row = u64::from(HEAD_DIM) * 2;
    let blocks = u64::from(TOKENS / BLOCK);
    let splits = TOKENS / SPLIT;
    let filled = |name: &str, bytes: u64, pattern: &[u8]| {
        let address = memory.alloc(bytes, 256, name).expect("memory");
        let content: Vec<u8> = pattern
            .iter()
            .copied()
            .cycle()
            .take(bytes as usize)
            .collect();
        memory.write(address, &content).expect("inside");
        address
    };
    let table: Vec<u8> = (0..blocks as i32)
        .rev()
        .flat_map(i32::to_le_bytes)
        .collect();
    let partials = u64::from(HEADS * splits) * 4;
    let partial_out = memory
        .alloc(partials * u64::from(HEAD_DIM), 256, "partial_out")
        .expect("memory");
    let args = DecodeArgs {
        q: filled("q", row * u64::from(HEADS), &ONE_F16),
        k_cache: filled(
            "k_cache",
            row * u64::from(TOKENS),
            &[0x12, 0x34, 0x56, 0x2c],
        ),
        v_cache: filled("v_cache", row * u64::from(TOKENS), &ONE_F16),
        block_table: filled("block_table", table.len() as u64, &table),
        seq_lens: filled("seq_lens", 4, &TOKENS.to_le_bytes()),
        out: memory
            .alloc(row * u64::from(HEADS), 256, "out")
            .expect("memory"),
        lse: 0,
        partial_out,
        partial_ml: memory
            .alloc(partials * 2, 256, "partial_ml")
            .expect("memory"),
        q_token_stride: i64::from(HEADS * HEAD_DIM),
        q_head_stride: HEAD_DIM.into(),
        out_token_stride: i64::from(HEADS * HEAD_DIM),
        out_head_stride: HEAD_DIM.into(),
        k_block_stride: i64::from(BLOCK * HEAD_DIM),
        k_token_stride: HEAD_DIM.into(),
        k_head_stride: HEAD_DIM.into(),
        v_block_stride: i64::from(BLOCK * HEAD_DIM),
        v_token_stride: HEAD_DIM.into(),
        v_head_stride: HEAD_DIM.into(),
        table_stride: blocks as i64,
        scale_log2: 0.1,
        num_q_heads: HEADS,
        group_size: HEADS,
        head_tiles: 1,
        block_size: BLOCK,
        block_shift: block_shift(BLOCK),
        split_tokens: SPLIT,
        num_splits: splits,
    };
    let launch = Launch {
        grid: [1, 1, splits],
        block: [THREADS, 1, 1],
        shared_bytes: geometry::decode_shared_bytes(DType::F16, HEAD_DIM, HEADS),
    };
    println!("{ENTRY}: {TOKENS} tokens, {splits} blocks of {THREADS} threads, one host thread");
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
        let mut instructions = 0;
        for _ in 0..7 {
            let start = Instant::now();
            let report = module.launch(&memory, ENTRY, launch, &args.to_bytes(), &options);
            best = best.min(start.elapsed());
            instructions = report.expect("no fault").counters.total();
        }
        check(&memory, &args, splits);
        let rate = instructions as f64 / best.as_secs_f64() / 1e6;
        println!("{name:34} {rate:7.2} M warp instructions/s ({instructions} in {best:.2?})");
    }
    let options = Options {
        hot_lines: true,
        threads: Some(1),
        ..Options::default()
    };
    let report = module.launch(&memory, ENTRY, launch, &args.to_bytes(), &options);
    let counters = report.expect("no fault").counters;
    for (class, count) in &counters.warp_instructions {
        println!("  {class:14} {count:9}");
    }
}

/// Values are all 1, so every partial output equals its denominator.
fn check(memory: &Memory, args: &DecodeArgs, splits: u32) {
    let read = |address: u64, index: u32| {
        let mut bytes = [0; 4];
        memory
            .read(address + 4 * u64::from(index), &mut bytes)
            .expect("inside");
        f32::from_le_bytes(bytes)
    };
    for state in 0..HEADS * splits {
        let denominator = read(args.partial_ml, 2 * state + 1);
        assert!(
            denominator.is_finite() && denominator >= 1.0,
            "state {state}: {denominator}"
        );
        for column in 0..HEAD_DIM {
            let out = read(args.partial_out, state * HEAD_DIM + column);
            let error = (out / denominator - 1.0).abs();
            assert!(
                error < 1e-5,
                "state {state}, column {column}: {out} / {denominator}"
            );
        }
    }
}
