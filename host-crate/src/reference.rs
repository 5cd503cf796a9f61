//! The specification: attention through a block table in the plainest loops, in f64.
//!
//! Shares no index arithmetic with the kernels, the planner or the CPU back end.

use crate::{AttentionConfig, DecodeInputs, Element, Error, Op};

/// What [`decode`] computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Output, dense `[num_seqs, num_q_heads, head_dim]`.
    pub out: Vec<f64>,
    /// Log-sum-exp (natural), `[num_seqs, num_q_heads]`; −∞ for a sequence of length 0 and where
    /// every score is −∞ (the output is zeros then).
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

            // Finite, so that scores of -inf weigh 0: where all are, the row is that of length 0.
            let max = x.iter().copied().fold(f64::MIN, f64::max);
            let denominator: f64 = x.iter().map(|x| (x - max).exp()).sum();
            let mut out = vec![0.0; d];
            let mut abs_out = vec![0.0; d];
            for (t, x) in x.iter().enumerate() {
                let entry = s * inputs.block_table.row_stride() + t / config.block_size;
                let block = inputs.block_table.entries()[entry] as usize;
                let slot = t % config.block_size;
                if denominator == 0.0 {
                    continue;
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockTable, CacheLayout, CacheView, DType, RowsView};

    const D: usize = 32;

    /// One sequence, `q_heads` query heads on one kv head, blocks of 2 tokens in the order 2, 0.
    fn run(q: &[f32], q_heads: usize, k: &[f32], v: &[f32], len: i32, scale: f32) -> Reference {
        let config = AttentionConfig::new(DType::F32, q_heads, 1, D, 2).with_scale(scale);
        // A literal need not start at 16 bytes.
        let q = q.to_vec();
        let inputs = DecodeInputs {
            q: RowsView::contiguous(&q, 1, q_heads, D),
            k_cache: CacheView::dense(k, CacheLayout::Nhd, 3, 2, 1, D),
            v_cache: CacheView::dense(v, CacheLayout::Nhd, 3, 2, 1, D),
            block_table: BlockTable::new(&[2, 0], 1, 2),
            seq_lens: &[len],
        };
        decode(&config, &inputs).unwrap()
    }

    /// Token t stands in slot 4, 5, 0, 1 of the pool; the rest is NaN.
    fn pool(tokens: &[f32]) -> Vec<f32> {
        let mut pool = vec![f32::NAN; 6 * D];
        for (&slot, &token) in [4, 5, 0, 1].iter().zip(tokens) {
            pool[slot * D..][..D].fill(token);
        }
        pool
    }

    /// Scores 32·q·k with q = 1/32 are k itself: weights 1/6, 2/6, 3/6.
    #[test]
    fn three_tokens_by_hand() {
        let k = pool(&[1f32.ln(), 2f32.ln(), 3f32.ln()]);
        let v = pool(&[6.0, -12.0, 2.0]);
        let found = run(&[1.0 / 32.0; D], 1, &k, &v, 3, 1.0);
        for i in 0..D {
            assert!((found.out[i] - (-2.0)).abs() < 1e-6, "{}", found.out[i]);
            assert!(
                (found.abs_out[i] - 6.0).abs() < 1e-6,
                "{}",
                found.abs_out[i]
            );
        }
        assert!((found.lse[0] - 6f64.ln()).abs() < 1e-6, "{}", found.lse[0]);
    }

    #[test]
    fn the_scale_is_applied_once() {
        let k = pool(&[1f32.ln(), 2f32.ln(), 3f32.ln()]);
        let found = run(&[1.0 / 16.0; D], 1, &k, &k, 3, 0.5);
        assert!((found.lse[0] - 6f64.ln()).abs() < 1e-6, "{}", found.lse[0]);
    }

    #[test]
    fn a_query_of_zeros_gives_the_mean_of_the_visible_values() {
        let v = pool(&[1.0, 2.0, 6.0, 100.0]);
        let found = run(&[0.0; 2 * D], 2, &v, &v, 3, 1.0);
        assert!(found.out.iter().all(|out| (out - 3.0).abs() < 1e-12));
        assert!(found.lse.iter().all(|lse| (lse - 3f64.ln()).abs() < 1e-12));
    }

    #[test]
    fn length_zero_gives_zeros_and_an_lse_of_minus_infinity() {
        let nan = pool(&[]);
        let found = run(&[f32::NAN; D], 1, &nan, &nan, 0, 1.0);
        assert_eq!(found.out, vec![0.0; D]);
        assert_eq!(found.lse, vec![f64::NEG_INFINITY]);
    }
}
