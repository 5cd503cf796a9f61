//! The plan: how a configuration runs for a batch size and a context capacity. Pure arithmetic.

use crate::error::Shape;
use crate::kernels::geometry::{
    MAX_SPLIT_TOKENS, MAX_SPLITS, THREADS, UNIT_TOKENS, decode_grid, decode_shared_bytes,
    head_tiles, heads_per_cta, merge_grid, merge_shared_bytes,
};
use crate::kernels::variants::{DecodeVariant, MergeVariant, find_decode, find_merge};
use crate::{AttentionConfig, DeviceLimits, Error, Op, SplitPolicy, split, supports};

/// A decided way to run one configuration for up to `max_seq_len` tokens of `num_seqs` sequences.
///
/// The same plan drives every back end. It is made once and used for every call (and for every
/// replay of a captured CUDA graph) whose lengths stay within the capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    config: AttentionConfig,
    num_seqs: usize,
    max_seq_len: usize,
    policy: SplitPolicy,
    split_tokens: u32,
    num_splits: u32,
    workspace_bytes: usize,
    decode: &'static DecodeVariant,
    merge: &'static MergeVariant,
    decode_grid: [u32; 3],
    merge_grid: [u32; 3],
}

impl Plan {
    /// Plans `config` for `num_seqs` sequences of at most `max_seq_len` tokens.
    ///
    /// `limits` matters to [`SplitPolicy::Auto`] only.
    ///
    /// # Errors
    /// What [`supports`] refuses; [`Error::OutOfRange`] for a batch or capacity past `i32::MAX` or
    /// a device without multiprocessors; [`Error::SplitTokens`], [`Error::TooManySplits`];
    /// [`Error::Overflow`] if the workspace's size does.
    pub fn new(
        config: &AttentionConfig,
        num_seqs: usize,
        max_seq_len: usize,
        policy: SplitPolicy,
        limits: &DeviceLimits,
    ) -> Result<Self, Error> {
        supports(config)?;
        let range = |argument, value: usize, min: u64, max: u64| {
            let value = value as u64;
            if (min..=max).contains(&value) {
                Ok(value as u32)
            } else {
                Err(Error::OutOfRange {
                    op: Op::Plan,
                    argument,
                    value,
                    min,
                    max,
                })
            }
        };
        let seqs = range("num_seqs", num_seqs, 0, i32::MAX as u64)?;
        range("max_seq_len", max_seq_len, 0, i32::MAX as u64)?;
        range(
            "limits.sm_count",
            limits.sm_count as usize,
            1,
            u32::MAX.into(),
        )?;

        // `supports` bounds all of these.
        let head_dim = config.head_dim as u32;
        let group_size = config.group_size() as u32;
        let num_kv_heads = config.num_kv_heads as u32;
        let unsupported = || Error::UnsupportedHeadDim {
            dtype: config.dtype,
            head_dim: config.head_dim,
            supported: crate::kernels::variants::head_dims(config.dtype).collect(),
        };
        let decode = find_decode(config.dtype, head_dim, group_size).ok_or_else(unsupported)?;
        let merge = find_merge(config.dtype, head_dim).ok_or_else(unsupported)?;

        let split_tokens = match policy {
            SplitPolicy::Tokens(n) if n == 0 || n % UNIT_TOKENS != 0 || n > MAX_SPLIT_TOKENS => {
                let (unit, max) = (UNIT_TOKENS, MAX_SPLIT_TOKENS);
                return Err(Error::SplitTokens {
                    split_tokens: n,
                    unit,
                    max,
                });
            }
            SplitPolicy::Tokens(n) => n,
            SplitPolicy::Auto => {
                let tiles = head_tiles(decode, group_size);
                let ctas = u64::from(seqs) * u64::from(num_kv_heads) * u64::from(tiles);
                split::auto_tokens(ctas, max_seq_len as u64, split::slots(limits, decode))
            }
        };
        let num_splits = (max_seq_len as u64).div_ceil(split_tokens.into()).max(1);
        if num_splits > MAX_SPLITS.into() {
            let max = MAX_SPLITS;
            return Err(Error::TooManySplits {
                max_seq_len,
                split_tokens,
                num_splits,
                max,
            });
        }
        let num_splits = num_splits as u32;

        let too_large = |entry| Error::GridTooLarge {
            entry,
            num_seqs: seqs,
            num_kv_heads,
            num_splits,
        };
        Ok(Self {
            config: *config,
            num_seqs,
            max_seq_len,
            policy,
            split_tokens,
            num_splits,
            workspace_bytes: workspace_bytes(config, num_seqs, num_splits)?,
            decode,
            merge,
            decode_grid: decode_grid(decode, seqs, num_kv_heads, group_size, num_splits)
                .ok_or_else(|| too_large(decode.entry))?,
            merge_grid: merge_grid(seqs, config.num_q_heads as u32)
                .ok_or_else(|| too_large(merge.entry))?,
        })
    }

