//! PTX emulator.

pub mod arith;
