//! Occupancy: by threads, blocks and shared memory; there are no registers to run out of.

use std::ffi::{c_int, c_uint, c_void};

use crate::boundary::{Handle, Out, entry_points};
use crate::error::Code;
use crate::function::{Function, function};
use crate::limits::{Figures, RESERVED_SHARED, figures};
use crate::state::{Driver, current};

fn device() -> Result<Figures, Code> {
    Ok(figures(Driver::get()?.settings.capability))
}

/// Blocks of a function that a multiprocessor holds.
fn blocks(function: &Function, figures: &Figures, threads: u32, dynamic: usize) -> u32 {
    let warps = threads.div_ceil(32) * 32;
    let shared = function.info.static_shared as usize + dynamic;
    if threads == 0
        || threads > function.max_threads()
        || shared > figures.shared_per_block as usize
    {
        return 0;
    }
    let by_shared = figures.shared_per_sm / (shared as u32 + RESERVED_SHARED);
    figures
        .blocks_per_sm
        .min(figures.threads_per_sm / warps)
        .min(by_shared)
}

fn max_active(
    count: Out<c_int>,
    handle: Handle,
    threads: c_int,
    dynamic: usize,
) -> Result<(), Code> {
    current()?;
    let threads = u32::try_from(threads)
        .ok()
        .filter(|&t| t > 0)
        .ok_or(Code::INVALID_VALUE)?;
    count.write(blocks(&*function(handle)?, &device()?, threads, dynamic) as c_int)
}

/// `CUoccupancyB2DSize`.
type SharedOfBlock = Option<extern "C" fn(c_int) -> usize>;

fn potential(
    grid: Out<c_int>,
    block: Out<c_int>,
    handle: Handle,
    shared_of: SharedOfBlock,
    dynamic: usize,
    limit: c_int,
) -> Result<(), Code> {
    current()?;
    let (function, figures) = (function(handle)?, device()?);
    let most = match limit {
        0 => function.max_threads(),
        limit => function
            .max_threads()
            .min(u32::try_from(limit).map_err(|_| Code::INVALID_VALUE)?),
    };
    let mut best = (0, 0, 0);
    for threads in (1..=most.div_ceil(32)).map(|warps| (warps * 32).min(most)) {
        let dynamic = shared_of.map_or(dynamic, |shared_of| shared_of(threads as c_int));
        let blocks = blocks(&function, &figures, threads, dynamic);
        // The most threads in flight, and of those the largest block.
        best = best.max((blocks * threads, threads, blocks));
    }
    let (_, threads, blocks) = best;
    grid.write((blocks * crate::limits::MULTIPROCESSORS) as c_int)?;
    block.write(threads as c_int)
}

entry_points! {
    /// Blocks of a function that a multiprocessor holds.
    6050 fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        count: Out<c_int>, handle: Handle, threads: c_int, dynamic: usize,
    ) {
        max_active(count, handle, threads, dynamic)
    }

    /// Blocks of a function that a multiprocessor holds.
    7000 fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        count: Out<c_int>, handle: Handle, threads: c_int, dynamic: usize, _flags: c_uint,
    ) {
        max_active(count, handle, threads, dynamic)
    }

    /// The block size that keeps most threads in flight.
    6050 fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<c_int>, block: Out<c_int>, handle: Handle, shared_of: SharedOfBlock,
        dynamic: usize, limit: c_int,
    ) {
        potential(grid, block, handle, shared_of, dynamic, limit)
    }

    /// The block size that keeps most threads in flight.
    7000 fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<c_int>, block: Out<c_int>, handle: Handle, shared_of: SharedOfBlock,
        dynamic: usize, limit: c_int, _flags: c_uint,
    ) {
        potential(grid, block, handle, shared_of, dynamic, limit)
    }

    /// Dynamic shared memory that each of so many blocks can have.
    11000 fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<usize>, handle: Handle, blocks: c_int, _threads: c_int,
    ) {
        current()?;
        let (function, figures) = (function(handle)?, device()?);
        let blocks = u32::try_from(blocks).ok().filter(|&b| b > 0).ok_or(Code::INVALID_VALUE)?;
        let share = (figures.shared_per_sm / blocks).saturating_sub(RESERVED_SHARED);
        let share = share.min(figures.shared_per_block);
        bytes.write(share.saturating_sub(function.info.static_shared) as usize)
    }

    /// Largest cluster: one block.
    11070 fn cuOccupancyMaxPotentialClusterSize(
        size: Out<c_int>, handle: Handle, _config: Out<c_void>,
    ) {
        current()?;
        function(handle)?;
        size.write(1)
    }
}
