//! `decode --check`: the result against the f64 reference, with a bound for every element.
//!
//! No bound is larger than what is true of any weights: an output element is a mean of its column of
//! V. Where rounding of the scores explains no less than that, the element counts as unresolved, and
//! is reported as such. A column of V that holds an infinity or a NaN is compared by class.

use std::sync::atomic::{AtomicUsize, Ordering};

use paged_attention::kernels::variants::DecodeKind;
use paged_attention::reference::{self, Reference};
use paged_attention::{CacheView, DType, DecodeInputs, Element, Error as LibraryError, Plan};

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

/// What is known of a column of V: one element of every live token.
#[derive(Clone, Copy)]
struct Column {
    least: f64,
    most: f64,
    finite: bool,
}

impl Default for Column {
    fn default() -> Self {
        Self {
            least: f64::INFINITY,
            most: f64::NEG_INFINITY,
            finite: true,
        }
    }
}

impl Column {
    fn add(&mut self, v: f64) {
        self.finite &= v.is_finite();
        self.least = self.least.min(v);
        self.most = self.most.max(v);
    }

    /// The farthest that two means can be apart.
    fn range(&self) -> f64 {
        (self.most - self.least).max(0.0)
    }

    fn largest(&self) -> f64 {
        self.most.max(-self.least).max(0.0)
    }
}

/// What the bounds of one (sequence, query head) rest on.
struct RowFacts {
    /// X = |scale|·‖q‖·max‖k‖: no finite score is larger.
    score: f64,
    /// Log-sum-exp of the scores.
    lse: f64,
}

impl RowFacts {
    /// Whether scores, in units of log2, may be too large for f32.
    fn overflows(&self) -> bool {
        self.score * std::f64::consts::LOG2_E > F32_MAX
    }
}

/// Bounds of the rounding error, for any back end. With u = 2⁻²⁴ and every sum in f32:
///
/// Scores. x = scale·q·k is summed in a chain of at most d/8 + 5 additions, d on tensor cores, after
/// roundings of the scale, of scale·log2(e) and of their product with q; the maximum is subtracted,
/// a number of the same size. X bounds Σ|scale·qᵢ·kᵢ| and |x|, so the error of x − max is at most
/// (chain + 7)·u·X.
///
/// Sums. A weight 2^x has a relative error of at most 4u (`ex2.approx`: 2⁻²²). The weighted sums of
/// a split of at most 8192 tokens are chains of at most min(L, 2048) additions, with a rescale at
/// most once in 24 of them (CPU: chains of 2040, tiles of 24 tokens), or of a quarter as many with
/// a rescale each (PTX: four warps): in both cases, at 1 + 5 roundings of u per rescaled addition,
/// at most 1.5·min(L, 2048)·u. Tensor cores add 16 tokens at a time, also where one warp has all
/// tokens of a split, and may truncate where others round: twice that, and without the quarter,
/// 4·min(L, 8192)·u. Merging n splits adds at most 6·n·u. The warps' and rows' own merges, the
/// division and the rest are the constant 40.
///
/// All of it is relative to the weights, so it enters once for the numerator and once for the
/// denominator: |Δout| ≤ (e^(2ε) − 1)·Σp|v| with ε the sum of the above.
///
/// Tensor cores multiply v by weights that are rounded to the storage type: at most u_P·Σp|v|, and
/// for weights among the subnormal numbers half their distance, relative to a denominator that is
/// at least 1 and at least e^(lse − X).
///
/// Storing rounds once more.
///
/// The cap. Whatever the scores' errors, the weights are weights, the same in the numerator and the
/// denominator: rounding of the scores moves the mean by no more than the range of the column, and
/// what rounding of the sums and of the weights adds is relative to the column's largest |v|.
struct Bounds {
    dtype: DType,
    products: DecodeKind,
    /// Roundings of a score.
    scores: f64,
    /// Roundings of the sums.
    sums: f64,
    /// Tokens.
    len: f64,
}

