//! What decode could reach at best: its reads and its multiply-adds, and nothing else of attention.

use std::time::Duration;

use paged_attention::cpu::InstructionSet;

/// Reads every block's keys, then its values, in the order of the table, and adds products of what it
/// has read, `per_byte` multiply-adds for each byte. Each block is read in the order of its addresses;
/// the lines of the one that comes next are asked for on the way. Each thread takes its own blocks.
/// `None` for instruction sets that have no such loop here.
///
/// `blocks: [num_blocks]`, keys and values in the order of the table.
pub fn overlapped(set: InstructionSet, blocks: &[[&[u8]; 2]], per_byte: f64) -> Option<Duration> {
    #[cfg(target_arch = "x86_64")]
    if set == InstructionSet::Avx2 {
        return Some(x86::overlapped(blocks, per_byte));
    }
    let _ = (set, blocks, per_byte);
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;
    use std::time::Duration;

    use crate::support::read_loop::on_all_threads;

    /// Bytes per turn of the loop: so many that the multiply-adds of every shape here are whole rounds
    /// of 12 chains of 8 lanes.
    const TURN: usize = 384;
    const LINE: usize = 64;
    /// Chains of multiply-adds, enough to hide their latency.
    const CHAINS: usize = 12;

    pub fn overlapped(blocks: &[[&[u8]; 2]], per_byte: f64) -> Duration {
        let share = blocks.len().div_ceil(rayon::current_num_threads());
        let rounds = (per_byte * TURN as f64 / (CHAINS * 8) as f64).ceil() as usize;
        on_all_threads(|thread| {
            let own = blocks.chunks(share).nth(thread);
            let pieces = own.map_or_else(Vec::new, <[[&[u8]; 2]]>::concat);
            for (i, piece) in pieces.iter().enumerate() {
                let next = pieces.get(i + 1).unwrap_or(piece);
                // SAFETY: the set is one that `InstructionSet::detect` found.
                black_box(unsafe { avx2(piece, next, rounds) });
            }
        })
    }

    /// Reads `piece`, with `rounds * CHAINS` multiply-adds of vectors per [`TURN`], and asks for `next`.
    /// What is left of a piece after whole turns is left out: at most 0.4 % of those here.
    #[target_feature(enable = "avx2,fma")]
    fn avx2(piece: &[u8], next: &[u8], rounds: usize) -> f32 {
        // Products are 0, as long as the bytes make finite numbers.
        let zero = _mm256_set1_ps(black_box(0.0));
        let mut sums = [zero; CHAINS];
        let mut read = _mm256_setzero_si256();
        for (piece, next) in piece.chunks_exact(TURN).zip(next.chunks_exact(TURN)) {
            let (piece, next) = (piece.as_ptr(), next.as_ptr());
            // SAFETY: both have TURN bytes; a prefetch takes any address.
            unsafe {
                for line in 0..TURN / LINE {
                    _mm_prefetch::<_MM_HINT_T1>(next.add(line * LINE).cast());
                }
                for factor in 0..rounds {
                    // Eight in turn touch every line.
                    let factor = _mm256_loadu_ps(piece.add(factor % 8 * (TURN / 8)).cast());
                    for sum in &mut sums {
                        *sum = _mm256_fmadd_ps(factor, zero, *sum);
                    }
                }
                if rounds < 8 {
                    for line in 0..TURN / LINE {
                        let line = _mm256_loadu_si256(piece.add(line * LINE).cast());
                        read = _mm256_or_si256(read, line);
                    }
                }
            }
        }
        let sums = sums
            .into_iter()
            .map(|sum| _mm256_cvtss_f32(sum))
            .sum::<f32>();
        sums + _mm256_cvtss_f32(_mm256_castsi256_ps(read))
    }
}
