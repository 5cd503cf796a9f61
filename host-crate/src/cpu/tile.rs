//! One step: a tile of tokens of one kv head, for up to four query heads of its group.

#![allow(
    clippy::needless_range_loop,
    reason = "register tiles are indexed by head and column"
)]

use std::mem::MaybeUninit;

use super::exp2::exp2;
use super::micro::{Columns, scores, values};
use super::prefetch::Prefetch;
use super::simd::{Simd, max_of_heads, sum_of_heads};
use super::{MAX_LANES, TILE};
use crate::Element;

/// Addresses of a tile's rows of kv head 0. Rows past `len` repeat a live one: they may be read,
/// their scores are dropped.
pub(crate) struct Tile<T> {
    /// Tokens, 1..=[`TILE`].
    pub len: usize,
    /// Keys by token.
    pub k: [*const T; TILE],
    /// Values by token.
    pub v: [*const T; TILE],
}

/// Running softmax state of up to four heads: unnormalised sums relative to the maximum.
#[derive(Clone, Copy)]
pub(crate) struct MaxSum {
    /// Maxima in log2 units.
    pub m: [f32; 4],
    /// Denominators.
    pub l: [f32; 4],
}

impl MaxSum {
    /// No token seen.
    pub(crate) const EMPTY: Self = Self {
        m: [f32::NEG_INFINITY; 4],
        l: [0.0; 4],
    };
}

/// Query heads of a group that the inner loops take together.
pub(crate) const QUAD: usize = 4;

/// Where the query heads of one kv head stand.
pub(crate) struct Heads {
    /// Times the scale in log2 units; laid out as [`super::scratch::Layout`] says.
    pub q: *const f32,
    /// Unnormalised sums, laid out alike.
    pub acc: *mut f32,
    /// Query heads, at least 1.
    pub group: usize,
    /// Elements from a tile's key row to this kv head's.
    pub k_offset: usize,
    /// Elements from a tile's value row to this kv head's.
    pub v_offset: usize,
}

/// Attends a kv head's query heads to the tokens of `tile`; `states: [ceil(group / 4)]`.
///
/// # Safety
/// The CPU has `S`; the pointers of `tile` and `heads` are valid for the shapes they name.
#[inline(always)]
pub(crate) unsafe fn step<S, T>(
    tile: &Tile<T>,
    heads: &Heads,
    columns: &Columns,
    states: &mut [MaxSum],
    prefetch: &mut Prefetch<'_, T>,
) where
    S: Simd,
    T: Element,
{
    for (quad, state) in states.iter_mut().enumerate() {
        let first = quad * QUAD * columns.padded();
        // SAFETY: the caller's promise; a quad starts before the group's end.
        unsafe {
            let q = heads.q.add(first);
            let acc = heads.acc.add(first);
            let heads = &Heads {
                q,
                acc,
                group: heads.group - quad * QUAD,
                ..*heads
            };
            match heads.group {
                1 => attend::<S, T, 1, 8, 1>(tile, heads, columns, state, prefetch),
                2 => attend::<S, T, 2, 3, 4>(tile, heads, columns, state, prefetch),
                3 => attend::<S, T, 3, 3, 4>(tile, heads, columns, state, prefetch),
                _ => attend::<S, T, 4, 3, 4>(tile, heads, columns, state, prefetch),
            }
        }
    }
}

/// How often a [`step`] asks for keys, and for values.
pub(crate) fn calls_per_step(len: usize, group: usize, columns: &Columns) -> (usize, usize) {
    let vectors = columns.vectors();
    let (quads, single) = match group % QUAD {
        0 => (group / QUAD, 0),
        1 => (group / QUAD, 1),
        _ => (group / QUAD + 1, 0),
    };
    let single_values = vectors / 8 + (vectors % 8).count_ones() as usize;
    (
        quads * len.div_ceil(3) + single * len.div_ceil(8),
        quads * vectors.div_ceil(3) + single * single_values,
    )
}

