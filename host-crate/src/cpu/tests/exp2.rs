//! 2^x on every instruction set.

use super::super::exp2::{EXP2_MIN, EXP2_RELATIVE_ERROR, exp2};
#[cfg(target_arch = "x86_64")]
use super::super::simd::{Avx2, Avx512};
use super::super::simd::{Portable, Simd};
use super::sets;
use crate::cpu::InstructionSet;

/// # Safety
/// The CPU has `S`; `values` are whole vectors.
#[inline(always)]
unsafe fn all<S: Simd>(values: &mut [f32]) {
    assert!(values.len().is_multiple_of(S::LANES));
    for vector in values.chunks_exact_mut(S::LANES) {
        // SAFETY: the caller's promise.
        unsafe { S::store(vector.as_mut_ptr(), exp2::<S>(S::load(vector.as_ptr()))) }
    }
}

/// # Safety
/// As for [`all`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn all_avx2(values: &mut [f32]) {
    // SAFETY: the caller's promise.
    unsafe { all::<Avx2>(values) }
}

/// # Safety
/// As for [`all`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn all_avx512(values: &mut [f32]) {
    // SAFETY: the caller's promise.
    unsafe { all::<Avx512>(values) }
}

fn on(set: InstructionSet, values: &[f32]) -> Vec<f32> {
    let mut out = values.to_vec();
    out.resize(values.len().next_multiple_of(16), 0.0);
    // SAFETY: `sets` are available ones.
    unsafe {
        match set {
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => all_avx512(&mut out),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => all_avx2(&mut out),
            InstructionSet::Portable16 => all::<Portable<16>>(&mut out),
            _ => all::<Portable<8>>(&mut out),
        }
    }
    out.truncate(values.len());
    out
}

#[test]
fn exp2_keeps_its_relative_error() {
    // Every 997th f32 from −0 down to the limit: a million, all exponents among them.
    let last = EXP2_MIN.to_bits();
    let values: Vec<f32> = (0x8000_0000..=last)
        .step_by(997)
        .map(f32::from_bits)
        .collect();
    for set in sets() {
        let mut worst = 0.0f64;
        for (x, found) in values.iter().zip(on(set, &values)) {
            let exact = f64::from(*x).exp2();
            let error = (f64::from(found) / exact - 1.0).abs();
            assert!(
                error <= EXP2_RELATIVE_ERROR,
                "{set:?}: 2^{x} = {found}, off by {error:e}"
            );
            worst = worst.max(error);
        }
        assert!(worst > 2f64.powi(-25), "{set:?}: nothing was rounded");
    }
}

#[test]
fn exp2_is_exact_at_integers_and_zero_below_its_range() {
    for set in sets() {
        let integers: Vec<f32> = (-126..=0).map(|n| n as f32).collect();
        for (n, found) in integers.iter().zip(on(set, &integers)) {
            assert_eq!(f64::from(found), f64::from(*n).exp2(), "{set:?}: 2^{n}");
        }
        let below = [-126.001, -127.0, -1e4, -1e30, f32::MIN, f32::NEG_INFINITY];
        assert_eq!(on(set, &below), [0.0; 6], "{set:?}");
        assert!(on(set, &[f32::NAN])[0].is_nan(), "{set:?}");
    }
}
