//! One step: a tile of tokens, for all query heads of an item.

#![allow(
    clippy::needless_range_loop,
    reason = "register tiles are indexed by head and column"
)]

use std::ops::Range;

use super::TILE;
use super::exp2::exp2;
use super::micro::{Columns, scores, values};
use super::prefetch::{LINE, Lines, Stretch};
use super::simd::{Simd, max_of_heads, sum_of_heads};
use crate::Element;

/// Addresses of a tile's rows of kv head 0. Rows past `len` repeat a live one: they may be read,
/// their scores are dropped.
pub(crate) struct Tile<T> {
    /// Tokens, at most [`TILE`]; 0 where none follows.
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
/// Tokens that a quad, or what is left of one, scores together.
pub(crate) const FEW: usize = 3;
/// Tokens that a single head takes together.
pub(crate) const SINGLE: usize = 4;
/// Tokens that a group takes together where its rows lie a token of all heads apart: so far that a
/// few sets of the first-level cache hold them all, and not for long if there are more.
const FAR_ROWS: usize = 12;
const _: () = assert!(FAR_ROWS.is_multiple_of(FEW) && FAR_ROWS.is_multiple_of(SINGLE));

/// Where the heads of an item stand.
pub(crate) struct Heads {
    /// Queries times the scale in log2 units; laid out as [`super::scratch::Layout`] says.
    pub q: *const f32,
    /// Unnormalised sums, laid out alike.
    pub acc: *mut f32,
    /// Scores, then weights, of a tile: `[kv heads, quads, TILE, 4]`, of single heads
    /// `[…, TILE, 1]`.
    pub weights: *mut f32,
    /// `[kv heads, ceil(group / 4)]`.
    pub states: *mut MaxSum,
    /// Query heads per kv head, at least 1.
    pub group: usize,
    /// The rows of keys.
    pub k: Stretch,
    /// The rows of values; as many heads.
    pub v: Stretch,
}

/// Query heads that the inner loops take together: quads, or what is left of a group.
struct Part {
    q: *const f32,
    acc: *mut f32,
    weights: *mut f32,
    states: *mut MaxSum,
    quads: usize,
    /// Whether rows follow each other in memory and are best read so.
    in_turn: bool,
}

/// Attends all query heads of `heads` to the tokens of `tile`. Asks for `early` while it scores and
/// for `late` while it sums: for groups the tile's values and the next one's keys.
///
/// # Safety
/// The CPU has `S`; the pointers of `tile` and `heads` are valid for the shapes they name.
#[inline(always)]
pub(crate) unsafe fn step<S, T>(
    tile: &Tile<T>,
    heads: &Heads,
    columns: &Columns,
    early: &mut Lines<'_, T>,
    late: &mut Lines<'_, T>,
) where
    S: Simd,
    T: Element,
{
    // Single heads wait for memory: rows are read in the order of their addresses, for hardware to
    // see streams. Groups wait for arithmetic: what they need has been asked for, and a head's queries
    // and sums stay in the first-level cache.
    let strip = match (heads.group, heads.k.run) {
        (1, run) => run.next_multiple_of(SINGLE).min(TILE),
        (_, 1) => FAR_ROWS,
        _ => TILE,
    };
    // SAFETY: the caller's promise; parts lie within their group.
    unsafe {
        macro_rules! each_part {
            ($head:ident, $part:ident: $f:ident($($arg:expr),*)) => {{
                let quads = heads.group / QUAD;
                for first in (0..quads).step_by(MAX_QUADS) {
                    let $part = heads.part($head, columns, first, MAX_QUADS.min(quads - first));
                    $f::<S, T, 4, FEW, 4>($($arg),*);
                }
                if heads.group > quads * QUAD {
                    let $part = heads.part($head, columns, quads, 1);
                    match heads.group % QUAD {
                        1 => $f::<S, T, 1, SINGLE, 1>($($arg),*),
                        2 => $f::<S, T, 2, FEW, 4>($($arg),*),
                        _ => $f::<S, T, 3, FEW, 4>($($arg),*),
                    }
                }
            }};
        }
        for first in (0..tile.len).step_by(strip) {
            let tokens = first..(first + strip).min(tile.len);
            for head in 0..heads.k.heads {
                let k = heads.k.of(head);
                each_part!(head, part: score(tile, tokens.clone(), k, &part, columns, early));
            }
        }
        for head in 0..heads.k.heads {
            each_part!(head, part: weigh(tile.len, &part, columns));
        }
        for first in (0..tile.len).step_by(strip) {
            let tokens = first..(first + strip).min(tile.len);
            for head in 0..heads.k.heads {
                let v = heads.v.of(head);
                each_part!(head, part: sum(tile, tokens.clone(), v, &part, columns, late));
            }
        }
    }
    late.ask(usize::MAX);
}

impl Heads {
    /// `quads` quads of kv head `head` from `first` on.
    ///
    /// # Safety
    /// There are that many, the last of them whole or not.
    #[inline(always)]
    unsafe fn part(&self, head: usize, columns: &Columns, first: usize, quads: usize) -> Part {
        let row = head * padded_group(self.group) + first * QUAD;
        let state = head * self.group.div_ceil(QUAD) + first;
        // SAFETY: the caller's promise.
        unsafe {
            Part {
                q: self.q.add(row * columns.padded()),
                acc: self.acc.add(row * columns.padded()),
                weights: self.weights.add(row * TILE),
                states: self.states.add(state),
                quads,
                in_turn: self.k.run > 1,
            }
        }
    }
}

/// Rows that a group takes in scratch memory: whole quads, but one row where a single head is left.
pub(crate) fn padded_group(group: usize) -> usize {
    if group % QUAD == 1 {
        group
    } else {
        group.next_multiple_of(QUAD)
    }
}

/// Scores of `part` for `tokens`, `N` tokens at a time.
///
/// # Safety
/// As for [`step`]; `k` leads from a tile's row to the kv head's.
#[inline(always)]
unsafe fn score<S, T, const H: usize, const N: usize, const P: usize>(
    tile: &Tile<T>,
    tokens: Range<usize>,
    k: usize,
    part: &Part,
    columns: &Columns,
    ahead: &mut Lines<'_, T>,
) where
    S: Simd,
    T: Element,
{
    const { assert!(TILE.is_multiple_of(N)) };
    let lines = (N * columns.padded() * size_of::<T>()).div_ceil(LINE * part.quads);
    // All quads use a row before the next one: rows of a head can be so far apart that they share a
    // few sets of the first-level cache, which does not hold them for long.
    for t in tokens.step_by(N) {
        for quad in 0..part.quads {
            // SAFETY: the caller's promise; rows past the tile's length repeat a live one.
            unsafe {
                ahead.ask(lines);
                scores::<S, T, H, N, P>(
                    part.q.add(quad * P * columns.padded()),
                    tile.k.as_ptr().add(t),
                    k,
                    columns,
                    part.weights.add(quad * P * TILE + t * P),
                    (part.in_turn, ahead.beside),
                );
            }
        }
    }
}

/// From the scores of `len` tokens to weights; rescales the sums where a maximum has moved.
///
/// # Safety
/// As for [`step`]; the scores are there.
#[allow(
    clippy::extra_unused_type_parameters,
    reason = "called by the macro that calls its neighbours"
)]
#[inline(always)]
unsafe fn weigh<S, T, const H: usize, const N: usize, const P: usize>(
    len: usize,
    part: &Part,
    columns: &Columns,
) where
    S: Simd,
{
    for quad in 0..part.quads {
        // SAFETY: the caller's promise; TILE is a multiple of the lanes, so that padding stays within
        // the quad's weights.
        unsafe {
            let weights = part.weights.add(quad * P * TILE);
            let count = len * P;
            let padded = count.next_multiple_of(S::LANES);
            for i in count..padded {
                *weights.add(i) = f32::NEG_INFINITY;
            }
            if let Some(rescale) = softmax::<S, P>(weights, padded, &mut *part.states.add(quad)) {
                let acc = part.acc.add(quad * P * columns.padded());
                for j in 0..columns.vectors() {
                    for h in 0..H {
                        let at = acc.add((j * P + h) * S::LANES);
                        S::store(at, S::mul(S::load(at), S::splat(rescale[h])));
                    }
                }
            }
        }
    }
}

