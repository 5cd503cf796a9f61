use clap::Parser;
use paged_attention::{DeviceLimits, RowsViewMut, SplitPolicy, cpu};

use super::*;
use crate::args::{Cli, Command};
use crate::buffer::Buffer;

fn deviation(tensor: &'static str, found: f64, expected: f64, bound: f64) -> Deviation {
    Deviation {
        tensor,
        index: vec![0],
        found,
        expected,
        bound: Bound::Rounding(bound),
    }
}

#[test]
fn equal_infinities_and_nans_are_no_error_and_unequal_ones_are_infinite() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    for (found, expected, error) in [
        (1.0, 1.5, 0.5),
        (-inf, -inf, 0.0),
        (nan, nan, 0.0),
        (nan, 0.0, inf),
        (0.0, nan, inf),
        (inf, -inf, inf),
    ] {
        assert_eq!(deviation("out", found, expected, 1.0).error(), error);
    }
}

#[test]
fn the_largest_error_and_the_largest_share_are_kept_apart() {
    let mut worst = Worst::default();
    worst.add(deviation("out", 2.0, 1.0, 10.0));
    worst.add(deviation("out", 0.5, 1.0, 0.6));
    worst.add(deviation("lse", 0.0, f64::NEG_INFINITY, f64::INFINITY));
    assert_eq!(worst.out.map(|d| d.error()), Some(1.0));
    assert_eq!(worst.lse.map(|d| d.error()), Some(f64::INFINITY));
    let share = worst.share.map(|d| d.share());
    assert_eq!(
        share,
        Some(f64::INFINITY),
        "an infinite bound passes nothing"
    );
}

/// A small batch with its result.
fn decoded() -> (Batch<f32>, Plan, Vec<f32>, Vec<f32>) {
    decoded_after(|_| ())
}

/// The same after a change of the batch.
fn decoded_after(change: impl FnOnce(&mut Batch<f32>)) -> (Batch<f32>, Plan, Vec<f32>, Vec<f32>) {
    let options = "sample -o unused --num-seqs 3 --ctx 1..200 --heads 4 --kv-heads 2";
    let command = Cli::parse_from(["paged-attention"].into_iter().chain(options.split(' ')));
    let Command::Sample(args) = command.command else {
        panic!("`sample` must parse as such");
    };
    let mut batch = crate::sample::random::<f32>(&args).unwrap();
    change(&mut batch);
    let limits = DeviceLimits::cpu(1);
    let plan = Plan::new(&batch.config, 3, 200, SplitPolicy::Tokens(64), &limits).unwrap();
    let (mut out, mut lse) = (
        Buffer::zeroed("out", 3 * 4 * 128).unwrap(),
        vec![0.0; 3 * 4],
    );
    let mut workspace = vec![0.0; plan.workspace_len()];
    let rows = RowsViewMut::contiguous(&mut out, 3, 4, 128);
    let inputs = batch.inputs();
    cpu::decode(&plan, &inputs, rows, Some(&mut lse), &mut workspace).unwrap();
    let out = out.to_vec();
    (batch, plan, out, lse)
}

#[test]
fn a_result_is_within_its_bound_and_a_wrong_element_is_named() {
    let (batch, plan, mut out, mut lse) = decoded();
    let worst =
        check(&batch, &plan, DecodeKind::CudaCore, &out, &lse).expect("the result is right");
    let error = worst.out.map_or(0.0, |d| d.error());
    assert!(error > 0.0 && error < 1e-5, "{error}");

    out[(2 * 4 + 3) * 128 + 17] += 1e-4;
    let text = check(&batch, &plan, DecodeKind::CudaCore, &out, &lse)
        .unwrap_err()
        .to_string();
    assert!(text.starts_with("check: out[2, 3, 17] = "), "{text}");
    out[5] = f32::NAN;
    let text = check(&batch, &plan, DecodeKind::CudaCore, &out, &lse)
        .unwrap_err()
        .to_string();
    assert!(
        text.starts_with("check: out[0, 0, 5] = NaN, the reference is "),
        "{text}"
    );

    let (_, _, out, _) = decoded();
    lse[6] -= 1e-3;
    let text = check(&batch, &plan, DecodeKind::CudaCore, &out, &lse)
        .unwrap_err()
        .to_string();
    assert!(text.starts_with("check: lse[1, 2] = "), "{text}");
}

#[test]
fn one_token_more_or_less_is_past_the_bound() {
    let (mut batch, plan, out, lse) = decoded();
    for (s, by) in [(0, -1), (1, -1)] {
        batch.seq_lens[s] += by;
        assert!(
            check(&batch, &plan, DecodeKind::CudaCore, &out, &lse).is_err(),
            "sequence {s}"
        );
        batch.seq_lens[s] -= by;
    }
}

/// The first element of K or V of sequence 2's first token in kv head 1.
fn element(batch: &Batch<f32>) -> usize {
    let columns = batch.shapes.block_table[1];
    (batch.block_table[2 * columns] as usize * 16 * 2 + 1) * 128
}

