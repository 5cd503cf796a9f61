//! Paged decode attention on CUDA cores: one query token per sequence against its cached keys.
//!
//! Grid:   `(num_seqs, num_kv_heads * head_tiles, num_splits)`; a CTA serves one sequence, one kv
//!         head, one split of `split_tokens` tokens and `H` query heads of the group.
//! Block:  128 threads. Units of 16 tokens go to the 4 warps in turn.
//! Shared: `decode_shared_bytes`: a ring of 2 stages per warp, then one state per lane row and head.
//! Reads:  `q [num_seqs, num_q_heads, D]`, live slots of `k_cache` and `v_cache`, live entries of
//!         `block_table`, `seq_lens [num_seqs]`. Writes: `out` and `lse`, or with more than one
//!         live split `partial_out [num_seqs, num_q_heads, num_splits, D]` and `partial_ml [.., 2]`.
//! Barriers: two, around the exchange of the states. The ring needs none: a lane reads back
//!         exactly the bytes that it copied.
//! Numerics: all f32; scores in log2 units; one online softmax per lane row, merged at the end.

use crate::abi::DecodeArgs;
use crate::device::element::Element;
use crate::device::{math, memory, warp};
use crate::geometry::{LaneMap, STAGES, UNIT_TOKENS, WARP};
use crate::offsets::row_offset;
use crate::softmax::{States, finite};
use crate::tokens::{LaneSlice, TokenSource, UNIT_STRIDE};
use crate::work::Work;

/// The kernel's body.
///
/// `COLS`, `STEPS` and `ROWS` are the `columns`, `steps` and `rows_per_step` of the `LaneMap`: const
/// parameters because array lengths depend on them. `BATCH` steps, a divisor of `STEPS`, share one
/// update of the softmax.
///
/// # Safety
/// - Grid, block and shared memory are `geometry`'s: `Plan` computes them, one place launches.
/// - Addresses and strides are multiples of 16 bytes, none is null: `Plan::check_device_tensors`.
/// - The buffers reach as far as the shapes and strides say, live table entries name blocks of the
///   pool, lengths fit the table's width: `Plan::validate` for tensors on the host and for the safe
///   device types; the caller of the raw interface for raw addresses.
/// - Nothing else reads or writes the outputs and the workspace meanwhile: the caller, who lends
///   them mutably.
#[inline(always)]
pub unsafe fn decode<
    T: Element,
    S: TokenSource,
    const D: u32,
    const COLS: usize,
    const H: usize,
    const STEPS: u32,
    const BATCH: usize,
    const ROWS: u32,
>(
    args: &DecodeArgs,
) {
    let bytes = const { T::DTYPE.bytes() };
    let map = const { LaneMap::new(D, T::DTYPE.bytes()) };
    let lane = warp::thread() % WARP;
    let warp = warp::thread() / WARP;
    // SAFETY: by this function's contract.
    let Some(work) = (unsafe { Work::new(args, H as u32) }) else {
        return;
    };
    let end = work.end;

    let lane_row = lane / map.lanes_per_row;
    let lane_chunk = lane % map.lanes_per_row;
    let reads_chunk = |c: u32| lane_chunk + c * map.lanes_per_row < map.chunks_per_row;

    // Queries in log2 units: [H][COLS] of this lane. Heads past the group repeat the last one.
    let mut q = [[0f32; COLS]; H];
    for h in 0..H {
        let head = work.first_head + core::cmp::min(h as u32, work.heads - 1);
        let row = row_offset(work.seq, head, args.q_token_stride, args.q_head_stride);
        for c in 0..map.chunks_per_lane {
            if reads_chunk(c) {
                let column = (lane_chunk + c * map.lanes_per_row) * map.chunk;
                let address = args
                    .q
                    .wrapping_add(((row + column as i64) * bytes as i64) as u64);
                // SAFETY: a chunk inside the query row.
                let raw = unsafe { memory::load_16(address) };
                unpack::<T, COLS>(raw, c, &mut q[h]);
            }
        }
        for value in &mut q[h] {
            *value *= args.scale_log2;
        }
    }

    // This warp's ring: [STAGES][K, V][STEPS][chunks_per_lane][WARP] chunks of 16 bytes.
    let stage_bytes = map.stage_bytes();
    let ring = memory::dynamic_shared() + warp * (STAGES * 2 * stage_bytes) + lane * 16;
    let slice = LaneSlice {
        row: lane_row,
        column: lane_chunk * map.chunk,
        bytes,
    };

    let tile_tokens = ROWS * STEPS;
    // Token of the next tile to copy, and of the tile to compute.
    let mut copy_unit = work.begin + warp * UNIT_TOKENS;
    let mut copy_row = 0;
    let mut token = copy_unit;
    let mut stage = 0;
    let mut states = States::<H, COLS>::EMPTY;
    // SAFETY: by this function's contract; all lanes are here.
    let mut source = unsafe { S::new(args, work.seq, work.kv_head, slice, copy_unit, end) };
    let mut started = false;
    // `end` is 0 for the empty sequence: no unit starts before it.
    while token < end {
        if copy_unit < end {
            let base = ring + stage * (2 * stage_bytes);
            let first = copy_unit + copy_row + lane_row;
            let copy = |step: u32, k: u64, v: u64| {
                let live = first + step * ROWS < end;
                for c in 0..map.chunks_per_lane {
                    let to = base + (step * map.chunks_per_lane + c) * (WARP * 16);
                    let ahead = (c * map.lanes_per_row * 16) as u64;
                    let live = live && reads_chunk(c);
                    // SAFETY: this lane's place in the ring; a live row's chunk, or no read.
                    unsafe {
                        memory::copy_async_16(to, k + ahead, live);
                        memory::copy_async_16(to + stage_bytes, v + ahead, live);
                    }
                }
            };
            // SAFETY: `copy_unit` and `end` are the warp's, so all lanes are here.
            unsafe { source.tile::<STEPS, ROWS>(copy_unit, copy_row, copy) };
            copy_row += tile_tokens;
            if copy_row == UNIT_TOKENS {
                copy_row = 0;
                copy_unit += UNIT_STRIDE;
            }
        }
        memory::copy_commit();
        const { assert!(STAGES == 2) };
        stage ^= 1;
        if !started {
            started = true;
            continue;
        }
        memory::copy_wait::<{ STAGES - 1 }>();
        let base = ring + stage * (2 * stage_bytes);
        for batch in 0..math::opaque(STEPS / BATCH as u32) {
            let first = batch * BATCH as u32;
            let base = base + first * (map.chunks_per_lane * WARP * 16);
            let token = token + lane_row + first * ROWS;
            // SAFETY: the tile's copies by this lane have arrived; all lanes are here.
            unsafe { compute::<T, COLS, H, BATCH, ROWS>(map, base, token, end, &q, &mut states) };
        }
        token += tile_tokens;
        if (token - work.begin).is_multiple_of(UNIT_TOKENS) {
            token += UNIT_STRIDE - UNIT_TOKENS;
        }
    }
    memory::copy_wait::<0>();

    // SAFETY: all threads are here; no copy is on its way; one thread emits each element.
    unsafe {
        states.merge::<D>(map, work.heads, |h, column, state| {
            work.write::<T, D>(args, h, column, state);
        });
    }
}

