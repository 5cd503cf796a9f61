//! The CPU back end: attention at the speed at which memory delivers K and V.
//!
//! A work item is a (sequence, range of kv heads, split); it reads each row of K and V once for all
//! query heads of the group. Inside, tiles of tokens pass through an online softmax: the keys of all
//! heads, the weights of all heads, the values of all heads, in an order that follows the layout. The
//! bits of a result depend on the instruction set, and otherwise on what the plan's split policy says;
//! never on the number of threads, on physical blocks, strides, or other sequences.

mod cache_ops;
mod convert;
mod exp2;
mod isa;
mod item;
mod merge;
mod micro;
mod prefetch;
mod schedule;
mod scratch;
mod simd;
mod source;
#[cfg(test)]
mod tests;
mod threads;
mod tile;

pub use cache_ops::{copy_blocks, gather_cache, reshape_and_cache};
pub use isa::InstructionSet;
pub(crate) use schedule::run;
pub(crate) use source::Contiguous;

use crate::{DecodeInputs, Element, Error, Op, Plan, RowsViewMut};

/// Most tokens per tile. Where that crowds the second-level cache it is half of them, or
/// [`SHORT_TILE`].
const TILE: usize = 48;
/// Fewest tokens per tile.
const SHORT_TILE: usize = 12;
/// Tokens that are added in one chain before the sums join a total: whole tiles, at most 2048.
#[doc(hidden)]
pub const FOLD_TOKENS: usize = 2016;

// Tiles are whole register tiles and chains whole tiles; the weights of one are whole cache lines.
const _: () = assert!(
    SHORT_TILE.is_multiple_of(tile::FEW)
        && SHORT_TILE.is_multiple_of(tile::SINGLE)
        && (TILE / 2).is_multiple_of(SHORT_TILE)
        && TILE.is_multiple_of(simd::MAX_LANES)
        && FOLD_TOKENS.is_multiple_of(TILE)
);

/// Decode attention on the CPU. Writes every row of `out` and, if asked, `lse`
/// `[num_seqs, num_q_heads]`; `workspace` has at least [`Plan::workspace_len`] elements.
///
/// With the feature `rayon` (default) it runs on the current rayon pool, small batches on the calling
/// thread alone.
///
/// # Errors
/// What [`Plan::validate`] refuses. Nothing has been written then.
pub fn decode<T: Element>(
    plan: &Plan,
    inputs: &DecodeInputs<'_, T>,
    out: RowsViewMut<'_, T>,
    lse: Option<&mut [f32]>,
    workspace: &mut [f32],
) -> Result<(), Error> {
    decode_on(InstructionSet::detect(), plan, inputs, out, lse, workspace)
}

/// [`decode`] on a chosen instruction set, for comparisons and for bits that do not change from
/// machine to machine. A set that this CPU lacks falls back to [`InstructionSet::Portable`].
///
/// # Errors
/// As for [`decode`].
pub fn decode_on<T: Element>(
    set: InstructionSet,
    plan: &Plan,
    inputs: &DecodeInputs<'_, T>,
    out: RowsViewMut<'_, T>,
    lse: Option<&mut [f32]>,
    workspace: &mut [f32],
) -> Result<(), Error> {
    plan.validate(
        Op::Decode,
        inputs,
        &out,
        lse.as_deref(),
        size_of_val(workspace),
    )?;
    let source = source::Paged {
        k: inputs.k_cache,
        v: inputs.v_cache,
        table: inputs.block_table,
        block_size: plan.config().block_size,
    };
    // SAFETY: `validate` has accepted the inputs, the output, lse and the workspace.
    unsafe {
        run(
            set,
            plan,
            &source,
            &inputs.q,
            inputs.seq_lens,
            out,
            lse,
            workspace,
        )
    }
    Ok(())
}
