//! The CUDA driver API over [`ptx_emulator`], as `libcuda.so.1`.
//!
//! A program that links or loads libcuda.so.1 runs on it unchanged, on the CPU, with the emulator's
//! checks. It is an emulated driver and says so: in the device's name, in the sentences it writes to
//! stderr, and by answering `CUDA_ERROR_NOT_SUPPORTED` to whatever it does not do.
//!
//! # What it does
//! - Devices, primary and created contexts, modules from PTX text, functions and their attributes,
//!   launches, device and pinned memory, copies and fills, streams, events, stream capture into
//!   graphs and their replay, pointer attributes, occupancy, error names, `cuGetProcAddress`.
//! - Work is done when the call returns. A stream's work still runs in order when several threads
//!   submit to it, and every function may be called from any thread.
//! - A kernel's fault is reported as on a device: the launch succeeds, and every later call in that
//!   context fails with the same error (`CUDA_ERROR_ILLEGAL_ADDRESS` for an address outside every
//!   allocation, `CUDA_ERROR_MISALIGNED_ADDRESS`, `CUDA_ERROR_LAUNCH_TIMEOUT` for the instruction
//!   limit, `CUDA_ERROR_LAUNCH_FAILED` for the rest). The fault's sentence goes to stderr.
//! - Handles are numbers that are looked up, never followed, so a stale or foreign handle is an error
//!   code. Pointers to host memory are trusted, as the real driver does.
//!
//! # What it does not do
//! Cubins and fat binaries, managed and mapped memory, arrays, textures, linking, libraries, inter-process
//! handles, cooperative launches, graphs built node by node, and capture across several streams. Times
//! of events are the emulator's own and say nothing about a GPU. Functions report 0 registers. A copy
//! between device buffers marks all of its destination as written.
//!
//! # Settings
//! Read from the environment by `cuInit`; see [`settings`].

#![allow(
    non_snake_case,
    reason = "the entry points carry the driver API's names"
)]

mod boundary;
mod context;
mod copy;
mod device;
mod error;
mod event;
mod function;
mod graph;
mod host_memory;
mod launch;
mod limits;
mod memory;
mod module;
mod occupancy;
mod pointer;
mod pool;
mod primary;
mod proc_address;
pub mod settings;
mod state;
mod stream;
mod unsupported;
mod work;
