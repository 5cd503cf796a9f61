//! `decode --check`: the result against the f64 reference, with a bound for every element.

use std::sync::atomic::{AtomicUsize, Ordering};

use paged_attention::kernels::variants::DecodeKind;
use paged_attention::reference::{self, Reference};
use paged_attention::{CacheView, DType, DecodeInputs, Element, Error as LibraryError, Plan};

use crate::batch::{Batch, Storage};
use crate::error::Error;
use crate::output::step_bar;

/// Unit roundoff of the f32 arithmetic that every back end does.
const U: f64 = 1.0 / (1u64 << 24) as f64;

/// One element of a result and what it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    pub tensor: &'static str,
    pub index: Vec<usize>,
    pub found: f64,
    pub expected: f64,
    /// What rounding explains.
    pub bound: f64,
}

impl Deviation {
    /// The distance; 0 if both are the same, infinities and NaN included.
    pub fn error(&self) -> f64 {
        let same = self.found == self.expected || (self.found.is_nan() && self.expected.is_nan());
        let distance = (self.found - self.expected).abs();
        match same {
            true => 0.0,
            false if distance.is_nan() => f64::INFINITY,
            false => distance,
        }
    }

    /// The error as a multiple of the bound; never NaN.
    pub fn share(&self) -> f64 {
        match self.error() {
            0.0 => 0.0,
            error if self.bound.is_finite() && self.bound > 0.0 => error / self.bound,
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
    let key_norms = largest_per_head(&inputs, &inputs.k_cache, norm);
    let values = largest_per_head(&inputs, &inputs.v_cache, largest);
    let mut worst = Worst::default();
    for h in 0..heads {
        let query = &inputs.q.data()[h * d..(h + 1) * d];
        let kv_head = h / config.group_size();
        let row = RowFacts {
            score: f64::from(config.scale).abs() * norm(query) * key_norms[kv_head],
            lse: reference.lse[h],
            value: values[kv_head],
        };
        for i in 0..d {
            let at = h * d + i;
            let expected = reference.out[at];
            worst.add(Deviation {
                tensor: "out",
                index: vec![s, h, i],
                found: out[s * heads * d + at].to_f32().into(),
                expected,
                bound: bounds.out(&row, expected, reference.abs_out[at]),
            });
        }
        let expected = reference.lse[h];
        worst.add(Deviation {
            tensor: "lse",
            index: vec![s, h],
            found: lse[s * heads + h].into(),
            expected,
            bound: bounds.lse(&row),
        });
    }
    Ok(worst)
}

/// Per kv head, the largest `size` of a live row of `cache`; `inputs` are one sequence.
fn largest_per_head<T: Element>(
    inputs: &DecodeInputs<'_, T>,
    cache: &CacheView<'_, T>,
    size: impl Fn(&[T]) -> f64,
) -> Vec<f64> {
    let (strides, block_size) = (cache.strides(), cache.block_size());
    let mut sizes = vec![0.0f64; cache.num_kv_heads()];
    for t in 0..inputs.seq_lens[0] as usize {
        let block = inputs.block_table.entries()[t / block_size] as usize;
        let start = block * strides.block + t % block_size * strides.token;
        for (head, largest) in sizes.iter_mut().enumerate() {
            let start = start + head * strides.head;
            let row = &cache.data()[start..start + cache.head_dim()];
            *largest = largest.max(size(row));
        }
    }
    sizes
}

/// Euclidean norm.
fn norm<T: Element>(row: &[T]) -> f64 {
    let square = |x: &T| f64::from(x.to_f32()).powi(2);
    row.iter().map(square).sum::<f64>().sqrt()
}

/// Largest magnitude.
fn largest<T: Element>(row: &[T]) -> f64 {
    let magnitude = |x: &T| f64::from(x.to_f32()).abs();
    row.iter().map(magnitude).fold(0.0, f64::max)
}

/// What the bounds of one (sequence, query head) rest on.
struct RowFacts {
    /// X = |scale|·‖q‖·max‖k‖: no score is larger.
    score: f64,
    /// Log-sum-exp of the scores.
    lse: f64,
    /// Largest |v|.
    value: f64,
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

    fn out(&self, row: &RowFacts, expected: f64, abs_out: f64) -> f64 {
        let (unit, least) = self.storage();
        let mut computed = (2.0 * self.relative(row)).exp_m1() * abs_out;
        if self.products == DecodeKind::TensorCore {
            let denominator = (row.lse - row.score).exp().max(1.0);
            computed += unit * abs_out + least * self.len * row.value / denominator;
        }
        computed + unit * (expected.abs() + computed) + least
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
            bound,
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
        let options = "sample -o unused --num-seqs 3 --ctx 1..200 --heads 4 --kv-heads 2";
        let command = Cli::parse_from(["paged-attention"].into_iter().chain(options.split(' ')));
        let Command::Sample(args) = command.command else {
            panic!("`sample` must parse as such");
        };
        let batch = crate::sample::random::<f32>(&args).unwrap();
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
}
