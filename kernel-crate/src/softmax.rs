//! Partial softmax states and their merge.
//!
//! A state is (m, l, acc): the largest score so far in log2 units, the sum of 2^(x - m), and the
//! values weighted by the same terms. Two states merge by m = max(m1, m2),
//! l = l1 2^(m1-m) + l2 2^(m2-m), acc likewise. The empty state is (-inf, 0, 0); merging with it
//! changes no bit.

use crate::device::{math, memory, warp};
use crate::geometry::{LaneMap, StateArea, THREADS, WARPS};

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
    pub const EMPTY: Self = Self {
        m: [f32::NEG_INFINITY; H],
        l: [0.0; H],
        acc: [[0.0; COLS]; H],
    };

    /// Merges the CTA's lane rows through shared memory and hands each element of the result for
    /// the first `live` heads, `emit(head, column, [m, l, acc])`, to one thread.
    ///
    /// # Safety
    /// All threads of the CTA call it together; the dynamic shared memory holds the states'
    /// [`StateArea`] and no thread has a copy into it on its way.
    #[inline(always)]
    pub unsafe fn merge<const HEAD_DIM: u32>(
        &self,
        map: LaneMap,
        live: u32,
        emit: impl Fn(u32, u32, [f32; 3]),
    ) {
        let area = StateArea::of_lane_rows(map, HEAD_DIM, H as u32);
        let row = warp::thread() / map.lanes_per_row;
        let lane = warp::thread() % map.lanes_per_row;

        // SAFETY: all threads are here. Before the barrier other warps may still use this memory.
        unsafe { warp::barrier() };
        for h in 0..H {
            for c in 0..COLS / 4 {
                // A lane's chunks are `lanes_per_row` chunks apart.
                let quads = (map.chunk / 4) as usize;
                let chunk = lane + (c / quads) as u32 * map.lanes_per_row;
                if chunk < map.chunks_per_row {
                    let column = chunk * map.chunk + (c % quads) as u32 * 4;
                    let four = [0, 1, 2, 3].map(|i| self.acc[h][4 * c + i]);
                    let address = memory::dynamic_shared() + area.acc(row, h as u32, column);
                    // SAFETY: inside the area; this lane alone owns these columns.
                    unsafe { memory::shared_store_f32x4(address, four) };
                }
            }
            if lane == 0 {
                let address = memory::dynamic_shared() + area.pair(row, h as u32);
                // SAFETY: inside the area; lane 0 of the row alone writes it.
                unsafe { memory::shared_store_f32x2(address, [self.m[h], self.l[h]]) };
            }
        }
        // SAFETY: all threads are here, and every state stands in its place.
        unsafe {
            warp::barrier();
            combine::<HEAD_DIM>(area, WARPS * map.rows_per_step, live, emit);
        }
    }
}

/// Merges the rows of the first `live` heads in shared memory, each element in one thread.
///
/// # Safety
/// All threads of the CTA call it together, after a barrier behind the last write of a state.
#[inline(always)]
pub unsafe fn combine<const HEAD_DIM: u32>(
    area: StateArea,
    rows: u32,
    live: u32,
    emit: impl Fn(u32, u32, [f32; 3]),
) {
    let base = memory::dynamic_shared();
    let mut element = warp::thread();
    while element < live * HEAD_DIM {
        let (h, column) = (element / HEAD_DIM, element % HEAD_DIM);
        let mut top = f32::NEG_INFINITY;
        for row in 0..math::opaque(rows) {
            // SAFETY: every pair was written before the barrier.
            top = math::max(top, unsafe {
                memory::shared_load_f32(base + area.pair(row, h))
            });
        }
        let (mut l, mut acc) = (0.0, 0.0);
        for row in 0..math::opaque(rows) {
            // SAFETY: every state was written before the barrier.
            let (m_row, l_row, acc_row) = unsafe {
                (
                    memory::shared_load_f32(base + area.pair(row, h)),
                    memory::shared_load_f32(base + area.pair(row, h) + 4),
                    memory::shared_load_f32(base + area.acc(row, h, column)),
                )
            };
            let weight = math::exp2(m_row - finite(top));
            l = math::fma(l_row, weight, l);
            acc = math::fma(acc_row, weight, acc);
        }
        emit(h, column, [top, l, acc]);
        element += THREADS;
    }
}

/// The output element of a finished state: acc / l, and 0 for the empty state.
#[inline(always)]
pub fn normalise(l: f32, acc: f32) -> f32 {
    if l == 0.0 {
        0.0
    } else {
        acc * math::reciprocal(l)
    }
}

/// Natural log of the denominator: (m + log2 l) ln 2; -inf for the empty state.
#[inline(always)]
pub fn log_sum_exp(m: f32, l: f32) -> f32 {
    (m + math::log2(l)) * core::f32::consts::LN_2
}
