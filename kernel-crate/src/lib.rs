//! PagedAttention device kernels.
