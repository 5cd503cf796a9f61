//! Per-thread working memory of an item: queries and running states. Its size follows from the
//! configuration alone.

use super::exp2::exp2_one;
use super::micro::Columns;
use super::tile::{MaxSum, QUAD};

/// A cache line, so that no vector straddles two.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Memory that a thread keeps from item to item.
#[derive(Default)]
pub(crate) struct Scratch {
    lines: Vec<Line>,
    states: Vec<MaxSum>,
}

/// Scratch memory laid out for one item of `rows` query heads.
pub(crate) struct Layout<'a> {
    /// `[rows, padded]`: queries times the scale.
    pub q: *mut f32,
    /// `[rows, padded]`: unnormalised sums of the chain that is being added.
    pub acc: *mut f32,
    /// `[rows, padded]`: sums of the chains that have ended.
    total: *mut f32,
    /// `[kv heads, quads]`: states of `acc`.
    pub states: &'a mut [MaxSum],
    /// `[kv heads, quads]`: states of `total`.
    total_states: &'a mut [MaxSum],
    rows: usize,
    group: usize,
    padded: usize,
}

impl Scratch {
    /// Room for `rows` query heads, a multiple of `group`, with zero sums.
    pub(crate) fn prepare(&mut self, rows: usize, group: usize, columns: &Columns) -> Layout<'_> {
        let row_lines = columns.padded.div_ceil(16);
        let part = rows * row_lines;
        self.lines.clear();
        self.lines.resize(3 * part, Line([0.0; 16]));
        let quads = rows / group * group.div_ceil(QUAD);
        self.states.clear();
        self.states.resize(2 * quads, MaxSum::EMPTY);
        let (states, total_states) = self.states.split_at_mut(quads);
        let q = self.lines.as_mut_ptr().cast::<f32>();
        Layout {
            q,
            acc: q.wrapping_add(part * 16),
            total: q.wrapping_add(2 * part * 16),
            states,
            total_states,
            rows,
            group,
            padded: columns.padded,
        }
    }
}

impl Layout<'_> {
    /// (maximum, denominator) of a row, see [`quad_of`].
    pub(crate) fn state(&self, row: usize) -> (f32, f32) {
        let (quad, lane) = quad_of(row, self.group);
        (self.states[quad].m[lane], self.states[quad].l[lane])
    }

    /// A row's sums.
    pub(crate) fn row(&self, row: usize) -> &[f32] {
        assert!(row < self.rows);
        // SAFETY: `prepare` made room for `rows` rows, and nothing else refers to them meanwhile.
        unsafe { std::slice::from_raw_parts(self.acc.add(row * self.padded), self.padded) }
    }

    /// Ends the chain: merges the running state into the total and starts an empty one.
    pub(crate) fn fold(&mut self) {
        for row in 0..self.rows {
            let (quad, lane) = quad_of(row, self.group);
            let (m, l) = (self.states[quad].m[lane], self.states[quad].l[lane]);
            let old = &mut self.total_states[quad];
            let (old_m, old_l) = (old.m[lane], old.l[lane]);
            // SAFETY: `prepare` made room for `rows` rows of each, and nothing else refers to them.
            let (acc, total) = unsafe {
                (
                    std::slice::from_raw_parts_mut(self.acc.add(row * self.padded), self.padded),
                    std::slice::from_raw_parts_mut(self.total.add(row * self.padded), self.padded),
                )
            };
            if old_l == 0.0 {
                // Merging with an empty state changes no bit.
                total.copy_from_slice(acc);
                (old.m[lane], old.l[lane]) = (m, l);
            } else {
                let max = if m > old_m { m } else { old_m };
                let (scale, old_scale) = (exp2_one(m - max), exp2_one(old_m - max));
                for (total, acc) in total.iter_mut().zip(&*acc) {
                    *total = *total * old_scale + acc * scale;
                }
                (old.m[lane], old.l[lane]) = (max, old_l * old_scale + l * scale);
            }
            acc.fill(0.0);
        }
        self.states.fill(MaxSum::EMPTY);
    }

    /// Makes the total the running state, at the end of an item that folded.
    pub(crate) fn take_total(&mut self) {
        std::mem::swap(&mut self.acc, &mut self.total);
        self.states.copy_from_slice(self.total_states);
    }
}

/// Where a row's state stands: (quad, lane). Groups start new quads.
fn quad_of(row: usize, group: usize) -> (usize, usize) {
    let (kv_head, head) = (row / group, row % group);
    (kv_head * group.div_ceil(QUAD) + head / QUAD, head % QUAD)
}
