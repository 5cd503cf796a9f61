//! `decode --check`: the result against the f64 reference, with a bound for every element.
//!
//! No bound is larger than what is true of any weights: an output element is a mean of its column of
//! V. Where rounding of the scores explains no less than that, the element counts as unresolved, and
//! is reported as such. A column of V that holds an infinity or a NaN is compared by class.

mod bounds;

use std::sync::atomic::{AtomicUsize, Ordering};

use paged_attention::kernels::variants::DecodeKind;
use paged_attention::reference::{self, Reference};
use paged_attention::{CacheView, DecodeInputs, Element, Error as LibraryError, Plan};

use self::bounds::{Bounds, Column, RowFacts};
use crate::batch::{Batch, Storage};
use crate::error::Error;
use crate::output::step_bar;

/// Unit roundoff of the f32 arithmetic that every back end does.
const U: f64 = 1.0 / (1u64 << 24) as f64;
const F32_MAX: f64 = f32::MAX as f64;

/// One element of a result and what it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    pub tensor: &'static str,
    pub index: Vec<usize>,
    pub found: f64,
    pub expected: f64,
    pub bound: Bound,
}

/// How far an element may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// What rounding explains; infinite where nothing can be derived.
    Rounding(f64),
    /// The reference is no number: nor must the element be, but an infinity times a weight that
    /// rounds to 0 is a NaN.
    Class,
}

impl Bound {
    /// The bound of `found`; none where f32 overflowed and may have.
    fn of(found: f64, bound: f64, may_overflow: bool) -> Self {
        match found.is_finite() || !may_overflow {
            true => Self::Rounding(bound),
            false => Self::Rounding(f64::INFINITY),
        }
    }
}

impl Deviation {
    /// The distance; 0 if both are the same, infinities and NaN included.
    pub fn error(&self) -> f64 {
        let no_numbers = !self.found.is_finite() && !self.expected.is_finite();
        let same = match self.bound {
            Bound::Class => no_numbers,
            Bound::Rounding(_) => {
                self.found == self.expected || (self.found.is_nan() && self.expected.is_nan())
            }
        };
        let distance = (self.found - self.expected).abs();
        match same {
            true => 0.0,
            false if distance.is_nan() => f64::INFINITY,
            false => distance,
        }
    }

    /// The error as a multiple of the bound; never NaN.
    pub fn share(&self) -> f64 {
        match (self.error(), self.bound) {
            (0.0, _) => 0.0,
            (error, Bound::Rounding(bound)) if bound.is_finite() && bound > 0.0 => error / bound,
            // Nothing passes for want of a bound.
            _ => f64::INFINITY,
        }
    }
}

/// The worst elements of a result.
#[derive(Clone, Debug, Default)]
pub struct Worst {
    /// Largest error of `out`.
    pub out: Option<Deviation>,
    /// Largest error of `lse`.
    pub lse: Option<Deviation>,
    /// Nearest to its bound, or farthest past it.
    pub share: Option<Deviation>,
    /// Elements of `out`.
    pub elements: u64,
    /// Of these, those whose bound is the range of their column of V: any weights would pass.
    pub unresolved: u64,
}

impl Worst {
    fn add(&mut self, deviation: Deviation) {
        let slot = match deviation.tensor {
            "lse" => &mut self.lse,
            _ => &mut self.out,
        };
        if slot
            .as_ref()
            .is_none_or(|worst| deviation.error() > worst.error())
        {
            *slot = Some(deviation.clone());
        }
        if self
            .share
            .as_ref()
            .is_none_or(|worst| deviation.share() > worst.share())
        {
            self.share = Some(deviation);
        }
    }

    fn merge(&mut self, other: Self) {
        for deviation in [other.out, other.lse, other.share].into_iter().flatten() {
            self.add(deviation);
        }
        self.elements += other.elements;
        self.unresolved += other.unresolved;
    }
}

