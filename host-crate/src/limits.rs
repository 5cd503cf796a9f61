//! What a plan needs to know of the device, as data.

/// Figures of a device that [`crate::SplitPolicy::Auto`] fills. They steer speed, never results'
/// correctness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// Streaming multiprocessors; on a CPU, threads.
    pub sm_count: u32,
    /// Most threads resident on one multiprocessor.
    pub max_threads_per_sm: u32,
    /// Most CTAs resident on one multiprocessor.
    pub max_blocks_per_sm: u32,
    /// Shared memory per multiprocessor in bytes.
    pub shared_bytes_per_sm: u32,
    /// 32-bit registers per multiprocessor.
    pub registers_per_sm: u32,
}

impl DeviceLimits {
    /// A GPU from its device attributes.
    pub const fn gpu(
        sm_count: u32,
        max_threads_per_sm: u32,
        max_blocks_per_sm: u32,
        shared_bytes_per_sm: u32,
        registers_per_sm: u32,
    ) -> Self {
        Self {
            sm_count,
            max_threads_per_sm,
            max_blocks_per_sm,
            shared_bytes_per_sm,
            registers_per_sm,
        }
    }

    /// A100: 108 multiprocessors, 164 KB of shared memory each.
    pub const fn a100() -> Self {
        Self::gpu(108, 2048, 32, 164 * 1024, 65_536)
    }

    /// H100 and H200 (SXM): 132 multiprocessors, 228 KB of shared memory each.
    pub const fn h100() -> Self {
        Self::gpu(132, 2048, 32, 228 * 1024, 65_536)
    }

    /// A CPU that runs `threads` work items at a time.
    pub const fn cpu(threads: u32) -> Self {
        Self::gpu(threads, u32::MAX, 1, u32::MAX, u32::MAX)
    }

    /// The CPU this program runs on.
    pub fn this_cpu() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self::cpu(u32::try_from(threads).unwrap_or(u32::MAX))
    }
}
