//! The shipped PTX, executed by the emulator with every detector on.

use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

use paged_attention::artefacts::PtxSet;
use paged_attention::emulator::{Emulator, Reports};
use paged_attention::kernels::geometry::{LaneMap, UNIT_TOKENS, WARPS, head_warps};
use paged_attention::kernels::variants::{DecodeKind, DecodeVariant};
use paged_attention::{CacheLaunch, Element, Error, Plan};
use ptx_emulator::{Memory, Options, Report};

use super::{Backend, Output, collect, with_element};
use crate::batch::Batch;
use crate::bound::{Order, State, TENSOR_ADD, U};

/// The sets of PTX that are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// The embedded one, or the folder that `PAGED_ATTENTION_PTX_DIR` names.
    Default,
    /// The one that rust-cuda compiled.
    #[cfg(feature = "rust-cuda-ptx")]
    RustCuda,
}

impl Set {
    /// As `ptx list` names it.
    fn name(self) -> &'static str {
        match self {
            Set::Default => "default",
            #[cfg(feature = "rust-cuda-ptx")]
            Set::RustCuda => "rust-cuda",
        }
    }

    /// This set under the emulator.
    pub fn ptx(self) -> &'static Ptx {
        fn of(which: Set) -> Ptx {
            Ptx {
                which,
                ..Ptx::new(which.load())
            }
        }
        static DEFAULT: LazyLock<Ptx> = LazyLock::new(|| of(Set::Default));
        #[cfg(feature = "rust-cuda-ptx")]
        static RUST_CUDA: LazyLock<Ptx> = LazyLock::new(|| of(Set::RustCuda));
        match self {
            Set::Default => &DEFAULT,
            #[cfg(feature = "rust-cuda-ptx")]
            Set::RustCuda => &RUST_CUDA,
        }
    }

    /// The files. Says so where they were built from another kernel source.
    pub fn load(self) -> PtxSet {
        let set = match self {
            Set::Default => match std::env::var_os("PAGED_ATTENTION_PTX_DIR") {
                Some(dir) => {
                    PtxSet::load(Path::new(&dir)).unwrap_or_else(|error| panic!("{error}"))
                }
                None => PtxSet::embedded().clone(),
            },
            #[cfg(feature = "rust-cuda-ptx")]
            Set::RustCuda => PtxSet::embedded_rust_cuda().clone(),
        };
        if let Some(note) = set.source_note() {
            // The test harness hides what a passing test prints, but not what goes there directly.
            let _ = writeln!(std::io::stderr(), "note: {} PTX set: {note}", self.name());
        }
        set
    }

    /// Random cases to run of a property that has `usual` by default: one on a second set, whose
    /// kernels' source the default set has shown to be right.
    pub fn cases(self, usual: u32) -> u32 {
        match self {
            Set::Default => usual,
            #[cfg(feature = "rust-cuda-ptx")]
            Set::RustCuda => 1,
        }
    }
}

/// A set of PTX files under the emulator.
pub struct Ptx {
    which: Set,
    emulator: Emulator,
    options: Options,
}

/// The default set.
pub fn ptx() -> &'static Ptx {
    Set::Default.ptx()
}

impl Ptx {
    /// Another set, tested as the default one.
    pub fn new(set: PtxSet) -> Self {
        Self {
            which: Set::Default,
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
            which: self.which,
            emulator: Emulator::new(self.set().clone()),
            options,
        }
    }

    /// Runs a batch and says what the launches did.
    pub fn reports(&self, batch: &Batch) -> Result<(Output, Reports), Error> {
        with_element!(batch.case.dtype, T => self.run::<T>(batch))
    }

    /// Runs a launch of a cache kernel.
    pub fn launch_cache(&self, memory: &Memory, launch: &CacheLaunch) -> Result<Report, Error> {
        self.emulator.launch_cache(memory, launch, &self.options)
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
        match self.which {
            Set::Default => "ptx_default",
            #[cfg(feature = "rust-cuda-ptx")]
            Set::RustCuda => "ptx_rust_cuda",
        }
    }

    fn cases(&self, usual: u32) -> u32 {
        self.which.cases(usual)
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
    /// The scale's rounding (LOG2_E as f32 is off by less than another) and the product's with it.
    /// On CUDA cores q's instead, one fused multiply-add per column of a lane, and the lanes'
    /// butterfly; on tensor cores one addition per column.
    fn dot_roundings(&self, plan: &Plan) -> f64 {
        let DecodeVariant {
            kind,
            dtype,
            head_dim,
            ..
        } = *plan.decode_variant();
        let sums = match kind {
            DecodeKind::CudaCore => {
                let map = LaneMap::new(head_dim, dtype.bytes());
                f64::from(map.columns() + map.lanes_per_row.ilog2())
            }
            DecodeKind::TensorCore => f64::from(head_dim) * TENSOR_ADD / U,
        };
        3.0 + sums
    }

    /// On tensor cores four lanes add up their denominators at the end.
    fn denominator_roundings(&self) -> f64 {
        2.0
    }

    /// The states of a split are merged relative to the largest maximum. More than one split: lane
    /// rows of `merge` take splits in turn, each in a chain, and are merged in the same way.
    fn combine(&self, plan: &Plan, len: usize, token: &dyn Fn(usize) -> State) -> State {
        let split_tokens = plan.split_tokens() as usize;
        let splits = (0..len).step_by(split_tokens).map(|begin| {
            let tokens = begin..len.min(begin + split_tokens);
            match plan.decode_variant().kind {
                DecodeKind::CudaCore => cuda_cores(plan, tokens, token),
                DecodeKind::TensorCore => tensor_cores(plan, tokens, token),
            }
        });
        let splits: Vec<State> = splits.collect();
        if splits.len() == 1 {
            return splits.into_iter().next().unwrap_or_else(State::empty);
        }
        let rows = WARPS * LaneMap::new(plan.config().head_dim as u32, 4).rows_per_step;
        let mut states = vec![State::empty(); rows as usize];
        for (i, split) in splits.into_iter().enumerate() {
            states[i % rows as usize].merge(split);
        }
        State::merge_all(states)
    }
}

/// Units of 16 tokens go to the warps in turn; a lane row of a warp adds its tokens in one chain.
fn cuda_cores(plan: &Plan, tokens: Range<usize>, token: &dyn Fn(usize) -> State) -> State {
    let DecodeVariant {
        dtype, head_dim, ..
    } = *plan.decode_variant();
    let rows = LaneMap::new(head_dim, dtype.bytes()).rows_per_step as usize;
    let (unit, warps) = (UNIT_TOKENS as usize, WARPS as usize);
    let mut states = vec![State::empty(); warps * rows];
    for (i, t) in tokens.enumerate() {
        states[i / unit % warps * rows + i % unit % rows].merge(token(t));
    }
    State::merge_all(states)
}

/// Units of 16 tokens go to the warps that share no heads in turn, a unit per instruction.
fn tensor_cores(plan: &Plan, tokens: Range<usize>, token: &dyn Fn(usize) -> State) -> State {
    let parts = WARPS / head_warps(plan.config().group_size() as u32);
    let unit = UNIT_TOKENS as usize;
    let mut states = vec![State::empty(); parts as usize];
    for (i, begin) in tokens.clone().step_by(unit).enumerate() {
        let unit = (begin..tokens.end.min(begin + unit)).map(token).collect();
        states[i % parts as usize].merge_tile(unit, plan.config().dtype);
    }
    State::merge_all(states)
}
