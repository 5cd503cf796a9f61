//! PagedAttention device kernels, and the ABI that host and device share.
//!
//! The crate compiles twice. For `nvptx64-nvidia-cuda` it becomes the PTX that the
//! `paged-attention` crate ships, under rustc's own back end or under rust-cuda. For the host it is
//! plain safe `no_std` Rust without dependencies: argument structs ([`abi`]), launch geometry
//! ([`geometry`]), the table of instantiations ([`variants`]) and the offset arithmetic
//! ([`offsets`]), each defined once for both sides.
//! Device-only code is absent from the host build.
// rust-cuda says `no_std` by itself.
#![cfg_attr(not(rust_cuda), no_std)]
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
    allow(unused_features, reason = "each compiler needs some of them"),
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
#[cfg(not(target_arch = "nvptx64"))]
pub mod abi;
#[cfg(not(target_arch = "nvptx64"))]
pub mod geometry;
#[cfg(not(target_arch = "nvptx64"))]
pub mod offsets;
#[cfg(not(target_arch = "nvptx64"))]
pub mod variants;

#[cfg(target_arch = "nvptx64")]
mod abi;
#[cfg(target_arch = "nvptx64")]
mod copy_blocks;
#[cfg(target_arch = "nvptx64")]
mod decode;
#[cfg(target_arch = "nvptx64")]
mod decode_mma;
#[cfg(target_arch = "nvptx64")]
mod device;
#[cfg(target_arch = "nvptx64")]
mod entries;
#[cfg(target_arch = "nvptx64")]
mod gather_cache;
#[cfg(target_arch = "nvptx64")]
mod geometry;
#[cfg(target_arch = "nvptx64")]
mod merge;
#[cfg(target_arch = "nvptx64")]
mod offsets;
#[cfg(target_arch = "nvptx64")]
mod reshape_and_cache;
#[cfg(target_arch = "nvptx64")]
mod rows;
#[cfg(target_arch = "nvptx64")]
mod softmax;
#[cfg(target_arch = "nvptx64")]
mod tokens;
#[cfg(target_arch = "nvptx64")]
mod variants;
#[cfg(target_arch = "nvptx64")]
mod work;
