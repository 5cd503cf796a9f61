//! Copies between host and device, of bytes and of rows.

use std::ffi::{c_uint, c_void};

use crate::boundary::{Handle, In, Out, entry_points};
use crate::error::Code;
use crate::memory::owner;
use crate::state::{current, state};
use crate::stream::{refuse_while_capturing, resolve, submit};
use crate::work::{Copy, Place, Work};

/// A device address with `bytes` bytes behind it.
fn device(address: u64, bytes: usize) -> Result<Place, Code> {
    Ok(Place::Device(owner(address, bytes as u64)?, address))
}

/// A host address, which must not be null.
fn host(address: usize) -> Result<Place, Code> {
    match address {
        0 => Err(Code::INVALID_VALUE),
        _ => Ok(Place::Host(address)),
    }
}

/// Device memory if the address is in some, else host memory. Device addresses lie above all of the
/// host's.
fn either(address: u64, bytes: usize) -> Result<Place, Code> {
    if address >= 1 << 48 {
        device(address, bytes)
    } else {
        host(address as usize)
    }
}

/// Copies in the default stream (`None`) or in a given one.
fn copy(
    to: impl FnOnce() -> Result<Place, Code>,
    from: impl FnOnce() -> Result<Place, Code>,
    bytes: usize,
    stream: Option<Handle>,
) -> Result<(), Code> {
    let context = current()?;
    if stream.is_none() {
        refuse_while_capturing(None)?;
    }
    let stream = resolve(&context, stream.unwrap_or(0))?;
    if bytes == 0 {
        return Ok(());
    }
    let (to, from) = (to()?, from()?);
    let work = Copy {
        from,
        to,
        from_pitch: bytes,
        to_pitch: bytes,
        width: bytes,
        height: 1,
    };
    submit(&stream, Work::Copy(work))
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy2d {
    from_x: usize,
    from_y: usize,
    from_kind: c_uint,
    from_host: usize,
    from_device: u64,
    from_array: usize,
    from_pitch: usize,
    to_x: usize,
    to_y: usize,
    to_kind: c_uint,
    to_host: usize,
    to_device: u64,
    to_array: usize,
    to_pitch: usize,
    width: usize,
    height: usize,
}

/// One end of a copy of rows.
struct End {
    kind: c_uint,
    host: usize,
    device: u64,
    x: usize,
    y: usize,
    pitch: usize,
}

impl End {
    /// Where the first row starts, and the bytes from one row to the next.
    fn place(&self, width: usize, height: usize) -> Result<(Place, usize), Code> {
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        let skip = self
            .y
            .checked_mul(pitch)
            .and_then(|rows| rows.checked_add(self.x));
        let reach = (height - 1)
            .checked_mul(pitch)
            .and_then(|rows| rows.checked_add(width));
        let (Some(skip), Some(reach)) = (skip, reach) else {
            return Err(Code::INVALID_VALUE);
        };
        if pitch < width {
            return Err(Code::INVALID_VALUE);
        }
        // CU_MEMORYTYPE_HOST, _DEVICE, _ARRAY, _UNIFIED.
        let place = match self.kind {
            1 => host(self.host)?,
            2 => device(self.device.wrapping_add(skip as u64), reach)?,
            3 => return Err(Code::NOT_SUPPORTED),
            4 => either(self.device.wrapping_add(skip as u64), reach)?,
            _ => return Err(Code::INVALID_VALUE),
        };
        let place = match place {
            Place::Host(address) if self.kind == 1 => Place::Host(address.wrapping_add(skip)),
            place => place,
        };
        Ok((place, pitch))
    }
}

fn copy_2d(copy: In<Copy2d>, stream: Option<Handle>) -> Result<(), Code> {
    let context = current()?;
    let copy = copy.read()?;
    if stream.is_none() {
        refuse_while_capturing(None)?;
    }
    let stream = resolve(&context, stream.unwrap_or(0))?;
    let (width, height) = (copy.width, copy.height);
    if width == 0 || height == 0 {
        return Ok(());
    }
    let from = End {
        kind: copy.from_kind,
        host: copy.from_host,
        device: copy.from_device,
        x: copy.from_x,
        y: copy.from_y,
        pitch: copy.from_pitch,
    };
    let to = End {
        kind: copy.to_kind,
        host: copy.to_host,
        device: copy.to_device,
        x: copy.to_x,
        y: copy.to_y,
        pitch: copy.to_pitch,
    };
    let (from, from_pitch) = from.place(width, height)?;
    let (to, to_pitch) = to.place(width, height)?;
    submit(
        &stream,
        Work::Copy(Copy {
            from,
            to,
            from_pitch,
            to_pitch,
            width,
            height,
        }),
    )
}

/// Copies between contexts; only the addresses matter.
fn peer(
    (to, to_context): (u64, Handle),
    (from, from_context): (u64, Handle),
    bytes: usize,
    stream: Option<Handle>,
) -> Result<(), Code> {
    for context in [to_context, from_context] {
        state()?
            .contexts
            .get(context)
            .map_err(|_| Code::INVALID_CONTEXT)?;
    }
    copy(|| device(to, bytes), || device(from, bytes), bytes, stream)
}

entry_points! {
    /// Copies from the host to the device.
    3020 fn cuMemcpyHtoD_v2(to: u64, from: In<c_void>, bytes: usize) {
        copy(|| device(to, bytes), || host(from.address()), bytes, None)
    }

    /// Copies from the device to the host.
    3020 fn cuMemcpyDtoH_v2(to: Out<c_void>, from: u64, bytes: usize) {
        copy(|| host(to.address()), || device(from, bytes), bytes, None)
    }

    /// Copies within the device.
    3020 fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) {
        copy(|| device(to, bytes), || device(from, bytes), bytes, None)
    }

    /// Copies between any two addresses.
    4000 fn cuMemcpy(to: u64, from: u64, bytes: usize) {
        copy(|| either(to, bytes), || either(from, bytes), bytes, None)
    }

    /// Copies from the host to the device in a stream.
    3020 fn cuMemcpyHtoDAsync_v2(to: u64, from: In<c_void>, bytes: usize, stream: Handle) {
        copy(|| device(to, bytes), || host(from.address()), bytes, Some(stream))
    }

    /// Copies from the device to the host in a stream.
    3020 fn cuMemcpyDtoHAsync_v2(to: Out<c_void>, from: u64, bytes: usize, stream: Handle) {
        copy(|| host(to.address()), || device(from, bytes), bytes, Some(stream))
    }

    /// Copies within the device in a stream.
    3020 fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) {
        copy(|| device(to, bytes), || device(from, bytes), bytes, Some(stream))
    }

    /// Copies between any two addresses in a stream.
    4000 fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle) {
        copy(|| either(to, bytes), || either(from, bytes), bytes, Some(stream))
    }

    /// Copies from one context to another.
    4000 fn cuMemcpyPeer(
        to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize,
    ) {
        peer((to, to_context), (from, from_context), bytes, None)
    }

    /// Copies from one context to another in a stream.
    4000 fn cuMemcpyPeerAsync(
        to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize, stream: Handle,
    ) {
        peer((to, to_context), (from, from_context), bytes, Some(stream))
    }

    /// Copies rows.
    3020 fn cuMemcpy2D_v2(copy: In<Copy2d>) {
        copy_2d(copy, None)
    }

    /// Copies rows whose pitches are not aligned.
    3020 fn cuMemcpy2DUnaligned_v2(copy: In<Copy2d>) {
        copy_2d(copy, None)
    }

    /// Copies rows in a stream.
    3020 fn cuMemcpy2DAsync_v2(copy: In<Copy2d>, stream: Handle) {
        copy_2d(copy, Some(stream))
    }
}
