use std::ffi::c_void;

use crate::api::*;
use crate::{expect, ok};

#[test]
fn a_streams_work_runs_in_order() {
    let rig = Rig::new();
    let stream = stream();
    let (mut x, mut out) = (0, [0u32; 4]);
    ok!(cuMemAlloc_v2(&mut x, 16));
    ok!(cuMemsetD32Async(x, 1, 4, stream));
    let input = [5u32, 6];
    ok!(cuMemcpyHtoDAsync_v2(x, input.as_ptr().cast(), 8, stream));
    ok!(rig.launch("twice", 32, stream, &mut [x, 4]));
    ok!(cuMemcpyDtoHAsync_v2(out.as_mut_ptr().cast(), x, 16, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(out, [10, 12, 2, 2]);
    ok!(cuStreamDestroy_v2(stream));
    expect!(ERROR_INVALID_HANDLE: cuStreamSynchronize(stream));
}

#[test]
fn events_measure_time_between_them() {
    let rig = Rig::new();
    let x = upload(&[0]);
    let [mut start, mut end, mut untimed] = [0; 3];
    ok!(cuEventCreate(&mut start, 0));
    ok!(cuEventCreate(&mut end, 0));
    ok!(cuEventCreate(&mut untimed, 2));
    let mut ms = -1.0;
    expect!(ERROR_INVALID_HANDLE: cuEventElapsedTime(&mut ms, start, end));
    ok!(cuEventRecord(start, 0));
    ok!(rig.launch("add", 32, 0, &mut [x]));
    ok!(cuEventRecord(end, 0));
    ok!(cuEventRecord(untimed, 0));
    ok!(cuEventQuery(end));
    ok!(cuEventElapsedTime(&mut ms, start, end));
    assert!(ms > 0.0 && ms < 60_000.0, "{ms} ms");
    expect!(ERROR_INVALID_HANDLE: cuEventElapsedTime(&mut ms, start, untimed));
    ok!(cuStreamWaitEvent(stream(), end, 0));
    ok!(cuEventDestroy_v2(end));
    expect!(ERROR_INVALID_HANDLE: cuEventQuery(end));
}

#[test]
fn host_functions_run_and_may_not_call_the_driver() {
    let _rig = Rig::new();
    extern "C" fn note(result: *mut c_void) {
        // SAFETY: the test passes a live number.
        unsafe { *result.cast::<u32>() = cuCtxSynchronize() };
    }
    let mut result = 0u32;
    ok!(cuLaunchHostFunc(0, Some(note), (&raw mut result).cast()));
    ok!(cuCtxSynchronize());
    assert_eq!(error_name(result), "CUDA_ERROR_NOT_PERMITTED");
    expect!(ERROR_INVALID_VALUE: cuLaunchHostFunc(0, None, std::ptr::null_mut()));
}
