//! The promise of `SplitPolicy::Tokens`: the output bits of a sequence depend on its own query, keys
//! and values in logical order, and on the policy. On nothing else.

use paged_attention::CacheLayout;

use crate::backend::{Backend, Cpu, DTYPES, Output, claims, ptx};
use crate::batch::Batch;
use crate::case::{Case, Pool, Rows};
use crate::compare::{bits_eq, decode};
use crate::logical::Logical;
use crate::random::Random;

claims!(
    bits_do_not_depend_on_the_batch,
    bits_do_not_depend_on_how_tokens_are_stored,
    bits_do_not_depend_on_the_capacity,
);

/// The rows of one sequence of an output.
fn rows(case: &Case, output: &Output, s: usize) -> Output {
    let heads = case.num_q_heads;
    let row = heads * case.head_dim;
    Output {
        out: output.out[s * row..(s + 1) * row].to_vec(),
        lse: output.lse[s * heads..(s + 1) * heads].to_vec(),
    }
}

fn cases() -> impl Iterator<Item = Case> {
    let shapes = [(64, 4, 1, 32), (96, 2, 2, 512), (128, 9, 1, 64)];
    let shapes = shapes.into_iter().zip(DTYPES);
    shapes.map(|((head_dim, q, kv, split), dtype)| {
        Case::new(dtype, head_dim, &[7, 64, 65, 150, 0, 33])
            .heads(q, kv)
            .split(split)
    })
}

fn bits_do_not_depend_on_the_batch(backend: &dyn Backend) {
    for case in cases() {
        let logical = Logical::generate(&case);
        let together = decode(backend, &Batch::of(&case, logical.clone())).unwrap();
        let mut order: Vec<usize> = (0..case.lens.len()).collect();
        Random::new(3, 0).shuffle(&mut order);
        for chosen in [
            order.clone(),
            order[..2].to_vec(),
            vec![0],
            vec![3],
            vec![3, 3],
        ] {
            let seqs = chosen.iter().map(|&s| logical.seqs[s].clone()).collect();
            let batch = Batch::of(&case, Logical { seqs });
            let output = decode(backend, &batch).unwrap();
            for (place, &s) in chosen.iter().enumerate() {
                let what = format!("sequence {s} of batch {chosen:?}\n{case}");
                let expected = rows(&case, &together, s);
                bits_eq(&what, &rows(&case, &output, place), &expected).unwrap();
            }
        }
    }
}

fn bits_do_not_depend_on_how_tokens_are_stored(backend: &dyn Backend) {
    for case in cases() {
        let expected = decode(backend, &Batch::new(&case)).unwrap();
        let stored = [
            Case {
                order: CacheLayout::Hnd,
                pool: Pool::Fused,
                ..case.clone()
            },
            Case {
                pool: Pool::Padded,
                rows: Rows::Padded,
                ..case.clone()
            },
            Case {
                rows: Rows::PackedQkv,
                table_gap: 5,
                spare_columns: 9,
                ..case.clone()
            },
            Case {
                block_size: 7,
                ..case.clone()
            },
            Case {
                block_size: 64,
                block_seed: 9,
                ..case.clone()
            },
        ];
        for stored in stored {
            let found = decode(backend, &Batch::new(&stored)).unwrap();
            bits_eq(&format!("{stored}\nagainst\n{case}"), &found, &expected).unwrap();
        }
    }
}

fn bits_do_not_depend_on_the_capacity(backend: &dyn Backend) {
    for case in cases() {
        let expected = decode(backend, &Batch::new(&case)).unwrap();
        for spare_capacity in [1, 100, 5000] {
            let found = decode(
                backend,
                &Batch::new(&Case {
                    spare_capacity,
                    ..case.clone()
                }),
            );
            bits_eq(
                &format!("{spare_capacity} spare\n{case}"),
                &found.unwrap(),
                &expected,
            )
            .unwrap();
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_threads_of_the_cpu_back_end() {
    for case in cases() {
        let batch = Batch::new(&case);
        let expected = decode(&Cpu, &batch).unwrap();
        for threads in [1, 2, 3, 7] {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let found = pool.install(|| decode(&Cpu, &batch)).unwrap();
            bits_eq(&format!("{threads} threads\n{case}"), &found, &expected).unwrap();
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_threads_of_the_emulator() {
    for case in cases() {
        let batch = Batch::new(&case);
        let expected = decode(ptx(), &batch).unwrap();
        for threads in [1, 3] {
            let options = ptx_emulator::Options {
                threads: Some(threads),
                ..Default::default()
            };
            let found = decode(&ptx().with_options(options), &batch).unwrap();
            bits_eq(&format!("{threads} threads\n{case}"), &found, &expected).unwrap();
        }
    }
}
