//! The `paged-attention` binary.
fn main() {}
