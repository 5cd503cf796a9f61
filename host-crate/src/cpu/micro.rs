//! The two inner loops: scores q·k and weighted sums of v, register-tiled.
//!
//! A (head, token) score is one chain of vector additions over the columns and one fixed tree over
//! the lanes; an output element is one chain over the tokens in logical order. Neither depends on
//! the shape of the register tile, so splitting the work differently changes no bit.

#![allow(
    clippy::needless_range_loop,
    reason = "register tiles are indexed by head and column"
)]

use super::prefetch::{LINE, Lines, prefetch};
use super::simd::{GRANULE, Simd, load, load_granule};
use crate::Element;

/// How a row of `head_dim` elements falls into vectors.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    /// Whole vectors.
    pub full: usize,
    /// Whether [`GRANULE`] more elements follow them.
    pub granule: bool,
    /// Lanes of a vector.
    pub lanes: usize,
}

impl Columns {
    /// `head_dim` is a multiple of [`GRANULE`]; vectors hold one or two granules.
    pub(crate) fn new(head_dim: usize, lanes: usize) -> Self {
        let full = head_dim / lanes;
        let granule = !head_dim.is_multiple_of(lanes);
        debug_assert!(head_dim.is_multiple_of(lanes) || head_dim % lanes == GRANULE);
        Self {
            full,
            granule,
            lanes,
        }
    }

    /// Vectors per row, the short one included.
    pub(crate) fn vectors(&self) -> usize {
        self.full + usize::from(self.granule)
    }

    /// f32 per row in scratch memory: whole vectors, zero-padded.
    pub(crate) fn padded(&self) -> usize {
        self.vectors() * self.lanes
    }
}

/// Scores of `H` heads with `N` tokens: `out[n * P + h] = q[h] · k[n]`, 0 for the heads H..P. A single
/// head reads its rows one after the other if `in_turn`, else side by side, and asks for the lines
/// `beside` elements after those that it reads in turn, if not 0.
///
/// # Safety
/// The CPU has `S`. `q: [columns.vectors(), P, LANES]`; `rows[n] + offset` for n < N points to a row
/// of keys; `out: [N, P]`.
#[inline(always)]
pub(crate) unsafe fn scores<S, T, const H: usize, const N: usize, const P: usize>(
    q: *const f32,
    rows: *const *const T,
    offset: usize,
    columns: &Columns,
    out: *mut f32,
    (in_turn, beside): (bool, usize),
) where
    S: Simd,
    T: Element,
{
    const { assert!((P == 1 && H == 1 && N.is_multiple_of(4)) || (P == 4 && H <= 4)) };
    // SAFETY: the caller's promise; columns stay within a row.
    unsafe {
        let mut base = [std::ptr::null::<T>(); N];
        for n in 0..N {
            base[n] = (*rows.add(n)).add(offset);
        }
        let zero = S::splat(0.0);
        let mut sums = [[zero; H]; N];
        if P == 1 && in_turn {
            for n in 0..N {
                for j in 0..columns.full {
                    let at = j * S::LANES;
                    ask_beside(base[n], at, beside);
                    sums[n][0] = S::fma(
                        load::<S, T>(base[n].add(at)),
                        S::load(q.add(at)),
                        sums[n][0],
                    );
                }
            }
        } else {
            for j in 0..columns.full {
                let at = j * S::LANES;
                let mut k = [zero; N];
                for n in 0..N {
                    k[n] = load::<S, T>(base[n].add(at));
                }
                for h in 0..H {
                    let q = S::load(q.add((j * P + h) * S::LANES));
                    for n in 0..N {
                        sums[n][h] = S::fma(k[n], q, sums[n][h]);
                    }
                }
            }
        }
        if S::LANES > GRANULE && columns.granule {
            let j = columns.full;
            let at = j * S::LANES;
            for h in 0..H {
                let q = S::load(q.add((j * P + h) * S::LANES));
                for n in 0..N {
                    sums[n][h] = S::fma(load_granule::<S, T>(base[n].add(at)), q, sums[n][h]);
                }
            }
        }
        if P == 1 {
            for n in (0..N).step_by(4) {
                let four = [sums[n][0], sums[n + 1][0], sums[n + 2][0], sums[n + 3][0]];
                S::sum4(out.add(n), four);
            }
        } else {
            for n in 0..N {
                let mut four = [zero; 4];
                four[..H].copy_from_slice(&sums[n]);
                S::sum4(out.add(n * P), four);
            }
        }
    }
}

/// Tokens that are summed between two requests for lines: few enough for requests to come one by one.
const ASK_EVERY: usize = 12;

/// Adds the weighted values of `n` tokens to `W` vectors of columns of `H` heads:
/// `acc[h] += Σ weights[t * P + h] · v[t]`. Asks on the way for as many lines as it passes over, if
/// `sharers` calls share them.
///
/// # Safety
/// The CPU has `S`. `weights: [n, P]`; `rows[t] + offset` for t < n points to `W` vectors of values,
/// the last of them a granule if `granule` says so; `acc: [W, P, LANES]`.
#[inline(always)]
pub(crate) unsafe fn values<S, T, const H: usize, const W: usize, const P: usize>(
    weights: *const f32,
    n: usize,
    rows: *const *const T,
    offset: usize,
    granule: bool,
    acc: *mut f32,
    (ahead, sharers): (&mut Lines<'_, T>, usize),
) where
    S: Simd,
    T: Element,
{
    // SAFETY: the caller's promise.
    unsafe {
        let lines = (ASK_EVERY.min(n) * W * S::LANES * size_of::<T>()).div_ceil(LINE * sharers);
        ahead.ask(lines);
        let mut sums = [[S::splat(0.0); W]; H];
        for h in 0..H {
            for w in 0..W {
                sums[h][w] = S::load(acc.add((w * P + h) * S::LANES));
            }
        }
        let mut t = 0;
        while t < n {
            if t > 0 {
                ahead.ask_or_owe(lines);
            }
            let stop = (t + ASK_EVERY).min(n);
            while t < stop {
                let row = (*rows.add(t)).add(offset);
                let mut v = [S::splat(0.0); W];
                for w in 0..W {
                    if P == 1 {
                        ask_beside(row, w * S::LANES, ahead.beside);
                    }
                    v[w] = if S::LANES > GRANULE && w == W - 1 && granule {
                        load_granule::<S, T>(row.add(w * S::LANES))
                    } else {
                        load::<S, T>(row.add(w * S::LANES))
                    };
                }
                sums = S::add_weighted(weights.add(t * P), v, sums);
                t += 1;
            }
        }
        for h in 0..H {
            for w in 0..W {
                S::store(acc.add((w * P + h) * S::LANES), sums[h][w]);
            }
        }
    }
}

/// Asks for the line `beside` elements after column `at` of `row`, once per line.
#[inline(always)]
fn ask_beside<T>(row: *const T, at: usize, beside: usize) {
    if beside > 0 && (at * size_of::<T>()).is_multiple_of(LINE) {
        prefetch(row.wrapping_add(at + beside).cast());
    }
}
