//! The emulated driver as a client sees it.

mod api;
mod capture;
mod contexts;
mod faults;
mod kernels;
mod library;
mod memory;
mod modules;
mod streams;
