//! Counters of the shipped kernel and of its contiguous twin, from the emulator.

use std::sync::LazyLock;

use half::f16;
use paged_attention::emulator::{self, Emulator, Uploaded};
use paged_attention::kernels::geometry::{STAGES, TileMap, UNIT_TOKENS, WARPS};
use paged_attention::kernels::variants::DecodeKind;
use paged_attention::{DeviceLimits, Plan};
use ptx_emulator::{Counters, Detectors, Options};

use super::machine::PerByte;
use super::pages::Shape;
use super::twin;
use crate::batch::Batch;
use crate::error::Error;

/// A decode launch.
pub struct Counted {
    pub plan: Plan,
    /// Of the batch.
    pub kv_bytes: u64,
    pub counters: Counters,
}

impl Counted {
    /// Warp instructions, register moves left out, per byte of K and V.
    pub fn instructions_per_byte(&self) -> f64 {
        self.counters.total_without_moves() as f64 / self.kv_bytes as f64
    }

    /// Sectors of K and V requested, against each once per CTA.
    pub fn sectors_to_least(&self) -> f64 {
        let caches = ["k_cache", "v_cache"].map(|name| self.counters.allocations[name]);
        let loaded: u64 = caches.iter().map(|counts| counts.loaded).sum();
        let least: u64 = caches.iter().map(|counts| counts.loaded_per_block).sum();
        loaded as f64 / least as f64
    }

    /// Share of the passes over shared memory's banks that conflicts cause.
    pub fn conflicts(&self) -> f64 {
        let shared = self.counters.shared;
        shared.conflicts() as f64 / shared.wavefronts.max(1) as f64
    }

    /// Sectors of all allocations, read or written.
    pub fn sectors(&self) -> u64 {
        let all = self.counters.global();
        all.loaded + all.stored
    }

    /// For bounds, with at least `instructions` per byte. Memory sees a sector once per CTA that
    /// loads it: the first-level cache has it for the other requests.
    pub fn per_byte(&self, instructions: f64) -> PerByte {
        let bytes = self.kv_bytes as f64;
        let all = self.counters.global();
        PerByte {
            traffic: (all.loaded_per_block + all.stored) as f64 * 32.0 / bytes,
            instructions: instructions.max(self.instructions_per_byte()),
            wavefronts: self.counters.shared.wavefronts as f64 / bytes,
        }
    }
}

/// Counts the shipped kernel on a shape.
pub fn paged(shape: &Shape, batch: &Batch<f16>, detectors: Detectors) -> Result<Counted, Error> {
    let plan = shape.plan(&DeviceLimits::h100())?;
    let uploaded = emulator::upload(&plan, &batch.inputs(), false)?;
    count(Emulator::embedded(), plan, shape, &uploaded, detectors)
}

/// Counts the twin on the tokens of a batch that lies side by side.
pub fn contiguous(
    shape: &Shape,
    side_by_side: &Batch<f16>,
    detectors: Detectors,
) -> Result<Counted, Error> {
    static TWIN: LazyLock<Emulator> = LazyLock::new(|| Emulator::new(twin::set()));
    let shape = Shape {
        block_size: shape.ctx,
        ..*shape
    };
    let plan = shape.plan(&DeviceLimits::h100())?;
    let mut uploaded = emulator::upload(&plan, &side_by_side.inputs(), false)?;
    // Where nothing lies: a look at the table is a fault.
    uploaded.tensors.block_table.address = 16;
    count(&TWIN, plan, &shape, &uploaded, detectors)
}

fn count(
    emulator: &Emulator,
    plan: Plan,
    shape: &Shape,
    uploaded: &Uploaded,
    detectors: Detectors,
) -> Result<Counted, Error> {
    let options = Options {
        detectors,
        ..Options::default()
    };
    let reports = emulator.launch(&plan, uploaded, &options)?;
    Ok(Counted {
        plan,
        kv_bytes: shape.kv_bytes(),
        counters: reports.decode.unwrap_or_default().counters,
    })
}

/// Bytes that a CTA has on their way while it computes: all stages of its ring but the one in use.
pub fn bytes_in_flight(plan: &Plan) -> u32 {
    let variant = plan.decode_variant();
    let (d, bytes) = (variant.head_dim, variant.dtype.bytes());
    let tokens = match variant.kind {
        DecodeKind::TensorCore => {
            let map = TileMap::new(d);
            map.rows_per_step * map.steps
        }
        DecodeKind::CudaCore => {
            paged_attention::kernels::geometry::LaneMap::new(d, bytes).stage_tokens()
        }
    };
    debug_assert!(tokens <= UNIT_TOKENS);
    (STAGES - 1) * WARPS * tokens * 2 * d * bytes
}
