//! The driver functions that this back end calls, with plain numbers as results.
//!
//! cust's bindings return a Rust enum, which a driver newer than the bindings may leave; and cust
//! wraps neither function attributes nor the compiler's log.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr::{null, null_mut};

use cust::error::CudaError;
use cust::sys::{CUcontext, CUfunction, CUmodule, CUstream};

use crate::{CacheArgs, CacheLaunch, Error, Launch, LaunchArgs};

unsafe extern "C" {
    fn cuCtxGetDevice(device: *mut c_int) -> u32;
    fn cuCtxPopCurrent_v2(context: *mut CUcontext) -> u32;
    fn cuCtxPushCurrent_v2(context: CUcontext) -> u32;
    fn cuCtxSynchronize() -> u32;
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> u32;
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) -> u32;
    fn cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) -> u32;
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> u32;
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: c_int) -> u32;
    fn cuDriverGetVersion(version: *mut c_int) -> u32;
    fn cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int) -> u32;
    fn cuGetErrorName(error: u32, name: *mut *const c_char) -> u32;
    fn cuGetErrorString(error: u32, text: *mut *const c_char) -> u32;
    fn cuInit(flags: c_uint) -> u32;
    fn cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> u32;
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char)
    -> u32;
    fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        num_options: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) -> u32;
    fn cuModuleUnload(module: CUmodule) -> u32;
    fn cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, address: u64) -> u32;
    fn cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) -> u32;
    fn cuStreamIsCapturing(stream: CUstream, status: *mut c_uint) -> u32;
}

/// `CUdevice_attribute`: a multiprocessor's figures, the second-level cache's size and the compute
/// capability.
#[derive(Clone, Copy, Debug)]
pub(super) enum DeviceAttribute {
    MultiprocessorCount = 16,
    L2CacheSize = 38,
    MaxThreadsPerMultiprocessor = 39,
    ComputeCapabilityMajor = 75,
    ComputeCapabilityMinor = 76,
    MaxSharedMemoryPerMultiprocessor = 81,
    MaxRegistersPerMultiprocessor = 82,
    MaxSharedMemoryPerBlockOptin = 97,
    MaxBlocksPerMultiprocessor = 106,
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_uint = 8;
/// `CU_POINTER_ATTRIBUTE_CONTEXT`.
const POINTER_CONTEXT: c_uint = 1;
/// `CU_JIT_ERROR_LOG_BUFFER`.
const JIT_ERROR_LOG_BUFFER: c_uint = 5;
/// `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const JIT_ERROR_LOG_BUFFER_SIZE_BYTES: c_uint = 6;

/// A driver result as a `Result`; `subject` is what the call was for.
fn check(call: &'static str, subject: &str, number: u32) -> Result<(), Error> {
    check_with(call, subject, number, || None)
}

fn check_with(
    call: &'static str,
    subject: &str,
    number: u32,
    detail: impl FnOnce() -> Option<String>,
) -> Result<(), Error> {
    if number == 0 {
        return Ok(());
    }
    Err(Error::Driver {
        call,
        subject: subject.into(),
        name: text(number, cuGetErrorName),
        number,
        detail: detail().unwrap_or_else(|| text(number, cuGetErrorString)),
    })
}

fn text(number: u32, of: unsafe extern "C" fn(u32, *mut *const c_char) -> u32) -> String {
    let mut text = null();
    // SAFETY: both functions take any number and write a pointer to a static string or null.
    let known = unsafe { of(number, &mut text) } == 0 && !text.is_null();
    if !known {
        return "unknown to this driver".into();
    }
    // SAFETY: the driver's strings are NUL-terminated and live as long as the process.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// What the driver is told of a launch, besides function and stream.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    entry: &'static str,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    /// The entry's single parameter.
    args: *const c_void,
    borrow: PhantomData<&'a ()>,
}

impl<'a> From<&'a Launch> for Call<'a> {
    fn from(launch: &'a Launch) -> Self {
        let &Launch {
            entry,
            grid,
            block,
            shared_bytes,
            ref args,
        } = launch;
        Self {
            entry,
            grid,
            block,
            shared_bytes,
            args: match args {
                LaunchArgs::Decode(args) => std::ptr::from_ref(args).cast(),
                LaunchArgs::Merge(args) => std::ptr::from_ref(args).cast(),
            },
            borrow: PhantomData,
        }
    }
}

