//! The context that a back end belongs to.

use std::ffi::c_int;

use cust::sys::CUcontext;

use super::driver::{self, Current, DeviceAttribute};
use crate::{DeviceLimits, Error, Plan};

/// What is known of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceInfo {
    pub name: String,
    pub capability: (u32, u32),
    pub driver: (u32, u32),
    pub limits: DeviceLimits,
    pub l2_cache_bytes: usize,
    /// Shared memory that a block may opt in to, in bytes.
    pub shared_per_block: u32,
}

/// A context, kept alive if it is a primary one.
pub(super) struct ContextRef {
    context: CUcontext,
    /// The device whose primary context has been retained.
    retained: Option<c_int>,
    info: DeviceInfo,
}

// SAFETY: a context handle may be made current on any thread, on several at a time; the driver
// synchronises inside.
unsafe impl Send for ContextRef {}
// SAFETY: likewise; nothing here changes after construction.
unsafe impl Sync for ContextRef {}

impl ContextRef {
    /// # Safety
    /// `context` is live, and stays so as long as this value unless it is its device's primary one.
    pub(super) unsafe fn new(context: CUcontext, primary: bool) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        let device = unsafe { Current::push(context) }?.device()?;
        let info = DeviceInfo::query(device)?;
        let retained = match primary {
            true => {
                driver::retain_primary(device)?;
                Some(device)
            }
            false => None,
        };
        Ok(Self {
            context,
            retained,
            info,
        })
    }

    /// The primary context of the device with this number.
    pub(super) fn open(ordinal: u32) -> Result<Self, Error> {
        let device = driver::device(ordinal)?;
        let info = DeviceInfo::query(device)?;
        Ok(Self {
            context: driver::retain_primary(device)?,
            retained: Some(device),
            info,
        })
    }

    pub(super) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    pub(super) fn handle(&self) -> CUcontext {
        self.context
    }

    /// Makes the context current on this thread until the result is dropped.
    pub(super) fn current(&self) -> Result<Current, Error> {
        // SAFETY: retained, or kept alive by whoever called `new`.
        unsafe { Current::push(self.context) }
    }
}

impl Drop for ContextRef {
    fn drop(&mut self) {
        if let Some(device) = self.retained {
            driver::release_primary(device);
        }
    }
}

impl DeviceInfo {
    fn query(device: c_int) -> Result<Self, Error> {
        let get = |attribute| driver::attribute(device, attribute);
        Ok(Self {
            name: driver::device_name(device)?,
            capability: (
                get(DeviceAttribute::ComputeCapabilityMajor)?,
                get(DeviceAttribute::ComputeCapabilityMinor)?,
            ),
            driver: driver::driver_version()?,
            limits: DeviceLimits::gpu(
                get(DeviceAttribute::MultiprocessorCount)?,
                get(DeviceAttribute::MaxThreadsPerMultiprocessor)?,
                get(DeviceAttribute::MaxBlocksPerMultiprocessor)?,
                get(DeviceAttribute::MaxSharedMemoryPerMultiprocessor)?,
                get(DeviceAttribute::MaxRegistersPerMultiprocessor)?,
            ),
            l2_cache_bytes: get(DeviceAttribute::L2CacheSize)? as usize,
            shared_per_block: get(DeviceAttribute::MaxSharedMemoryPerBlockOptin)?,
        })
    }

    /// Whether the device has the shared memory of a plan's launches.
    pub(super) fn check_shared(&self, plan: &Plan) -> Result<(), Error> {
        let decode = (plan.decode_variant().entry, plan.decode_shared_bytes());
        let merge = (plan.merge_variant().entry, plan.merge_shared_bytes());
        for (entry, bytes) in [decode, merge] {
            let max = self.shared_per_block;
            if bytes > max {
                let device = self.name.clone();
                return Err(Error::SharedMemory {
                    entry,
                    bytes,
                    device,
                    max,
                });
            }
        }
        Ok(())
    }
}
