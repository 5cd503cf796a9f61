//! The specification: attention through a block table in the plainest loops, in f64.
//!
//! Shares no index arithmetic with the kernels, the planner or the CPU back end.

use crate::{AttentionConfig, DecodeInputs, Element, Error, Op};

/// What [`decode`] computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Output, dense `[num_seqs, num_q_heads, head_dim]`.
    pub out: Vec<f64>,
    /// Log-sum-exp (natural), `[num_seqs, num_q_heads]`; −∞ for a sequence of length 0.
    pub lse: Vec<f64>,
    /// Σ p·|v| for every output element, like `out`: rounding errors are measured against it.
    pub abs_out: Vec<f64>,
}

/// Attention of `inputs`, in f64 from the stored elements on.
///
/// # Errors
/// What [`DecodeInputs::validate`] refuses.
pub fn decode<T: Element>(
    config: &AttentionConfig,
    inputs: &DecodeInputs<'_, T>,
) -> Result<Reference, Error> {
    inputs.validate(Op::Reference, config)?;
    let (q, k, v) = (&inputs.q, &inputs.k_cache, &inputs.v_cache);
    let d = config.head_dim;
    let mut reference = Reference {
        out: vec![],
        lse: vec![],
        abs_out: vec![],
    };

    for s in 0..inputs.seq_lens.len() {
        let len = inputs.seq_lens[s] as usize;
        for h in 0..config.num_q_heads {
            let g = h / (config.num_q_heads / config.num_kv_heads);

            let mut x = vec![];
            for t in 0..len {
                let entry = s * inputs.block_table.row_stride() + t / config.block_size;
                let block = inputs.block_table.entries()[entry] as usize;
                let slot = t % config.block_size;
                let mut dot = 0.0;
                for i in 0..d {
                    let q_at = s * q.token_stride() + h * q.head_stride() + i;
                    let k_at = block * k.strides().block
                        + slot * k.strides().token
                        + g * k.strides().head
                        + i;
                    dot += wide(q.data()[q_at]) * wide(k.data()[k_at]);
                }
                x.push(f64::from(config.scale) * dot);
            }

            let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let denominator: f64 = x.iter().map(|x| (x - max).exp()).sum();
            let mut out = vec![0.0; d];
            let mut abs_out = vec![0.0; d];
            for (t, x) in x.iter().enumerate() {
                let entry = s * inputs.block_table.row_stride() + t / config.block_size;
                let block = inputs.block_table.entries()[entry] as usize;
                let slot = t % config.block_size;
                let p = (x - max).exp() / denominator;
                for i in 0..d {
                    let v_at = block * v.strides().block
                        + slot * v.strides().token
                        + g * v.strides().head
                        + i;
                    out[i] += p * wide(v.data()[v_at]);
                    abs_out[i] += p * wide(v.data()[v_at]).abs();
                }
            }
            reference.out.extend(out);
            reference.abs_out.extend(abs_out);
            reference.lse.push(max + denominator.ln());
        }
    }
    Ok(reference)
}

fn wide<T: Element>(element: T) -> f64 {
    f64::from(element.to_f32())
}