/// Attends `H` heads to the tokens of `tile`; scores in tiles of `N` tokens, heads padded to `P`.
///
/// # Safety
/// The CPU has `S`; the pointers of `tile` and `heads` are valid for the shapes they name.
#[inline(always)]
pub(crate) unsafe fn attend<S, T, const H: usize, const N: usize, const P: usize>(
    tile: &Tile<T>,
    heads: &Heads,
    columns: &Columns,
    state: &mut MaxSum,
    prefetch: &mut Prefetch<'_, T>,
) where
    S: Simd,
    T: Element,
{
    const { assert!(TILE.is_multiple_of(N)) };
    let mut weights = MaybeUninit::<[f32; (TILE + MAX_LANES) * 4]>::uninit();
    let weights = weights.as_mut_ptr().cast::<f32>();
    // SAFETY: the caller's promise; `weights` holds TILE tokens of P ≤ 4 heads, rounded up to a
    // vector, and each is written before it is read.
    unsafe {
        let mut t = 0;
        while t < tile.len {
            let rows = tile.k.as_ptr().add(t);
            scores::<S, T, H, N, P>(heads.q, rows, heads.k_offset, columns, weights.add(t * P));
            prefetch.k.some::<S>();
            t += N;
        }
        let count = tile.len * P;
        let padded = count.next_multiple_of(S::LANES);
        for i in count..padded {
            *weights.add(i) = f32::NEG_INFINITY;
        }
        let rescale = softmax::<S, P>(weights, padded, state);
        if rescale[..H].iter().any(|&factor| factor != 1.0) {
            for j in 0..columns.vectors() {
                for h in 0..H {
                    let at = heads.acc.add((j * P + h) * S::LANES);
                    S::store(at, S::mul(S::load(at), S::splat(rescale[h])));
                }
            }
        }

        let mut done = 0;
        let vectors = columns.vectors();
        macro_rules! columns_of {
            ($w:literal) => {{
                values::<S, T, H, $w, P>(
                    weights,
                    tile.len,
                    tile.v.as_ptr(),
                    heads.v_offset + done * S::LANES,
                    columns.granule && done + $w == vectors,
                    heads.acc.add(done * P * S::LANES),
                );
                prefetch.v.some::<S>();
                done += $w;
            }};
        }
        while done < vectors {
            let left = vectors - done;
            if H == 1 {
                match left {
                    8.. => columns_of!(8),
                    4.. => columns_of!(4),
                    2.. => columns_of!(2),
                    _ => columns_of!(1),
                }
            } else {
                // 4 = 2 + 2: a single vector would leave the adders waiting for each other.
                match left {
                    3 | 5.. => columns_of!(3),
                    2 | 4 => columns_of!(2),
                    _ => columns_of!(1),
                }
            }
        }
    }
}

/// Turns scores (log2 units) into weights 2^(score − maximum) in place, updates the maxima and
/// denominators, and returns the factor for what was summed before.
///
/// # Safety
/// The CPU has `S`; `scores: [len / P, P]`, `len` a multiple of the lanes.
#[inline(always)]
unsafe fn softmax<S: Simd, const P: usize>(
    scores: *mut f32,
    len: usize,
    state: &mut MaxSum,
) -> [f32; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut max = S::load(scores);
        for i in (S::LANES..len).step_by(S::LANES) {
            max = S::max(max, S::load(scores.add(i)));
        }
        let before = load_heads::<S, P>(&state.m);
        let max = S::max(before, max_of_heads::<S, P>(max));
        // Scores of -inf alone leave the maximum at -inf; minus something finite they weigh 0.
        let base = S::max(max, S::splat(f32::MIN));
        let rescale = exp2::<S>(S::sub(before, base));

        let mut sum = S::splat(0.0);
        for i in (0..len).step_by(S::LANES) {
            let p = exp2::<S>(S::sub(S::load(scores.add(i)), base));
            S::store(scores.add(i), p);
            sum = S::add(sum, p);
        }
        let sum = sum_of_heads::<S, P>(sum);
        let sum = S::fma(load_heads::<S, P>(&state.l), rescale, sum);

        S::store_quad(state.m.as_mut_ptr(), max);
        S::store_quad(state.l.as_mut_ptr(), sum);
        let mut factors = [0.0; 4];
        S::store_quad(factors.as_mut_ptr(), rescale);
        factors
    }
}

/// One head's value in every lane, or those of four heads in turn.
///
/// # Safety
/// The CPU has `S`.
#[inline(always)]
unsafe fn load_heads<S: Simd, const P: usize>(values: &[f32; 4]) -> S::V {
    // SAFETY: the caller's promise.
    unsafe {
        if P == 1 {
            S::splat(values[0])
        } else {
            S::load_quad(values.as_ptr())
        }
    }
}
