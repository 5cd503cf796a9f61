use std::ffi::c_void;
use std::ptr::{null, null_mut};

use crate::api::*;
use crate::{expect, ok};

#[test]
fn copies_stay_inside_one_allocation() {
    let _rig = Rig::new();
    let x = upload(&[1, 2, 3, 4]);
    let mut host = [0u32; 8];
    let to = host.as_mut_ptr().cast::<c_void>();
    let from = host.as_ptr().cast::<c_void>();
    expect!(ERROR_INVALID_VALUE: cuMemcpyDtoH_v2(to, x, 17));
    expect!(ERROR_INVALID_VALUE: cuMemcpyDtoH_v2(to, x + 8, 9));
    expect!(ERROR_INVALID_VALUE: cuMemcpyHtoD_v2(x - 4, from, 4));
    expect!(ERROR_INVALID_VALUE: cuMemcpyHtoD_v2(x, null(), 4));
    expect!(ERROR_INVALID_VALUE: cuMemcpyDtoH_v2(null_mut(), x, 4));
    expect!(ERROR_INVALID_VALUE: cuMemcpyDtoD_v2(x, 0x1234, 4));
    expect!(ERROR_INVALID_VALUE: cuMemsetD8_v2(x, 0, 17));
    expect!(ERROR_INVALID_VALUE: cuMemsetD16_v2(x + 1, 0, 1));
    ok!(cuMemcpyDtoH_v2(to, x + 8, 8));
    assert_eq!(host[..2], [3, 4]);
    ok!(cuMemcpyDtoD_v2(x, x + 8, 8));
    ok!(cuMemsetD16_v2(x + 8, 0x0102, 2));
    assert_eq!(download(x, 4), [3, 4, 0x0102_0102, 4]);
    ok!(cuMemcpyHtoD_v2(0, null(), 0));
}

#[test]
fn freeing_takes_the_start_of_a_live_allocation() {
    let _rig = Rig::new();
    let x = upload(&[1, 2]);
    expect!(ERROR_INVALID_VALUE: cuMemFree_v2(x + 4));
    ok!(cuMemFree_v2(x));
    expect!(ERROR_INVALID_VALUE: cuMemFree_v2(x));
    ok!(cuMemFree_v2(0));
    let mut host = 0u32;
    expect!(ERROR_INVALID_VALUE: cuMemcpyDtoH_v2((&raw mut host).cast(), x, 4));
}

#[test]
fn memory_runs_out_and_comes_back() {
    let _rig = Rig::new();
    let info = || {
        let (mut free, mut total) = (0, 0);
        ok!(cuMemGetInfo_v2(&mut free, &mut total));
        (free, total)
    };
    let mut x = 0;
    let (_, total) = info();
    expect!(ERROR_OUT_OF_MEMORY: cuMemAlloc_v2(&mut x, total + 1));
    expect!(ERROR_OUT_OF_MEMORY: cuMemAlloc_v2(&mut x, usize::MAX));
    expect!(ERROR_INVALID_VALUE: cuMemAlloc_v2(&mut x, 0));
    expect!(ERROR_INVALID_VALUE: cuMemAlloc_v2(null_mut(), 4));
    // Other tests allocate at the same time, but no more than this.
    let bytes = 64 << 20;
    ok!(cuMemAlloc_v2(&mut x, bytes));
    assert!(info().0 <= total - bytes);
    ok!(cuMemFree_v2(x));
    assert!(info().0 > total - bytes);
}

#[test]
fn addresses_say_what_they_are() {
    let rig = Rig::new();
    let x = upload(&[1, 2, 3, 4]);
    let mut pinned: *mut c_void = null_mut();
    ok!(cuMemAllocHost_v2(&mut pinned, 64));
    let get = |which, address| {
        let mut value = 0u64;
        ok!(cuPointerGetAttribute(
            (&raw mut value).cast(),
            which,
            address
        ));
        value
    };
    let (context, memory_type, start, size) = (1, 2, 11, 12);
    assert_eq!(get(context, x + 5), rig.context as u64);
    assert_eq!(get(memory_type, x), 2);
    assert_eq!((get(start, x + 5), get(size, x + 5)), (x, 16));
    assert_eq!(get(memory_type, pinned as u64), 1);
    let mut value = 0u64;
    let data = (&raw mut value).cast();
    expect!(ERROR_INVALID_VALUE: cuPointerGetAttribute(data, context, x + 16));
    expect!(ERROR_INVALID_VALUE: cuPointerGetAttribute(data, context, &raw const value as u64));
    ok!(cuMemcpy(pinned as u64, x, 16));
    // SAFETY: the copy wrote 16 of the 64 bytes.
    let copied = unsafe { pinned.cast::<[u32; 4]>().read() };
    assert_eq!(copied, [1, 2, 3, 4]);
    ok!(cuMemFreeHost(pinned));
    expect!(ERROR_INVALID_VALUE: cuMemFreeHost(pinned));
}

#[test]
fn rows_are_copied_between_pitches() {
    let _rig = Rig::new();
    let (mut x, mut pitch) = (0, 0);
    ok!(cuMemAllocPitch_v2(&mut x, &mut pitch, 12, 3, 4));
    assert!(pitch >= 12);
    let host: Vec<u32> = (0..12).collect();
    let mut copy = Copy2d {
        from_kind: 1,
        from_host: host.as_ptr() as usize,
        from_x: 4,
        from_pitch: 16,
        to_kind: 2,
        to_device: x,
        to_pitch: pitch,
        width: 12,
        height: 3,
        ..Copy2d::default()
    };
    ok!(cuMemcpy2D_v2(&copy));
    assert_eq!(download(x + 2 * pitch as u64, 3), [9, 10, 11]);
    copy.height = 4;
    expect!(ERROR_INVALID_VALUE: cuMemcpy2D_v2(&copy));
    copy.to_kind = 3;
    expect!(ERROR_NOT_SUPPORTED: cuMemcpy2D_v2(&copy));
}
