use std::ptr::null_mut;

use crate::api::*;
use crate::{expect, ok};

/// The launch succeeds, and every later call fails with `name`.
#[track_caller]
fn assert_sticky(rig: &Rig, entry: &str, params: &mut [u64], name: &str) {
    ok!(rig.launch(entry, 1, 0, params));
    let mut address = 0;
    // SAFETY: live locals and numbers.
    let numbers = unsafe {
        [
            cuCtxSynchronize(),
            cuCtxSynchronize(),
            cuStreamSynchronize(0),
            cuMemAlloc_v2(&mut address, 4),
            cuMemcpyHtoD_v2(address, (&raw const address).cast(), 4),
            rig.launch_number(),
        ]
    };
    for number in numbers {
        assert_eq!(error_name(number), name);
    }
}

impl Rig {
    fn launch_number(&self) -> u32 {
        // SAFETY: a handle that is not one is looked up, not followed.
        unsafe { cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, null_mut(), null_mut()) }
    }
}

#[test]
fn an_address_outside_every_allocation_is_sticky() {
    let rig = Rig::new();
    let x = upload(&[1]);
    assert_sticky(&rig, "load", &mut [x + 4], "CUDA_ERROR_ILLEGAL_ADDRESS");
}

#[test]
fn an_address_that_was_freed_is_sticky() {
    let rig = Rig::new();
    let x = upload(&[1]);
    ok!(cuMemFree_v2(x));
    assert_sticky(&rig, "load", &mut [x], "CUDA_ERROR_ILLEGAL_ADDRESS");
}

#[test]
fn a_misaligned_address_is_sticky() {
    let rig = Rig::new();
    let x = upload(&[1, 2]);
    assert_sticky(&rig, "load", &mut [x + 2], "CUDA_ERROR_MISALIGNED_ADDRESS");
}

#[test]
fn uninitialised_memory_and_traps_are_sticky_failures() {
    let rig = Rig::new();
    let mut x = 0;
    ok!(cuMemAlloc_v2(&mut x, 4));
    assert_sticky(&rig, "load", &mut [x], "CUDA_ERROR_LAUNCH_FAILED");
    assert_sticky(&Rig::new(), "stop", &mut [], "CUDA_ERROR_LAUNCH_FAILED");
}

#[test]
fn a_fault_stays_in_its_context_and_goes_with_it() {
    let healthy = Rig::new();
    let x = upload(&[3]);
    let faulty = Rig::new();
    ok!(faulty.launch("load", 1, 0, &mut [0]));
    expect!(ERROR_ILLEGAL_ADDRESS: cuCtxSynchronize());
    ok!(cuCtxSetCurrent(healthy.context));
    ok!(healthy.launch("twice", 1, 0, &mut [x, 1]));
    assert_eq!(download(x, 1), [6]);
    ok!(cuCtxDestroy_v2(faulty.context));
    let fresh = Rig::new();
    ok!(cuCtxSynchronize());
    drop(fresh);
}

#[test]
fn a_kernel_cannot_reach_another_contexts_memory() {
    let owner = Rig::new();
    let x = upload(&[3]);
    let other = Rig::new();
    ok!(other.launch("load", 1, 0, &mut [x]));
    expect!(ERROR_ILLEGAL_ADDRESS: cuCtxSynchronize());
    ok!(cuCtxSetCurrent(owner.context));
    assert_eq!(download(x, 1), [3]);
}
