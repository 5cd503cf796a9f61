//! Paged decode attention on tensor cores: up to 64 query heads of a group per read of K and V.
//!
//! Grid:   `(num_seqs, num_kv_heads * head_tiles, num_splits)`, a CTA as in `decode`.
//! Block:  4 warps: `head_warps` of them take 16 query heads each of the same tokens, the others
//!         other tokens. All copy: 64 tokens a stage, 16 by each warp.
//! Shared: `decode_shared_bytes`: a ring of 2 stages, then one state per token part and head.
//! Reads and writes: as `decode`.
//! Barriers: two per stage (of the warp if it reads only what it copied, else of the CTA), two
//!         around the exchange of the states.
//! Numerics: products exact, all sums f32; weights are rounded to the storage type for P·V, the
//!         denominator adds them unrounded.

use core::hint::cold_path;

use crate::abi::DecodeArgs;
use crate::device::mma::{MmaElement, load_matrices, load_matrices_transposed};
use crate::device::{math, memory, warp};
use crate::geometry::{MMA_ROWS, STAGES, StateArea, TileMap, UNIT_TOKENS, WARP, WARPS, head_warps};
use crate::offsets::row_offset;
use crate::softmax::{combine, finite};
use crate::tokens::{LaneSlice, TokenSource, UNIT_STRIDE};
use crate::work::Work;

/// A lane's part of 16 rows: maximum and denominator of rows g and g + 8, and the output's
/// fragments (`lane = 4 g + t`, see [`MmaElement::multiply_add`]).
struct Rows<const NT: usize> {
    m: [f32; 2],
    l: [f32; 2],
    out: [[f32; 4]; NT],
}

/// The kernel's body. `KT` = D / 16 products per score, `NT` = D / 8 output fragments; `STEPS` and
/// `ROWS` are the `steps` and `rows_per_step` of the `TileMap`.
///
/// # Safety
/// As for [`decode`](crate::decode::decode).
#[inline(always)]
pub unsafe fn decode_mma<
    T: MmaElement,
    S: TokenSource,
    const D: u32,
    const KT: usize,
    const NT: usize,
    const STEPS: u32,
    const ROWS: u32,
