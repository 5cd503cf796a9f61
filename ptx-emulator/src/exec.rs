//! Execution: blocks of a grid over host threads.

mod alu;
mod block;
mod copies;
mod global;
mod local;
mod matrix;
mod memory;
mod race;
mod run;
mod shared;
mod sync;
mod tally;
mod warp;
pub(crate) mod windows;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::code::{Code, Const64, R};
use crate::counters::{Counters, HotLine, Report};
use crate::error::{Error, LaunchError};
use crate::fault::Fault;
use crate::memory::{Allocation, Memory};
use crate::module::EntryInfo;
use crate::options::{Detectors, Launch, Options};
use block::Block;
use tally::Tally;

/// Largest shared memory of a block, as on sm_90 with opt-in.
const MAX_SHARED: u32 = 227 * 1024;
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];

type Res<T> = Result<T, Box<Fault>>;

/// What all blocks of a launch share.
pub(crate) struct Env<'a> {
    code: &'a Code,
    kernel: &'a str,
    memory: &'a Memory,
    /// Live allocations at the start, ascending.
    allocs: Vec<Arc<Allocation>>,
    params: &'a [u8],
    grid: [u32; 3],
    block: [u32; 3],
    /// Threads of a block.
    threads: u32,
    /// Static and dynamic.
    shared_bytes: u32,
    dynamic_shared: u32,
    const64: Vec<(R, u64)>,
    detectors: Detectors,
    limit: u64,
    count_memory: bool,
}

pub(crate) fn launch(
    code: &Code,
    info: &EntryInfo,
    memory: &Memory,
    variables: &[u64],
    launch: Launch,
    params: &[u8],
    options: &Options,
) -> Result<Report, Error> {
    let shared_bytes = check(info, launch, params)?;
    let const64 = code.const64.iter().map(|(r, value)| {
        let value = match value {
            Const64::Value(v) => *v,
            Const64::Variable(i, plus) => variables[*i as usize].wrapping_add_signed(*plus),
        };
        (*r, value)
    });
    let env = Env {
        code,
        kernel: &info.name,
        memory,
        allocs: memory.snapshot(),
        params,
        grid: launch.grid,
        block: launch.block,
        threads: launch.block.iter().product(),
        shared_bytes,
        dynamic_shared: launch.shared_bytes,
        const64: const64.collect(),
        detectors: options.detectors,
        limit: options.instruction_limit,
        count_memory: options.count_memory,
    };
    let blocks: u64 = launch.grid.iter().map(|n| u64::from(*n)).product();
    let available = || std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = options.threads.unwrap_or_else(available).max(1) as u64;
    let workers = threads.min(blocks);
    let next = AtomicU64::new(0);
    // Lowest block with a fault, and its fault. Blocks are handed out in ascending order, so all
    // blocks below it run to their end and the lowest fault is found however many workers race.
    let lowest = AtomicU64::new(u64::MAX);
    let fault: Mutex<Option<Box<Fault>>> = Mutex::new(None);
    let total: Mutex<Tally> = Mutex::new(Tally::new(&env));
    let worker = || {
        let mut block = Block::new(&env);
        loop {
            let index = next.fetch_add(1, Relaxed);
            if index >= blocks || index > lowest.load(Relaxed) {
                break;
            }
            if let Err(found) = block.run(&env, index) {
                let mut slot = fault.lock().unwrap_or_else(|p| p.into_inner());
                if index < lowest.load(Relaxed) {
                    lowest.store(index, Relaxed);
                    *slot = Some(found);
                }
            }
        }
        total
            .lock()
            .unwrap_or_else(|p| p.into_inner())
            .add(block.tally());
    };
    if workers == 1 {
        worker();
    } else {
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(worker);
            }
        });
    }
    if let Some(fault) = fault.into_inner().unwrap_or_else(|p| p.into_inner()) {
        return Err(Error::Fault(fault));
    }
    let tally = total.into_inner().unwrap_or_else(|p| p.into_inner());
    Ok(report(&env, &tally, options.hot_lines))
}

/// Refuses a launch that the machine would refuse; gives the shared memory of a block.
fn check(info: &EntryInfo, launch: Launch, params: &[u8]) -> Result<u32, LaunchError> {
    let entry = || info.name.clone();
    let given = params.len();
    if given as u64 != info.param_bytes {
        let expected = info.param_bytes as usize;
        return Err(LaunchError::ParamBytes {
            entry: entry(),
            given,
            expected,
        });
    }
    let extents = [
        ("grid", launch.grid, MAX_GRID),
        ("block", launch.block, MAX_BLOCK),
    ];
    for (argument, values, limits) in extents {
        for axis in 0..3 {
            let (value, limit) = (values[axis], limits[axis]);
            if value == 0 || value > limit {
                return Err(LaunchError::Extent {
                    entry: entry(),
                    argument,
                    axis,
                    value,
                    limit,
                });
            }
        }
    }
    let threads: u64 = launch.block.iter().map(|n| u64::from(*n)).product();
    let bound = info.max_threads.unwrap_or(u64::MAX).min(1024) as u32;
    if threads > u64::from(bound) {
        let source_of_limit = if bound < 1024 {
            ".maxntid"
        } else {
            "the machine"
        };
        let limit = bound;
        return Err(LaunchError::BlockThreads {
            entry: entry(),
            threads,
            limit,
            source_of_limit,
        });
    }
    if let Some(required) = info.required_block
        && required != launch.block
    {
        let given = launch.block;
        return Err(LaunchError::RequiredBlock {
            entry: entry(),
            given,
            required,
        });
    }
    let (fixed, dynamic) = (info.static_shared, launch.shared_bytes);
    let total = u64::from(fixed) + u64::from(dynamic);
    if total > MAX_SHARED.into() {
        let limit = MAX_SHARED;
        return Err(LaunchError::SharedBytes {
            entry: entry(),
            total,
            fixed,
            dynamic,
            limit,
        });
    }
    Ok(total as u32)
}

fn report(env: &Env<'_>, tally: &Tally, hot_lines: bool) -> Report {
    let mut counters = Counters {
        partial_warp_instructions: tally.partial,
        shared: tally.shared,
        bytes: tally.bytes,
        barriers: tally.barriers,
        blocks: tally.blocks,
        ..Counters::default()
    };
    let mut lines: BTreeMap<u32, HotLine> = BTreeMap::new();
    for (i, (inst, &count)) in env.code.insts.iter().zip(&tally.executed).enumerate() {
        if count == 0 {
            continue;
        }
        *counters.warp_instructions.entry(inst.class).or_default() += count;
        if hot_lines {
            let line = lines.entry(inst.line).or_insert_with(|| HotLine {
                line: inst.line,
                instruction: env.code.texts[i].clone(),
                class: inst.class,
                warp_instructions: 0,
            });
            line.warp_instructions += count;
        }
    }
    for (allocation, counts) in env.allocs.iter().zip(&tally.allocations) {
        if counts.requests != 0 {
            let sum = counters
                .allocations
                .entry(allocation.name.clone())
                .or_default();
            sum.requests += counts.requests;
            sum.loaded += counts.loaded;
            sum.stored += counts.stored;
            sum.loaded_per_block += counts.loaded_per_block;
        }
    }
    let mut hot_lines: Vec<HotLine> = lines.into_values().collect();
    hot_lines.sort_by_key(|l| std::cmp::Reverse(l.warp_instructions));
    Report {
        counters,
        hot_lines,
    }
}
