//! How far a result may be from exact attention: a first-order rounding analysis, run on the data.
//!
//! Everything is f32 with unit roundoff u = 2^-24 until the output is rounded to its storage type
//! (u_out). A back end computes weights w_t = 2^(x_t − m), sums N = Σ w v and D = Σ w in some order,
//! and N / D. With exact weights normalised to Σ p = 1 and exact output o:
//!
//! - **Score term.** A relative error ε_t of a weight enters N and D alike, so it moves the output by
//!   Σ p_t ε_t (v_t − o): its magnitude is Σ p_t |ε_t| |v_t − o|. ε_t has two parts: the error of
//!   the score, ln 2 · (c_dot + 1) · u · Σ|q k|, where c_dot counts the roundings that a term of the
//!   dot product meets; and for every exponential on the way, [`EXP2`] and the rounding of its
//!   argument, ln 2 · u · |argument|. An exponential of 0 is exactly 1 and costs nothing.
//! - **Summation term.** Adding to a sum s rounds by at most u |s|, s being the sum so far
//!   (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). The analysis adds these up along
//!   the order in which the back end adds: that is at most n_chain · u · Σ p|v|, and for signed
//!   values far less. Where products are rounded on their own, u |p v| more per term. Tensor cores
//!   add 16 products in an order and with a rounding of their own: [`TENSOR_ADD`] each.
//! - **Weight term.** Tensor cores take w rounded to the storage type (u_P) for N, and D keeps it
//!   unrounded: u_P · Σ p|v| over the tokens that are not the maximum, whose weight is exactly 1.
//! - **Final terms.** N · (1/D): two roundings, 2u|o|; the storage type: u_out |o|, and half its
//!   smallest subnormal.
//!
//! lse = ln 2 · (m + log2 D): Σ p|ε| and the errors of D, [`LOG2`], and three roundings.
//! [`SECOND_ORDER`] covers products of errors. Nothing here was fitted to what the back ends do.

use paged_attention::{DType, Plan};

use crate::logical::Sequence;
use crate::oracle::{Row, value};

/// Unit roundoff of f32.
pub const U: f64 = 1.0 / (1u32 << 24) as f64;
/// Relative error of an exponential: 2^-22, what the PTX manual promises of ex2.approx.ftz.f32; that of
/// the CPU back end is smaller.
const EXP2: f64 = 4.0 * U;
/// Error of the logarithm: absolute below 2, relative above; what the PTX manual promises of
/// lg2.approx.ftz.f32 (2^-22), rounded up.
const LOG2: f64 = 8.0 * U;
/// Error of an addition inside a tensor-core instruction: it may truncate.
pub const TENSOR_ADD: f64 = 2.0 * U;
/// Products of two errors, against errors of at most 2^-8.
pub const SECOND_ORDER: f64 = 1.0 + 1.0 / 64.0;

/// The order of a back end's additions.
pub trait Order {
    /// Roundings that one term of a dot product meets, from q on.
    fn dot_roundings(&self, plan: &Plan) -> f64;

    /// Additions to a chain of denominators beyond one per token.
    fn denominator_roundings(&self) -> f64;

    /// Combines the states of tokens `0..len` in the order of the back end.
    fn combine(&self, plan: &Plan, len: usize, token: &dyn Fn(usize) -> State) -> State;
}

/// A partial sum of the analysis: exact parts and bounds of their errors, everything in units of the
/// finished denominator.
#[derive(Clone)]
pub struct State {
    /// Largest score in log2 units.
    max: f64,
    /// Error of the largest score.
    max_error: f64,
    /// Σ p.
    l: f64,
    /// Error of l by additions.
    l_error: f64,
    /// Σ p ε.
    weight_error: f64,
    /// Per column.
    columns: Vec<Column>,
}

#[derive(Clone, Copy, Default)]
struct Column {
    /// Σ p v.
    sum: f64,
    /// Its error by additions.
    sum_error: f64,
    /// Σ p |v − o|.
    spread: f64,
    /// Σ p ε |v − o|.
    weight_error: f64,
}

impl State {
    /// No tokens: merging with it changes no bit.
    pub fn empty() -> Self {
        Self {
            max: f64::NEG_INFINITY,
            max_error: 0.0,
            l: 0.0,
            l_error: 0.0,
            weight_error: 0.0,
            columns: vec![],
        }
    }

    fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The state is multiplied by 2^(its maximum − `top`).
    fn rescale(&mut self, top: f64, top_error: f64) {
        let distance = (top - self.max).abs();
        if distance == 0.0 && top_error + self.max_error == 0.0 {
            return;
        }
        let relative = EXP2 + std::f64::consts::LN_2 * U * distance;
        self.weight_error += relative * self.l;
        self.l_error += U * self.l;
        for column in &mut self.columns {
            column.weight_error += relative * column.spread;
            column.sum_error += U * column.sum.abs();
        }
    }

