//! Stream-ordered memory: one pool per device, which hands out ordinary device memory.

use std::ffi::{c_int, c_uint, c_void};

use crate::boundary::{Handle, In, Out, entry_points, say};
use crate::device::ordinal;
use crate::error::Code;
use crate::memory::{allocate, free};
use crate::state::{Driver, Kind, current, handle_of};
use crate::stream::resolve;

/// The pool of a device.
fn pool_of(device: usize) -> Handle {
    handle_of(Kind::Pool, device + 1)
}

fn check_pool(pool: Handle) -> Result<(), Code> {
    let known = (0..Driver::get()?.settings.devices).any(|device| pool_of(device) == pool);
    if known {
        Ok(())
    } else {
        Err(Code::INVALID_HANDLE)
    }
}

fn allocate_in_order(
    address: Out<u64>,
    bytes: usize,
    pool: Option<Handle>,
    stream: Handle,
) -> Result<(), Code> {
    let context = current()?;
    let stream = resolve(&context, stream)?;
    address.required()?;
    refuse_capture(stream.capture_number()?)?;
    let pool = pool.unwrap_or_else(|| pool_of(context.device));
    check_pool(pool)?;
    address.write(allocate(&context, bytes, pool)?)
}

/// Memory nodes of graphs are not supported.
fn refuse_capture(capture: Option<usize>) -> Result<(), Code> {
    if capture.is_some() {
        say("capturing an allocation is not supported");
        return Err(Code::NOT_SUPPORTED);
    }
    Ok(())
}

entry_points! {
    /// Allocates from the current device's pool in a stream.
    11020 fn cuMemAllocAsync(address: Out<u64>, bytes: usize, stream: Handle) {
        allocate_in_order(address, bytes, None, stream)
    }

    /// Allocates from a pool in a stream.
    11020 fn cuMemAllocFromPoolAsync(address: Out<u64>, bytes: usize, pool: Handle, stream: Handle) {
        allocate_in_order(address, bytes, Some(pool), stream)
    }

    /// Frees in a stream.
    11020 fn cuMemFreeAsync(address: u64, stream: Handle) {
        let stream = resolve(&*current()?, stream)?;
        refuse_capture(stream.capture_number()?)?;
        free(address)
    }

    /// A device's default pool.
    11020 fn cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: c_int) {
        pool.write(pool_of(ordinal(device)?))
    }

    /// A device's current pool, which is its default pool.
    11020 fn cuDeviceGetMemPool(pool: Out<Handle>, device: c_int) {
        pool.write(pool_of(ordinal(device)?))
    }

    /// Gives back unused memory; there is none.
    11020 fn cuMemPoolTrimTo(pool: Handle, _bytes: usize) {
        check_pool(pool)
    }

    /// Sets an attribute of a pool; without effect.
    11020 fn cuMemPoolSetAttribute(pool: Handle, which: c_uint, value: In<c_void>) {
        check_pool(pool)?;
        if which > 8 || value.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }
}