/// One batch: scores of `ROWS * BATCH` tokens, the softmax update, and the weighted values.
///
/// # Safety
/// All lanes of the warp call it together, and this lane's chunks at `base` have arrived.
#[inline(always)]
unsafe fn compute<
    T: Element,
    const COLS: usize,
    const H: usize,
    const BATCH: usize,
    const ROWS: u32,
>(
    map: LaneMap,
    base: u32,
    token: u32,
    end: u32,
    q: &[[f32; COLS]; H],
    states: &mut States<H, COLS>,
) {
    let load = |at: u32, step: usize| {
        let mut row = [0f32; COLS];
        for c in 0..map.chunks_per_lane {
            let address = at + (step as u32 * map.chunks_per_lane + c) * (WARP * 16);
            // SAFETY: by this function's contract.
            let raw = unsafe { memory::shared_load_16(address) };
            unpack::<T, COLS>(raw, c, &mut row);
        }
        row
    };

    let mut scores = [[0f32; H]; BATCH];
    for s in 0..BATCH {
        let k = load(base, s);
        for h in 0..H {
            let mut sum = 0.0;
            for c in 0..COLS {
                sum = math::fma(q[h][c], k[c], sum);
            }
            scores[s][h] = sum;
        }
    }
    for s in 0..BATCH {
        for score in &mut scores[s] {
            let mut distance = map.lanes_per_row / 2;
            while distance > 0 {
                // SAFETY: all lanes are here, by this function's contract.
                *score += unsafe { warp::shuffle_xor(*score, distance) };
                distance /= 2;
            }
        }
    }
    // Behind the last shuffle: a compiler may copy what follows a branch into both of its sides, and
    // rows differ in their lanes' answer here.
    for s in 0..BATCH {
        if token + s as u32 * ROWS >= end {
            scores[s] = [f32::NEG_INFINITY; H];
        }
    }
    for h in 0..H {
        let mut top = states.m[h];
        for s in 0..BATCH {
            top = math::max(top, scores[s][h]);
        }
        let base = finite(top);
        let decay = math::exp2(states.m[h] - base);
        states.m[h] = top;
        states.l[h] *= decay;
        for c in 0..COLS {
            states.acc[h][c] *= decay;
        }
        for s in 0..BATCH {
            scores[s][h] = math::exp2(scores[s][h] - base);
            states.l[h] += scores[s][h];
        }
    }
    for s in 0..BATCH {
        let v = load(base + map.stage_bytes(), s);
        for h in 0..H {
            for c in 0..COLS {
                states.acc[h][c] = math::fma(scores[s][h], v[c], states.acc[h][c]);
            }
        }
    }
}

/// Chunk `c` of a lane's row from its 16 raw bytes.
#[inline(always)]
fn unpack<T: Element, const COLS: usize>(raw: [u32; 4], c: u32, row: &mut [f32; COLS]) {
    let per_word = const { 4 / T::DTYPE.bytes() } as usize;
    for (w, &word) in raw.iter().enumerate() {
        let values = T::unpack(word);
        for i in 0..per_word {
            row[(c as usize * 4 + w) * per_word + i] = values[i];
        }
    }
}
