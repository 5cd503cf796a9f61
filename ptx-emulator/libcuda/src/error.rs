//! Result numbers, their names and what they mean.

use std::ffi::{CStr, c_char};

use crate::boundary::{CUresult, Out, entry_points};

/// A `CUresult` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u32);

macro_rules! codes {
    ($($number:literal $name:ident $text:literal)*) => {
        impl Code {
            $(
                #[doc = $text]
                #[allow(dead_code, reason = "the table is whole, the emulator returns some of it")]
                pub const $name: Code = Code($number);
            )*
        }

        fn describe(number: CUresult) -> Option<(&'static CStr, &'static CStr)> {
            let entry = |name: &'static str, text: &'static str| {
                let c = |s: &'static str| CStr::from_bytes_with_nul(s.as_bytes()).ok();
                c(name).zip(c(text))
            };
            match number {
                0 => entry("CUDA_SUCCESS\0", "no error\0"),
                $( $number => entry(
                    concat!("CUDA_ERROR_", stringify!($name), "\0"),
                    concat!($text, "\0"),
                ), )*
                _ => None,
            }
        }
    };
}

codes! {
    1 INVALID_VALUE "an argument is out of range"
    2 OUT_OF_MEMORY "not enough memory"
    3 NOT_INITIALIZED "cuInit has not been called"
    4 DEINITIALIZED "the driver is shutting down"
    5 PROFILER_DISABLED "the profiler is disabled"
    34 STUB_LIBRARY "a stub library was loaded in place of the driver"
    46 DEVICE_UNAVAILABLE "the device is busy or unavailable"
    100 NO_DEVICE "there is no CUDA device"
    101 INVALID_DEVICE "no device has this ordinal"
    102 DEVICE_NOT_LICENSED "the device has no licence"
    200 INVALID_IMAGE "the module's image is invalid"
    201 INVALID_CONTEXT "no context is current, or the context is invalid"
    202 CONTEXT_ALREADY_CURRENT "the context is current already"
    205 MAP_FAILED "mapping failed"
    206 UNMAP_FAILED "unmapping failed"
    207 ARRAY_IS_MAPPED "the array is mapped"
    208 ALREADY_MAPPED "the resource is mapped already"
    209 NO_BINARY_FOR_GPU "the image holds no code for this device"
    210 ALREADY_ACQUIRED "the resource is acquired already"
    211 NOT_MAPPED "the resource is not mapped"
    212 NOT_MAPPED_AS_ARRAY "the resource is not mapped as an array"
    213 NOT_MAPPED_AS_POINTER "the resource is not mapped as a pointer"
    214 ECC_UNCORRECTABLE "an uncorrectable ECC error"
    215 UNSUPPORTED_LIMIT "the device does not support this limit"
    216 CONTEXT_ALREADY_IN_USE "the context is in use by another thread"
    217 PEER_ACCESS_UNSUPPORTED "peer access is not supported"
    218 INVALID_PTX "the PTX does not compile"
    219 INVALID_GRAPHICS_CONTEXT "the graphics context is invalid"
    220 NVLINK_UNCORRECTABLE "an uncorrectable NVLink error"
    221 JIT_COMPILER_NOT_FOUND "the PTX compiler was not found"
    222 UNSUPPORTED_PTX_VERSION "the PTX version is newer than this driver"
    223 JIT_COMPILATION_DISABLED "PTX compilation is disabled"
    224 UNSUPPORTED_EXEC_AFFINITY "the execution affinity is not supported"
    300 INVALID_SOURCE "the kernel source is invalid"
    301 FILE_NOT_FOUND "the file was not found"
    302 SHARED_OBJECT_SYMBOL_NOT_FOUND "a symbol of a shared object was not found"
    303 SHARED_OBJECT_INIT_FAILED "a shared object failed to initialise"
    304 OPERATING_SYSTEM "an operating system call failed"
    400 INVALID_HANDLE "a handle is invalid"
    401 ILLEGAL_STATE "a resource is in the wrong state"
    500 NOT_FOUND "no symbol has this name"
    600 NOT_READY "the work has not completed"
    700 ILLEGAL_ADDRESS "a kernel accessed an address outside every allocation"
    701 LAUNCH_OUT_OF_RESOURCES "the launch needs more resources than there are"
    702 LAUNCH_TIMEOUT "a kernel ran for too long"
    703 LAUNCH_INCOMPATIBLE_TEXTURING "the launch's texturing mode is incompatible"
    704 PEER_ACCESS_ALREADY_ENABLED "peer access is enabled already"
    705 PEER_ACCESS_NOT_ENABLED "peer access is not enabled"
    708 PRIMARY_CONTEXT_ACTIVE "the primary context is active"
    709 CONTEXT_IS_DESTROYED "the current context has been destroyed"
    710 ASSERT "a kernel's assertion failed"
    711 TOO_MANY_PEERS "too many peers"
    712 HOST_MEMORY_ALREADY_REGISTERED "the host memory is registered already"
    713 HOST_MEMORY_NOT_REGISTERED "the host memory is not registered"
    714 HARDWARE_STACK_ERROR "a kernel's stack is corrupt"
    715 ILLEGAL_INSTRUCTION "a kernel executed an illegal instruction"
    716 MISALIGNED_ADDRESS "a kernel accessed a misaligned address"
    717 INVALID_ADDRESS_SPACE "a kernel accessed the wrong address space"
    718 INVALID_PC "a kernel's program counter is invalid"
    719 LAUNCH_FAILED "a kernel failed while running"
    720 COOPERATIVE_LAUNCH_TOO_LARGE "the cooperative launch has too many blocks"
    800 NOT_PERMITTED "the operation is not permitted here"
    801 NOT_SUPPORTED "the operation is not supported"
    802 SYSTEM_NOT_READY "the system is not ready"
    803 SYSTEM_DRIVER_MISMATCH "the driver does not match the system"
    900 STREAM_CAPTURE_UNSUPPORTED "the operation is not permitted while a stream is capturing"
    901 STREAM_CAPTURE_INVALIDATED "an earlier error has invalidated the capture"
    902 STREAM_CAPTURE_MERGE "the operation would merge two captures"
    903 STREAM_CAPTURE_UNMATCHED "the capture was not begun in this stream"
    904 STREAM_CAPTURE_UNJOINED "the capture has a fork that did not join"
    905 STREAM_CAPTURE_ISOLATION "a dependency would cross the capture's boundary"
    906 STREAM_CAPTURE_IMPLICIT "the operation would depend on a capturing stream implicitly"
    907 CAPTURED_EVENT "the event was last recorded in a capturing stream"
    908 STREAM_CAPTURE_WRONG_THREAD "the capture was begun by another thread"
    909 TIMEOUT "a wait has timed out"
    910 GRAPH_EXEC_UPDATE_FAILURE "the graph cannot be updated this way"
    911 EXTERNAL_DEVICE "an error outside the device"
    999 UNKNOWN "an unknown error"
}

impl Code {
    /// The driver API's name of the number.
    pub fn name(self) -> &'static str {
        describe(self.0)
            .and_then(|(name, _)| name.to_str().ok())
            .unwrap_or("an unnamed error")
    }
}

entry_points! {
    /// The name of a result number.
    6000 fn cuGetErrorName(error: CUresult, name: Out<*const c_char>) {
        match describe(error) {
            Some((text, _)) => name.write(text.as_ptr()),
            None => name.write(std::ptr::null()).and(Err(Code::INVALID_VALUE)),
        }
    }

    /// What a result number means.
    6000 fn cuGetErrorString(error: CUresult, text: Out<*const c_char>) {
        match describe(error) {
            Some((_, meaning)) => text.write(meaning.as_ptr()),
            None => text.write(std::ptr::null()).and(Err(Code::INVALID_VALUE)),
        }
    }
}