impl Bounds {
    fn new(plan: &Plan, products: DecodeKind, len: usize) -> Self {
        let d = plan.config().head_dim as f64;
        let splits = match len.div_ceil(plan.split_tokens() as usize) {
            0 | 1 => 0,
            n => n,
        };
        let (chain, tokens) = match products {
            DecodeKind::CudaCore => (d / 8.0 + 5.0, 1.5 * len.min(2048) as f64),
            DecodeKind::TensorCore => (2.0 * d, 4.0 * len.min(8192) as f64),
        };
        Self {
            dtype: plan.config().dtype,
            products,
            scores: chain + 7.0,
            sums: 40.0 + tokens + 6.0 * splits as f64,
            len: len as f64,
        }
    }

    /// Unit roundoff of the storage type, and half the distance of its smallest numbers.
    fn storage(&self) -> (f64, f64) {
        match self.dtype {
            DType::F32 => (U, 2f64.powi(-150)),
            DType::F16 => (2f64.powi(-11), 2f64.powi(-25)),
            DType::Bf16 => (2f64.powi(-8), 2f64.powi(-134)),
        }
    }

    /// Relative error of a weight's share in a sum.
    fn relative(&self, row: &RowFacts) -> f64 {
        (self.scores * row.score + self.sums) * U
    }

    /// The bound, and whether it is closer than the cap.
    fn out(&self, row: &RowFacts, column: &Column, expected: f64, abs_out: f64) -> (f64, bool) {
        let (unit, least) = self.storage();
        let mut computed = (2.0 * self.relative(row)).exp_m1() * abs_out;
        let mut cap = column.range() + (2.0 * self.sums * U).exp_m1() * column.largest();
        if self.products == DecodeKind::TensorCore {
            let denominator = (row.lse - row.score).exp().max(1.0);
            let subnormal = least * self.len * column.largest();
            computed += unit * abs_out + subnormal / denominator;
            cap += unit * column.largest() + subnormal;
        }
        // 0 by infinity is NaN.
        let capped = computed.is_nan() || computed > cap;
        let computed = if capped { cap } else { computed };
        let bound = computed + unit * (expected.abs() + computed) + least;
        // All values alike: there is nothing to tell apart.
        (bound, !capped || column.range() == 0.0)
    }

    fn lse(&self, row: &RowFacts) -> f64 {
        // ln(l) + m: the error of l, of m, and of adding both.
        self.relative(row) + 4.0 * U * (row.score + row.lse.abs())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use paged_attention::{DeviceLimits, RowsViewMut, SplitPolicy, cpu};

    use super::*;
    use crate::args::{Cli, Command};
    use crate::buffer::Buffer;

    fn deviation(tensor: &'static str, found: f64, expected: f64, bound: f64) -> Deviation {
        Deviation {
            tensor,
            index: vec![0],
            found,
            expected,
            bound: Bound::Rounding(bound),
        }
    }

    #[test]
    fn equal_infinities_and_nans_are_no_error_and_unequal_ones_are_infinite() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        for (found, expected, error) in [
            (1.0, 1.5, 0.5),
            (-inf, -inf, 0.0),
            (nan, nan, 0.0),
            (nan, 0.0, inf),
            (0.0, nan, inf),
            (inf, -inf, inf),
        ] {
            assert_eq!(deviation("out", found, expected, 1.0).error(), error);
        }
    }

    #[test]
    fn the_largest_error_and_the_largest_share_are_kept_apart() {
        let mut worst = Worst::default();
        worst.add(deviation("out", 2.0, 1.0, 10.0));
        worst.add(deviation("out", 0.5, 1.0, 0.6));
        worst.add(deviation("lse", 0.0, f64::NEG_INFINITY, f64::INFINITY));
        assert_eq!(worst.out.map(|d| d.error()), Some(1.0));
        assert_eq!(worst.lse.map(|d| d.error()), Some(f64::INFINITY));
        let share = worst.share.map(|d| d.share());
        assert_eq!(
            share,
            Some(f64::INFINITY),
            "an infinite bound passes nothing"
        );
    }

    /// A small batch with its result.
    fn decoded() -> (Batch<f32>, Plan, Vec<f32>, Vec<f32>) {
        decoded_after(|_| ())
    }