/// Element 5 of query head 3, which reads kv head 1, of sequence 2.
const AT: usize = (2 * 4 + 3) * 128 + 5;

#[test]
fn scores_too_large_for_f32_leave_the_range_of_v_and_are_counted() {
    for (scale, least) in [(1e4, 1), (1e6, 3 * 4 * 128), (1e30, 3 * 4 * 128)] {
        let large = |batch: &mut Batch<f32>| batch.config = batch.config.with_scale(scale);
        let (batch, plan, mut out, lse) = decoded_after(large);
        let kind = DecodeKind::CudaCore;
        let worst = check(&batch, &plan, kind, &out, &lse).expect("the result is right");
        assert_eq!(worst.elements, 3 * 4 * 128);
        assert!(worst.unresolved >= least, "{}", worst.unresolved);
        let Some(Bound::Rounding(bound)) = worst.out.map(|d| d.bound) else {
            panic!("a bound");
        };
        assert!(bound < 2.01, "values lie in [-1, 1): {bound}");

        // No weights take a mean out of its column's range.
        out[AT] = 3.5;
        let text = check(&batch, &plan, kind, &out, &lse)
            .unwrap_err()
            .to_string();
        assert!(text.starts_with("check: out[2, 3, 5] = 3.5e0, "), "{text}");
    }
    let (batch, plan, out, lse) = decoded();
    let worst = check(&batch, &plan, DecodeKind::CudaCore, &out, &lse).unwrap();
    assert_eq!(worst.unresolved, 0, "ordinary scores are resolved");
}

#[test]
fn one_token_is_resolved_whatever_its_score() {
    let one = |batch: &mut Batch<f32>| {
        batch.config = batch.config.with_scale(1e6);
        batch.seq_lens.fill(1);
    };
    let (batch, plan, mut out, lse) = decoded_after(one);
    let kind = DecodeKind::CudaCore;
    let worst = check(&batch, &plan, kind, &out, &lse).expect("the result is right");
    assert_eq!(worst.unresolved, 0);
    out[AT] += 1e-4;
    let text = check(&batch, &plan, kind, &out, &lse)
        .unwrap_err()
        .to_string();
    assert!(text.starts_with("check: out[2, 3, 5] = "), "{text}");
}

#[test]
fn an_infinity_or_a_nan_in_v_costs_the_check_no_other_column() {
    for poison in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        let (batch, plan, out, lse) = decoded_after(|batch| {
            let at = element(batch);
            batch.v_cache[at] = poison;
        });
        for kind in [DecodeKind::CudaCore, DecodeKind::TensorCore] {
            let check = |out: &[f32]| check(&batch, &plan, kind, out, &lse);
            check(&out).expect("the result is right");
            // Its own column: heads 2 and 3 read kv head 1.
            assert!(!out[AT - 5].is_finite() && out[AT - 5 - 128..][..2][1].is_finite());
            for other in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
                let mut same = out.clone();
                same[AT - 5] = other;
                check(&same).expect("an infinity times a weight of 0 is a NaN");
            }
            let mut finite = out.clone();
            finite[AT - 5] = 0.5;
            let text = check(&finite).unwrap_err().to_string();
            let expected = "check: out[2, 3, 0] = 5e-1, the reference is ";
            assert!(text.starts_with(expected), "{text}");
            assert!(
                text.ends_with("so neither can be a finite number"),
                "{text}"
            );
            // Any other column.
            let mut wrong = out.clone();
            wrong[AT] += 0.05;
            let text = check(&wrong).unwrap_err().to_string();
            assert!(text.starts_with("check: out[2, 3, 5] = "), "{text}");
            assert!(text.contains("exceeds the bound"), "{text}");
        }
    }
}

#[test]
fn a_row_of_nan_is_no_matter_of_rounding() {
    let (batch, plan, out, lse) = decoded_after(|batch| batch.q[AT] = f32::NAN);
    let worst = check(&batch, &plan, DecodeKind::CudaCore, &out, &lse);
    assert!(out[AT].is_nan(), "{}", out[AT]);
    assert_eq!(worst.expect("the result is right").unresolved, 0);
}

#[test]
fn a_key_of_minus_infinity_costs_no_bound() {
    let masked = |batch: &mut Batch<f32>| {
        let at = element(batch);
        batch.k_cache[at] = f32::NEG_INFINITY;
        // Positive in heads 2 and 3: the score is -inf, the weight 0.
        for head in [2, 3] {
            batch.q[(2 * 4 + head) * 128] = 0.5;
        }
    };
    let (batch, plan, mut out, lse) = decoded_after(masked);
    let kind = DecodeKind::CudaCore;
    let worst = check(&batch, &plan, kind, &out, &lse).expect("the result is right");
    assert_eq!(worst.unresolved, 0);
    out[AT] += 1e-3;
    let text = check(&batch, &plan, kind, &out, &lse)
        .unwrap_err()
        .to_string();
    assert!(text.contains("exceeds the bound"), "{text}");
}