>(
    args: &DecodeArgs,
) {
    let map = const { TileMap::new(D) };
    let tile_bytes = const { TileMap::new(D).tile_bytes() };
    let lane = warp::thread() % WARP;
    let warp = warp::thread() / WARP;
    let head_warps = head_warps(args.group_size);
    // SAFETY: by this function's contract.
    let Some(work) = (unsafe { Work::new(args, head_warps * MMA_ROWS) }) else {
        return;
    };
    let end = work.end;

    // `head_warps` is 1, 2 or 4: its half is its logarithm.
    let head_part = (warp & (head_warps - 1)) * MMA_ROWS;
    let token_part = warp >> (head_warps / 2);
    let token_parts = WARPS >> (head_warps / 2);
    let (g, t) = (lane / 4, lane % 4);

    // SAFETY: by this function's contract.
    let q = unsafe { load_queries::<T, KT>(args, &work, head_part + g, t * 2) };
    let mut rows = Rows {
        m: [f32::NEG_INFINITY; 2],
        l: [0.0; 2],
        out: [[0f32; 4]; NT],
    };

    // Ring: [STAGES][WARPS][K, V][UNIT_TOKENS][row_bytes].
    let stage_bytes = WARPS * 2 * tile_bytes;
    let ring = memory::dynamic_shared();
    let (lane_row, lane_chunk) = (lane / map.lanes_per_row, lane % map.lanes_per_row);
    let slice = LaneSlice {
        row: lane_row,
        column: lane_chunk * 8,
        bytes: 2,
    };
    let copy_to = ring + warp * (2 * tile_bytes) + lane_row * map.row_bytes + lane_chunk * 16;
    // Row addresses of this lane for `load_matrices`, in the first tile of the ring.
    let k_row = ring + (lane % 8 + lane / 16 * 8) * map.row_bytes + lane / 8 % 2 * 16;
    let v_row = ring + tile_bytes + lane % 16 * map.row_bytes + lane / 16 * 16;

    let mut copy_unit = work.begin + warp * UNIT_TOKENS;
    let mut token = work.begin;
    let mut stage = 0;
    // SAFETY: by this function's contract; all lanes are here.
    let mut source = unsafe { S::new(args, work.seq, work.kv_head, slice, copy_unit, end) };
    let mut started = false;
    // Every warp of the CTA takes the same turns.
    while token < end {
        if copy_unit < end {
            let base = copy_to + stage * stage_bytes;
            let copy = |step: u32, k: u64, v: u64| {
                let live = copy_unit + lane_row + step * ROWS < end;
                for c in 0..map.chunks_per_lane {
                    let ahead = c * map.lanes_per_row * 16;
                    let to = base + step * ROWS * map.row_bytes + ahead;
                    // SAFETY: this lane's place in the ring, which no warp reads before the next
                    // barrier; a live row's chunk, or no read.
                    unsafe {
                        memory::copy_async_16(to, k + ahead as u64, live);
                        memory::copy_async_16(to + tile_bytes, v + ahead as u64, live);
                    }
                }
            };
            // SAFETY: `copy_unit` and `end` are the warp's, so all lanes are here.
            unsafe { source.tile::<STEPS, ROWS>(copy_unit, 0, copy) };
        }
        copy_unit += UNIT_STRIDE;
        memory::copy_commit();
        const { assert!(STAGES == 2) };
        stage ^= 1;
        if !started {
            cold_path();
            started = true;
            continue;
        }
        memory::copy_wait::<{ STAGES - 1 }>();
        // SAFETY: every warp of the CTA takes this turn.
        unsafe { order(head_warps) };
        for turn in 0..math::opaque(head_warps) {
            let part = token_part + turn * token_parts;
            let first = token + part * UNIT_TOKENS;
            let at = stage * stage_bytes + part * (2 * tile_bytes);
            if first < end {
                // SAFETY: the tile has arrived and is ordered; `first` is the warp's, so all lanes are here.
                unsafe {
                    compute::<T, KT, NT>(
                        args.scale_log2,
                        [k_row + at, v_row + at],
                        first,
                        end,
                        &q,
                        &mut rows,
                    )
                };
            }
        }
        // SAFETY: as above; the next turn's copies overwrite what was read here.
        unsafe { order(head_warps) };
        token += UNIT_STRIDE;
    }
    memory::copy_wait::<0>();

    let area = StateArea::of_mma(D, head_warps);
    // SAFETY: all threads are here; no copy is on its way; one thread emits each element.
    unsafe {
        for r in 0..2 {
            rows.l[r] += warp::shuffle_xor(rows.l[r], 1);
            rows.l[r] += warp::shuffle_xor(rows.l[r], 2);
        }
        warp::barrier();
        for r in 0..2 {
            let head = head_part + g + r as u32 * 8;
            if head < work.heads {
                for n in 0..NT {
                    let address = ring + area.acc(token_part, head, n as u32 * 8 + t * 2);
                    memory::shared_store_f32x2(
                        address,
                        [rows.out[n][2 * r], rows.out[n][2 * r + 1]],
                    );
                }
                if t == 0 {
                    memory::shared_store_f32x2(
                        ring + area.pair(token_part, head),
                        [rows.m[r], rows.l[r]],
                    );
                }
            }
        }
        warp::barrier();
        combine::<D>(area, token_parts, work.heads, |h, column, state| {
            work.write::<T, D>(args, h, column, state);
        });
    }
}

/// Orders what the warps copied before what they read, and the other way round.
///
/// # Safety
/// All threads of the CTA call it together.
#[inline(always)]
unsafe fn order(head_warps: u32) {
    // SAFETY: `head_warps` is the same for all threads, and all are here.
    unsafe {
        if head_warps == 1 {
            warp::synchronise();
        } else {
            cold_path();
            warp::barrier();
        }
    }
}

