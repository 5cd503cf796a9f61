//! One work item: (sequence, range of kv heads, split), every query head of those kv heads.
//!
//! A row of K or V is read from memory once and serves its whole group from the cache. The order in
//! which heads and tiles of tokens alternate follows the layout; it changes no bit of any result.

use std::ops::Range;

use super::FOLD_TOKENS;
use super::convert::{round, widen};
use super::isa::Kernel;
use super::micro::Columns;
use super::prefetch::{Lines, Stretch};
use super::scratch::{Layout, Scratch};
use super::source::Source;
use super::tile::{Heads, Tile};
use crate::Element;

/// What all items of a call share. Pointers are those of validated views.
pub(crate) struct Job<'a, T, Src> {
    pub source: &'a Src,
    pub kernel: Kernel<T>,
    /// `[num_seqs, num_q_heads, head_dim]`, strides below.
    pub q: *const T,
    pub q_strides: (usize, usize),
    /// `[num_seqs, num_q_heads, head_dim]`, strides below.
    pub out: *mut T,
    pub out_strides: (usize, usize),
    /// `[num_seqs, num_q_heads]`, or null.
    pub lse: *mut f32,
    /// `[num_seqs, num_q_heads, num_splits, head_dim]`; null with one split.
    pub partial_out: *mut f32,
    /// `[num_seqs, num_q_heads, num_splits, 2]`; null with one split.
    pub partial_ml: *mut f32,
    pub seq_lens: &'a [i32],
    pub head_dim: usize,
    /// Tokens per tile; follows from the configuration alone.
    pub tile: usize,
    pub num_q_heads: usize,
    pub num_kv_heads: usize,
    pub group: usize,
    pub scale_log2: f32,
    pub split_tokens: usize,
    pub num_splits: usize,
}

// SAFETY: `q` is only read; items write to rows of `out`, `lse` and the partials that belong to
// their (sequence, heads, split) alone.
unsafe impl<T: Sync, Src: Sync> Sync for Job<'_, T, Src> {}

/// Which part of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub seq: usize,
    pub split: usize,
    /// First kv head.
    pub first_head: usize,
    /// kv heads, at least 1.
    pub heads: usize,
}

impl<T: Element, Src: Source<T>> Job<'_, T, Src> {
    pub(crate) fn len(&self, seq: usize) -> usize {
        self.seq_lens[seq] as usize
    }

    /// Splits of a sequence that hold a token.
    pub(crate) fn live_splits(&self, seq: usize) -> usize {
        self.len(seq).div_ceil(self.split_tokens)
    }
}

