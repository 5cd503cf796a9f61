//! Batches for measurements: every sequence of one length, behind a table and side by side.

use fastrand::Rng;
use half::f16;
use paged_attention::{AttentionConfig, DType, DeviceLimits, Plan, SplitPolicy};

use crate::args::{ContextRange, Dtype, Layout, SampleArgs};
use crate::batch::{Batch, CacheDims, Shapes};
use crate::buffer::{Buffer, Number};
use crate::error::Error;
use crate::sample;

/// A shape to measure, f16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub seqs: usize,
    pub q_heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub block_size: usize,
    pub ctx: usize,
    pub policy: SplitPolicy,
}

impl Shape {
    /// Bytes of K and V.
    pub fn kv_bytes(&self) -> u64 {
        let elements = self.seqs * self.ctx * self.kv_heads * self.head_dim;
        2 * elements as u64 * u64::from(DType::F16.bytes())
    }

    /// The plan for a device.
    pub fn plan(&self, limits: &DeviceLimits) -> Result<Plan, Error> {
        let config = AttentionConfig::new(
            DType::F16,
            self.q_heads,
            self.kv_heads,
            self.head_dim,
            self.block_size,
        );
        Ok(Plan::new(
            &config,
            self.seqs,
            self.ctx,
            self.policy,
            limits,
        )?)
    }

    /// Random tokens side by side: blocks as long as a sequence, in order.
    pub fn contiguous(&self) -> Result<Batch<f16>, Error> {
        let random = sample::random::<f16>(&SampleArgs {
            output: std::path::PathBuf::new(),
            num_seqs: self.seqs,
            ctx: ContextRange(self.ctx as u32..=self.ctx as u32),
            heads: self.q_heads,
            kv_heads: Some(self.kv_heads),
            head_dim: self.head_dim,
            block_size: self.ctx,
            dtype: Dtype::F16,
            layout: Layout::Nhd,
            seed: 1,
        })?;
        let mut batch = self.empty(&random, self.ctx, self.seqs)?;
        let sequence = self.ctx * self.kv_heads * self.head_dim;
        for (s, &block) in (0..).zip(&*random.block_table) {
            batch.block_table[s] = s as i32;
            let (to, from) = (s * sequence, block as usize * sequence);
            batch.k_cache[to..to + sequence]
                .copy_from_slice(&random.k_cache[from..from + sequence]);
            batch.v_cache[to..to + sequence]
                .copy_from_slice(&random.v_cache[from..from + sequence]);
        }
        Ok(batch)
    }

    /// The tokens of [`Shape::contiguous`] in shuffled blocks; unused slots hold NaN.
    pub fn paged(&self, side_by_side: &Batch<f16>) -> Result<Batch<f16>, Error> {
        let columns = self.ctx.div_ceil(self.block_size);
        let blocks = self.seqs * columns;
        let mut batch = self.empty(side_by_side, self.block_size, blocks)?;
        let mut shuffled: Vec<i32> = (0..blocks as i32).collect();
        Rng::with_seed(1).shuffle(&mut shuffled);
        batch.block_table.copy_from_slice(&shuffled);
        batch.k_cache.fill(f16::NAN);
        batch.v_cache.fill(f16::NAN);
        let token = self.kv_heads * self.head_dim;
        for s in 0..self.seqs {
            for column in 0..columns {
                let first = column * self.block_size;
                let run = self.block_size.min(self.ctx - first) * token;
                let from = (s * self.ctx + first) * token;
                let to = shuffled[s * columns + column] as usize * self.block_size * token;
                let copy = |to_pool: &mut [f16], pool: &[f16]| {
                    to_pool[to..to + run].copy_from_slice(&pool[from..from + run]);
                };
                copy(&mut batch.k_cache, &side_by_side.k_cache);
                copy(&mut batch.v_cache, &side_by_side.v_cache);
            }
        }
        Ok(batch)
    }

    /// A batch with the queries and lengths of another, and zeroed caches and table.
    fn empty(
        &self,
        like: &Batch<f16>,
        block_size: usize,
        blocks: usize,
    ) -> Result<Batch<f16>, Error> {
        let dims = CacheDims {
            num_blocks: blocks,
            block_size,
            num_kv_heads: self.kv_heads,
            head_dim: self.head_dim,
        };
        let layout = like.shapes.layout;
        let columns = self.ctx.div_ceil(block_size);
        let mut config = like.config;
        config.block_size = block_size;
        let pool = blocks * block_size * self.kv_heads * self.head_dim;
        Ok(Batch {
            shapes: Shapes {
                k_cache: dims.ordered(layout),
                v_cache: dims.ordered(layout),
                block_table: [self.seqs, columns],
                ..like.shapes
            },
            config,
            q: copy("q", &like.q)?,
            k_cache: Buffer::zeroed("k_cache", pool)?,
            v_cache: Buffer::zeroed("v_cache", pool)?,
            block_table: Buffer::zeroed("block_table", self.seqs * columns)?,
            seq_lens: copy("seq_lens", &like.seq_lens)?,
        })
    }
}

fn copy<T: Number>(what: &'static str, from: &[T]) -> Result<Buffer<T>, Error> {
    let mut to = Buffer::zeroed(what, from.len())?;
    to.copy_from_slice(from);
    Ok(to)
}
