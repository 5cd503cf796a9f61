//! What depends on the compiler that makes the PTX: one body for rustc's NVPTX back end, one for
//! rust-cuda, with the same functions. `warp`, `math` and the entries take them from here; nobody
//! else does.

#[cfg(not(rust_cuda))]
mod llvm;
#[cfg(rust_cuda)]
mod rust_cuda;

#[cfg(not(rust_cuda))]
pub use llvm::*;
#[cfg(rust_cuda)]
pub use rust_cuda::*;

/// Defines entry points: `unsafe fn name(args: Args) { … }`, one by-value struct argument each.
macro_rules! entry {
    ($(#[$attribute:meta])* unsafe fn $name:ident($args:ident: $type:ident) $body:block) => {
        $(#[$attribute])*
        #[cfg_attr(rust_cuda, cuda_std::kernel)]
        #[cfg_attr(not(rust_cuda), unsafe(no_mangle))]
        pub unsafe extern "ptx-kernel" fn $name($args: $type) $body
    };
}
pub(crate) use entry;
