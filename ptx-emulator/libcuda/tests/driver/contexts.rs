use crate::api::*;
use crate::{expect, ok};

#[test]
fn contexts_stack_per_thread() {
    let (first, second) = (Rig::new(), Rig::new());
    let current = || {
        let mut context = 0;
        ok!(cuCtxGetCurrent(&mut context));
        context
    };
    assert_eq!(current(), second.context);
    ok!(cuCtxPushCurrent_v2(first.context));
    assert_eq!(current(), first.context);
    std::thread::spawn(|| {
        expect!(ERROR_INVALID_CONTEXT: cuCtxSynchronize());
    })
    .join()
    .unwrap();
    let mut popped = 0;
    ok!(cuCtxPopCurrent_v2(&mut popped));
    assert_eq!((popped, current()), (first.context, second.context));
    ok!(cuCtxSetCurrent(0));
    assert_eq!(current(), first.context);
}

#[test]
fn a_destroyed_context_is_no_context() {
    let rig = Rig::new();
    ok!(cuCtxPushCurrent_v2(rig.context));
    ok!(cuCtxDestroy_v2(rig.context));
    // It still lies on the stack below.
    expect!(ERROR_CONTEXT_IS_DESTROYED: cuCtxSynchronize());
    expect!(ERROR_INVALID_CONTEXT: cuCtxPushCurrent_v2(rig.context));
    expect!(ERROR_INVALID_CONTEXT: cuCtxDestroy_v2(rig.context));
}

#[test]
fn functions_and_streams_of_different_contexts_do_not_mix() {
    let first = Rig::new();
    let foreign = stream();
    let second = Rig::new();
    let mut owner = 0;
    ok!(cuStreamGetCtx(foreign, &mut owner));
    assert_eq!(owner, first.context);
    ok!(cuStreamGetCtx(0, &mut owner));
    assert_eq!(owner, second.context);
    let x = upload(&[1]);
    expect!(ERROR_INVALID_HANDLE: second.launch("load", 1, foreign, &mut [x]));
    let mut event = 0;
    ok!(cuEventCreate(&mut event, 0));
    expect!(ERROR_INVALID_HANDLE: cuEventRecord(event, foreign));
    ok!(cuCtxSynchronize());
}

#[test]
fn the_primary_context_lives_while_it_is_retained() {
    ok!(cuInit(0));
    let active = || {
        let (mut flags, mut active) = (0, 0);
        ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
        active
    };
    let (mut first, mut second) = (0, 0);
    ok!(cuDevicePrimaryCtxRetain(&mut first, 0));
    ok!(cuDevicePrimaryCtxRetain(&mut second, 0));
    assert_eq!(first, second);
    ok!(cuCtxSetCurrent(first));
    let x = upload(&[5]);
    expect!(ERROR_INVALID_CONTEXT: cuCtxDestroy_v2(first));
    ok!(cuDevicePrimaryCtxRelease_v2(0));
    assert_eq!(active(), 1);
    assert_eq!(download(x, 1), [5]);
    ok!(cuDevicePrimaryCtxRelease_v2(0));
    assert_eq!(active(), 0);
    expect!(ERROR_INVALID_CONTEXT: cuDevicePrimaryCtxRelease_v2(0));
    expect!(ERROR_CONTEXT_IS_DESTROYED: cuCtxSynchronize());
}

#[test]
fn handles_that_are_none_are_refused() {
    let rig = Rig::new();
    let (mut out, mut status, mut ms) = (0, 0, 0.0);
    let none = std::ptr::null_mut();
    // A handle of another kind is as bad as a number out of nowhere.
    for bad in [rig.context, 0xdead_beef, usize::MAX] {
        expect!(ERROR_INVALID_HANDLE: cuModuleUnload(bad));
        expect!(ERROR_INVALID_HANDLE: cuModuleGetFunction(&mut out, bad, c"twice".as_ptr()));
        expect!(ERROR_INVALID_HANDLE: cuFuncSetAttribute(bad, 8, 0));
        expect!(ERROR_INVALID_HANDLE: cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, 0, none, none));
        expect!(ERROR_INVALID_HANDLE: cuStreamDestroy_v2(bad));
        expect!(ERROR_INVALID_HANDLE: cuStreamSynchronize(bad));
        expect!(ERROR_INVALID_HANDLE: cuStreamIsCapturing(bad, &mut status));
        expect!(ERROR_INVALID_HANDLE: cuEventDestroy_v2(bad));
        expect!(ERROR_INVALID_HANDLE: cuEventQuery(bad));
        expect!(ERROR_INVALID_HANDLE: cuEventElapsedTime(&mut ms, bad, bad));
        expect!(ERROR_INVALID_HANDLE: cuGraphLaunch(bad, 0));
        expect!(ERROR_INVALID_HANDLE: cuGraphDestroy(bad));
        expect!(ERROR_INVALID_HANDLE: cuGraphExecDestroy(bad));
    }
    expect!(ERROR_INVALID_CONTEXT: cuCtxSetCurrent(rig.module));
    expect!(ERROR_INVALID_DEVICE: cuCtxCreate_v2(&mut out, 0, 7));
    expect!(ERROR_INVALID_DEVICE: cuDevicePrimaryCtxRetain(&mut out, -1));
    ok!(cuModuleUnload(rig.module));
    expect!(ERROR_INVALID_HANDLE: cuModuleUnload(rig.module));
}
