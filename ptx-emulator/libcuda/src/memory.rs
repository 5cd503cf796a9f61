//! Device memory: allocated, filled, freed.

use std::ffi::c_uint;
use std::sync::Arc;

use crate::boundary::{Handle, Out, entry_points, say};
use crate::context::Context;
use crate::error::Code;
use crate::state::{Driver, State, current, state};
use crate::stream::{refuse_while_capturing, resolve, submit};
use crate::work::{Fill, Work};

/// A live piece of device memory.
#[derive(Clone, Copy)]
pub struct Allocation {
    pub size: u64,
    /// Handle of its context.
    pub context: Handle,
    /// Handle of the pool it came from, or 0.
    pub pool: Handle,
    /// A number that no other allocation has.
    pub number: usize,
}

/// Allocates device memory in a context.
pub fn allocate(context: &Context, bytes: usize, pool: Handle) -> Result<u64, Code> {
    let bytes = bytes as u64;
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut state = state()?;
    if bytes > free_bytes(&state, context.device)? {
        return Err(Code::OUT_OF_MEMORY);
    }
    let number = state.new_number();
    let name = format!("device buffer {number}");
    let address = context.memory.alloc(bytes, 256, &name).map_err(|error| {
        say(&error.to_string());
        Code::OUT_OF_MEMORY
    })?;
    let allocation = Allocation {
        size: bytes,
        context: context.handle,
        pool,
        number,
    };
    state.allocations.insert(address, allocation);
    Ok(address)
}

/// Frees device memory of any context.
pub fn free(address: u64) -> Result<(), Code> {
    if address == 0 {
        return Ok(());
    }
    let mut state = state()?;
    let allocation = state
        .allocations
        .remove(&address)
        .ok_or(Code::INVALID_VALUE)?;
    let context = state
        .contexts
        .get(allocation.context)
        .map_err(|_| Code::INVALID_CONTEXT)?;
    context
        .memory
        .free(address)
        .map_err(|_| Code::INVALID_VALUE)
}

fn free_bytes(state: &State, device: usize) -> Result<u64, Code> {
    let here = |a: &&Allocation| {
        state
            .contexts
            .get(a.context)
            .is_ok_and(|c| c.device == device)
    };
    let used: u64 = state
        .allocations
        .values()
        .filter(here)
        .map(|a| a.size)
        .sum();
    Ok(Driver::get()?.settings.memory_bytes.saturating_sub(used))
}

/// The allocation that holds `address`, and its start.
pub fn find(state: &State, address: u64) -> Option<(u64, Allocation)> {
    let (&base, &allocation) = state.allocations.range(..=address).next_back()?;
    (address - base < allocation.size).then_some((base, allocation))
}

/// The context whose memory holds all of a range: device memory, or a module's variable.
pub fn owner(address: u64, bytes: u64) -> Result<Arc<Context>, Code> {
    let state = state()?;
    let inside = |context: &&Arc<Context>| {
        context
            .memory
            .allocation_of(address)
            .is_some_and(|a| bytes <= a.size - (address - a.base))
    };
    state
        .contexts
        .iter()
        .find(inside)
        .cloned()
        .ok_or(Code::INVALID_VALUE)
}

/// Fills `count` elements of `bytes` bytes each.
fn fill(
    address: u64,
    value: u64,
    bytes: u64,
    count: usize,
    stream: Option<Handle>,
) -> Result<(), Code> {
    let context = current()?;
    if stream.is_none() {
        refuse_while_capturing(None)?;
    }
    let stream = resolve(&context, stream.unwrap_or(0))?;
    if count == 0 {
        return Ok(());
    }
    let len = (count as u64)
        .checked_mul(bytes)
        .ok_or(Code::INVALID_VALUE)?;
    if !address.is_multiple_of(bytes) {
        return Err(Code::INVALID_VALUE);
    }
    let owner = owner(address, len)?;
    let pattern = value.to_le_bytes()[..bytes as usize].to_vec();
    submit(
        &stream,
        Work::Fill(Fill {
            owner,
            address,
            pattern,
            count: count as u64,
        }),
    )
}

entry_points! {
    /// Allocates device memory.
    3020 fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) {
        let context = current()?;
        address.required()?;
        refuse_while_capturing(None)?;
        address.write(allocate(&context, bytes, 0)?)
    }

    /// Allocates rows of device memory that start 512 bytes, or a multiple, apart.
    3020 fn cuMemAllocPitch_v2(
        address: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: c_uint,
    ) {
        let context = current()?;
        address.required()?;
        pitch.required()?;
        if ![4, 8, 16].contains(&element) {
            return Err(Code::INVALID_VALUE);
        }
        refuse_while_capturing(None)?;
        let row = width.checked_next_multiple_of(512).ok_or(Code::INVALID_VALUE)?;
        let bytes = row.checked_mul(height).ok_or(Code::INVALID_VALUE)?;
        address.write(allocate(&context, bytes, 0)?)?;
        pitch.write(row)
    }

    /// Frees device memory.
    3020 fn cuMemFree_v2(address: u64) {
        current()?;
        refuse_while_capturing(None)?;
        free(address)
    }

    /// Free and total bytes of the current device.
    3020 fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let context = current()?;
        free.write(free_bytes(&*state()?, context.device)? as usize)?;
        total.write(Driver::get()?.settings.memory_bytes as usize)
    }

    /// Start and size of the allocation that holds an address.
    3020 fn cuMemGetAddressRange_v2(start: Out<u64>, size: Out<usize>, address: u64) {
        current()?;
        let (base, allocation) = find(&*state()?, address).ok_or(Code::NOT_FOUND)?;
        start.write_if_asked(base);
        size.write_if_asked(allocation.size as usize);
        Ok(())
    }

    /// Fills bytes.
    3020 fn cuMemsetD8_v2(address: u64, value: u8, count: usize) {
        fill(address, value.into(), 1, count, None)
    }

    /// Fills 16-bit elements.
    3020 fn cuMemsetD16_v2(address: u64, value: u16, count: usize) {
        fill(address, value.into(), 2, count, None)
    }

    /// Fills 32-bit elements.
    3020 fn cuMemsetD32_v2(address: u64, value: u32, count: usize) {
        fill(address, value.into(), 4, count, None)
    }

    /// Fills bytes in a stream.
    3020 fn cuMemsetD8Async(address: u64, value: u8, count: usize, stream: Handle) {
        fill(address, value.into(), 1, count, Some(stream))
    }

    /// Fills 16-bit elements in a stream.
    3020 fn cuMemsetD16Async(address: u64, value: u16, count: usize, stream: Handle) {
        fill(address, value.into(), 2, count, Some(stream))
    }

    /// Fills 32-bit elements in a stream.
    3020 fn cuMemsetD32Async(address: u64, value: u32, count: usize, stream: Handle) {
        fill(address, value.into(), 4, count, Some(stream))
    }
}
