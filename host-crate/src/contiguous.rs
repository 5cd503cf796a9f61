//! Contiguous attention on the CPU, for comparison.
