//! Long contexts: nothing in shared memory or in the plan grows with them, and no chain of additions
//! gets longer than 2048.

use paged_attention::DType;

use crate::backend::{Backend, claims};
use crate::case::Case;
use crate::compare::assert_close;

claims!(
    a_context_of_12289_tokens_is_right,
    a_context_of_65536_tokens_is_right,
    a_context_of_131072_tokens_is_right,
);

fn a_context_of_12289_tokens_is_right(backend: &dyn Backend) {
    for split in [512, 8192] {
        assert_close(backend, &Case::new(DType::F32, 64, &[12_289]).split(split));
    }
}

fn a_context_of_65536_tokens_is_right(backend: &dyn Backend) {
    assert_close(backend, &Case::new(DType::Bf16, 64, &[65_536]).split(8192));
}

fn a_context_of_131072_tokens_is_right(backend: &dyn Backend) {
    assert_close(backend, &Case::new(DType::F16, 64, &[131_072]).split(512));
}
