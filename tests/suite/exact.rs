//! The yardsticks against each other, and the bound against the numbers of the design.

use approx::assert_relative_eq;
use paged_attention::{Element, reference};

use crate::backend::{Backend, DTYPES, claims, contiguous, with_element};
use crate::batch::Batch;
use crate::case::Case;
use crate::compare::{assert_close, bits_eq, close_to_exact, decode};
use crate::oracle;

claims!(errors_stay_within_the_derived_bound_and_the_bound_within_the_design);

/// f64 on both sides: only the order of a few thousand additions differs.
const F64: f64 = 1e-11;

#[test]
fn the_library_reference_equals_attention_over_logical_tokens() {
    fn reference_of<T: Element>(batch: &Batch) -> reference::Reference {
        reference::decode(batch.config(), &batch.typed::<T>().inputs()).unwrap()
    }
    for dtype in DTYPES {
        let case = Case::new(dtype, 96, &[0, 1, 47, 300])
            .heads(6, 2)
            .block_size(7);
        let batch = Batch::new(&case);
        let found = with_element!(dtype, T => reference_of::<T>(&batch));
        for (s, seq) in batch.logical.seqs.iter().enumerate() {
            for h in 0..6 {
                let row = oracle::row(batch.config(), seq, h);
                assert_relative_eq!(found.lse[s * 6 + h], row.lse, max_relative = F64);
                for i in 0..96 {
                    let found = found.out[(s * 6 + h) * 96 + i];
                    assert_relative_eq!(found, row.out[i], epsilon = F64);
                }
            }
        }
    }
}

/// What the library promises for lengths up to 4096 and inputs in [−1, 1].
fn errors_stay_within_the_derived_bound_and_the_bound_within_the_design(backend: &dyn Backend) {
    for (dtype, design) in DTYPES.into_iter().zip([1e-5, 1e-3, 8e-3]) {
        for (head_dim, len) in [(32, 1), (64, 2), (128, 17), (256, 1000), (128, 4096)] {
            for split in [16, 512, 4096] {
                let case = Case::new(dtype, head_dim, &[len]).heads(1, 1).split(split);
                let worst = assert_close(backend, &case);
                println!("{} {split} {worst:?}", dtype.name());
                assert!(worst.bound < design, "{worst:?} against {design}\n{case}");
            }
        }
    }
}

#[test]
fn paged_and_contiguous_attention_on_the_cpu_have_the_same_bits() {
    let cpu = &crate::backend::Cpu;
    for dtype in DTYPES {
        for split in [32, 512] {
            let case = Case::new(dtype, 80, &[33, 0, 700]).heads(4, 2).split(split);
            let batch = Batch::new(&case);
            let paged = decode(cpu, &batch).unwrap();
            let found = contiguous(&batch).unwrap();
            bits_eq("contiguous", &found, &paged).unwrap();
            close_to_exact(cpu, &batch, &found).unwrap();
        }
    }
}
