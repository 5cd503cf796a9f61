//! A small batch over a shuffled pool, and plain attention over it.

use half::f16;

/// Sizes of a batch.
pub struct Problem {
    pub lengths: Vec<usize>,
    pub head_dim: usize,
    pub block_size: usize,
    pub q_heads: usize,
    pub kv_heads: usize,
}

/// Its tensors.
pub struct Data {
    /// `[num_seqs, q_heads, head_dim]`.
    pub q: Vec<f16>,
    /// `[num_blocks, block_size, kv_heads, head_dim]`.
    pub k: Vec<f16>,
    /// Likewise.
    pub v: Vec<f16>,
    /// `[num_seqs, columns]`; -1 past a sequence's last block.
    pub table: Vec<i32>,
    pub columns: usize,
}

/// Numbers in [-1, 1) that look random: the top bits of a linear congruential generator.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f16 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        f16::from_f32((self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0)
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Problem {
    pub fn scale(&self) -> f64 {
        1.0 / (self.head_dim as f64).sqrt()
    }

    /// First element of a token's row for a kv head.
    fn row(&self, data: &Data, seq: usize, token: usize, head: usize) -> usize {
        let block = data.table[seq * data.columns + token / self.block_size] as usize;
        let slot = block * self.block_size + token % self.block_size;
        (slot * self.kv_heads + head) * self.head_dim
    }

    /// Fills the pool: blocks in an odd order, NaN in every slot that no token owns.
    pub fn data(&self) -> Data {
        let mut numbers = Numbers(1);
        let blocks = |length: &usize| length.div_ceil(self.block_size);
        let live: usize = self.lengths.iter().map(blocks).sum();
        let columns = self.lengths.iter().map(blocks).max().unwrap_or(0).max(1);
        let num_blocks = live + 3;
        // Every block once: the step shares no factor with their number.
        let step = (2..).find(|&step| gcd(step, num_blocks) == 1).unwrap_or(1);
        let mut order = (0..num_blocks).map(|i| i * step % num_blocks);

        let elements = num_blocks * self.block_size * self.kv_heads * self.head_dim;
        let mut data = Data {
            q: (0..self.lengths.len() * self.q_heads * self.head_dim)
                .map(|_| numbers.next())
                .collect(),
            k: vec![f16::NAN; elements],
            v: vec![f16::NAN; elements],
            table: vec![-1; self.lengths.len() * columns],
            columns,
        };
        for (seq, length) in self.lengths.iter().enumerate() {
            for (column, block) in order.by_ref().take(blocks(length)).enumerate() {
                data.table[seq * columns + column] = block as i32;
            }
            for token in 0..*length {
                for head in 0..self.kv_heads {
                    let at = self.row(&data, seq, token, head);
                    data.k[at..][..self.head_dim].fill_with(|| numbers.next());
                    data.v[at..][..self.head_dim].fill_with(|| numbers.next());
                }
            }
        }
        data
    }

    /// Attention in f64: out and lse.
    pub fn attention(&self, data: &Data) -> (Vec<f64>, Vec<f64>) {
        let (d, group) = (self.head_dim, self.q_heads / self.kv_heads);
        let wide = |values: &[f16]| {
            values
                .iter()
                .map(|x| f64::from(x.to_f32()))
                .collect::<Vec<_>>()
        };
        let (q, k, v) = (wide(&data.q), wide(&data.k), wide(&data.v));
        let (mut out, mut lse) = (vec![], vec![]);
        for (seq, &length) in self.lengths.iter().enumerate() {
            for head in 0..self.q_heads {
                let query = &q[(seq * self.q_heads + head) * d..][..d];
                let rows = (0..length).map(|token| self.row(data, seq, token, head / group));
                let dot = |row: usize| {
                    query
                        .iter()
                        .zip(&k[row..][..d])
                        .map(|(a, b)| a * b)
                        .sum::<f64>()
                };
                let scores: Vec<_> = rows.clone().map(|row| self.scale() * dot(row)).collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|x| (x - max).exp()).sum();
                let mut result = vec![0.0; d];
                for (row, score) in rows.zip(&scores) {
                    let weight = (score - max).exp() / sum;
                    result
                        .iter_mut()
                        .zip(&v[row..][..d])
                        .for_each(|(o, v)| *o += weight * v);
                }
                out.extend(result);
                lse.push(if length == 0 {
                    f64::NEG_INFINITY
                } else {
                    max + sum.ln()
                });
            }
        }
        (out, lse)
    }
}
