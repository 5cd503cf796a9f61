//! The device vocabulary: thin wrappers over instructions, each with its PTX spelling.
//!
//! No `asm!` and no `core::arch` outside this folder, and nothing outside [`compiler`] knows which
//! compiler it is under, but for the `no_std` of the crate's root.

mod compiler;
pub mod element;
pub mod math;
pub mod memory;
pub mod mma;
pub mod warp;

pub(crate) use compiler::entry;
