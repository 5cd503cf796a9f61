//! Scores of -inf: they weigh nothing, wherever they stand and however the context is split.

use super::sets;
use crate::cpu::decode_on;
use crate::{
    AttentionConfig, BlockTable, CacheLayout, CacheView, DType, DecodeInputs, DeviceLimits, Plan,
    RowsView, RowsViewMut, SplitPolicy, reference,
};

const D: usize = 64;
const LEN: usize = 700;

/// One head over blocks of 16 in order; `key(t)` fills token t's key. Compares every instruction
/// set and several splits with the reference.
#[track_caller]
fn equals_the_reference(query: f32, key: impl Fn(usize) -> f32) -> reference::Reference {
    let blocks = LEN.div_ceil(16);
    let config = AttentionConfig::new(DType::F32, 1, 1, D, 16);
    let q = vec![query; D];
    let k: Vec<f32> = (0..blocks * 16 * D).map(|i| key(i / D)).collect();
    let v: Vec<f32> = (0..k.len()).map(|i| (i / D % 7) as f32 - 2.0).collect();
    let table: Vec<i32> = (0..blocks as i32).collect();
    let inputs = DecodeInputs {
        q: RowsView::contiguous(&q, 1, 1, D),
        k_cache: CacheView::dense(&k, CacheLayout::Nhd, blocks, 16, 1, D),
        v_cache: CacheView::dense(&v, CacheLayout::Nhd, blocks, 16, 1, D),
        block_table: BlockTable::new(&table, 1, blocks),
        seq_lens: &[LEN as i32],
    };
    let expected = reference::decode(&config, &inputs).unwrap();
    for split in [16, 64, 4096] {
        let policy = SplitPolicy::Tokens(split);
        let plan = Plan::new(&config, 1, LEN, policy, &DeviceLimits::cpu(1)).unwrap();
        for set in sets() {
            let (mut out, mut lse) = (vec![f32::NAN; D], [f32::NAN]);
            let mut workspace = vec![f32::NAN; plan.workspace_len()];
            let rows = RowsViewMut::contiguous(&mut out, 1, 1, D);
            decode_on(set, &plan, &inputs, rows, Some(&mut lse), &mut workspace).unwrap();
            for (i, &x) in out.iter().enumerate() {
                let error = (f64::from(x) - expected.out[i]).abs();
                // Equal weights of small whole numbers: a rounding per addition, 2^-24 of 4 each.
                let bound = LEN as f64 * 4.0 * 2f64.powi(-24);
                assert!(
                    error <= bound,
                    "{set:?} {split}: out[{i}] = {x}, {}",
                    expected.out[i]
                );
            }
            let lse = f64::from(lse[0]);
            assert!(
                lse == expected.lse[0] || (lse - expected.lse[0]).abs() <= 1e-5,
                "{set:?} {split}: lse {lse}, {}",
                expected.lse[0]
            );
        }
    }
    expected
}

#[test]
fn whole_splits_of_minus_infinity_weigh_nothing() {
    // 64 · 1e20 · -1e20 overflows to -inf in f32.
    for live in [0..16, 48..64, 699..700] {
        let found = equals_the_reference(1e20, |t| if live.contains(&t) { 0.0 } else { -1e20 });
        assert!(found.out.iter().all(|x| x.is_finite()));
    }
    equals_the_reference(1.0, |t| if t == 333 { 0.0 } else { f32::NEG_INFINITY });
}

#[test]
fn a_row_of_minus_infinity_is_the_row_of_length_0() {
    let found = equals_the_reference(1.0, |_| f32::NEG_INFINITY);
    assert_eq!(found.out, vec![0.0; D]);
    assert_eq!(found.lse, [f64::NEG_INFINITY]);
}