impl<'a> From<&'a CacheLaunch> for Call<'a> {
    fn from(launch: &'a CacheLaunch) -> Self {
        let &CacheLaunch {
            entry,
            grid,
            block,
            ref args,
        } = launch;
        Self {
            entry,
            grid,
            block,
            shared_bytes: 0,
            args: match args {
                CacheArgs::ReshapeAndCache(args) => std::ptr::from_ref(args).cast(),
                CacheArgs::CopyBlocks(args) => std::ptr::from_ref(args).cast(),
                CacheArgs::GatherCache(args) => std::ptr::from_ref(args).cast(),
            },
            borrow: PhantomData,
        }
    }
}

/// A context that is current on this thread until dropped; not `Send`, since the stack of contexts is
/// the thread's own.
pub(super) struct Current(PhantomData<*const ()>);

impl Current {
    /// # Safety
    /// `context` is a live context.
    pub(super) unsafe fn push(context: CUcontext) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        let number = unsafe { cuCtxPushCurrent_v2(context) };
        check("cuCtxPushCurrent", "the back end's context", number)?;
        Ok(Self(PhantomData))
    }

    pub(super) fn device(&self) -> Result<c_int, Error> {
        let mut device = 0;
        // SAFETY: a context is current, and the result is written to a live integer.
        check("cuCtxGetDevice", "the current context", unsafe {
            cuCtxGetDevice(&mut device)
        })?;
        Ok(device)
    }

    pub(super) fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: a context is current.
        check("cuCtxSynchronize", "the current context", unsafe {
            cuCtxSynchronize()
        })
    }

    /// Compiles a PTX text for the current device.
    pub(super) fn load(&self, file: &str, ptx: &CStr) -> Result<CUmodule, Error> {
        let mut module = null_mut();
        let mut log = vec![0u8; 8192];
        let mut options = [JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The size travels in the pointer itself, as the driver's interface has it.
        let mut values = [
            log.as_mut_ptr().cast::<c_void>(),
            std::ptr::without_provenance_mut(log.len()),
        ];
        // SAFETY: a context is current; `ptx` is NUL-terminated; the arrays have two elements each,
        // of the kinds that their options take; the log outlives the call.
        let number = unsafe {
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            cuModuleLoadDataEx(&mut module, ptx.as_ptr().cast(), 2, options, values)
        };
        check_with("cuModuleLoadDataEx", file, number, || {
            let log = CStr::from_bytes_until_nul(&log).ok()?.to_string_lossy();
            (!log.trim().is_empty()).then(|| log.trim().into())
        })?;
        Ok(module)
    }

    /// # Safety
    /// `module` is a loaded module of the current context.
    pub(super) unsafe fn function(
        &self,
        module: CUmodule,
        entry: &str,
        name: &CStr,
    ) -> Result<CUfunction, Error> {
        let mut function = null_mut();
        // SAFETY: the caller's promise; `name` is NUL-terminated.
        let number = unsafe { cuModuleGetFunction(&mut function, module, name.as_ptr()) };
        check("cuModuleGetFunction", entry, number)?;
        Ok(function)
    }

    /// Allows launches with this much dynamic shared memory.
    ///
    /// # Safety
    /// `function` belongs to a loaded module of the current context.
    pub(super) unsafe fn allow_shared(
        &self,
        function: CUfunction,
        entry: &str,
        bytes: u32,
    ) -> Result<(), Error> {
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: the caller's promise.
        let number = unsafe { cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes) };
        check("cuFuncSetAttribute", entry, number)
    }

    /// The context of a stream; the current one for the default streams.
    ///
    /// # Safety
    /// `stream` is a live stream or one of the default streams.
    pub(super) unsafe fn stream_context(&self, stream: CUstream) -> Result<CUcontext, Error> {
        let mut context = null_mut();
        // SAFETY: the caller's promise.
        check("cuStreamGetCtx", "the stream", unsafe {
            cuStreamGetCtx(stream, &mut context)
        })?;
        Ok(context)
    }

    /// Whether launches on a stream go into a graph instead of running.
    ///
    /// # Safety
    /// `stream` is a live stream or one of the default streams.
    pub(super) unsafe fn is_capturing(&self, stream: CUstream) -> Result<bool, Error> {
        let mut status = 0;
        // SAFETY: the caller's promise; the result is written to a live integer.
        check("cuStreamIsCapturing", "the stream", unsafe {
            cuStreamIsCapturing(stream, &mut status)
        })?;
        Ok(status != 0)
    }

    /// The context that allocated what lies at `address`; null for memory of a pool.
    pub(super) fn pointer_context(
        &self,
        argument: &'static str,
        address: u64,
    ) -> Result<CUcontext, Error> {
        let mut context: CUcontext = null_mut();
        let data = (&raw mut context).cast();
        // SAFETY: the attribute is a context, which is what `data` points to; any address may be
        // asked about.
        let number = unsafe { cuPointerGetAttribute(data, POINTER_CONTEXT, address) };
        check("cuPointerGetAttribute", argument, number)?;
        Ok(context)
    }

    /// The one place where kernels are launched.
    ///
    /// # Safety
    /// - `function` is the entry of `call` in the current context, and `stream` is of that context.
    /// - The addresses in the call's argument reach as far as its strides and sizes say, in memory of
    ///   that context, and stay so until the launch has run. Live table entries and lengths, slots,
    ///   pairs and starts are in range.
    pub(super) unsafe fn launch(
        &self,
        function: CUfunction,
        stream: CUstream,
        call: Call<'_>,
    ) -> Result<(), Error> {
        let Call {
            entry,
            grid,
            block,
            shared_bytes,
            args,
            borrow: _,
        } = call;
        // The driver copies the struct during the call and does not write to it.
        let mut params = [args.cast_mut()];
        // SAFETY: the caller's promise; `params` holds one pointer to the entry's single parameter,
        // whose layout the artefacts were checked to share.
        let number = unsafe {
            cuLaunchKernel(
                function,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                shared_bytes,
                stream,
                params.as_mut_ptr(),
                null_mut(),
            )
        };
        check("cuLaunchKernel", entry, number)
    }

    /// # Safety
    /// `module` is a loaded module of the current context, and nothing of it is used any more.
    pub(super) unsafe fn unload(&self, module: CUmodule) {
        // A failure has nowhere to go; the context's own end frees the module then.
        // SAFETY: the caller's promise.
        let _ = unsafe { cuModuleUnload(module) };
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let mut context = null_mut();
        // SAFETY: `push` put a context on the stack; the result is written to a live pointer.
        let _ = unsafe { cuCtxPopCurrent_v2(&mut context) };
    }
}

