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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_dims_of_the_table_are_supported_and_others_print_the_list() {
        for dtype in DType::ALL {
            for head_dim in [32, 40, 64, 72, 80, 96, 112, 120, 128, 160, 192, 256, 512] {
                let found = supports(&AttentionConfig::new(dtype, 8, 8, head_dim, 16));
                let supported: Vec<u32> = head_dims(dtype).collect();
                if supported.contains(&(head_dim as u32)) {
                    assert_eq!(found, Ok(()));
                    continue;
                }
                let error = found.unwrap_err();
                assert_eq!(
                    error.to_string(),
                    format!(
                        "config: head_dim = {head_dim} is not supported for {}, must be one of 32, \
                         64, 80, 96, 112, 120, 128, 160, 192, 256",
                        dtype.name()
                    )
                );
                assert_eq!(
                    error,
                    Error::UnsupportedHeadDim {
                        dtype,
                        head_dim,
                        supported
                    }
                );
            }
        }
    }

    #[test]
    fn whole_head_ratios_are_supported_and_others_refused() {
        let with = |q, kv| supports(&AttentionConfig::new(DType::F16, q, kv, 128, 16));
        for (q, kv) in [
            (5, 1),
            (7, 1),
            (28, 4),
            (12, 2),
            (24, 2),
            (48, 8),
            (71, 1),
            (64, 1),
            (65_535, 65_535),
        ] {
            assert_eq!(with(q, kv), Ok(()), "({q}, {kv})");
        }
        for (num_q_heads, num_kv_heads) in [(16, 5), (5, 16)] {
            let error = with(num_q_heads, num_kv_heads).unwrap_err();
            assert_eq!(
                error,
                Error::HeadRatio {
                    num_q_heads,
                    num_kv_heads
                }
            );
            assert_eq!(
                error.to_string(),
                format!(
                    "config: num_q_heads = {num_q_heads}, must be a multiple of num_kv_heads {num_kv_heads}"
                )
            );
        }
    }

    #[test]
    fn counts_of_zero_and_past_the_grid_are_refused() {
        let good = AttentionConfig::new(DType::F16, 8, 8, 128, 16);
        let cases = [
            (
                AttentionConfig {
                    num_q_heads: 0,
                    ..good
                },
                "num_q_heads",
                0,
                65_535,
            ),
            (
                AttentionConfig {
                    num_q_heads: 65_536,
                    ..good
                },
                "num_q_heads",
                65_536,
                65_535,
            ),
            (
                AttentionConfig {
                    num_kv_heads: 0,
                    ..good
                },
                "num_kv_heads",
                0,
                65_535,
            ),
            (
                AttentionConfig {
                    block_size: 0,
                    ..good
                },
                "block_size",
                0,
                i32::MAX as u64,
            ),
            (
                AttentionConfig {
                    block_size: 1 << 31,
                    ..good
                },
                "block_size",
                1 << 31,
                i32::MAX as u64,
            ),
        ];
        for (config, argument, value, max) in cases {
            let error = supports(&config).unwrap_err();
            assert_eq!(
                error,
                Error::OutOfRange {
                    op: Op::Config,
                    argument,
                    value,
                    min: 1,
                    max
                }
            );
            assert_eq!(
                error.to_string(),
                format!("config: {argument} = {value}, must be between 1 and {max}")
            );
        }
    }

    #[test]
    fn scales_that_are_not_finite_are_refused() {
        let good = AttentionConfig::new(DType::F16, 8, 8, 128, 16);
        assert_eq!(good.scale, (1.0 / 128f64.sqrt()) as f32);
        assert_eq!(supports(&good.with_scale(-0.5)), Ok(()));
        for scale in [f32::INFINITY, f32::MAX] {
            let error = supports(&good.with_scale(scale)).unwrap_err();
            assert_eq!(error, Error::Scale { scale });
            assert_eq!(
                error.to_string(),
                format!(
                    "config: scale = {scale}, must be finite, also after multiplication by log2(e)"
                )
            );
        }
        assert!(supports(&good.with_scale(f32::NAN)).is_err());
    }
}
