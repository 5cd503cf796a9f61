//! Every arithmetic instruction, one kernel each, through `Module::launch` with all detectors on:
//! special values and random ones against computations that share nothing with the emulator.

mod bits;
mod compare;
mod convert;
mod float;
mod functions;
mod half;
mod harness;
mod integer;
mod matrix;
mod reference;
