//! The shipped PTX, executed by the emulator with every detector on.

use std::path::Path;
use std::sync::LazyLock;

use paged_attention::artefacts::PtxSet;
use paged_attention::emulator::{Emulator, Reports};
use paged_attention::kernels::geometry::{LaneMap, UNIT_TOKENS, WARPS};
use paged_attention::{AttentionConfig, Element, Error, Plan};
use ptx_emulator::Options;

use super::{Backend, Output, collect, with_element};
use crate::batch::Batch;
use crate::bound::{Order, State};

/// A set of PTX files under the emulator.
pub struct Ptx {
    emulator: Emulator,
    options: Options,
}

/// The set under test: the embedded one, or the folder that `PAGED_ATTENTION_PTX_DIR` names.
pub fn ptx() -> &'static Ptx {
    static PTX: LazyLock<Ptx> = LazyLock::new(|| {
        let set = match std::env::var_os("PAGED_ATTENTION_PTX_DIR") {
            Some(dir) => PtxSet::load(Path::new(&dir)).unwrap_or_else(|error| panic!("{error}")),
            None => PtxSet::embedded().clone(),
        };
        Ptx::new(set)
    });
    &PTX
}

impl Ptx {
    pub fn new(set: PtxSet) -> Self {
        Self {
            emulator: Emulator::new(set),
            options: Options::default(),
        }
    }

    pub fn set(&self) -> &PtxSet {
        self.emulator.set()
    }

    /// The same set with other options.
    pub fn with_options(&self, options: Options) -> Self {
        Self {
            emulator: Emulator::new(self.set().clone()),
            options,
        }
    }

    /// Runs a batch and says what the launches did.
    pub fn reports(&self, batch: &Batch) -> Result<(Output, Reports), Error> {
        with_element!(batch.case.dtype, T => self.run::<T>(batch))
    }

    fn run<T: Element>(&self, batch: &Batch) -> Result<(Output, Reports), Error> {
        let typed = batch.typed::<T>();
        let mut reports = Reports::default();
        let output = collect(batch, |out, lse| {
            let inputs = typed.inputs();
            let plan = &batch.plan;
            reports = self
                .emulator
                .decode(plan, &inputs, out, Some(lse), &self.options)?;
            Ok(())
        })?;
        Ok((output, reports))
    }
}

impl Backend for Ptx {
    fn name(&self) -> &'static str {
        "ptx"
    }

    fn order(&self) -> &dyn Order {
        &KernelOrder
    }

    fn decode(&self, batch: &Batch) -> Result<Output, Error> {
        Ok(self.reports(batch)?.0)
    }
}

/// The kernels' order of additions, whoever runs them.
pub struct KernelOrder;

impl Order for KernelOrder {
    /// The scale's and q's rounding (LOG2_E as f32 is off by less than another), one fused
    /// multiply-add per column of a lane, and the lanes' butterfly.
    fn dot_roundings(&self, config: &AttentionConfig) -> f64 {
        let map = LaneMap::new(config.head_dim as u32, config.dtype.bytes());
        3.0 + f64::from(map.columns() + map.lanes_per_row.ilog2())
    }

    fn denominator_roundings(&self) -> f64 {
        0.0
    }

    /// A lane row adds its tokens of a split in one chain. The rows are merged relative to the
    /// largest maximum. More than one split: rows of `merge` take splits in turn, each in a chain, and
    /// are merged in the same way.
    fn combine(&self, plan: &Plan, len: usize, token: &dyn Fn(usize) -> State) -> State {
        let config = plan.config();
        let bytes = config.dtype.bytes();
        let rows_per_step = |bytes| {
            let map = LaneMap::new(config.head_dim as u32, bytes);
            map.rows_per_step as usize
        };
        let (unit, warps) = (UNIT_TOKENS as usize, WARPS as usize);
        let in_turn = |rows: usize,
                       row_of: &dyn Fn(usize) -> usize,
                       items: &mut dyn Iterator<Item = (usize, State)>| {
            let mut states = vec![State::empty(); rows];
            for (i, state) in items {
                states[row_of(i)].merge(state);
            }
            State::merge_all(states)
        };
        let split_tokens = plan.split_tokens() as usize;
        let per_step = rows_per_step(bytes);
        let row_of = |t: usize| t / unit % warps * per_step + t % unit % per_step;
        let mut splits = (0..len).step_by(split_tokens).map(|begin| {
            let end = len.min(begin + split_tokens);
            let mut tokens = (begin..end).map(|t| (t - begin, token(t)));
            in_turn(warps * per_step, &row_of, &mut tokens)
        });
        if len <= split_tokens {
            return splits.next().unwrap_or_else(State::empty);
        }
        let rows = warps * rows_per_step(4);
        in_turn(rows, &|i| i % rows, &mut splits.enumerate())
    }
}
