//! Pinned host memory: ordinary memory here.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_uint, c_void};

use crate::boundary::{Handle, In, Out, entry_points};
use crate::error::Code;
use crate::state::{State, current, state};
use crate::stream::refuse_while_capturing;

/// Alignment of what is allocated: a page.
const ALIGN: usize = 4096;

/// A piece of pinned memory.
#[derive(Clone, Copy)]
pub struct Pinned {
    pub bytes: usize,
    /// Handle of the context that pinned it.
    pub context: Handle,
    flags: c_uint,
    /// Allocated here, or registered by the client.
    allocated: bool,
}

/// The pinned piece that holds an address, and its start.
pub fn find(state: &State, address: usize) -> Option<(usize, Pinned)> {
    let (&start, &pinned) = state.pinned.range(..=address).next_back()?;
    (address - start < pinned.bytes).then_some((start, pinned))
}

fn allocate(pointer: Out<*mut c_void>, bytes: usize, flags: c_uint) -> Result<(), Code> {
    let context = current()?.handle;
    pointer.required()?;
    // Portable, mapped into the device, write-combined.
    if bytes == 0 || flags > 7 {
        return Err(Code::INVALID_VALUE);
    }
    refuse_while_capturing(None)?;
    let layout = Layout::from_size_align(bytes, ALIGN).map_err(|_| Code::OUT_OF_MEMORY)?;
    // SAFETY: the layout's size is not 0.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return Err(Code::OUT_OF_MEMORY);
    }
    let pinned = Pinned {
        bytes,
        context,
        flags,
        allocated: true,
    };
    state()?.pinned.insert(memory as usize, pinned);
    pointer.write(memory.cast())
}

/// Takes a piece out of the list, if it starts at `address` and came about as `allocated` says.
fn take(address: usize, allocated: bool, missing: Code) -> Result<Pinned, Code> {
    let mut state = state()?;
    match state.pinned.get(&address) {
        Some(pinned) if pinned.allocated == allocated => {}
        _ => return Err(missing),
    }
    state.pinned.remove(&address).ok_or(missing)
}

entry_points! {
    /// Allocates pinned memory.
    3020 fn cuMemAllocHost_v2(pointer: Out<*mut c_void>, bytes: usize) {
        allocate(pointer, bytes, 0)
    }

    /// Allocates pinned memory; the device cannot reach it.
    2020 fn cuMemHostAlloc(pointer: Out<*mut c_void>, bytes: usize, flags: c_uint) {
        allocate(pointer, bytes, flags)
    }

    /// Frees pinned memory.
    2000 fn cuMemFreeHost(pointer: In<c_void>) {
        current()?;
        let address = pointer.address();
        let pinned = take(address, true, Code::INVALID_VALUE)?;
        let layout = Layout::from_size_align(pinned.bytes, ALIGN).map_err(|_| Code::INVALID_VALUE)?;
        // SAFETY: `allocate` made this piece with this layout, and `take` gave it up exactly once.
        unsafe { dealloc(address as *mut u8, layout) };
        Ok(())
    }

    /// The flags of pinned memory.
    2030 fn cuMemHostGetFlags(flags: Out<c_uint>, pointer: In<c_void>) {
        current()?;
        let (_, pinned) = find(&*state()?, pointer.address()).ok_or(Code::INVALID_VALUE)?;
        flags.write(pinned.flags)
    }

    /// Registers the client's memory as pinned.
    6050 fn cuMemHostRegister_v2(pointer: In<c_void>, bytes: usize, flags: c_uint) {
        let context = current()?.handle;
        if pointer.is_null() || bytes == 0 || flags > 15 {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = state()?;
        if find(&state, pointer.address()).is_some() {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let pinned = Pinned { bytes, context, flags, allocated: false };
        state.pinned.insert(pointer.address(), pinned);
        Ok(())
    }

    /// Ends a registration.
    4000 fn cuMemHostUnregister(pointer: In<c_void>) {
        current()?;
        take(pointer.address(), false, Code::HOST_MEMORY_NOT_REGISTERED)?;
        Ok(())
    }
}
