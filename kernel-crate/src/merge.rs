//! Merges the splits of one sequence and query head into its output row.
//!
//! Grid:   `(num_seqs, num_q_heads, 1)`.
//! Block:  128 threads. Splits go to the warps' lane rows in turn.
//! Shared: `merge_shared_bytes`: one state per lane row.
//! Reads:  `partial_out [num_seqs, num_q_heads, num_splits, D]` f32 and `partial_ml [.., 2]` of the
//!         live splits, `seq_lens [num_seqs]`. Writes: `out [num_seqs, num_q_heads, D]`, `lse`.
//!         A sequence with at most one live split was written by `decode` and is left alone.
//! Barriers: two, around the exchange of the states.
//! Numerics: f32; the weights are 2^(m_i - m).

use crate::abi::MergeArgs;
use crate::device::element::Element;
use crate::device::{math, memory, warp};
use crate::geometry::{LaneMap, WARP, WARPS};
use crate::offsets::{partial_index, row_offset};
use crate::softmax::{States, finite};
use crate::work::write_out;

/// The kernel's body; `COLS` = columns of the f32 lane map for `D`, `ROWS` its rows per step.
///
/// # Safety
/// - Grid, block and shared memory are `geometry`'s: `Plan` computes them, one place launches.
/// - The buffers are those that `decode` of the same plan wrote before on the same stream:
///   `Plan::launches` gives both launches the same addresses.
#[inline(always)]
pub unsafe fn merge<T: Element, const D: u32, const COLS: usize, const ROWS: u32>(
    args: &MergeArgs,
) {
    let map = const { LaneMap::new(D, 4) };
    let lane = warp::thread() % WARP;
    let warp = warp::thread() / WARP;
    let [seq, head, _] = warp::block();
    // SAFETY: `seq < num_seqs`.
    let len = unsafe { memory::load_i32(args.seq_lens + seq as u64 * 4) };
    let len = core::cmp::max(len, 0) as u32;
    if len <= args.split_tokens {
        return;
    }
    let splits = (len - 1).checked_div(args.split_tokens).unwrap_or(0) + 1;
    let first = partial_index(seq, head, 0, args.num_q_heads, args.num_splits);
    let lane_chunk = lane % map.lanes_per_row;

    let mut states = States::<1, COLS>::EMPTY;
    let mut base = warp * ROWS;
    while base < splits {
        let split = base + lane / map.lanes_per_row;
        let live = split < splits;
        // A row past the end looks at the last split again and gives it no weight.
        let index = first + core::cmp::min(split, splits - 1) as u64;
        // SAFETY: `decode` wrote this pair: the split is live.
        let [m, l] = unsafe { memory::load_f32x2(args.partial_ml + index * 8) };
        let m = if live { m } else { f32::NEG_INFINITY };
        let top = math::max(states.m[0], m);
        let decay = math::exp2(states.m[0] - finite(top));
        let weight = math::exp2(m - finite(top));
        states.m[0] = top;
        states.l[0] = math::fma(l, weight, states.l[0] * decay);
        for c in 0..map.chunks_per_lane {
            let chunk = lane_chunk + c * map.lanes_per_row;
            if chunk < map.chunks_per_row {
                // SAFETY: `decode` wrote this row.
                let raw = unsafe {
                    memory::load_16(args.partial_out + (index * D as u64 + chunk as u64 * 4) * 4)
                };
                for (i, &word) in raw.iter().enumerate() {
                    let acc = &mut states.acc[0][c as usize * 4 + i];
                    *acc = math::fma(f32::from_bits(word), weight, *acc * decay);
                }
            }
        }
        base += WARPS * ROWS;
    }

    // SAFETY: all threads are here; no copy is on its way.
    unsafe {
        states.merge::<D>(map, 1, |_, column, state| {
            let row = row_offset(seq, head, args.out_token_stride, args.out_head_stride);
            let index = seq as u64 * args.num_q_heads as u64 + head as u64;
            write_out::<T>([args.out, args.lse], row, index, column, state);
        });
    }
}
