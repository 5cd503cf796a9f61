//! The driver API as a C client sees it, and what the tests share.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

// Links the entry points declared below.
use cuda as _;

pub type Handle = usize;

unsafe extern "C" {
    pub fn cuInit(flags: c_uint) -> u32;
    pub fn cuDriverGetVersion(version: *mut c_int) -> u32;
    pub fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> u32;
    pub fn cuDeviceGetCount(count: *mut c_int) -> u32;
    pub fn cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) -> u32;
    pub fn cuDeviceGetAttribute(value: *mut c_int, which: c_uint, device: c_int) -> u32;
    pub fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) -> u32;
    pub fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> u32;
    pub fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int)
    -> u32;
    pub fn cuCtxCreate_v2(context: *mut Handle, flags: c_uint, device: c_int) -> u32;
    pub fn cuCtxDestroy_v2(context: Handle) -> u32;
    pub fn cuCtxGetCurrent(context: *mut Handle) -> u32;
    pub fn cuCtxSetCurrent(context: Handle) -> u32;
    pub fn cuCtxPushCurrent_v2(context: Handle) -> u32;
    pub fn cuCtxPopCurrent_v2(context: *mut Handle) -> u32;
    pub fn cuCtxSynchronize() -> u32;
    pub fn cuModuleLoadData(module: *mut Handle, image: *const c_void) -> u32;
    pub fn cuModuleLoadDataEx(
        module: *mut Handle,
        image: *const c_void,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) -> u32;
    pub fn cuModuleUnload(module: Handle) -> u32;
    pub fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) -> u32;
    pub fn cuModuleGetGlobal_v2(
        address: *mut u64,
        bytes: *mut usize,
        module: Handle,
        name: *const c_char,
    ) -> u32;
    pub fn cuFuncGetAttribute(value: *mut c_int, which: c_uint, function: Handle) -> u32;
    pub fn cuFuncSetAttribute(function: Handle, which: c_uint, value: c_int) -> u32;
    pub fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    pub fn cuMemAllocPitch_v2(
        address: *mut u64,
        pitch: *mut usize,
        width: usize,
        height: usize,
        element: c_uint,
    ) -> u32;
    pub fn cuMemFree_v2(address: u64) -> u32;
    pub fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32;
    pub fn cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize) -> u32;
    pub fn cuMemFreeHost(pointer: *mut c_void) -> u32;
    pub fn cuMemcpy(to: u64, from: u64, bytes: usize) -> u32;
    pub fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> u32;
    pub fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> u32;
    pub fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> u32;
    pub fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle) -> u32;
    pub fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle) -> u32;
    pub fn cuMemcpy2D_v2(copy: *const Copy2d) -> u32;
    pub fn cuMemsetD8_v2(address: u64, value: u8, count: usize) -> u32;
    pub fn cuMemsetD16_v2(address: u64, value: u16, count: usize) -> u32;
    pub fn cuMemsetD32Async(address: u64, value: u32, count: usize, stream: Handle) -> u32;
    pub fn cuPointerGetAttribute(data: *mut c_void, which: c_uint, address: u64) -> u32;
    pub fn cuStreamCreate(stream: *mut Handle, flags: c_uint) -> u32;
    pub fn cuStreamDestroy_v2(stream: Handle) -> u32;
    pub fn cuStreamSynchronize(stream: Handle) -> u32;
    pub fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) -> u32;
    pub fn cuStreamGetCtx(stream: Handle, context: *mut Handle) -> u32;
    pub fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) -> u32;
    pub fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) -> u32;
    pub fn cuStreamIsCapturing(stream: Handle, status: *mut c_uint) -> u32;
    pub fn cuLaunchHostFunc(
        stream: Handle,
        function: Option<extern "C" fn(*mut c_void)>,
        argument: *mut c_void,
    ) -> u32;
    pub fn cuEventCreate(event: *mut Handle, flags: c_uint) -> u32;
    pub fn cuEventDestroy_v2(event: Handle) -> u32;
    pub fn cuEventRecord(event: Handle, stream: Handle) -> u32;
    pub fn cuEventQuery(event: Handle) -> u32;
    pub fn cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) -> u32;
    pub fn cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, flags: u64) -> u32;
    pub fn cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) -> u32;
    pub fn cuGraphNodeGetType(node: Handle, node_type: *mut c_uint) -> u32;
    pub fn cuGraphLaunch(exec: Handle, stream: Handle) -> u32;
    pub fn cuGraphDestroy(graph: Handle) -> u32;
    pub fn cuGraphExecDestroy(exec: Handle) -> u32;
    pub fn cuLaunchKernel(
        function: Handle,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: Handle,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> u32;
    pub fn cuGetErrorName(error: u32, name: *mut *const c_char) -> u32;
    pub fn cuGetErrorString(error: u32, text: *mut *const c_char) -> u32;
    pub fn cuGetProcAddress_v2(
        name: *const c_char,
        address: *mut *mut c_void,
        version: c_int,
        flags: u64,
        status: *mut c_uint,
    ) -> u32;
    pub fn cuMemAllocManaged(address: *mut u64, bytes: usize, flags: c_uint) -> u32;
}

