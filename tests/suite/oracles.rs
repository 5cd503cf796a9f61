//! Facts that any attention obeys, whatever computes it.

use crate::backend::{Backend, claims};
use crate::batch::Batch;
use crate::bound::{SECOND_ORDER, bounds};
use crate::case::{Case, Data};
use crate::compare::{bits_eq, check, close_to_exact, decode, within};
use crate::logical::{Logical, round};
use crate::oracle;
use crate::strategy::{forall, nonempty_case};

claims!(
    a_query_of_zeros_gives_the_mean_of_the_visible_values,
    constant_values_come_out_unchanged,
    relabelling_the_blocks_changes_no_bit,
    other_block_sizes_and_splits_stay_within_the_bound,
    grouped_heads_equal_repeated_heads,
    merging_the_states_of_two_parts_gives_the_whole,
);

const CASES: u32 = 8;

/// Bounds of (sequence, head) under the back end's order.
fn bounds_of(backend: &dyn Backend, batch: &Batch, s: usize, h: usize) -> crate::bound::Bounds {
    let seq = &batch.logical.seqs[s];
    let row = oracle::row(batch.config(), seq, h);
    bounds(backend.order(), &batch.plan, seq, h, &row)
}

/// Compares every output element with `expected(sequence, head, column)`.
fn compare_with(
    backend: &dyn Backend,
    case: &Case,
    expected: impl Fn(&Batch, usize, usize, usize) -> f64,
) -> Result<(), String> {
    let batch = Batch::new(case);
    let output = decode(backend, &batch)?;
    let d = case.head_dim;
    for s in (0..batch.num_seqs()).filter(|&s| case.lens[s] > 0) {
        for h in 0..case.num_q_heads {
            let bounds = bounds_of(backend, &batch, s, h);
            for i in 0..d {
                let found = output.out[(s * case.num_q_heads + h) * d + i];
                let exact = expected(&batch, s, h, i);
                within("out", (s, h, i), found, exact, bounds.out[i])
                    .map_err(|error| format!("{error}\n{case}"))?;
            }
        }
    }
    Ok(())
}

fn a_query_of_zeros_gives_the_mean_of_the_visible_values(backend: &dyn Backend) {
    forall(backend.cases(CASES), nonempty_case(), |case| {
        let case = case.data(Data::ZeroQuery);
        compare_with(backend, &case, |batch, s, h, i| {
            let seq = &batch.logical.seqs[s];
            let (kv, d) = (case.num_kv_heads, case.head_dim);
            let column = (h / case.group()) * d + i;
            let values = (0..seq.len).map(|t| f64::from(seq.values[t * kv * d + column]));
            values.sum::<f64>() / seq.len as f64
        })
    });
}

fn constant_values_come_out_unchanged(backend: &dyn Backend) {
    for constant in [1.0, -0.7, 3e-4] {
        forall(backend.cases(CASES / 2), nonempty_case(), |case| {
            let case = case.data(Data::ConstantValues(constant));
            let exact = f64::from(round(case.dtype, constant));
            compare_with(backend, &case, |_, _, _, _| exact)
        });
    }
}

fn relabelling_the_blocks_changes_no_bit(backend: &dyn Backend) {
    forall(backend.cases(CASES), nonempty_case(), |case| {
        let expected = decode(backend, &Batch::new(&case))?;
        let relabelled = Case {
            block_seed: case.block_seed + 1,
            spare_blocks: case.spare_blocks + 5,
            ..case.clone()
        };
        let found = decode(backend, &Batch::new(&relabelled))?;
        bits_eq(&format!("relabelled\n{case}"), &found, &expected)
    });
}

fn other_block_sizes_and_splits_stay_within_the_bound(backend: &dyn Backend) {
    forall(backend.cases(CASES / 2), nonempty_case(), |case| {
        let logical = Logical::generate(&case);
        for (block_size, split) in [(5, 16), (16, 48), (64, 512), (100, 8192)] {
            let case = case.clone().block_size(block_size).split(split);
            let batch = Batch::of(&case, logical.clone());
            let output = decode(backend, &batch)?;
            close_to_exact(backend, &batch, &output)?;
        }
        Ok(())
    });
}