/// Compares `out` and `lse` of a validated batch with the reference. `products` says which units
/// computed them; the CPU rounds as CUDA cores do.
///
/// # Errors
/// [`Error::PastBound`] for the element farthest past its bound.
pub fn check<T: Storage>(
    batch: &Batch<T>,
    plan: &Plan,
    products: DecodeKind,
    out: &[T],
    lse: &[f32],
) -> Result<Worst, Error> {
    let progress = step_bar("checking", batch.tokens());
    let bounds = |s| Bounds::new(plan, products, batch.seq_lens[s] as usize);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done: Vec<(usize, Result<Worst, LibraryError>)> = vec![];
        loop {
            let s = next.fetch_add(1, Ordering::Relaxed);
            if s >= batch.num_seqs() {
                return done;
            }
            done.push((s, sequence(batch, &bounds(s), s, out, lse)));
            progress.inc(batch.seq_lens[s] as u64);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut done = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            match other.join() {
                Ok(part) => done.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    progress.finish_and_clear();
    // In order, so that ties are settled the same way every time.
    done.sort_by_key(|&(s, _)| s);
    let mut worst = Worst::default();
    for (_, part) in done {
        worst.merge(part?);
    }
    match &worst.share {
        Some(deviation) if deviation.share() > 1.0 => {
            let &Deviation {
                tensor,
                found,
                expected,
                bound,
                ..
            } = deviation;
            Err(Error::PastBound {
                tensor,
                index: deviation.index.clone(),
                found,
                expected,
                bound,
            })
        }
        _ => Ok(worst),
    }
}

fn sequence<T: Storage>(
    batch: &Batch<T>,
    bounds: &Bounds,
    s: usize,
    out: &[T],
    lse: &[f32],
) -> Result<Worst, LibraryError> {
    let config = &batch.config;
    let (heads, d) = (config.num_q_heads, config.head_dim);
    let inputs = batch.sequence(s);
    let reference: Reference = reference::decode(config, &inputs)?;
    let mut key_norms = vec![0.0f64; config.num_kv_heads];
    for_each_row(&inputs, &inputs.k_cache, |head, row| {
        // A score with an infinity or a NaN is one on every back end, and does not round.
        let norm = Some(norm(row)).filter(|norm| norm.is_finite());
        key_norms[head] = key_norms[head].max(norm.unwrap_or(0.0));
    });
    let mut columns = vec![Column::default(); config.num_kv_heads * d];
    for_each_row(&inputs, &inputs.v_cache, |head, row| {
        for (column, v) in columns[head * d..].iter_mut().zip(row) {
            column.add(v.to_f32().into());
        }
    });
    let mut worst = Worst::default();
    for h in 0..heads {
        let query = &inputs.q.data()[h * d..(h + 1) * d];
        let kv_head = h / config.group_size();
        let row = RowFacts {
            score: f64::from(config.scale).abs() * norm(query) * key_norms[kv_head],
            lse: reference.lse[h],
        };
        for i in 0..d {
            let at = h * d + i;
            let expected = reference.out[at];
            let column = &columns[kv_head * d + i];
            let found = f64::from(out[s * heads * d + at].to_f32());
            let bound = if !column.finite && !expected.is_finite() {
                Bound::Class
            } else {
                let abs_out = reference.abs_out[at];
                let (bound, resolved) = bounds.out(&row, column, expected, abs_out);
                // An infinity or a NaN of q or K leaves nothing to resolve.
                worst.unresolved += u64::from(!resolved && expected.is_finite());
                let overflows = row.overflows() || bounds.len * column.largest() > F32_MAX;
                Bound::of(found, bound, overflows)
            };
            worst.elements += 1;
            worst.add(Deviation {
                tensor: "out",
                index: vec![s, h, i],
                found,
                expected,
                bound,
            });
        }
        let (expected, found) = (reference.lse[h], f64::from(lse[s * heads + h]));
        worst.add(Deviation {
            tensor: "lse",
            index: vec![s, h],
            found,
            expected,
            bound: Bound::of(found, bounds.lse(&row), row.overflows()),
        });
    }
    Ok(worst)
}

/// Calls `visit` with the kv head and each of its live rows of `cache`; `inputs` are one sequence.
fn for_each_row<T: Element>(
    inputs: &DecodeInputs<'_, T>,
    cache: &CacheView<'_, T>,
    mut visit: impl FnMut(usize, &[T]),
) {
    let (strides, block_size) = (cache.strides(), cache.block_size());
    for t in 0..inputs.seq_lens[0] as usize {
        let block = inputs.block_table.entries()[t / block_size] as usize;
        let start = block * strides.block + t % block_size * strides.token;
        for head in 0..cache.num_kv_heads() {
            let start = start + head * strides.head;
            visit(head, &cache.data()[start..start + cache.head_dim()]);
        }
    }
}

/// Euclidean norm.
fn norm<T: Element>(row: &[T]) -> f64 {
    let square = |x: &T| f64::from(x.to_f32()).powi(2);
    row.iter().map(square).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests;