    /// The same after a change of the batch.
    fn decoded_after(
        change: impl FnOnce(&mut Batch<f32>),
    ) -> (Batch<f32>, Plan, Vec<f32>, Vec<f32>) {
        let options = "sample -o unused --num-seqs 3 --ctx 1..200 --heads 4 --kv-heads 2";
        let command = Cli::parse_from(["paged-attention"].into_iter().chain(options.split(' ')));
        let Command::Sample(args) = command.command else {
            panic!("`sample` must parse as such");
        };
        let mut batch = crate::sample::random::<f32>(&args).unwrap();
        change(&mut batch);
        let limits = DeviceLimits::cpu(1);
        let plan = Plan::new(&batch.config, 3, 200, SplitPolicy::Tokens(64), &limits).unwrap();
        let (mut out, mut lse) = (
            Buffer::zeroed("out", 3 * 4 * 128).unwrap(),
            vec![0.0; 3 * 4],
        );
        let mut workspace = vec![0.0; plan.workspace_len()];
        let rows = RowsViewMut::contiguous(&mut out, 3, 4, 128);
        let inputs = batch.inputs();
        cpu::decode(&plan, &inputs, rows, Some(&mut lse), &mut workspace).unwrap();
        let out = out.to_vec();
        (batch, plan, out, lse)
    }

    #[test]
    fn a_result_is_within_its_bound_and_a_wrong_element_is_named() {
        let (batch, plan, mut out, mut lse) = decoded();
        let worst =
            check(&batch, &plan, DecodeKind::CudaCore, &out, &lse).expect("the result is right");
        let error = worst.out.map_or(0.0, |d| d.error());
        assert!(error > 0.0 && error < 1e-5, "{error}");

        out[(2 * 4 + 3) * 128 + 17] += 1e-4;
        let text = check(&batch, &plan, DecodeKind::CudaCore, &out, &lse)
            .unwrap_err()
            .to_string();
        assert!(text.starts_with("check: out[2, 3, 17] = "), "{text}");
        out[5] = f32::NAN;
        let text = check(&batch, &plan, DecodeKind::CudaCore, &out, &lse)
            .unwrap_err()
            .to_string();
        assert!(
            text.starts_with("check: out[0, 0, 5] = NaN, the reference is "),
            "{text}"
        );

        let (_, _, out, _) = decoded();
        lse[6] -= 1e-3;
        let text = check(&batch, &plan, DecodeKind::CudaCore, &out, &lse)
            .unwrap_err()
            .to_string();
        assert!(text.starts_with("check: lse[1, 2] = "), "{text}");
    }

    #[test]
    fn one_token_more_or_less_is_past_the_bound() {
        let (mut batch, plan, out, lse) = decoded();
        for (s, by) in [(0, -1), (1, -1)] {
            batch.seq_lens[s] += by;
            assert!(
                check(&batch, &plan, DecodeKind::CudaCore, &out, &lse).is_err(),
                "sequence {s}"
            );
            batch.seq_lens[s] -= by;
        }
    }

    /// The first element of K or V of sequence 2's first token in kv head 1.
    fn element(batch: &Batch<f32>) -> usize {
        let columns = batch.shapes.block_table[1];
        (batch.block_table[2 * columns] as usize * 16 * 2 + 1) * 128
    }

    /// Element 5 of query head 3, which reads kv head 1, of sequence 2.
    const AT: usize = (2 * 4 + 3) * 128 + 5;

    #[test]
    fn scores_too_large_for_f32_leave_the_range_of_v_and_are_counted() {
        for (scale, least) in [(1e4, 1), (1e6, 3 * 4 * 128), (1e30, 3 * 4 * 128)] {
            let large = |batch: &mut Batch<f32>| batch.config = batch.config.with_scale(scale);
            let (batch, plan, mut out, lse) = decoded_after(large);
            let kind = DecodeKind::CudaCore;
            let worst = check(&batch, &plan, kind, &out, &lse).expect("the result is right");
            assert_eq!(worst.elements, 3 * 4 * 128);
            assert!(worst.unresolved >= least, "{}", worst.unresolved);
            let Some(Bound::Rounding(bound)) = worst.out.map(|d| d.bound) else {
                panic!("a bound");
            };
            assert!(bound < 2.01, "values lie in [-1, 1): {bound}");

            // No weights take a mean out of its column's range.
            out[AT] = 3.5;
            let text = check(&batch, &plan, kind, &out, &lse)
                .unwrap_err()
                .to_string();
            assert!(text.starts_with("check: out[2, 3, 5] = 3.5e0, "), "{text}");
        }
        let (batch, plan, out, lse) = decoded();
        let worst = check(&batch, &plan, DecodeKind::CudaCore, &out, &lse).unwrap();
        assert_eq!(worst.unresolved, 0, "ordinary scores are resolved");
    }

