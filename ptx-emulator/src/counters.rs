//! What a launch did, counted.

use std::collections::BTreeMap;

use crate::table::Class;

/// Sectors of 32 bytes requested from one allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SectorCounts {
    /// Warp instructions that touched the allocation.
    pub requests: u64,
    /// Sum over load requests of the distinct sectors of each.
    pub loaded: u64,
    /// Sum over store and atomic requests of the distinct sectors of each.
    pub stored: u64,
    /// Distinct sectors that each block loaded, summed over the blocks: the least that loading
    /// every sector once per block would take.
    pub loaded_per_block: u64,
}

/// Shared-memory traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedCounts {
    /// Warp instructions that touched shared memory.
    pub requests: u64,
    /// Passes over the banks that they took.
    pub wavefronts: u64,
    /// Passes that the same bytes would take without bank conflicts.
    pub least_wavefronts: u64,
}

impl SharedCounts {
    /// Passes caused by bank conflicts.
    pub fn conflicts(&self) -> u64 {
        self.wavefronts - self.least_wavefronts
    }
}

/// Bytes moved by the lanes, per space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ByteCounts {
    /// Read from global memory, asynchronous copies included.
    pub global_read: u64,
    /// Written to global memory.
    pub global_written: u64,
    /// Read from shared memory.
    pub shared_read: u64,
    /// Written to shared memory, asynchronous copies included.
    pub shared_written: u64,
    /// Read from local memory.
    pub local_read: u64,
    /// Written to local memory.
    pub local_written: u64,
}

/// Counters of a launch: sums over its blocks, the same for any number of host threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Warp instructions issued, predicated-off ones included, by class.
    pub warp_instructions: BTreeMap<Class, u64>,
    /// Warp instructions that a part of the warp executed.
    pub partial_warp_instructions: u64,
    /// Per allocation of global memory, by name; allocations of one name are summed.
    pub allocations: BTreeMap<String, SectorCounts>,
    /// Shared memory.
    pub shared: SharedCounts,
    /// Bytes per space.
    pub bytes: ByteCounts,
    /// Block-wide barriers completed.
    pub barriers: u64,
    /// Blocks run.
    pub blocks: u64,
}

impl Counters {
    /// All warp instructions.
    pub fn total(&self) -> u64 {
        self.warp_instructions.values().sum()
    }

    /// All but register moves, whose number says more about the compiler than about the work.
    pub fn total_without_moves(&self) -> u64 {
        self.total() - self.class(Class::Move)
    }

    /// Warp instructions of one class.
    pub fn class(&self, class: Class) -> u64 {
        self.warp_instructions.get(&class).copied().unwrap_or(0)
    }

    /// Sums over all allocations.
    pub fn global(&self) -> SectorCounts {
        self.allocations
            .values()
            .fold(SectorCounts::default(), |a, b| SectorCounts {
                requests: a.requests + b.requests,
                loaded: a.loaded + b.loaded,
                stored: a.stored + b.stored,
                loaded_per_block: a.loaded_per_block + b.loaded_per_block,
            })
    }
}

/// How often the instructions of one PTX line were issued.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HotLine {
    /// Line in the PTX text.
    pub line: u32,
    /// The line's first instruction, with modifiers.
    pub instruction: String,
    /// Class of that instruction.
    pub class: Class,
    /// Warp instructions issued there.
    pub warp_instructions: u64,
}

/// Result of a launch without a fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Counters.
    pub counters: Counters,
    /// With [`Options::hot_lines`](crate::Options): executed lines, the most often executed first.
    pub hot_lines: Vec<HotLine>,
}
