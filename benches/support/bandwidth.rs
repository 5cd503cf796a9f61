//! The paired measurement and its table.

use std::time::Instant;

use half::{bf16, f16};
use paged_attention::cpu::InstructionSet;
use paged_attention::{CacheLayout, Element};

use super::batch::{Batch, Shape};
use super::overlap::overlapped;
use super::read_loop::{multiply_adds_per_second, read};

/// Rounds of (read, multiply-add, decode, both at once).
const ROUNDS: usize = 21;
/// Calls per small shape.
const SMALL_ROUNDS: usize = 201;

pub fn main() {
    // Cargo passes `--bench`; every other argument selects the rows whose label contains it.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    let set = InstructionSet::detect();
    println!(
        "instruction set {}, threads {}",
        set.name(),
        rayon::current_num_threads()
    );
    println!("GB/s of K and V, medians of {ROUNDS} rounds; shares of the bound: medians of ratios");
    println!("loop: reads and multiply-adds of what was read, nothing else, on the same blocks");
    println!(
        "{:<34} {:>7} {:>7} {:>9} {:>7} {:>6} {:>6}",
        "shape", "decode", "read", "FMA limit", "bound", "share", "loop"
    );
    let mha = |ctx: usize, layout| Shape {
        seqs: (4 * 4096 / ctx).max(1),
        ctx,
        q_heads: 32,
        kv_heads: 32,
        head_dim: 128,
        block_size: 16,
        layout,
    };
    let gqa = |ctx: usize, layout| Shape {
        seqs: 4 * mha(ctx, layout).seqs,
        q_heads: 64,
        kv_heads: 8,
        ..mha(ctx, layout)
    };
    for layout in [CacheLayout::Nhd, CacheLayout::Hnd] {
        for (name, shape) in [
            ("MHA 32/32", mha(4096, layout)),
            ("GQA 64/8", gqa(4096, layout)),
        ] {
            let halved = Shape {
                seqs: shape.seqs / 2,
                ..shape
            };
            row::<f32>(&wanted, set, name, halved);
            row::<f16>(&wanted, set, name, shape);
            row::<bf16>(&wanted, set, name, shape);
        }
    }
    small(&wanted, set);
}

/// Time per call where starting threads could cost more than the work: all threads against one.
fn small(wanted: &[String], set: InstructionSet) {
    let label = |(seqs, ctx)| format!("small {seqs}x{ctx}");
    let shapes = [(1, 16), (1, 128), (1, 1024), (8, 128), (64, 16)];
    let shapes: Vec<_> = shapes
        .into_iter()
        .filter(|&shape| is_wanted(wanted, &label(shape)))
        .collect();
    if shapes.is_empty() {
        return;
    }
    println!("small contexts, GQA 32/8 f16 nhd, microseconds per call: medians of {SMALL_ROUNDS}");
    for (seqs, ctx) in shapes {
        let label = label((seqs, ctx));
        let shape = Shape {
            seqs,
            ctx,
            q_heads: 32,
            kv_heads: 8,
            head_dim: 128,
            block_size: 16,
            layout: CacheLayout::Nhd,
        };
        let mut batch = Batch::<f16>::new(shape);
        batch.verify(set);
        let all = median_micros(&mut batch, set);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .build()
            .unwrap();
        let one = pool.install(|| median_micros(&mut batch, set));
        println!("{label:<34} {all:>9.1} with all threads, {one:>9.1} with one");
    }
}

/// Whether a row's label contains every wanted text.
fn is_wanted(wanted: &[String], label: &str) -> bool {
    wanted.iter().all(|text| label.contains(text))
}

fn median_micros(batch: &mut Batch<f16>, set: InstructionSet) -> f64 {
    let mut times: Vec<f64> = (0..SMALL_ROUNDS)
        .map(|_| {
            let start = Instant::now();
            batch.decode(set);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn row<T: Element>(wanted: &[String], set: InstructionSet, name: &str, shape: Shape) {
    let layout = match shape.layout {
        CacheLayout::Nhd => "nhd",
        CacheLayout::Hnd => "hnd",
    };
    let Shape { seqs, ctx, .. } = shape;
    let label = format!("{name} {} {layout} {seqs}x{ctx}", T::DTYPE.name());
    if !is_wanted(wanted, &label) {
        return;
    }
    let mut batch = Batch::<T>::new(shape);
    batch.verify(set);

    let bytes = shape.bytes::<T>() as f64;
    // A K element is multiplied once per query head of its group, and so is a V element.
    let per_byte = (shape.q_heads / shape.kv_heads) as f64 / size_of::<T>() as f64;
    let mut samples = Samples::default();
    for _ in 0..ROUNDS {
        let time = read(set, &[batch.k.bytes(), batch.v.bytes()]);
        let read = bytes / time.as_secs_f64();
        let limit = multiply_adds_per_second(set) / per_byte;
        let start = Instant::now();
        batch.decode(set);
        let decode = bytes / start.elapsed().as_secs_f64();
        let time = overlapped(set, &batch.blocks(), per_byte);
        let both = time.map_or(f64::NAN, |time| bytes / time.as_secs_f64());
        samples.push(decode, read, limit, both);
    }
    let [decode, read, limit, bound, share, both] = samples.medians();
    println!(
        "{label:<34} {:>7.2} {:>7.2} {:>9.2} {:>7.2} {:>5.1}% {:>6}",
        decode / 1e9,
        read / 1e9,
        limit / 1e9,
        bound / 1e9,
        share * 100.0,
        if both.is_nan() {
            "-".into()
        } else {
            format!("{:.1}%", both * 100.0)
        }
    );
}

/// Columns: decode, read loop, multiply-add limit, bound (bytes per second), shares of the bound by
/// decode and by the loop that overlaps both.
#[derive(Default)]
struct Samples([Vec<f64>; 6]);

impl Samples {
    fn push(&mut self, decode: f64, read: f64, limit: f64, both: f64) {
        let bound = read.min(limit);
        let row = [decode, read, limit, bound, decode / bound, both / bound];
        for (column, x) in self.0.iter_mut().zip(row) {
            column.push(x);
        }
    }

    fn medians(self) -> [f64; 6] {
        self.0.map(|mut column| {
            column.sort_by(f64::total_cmp);
            column[column.len() / 2]
        })
    }
}