/// Computes `item`: writes out and lse where the sequence has at most one live split, else the
/// partial state.
///
/// # Safety
/// The CPU has `job.kernel`'s instruction set; `job`'s pointers are those of validated views. No other
/// item of the call has the same (sequence, head, split).
pub(crate) unsafe fn run_item<T, Src>(job: &Job<'_, T, Src>, item: Item, scratch: &mut Scratch)
where
    T: Element,
    Src: Source<T>,
{
    let columns = Columns::new(job.head_dim, job.kernel.lanes);
    let begin = item.split * job.split_tokens;
    let end = (begin + job.split_tokens).min(job.len(item.seq));
    let first_q = item.first_head * job.group;
    let rows = item.heads * job.group;
    let mut layout = scratch.prepare(rows, job.group, job.head_dim, &columns);
    // SAFETY: q is a validated view and `layout` holds `rows` rows; `begin..end` are live tokens.
    unsafe {
        for r in 0..rows {
            let at = item.seq * job.q_strides.0 + (first_q + r) * job.q_strides.1;
            widen(
                std::slice::from_raw_parts(job.q.add(at), job.head_dim),
                layout.row,
            );
            for x in &mut *layout.row {
                *x *= job.scale_log2;
            }
            layout.set_q(r);
        }
        attend(job, item, begin..end, &columns, &mut layout);
        finish(job, item, first_q, &mut layout);
    }
}

/// Attends to `tokens`, in chains of additions of [`FOLD_TOKENS`].
///
/// # Safety
/// As for [`run_item`]; `tokens` are live.
unsafe fn attend<T, Src>(
    job: &Job<'_, T, Src>,
    item: Item,
    tokens: Range<usize>,
    columns: &Columns,
    layout: &mut Layout<'_>,
) where
    T: Element,
    Src: Source<T>,
{
    let strides = job.source.head_strides();
    let stretch = |stride| Stretch {
        offset: item.first_head * stride,
        stride,
        heads: item.heads,
        head_dim: job.head_dim,
        run: job.source.run(),
    };
    let (k, v) = (stretch(strides.0), stretch(strides.1));
    let folds = tokens.len() > FOLD_TOKENS;
    // SAFETY: those tokens are live.
    let fill = |first: usize, tile: &mut Tile<T>| unsafe {
        tile.len = 0;
        if first < tokens.end {
            let len = job.tile.min(tokens.end - first);
            job.source.rows(item.seq, first, len, tile);
        }
    };
    let [mut tile, mut next] = [Tile::EMPTY, Tile::EMPTY];
    fill(tokens.start, &mut tile);
    let mut start = tokens.start;
    while start < tokens.end {
        let stop = start + tile.len;
        fill(stop, &mut next);
        let heads = Heads {
            q: layout.q.as_ptr(),
            acc: layout.acc.as_mut_ptr(),
            weights: layout.weights.as_mut_ptr(),
            states: layout.states.as_mut_ptr(),
            group: job.group,
            k,
            v,
        };
        // Single heads read in the order of addresses, which hardware prefetches.
        let (mut early, mut late) = if job.group == 1 {
            (Lines::beside(k), Lines::beside(v))
        } else {
            (
                Lines::new(&tile.v[..tile.len], v),
                Lines::new(&next.k[..next.len], k),
            )
        };
        // SAFETY: the caller's promise of the instruction set; the tile holds rows of live tokens,
        // `layout` rows and states of all heads.
        unsafe { (job.kernel.step)(&tile, &heads, columns, &mut early, &mut late) };
        if folds && ((stop - tokens.start).is_multiple_of(FOLD_TOKENS) || stop == tokens.end) {
            layout.fold();
        }
        std::mem::swap(&mut tile, &mut next);
        start = stop;
    }
    if folds {
        layout.take_total();
    }
}

/// Writes the rows of an item: the output where the sequence has no other split, else its part.
///
/// # Safety
/// As for [`run_item`]; `layout` holds the item's result.
unsafe fn finish<T, Src>(job: &Job<'_, T, Src>, item: Item, first_q: usize, layout: &mut Layout<'_>)
where
    T: Element,
    Src: Source<T>,
{
    let d = job.head_dim;
    for r in 0..item.heads * job.group {
        let (m, l) = layout.get_acc(r);
        let row = &mut *layout.row;
        let head = first_q + r;
        // SAFETY: out, lse and the workspace are validated for every (sequence, head, split), and
        // this item alone writes these.
        unsafe {
            if job.live_splits(item.seq) <= 1 {
                write_row(job, item.seq, head, m, l, row);
            } else {
                let at = (item.seq * job.num_q_heads + head) * job.num_splits + item.split;
                std::ptr::copy_nonoverlapping(row.as_ptr(), job.partial_out.add(at * d), d);
                *job.partial_ml.add(at * 2) = m;
                *job.partial_ml.add(at * 2 + 1) = l;
            }
        }
    }
}

/// Normalises a row and writes it and its lse; zeros and −∞ for a sequence without tokens.
///
/// # Safety
/// `job`'s pointers are valid; no one else writes this row.
pub(crate) unsafe fn write_row<T, Src>(
    job: &Job<'_, T, Src>,
    seq: usize,
    head: usize,
    m: f32,
    l: f32,
    row: &mut [f32],
) where
    T: Element,
    Src: Source<T>,
{
    // No token, or none with a score above -inf.
    let empty = l == 0.0;
    // SAFETY: the caller's promise.
    unsafe {
        let out = job
            .out
            .add(seq * job.out_strides.0 + head * job.out_strides.1);
        for x in &mut *row {
            *x = if empty { 0.0 } else { *x / l };
        }
        round(row, std::slice::from_raw_parts_mut(out, row.len()));
        if !job.lse.is_null() {
            let lse = (f64::from(m) + f64::from(l).log2()) * std::f64::consts::LN_2;
            let lse = if empty { f32::NEG_INFINITY } else { lse as f32 };
            *job.lse.add(seq * job.num_q_heads + head) = lse;
        }
    }
}
