//! Tokens in logical order, before anything is paged: what both sides of a comparison agree on.

use half::{bf16, f16};
use paged_attention::DType;

use crate::case::{Case, Data};
use crate::random::Random;

/// q, K and V of a batch, rounded to the storage type.
#[derive(Clone, Debug)]
pub struct Logical {
    pub seqs: Vec<Sequence>,
}

/// One sequence.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// `[num_q_heads, head_dim]`.
    pub q: Vec<f32>,
    /// `[len, num_kv_heads, head_dim]`.
    pub keys: Vec<f32>,
    /// `[len, num_kv_heads, head_dim]`.
    pub values: Vec<f32>,
    pub len: usize,
}

/// The nearest value of the storage type.
pub fn round(dtype: DType, x: f32) -> f32 {
    match dtype {
        DType::F32 => x,
        DType::F16 => f16::from_f32(x).to_f32(),
        DType::Bf16 => bf16::from_f32(x).to_f32(),
    }
}

impl Logical {
    pub fn generate(case: &Case) -> Self {
        let seqs = case.lens.iter().enumerate();
        let seqs = seqs.map(|(s, &len)| Sequence::generate(case, s as u64, len));
        Self {
            seqs: seqs.collect(),
        }
    }

    pub fn lens(&self) -> Vec<usize> {
        self.seqs.iter().map(|seq| seq.len).collect()
    }
}

impl Sequence {
    fn generate(case: &Case, index: u64, len: usize) -> Self {
        let mut random = Random::new(case.seed, index);
        let mut draw = |n: usize, factor: &dyn Fn(usize) -> f32| -> Vec<f32> {
            (0..n)
                .map(|i| round(case.dtype, random.unit() * factor(i)))
                .collect()
        };
        let d = case.head_dim;
        let mut q = draw(case.num_q_heads * d, &|_| match case.data {
            Data::ZeroQuery => 0.0,
            Data::Sharp => 24.0,
            _ => 1.0,
        });
        let row = case.num_kv_heads * d;
        let mut keys = draw(len * row, &|_| 1.0);
        let mut values = draw(len * row, &|_| 1.0);
        match case.data {
            Data::ConstantValues(c) => values.fill(round(case.dtype, c)),
            Data::Rising | Data::Falling => {
                // q all ones, a key all equal: its score is the same multiple of its height.
                q.fill(1.0);
                for (t, key) in keys.chunks_mut(row).enumerate() {
                    let step = if matches!(case.data, Data::Rising) {
                        t
                    } else {
                        len - 1 - t
                    };
                    // Multiples of 1/4 are exact in every type up to 2^6.
                    let step = step.min(255) as f32 / 4.0;
                    key.fill(step - 32.0);
                }
            }
            _ => {}
        }
        Self {
            q,
            keys,
            values,
            len,
        }
    }

    /// The same query over tokens `from..to`.
    pub fn slice(&self, from: usize, to: usize) -> Self {
        let row = self.keys.len() / self.len.max(1);
        let cut = |tokens: &[f32]| tokens[from * row..to * row].to_vec();
        Self {
            q: self.q.clone(),
            keys: cut(&self.keys),
            values: cut(&self.values),
            len: to - from,
        }
    }

    /// Every kv head `group` times, so that each query head has its own.
    pub fn repeat_heads(&self, group: usize, head_dim: usize) -> Self {
        let repeat = |tokens: &[f32]| {
            let heads = tokens.chunks(head_dim);
            heads.flat_map(|head| head.repeat(group)).collect()
        };
        Self {
            q: self.q.clone(),
            keys: repeat(&self.keys),
            values: repeat(&self.values),
            len: self.len,
        }
    }
}