    /// The configuration.
    pub fn config(&self) -> &AttentionConfig {
        &self.config
    }

    /// Sequences per call.
    pub fn num_seqs(&self) -> usize {
        self.num_seqs
    }

    /// Capacity per sequence in tokens.
    pub fn max_seq_len(&self) -> usize {
        self.max_seq_len
    }

    /// The policy that was asked for.
    pub fn policy(&self) -> SplitPolicy {
        self.policy
    }

    /// Tokens per split: split i covers tokens `i * split_tokens .. (i + 1) * split_tokens`.
    pub fn split_tokens(&self) -> u32 {
        self.split_tokens
    }

    /// Splits that cover the capacity, at least 1.
    pub fn num_splits(&self) -> u32 {
        self.num_splits
    }

    /// Query heads that one CTA serves from one read of K and V.
    pub fn heads_per_cta(&self) -> u32 {
        heads_per_cta(self.decode, self.config.group_size() as u32)
    }

    /// Exactly the workspace that a call needs, in bytes; 0 with a single split. It holds the
    /// unnormalised partial outputs, f32 `[num_seqs, num_q_heads, num_splits, head_dim]`, then
    /// their (maximum, denominator), f32 `[num_seqs, num_q_heads, num_splits, 2]`.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// [`Plan::workspace_bytes`] in f32 elements.
    pub fn workspace_len(&self) -> usize {
        self.workspace_bytes / size_of::<f32>()
    }

    /// f32 elements of the partial outputs, the first part of the workspace.
    pub(crate) fn partial_out_len(&self) -> usize {
        let d = self.config.head_dim;
        self.workspace_len() / (d + 2) * d
    }

    /// The decode entry.
    pub fn decode_variant(&self) -> &'static DecodeVariant {
        self.decode
    }

    /// The merge entry; launched when there is more than one split.
    pub fn merge_variant(&self) -> &'static MergeVariant {
        self.merge
    }

    /// Grid of the decode launch.
    pub fn decode_grid(&self) -> [u32; 3] {
        self.decode_grid
    }

    /// Grid of the merge launch.
    pub fn merge_grid(&self) -> [u32; 3] {
        self.merge_grid
    }

    /// Threads per CTA of both launches.
    pub fn block(&self) -> [u32; 3] {
        [THREADS, 1, 1]
    }

    /// Dynamic shared memory of the decode launch in bytes.
    pub fn decode_shared_bytes(&self) -> u32 {
        decode_shared_bytes(self.decode)
    }

    /// Dynamic shared memory of the merge launch in bytes.
    pub fn merge_shared_bytes(&self) -> u32 {
        merge_shared_bytes(self.merge.head_dim)
    }
}

fn workspace_bytes(
    config: &AttentionConfig,
    num_seqs: usize,
    num_splits: u32,
) -> Result<usize, Error> {
    if num_splits == 1 {
        return Ok(0);
    }
    // Per row: the partial output, its maximum and its denominator, f32 each.
    let row_bytes = (config.head_dim + 2) * size_of::<f32>();
    let shape = [
        ("num_seqs", num_seqs),
        ("num_q_heads", config.num_q_heads),
        ("num_splits", num_splits as usize),
        ("row_bytes", row_bytes),
    ];
    let bytes = shape
        .iter()
        .try_fold(1usize, |product, &(_, size)| product.checked_mul(size));
    bytes
        .filter(|&bytes| bytes <= isize::MAX as usize)
        .ok_or_else(|| Error::Overflow {
            op: Op::Plan,
            argument: "the workspace",
            shape: Shape(shape.to_vec()),
        })
}

#[cfg(test)]
mod tests;
