//! A case: everything that determines a batch, printed by every failure.

use std::fmt;

use paged_attention::DType;
use paged_attention::{AttentionConfig, CacheLayout, DeviceLimits, Error, Plan, SplitPolicy};

/// What decides a batch of tensors to the last bit. Its `Display` is a Rust literal.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub dtype: DType,
    pub head_dim: usize,
    pub num_q_heads: usize,
    pub num_kv_heads: usize,
    pub block_size: usize,
    pub order: CacheLayout,
    pub pool: Pool,
    pub rows: Rows,
    pub policy: SplitPolicy,
    /// Tokens of each sequence.
    pub lens: Vec<usize>,
    /// Capacity beyond the longest sequence, in tokens.
    pub spare_capacity: usize,
    /// Table columns past the longest sequence's last block; they and the tails hold garbage.
    pub spare_columns: usize,
    /// Entries between the table's rows.
    pub table_gap: usize,
    /// Blocks that no sequence uses.
    pub spare_blocks: usize,
    pub data: Data,
    /// Factor on 1 / sqrt(head_dim).
    pub scale: f32,
    /// Of q, K and V.
    pub seed: u64,
    /// Of the order of the physical blocks.
    pub block_seed: u64,
}

/// Where K and V lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// Two dense caches.
    Dense,
    /// One dense pool `[num_blocks, 2, ...]`.
    Fused,
    /// Two caches with room after every row, token and block, different for K and V.
    Padded,
}

/// Where the rows of q and out lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Both dense.
    Dense,
    /// q inside packed rows of q, k and v; out dense.
    PackedQkv,
    /// Gaps after every head and every token, in q and in out.
    Padded,
}

/// How q, K and V are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Data {
    /// Uniform in [−1, 1].
    Uniform,
    /// q is zero: every token weighs the same.
    ZeroQuery,
    /// Every element of V is this.
    ConstantValues(f32),
    /// q is 24 times as large: few tokens take all the weight.
    Sharp,
    /// Scores grow from token to token: every token is a new maximum.
    Rising,
    /// Scores fall from token to token: the first token is the maximum of all splits' maxima.
    Falling,
}

impl Case {
    /// A plain case; change what the test is about.
    pub fn new(dtype: DType, head_dim: usize, lens: &[usize]) -> Self {
        Self {
            dtype,
            head_dim,
            num_q_heads: 2,
            num_kv_heads: 1,
            block_size: 16,
            order: CacheLayout::Nhd,
            pool: Pool::Dense,
            rows: Rows::Dense,
            policy: SplitPolicy::Tokens(512),
            lens: lens.to_vec(),
            spare_capacity: 0,
            spare_columns: 2,
            table_gap: 0,
            spare_blocks: 3,
            data: Data::Uniform,
            scale: 1.0,
            seed: 1,
            block_seed: 1,
        }
    }

    pub fn heads(self, num_q_heads: usize, num_kv_heads: usize) -> Self {
        Self {
            num_q_heads,
            num_kv_heads,
            ..self
        }
    }

    pub fn block_size(self, block_size: usize) -> Self {
        Self { block_size, ..self }
    }

    pub fn split(self, tokens: u32) -> Self {
        Self {
            policy: SplitPolicy::Tokens(tokens),
            ..self
        }
    }

    pub fn data(self, data: Data) -> Self {
        Self { data, ..self }
    }

    pub fn config(&self) -> AttentionConfig {
        let config = AttentionConfig::new(
            self.dtype,
            self.num_q_heads,
            self.num_kv_heads,
            self.head_dim,
            self.block_size,
        );
        config.with_scale(config.scale * self.scale)
    }

    pub fn group(&self) -> usize {
        self.num_q_heads / self.num_kv_heads
    }

    pub fn max_seq_len(&self) -> usize {
        self.lens.iter().max().map_or(0, |&len| len) + self.spare_capacity
    }

    pub fn try_plan(&self) -> Result<Plan, Error> {
        // `Auto` fills this device; few multiprocessors make it choose short and long splits.
        let limits = DeviceLimits::gpu(4, 2048, 32, 100 * 1024, 65_536);
        Plan::new(
            &self.config(),
            self.lens.len(),
            self.max_seq_len(),
            self.policy,
            &limits,
        )
    }

    #[track_caller]
    pub fn plan(&self) -> Plan {
        self.try_plan()
            .unwrap_or_else(|error| panic!("{error}\n{self}"))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
