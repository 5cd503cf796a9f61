//! What rounding explains: the bound of every element.

use paged_attention::kernels::variants::DecodeKind;
use paged_attention::{DType, Plan};

use super::{F32_MAX, U};

/// What is known of a column of V: one element of every live token.
#[derive(Clone, Copy)]
pub struct Column {
    least: f64,
    most: f64,
    pub finite: bool,
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
    pub fn add(&mut self, v: f64) {
        self.finite &= v.is_finite();
        self.least = self.least.min(v);
        self.most = self.most.max(v);
    }

    /// The farthest that two means can be apart.
    fn range(&self) -> f64 {
        (self.most - self.least).max(0.0)
    }

    pub fn largest(&self) -> f64 {
        self.most.max(-self.least).max(0.0)
    }
}

/// What the bounds of one (sequence, query head) rest on.
pub struct RowFacts {
    /// X = |scale|·‖q‖·max‖k‖: no finite score is larger.
    pub score: f64,
    /// Log-sum-exp of the scores.
    pub lse: f64,
}

impl RowFacts {
    /// Whether scores, in units of log2, may be too large for f32.
    pub fn overflows(&self) -> bool {
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
/// most once in 12 of them (CPU: chains of 2016, tiles of 12 or 24 tokens), or a quarter as many with
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
pub struct Bounds {
    dtype: DType,
    products: DecodeKind,
    /// Roundings of a score.
    scores: f64,
    /// Roundings of the sums.
    sums: f64,
    /// Tokens.
    pub len: f64,
}

impl Bounds {
    pub fn new(plan: &Plan, products: DecodeKind, len: usize) -> Self {
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
    pub fn out(&self, row: &RowFacts, column: &Column, expected: f64, abs_out: f64) -> (f64, bool) {
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

    pub fn lse(&self, row: &RowFacts) -> f64 {
        // ln(l) + m: the error of l, of m, and of adding both.
        self.relative(row) + 4.0 * U * (row.score + row.lse.abs())
    }
}
