//! What concerns the whole process, and so needs one of its own: a single test.

#[path = "driver/api.rs"]
#[allow(
    dead_code,
    reason = "shared with the other tests, which use more of it"
)]
mod api;

use api::*;

#[test]
fn a_process_initialises_once_with_its_environment() {
    expect!(ERROR_NOT_INITIALIZED: cuDeviceGetCount(&mut 0));
    expect!(ERROR_NOT_INITIALIZED: cuCtxSynchronize());

    // SAFETY: this process has one test, and no thread of it reads the environment now.
    unsafe {
        std::env::set_var("PTX_EMULATOR_DEVICES", "two");
    }
    expect!(ERROR_SYSTEM_NOT_READY: cuInit(0));
    // SAFETY: likewise.
    unsafe {
        std::env::set_var("PTX_EMULATOR_DEVICES", "2");
        std::env::set_var("PTX_EMULATOR_COMPUTE_CAPABILITY", "9.0");
        std::env::set_var("PTX_EMULATOR_DRIVER_VERSION", "12.4");
    }
    ok!(cuInit(0));
    let (mut count, mut version, mut major) = (0, 0, 0);
    ok!(cuDeviceGetCount(&mut count));
    ok!(cuDriverGetVersion(&mut version));
    ok!(cuDeviceGetAttribute(&mut major, 75, 1));
    assert_eq!((count, version, major), (2, 12040, 9));

    a_device_does_not_reach_the_others_memory();
    global_capture_forbids_other_threads_to_allocate();
}

fn a_device_does_not_reach_the_others_memory() {
    let first = Rig::new();
    let x = upload(&[7]);
    let (mut context, mut module) = (0, 0);
    ok!(cuCtxCreate_v2(&mut context, 0, 1));
    ok!(cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
    let second = Rig { context, module };
    ok!(second.launch("load", 1, 0, &mut [x]));
    expect!(ERROR_ILLEGAL_ADDRESS: cuCtxSynchronize());
    ok!(cuCtxSetCurrent(first.context));
    assert_eq!(download(x, 1), [7]);
}

fn global_capture_forbids_other_threads_to_allocate() {
    let rig = Rig::new();
    let (stream, mut graph) = (stream(), 0);
    ok!(cuStreamBeginCapture_v2(stream, 0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ok!(cuCtxSetCurrent(rig.context));
            expect!(ERROR_STREAM_CAPTURE_UNSUPPORTED: cuMemAlloc_v2(&mut 0, 4));
        });
    });
    expect!(ERROR_STREAM_CAPTURE_INVALIDATED: cuStreamEndCapture(stream, &mut graph));
}
