use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;

use crate::api::*;
use crate::{expect, ok};

#[test]
fn the_device_says_that_it_is_emulated() {
    ok!(cuInit(0));
    let (mut device, mut count, mut name) = (-1, 0, [0u8; 64]);
    ok!(cuDeviceGetCount(&mut count));
    ok!(cuDeviceGet(&mut device, 0));
    assert_eq!((count, device), (1, 0));
    ok!(cuDeviceGetName(name.as_mut_ptr().cast(), 64, 0));
    let name = CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap();
    assert!(name.contains("emulated"), "{name}");
    let mut short = [b'x'; 4];
    ok!(cuDeviceGetName(short.as_mut_ptr().cast(), 3, 0));
    assert_eq!(&short, b"pt\0x");
    let attribute = |which| {
        let mut value = -1;
        ok!(cuDeviceGetAttribute(&mut value, which, 0));
        value
    };
    assert_eq!((attribute(75), attribute(76)), (8, 0));
    assert_eq!((attribute(10), attribute(97)), (32, 163 * 1024));
    expect!(ERROR_INVALID_DEVICE: cuDeviceGet(&mut device, 1));
    expect!(ERROR_INVALID_VALUE: cuDeviceGetAttribute(&mut device, 0, 0));
    expect!(ERROR_INVALID_VALUE: cuInit(1));
}

#[test]
fn errors_have_names_and_meanings() {
    let mut text = std::ptr::null();
    ok!(cuGetErrorString(700, &mut text));
    // SAFETY: the driver's strings are static.
    let meaning = unsafe { CStr::from_ptr(text) }.to_str().unwrap();
    assert!(meaning.contains("address"), "{meaning}");
    assert_eq!(error_name(700), "CUDA_ERROR_ILLEGAL_ADDRESS");
    expect!(ERROR_INVALID_VALUE: cuGetErrorName(12345, &mut text));
    assert!(text.is_null());
}

#[test]
fn entry_points_are_found_by_name_and_version() {
    let (mut address, mut status) = (std::ptr::null_mut(), 9);
    let name = c"cuDriverGetVersion".as_ptr();
    ok!(cuGetProcAddress_v2(
        name,
        &mut address,
        12000,
        0,
        &mut status
    ));
    assert_eq!(status, 0);
    // SAFETY: the address is that function's.
    let get: extern "C" fn(*mut c_int) -> u32 = unsafe { std::mem::transmute(address) };
    let (mut version, mut direct) = (0, 0);
    assert_eq!(get(&mut version), 0);
    ok!(cuDriverGetVersion(&mut direct));
    assert_eq!(version, direct);
    let name = c"cuNoSuchThing".as_ptr();
    expect!(ERROR_NOT_FOUND: cuGetProcAddress_v2(name, &mut address, 12000, 0, &mut status));
    assert_eq!((status, address.is_null()), (1, true));
}

#[test]
fn what_is_not_done_is_refused() {
    let _rig = Rig::new();
    let mut address = 0;
    expect!(ERROR_NOT_SUPPORTED: cuMemAllocManaged(&mut address, 4, 1));
}

#[cfg(target_os = "linux")]
#[test]
fn the_shared_object_exports_the_api_under_the_drivers_soname() {
    unsafe extern "C" {
        fn dlopen(path: *const c_char, mode: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    let path: PathBuf = std::env::current_exe()
        .unwrap()
        .with_file_name("libcuda.so");
    let bytes = std::fs::read(&path).unwrap();
    assert!(
        bytes
            .windows(14)
            .any(|window| window == b"\0libcuda.so.1\0")
    );
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the library has no initialisers; RTLD_NOW is 2.
    let library = unsafe { dlopen(path.as_ptr(), 2) };
    assert!(!library.is_null());
    for name in [
        c"cuInit",
        c"cuLaunchKernel",
        c"cuMemAlloc_v2",
        c"cuArray3DCreate_v2",
    ] {
        // SAFETY: a live library and a string.
        let address = unsafe { dlsym(library, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
    }
}
