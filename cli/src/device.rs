//! `--device`: what computes.

#[cfg(feature = "cuda")]
use paged_attention::cuda::CudaBackend;
use paged_attention::{AttentionConfig, DeviceLimits};

use crate::args::Device;
use crate::error::Error;

/// A back end that is there.
pub enum Target {
    Cpu {
        /// Why it is not the CUDA device that was looked for.
        instead: Option<String>,
    },
    #[cfg(feature = "cuda")]
    Cuda(CudaBackend),
    Emulator,
}

impl Target {
    /// The back end that `--device` names; `auto` takes the CPU where no CUDA device can run the
    /// configuration.
    pub fn choose(device: Device, config: &AttentionConfig) -> Result<Self, Error> {
        match device {
            Device::Cpu => Ok(Self::Cpu { instead: None }),
            Device::Emulator => Ok(Self::Emulator),
            Device::Cuda => Self::cuda(config),
            Device::Auto if cfg!(not(feature = "cuda")) => Ok(Self::Cpu { instead: None }),
            Device::Auto => Ok(Self::cuda(config).unwrap_or_else(|error| Self::Cpu {
                instead: Some(error.to_string()),
            })),
        }
    }

    #[cfg(feature = "cuda")]
    fn cuda(config: &AttentionConfig) -> Result<Self, Error> {
        let backend = CudaBackend::open(0)?;
        backend.supports(config)?;
        Ok(Self::Cuda(backend))
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda(_: &AttentionConfig) -> Result<Self, Error> {
        Err(Error::WithoutCuda)
    }

    /// What `--split auto` fills.
    pub fn limits(&self) -> DeviceLimits {
        match self {
            Self::Cpu { .. } => DeviceLimits::this_cpu(),
            #[cfg(feature = "cuda")]
            Self::Cuda(backend) => backend.limits(),
            Self::Emulator => DeviceLimits::h100(),
        }
    }
}
