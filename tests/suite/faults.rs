//! The kinds of faults that users of such kernels have met, each on every back end.

use paged_attention::kernels::variants::head_dims;
use paged_attention::{CacheLayout, Plan, SplitPolicy, supports};
use ptx_emulator::{Detectors, Options};

use crate::backend::{Backend, Cpu, DTYPES, claims, ptx};
use crate::batch::Batch;
use crate::case::{Case, Pool, Rows};
use crate::compare::{assert_close, check, close_to_exact, decode};
use crate::logical::Logical;
use crate::strategy::{any_case, forall};

claims!(
    any_case_equals_exact_attention,
    garbage_past_the_length_is_never_read,
    a_length_of_zero_gives_zeros_and_minus_infinity,
    listed_head_sizes_are_right_and_others_print_the_list,
    any_block_size_is_right_around_its_edges,
    any_whole_head_ratio_is_right,
    strided_inputs_are_right,
    dead_table_entries_may_hold_anything,
    live_table_entries_outside_the_pool_are_refused,
    lengths_past_the_table_or_the_plan_are_refused,
    tensors_of_another_type_are_refused,
    an_empty_batch_is_fine,
);

fn any_case_equals_exact_attention(backend: &dyn Backend) {
    forall(backend.cases(48), any_case(), |case| {
        check(backend, &case).map(|_| ())
    });
}

fn garbage_past_the_length_is_never_read(backend: &dyn Backend) {
    for dtype in DTYPES {
        for order in [CacheLayout::Nhd, CacheLayout::Hnd] {
            // Slots 13..16 and the spare blocks are NaN, table tails are garbage.
            let case = Case::new(dtype, 64, &[13]);
            assert_close(
                backend,
                &Case {
                    order,
                    ..case.clone()
                },
            );
            let case = case.heads(8, 1).split(16);
            let lens = vec![13, 1, 29, 16];
            assert_close(
                backend,
                &Case {
                    order,
                    lens,
                    ..case
                },
            );
        }
    }
}

fn a_length_of_zero_gives_zeros_and_minus_infinity(backend: &dyn Backend) {
    for dtype in DTYPES {
        for (lens, split) in [
            (vec![0, 1, 0, 33], 512),
            (vec![0, 1, 0, 33], 16),
            (vec![0; 3], 16),
        ] {
            let case = Case {
                spare_capacity: 40,
                ..Case::new(dtype, 64, &lens).split(split)
            };
            let batch = Batch::new(&case);
            let output = decode(backend, &batch).unwrap();
            close_to_exact(backend, &batch, &output).unwrap();
            let row = case.num_q_heads * case.head_dim;
            for s in lens
                .iter()
                .enumerate()
                .filter(|(_, len)| **len == 0)
                .map(|(s, _)| s)
            {
                assert_eq!(output.out[s * row..(s + 1) * row], vec![0.0; row], "{case}");
                let lse = &output.lse[s * case.num_q_heads..][..case.num_q_heads];
                assert!(
                    lse.iter().all(|lse| *lse == f32::NEG_INFINITY),
                    "{lse:?}\n{case}"
                );
            }
        }
    }
}

fn listed_head_sizes_are_right_and_others_print_the_list(backend: &dyn Backend) {
    for dtype in DTYPES {
        let listed: Vec<usize> = head_dims(dtype).map(|d| d as usize).collect();
        for head_dim in [32, 40, 64, 72, 80, 96, 112, 120, 128, 160, 192, 256, 512] {
            let case = Case::new(dtype, head_dim, &[21]);
            if listed.contains(&head_dim) {
                assert_eq!(supports(&case.config()), Ok(()), "{case}");
                assert_close(backend, &case);
                continue;
            }
            let error = case.try_plan().unwrap_err();
            assert_eq!(supports(&case.config()), Err(error.clone()), "{case}");
            assert_eq!(
                error.to_string(),
                format!(
                    "config: head_dim = {head_dim} is not supported for {}, must be one of 32, 64, \
                     80, 96, 112, 120, 128, 160, 192, 256",
                    dtype.name()
                )
            );
        }
    }
}

fn any_block_size_is_right_around_its_edges(backend: &dyn Backend) {
    for block_size in [1, 2, 3, 8, 16, 32, 64, 128, 256, 768] {
        let k = if block_size > 64 { 1 } else { 3 };
        let edge = k * block_size;
        let case = Case::new(DTYPES[1], 64, &[edge - 1, edge, edge + 1]).block_size(block_size);
        assert_close(backend, &case);
        assert_close(
            backend,
            &Case {
                order: CacheLayout::Hnd,
                ..case.split(64)
            },
        );
    }
}

fn any_whole_head_ratio_is_right(backend: &dyn Backend) {
    for (q, kv) in [
        (5, 1),
        (7, 1),
        (28, 4),
        (12, 2),
        (24, 2),
        (48, 8),
        (71, 1),
        (64, 1),
    ] {
        assert_close(
            backend,
            &Case::new(DTYPES[2], 64, &[37]).heads(q, kv).split(32),
        );
    }
    let error = Case::new(DTYPES[2], 64, &[37])
        .heads(16, 5)
        .try_plan()
        .unwrap_err();
    let text = "config: num_q_heads = 16, must be a multiple of num_kv_heads 5";
    assert_eq!(error.to_string(), text);
}

