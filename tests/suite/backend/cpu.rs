//! The CPU back end.

use paged_attention::contiguous::ContiguousInputs;
use paged_attention::{Element, Error, Plan, cpu};

use super::{Backend, Output, collect, with_element};
use crate::batch::Batch;
use crate::bound::{Order, State};

/// `paged_attention::cpu` on the instruction set that it detects.
pub struct Cpu;

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn order(&self) -> &dyn Order {
        self
    }

    fn decode(&self, batch: &Batch) -> Result<Output, Error> {
        with_element!(batch.case.dtype, T => decode::<T>(batch))
    }
}

fn decode<T: Element>(batch: &Batch) -> Result<Output, Error> {
    let typed = batch.typed::<T>();
    let mut workspace = workspace(&batch.plan);
    let output = collect(batch, |out, lse| {
        let len = batch.plan.workspace_len();
        cpu::decode(
            &batch.plan,
            &typed.inputs(),
            out,
            Some(lse),
            &mut workspace[..len],
        )
    })?;
    let canary = workspace[batch.plan.workspace_len()..].iter();
    assert!(
        canary.clone().all(|x| x.to_bits() == CANARY.to_bits()),
        "written past the workspace\n{}",
        batch.case
    );
    Ok(output)
}

const CANARY: f32 = 1.2345e-20;

/// Exactly the workspace, full of NaN, and a canary behind it.
fn workspace(plan: &Plan) -> Vec<f32> {
    let mut workspace = vec![f32::NAN; plan.workspace_len()];
    workspace.extend([CANARY; 16]);
    workspace
}

/// Contiguous attention over the batch's logical tokens, with the CPU back end's kernels.
pub fn contiguous(batch: &Batch) -> Result<Output, Error> {
    with_element!(batch.case.dtype, T => contiguous_as::<T>(batch))
}

fn contiguous_as<T: Element>(batch: &Batch) -> Result<Output, Error> {
    let cast = |values: &[f32]| -> Vec<T> { values.iter().map(|&x| T::from_f32(x)).collect() };
    let seqs = &batch.logical.seqs;
    let keys: Vec<Vec<T>> = seqs.iter().map(|seq| cast(&seq.keys)).collect();
    let values: Vec<Vec<T>> = seqs.iter().map(|seq| cast(&seq.values)).collect();
    let typed = batch.typed::<T>();
    let inputs = ContiguousInputs {
        q: typed.inputs().q,
        keys: &keys.iter().map(Vec::as_slice).collect::<Vec<_>>(),
        values: &values.iter().map(Vec::as_slice).collect::<Vec<_>>(),
        seq_lens: &batch.lens,
    };
    let mut workspace = workspace(&batch.plan);
    collect(batch, |out, lse| {
        paged_attention::contiguous::decode(&batch.plan, &inputs, out, Some(lse), &mut workspace)
    })
}

impl Order for Cpu {
    /// The scale's and q's rounding (LOG2_E as f32 is off by less than another), a chain over
    /// vectors of at least 8 lanes, whose products may be rounded, and a tree over 8 lanes. Sixteen
    /// lanes shorten the chain by more than they deepen the tree.
    fn dot_roundings(&self, plan: &Plan) -> f64 {
        3.0 + (plan.config().head_dim.div_ceil(8) + 1) as f64 + 3.0
    }

    /// Tiles of 12 or 24 tokens are summed by lanes before they join the chain with a multiplication
    /// and an addition: over a chain that is less than one addition per token, plus one tile's worth.
    /// That is most for four heads in 8 lanes: 12 additions within a lane, one across, and these two.
    fn denominator_roundings(&self) -> f64 {
        15.0
    }

    /// Splits; in each, chains of `FOLD_TOKENS` in logical order, merged one behind the other. Then
    /// the splits, relative to the largest maximum, in runs of 1024.
    fn combine(&self, plan: &Plan, len: usize, token: &dyn Fn(usize) -> State) -> State {
        let split = plan.split_tokens() as usize;
        let chain = |from: usize, to: usize| {
            let mut state = State::empty();
            (from..to).for_each(|t| state.merge(token(t)));
            state
        };
        let splits = (0..len).step_by(split).map(|begin| {
            let end = len.min(begin + split);
            let mut state = State::empty();
            for from in (begin..end).step_by(cpu::FOLD_TOKENS) {
                state.merge(chain(from, end.min(from + cpu::FOLD_TOKENS)));
            }
            state
        });
        let splits: Vec<State> = splits.collect();
        if splits.len() == 1 {
            return splits.into_iter().next().unwrap_or_else(State::empty);
        }
        let runs = splits
            .chunks(1024)
            .map(|run| State::merge_all(run.to_vec()));
        State::merge_all(runs)
    }
}