    /// Merges the tokens of one tensor-core instruction, their weights rounded to `dtype`.
    pub fn merge_tile(&mut self, tokens: Vec<State>, dtype: DType) {
        let top = tokens.iter().map(|s| s.max).fold(self.max, f64::max);
        let error = tokens
            .iter()
            .map(|s| s.max_error)
            .fold(self.max_error, f64::max);
        let (unit, floor) = storage(dtype);
        let count = tokens.len() as f64;
        if !self.is_empty() {
            self.rescale(top, error);
        }
        for mut token in tokens {
            if token.max < top {
                // A weight below the smallest normal number is off by `floor`, however small it is.
                let weight_error = unit.max(floor / (token.max - top).exp2()).min(1.0);
                for column in &mut token.columns {
                    column.sum_error += weight_error * column.sum.abs();
                }
            }
            token.rescale(top, error);
            // The instruction rounds when it adds, see below; its products are exact.
            for column in &mut token.columns {
                column.sum_error += TENSOR_ADD * count * column.sum.abs();
            }
            (token.max, token.max_error) = (top, error);
            if self.is_empty() {
                *self = token;
            } else {
                self.max = top;
                self.max_error = error;
                self.add(&token);
            }
        }
    }

    /// Adds `other` to the sums.
    fn add(&mut self, other: &State) {
        self.l += other.l;
        self.l_error += other.l_error + U * self.l;
        self.weight_error += other.weight_error;
        for (column, other) in self.columns.iter_mut().zip(&other.columns) {
            column.sum += other.sum;
            column.sum_error += other.sum_error + U * column.sum.abs();
            column.spread += other.spread;
            column.weight_error += other.weight_error;
        }
    }

    /// Merges `other` behind this state, both relative to the larger maximum.
    pub fn merge(&mut self, mut other: State) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other;
            return;
        }
        // Which of two scores came out larger is open where they are nearer than their errors.
        let open = self.max_error + other.max_error;
        let (mine, theirs) = ((self.max, self.max_error), (other.max, other.max_error));
        if theirs.0 >= mine.0 - open {
            self.rescale(theirs.0, theirs.1);
        }
        if mine.0 >= theirs.0 - open {
            other.rescale(mine.0, mine.1);
        }
        if theirs.0 > mine.0 {
            (self.max, self.max_error) = theirs;
        }
        self.max_error = mine.1.max(theirs.1);
        self.add(&other);
    }

    /// Merges states in order, all relative to the largest maximum, which is known before.
    pub fn merge_all(states: impl IntoIterator<Item = State>) -> State {
        let states: Vec<State> = states.into_iter().filter(|s| !s.is_empty()).collect();
        let top = states
            .iter()
            .map(|s| s.max)
            .fold(f64::NEG_INFINITY, f64::max);
        let error = states.iter().map(|s| s.max_error).fold(0.0, f64::max);
        let mut total = State::empty();
        for mut state in states {
            state.rescale(top, error);
            state.max = top;
            state.max_error = error;
            if total.is_empty() {
                total = state;
            } else {
                total.add(&state);
            }
        }
        total
    }
}

/// Bounds of one (sequence, query head).
pub struct Bounds {
    /// Per output element.
    pub out: Vec<f64>,
    /// Of the log-sum-exp.
    pub lse: f64,
}

/// The bounds of `row` under `order`.
pub fn bounds(order: &dyn Order, plan: &Plan, seq: &Sequence, head: usize, row: &Row) -> Bounds {
    let config = plan.config();
    if seq.len == 0 {
        return Bounds {
            out: vec![0.0; config.head_dim],
            lse: 0.0,
        };
    }
    let dot = (order.dot_roundings(plan) + 1.0) * U;
    let token = |t: usize| {
        let score_error = dot * row.abs_x[t];
        let error = (std::f64::consts::LN_2 * score_error).exp_m1();
        let values = value(config, &seq.values, t, head).iter();
        let columns = values.zip(&row.out).map(|(&v, out)| {
            let (sum, spread) = (
                row.p[t] * f64::from(v),
                row.p[t] * (f64::from(v) - out).abs(),
            );
            Column {
                sum,
                sum_error: U * sum.abs(),
                spread,
                weight_error: spread * error,
            }
        });
        State {
            max: row.x[t],
            max_error: score_error,
            l: row.p[t],
            l_error: 0.0,
            weight_error: row.p[t] * error,
            columns: columns.collect(),
        }
    };
    let total = order.combine(plan, seq.len, &token);
    let l_error = total.l_error + order.denominator_roundings() * U;
    let (unit, floor) = storage(config.dtype);
    let columns = total.columns.iter().zip(&row.out);
    let out = columns.map(|(column, out)| {
        let sums = column.weight_error + column.sum_error + out.abs() * l_error;
        SECOND_ORDER * (sums + (2.0 * U + unit) * out.abs()) + floor
    });
    let log2 = (row.lse * std::f64::consts::LOG2_E)
        .abs()
        .max((seq.len as f64).log2());
    let lse = total.weight_error + l_error + LOG2 * (seq.len as f64).log2().max(1.0);
    Bounds {
        out: out.collect(),
        lse: SECOND_ORDER * (lse + 3.0 * U * log2),
    }
}

/// Unit roundoff of a storage type, and the absolute error of a result near 0. f32 results are
/// rounded already. f16 stores half its smallest subnormal off; f32 and bf16 may lose all below
/// their smallest normal number, since `ex2.approx.ftz` gives 0 for weights below it.
fn storage(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F32 => (0.0, 2f64.powi(-126)),
        DType::F16 => (2f64.powi(-11), 2f64.powi(-25)),
        DType::Bf16 => (2f64.powi(-8), 2f64.powi(-126)),
    }
}
