//! PagedAttention.