/// Adds the weighted values of `tokens` to the sums of `part`.
///
/// # Safety
/// As for [`step`]; `v` leads from a tile's row to the kv head's; the weights are there.
#[inline(always)]
unsafe fn sum<S, T, const H: usize, const N: usize, const P: usize>(
    tile: &Tile<T>,
    tokens: Range<usize>,
    v: usize,
    part: &Part,
    columns: &Columns,
    ahead: &mut Lines<'_, T>,
) where
    S: Simd,
    T: Element,
{
    let vectors = columns.vectors();
    let mut first = tokens.start;
    while first < tokens.end {
        // A single head reads whole rows in order: a few tokens, all their columns.
        let len = if P == 1 {
            SINGLE.min(tokens.end - first)
        } else {
            tokens.end - first
        };
        let mut done = 0;
        macro_rules! columns_of {
            ($w:literal) => {{
                for quad in 0..part.quads {
                    // SAFETY: the caller's promise.
                    unsafe {
                        values::<S, T, H, $w, P>(
                            part.weights.add(quad * P * TILE + first * P),
                            len,
                            tile.v.as_ptr().add(first),
                            v + done * S::LANES,
                            columns.granule && done + $w == vectors,
                            part.acc.add((quad * vectors + done) * P * S::LANES),
                            (ahead, part.quads),
                        );
                    }
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
        first += len;
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
