//! What is computed: types, head counts and sizes.

use crate::kernels::geometry::MAX_GRID_YZ;
use crate::kernels::variants::{find_decode, head_dims};
use crate::{DType, Error, Op};

/// Configuration of one attention layer, the same for every call of it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttentionConfig {
    /// Storage type of q, K, V and out. Sums are kept in f32 whatever it is.
    pub dtype: DType,
    /// Query heads.
    pub num_q_heads: usize,
    /// Key/value heads; divides `num_q_heads`. Query head h reads kv head
    /// `h / (num_q_heads / num_kv_heads)`.
    pub num_kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Tokens per physical block, any number ≥ 1.
    pub block_size: usize,
    /// Factor on q·k before the softmax.
    pub scale: f32,
}

impl AttentionConfig {
    /// A configuration with the usual scale, `1 / sqrt(head_dim)`.
    pub fn new(
        dtype: DType,
        num_q_heads: usize,
        num_kv_heads: usize,
        head_dim: usize,
        block_size: usize,
    ) -> Self {
        let scale = (1.0 / (head_dim as f64).sqrt()) as f32;
        Self {
            dtype,
            num_q_heads,
            num_kv_heads,
            head_dim,
            block_size,
            scale,
        }
    }

    /// The same configuration with another scale.
    pub fn with_scale(self, scale: f32) -> Self {
        Self { scale, ..self }
    }

    /// Query heads per kv head; 0 where the configuration has no kv heads.
    pub fn group_size(&self) -> usize {
        self.num_q_heads.checked_div(self.num_kv_heads).unwrap_or(0)
    }
}

/// Whether every back end computes this configuration; the error says why not, and which head
/// dims there are.
///
/// # Errors
/// [`Error::UnsupportedHeadDim`], [`Error::OutOfRange`] for a count or size that is 0 or too
/// large, [`Error::HeadRatio`], [`Error::Scale`].
pub fn supports(config: &AttentionConfig) -> Result<(), Error> {
    let range = |argument, value: usize, max: usize| {
        if (1..=max).contains(&value) {
            Ok(())
        } else {
            let (min, max) = (1, max as u64);
            Err(Error::OutOfRange {
                op: Op::Config,
                argument,
                value: value as u64,
                min,
                max,
            })
        }
    };
    range("num_q_heads", config.num_q_heads, MAX_GRID_YZ as usize)?;
    range("num_kv_heads", config.num_kv_heads, MAX_GRID_YZ as usize)?;
    range("block_size", config.block_size, i32::MAX as usize)?;
    if !config.num_q_heads.is_multiple_of(config.num_kv_heads) {
        return Err(Error::HeadRatio {
            num_q_heads: config.num_q_heads,
            num_kv_heads: config.num_kv_heads,
        });
    }
    if !(config.scale * std::f32::consts::LOG2_E).is_finite() {
        return Err(Error::Scale {
            scale: config.scale,
        });
    }
    let head_dim = u32::try_from(config.head_dim).ok();
    match head_dim.and_then(|d| find_decode(config.dtype, d, 1)) {
        Some(_) => Ok(()),
        None => Err(Error::UnsupportedHeadDim {
            dtype: config.dtype,
            head_dim: config.head_dim,
            supported: head_dims(config.dtype).collect(),
        }),
    }
}