/// An error of cust's wrappers, which keep the driver's number.
pub(super) fn cust_error(call: &'static str, subject: &str, error: CudaError) -> Error {
    let number = error as u32;
    Error::Driver {
        call,
        subject: subject.into(),
        name: text(number, cuGetErrorName),
        number,
        detail: text(number, cuGetErrorString),
    }
}

/// Initialises the driver and finds a device by its number.
pub(super) fn device(ordinal: u32) -> Result<c_int, Error> {
    let subject = format!("device {ordinal}");
    // SAFETY: no flags are defined; the driver may be initialised any number of times.
    check("cuInit", &subject, unsafe { cuInit(0) })?;
    let mut device = 0;
    let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
    // SAFETY: any number may be asked for; the result is written to a live integer.
    let number = unsafe { cuDeviceGet(&mut device, ordinal) };
    check("cuDeviceGet", &subject, number)?;
    Ok(device)
}

/// Retains a device's primary context.
pub(super) fn retain_primary(device: c_int) -> Result<CUcontext, Error> {
    let mut context = null_mut();
    // SAFETY: any number may be passed as a device.
    let number = unsafe { cuDevicePrimaryCtxRetain(&mut context, device) };
    check("cuDevicePrimaryCtxRetain", "the device", number)?;
    Ok(context)
}

/// Undoes one [`retain_primary`].
pub(super) fn release_primary(device: c_int) {
    // SAFETY: any number may be passed as a device; an error has nowhere to go.
    let _ = unsafe { cuDevicePrimaryCtxRelease_v2(device) };
}

pub(super) fn attribute(device: c_int, attribute: DeviceAttribute) -> Result<u32, Error> {
    let mut value = 0;
    // SAFETY: any numbers may be passed; the result is written to a live integer.
    let number = unsafe { cuDeviceGetAttribute(&mut value, attribute as c_uint, device) };
    check("cuDeviceGetAttribute", "the device", number)?;
    Ok(u32::try_from(value).unwrap_or(0))
}

pub(super) fn device_name(device: c_int) -> Result<String, Error> {
    let mut name = [0u8; 256];
    // SAFETY: the driver writes at most 256 bytes, which is the buffer's length.
    let number = unsafe { cuDeviceGetName(name.as_mut_ptr().cast(), 256, device) };
    check("cuDeviceGetName", "the device", number)?;
    Ok(CStr::from_bytes_until_nul(&name)
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned())
}

/// The newest CUDA version that the driver supports.
pub(super) fn driver_version() -> Result<(u32, u32), Error> {
    let mut version = 0;
    // SAFETY: the result is written to a live integer.
    check("cuDriverGetVersion", "the driver", unsafe {
        cuDriverGetVersion(&mut version)
    })?;
    let version = u32::try_from(version).unwrap_or(0);
    Ok((version / 1000, version % 1000 / 10))
}
