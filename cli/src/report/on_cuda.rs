//! Times of paged attention and of its contiguous twin on a CUDA device.
//!
//! Both results are compared with the f64 reference before anything is timed.

use std::time::Duration;

use half::f16;
use paged_attention::cuda::{CudaBackend, CudaDecode};
use paged_attention::{AttentionConfig, BlockTable, DecodeInputs, Plan};

use super::pages::Shape;
use super::paging::{About, Cost, ROUNDS};
use super::twin;
use crate::batch::Batch;
use crate::check;
use crate::error::Error;

/// A CUDA device with both kernels.
pub struct Device {
    pub about: About,
    /// Bytes of K and V of a batch: what the second-level cache cannot hold from call to call.
    pub batch_bytes: usize,
    paged: CudaBackend,
    twin: CudaBackend,
}

impl Device {
    /// The first device, if it runs the kernels.
    pub fn open(config: &AttentionConfig) -> Result<Self, Error> {
        let paged = CudaBackend::open(0)?;
        paged.supports(config)?;
        let name = paged.device_name().to_owned();
        let emulated = name.contains("emulated");
        let batch_bytes = match emulated {
            true => 1,
            false => 4 * paged.l2_cache_bytes().max(16 << 20),
        };
        let bytes = batch_bytes.max(1 << 16);
        // The first warms up.
        let copies = paged.time_copy(bytes, 1 + ROUNDS)?;
        let copies = copies[1..].iter().map(seconds).collect();
        Ok(Self {
            about: About {
                name,
                emulated,
                copy: 2.0 * bytes as f64 / median(copies),
            },
            batch_bytes,
            paged,
            twin: CudaBackend::open(0)?.with_ptx(twin::set()),
        })
    }

    /// The twin on tokens that lie side by side, verified.
    pub fn contiguous(
        &self,
        shape: &Shape,
        side_by_side: &Batch<f16>,
    ) -> Result<Contiguous<'_>, Error> {
        let shape = Shape {
            block_size: shape.ctx,
            ..*shape
        };
        let plan = shape.plan(&self.twin.limits())?;
        // Every sequence would be the first one: nothing of the table may be looked at.
        let table = vec![0; shape.seqs];
        let inputs = DecodeInputs {
            block_table: BlockTable::new(&table, shape.seqs, 1),
            ..side_by_side.inputs()
        };
        let call = self.twin.upload(&plan, &inputs)?;
        verify(&call, &plan, side_by_side)?;
        Ok(Contiguous { device: self, call })
    }
}

/// The twin over one batch.
pub struct Contiguous<'a> {
    device: &'a Device,
    call: CudaDecode<'a>,
}

impl Contiguous<'_> {
    /// Verifies paged attention over the same tokens, and times it and the twin in turn.
    pub fn compare(&self, shape: &Shape, batch: &Batch<f16>) -> Result<Cost, Error> {
        let paged = &self.device.paged;
        let plan = shape.plan(&paged.limits())?;
        let call = paged.upload(&plan, &batch.inputs())?;
        verify(&call, &plan, batch)?;
        let rounds = CudaDecode::time(&[&call, &self.call], 1 + ROUNDS)?;
        // The first warms up.
        let rounds: Vec<[f64; 2]> = rounds[1..]
            .iter()
            .map(|round| [seconds(&round[0]), seconds(&round[1])])
            .collect();
        let paged = median(rounds.iter().map(|[paged, _]| *paged).collect());
        Ok(Cost::Timed {
            time: median(rounds.iter().map(|[paged, twin]| paged / twin).collect()),
            bandwidth: Some(shape.kv_bytes() as f64 / paged),
        })
    }
}

/// Runs a call once and compares the results with the reference.
fn verify(call: &CudaDecode<'_>, plan: &Plan, batch: &Batch<f16>) -> Result<(), Error> {
    CudaDecode::time(&[call], 1)?;
    let (out, lse) = call.results::<f16>()?;
    check::check(batch, plan, plan.decode_variant().kind, &out, &lse).map(drop)
}

/// More than 0: an emulated device's clock may stand still for a short call.
fn seconds(time: &Duration) -> f64 {
    time.max(&Duration::from_nanos(1)).as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