#[repr(C)]
#[derive(Default)]
pub struct Copy2d {
    pub from_x: usize,
    pub from_y: usize,
    pub from_kind: c_uint,
    pub from_host: usize,
    pub from_device: u64,
    pub from_array: usize,
    pub from_pitch: usize,
    pub to_x: usize,
    pub to_y: usize,
    pub to_kind: c_uint,
    pub to_host: usize,
    pub to_device: u64,
    pub to_array: usize,
    pub to_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// Calls an entry point and compares the result's name.
#[macro_export]
macro_rules! expect {
    ($name:ident: $call:expr) => {{
        #[allow(
            unused_unsafe,
            clippy::macro_metavars_in_unsafe,
            reason = "every call of this interface is unsafe, and some are made by safe helpers"
        )]
        // SAFETY: every pointer below is null where the call allows it, or to a live local.
        let number = unsafe { $call };
        assert_eq!(
            $crate::api::error_name(number),
            concat!("CUDA_", stringify!($name)),
            stringify!($call)
        );
    }};
}

/// Calls an entry point that must succeed.
#[macro_export]
macro_rules! ok {
    ($call:expr) => {
        $crate::expect!(SUCCESS: $call)
    };
}

pub fn error_name(number: u32) -> String {
    let mut name = null();
    // SAFETY: any number may be asked about; the name is static.
    unsafe {
        assert_eq!(
            cuGetErrorName(number, &mut name),
            0,
            "result {number} has no name"
        );
        CStr::from_ptr(name).to_str().unwrap().to_string()
    }
}

/// Entries: `twice` doubles u32s in place; `add` adds 1 to a u32, atomically; `load` reads 4 bytes at
/// an address; `shared` only takes dynamic shared memory; `stop` traps.
pub const PTX: &CStr = c"
.version 7.0
.target sm_80
.address_size 64
.global .align 4 .u32 answer = 42;
.extern .shared .align 16 .b8 dynamic[];
.visible .entry twice(.param .u64 x, .param .u32 n) {
    .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    ld.param.u32 %r5, [n];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.s32 %r4, %r2, %r3, %r1;
    setp.ge.u32 %p1, %r4, %r5;
    @%p1 bra done;
    mul.wide.u32 %rd2, %r4, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r6, [%rd3];
    add.s32 %r7, %r6, %r6;
    st.global.u32 [%rd3], %r7;
done:
    ret;
}
.visible .entry add(.param .u64 x) {
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [x];
    atom.global.add.u32 %r1, [%rd1], 1;
    ret;
}
.visible .entry load(.param .u64 x) {
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [x];
    ld.global.u32 %r1, [%rd1];
    ret;
}
.visible .entry shared() {
    .reg .b32 %r<2>;
    mov.u32 %r1, 7;
    st.shared.u32 [dynamic], %r1;
    ret;
}
.visible .entry stop() {
    trap;
}
";

/// A context of the test's own, current on its thread, with the test module.
pub struct Rig {
    pub context: Handle,
    pub module: Handle,
}

impl Rig {
    pub fn new() -> Self {
        ok!(cuInit(0));
        let (mut context, mut module) = (0, 0);
        ok!(cuCtxCreate_v2(&mut context, 0, 0));
        ok!(cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
        Rig { context, module }
    }

    pub fn function(&self, name: &str) -> Handle {
        let (mut function, name) = (0, CString::new(name).unwrap());
        ok!(cuModuleGetFunction(
            &mut function,
            self.module,
            name.as_ptr()
        ));
        function
    }

    /// Launches one block of `threads` with parameters of 8 bytes at most.
    pub fn launch(&self, entry: &str, threads: c_uint, stream: Handle, params: &mut [u64]) -> u32 {
        let function = self.function(entry);
        let mut params: Vec<*mut c_void> = params
            .iter_mut()
            .map(|param| (&raw mut *param).cast())
            .collect();
        let params = params.as_mut_ptr();
        // SAFETY: one pointer to 8 live bytes for each parameter of the entry.
        unsafe {
            cuLaunchKernel(
                function,
                1,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream,
                params,
                null_mut(),
            )
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // SAFETY: numbers only.
        unsafe { cuCtxDestroy_v2(self.context) };
    }
}

/// A device buffer that holds `values`.
pub fn upload(values: &[u32]) -> u64 {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&mut address, size_of_val(values)));
    ok!(cuMemcpyHtoD_v2(
        address,
        values.as_ptr().cast(),
        size_of_val(values)
    ));
    address
}

pub fn download(address: u64, count: usize) -> Vec<u32> {
    let mut values = vec![0u32; count];
    ok!(cuMemcpyDtoH_v2(
        values.as_mut_ptr().cast(),
        address,
        count * 4
    ));
    values
}

pub fn stream() -> Handle {
    let mut stream = 0;
    ok!(cuStreamCreate(&mut stream, 1));
    stream
}
