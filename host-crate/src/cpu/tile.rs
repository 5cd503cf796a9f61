//! One step: a tile of tokens of one kv head, for all query heads of its group.

#![allow(
    clippy::needless_range_loop,
    reason = "register tiles are indexed by head and column"
)]

use std::mem::MaybeUninit;

use super::exp2::exp2;
use super::micro::{Columns, scores, values};
use super::prefetch::{LINE, Prefetch};
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
/// Quads that share a pass over a tile.
const MAX_QUADS: usize = 4;
/// f32 for the weights of a quad, rounded up to a vector.
const WEIGHTS: usize = (TILE + MAX_LANES) * QUAD;

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
    let (whole, rest) = states.split_at_mut(heads.group / QUAD);
    // SAFETY: the caller's promise; a quad starts before the group's end.
    unsafe {
        let quad = |first: usize| Heads {
            q: heads.q.add(first * QUAD * columns.padded()),
            acc: heads.acc.add(first * QUAD * columns.padded()),
            ..*heads
        };
        for (i, states) in whole.chunks_mut(MAX_QUADS).enumerate() {
            attend::<S, T, 4, 3, 4>(tile, &quad(i * MAX_QUADS), columns, states, prefetch);
        }
        let last = quad(whole.len());
        match heads.group % QUAD {
            0 => {}
            1 => attend::<S, T, 1, 4, 1>(tile, &last, columns, rest, prefetch),
            2 => attend::<S, T, 2, 3, 4>(tile, &last, columns, rest, prefetch),
            _ => attend::<S, T, 3, 3, 4>(tile, &last, columns, rest, prefetch),
        }
    }
}

/// Attends `states.len()` times `H` heads to the tokens of `tile`; scores in tiles of `N` tokens,
/// heads padded to `P`.
///
/// # Safety
/// The CPU has `S`; the pointers of `tile` and `heads` are valid for the shapes they name.
#[inline(always)]
unsafe fn attend<S, T, const H: usize, const N: usize, const P: usize>(
    tile: &Tile<T>,
    heads: &Heads,
    columns: &Columns,
    states: &mut [MaxSum],
    prefetch: &mut Prefetch<'_, T>,
) where
    S: Simd,
    T: Element,
{
    const { assert!(TILE.is_multiple_of(N)) };
    let mut weights = MaybeUninit::<[f32; MAX_QUADS * WEIGHTS]>::uninit();
    let weights = weights.as_mut_ptr().cast::<f32>();
    let quads = states.len();
    let vectors = columns.vectors();
    // From a quad's first vector to the next one's.
    let quad_len = P * columns.padded();
    // SAFETY: the caller's promise; `weights` holds for each of at most MAX_QUADS quads TILE tokens of
    // P ≤ 4 heads, rounded up to a vector, and each is written before it is read.
    unsafe {
        // All quads use a row before the next one: rows of a head can be so far apart that they share
        // a few sets of the first-level cache, which does not hold them for long.
        let lines = (N * vectors * S::LANES * size_of::<T>()).div_ceil(LINE * quads);
        for t in (0..tile.len).step_by(N) {
            let rows = tile.k.as_ptr().add(t);
            for quad in 0..quads {
                let q = heads.q.add(quad * quad_len);
                let out = weights.add(quad * WEIGHTS + t * P);
                let ask = (&mut prefetch.k, lines);
                scores::<S, T, H, N, P>(q, rows, heads.k_offset, columns, out, ask);
            }
        }
        for (quad, state) in states.iter_mut().enumerate() {
            let weights = weights.add(quad * WEIGHTS);
            let count = tile.len * P;
            let padded = count.next_multiple_of(S::LANES);
            for i in count..padded {
                *weights.add(i) = f32::NEG_INFINITY;
            }
            if let Some(rescale) = softmax::<S, P>(weights, padded, state) {
                let acc = heads.acc.add(quad * quad_len);
                for j in 0..vectors {
                    for h in 0..H {
                        let at = acc.add((j * P + h) * S::LANES);
                        S::store(at, S::mul(S::load(at), S::splat(rescale[h])));
                    }
                }
            }
        }

        let mut done = 0;
        macro_rules! columns_of {
            ($w:literal) => {{
                for quad in 0..quads {
                    values::<S, T, H, $w, P>(
                        weights.add(quad * WEIGHTS),
                        tile.len,
                        tile.v.as_ptr(),
                        heads.v_offset + done * S::LANES,
                        columns.granule && done + $w == vectors,
                        heads.acc.add(quad * quad_len + done * P * S::LANES),
                        (&mut prefetch.v, quads),
                    );
                }
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
/// denominators, and returns the factors for what was summed before, unless they are 1.
///
/// # Safety
/// The CPU has `S`; `scores: [len / P, P]`, `len` a multiple of the lanes.
#[inline(always)]
unsafe fn softmax<S: Simd, const P: usize>(
    scores: *mut f32,
    len: usize,
    state: &mut MaxSum,
) -> Option<[f32; 4]> {
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
        let old = state.m.map(f32::to_bits);
        S::store_quad(state.m.as_mut_ptr(), max);
        let moved = old != state.m.map(f32::to_bits);
        let rescale = if moved {
            exp2::<S>(S::sub(before, base))
        } else {
            S::splat(1.0)
        };

        let mut sum = S::splat(0.0);
        for i in (0..len).step_by(S::LANES) {
            let p = exp2::<S>(S::sub(S::load(scores.add(i)), base));
            S::store(scores.add(i), p);
            sum = S::add(sum, p);
        }
        let sum = sum_of_heads::<S, P>(sum);
        let sum = S::fma(load_heads::<S, P>(&state.l), rescale, sum);

        S::store_quad(state.l.as_mut_ptr(), sum);
        let mut factors = [0.0; 4];
        S::store_quad(factors.as_mut_ptr(), rescale);
        moved.then_some(factors)
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
