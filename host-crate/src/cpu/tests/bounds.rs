//! Results against the f64 reference, with a bound that is derived below.

use half::{bf16, f16};

use super::batch::{Batch, Storage};
use super::sets;
use crate::cpu::SHORT_TILE;
use crate::kernels::variants::head_dims;
use crate::{CacheLayout, DType, Element, SplitPolicy, reference};

/// Unit roundoff of f32.
const U: f64 = 1.0 / (1u64 << 24) as f64;

/// Error of a computed weight 2^(s − m), an output element and an lse, to first order in `U`.
///
/// With A = Σ|q·k|·scale·log2(e) ≤ ‖q‖₁·scale·log2(e) for |k| ≤ 1:
/// - a score s has the roundings of log2(e)·scale (2), of q·scale (1), of d/8 chained multiply-adds
///   (2 each where not fused) and of the 3 levels of the lane tree (4 with 16 lanes), and s − m one
///   of a value below 2A: in all (d/4 + 9)·U·A. It changes the weight by the factor 2^δ, a relative
///   change of ln 2·δ;
/// - exp2 itself is good to 2.3 U (its own test), and every later rescaling, at most one per tile,
///   fold and split, costs one more exp2 and one product: 3.3 U, and s − m of its own, which is in
///   the score term once more;
/// - each sum, numerator and denominator, is a chain over the tokens (2 roundings a token where not
///   fused).
///
/// Numerator and denominator both move, so the quotient moves by twice that, relative to Σp|v|; the
/// division and, in f32, the store add one rounding each.
fn relative_error(len: usize, d: usize, q_norm: f64, scale: f32) -> f64 {
    let a = q_norm * f64::from(scale) * std::f64::consts::LOG2_E;
    let score = std::f64::consts::LN_2 * (d as f64 / 4.0 + 9.0) * a;
    let rescalings = len.div_ceil(SHORT_TILE) as f64 + 4.0;
    U * (score * 2.0 + 3.3 * (1.0 + rescalings) + 2.0 * len as f64)
}

fn check<T: Element>(batch: &Batch<T>, policy: SplitPolicy) {
    let exact = reference::decode(&batch.config, &batch.inputs()).unwrap();
    let unit = match T::DTYPE {
        DType::F32 => U,
        DType::F16 => 2f64.powi(-11),
        DType::Bf16 => 2f64.powi(-8),
    };
    let (d, heads) = (batch.config.head_dim, batch.config.num_q_heads);
    let portable = batch.paged(crate::cpu::InstructionSet::Portable, policy).0;
    for set in sets() {
        let (out, lse) = batch.paged(set, policy);
        for (row, (&found_lse, &exact_lse)) in lse.iter().zip(&exact.lse).enumerate() {
            let len = batch.lens[row / heads] as usize;
            let q = &batch.q.get()[row * d..][..d];
            let q_norm: f64 = q.iter().map(|q| f64::from(q.to_f32()).abs()).sum();
            let relative = relative_error(len, d, q_norm, batch.config.scale);
            for at in row * d..(row + 1) * d {
                let (found, exact, sum) = (out[at].to_f32(), exact.out[at], exact.abs_out[at]);
                // f16 results below the normal range are rounded to multiples of 2^-24.
                let bound = unit * exact.abs() + (2.0 * relative + 2.0 * U) * sum + 2f64.powi(-25);
                let error = (f64::from(found) - exact).abs();
                let place = format!("{set:?} {:?} row {row} len {len} [{at}]", batch.config);
                assert!(
                    error <= bound,
                    "{place}: {found} for {exact}: {error:e} > {bound:e}"
                );
                let apart = (f64::from(found) - f64::from(portable[at].to_f32())).abs();
                assert!(
                    apart <= 2.0 * bound,
                    "{place}: {apart:e} from the portable result"
                );
            }
            let (found, exact) = (f64::from(found_lse), exact_lse);
            if len == 0 {
                assert!(
                    exact == f64::NEG_INFINITY && found == exact,
                    "row {row}: lse {found}"
                );
            } else {
                let bound = relative + U * exact.abs();
                assert!(
                    (found - exact).abs() <= bound,
                    "{set:?} row {row}: lse {found}, {exact}"
                );
            }
        }
    }
}

/// Lengths 0..=50 and 95..=98 cover every tail of the tiles of 48, 4 and 3 tokens; a group of 5 has a
/// quad and a single head.
fn tails<T: Element>() {
    let lens = (0..=50).chain(95..=98);
    let sequences: Vec<_> = lens.map(|len| (len as u64 + 100, len)).collect();
    for d in head_dims(T::DTYPE) {
        let storage = Storage {
            block_size: 7,
            ..Storage::PLAIN
        };
        check(
            &Batch::<T>::new((5, 1, d as usize), &sequences, storage),
            SplitPolicy::Auto,
        );
    }
}

#[test]
fn every_tail_and_head_dim_is_within_the_bound_f32() {
    tails::<f32>();
}

#[test]
fn every_tail_and_head_dim_is_within_the_bound_f16() {
    tails::<f16>();
}

#[test]
fn every_tail_and_head_dim_is_within_the_bound_bf16() {
    tails::<bf16>();
}

/// Groups of 2 and of 5: 8 rows of 512 bytes make tiles of 24 tokens, 16 make tiles of 12.
#[test]
fn every_tail_of_short_tiles_is_within_the_bound() {
    let lens = (0..=13).chain(23..=26).chain(47..=50);
    let sequences: Vec<_> = lens.map(|len| (len as u64 + 100, len)).collect();
    for layout in [CacheLayout::Nhd, CacheLayout::Hnd] {
        let storage = Storage {
            layout,
            ..Storage::PLAIN
        };
        for heads in [(16, 8), (40, 8), (32, 16)] {
            check(
                &Batch::<f32>::new((heads.0, heads.1, 128), &sequences, storage),
                SplitPolicy::Auto,
            );
        }
    }
}

#[test]
fn every_group_size_is_within_the_bound() {
    for group in [1, 2, 3, 4, 6, 7, 8, 9, 15, 71] {
        let sequences = [(1, 50), (2, 0), (3, 23)];
        for layout in [CacheLayout::Nhd, CacheLayout::Hnd] {
            let storage = Storage {
                layout,
                ..Storage::PLAIN
            };
            check(
                &Batch::<f16>::new((group * 2, 2, 64), &sequences, storage),
                SplitPolicy::Auto,
            );
            check(
                &Batch::<f32>::new((group * 2, 2, 120), &sequences, storage),
                SplitPolicy::Auto,
            );
        }
    }
}

#[test]
fn splits_and_folds_are_within_the_bound() {
    // 5000 tokens: three chains in one split, ten splits of 512, 313 splits of 16.
    for policy in [
        SplitPolicy::Tokens(8192),
        SplitPolicy::Tokens(512),
        SplitPolicy::Tokens(16),
    ] {
        let sequences = [(1, 5000), (2, 16), (3, 0), (4, 2041)];
        check(
            &Batch::<f32>::new((3, 1, 64), &sequences, Storage::PLAIN),
            policy,
        );
        check(
            &Batch::<bf16>::new((1, 1, 64), &sequences, Storage::PLAIN),
            policy,
        );
    }
}
