use std::ffi::c_void;
use std::ptr::null_mut;

use crate::api::*;
use crate::{expect, ok};

#[test]
fn a_kernel_gets_its_parameters_from_pointers() {
    let rig = Rig::new();
    let x = upload(&[1, 2, 3, 4, 5]);
    ok!(rig.launch("twice", 64, 0, &mut [x, 4]));
    ok!(cuCtxSynchronize());
    assert_eq!(download(x, 5), [2, 4, 6, 8, 5]);
}

#[test]
fn a_kernel_gets_its_parameters_from_a_packed_buffer() {
    let rig = Rig::new();
    let x = upload(&[1, 2, 3]);
    let mut buffer = [0u8; 16];
    buffer[..8].copy_from_slice(&x.to_le_bytes());
    buffer[8..12].copy_from_slice(&3u32.to_le_bytes());
    let function = rig.function("twice");
    let launch = |bytes: usize| {
        let mut bytes = bytes;
        let mut extra: [*mut c_void; 5] = [
            1 as _,
            buffer.as_ptr().cast_mut().cast(),
            2 as _,
            (&raw mut bytes).cast(),
            null_mut(),
        ];
        let extra = extra.as_mut_ptr();
        // SAFETY: the list names a live buffer and its size, and ends with 0.
        unsafe { cuLaunchKernel(function, 1, 1, 1, 3, 1, 1, 0, 0, null_mut(), extra) }
    };
    ok!(launch(12));
    assert_eq!(download(x, 3), [2, 4, 6]);
    expect!(ERROR_INVALID_VALUE: launch(11));
}

#[test]
fn parameters_that_are_missing_are_refused() {
    let rig = Rig::new();
    let f = rig.function("twice");
    let none = null_mut();
    expect!(ERROR_INVALID_VALUE: cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, none, none));
    let mut params: [*mut c_void; 2] = [null_mut(); 2];
    let params = params.as_mut_ptr();
    expect!(ERROR_INVALID_VALUE: cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, params, none));
}

#[test]
fn impossible_geometry_is_refused_and_harms_nothing() {
    let rig = Rig::new();
    let (f, none) = (rig.function("shared"), null_mut());
    ok!(cuFuncSetAttribute(f, 8, 1024));
    for (grid, block) in [
        ([0, 1, 1], [1, 1, 1]),
        ([1, 65536, 1], [1, 1, 1]),
        ([1, 1, 1], [0, 1, 1]),
        ([1, 1, 1], [1025, 1, 1]),
        ([1, 1, 1], [32, 32, 2]),
    ] {
        expect!(ERROR_INVALID_VALUE: cuLaunchKernel(
            f, grid[0], grid[1], grid[2], block[0], block[1], block[2], 1024, 0, none, none
        ));
    }
    ok!(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 1024, 0, none, none));
    ok!(cuCtxSynchronize());
}

#[test]
fn dynamic_shared_memory_above_48_kib_needs_permission() {
    let rig = Rig::new();
    let (f, none, bytes) = (rig.function("shared"), null_mut(), 96 * 1024);
    expect!(ERROR_INVALID_VALUE: cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, bytes, 0, none, none));
    ok!(cuFuncSetAttribute(f, 8, bytes as i32));
    let mut value = 0;
    ok!(cuFuncGetAttribute(&mut value, 8, f));
    assert_eq!(value, bytes as i32);
    ok!(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, bytes, 0, none, none));
    ok!(cuCtxSynchronize());
    // One byte more than a block of compute capability 8.0 may have.
    expect!(ERROR_INVALID_VALUE: cuFuncSetAttribute(f, 8, 163 * 1024 + 1));
}

#[test]
fn two_threads_may_launch_at_once() {
    let rig = Rig::new();
    let x = upload(&[0]);
    let streams = [stream(), stream()];
    std::thread::scope(|scope| {
        for stream in streams {
            let rig = &rig;
            scope.spawn(move || {
                ok!(cuCtxSetCurrent(rig.context));
                for _ in 0..50 {
                    ok!(rig.launch("add", 32, stream, &mut [x]));
                }
                ok!(cuStreamSynchronize(stream));
            });
        }
    });
    assert_eq!(download(x, 1), [2 * 50 * 32]);
}