/// The A fragments of the queries: rows `head` and `head + 8` (counted from the work's first), 0
/// for heads that the work does not have.
///
/// # Safety
/// As for [`decode_mma`]; `column` is even.
#[inline(always)]
unsafe fn load_queries<T: MmaElement, const KT: usize>(
    args: &DecodeArgs,
    work: &Work,
    head: u32,
    column: u32,
) -> [[u32; 4]; KT] {
    let mut q = [[0u32; 4]; KT];
    for r in 0..2 {
        let head = head + r as u32 * 8;
        if head < work.heads {
            let row = row_offset(
                work.seq,
                work.first_head + head,
                args.q_token_stride,
                args.q_head_stride,
            );
            let address = args.q.wrapping_add(((row + column as i64) * 2) as u64);
            for k in 0..KT {
                // SAFETY: two elements inside the query row.
                unsafe {
                    q[k][r] = memory::load_4(address + k as u64 * 32);
                    q[k][r + 2] = memory::load_4(address + k as u64 * 32 + 16);
                }
            }
        }
    }
    q
}

/// 16 tokens from `first`: scores, the softmax update, and the weighted values.
///
/// # Safety
/// All lanes of the warp call it together; the tiles of K and V, this lane's rows of which are at
/// `k_row` and `v_row`, have arrived and are ordered before.
#[inline(always)]
unsafe fn compute<T: MmaElement, const KT: usize, const NT: usize>(
    scale_log2: f32,
    [k_row, v_row]: [u32; 2],
    first: u32,
    end: u32,
    q: &[[u32; 4]; KT],
    rows: &mut Rows<NT>,
) {
    // Scores: C fragments of tokens 0..8 and 8..16.
    let mut s = [[0f32; 4]; 2];
    for k in 0..KT {
        // SAFETY: by this function's contract.
        unsafe {
            let [b0, b1, b2, b3] = load_matrices(k_row + k as u32 * 32);
            T::multiply_add(&mut s[0], &q[k], [b0, b1]);
            T::multiply_add(&mut s[1], &q[k], [b2, b3]);
        }
    }
    for n in 0..2 {
        for j in 0..4 {
            s[n][j] *= scale_log2;
        }
    }
    // The last tile alone has dead tokens; `first` and `end` are the warp's.
    if first + UNIT_TOKENS > end {
        cold_path();
        let column = first + warp::thread() % 4 * 2;
        for n in 0..2 {
            for j in 0..4 {
                if column + n as u32 * 8 + (j as u32 & 1) >= end {
                    s[n][j] = f32::NEG_INFINITY;
                }
            }
        }
    }

    let mut decay = [0f32; 2];
    for r in 0..2 {
        let mut top = math::max(
            math::max(s[0][2 * r], s[0][2 * r + 1]),
            math::max(s[1][2 * r], s[1][2 * r + 1]),
        );
        // SAFETY: all lanes are here, by this function's contract.
        unsafe {
            top = math::max(top, warp::shuffle_xor(top, 1));
            top = math::max(top, warp::shuffle_xor(top, 2));
        }
        let top = math::max(rows.m[r], top);
        let base = finite(top);
        decay[r] = math::exp2(rows.m[r] - base);
        rows.m[r] = top;
        rows.l[r] *= decay[r];
        for n in 0..2 {
            for j in 2 * r..2 * r + 2 {
                s[n][j] = math::exp2(s[n][j] - base);
                rows.l[r] += s[n][j];
            }
        }
    }
    // Past the first tiles the maxima seldom move. A factor of 1 changes no bit.
    // SAFETY: all lanes are here, by this function's contract.
    if unsafe { warp::any(decay[0] != 1.0 || decay[1] != 1.0) } {
        for out in &mut rows.out {
            for j in 0..4 {
                out[j] *= decay[j / 2];
            }
        }
    }

    // The scores' C fragments, rounded and packed, are the A fragment of the weights.
    let p = [
        T::pack(s[0][0], s[0][1]),
        T::pack(s[0][2], s[0][3]),
        T::pack(s[1][0], s[1][1]),
        T::pack(s[1][2], s[1][3]),
    ];
    for n in 0..NT / 2 {
        // SAFETY: by this function's contract.
        unsafe {
            let [b0, b1, b2, b3] = load_matrices_transposed(v_row + n as u32 * 32);
            T::multiply_add(&mut rows.out[2 * n], &p, [b0, b1]);
            T::multiply_add(&mut rows.out[2 * n + 1], &p, [b2, b3]);
        }
    }
}