    #[test]
    fn one_token_is_resolved_whatever_its_score() {
        let one = |batch: &mut Batch<f32>| {
            batch.config = batch.config.with_scale(1e6);
            batch.seq_lens.fill(1);
        };
        let (batch, plan, mut out, lse) = decoded_after(one);
        let kind = DecodeKind::CudaCore;
        let worst = check(&batch, &plan, kind, &out, &lse).expect("the result is right");
        assert_eq!(worst.unresolved, 0);
        out[AT] += 1e-4;
        let text = check(&batch, &plan, kind, &out, &lse)
            .unwrap_err()
            .to_string();
        assert!(text.starts_with("check: out[2, 3, 5] = "), "{text}");
    }

    #[test]
    fn an_infinity_or_a_nan_in_v_costs_the_check_no_other_column() {
        for poison in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            let (batch, plan, out, lse) = decoded_after(|batch| {
                let at = element(batch);
                batch.v_cache[at] = poison;
            });
            for kind in [DecodeKind::CudaCore, DecodeKind::TensorCore] {
                let check = |out: &[f32]| check(&batch, &plan, kind, out, &lse);
                check(&out).expect("the result is right");
                // Its own column: heads 2 and 3 read kv head 1.
                assert!(!out[AT - 5].is_finite() && out[AT - 5 - 128..][..2][1].is_finite());
                for other in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
                    let mut same = out.clone();
                    same[AT - 5] = other;
                    check(&same).expect("an infinity times a weight of 0 is a NaN");
                }
                let mut finite = out.clone();
                finite[AT - 5] = 0.5;
                let text = check(&finite).unwrap_err().to_string();
                let expected = "check: out[2, 3, 0] = 5e-1, the reference is ";
                assert!(text.starts_with(expected), "{text}");
                assert!(
                    text.ends_with("so neither can be a finite number"),
                    "{text}"
                );
                // Any other column.
                let mut wrong = out.clone();
                wrong[AT] += 0.05;
                let text = check(&wrong).unwrap_err().to_string();
                assert!(text.starts_with("check: out[2, 3, 5] = "), "{text}");
                assert!(text.contains("exceeds the bound"), "{text}");
            }
        }
    }

    #[test]
    fn a_row_of_nan_is_no_matter_of_rounding() {
        let (batch, plan, out, lse) = decoded_after(|batch| batch.q[AT] = f32::NAN);
        let worst = check(&batch, &plan, DecodeKind::CudaCore, &out, &lse);
        assert!(out[AT].is_nan(), "{}", out[AT]);
        assert_eq!(worst.expect("the result is right").unresolved, 0);
    }

    #[test]
    fn a_key_of_minus_infinity_costs_no_bound() {
        let masked = |batch: &mut Batch<f32>| {
            let at = element(batch);
            batch.k_cache[at] = f32::NEG_INFINITY;
            // Positive in heads 2 and 3: the score is -inf, the weight 0.
            for head in [2, 3] {
                batch.q[(2 * 4 + head) * 128] = 0.5;
            }
        };
        let (batch, plan, mut out, lse) = decoded_after(masked);
        let kind = DecodeKind::CudaCore;
        let worst = check(&batch, &plan, kind, &out, &lse).expect("the result is right");
        assert_eq!(worst.unresolved, 0);
        out[AT] += 1e-3;
        let text = check(&batch, &plan, kind, &out, &lse)
            .unwrap_err()
            .to_string();
        assert!(text.contains("exceeds the bound"), "{text}");
    }
}
