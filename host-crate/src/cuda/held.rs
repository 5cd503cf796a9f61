//! Buffers that belong to a back end.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use cust::memory::bytemuck::Zeroable;
use cust::memory::{CopyDestination, DeviceBuffer, DeviceCopy};

use super::context::ContextRef;
use super::driver::cust_error;
use crate::{Error, Op};

/// A buffer in a back end's context, freed in it whatever is current then.
pub(super) struct Held<T: DeviceCopy> {
    argument: &'static str,
    buffer: ManuallyDrop<DeviceBuffer<T>>,
    context: Arc<ContextRef>,
}

impl<T: DeviceCopy + Zeroable> Held<T> {
    /// `len` zeros, at least one: an empty buffer has no address.
    pub(super) fn zeroed(
        context: &Arc<ContextRef>,
        argument: &'static str,
        len: usize,
    ) -> Result<Self, Error> {
        let context = Arc::clone(context);
        let current = context.current()?;
        let buffer = DeviceBuffer::zeroed(len.max(1));
        drop(current);
        let failed = |error| cust_error("cuMemAlloc or cuMemsetD8", argument, error);
        Ok(Self {
            argument,
            buffer: ManuallyDrop::new(buffer.map_err(failed)?),
            context,
        })
    }

    /// Replaces the first values; with `wait`, only after everything that has been launched has run.
    pub(super) fn set(&mut self, values: &[T], wait: bool) -> Result<(), Error> {
        if values.is_empty() {
            return Ok(());
        }
        let current = self.context.current()?;
        if wait {
            current.synchronize()?;
        }
        let copied = self.buffer.index(..values.len()).copy_from(values);
        copied.map_err(|error| cust_error("cuMemcpyHtoD", self.argument, error))
    }

    /// Copies the first values to the host.
    pub(super) fn copy_to(&self, values: &mut [T]) -> Result<(), Error> {
        if values.is_empty() {
            return Ok(());
        }
        let _current = self.context.current()?;
        let copied = self.buffer.index(..values.len()).copy_to(values);
        copied.map_err(|error| cust_error("cuMemcpyDtoH", self.argument, error))
    }

    /// The address, for a call of a back end of `context`.
    pub(super) fn address(&self, op: Op, context: &ContextRef) -> Result<u64, Error> {
        if self.context.handle() == context.handle() {
            return Ok(self.buffer.as_device_ptr().as_raw());
        }
        let argument = self.argument;
        Err(Error::ForeignContext { op, argument })
    }
}

impl<T: DeviceCopy> Drop for Held<T> {
    fn drop(&mut self) {
        // Without its context the buffer cannot be freed; it ends with the context then.
        if let Ok(_current) = self.context.current() {
            // SAFETY: dropped here and nowhere else, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.buffer) };
        }
    }
}

impl Held<u8> {
    /// Sets every byte.
    pub(super) fn fill(&mut self, byte: u8) -> Result<(), Error> {
        let _current = self.context.current()?;
        let filled = self.buffer.set_8(byte);
        filled.map_err(|error| cust_error("cuMemsetD8", self.argument, error))
    }
}