/// The repeated heads run with other head tiles, so both sides have their own bound.
fn grouped_heads_equal_repeated_heads(backend: &dyn Backend) {
    forall(backend.cases(CASES), nonempty_case(), |case| {
        let grouped = Batch::new(&case);
        let seqs = grouped.logical.seqs.iter();
        let seqs = seqs
            .map(|seq| seq.repeat_heads(case.group(), case.head_dim))
            .collect();
        let repeated = case.clone().heads(case.num_q_heads, case.num_q_heads);
        let repeated = Batch::of(&repeated, Logical { seqs });
        let (a, b) = (decode(backend, &grouped)?, decode(backend, &repeated)?);
        close_to_exact(backend, &grouped, &b)?;
        let d = case.head_dim;
        for s in (0..grouped.num_seqs()).filter(|&s| case.lens[s] > 0) {
            for h in 0..case.num_q_heads {
                let (left, right) = (
                    bounds_of(backend, &grouped, s, h),
                    bounds_of(backend, &repeated, s, h),
                );
                for i in 0..d {
                    let at = (s * case.num_q_heads + h) * d + i;
                    let bound = left.out[i] + right.out[i];
                    within("out", (s, h, i), a.out[at], b.out[at].into(), bound)
                        .map_err(|error| format!("{error}\n{case}"))?;
                }
            }
        }
        Ok(())
    });
}

fn merging_the_states_of_two_parts_gives_the_whole(backend: &dyn Backend) {
    forall(backend.cases(CASES), nonempty_case(), |case| {
        let whole = Batch::new(&case);
        let part = |from_end: bool| {
            let seqs = whole.logical.seqs.iter().map(|seq| {
                let middle = seq.len / 3;
                if from_end {
                    seq.slice(middle, seq.len)
                } else {
                    seq.slice(0, middle)
                }
            });
            Batch::of(
                &case,
                Logical {
                    seqs: seqs.collect(),
                },
            )
        };
        let parts = [part(false), part(true)];
        let outputs = [decode(backend, &parts[0])?, decode(backend, &parts[1])?];
        let found = decode(backend, &whole)?;
        let d = case.head_dim;
        for s in (0..whole.num_seqs()).filter(|&s| case.lens[s] > 0) {
            for h in 0..case.num_q_heads {
                let row = s * case.num_q_heads + h;
                let lse = [0, 1].map(|j| f64::from(outputs[j].lse[row]));
                let top = lse[0].max(lse[1]);
                let sum: f64 = lse.iter().map(|lse| (lse - top).exp()).sum();
                let weight = lse.map(|lse| (lse - top).exp() / sum);
                let bound = bounds_of(backend, &whole, s, h);
                let of_parts = [0, 1].map(|j| bounds_of(backend, &parts[j], s, h));
                // Errors of the parts' lse move the weights against each other.
                let weight_error = weight[0] * weight[1] * (of_parts[0].lse + of_parts[1].lse);
                let lse_bound =
                    bound.lse + weight[0] * of_parts[0].lse + weight[1] * of_parts[1].lse;
                let merged = top + sum.ln();
                within(
                    "lse",
                    (s, h, 0),
                    found.lse[row],
                    merged,
                    lse_bound * SECOND_ORDER,
                )
                .map_err(|error| format!("{error}\n{case}"))?;
                for i in 0..d {
                    let at = row * d + i;
                    let out = [0, 1].map(|j| f64::from(outputs[j].out[at]));
                    let merged = weight[0] * out[0] + weight[1] * out[1];
                    let bound = bound.out[i]
                        + weight[0] * of_parts[0].out[i]
                        + weight[1] * of_parts[1].out[i]
                        + weight_error * (out[0] - out[1]).abs();
                    within(
                        "out",
                        (s, h, i),
                        found.out[at],
                        merged,
                        bound * SECOND_ORDER,
                    )
                    .map_err(|error| format!("{error}\n{case}"))?;
                }
            }
        }
        Ok(())
    });
}

/// The oracle's own sensitivity: a case that must fail, so that the tests above can.
#[test]
fn an_output_that_is_off_is_noticed() {
    let case = Case::new(paged_attention::DType::F32, 32, &[40]);
    let batch = Batch::new(&case);
    let mut output = decode(&crate::backend::Cpu, &batch).unwrap();
    check(&crate::backend::Cpu, &case).unwrap();
    output.out[3] += 1e-5;
    close_to_exact(&crate::backend::Cpu, &batch, &output).unwrap_err();
}
