//! Attention in f64 over logical tokens: no block table, no code shared with any back end.

use paged_attention::AttentionConfig;

use crate::logical::Sequence;

/// Exact attention of one (sequence, query head).
pub struct Row {
    /// Score of each token in log2 units.
    pub x: Vec<f64>,
    /// Σ |q·k| of each token, scaled like `x`: what rounding errors of the score are measured by.
    pub abs_x: Vec<f64>,
    /// Softmax weights.
    pub p: Vec<f64>,
    /// Output, `[head_dim]`.
    pub out: Vec<f64>,
    /// Natural log of the denominator.
    pub lse: f64,
}

/// Attention of query head `head`.
pub fn row(config: &AttentionConfig, seq: &Sequence, head: usize) -> Row {
    let d = config.head_dim;
    let q = &seq.q[head * d..(head + 1) * d];
    let factor = f64::from(config.scale) * std::f64::consts::LOG2_E;
    let (mut x, mut abs_x) = (vec![], vec![]);
    for t in 0..seq.len {
        let terms = q.iter().zip(value(config, &seq.keys, t, head));
        let terms = terms.map(|(&q, &k)| factor * f64::from(q) * f64::from(k));
        let (sum, abs) = terms.fold((0.0, 0.0), |(sum, abs), term| {
            (sum + term, abs + term.abs())
        });
        x.push(sum);
        abs_x.push(abs);
    }
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = x.iter().map(|x| (x - max).exp2()).sum();
    let p: Vec<f64> = x.iter().map(|x| (x - max).exp2() / sum).collect();
    let mut out = vec![0.0; d];
    for (t, p) in p.iter().enumerate() {
        for (out, &v) in out.iter_mut().zip(value(config, &seq.values, t, head)) {
            *out += p * f64::from(v);
        }
    }
    let lse = (max + sum.log2()) * std::f64::consts::LN_2;
    Row {
        x,
        abs_x,
        p,
        out,
        lse,
    }
}

/// The row of token `t` that query head `head` reads.
pub fn value<'a>(config: &AttentionConfig, tokens: &'a [f32], t: usize, head: usize) -> &'a [f32] {
    let group = config.num_q_heads / config.num_kv_heads;
    let at = (t * config.num_kv_heads + head / group) * config.head_dim;
    &tokens[at..at + config.head_dim]
}
