//! Fields and texts of refusals that have no better place.

use super::*;

/// Errors that only a device can give, put together by hand.
#[test]
fn device_errors_are_full_sentences() {
    let error = Error::Driver {
        call: "cuLaunchKernel",
        subject: "decode_f16_d128_h8".into(),
        name: "CUDA_ERROR_INVALID_VALUE".into(),
        number: 1,
        detail: "invalid argument".into(),
    };
    assert_eq!(
        error.to_string(),
        "cuda: cuLaunchKernel for decode_f16_d128_h8 failed with CUDA_ERROR_INVALID_VALUE (1): \
         invalid argument"
    );
    let error = Error::ForeignContext {
        op: Op::Decode,
        argument: "k_cache",
    };
    assert_eq!(
        error.to_string(),
        "decode: k_cache belongs to another CUDA context, must belong to the back end's"
    );
    let error = Error::SharedMemory {
        entry: "decode_f16_d160_mma",
        bytes: 86_016,
        device: "T4".into(),
        max: 65_536,
    };
    assert_eq!(
        error.to_string(),
        "cuda: decode_f16_d160_mma needs 86016 bytes of shared memory per block, T4 has at most \
         65536"
    );
    let (op, property) = (Op::CopyBlocks, "block_stride");
    let error = Error::CacheMismatch {
        op,
        index: 3,
        property,
        found: 512,
        expected: 1024,
    };
    assert_eq!(
        error.to_string(),
        "copy_blocks: caches[3] has block_stride 512, must have 1024"
    );
    let (op, argument) = (Op::Decode, "q");
    let error = Error::ElementSize {
        op,
        argument,
        found: 4,
        expected: 2,
    };
    assert_eq!(
        error.to_string(),
        "decode: q has elements of 4 bytes, must have elements of 2"
    );
}
