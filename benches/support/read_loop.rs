//! What decode is measured against: a plain read of the same bytes and a loop of multiply-adds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use paged_attention::cpu::InstructionSet;

/// Runs `work(thread)` on every thread of the pool and returns the time until the last has ended.
pub fn on_all_threads(work: impl Fn(usize) + Sync) -> Duration {
    let threads = rayon::current_num_threads();
    let start = Instant::now();
    rayon::in_place_scope(|scope| {
        let work = &work;
        for thread in 1..threads {
            scope.spawn(move |_| work(thread));
        }
        work(0);
    });
    start.elapsed()
}

/// Reads every byte of `buffers` once, each thread its own stretch of each buffer.
pub fn read(set: InstructionSet, buffers: &[&[u8]]) -> Duration {
    let threads = rayon::current_num_threads();
    on_all_threads(|thread| {
        for buffer in buffers {
            let share = buffer.len().div_ceil(threads).next_multiple_of(4096);
            let start = (thread * share).min(buffer.len());
            let end = (start + share).min(buffer.len());
            black_box(sum(set, &buffer[start..end]));
        }
    })
}

fn sum(set: InstructionSet, bytes: &[u8]) -> u64 {
    match set {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `set` is one that `InstructionSet::detect` found.
        InstructionSet::Avx512 => unsafe { sum_avx512(bytes) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        InstructionSet::Avx2 => unsafe { sum_avx2(bytes) },
        _ => sum_words(bytes),
    }
}

/// Sums 64-bit words in 32 independent chains: the compiler makes vector loads and adds of it.
#[inline(always)]
fn sum_words(bytes: &[u8]) -> u64 {
    let mut sums = [0u64; 32];
    // SAFETY: any bit pattern is a u64.
    let (_, words, _) = unsafe { bytes.align_to::<u64>() };
    for words in words.chunks_exact(32) {
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(bytes: &[u8]) -> u64 {
    sum_words(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn sum_avx512(bytes: &[u8]) -> u64 {
    sum_words(bytes)
}

/// f32 multiply-adds per second of all threads together.
pub fn multiply_adds_per_second(set: InstructionSet) -> f64 {
    const STEPS: usize = 2_000_000;
    let per_step = CHAINS * lanes(set);
    let time = on_all_threads(|_| {
        black_box(match set {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `set` is one that `InstructionSet::detect` found.
            InstructionSet::Avx512 => unsafe { chains_avx512(STEPS, black_box(0.5)) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            InstructionSet::Avx2 => unsafe { chains_avx2(STEPS, black_box(0.5)) },
            _ => chains_portable(STEPS, black_box(0.5)),
        });
    });
    (rayon::current_num_threads() * STEPS * per_step) as f64 / time.as_secs_f64()
}

/// Independent chains, enough to hide the latency of two units.
const CHAINS: usize = 12;

fn lanes(set: InstructionSet) -> usize {
    match set {
        InstructionSet::Avx512 => 16,
        InstructionSet::Avx2 => 8,
        _ => 4,
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn chains_avx512(steps: usize, x: f32) -> f32 {
    use std::arch::x86_64::*;
    let factor = _mm512_set1_ps(x);
    let mut sums = [factor; CHAINS];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, factor, factor);
        }
    }
    sums.into_iter().map(|sum| _mm512_cvtss_f32(sum)).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn chains_avx2(steps: usize, x: f32) -> f32 {
    use std::arch::x86_64::*;
    let factor = _mm256_set1_ps(x);
    let mut sums = [factor; CHAINS];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, factor, factor);
        }
    }
    sums.into_iter().map(|sum| _mm256_cvtss_f32(sum)).sum()
}

/// Multiplications and additions of 4 lanes: what every baseline has.
fn chains_portable(steps: usize, x: f32) -> f32 {
    let mut sums = [[x; 4]; CHAINS];
    for _ in 0..steps {
        for sum in &mut sums {
            for lane in sum {
                *lane = *lane * x + x;
            }
        }
    }
    sums.into_iter().flatten().sum()
}
