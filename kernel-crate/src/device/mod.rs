//! The device vocabulary: thin wrappers over instructions, each with its PTX spelling.
//!
//! No `asm!` and no `core::arch` outside this folder.

pub mod element;
pub mod math;
pub mod memory;
pub mod mma;
pub mod warp;

/// A panic cannot happen: a test finds no trace of one in the PTX. The language asks for a handler.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: `trap` ends the kernel; nothing is read or written.
    unsafe { core::arch::nvptx::trap() }
}
