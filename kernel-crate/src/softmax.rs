//! Partial softmax states and their merge.
//!
//! A state is (m, l, acc): the largest score so far in log2 units, the sum of 2^(x - m), and the
//! values weighted by the same terms. Two states merge by m = max(m1, m2),
//! l = l1 2^(m1-m) + l2 2^(m2-m), acc likewise. The empty state is (-inf, 0, 0); merging with it
//! changes no bit.

use crate::device::{math, memory, warp};
use crate::geometry::{LaneMap, THREADS, WARPS};

/// A finite stand-in for -inf, so that -inf minus it is -inf and not NaN.
#[inline(always)]
pub fn finite(m: f32) -> f32 {
    math::max(m, f32::MIN)
}

/// The states of `H` heads in one lane, `COLS` columns of the output each.
pub struct States<const H: usize, const COLS: usize> {
    pub m: [f32; H],
    pub l: [f32; H],
    pub acc: [[f32; COLS]; H],
}

impl<const H: usize, const COLS: usize> States<H, COLS> {
    pub const EMPTY: Self = Self { m: [f32::NEG_INFINITY; H], l: [0.0; H], acc: [[0.0; COLS]; H] };

    /// Merges the CTA's lane rows through shared memory and hands each element of the result,
    /// `emit(head, column, m, l, acc)`, to one thread.
    ///
    /// # Safety
    /// All threads of the CTA call it together; the dynamic shared memory holds
    /// `geometry::partial_bytes` and no thread has a copy into it on its way.
    #[inline(always)]
    pub unsafe fn merge<const HEAD_DIM: u32>(
        &self,
        map: LaneMap,
        emit: impl Fn(u32, u32, f32, f32, f32),
    ) {
        let heads = H as u32;
        let rows = WARPS * map.rows_per_step;
        // Shared: acc [rows][heads][HEAD_DIM], then (m, l) [rows][heads][2].
        let accs = memory::dynamic_shared();
        let pairs = accs + rows * heads * HEAD_DIM * 4;
        let row = warp::thread() / map.lanes_per_row;
        let lane = warp::thread() % map.lanes_per_row;

        // SAFETY: all threads are here. Before the barrier other warps may still use this memory.
        unsafe { warp::barrier() };
        for h in 0..H {
            let state = row * heads + h as u32;
            for c in 0..COLS / 4 {
                // A lane's chunks are `lanes_per_row` chunks apart.
                let quads = (map.chunk / 4) as usize;
                let chunk = lane + (c / quads) as u32 * map.lanes_per_row;
                if chunk < map.chunks_per_row {
                    let column = chunk * map.chunk + (c % quads) as u32 * 4;
                    let four = [0, 1, 2, 3].map(|i| self.acc[h][4 * c + i]);
                    // SAFETY: inside the states' area; this lane alone owns these columns.
                    unsafe { memory::shared_store_f32x4(accs + (state * HEAD_DIM + column) * 4, four) };
                }
            }
            if lane == 0 {
                // SAFETY: inside the pairs' area; lane 0 of the row alone writes it.
                unsafe { memory::shared_store_f32x2(pairs + state * 8, [self.m[h], self.l[h]]) };
            }
        }
        // SAFETY: all threads are here.
        unsafe { warp::barrier() };

        let mut element = warp::thread();
        while element < heads * HEAD_DIM {
            let (h, column) = (element / HEAD_DIM, element % HEAD_DIM);
            let pair = |row: u32| pairs + (row * heads + h) * 8;
            let mut top = f32::NEG_INFINITY;
            for row in 0..math::opaque(rows) {
                // SAFETY: every pair was written before the barrier.
                top = math::max(top, unsafe { memory::shared_load_f32(pair(row)) });
            }
            let (mut l, mut acc) = (0.0, 0.0);
            for row in 0..math::opaque(rows) {
                // SAFETY: every state was written before the barrier.
                let (m_row, l_row, acc_row) = unsafe {
                    (
                        memory::shared_load_f32(pair(row)),
                        memory::shared_load_f32(pair(row) + 4),
                        memory::shared_load_f32(accs + (row * heads * HEAD_DIM + element) * 4),
                    )
                };
                let weight = math::exp2(m_row - finite(top));
                l = math::fma(l_row, weight, l);
                acc = math::fma(acc_row, weight, acc);
            }
            emit(h, column, top, l, acc);
            element += THREADS;
        }
    }
}

/// The output element of a finished state: acc / l, and 0 for the empty state.
#[inline(always)]
pub fn normalise(l: f32, acc: f32) -> f32 {
    if l == 0.0 { 0.0 } else { acc * math::reciprocal(l) }
}

/// Natural log of the denominator: (m + log2 l) ln 2; -inf for the empty state.
#[inline(always)]
pub fn log_sum_exp(m: f32, l: f32) -> f32 {
    (m + math::log2(l)) * core::f32::consts::LN_2
}
