//! What the benches share.

pub mod bandwidth;
pub mod batch;
pub mod overlap;
pub mod read_loop;
