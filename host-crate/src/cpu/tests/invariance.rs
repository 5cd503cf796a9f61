//! What must not change a bit: threads, physical blocks, layout, block size, alignment, table
//! padding, other sequences, and whether there is a table at all.

use half::{bf16, f16};

use super::batch::{Batch, Storage};
use super::sets;
use crate::{CacheLayout, Element, SplitPolicy};

const POLICY: SplitPolicy = SplitPolicy::Tokens(512);

#[track_caller]
fn bits_eq<T: Element>(found: &(Vec<T>, Vec<f32>), expected: &(Vec<T>, Vec<f32>), what: &str) {
    let bits = |(out, lse): &(Vec<T>, Vec<f32>)| {
        let out = out.iter().map(|x| x.to_f32().to_bits());
        out.chain(lse.iter().map(|x| x.to_bits()))
            .collect::<Vec<_>>()
    };
    let (found, expected) = (bits(found), bits(expected));
    assert_eq!(found.len(), expected.len(), "{what}");
    let first = found.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(first, None, "{what}: the first index that differs");
}

fn storages() -> impl Iterator<Item = Storage> {
    let more = [
        Storage {
            seed: 2,
            padding: 9,
            ..Storage::PLAIN
        },
        Storage {
            layout: CacheLayout::Hnd,
            ..Storage::PLAIN
        },
        Storage {
            block_size: 1,
            seed: 3,
            ..Storage::PLAIN
        },
        Storage {
            block_size: 7,
            shift: 16,
            ..Storage::PLAIN
        },
        Storage {
            block_size: 256,
            layout: CacheLayout::Hnd,
            padding: 1,
            ..Storage::PLAIN
        },
    ];
    std::iter::once(Storage::PLAIN).chain(more)
}

fn storage_does_not_change_a_bit<T: Element>() {
    let sequences = [(1, 700), (2, 1), (3, 0), (4, 1300)];
    for heads in [(4, 4, 64), (10, 2, 128)] {
        let plain = Batch::<T>::new(heads, &sequences, Storage::PLAIN);
        let expected: Vec<_> = sets().map(|set| (set, plain.paged(set, POLICY))).collect();
        for storage in storages() {
            let batch = Batch::<T>::new(heads, &sequences, storage);
            for (set, expected) in &expected {
                assert!(expected.0.iter().all(|x| x.to_f32().is_finite()));
                let what = format!("{set:?} {heads:?} {storage:?}");
                bits_eq(&batch.paged(*set, POLICY), expected, &what);
                bits_eq(&batch.contiguous(*set, POLICY), expected, &what);
            }
        }
    }
}

#[test]
fn storage_does_not_change_a_bit_f32() {
    storage_does_not_change_a_bit::<f32>();
}

#[test]
fn storage_does_not_change_a_bit_f16() {
    storage_does_not_change_a_bit::<f16>();
}

#[test]
fn storage_does_not_change_a_bit_bf16() {
    storage_does_not_change_a_bit::<bf16>();
}

#[test]
fn other_sequences_do_not_change_a_bit() {
    let heads = (6, 2, 80);
    for set in sets() {
        let alone = Batch::<f16>::new(heads, &[(7, 900)], Storage::PLAIN).paged(set, POLICY);
        let many = [(1, 3000), (7, 900), (2, 40), (7, 900)];
        let (out, lse) = Batch::<f16>::new(heads, &many, Storage::PLAIN).paged(set, POLICY);
        for at in [1, 3] {
            let (rows, row) = (6 * 80, 6);
            let part = (
                out[at * rows..][..rows].to_vec(),
                lse[at * row..][..row].to_vec(),
            );
            bits_eq(&part, &alone, &format!("{set:?}, position {at}"));
        }
    }
}

#[cfg(feature = "rayon")]
#[test]
fn threads_do_not_change_a_bit() {
    let batch = Batch::<bf16>::new((8, 4, 128), &[(1, 1500), (2, 30), (3, 700)], Storage::PLAIN);
    for set in sets() {
        for policy in [POLICY, SplitPolicy::Auto] {
            let run = |threads| {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .build()
                    .unwrap();
                pool.install(|| batch.paged(set, policy))
            };
            let one = run(1);
            for threads in [2, 3, 8] {
                bits_eq(&run(threads), &one, &format!("{set:?}, {threads} threads"));
            }
        }
    }
}

#[test]
fn an_empty_batch_is_ok() {
    for set in sets() {
        let batch = Batch::<f32>::new((4, 2, 64), &[], Storage::PLAIN);
        assert_eq!(batch.paged(set, SplitPolicy::Auto), (vec![], vec![]));
        assert_eq!(batch.contiguous(set, SplitPolicy::Auto), (vec![], vec![]));
    }
}
