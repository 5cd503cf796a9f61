//! The emulated device's figures.

/// Figures that follow from the compute capability: table "Technical Specifications per Compute
/// Capability" of the CUDA programming guide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Threads that a multiprocessor holds.
    pub threads_per_sm: u32,
    /// Blocks that a multiprocessor holds.
    pub blocks_per_sm: u32,
    /// Shared memory of a multiprocessor in bytes.
    pub shared_per_sm: u32,
    /// Shared memory that a block may opt in to, in bytes.
    pub shared_per_block: u32,
}

/// Shared memory that a block may have without asking, in bytes.
pub const DEFAULT_SHARED: u32 = 48 * 1024;
/// Shared memory that the system keeps for itself in each block, in bytes.
pub const RESERVED_SHARED: u32 = 1024;
/// Multiprocessors: few, so that plans made for this device stay small.
pub const MULTIPROCESSORS: u32 = 16;
/// Registers of a multiprocessor.
pub const REGISTERS: u32 = 65536;
/// Threads of a block.
pub const BLOCK_THREADS: u32 = 1024;
/// Extents of a block.
pub const BLOCK: [u32; 3] = [1024, 1024, 64];
/// Extents of a grid.
pub const GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];

/// The figures of a compute capability.
pub fn figures((major, minor): (u32, u32)) -> Figures {
    const KIB: u32 = 1024;
    let (threads_per_sm, blocks_per_sm, shared) = match (major, minor) {
        (..=6, _) => (2048, 32, 96),
        (7, 5) => (1024, 16, 64),
        (7, _) => (2048, 32, 96),
        (8, 0) => (2048, 32, 164),
        (8, 7) => (1536, 16, 164),
        (8, 9) => (1536, 24, 100),
        (8, _) => (1536, 16, 100),
        (12, _) => (1536, 24, 100),
        _ => (2048, 32, 228),
    };
    let shared_per_block = match (major, shared) {
        (..=6, _) => 48 * KIB,
        (7, all) => all * KIB,
        (_, all) => all * KIB - RESERVED_SHARED,
    };
    Figures {
        threads_per_sm,
        blocks_per_sm,
        shared_per_sm: shared * KIB,
        shared_per_block,
    }
}

/// Number of `CUlimit` values.
pub const CONTEXT_LIMITS: usize = 7;

/// The default of a `CUlimit`.
pub fn context_limit(limit: usize) -> Option<usize> {
    // Stack, printf buffer, malloc heap, nesting depth, pending launches, L2 granularity, L2 set-aside.
    [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0].get(limit).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opt_in_shared_memory_is_the_multiprocessors_less_the_reserve() {
        assert_eq!(figures((8, 0)).shared_per_block, 163 * 1024);
        assert_eq!(figures((8, 6)).shared_per_block, 99 * 1024);
        assert_eq!(figures((9, 0)).shared_per_block, 227 * 1024);
        assert_eq!(figures((7, 5)).shared_per_block, 64 * 1024);
    }
}
