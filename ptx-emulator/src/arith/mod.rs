//! The arithmetic of PTX as pure functions over bit patterns.
//!
//! A register value is its raw bits in a `u64`, zero-extended from the type's width, and so is
//! every result; bits of an argument above the type's width are ignored. Nothing here knows of
//! threads, memory or instruction text.
//!
//! Where the manual leaves a choice, the choice made here is:
//! - A NaN result is the canonical one: `0x7fffffff` (f32), `0x7fff` (f16, bf16) as the manual
//!   says, and `0x7ff8000000000000` for f64, whose payload is not specified. `abs`, `neg` and
//!   `copysign` only touch the sign bit, NaN or not.
//! - `.ftz` looks at a result after rounding: what rounds up to the least normal number stays.
//! - `.approx` functions are computed in f64 and rounded to nearest, within the manual's bounds.

pub mod approx;
pub mod bits;
pub mod compare;
pub mod convert;
pub mod float;
pub mod half;
pub mod int;
pub mod lanes;
pub mod mma;
mod soft;
pub mod types;

pub use types::{FloatMode, IntType, Rounding, ScalarType};

#[cfg(test)]
mod exact;
#[cfg(test)]
mod samples;
