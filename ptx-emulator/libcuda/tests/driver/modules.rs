use std::ffi::{CStr, CString, c_void};
use std::ptr::without_provenance_mut;

use crate::api::*;
use crate::{expect, ok};

/// Loads a text with an error log of `capacity` bytes; gives the result and the log.
fn load(ptx: &str, capacity: usize) -> (u32, String) {
    let ptx = CString::new(ptx).unwrap();
    let mut log = vec![b'x'; capacity + 1];
    let mut options = [5, 6];
    let mut values = [
        log.as_mut_ptr().cast::<c_void>(),
        without_provenance_mut(capacity),
    ];
    let mut module = 0;
    // SAFETY: the text ends with NUL, and both options have the values that they take.
    let number = unsafe {
        let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
        cuModuleLoadDataEx(&mut module, ptx.as_ptr().cast(), 2, options, values)
    };
    assert_eq!(log[capacity], b'x', "the log overran its buffer");
    let log = CStr::from_bytes_until_nul(&log).unwrap();
    assert_eq!(values[1].addr(), log.to_bytes_with_nul().len());
    (number, log.to_str().unwrap().to_string())
}

const HEADER: &str = ".version 7.0\n.target sm_80\n.address_size 64\n";

#[test]
fn ptx_that_does_not_compile_is_explained_in_the_log() {
    let _rig = Rig::new();
    let bad = format!("{HEADER}.visible .entry e() {{\n    frobnicate.u32 %r1, 2;\n    ret;\n}}\n");
    let (number, log) = load(&bad, 256);
    assert_eq!(error_name(number), "CUDA_ERROR_INVALID_PTX");
    assert!(
        log.contains("line 5") && log.contains("frobnicate"),
        "{log}"
    );
    let (_, short) = load(&bad, 8);
    assert_eq!(short, log[..7]);
    let (number, log) = load(HEADER, 256);
    assert_eq!((number, log.as_str()), (0, ""));
}

#[test]
fn ptx_for_newer_drivers_and_devices_is_refused_with_both_versions() {
    let _rig = Rig::new();
    // The environment may choose another driver than 13.0. CUDA 13.x reads PTX up to 9.x.
    let mut driver = 0;
    ok!(cuDriverGetVersion(&mut driver));
    assert_eq!(driver / 1000, 13, "a driver of CUDA 13");
    let minor = driver % 1000 / 10;
    let (newest, newer) = (format!("9.{minor}"), format!("9.{}", minor + 1));
    let (number, log) = load(&HEADER.replace("7.0", &newest), 256);
    assert_eq!((number, log.as_str()), (0, ""));
    let (number, log) = load(&HEADER.replace("7.0", &newer), 256);
    assert_eq!(error_name(number), "CUDA_ERROR_UNSUPPORTED_PTX_VERSION");
    assert!(log.contains(&newer) && log.contains(&newest), "{log}");
    let (number, log) = load(&HEADER.replace("sm_80", "sm_90"), 256);
    assert_eq!(error_name(number), "CUDA_ERROR_INVALID_PTX");
    assert!(log.contains("sm_90") && log.contains("8.0"), "{log}");
}

#[test]
fn images_that_are_not_ptx_are_refused() {
    let _rig = Rig::new();
    let mut module = 0;
    let elf = c"\x7fELF and so on";
    expect!(ERROR_NO_BINARY_FOR_GPU: cuModuleLoadData(&mut module, elf.as_ptr().cast()));
    let text = c"\xff\xff\xff\xff";
    expect!(ERROR_INVALID_PTX: cuModuleLoadData(&mut module, text.as_ptr().cast()));
    expect!(ERROR_INVALID_VALUE: cuModuleLoadData(&mut module, std::ptr::null()));
}

#[test]
fn functions_are_found_by_name_only() {
    let rig = Rig::new();
    let mut function = 0;
    expect!(ERROR_NOT_FOUND: cuModuleGetFunction(&mut function, rig.module, c"thrice".as_ptr()));
    expect!(ERROR_INVALID_VALUE: cuModuleGetFunction(&mut function, rig.module, std::ptr::null()));
    assert_eq!(rig.function("twice"), rig.function("twice"));
    let twice = rig.function("twice");
    ok!(cuModuleUnload(rig.module));
    expect!(ERROR_INVALID_HANDLE: cuFuncSetAttribute(twice, 8, 0));
}

#[test]
fn variables_have_their_initial_value() {
    let rig = Rig::new();
    let (mut address, mut bytes) = (0, 0);
    ok!(cuModuleGetGlobal_v2(
        &mut address,
        &mut bytes,
        rig.module,
        c"answer".as_ptr()
    ));
    assert_eq!(bytes, 4);
    assert_eq!(download(address, 1), [42]);
    let missing = c"question".as_ptr();
    expect!(ERROR_NOT_FOUND: cuModuleGetGlobal_v2(&mut address, &mut bytes, rig.module, missing));
}
