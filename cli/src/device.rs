//! `--device`: what computes.

#[cfg(feature = "cuda")]
use paged_attention::cuda::CudaBackend;
use paged_attention::emulator::Emulator;
use paged_attention::{AttentionConfig, DeviceLimits};

use crate::args::Device;
use crate::error::Error;
use crate::ptx::SetName;

/// A back end that is there.
pub enum Target {
    Cpu {
        /// Why it is not the CUDA device that was looked for.
        instead: Option<String>,
    },
    #[cfg(feature = "cuda")]
    Cuda {
        backend: CudaBackend,
        /// The set that it runs, in words.
        ptx: String,
    },
    Emulator {
        emulator: Emulator,
        /// Likewise.
        ptx: String,
    },
}

impl Target {
    /// The back end that `--device` names; `auto` takes the CPU where no CUDA device can run the
    /// configuration. A set of PTX may be named only where PTX is sure to run.
    pub fn choose(
        device: Device,
        set: Option<&SetName>,
        config: &AttentionConfig,
    ) -> Result<Self, Error> {
        let runs_ptx = matches!(device, Device::Cuda | Device::Emulator);
        if let Some(set) = set.filter(|_| !runs_ptx) {
            return Err(Error::PtxUnused(set.to_string()));
        }
        let set = set.cloned().unwrap_or_default();
        match device {
            Device::Cpu => Ok(Self::Cpu { instead: None }),
            Device::Emulator => {
                let ptx = set.load()?.into_owned();
                Ok(Self::Emulator {
                    ptx: set.describe(&ptx),
                    emulator: Emulator::new(ptx),
                })
            }
            Device::Cuda => Self::cuda(&set, config),
            Device::Auto if cfg!(not(feature = "cuda")) => Ok(Self::Cpu { instead: None }),
            Device::Auto => Ok(Self::cuda(&set, config).unwrap_or_else(|error| Self::Cpu {
                instead: Some(error.to_string()),
            })),
        }
    }

    #[cfg(feature = "cuda")]
    fn cuda(set: &SetName, config: &AttentionConfig) -> Result<Self, Error> {
        let ptx = set.load()?.into_owned();
        let words = set.describe(&ptx);
        let backend = CudaBackend::open(0)?.with_ptx(ptx);
        backend.supports(config)?;
        Ok(Self::Cuda {
            backend,
            ptx: words,
        })
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda(_: &SetName, _: &AttentionConfig) -> Result<Self, Error> {
        Err(Error::WithoutCuda)
    }

    /// What `--split auto` fills.
    pub fn limits(&self) -> DeviceLimits {
        match self {
            Self::Cpu { .. } => DeviceLimits::this_cpu(),
            #[cfg(feature = "cuda")]
            Self::Cuda { backend, .. } => backend.limits(),
            Self::Emulator { .. } => DeviceLimits::h100(),
        }
    }
}
