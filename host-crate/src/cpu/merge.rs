//! Combines the splits of one (sequence, query head) into its output row.

use super::exp2::exp2_one;
use super::item::{Job, write_row};
use super::source::Source;
use crate::Element;

/// Splits that are added in one chain; the sums of such runs are added in a second one.
const RUN: usize = 1024;

/// Merges the live splits of a sequence that has more than one: relative to the largest maximum, in
/// the splits' order. `sums` is working memory.
///
/// # Safety
/// `job`'s pointers are valid and every live split of the row has been written; no one else writes
/// this row.
pub(crate) unsafe fn merge_row<T, Src>(
    job: &Job<'_, T, Src>,
    seq: usize,
    head: usize,
    sums: &mut [Vec<f32>; 2],
) where
    T: Element,
    Src: Source<T>,
{
    let splits = job.live_splits(seq);
    let d = job.head_dim;
    let at = (seq * job.num_q_heads + head) * job.num_splits;
    // SAFETY: the caller's promise: rows at..at + splits are written.
    let (parts, states) = unsafe {
        (
            std::slice::from_raw_parts(job.partial_out.add(at * d), splits * d),
            std::slice::from_raw_parts(job.partial_ml.add(at * 2).cast::<[f32; 2]>(), splits),
        )
    };
    let max = states.iter().fold(
        f32::NEG_INFINITY,
        |max, s| if s[0] > max { s[0] } else { max },
    );

    // A split whose scores are all -inf has that maximum, and weighs nothing.
    let base = max.max(f32::MIN);

    let [total, run] = sums;
    total.clear();
    total.resize(d, 0.0);
    let mut total_l = 0.0;
    for (parts, states) in parts.chunks(RUN * d).zip(states.chunks(RUN)) {
        run.clear();
        run.resize(d, 0.0);
        let mut run_l = 0.0;
        for (part, &[m, l]) in parts.chunks_exact(d).zip(states) {
            let weight = exp2_one(m - base);
            run_l += l * weight;
            for (sum, x) in run.iter_mut().zip(part) {
                *sum += x * weight;
            }
        }
        total_l += run_l;
        for (sum, x) in total.iter_mut().zip(&*run) {
            *sum += x;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { write_row(job, seq, head, max, total_l, total) }
}
