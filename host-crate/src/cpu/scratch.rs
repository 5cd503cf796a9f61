//! Per-thread working memory of an item: queries, a tile's weights and running states. Its size
//! follows from the item's heads, never from its tokens.

use super::TILE;
use super::exp2::exp2_one;
use super::micro::Columns;
use super::tile::{MaxSum, QUAD, padded_group};

/// A cache line, so that no vector straddles two.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Memory that a thread keeps from item to item.
#[derive(Default)]
pub(crate) struct Scratch {
    lines: Vec<Line>,
    states: Vec<MaxSum>,
    row: Vec<f32>,
    weights: Vec<Line>,
}

/// Scratch memory laid out for one item.
///
/// The query heads of a kv head form quads; a group of 4n + 1 ends in a single one. Within a quad
/// the vectors of a column stand side by side, `[vectors, 4, lanes]`, so that one pointer serves
/// the inner loops; that of a single head is `[vectors, 1, lanes]`.
pub(crate) struct Layout<'a> {
    /// Queries times the scale.
    pub q: &'a mut [f32],
    /// Unnormalised sums of the chain that is being added.
    pub acc: &'a mut [f32],
    /// Sums of the chains that have ended.
    total: &'a mut [f32],
    /// `[kv heads, quads]`: states of `acc`.
    pub states: &'a mut [MaxSum],
    /// `[kv heads, quads]`: states of `total`.
    total_states: &'a mut [MaxSum],
    /// One row, `[head_dim]`.
    pub row: &'a mut [f32],
    /// Scores and weights of a tile, as [`super::tile::Heads`] says.
    pub weights: &'a mut [f32],
    rows: usize,
    group: usize,
    columns: Columns,
}

/// Where the vectors of a row stand.
struct Place {
    /// State of its quad.
    quad: usize,
    /// Which head of the quad it is.
    lane: usize,
    /// First vector.
    start: usize,
    /// From one vector to the next.
    step: usize,
}

impl Scratch {
    /// Room for `rows` query heads, a multiple of `group`, with zero sums.
    pub(crate) fn prepare(
        &mut self,
        rows: usize,
        group: usize,
        head_dim: usize,
        columns: &Columns,
    ) -> Layout<'_> {
        let part = (rows / group * padded_group(group) * columns.padded()).next_multiple_of(16);
        self.lines.resize(3 * part / 16, Line([0.0; 16]));
        let quads = rows / group * group.div_ceil(QUAD);
        self.states.clear();
        self.states.resize(2 * quads, MaxSum::EMPTY);
        self.row.resize(head_dim, 0.0);
        let weights = rows / group * padded_group(group) * TILE;
        self.weights.resize(weights / 16, Line([0.0; 16]));

        let (states, total_states) = self.states.split_at_mut(quads);
        // SAFETY: a line is 16 f32 without padding.
        let lines = unsafe {
            std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast::<f32>(), 3 * part)
        };
        // SAFETY: likewise; `weights` is a multiple of 16, as TILE is.
        let weights = unsafe {
            std::slice::from_raw_parts_mut(self.weights.as_mut_ptr().cast::<f32>(), weights)
        };
        let (q, sums) = lines.split_at_mut(part);
        let (acc, total) = sums.split_at_mut(part);
        // Lanes past a row's end must not hold a NaN; totals are written before they are read.
        q.fill(0.0);
        acc.fill(0.0);
        let (row, columns) = (&mut self.row[..], *columns);
        Layout {
            q,
            acc,
            total,
            states,
            total_states,
            row,
            weights,
            rows,
            group,
            columns,
        }
    }
}

impl Layout<'_> {
    fn place(&self, row: usize) -> Place {
        let (kv_head, head) = (row / self.group, row % self.group);
        let (quad, lane) = (head / QUAD, head % QUAD);
        let lanes = self.columns.lanes;
        let single = self.group - quad * QUAD == 1;
        let first = kv_head * padded_group(self.group) * self.columns.padded();
        Place {
            quad: kv_head * self.group.div_ceil(QUAD) + quad,
            lane,
            start: first + quad * QUAD * self.columns.padded() + lane * lanes,
            step: if single { lanes } else { QUAD * lanes },
        }
    }

    /// Stores [`Layout::row`] as the query of `row`.
    pub(crate) fn set_q(&mut self, row: usize) {
        let Place { start, step, .. } = self.place(row);
        for (j, values) in self.row.chunks(self.columns.lanes).enumerate() {
            self.q[start + j * step..][..values.len()].copy_from_slice(values);
        }
    }

    /// Copies the sums of `row` to [`Layout::row`] and returns its maximum and denominator.
    pub(crate) fn get_acc(&mut self, row: usize) -> (f32, f32) {
        let Place {
            quad,
            lane,
            start,
            step,
        } = self.place(row);
        for (j, values) in self.row.chunks_mut(self.columns.lanes).enumerate() {
            values.copy_from_slice(&self.acc[start + j * step..][..values.len()]);
        }
        (self.states[quad].m[lane], self.states[quad].l[lane])
    }

    /// Ends the chain: merges the running state into the total and starts an empty one.
    pub(crate) fn fold(&mut self) {
        for row in 0..self.rows {
            let Place {
                quad,
                lane,
                start,
                step,
            } = self.place(row);
            let (m, l) = (self.states[quad].m[lane], self.states[quad].l[lane]);
            let old = &mut self.total_states[quad];
            let (old_m, old_l) = (old.m[lane], old.l[lane]);
            let max = if m > old_m { m } else { old_m };
            let base = max.max(f32::MIN);
            let (scale, old_scale) = (exp2_one(m - base), exp2_one(old_m - base));
            // Merging with an empty state changes no bit.
            let empty = old_l == 0.0;
            for j in 0..self.columns.vectors() {
                let at = start + j * step..start + j * step + self.columns.lanes;
                let total = &mut self.total[at.clone()];
                let acc = &self.acc[at];
                if empty {
                    total.copy_from_slice(acc);
                } else {
                    for (total, acc) in total.iter_mut().zip(acc) {
                        *total = *total * old_scale + acc * scale;
                    }
                }
            }
            (old.m[lane], old.l[lane]) = if empty {
                (m, l)
            } else {
                (max, old_l * old_scale + l * scale)
            };
        }
        self.acc.fill(0.0);
        self.states.fill(MaxSum::EMPTY);
    }

    /// Makes the total the running state, at the end of an item that folded.
    pub(crate) fn take_total(&mut self) {
        self.acc.copy_from_slice(self.total);
        self.states.copy_from_slice(self.total_states);
    }
}