fn strided_inputs_are_right(backend: &dyn Backend) {
    // 32 query heads and 8 kv heads of 128: packed rows of 6144 elements.
    let packed = Case::new(DTYPES[1], 128, &[20, 3]).heads(32, 8);
    let packed = Case {
        rows: Rows::PackedQkv,
        ..packed
    };
    assert_eq!(Batch::new(&packed).q_strides.0, 6144);
    assert_close(backend, &packed);
    for dtype in DTYPES {
        for pool in [Pool::Fused, Pool::Padded] {
            for order in [CacheLayout::Nhd, CacheLayout::Hnd] {
                let case = Case::new(dtype, 80, &[50, 0, 17]).heads(4, 2).split(32);
                let (rows, table_gap) = (Rows::Padded, 3);
                assert_close(
                    backend,
                    &Case {
                        pool,
                        order,
                        rows,
                        table_gap,
                        ..case
                    },
                );
            }
        }
    }
}

/// Row [5, 9, −1, −1] with 20 tokens.
fn dead_table_entries_may_hold_anything(backend: &dyn Backend) {
    let case = Case {
        spare_blocks: 8,
        ..Case::new(DTYPES[0], 32, &[20])
    };
    for garbage in [-1, i32::MAX, i32::MIN, 10] {
        let mut batch = Batch::placed(&case, Logical::generate(&case), vec![5, 9]);
        batch.table[2..].fill(garbage);
        assert_eq!(batch.table, [5, 9, garbage, garbage]);
        let output = decode(backend, &batch).unwrap();
        close_to_exact(backend, &batch, &output).unwrap();
    }
}

fn live_table_entries_outside_the_pool_are_refused(backend: &dyn Backend) {
    let case = Case {
        spare_blocks: 8,
        ..Case::new(DTYPES[0], 32, &[16, 20])
    };
    for (value, bound) in [(-1, ">= 0 and < num_blocks 11"), (11, "< num_blocks 11")] {
        let mut batch = Batch::new(&case);
        let at = batch.table_stride + 1;
        batch.table[at] = value;
        let text = format!("decode: block_table[1][1] = {value}, must be {bound}");
        assert_eq!(backend.decode(&batch).unwrap_err().to_string(), text);
    }
}

fn lengths_past_the_table_or_the_plan_are_refused(backend: &dyn Backend) {
    // 33 tokens need three blocks of 16, the table has two columns.
    let mut batch = Batch::new(&Case::new(DTYPES[0], 32, &[33]));
    batch.table_width = 2;
    assert_eq!(
        backend.decode(&batch).unwrap_err().to_string(),
        "decode: seq_lens[0] = 33, must be at most 32 (block table of 2 columns × block_size 16)"
    );
    let mut batch = Batch::new(&Case::new(DTYPES[0], 32, &[33]));
    batch.plan = Case::new(DTYPES[0], 32, &[32]).plan();
    assert_eq!(
        backend.decode(&batch).unwrap_err().to_string(),
        "decode: seq_lens[0] = 33, must be at most max_seq_len 32"
    );
    let mut batch = Batch::new(&Case::new(DTYPES[0], 32, &[33]));
    batch.lens[0] = -1;
    assert_eq!(
        backend.decode(&batch).unwrap_err().to_string(),
        "decode: seq_lens[0] = -1, must be at least 0"
    );
}

fn tensors_of_another_type_are_refused(backend: &dyn Backend) {
    let mut batch = Batch::new(&Case::new(DTYPES[1], 32, &[33]));
    batch.plan = Case::new(DTYPES[2], 32, &[33]).plan();
    assert_eq!(
        backend.decode(&batch).unwrap_err().to_string(),
        "decode: the tensors hold f16, must hold the configuration's bf16"
    );
}

fn an_empty_batch_is_fine(backend: &dyn Backend) {
    let case = Case::new(DTYPES[1], 32, &[]);
    assert_close(backend, &case);
    assert_close(
        backend,
        &Case {
            spare_capacity: 4000,
            spare_blocks: 0,
            ..case
        },
    );
}

/// More than the second and third dimension of a grid hold. On the emulator without detectors: it is
/// the launch that is of interest, and 65,537 blocks take their time.
#[test]
fn more_than_65535_sequences_are_fine() {
    let mut lens = vec![0; 65_537];
    (lens[0], lens[65_535], lens[65_536]) = (3, 2, 40);
    let case = Case::new(DTYPES[0], 32, &lens).heads(1, 1);
    assert_close(&Cpu, &case);
    let detectors = Detectors::none();
    let options = Options {
        detectors,
        count_memory: false,
        ..Options::default()
    };
    assert_close(&ptx().with_options(options), &case);
}

/// Whatever combination is asked for: it is planned if and only if `supports` says so.
#[test]
fn plans_exist_exactly_for_supported_configurations() {
    let limits = paged_attention::DeviceLimits::a100();
    for dtype in DTYPES {
        for head_dim in 0..=520 {
            for (q, kv) in [(8, 8), (8, 2), (8, 3), (0, 1), (1, 0)] {
                let case = Case::new(dtype, 32, &[]);
                let mut config = case.config();
                (config.head_dim, config.num_q_heads, config.num_kv_heads) = (head_dim, q, kv);
                let plan = Plan::new(&config, 3, 100, SplitPolicy::Auto, &limits);
                assert_eq!(plan.map(|_| ()), supports(&config), "{config:?}");
            }
        }
    }
}
