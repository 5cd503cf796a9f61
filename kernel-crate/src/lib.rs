//! PagedAttention device kernels, and the ABI that host and device share.
//!
//! The crate compiles twice. For `nvptx64-nvidia-cuda` it becomes the PTX that the
//! `paged-attention` crate ships. For the host it is plain safe `no_std` Rust without dependencies:
//! argument structs ([`abi`]), launch geometry ([`geometry`]), the table of instantiations
//! ([`variants`]) and the offset arithmetic ([`offsets`]), each defined once for both sides.
//! Device-only code is absent from the host build.
#![no_std]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(
        abi_ptx,
        stdarch_nvptx,
        asm_experimental_arch,
        link_llvm_intrinsics,
        abi_unadjusted
    )
)]
#![cfg_attr(
    target_arch = "nvptx64",
    allow(
        internal_features,
        reason = "convergent intrinsics, see `device::warp`"
    ),
    allow(
        dead_code,
        reason = "the shared modules' host side is unused on the device"
    ),
    allow(
        clippy::needless_range_loop,
        reason = "one index counts several arrays, all in registers"
    )
)]

// The shared modules are public on the host only: what a library exports, it compiles, and the PTX
// should hold the entries and nothing else.
macro_rules! shared {
    ($($module:ident),*) => { $(
        #[cfg(not(target_arch = "nvptx64"))]
        pub mod $module;
        #[cfg(target_arch = "nvptx64")]
        mod $module;
    )* };
}
shared!(abi, geometry, offsets, variants);

macro_rules! device_only {
    ($($module:ident),*) => { $(
        #[cfg(target_arch = "nvptx64")]
        mod $module;
    )* };
}
device_only!(
    copy_blocks, decode, decode_mma, device, entries, gather_cache, merge, reshape_and_cache, rows, softmax, tokens, work
);
