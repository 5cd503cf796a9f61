//! Times of paged attention and of its contiguous twin on a CUDA device, by events on one stream.
//!
//! Both results are compared with the f64 reference before anything is timed.

use std::ffi::c_void;

use cust::context::Context;
use cust::device::{Device as Card, DeviceAttribute};
use cust::error::CudaError;
use cust::event::{Event, EventFlags};
use cust::memory::{AsyncCopyDestination, CopyDestination, DeviceBuffer};
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use cust::sys;
use half::f16;
use paged_attention::cuda::CudaBackend;
use paged_attention::{
    AttentionConfig, DType, DeviceCache, DeviceRows, DeviceTable, DeviceTensors, Launch,
    LaunchArgs, Plan,
};

use super::counted::TWIN;
use super::pages::Shape;
use super::paging::{About, Cost, ROUNDS};
use crate::batch::Batch;
use crate::buffer::{Buffer, bytes_of};
use crate::check;
use crate::error::Error;

/// A CUDA device with both kernels.
pub struct Device {
    pub about: About,
    /// Bytes of K and V of a batch: what the second-level cache cannot hold from call to call.
    pub batch_bytes: usize,
    stream: Stream,
    twin: Module,
    backend: CudaBackend,
    // Dropped last: the rest is freed in it.
    _context: Context,
}

fn failed(call: &'static str) -> impl Fn(CudaError) -> Error {
    move |source| Error::Cuda { call, source }
}

impl Device {
    /// The first device, if it runs the kernels.
    pub fn open(config: &AttentionConfig) -> Result<Self, Error> {
        // Initialises the driver, and its errors are sentences.
        CudaBackend::open(0)?.supports(config)?;
        let card = Card::get_device(0).map_err(failed("cuDeviceGet"))?;
        let context = Context::new(card).map_err(failed("cuDevicePrimaryCtxRetain"))?;
        let backend = CudaBackend::new(&context)?;
        let l2 = card.get_attribute(DeviceAttribute::L2CacheSize);
        let l2 = l2.map_err(failed("cuDeviceGetAttribute"))? as usize;
        let stream = Stream::new(StreamFlags::DEFAULT, None);
        let stream = stream.map_err(failed("cuStreamCreate"))?;
        let twin = Module::from_ptx(TWIN, &[]).map_err(failed("cuModuleLoadData"))?;
        let name = backend.device_name().to_owned();
        let emulated = name.contains("emulated");
        let mut device = Self {
            about: About {
                name,
                emulated,
                copy: 0.0,
            },
            batch_bytes: if emulated { 1 } else { 4 * l2.max(16 << 20) },
            stream,
            twin,
            backend,
            _context: context,
        };
        device.about.copy = device.copy_rate()?;
        Ok(device)
    }

    /// Bytes per second that a copy on the device reads and writes: the median of [`ROUNDS`].
    fn copy_rate(&self) -> Result<f64, Error> {
        let bytes = self.batch_bytes.max(1 << 16);
        let from = DeviceBuffer::<u8>::zeroed(bytes).map_err(failed("cuMemAlloc"))?;
        let mut to = DeviceBuffer::<u8>::zeroed(bytes).map_err(failed("cuMemAlloc"))?;
        let seconds = self.spans(1 + ROUNDS, |_| {
            // SAFETY: `spans` waits for the stream before it returns, and both buffers live longer.
            let copied = unsafe { to.async_copy_from(&from, &self.stream) };
            copied.map_err(failed("cuMemcpyDtoDAsync"))
        })?;
        // The first warms up.
        Ok(2.0 * bytes as f64 / median(seconds[1..].to_vec()))
    }

    /// Seconds of each of `calls`, given to the stream one behind the other, so that the device
    /// never waits for the host.
    fn spans(
        &self,
        calls: usize,
        mut call: impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<Vec<f64>, Error> {
        let event = |_| Event::new(EventFlags::DEFAULT).map_err(failed("cuEventCreate"));
        let events: Vec<Event> = (0..=calls).map(event).collect::<Result<_, _>>()?;
        let mut result = Ok(());
        for (i, event) in events.iter().enumerate() {
            if i > 0 && result.is_ok() {
                result = call(i - 1);
            }
            if result.is_ok() {
                result = event.record(&self.stream).map_err(failed("cuEventRecord"));
            }
        }
        // Also after an error: what the calls use is freed next.
        let waited = self.stream.synchronize();
        result?;
        waited.map_err(failed("cuStreamSynchronize"))?;
        let span = |pair: &[Event]| {
            let milliseconds = pair[1].elapsed_time_f32(&pair[0]);
            let milliseconds = milliseconds.map_err(failed("cuEventElapsedTime"))?;
            // An emulated device's clock may stand still for a short call.
            Ok(f64::from(milliseconds.max(1e-6)) / 1e3)
        };
        events.windows(2).map(span).collect()
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
        let plan = shape.plan(&self.backend.limits())?;
        let uploaded = Uploaded::new(&plan, side_by_side)?;
        let mut launches: Vec<Launch> = plan.launches(&uploaded.tensors)?.iter().copied().collect();
        for launch in &mut launches {
            // Nothing of the table may be looked at.
            if let LaunchArgs::Decode(args) = &mut launch.args {
                args.block_table = 0;
            }
        }
        let twin = Contiguous {
            device: self,
            launches,
            uploaded,
        };
        twin.run()?;
        twin.uploaded.verify(&self.stream, &plan, side_by_side)?;
        Ok(twin)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The twin over one batch.
pub struct Contiguous<'a> {
    device: &'a Device,
    launches: Vec<Launch>,
    uploaded: Uploaded,
}

impl Contiguous<'_> {
    /// Verifies paged attention over the same tokens, and times it and the twin in turn.
    pub fn compare(&self, shape: &Shape, batch: &Batch<f16>) -> Result<Cost, Error> {
        let device = self.device;
        let plan = shape.plan(&device.backend.limits())?;
        let uploaded = Uploaded::new(&plan, batch)?;
        let paged = || {
            // SAFETY: the buffers have the plan's sizes and live until the stream has been waited
            // for (`verify`, `spans`); calls on one stream run in order; table and lengths fit the
            // pool (`Shape::paged`).
            let given = unsafe {
                let stream = device.stream.as_inner();
                device.backend.decode_raw(stream, &plan, &uploaded.tensors)
            };
            Ok::<(), Error>(given?)
        };
        paged()?;
        uploaded.verify(&device.stream, &plan, batch)?;
        let seconds = device.spans(2 * (1 + ROUNDS), |i| match i % 2 {
            0 => paged(),
            _ => self.run(),
        })?;
        // The first pair warms up.
        let pairs: Vec<&[f64]> = seconds[2..].chunks_exact(2).collect();
        let paged = median(pairs.iter().map(|pair| pair[0]).collect());
        Ok(Cost::Timed {
            time: median(pairs.iter().map(|pair| pair[0] / pair[1]).collect()),
            bandwidth: Some(shape.kv_bytes() as f64 / paged),
        })
    }

    fn run(&self) -> Result<(), Error> {
        for launch in &self.launches {
            let entry = launch.entry.replace("decode", "contiguous");
            let function = self.device.twin.get_function(&entry);
            let function = function.map_err(failed("cuModuleGetFunction"))?;
            let attribute =
                sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is live. A refusal shows in the launch.
            let _ = unsafe {
                sys::cuFuncSetAttribute(function.to_raw(), attribute, launch.shared_bytes as i32)
            };
            let args: *const c_void = match &launch.args {
                LaunchArgs::Decode(args) => std::ptr::from_ref(args).cast(),
                LaunchArgs::Merge(args) => std::ptr::from_ref(args).cast(),
            };
            let ([x, y, z], [threads, ..]) = (launch.grid, launch.block);
            // SAFETY: the driver copies the argument during the call, and the twin takes that of the
            // entry that it is of; the buffers behind its addresses are `uploaded`'s and live until
            // the stream has been waited for (`verify`, `spans`).
            let given = unsafe {
                let args = [args.cast_mut()];
                let (grid, shared) = ((x, y, z), launch.shared_bytes);
                let stream = &self.device.stream;
                stream.launch(&function, grid, threads, shared, &args)
            };
            given.map_err(failed("cuLaunchKernel"))?;
        }
        Ok(())
    }
}

/// A batch on the device, with room for the results.
struct Uploaded {
    /// Whatever the tensors point to and nobody reads back.
    _inputs: Vec<DeviceBuffer<u8>>,
    out: DeviceBuffer<u8>,
    lse: DeviceBuffer<u8>,
    tensors: DeviceTensors,
}

impl Uploaded {
    fn new(plan: &Plan, batch: &Batch<f16>) -> Result<Self, Error> {
        let copy = |bytes: &[u8]| {
            DeviceBuffer::from_slice(bytes).map_err(failed("cuMemAlloc or cuMemcpyHtoD"))
        };
        let [seqs, heads, d] = batch.shapes.q;
        debug_assert_eq!(plan.config().dtype, DType::F16);
        // NaN, so that what is not written shows.
        let out = copy(&vec![0xff; size_of_val(&*batch.q)])?;
        let lse = copy(&vec![0xff; seqs * heads * size_of::<f32>()])?;
        let inputs = vec![
            copy(bytes_of(&batch.q))?,
            copy(bytes_of(&batch.k_cache))?,
            copy(bytes_of(&batch.v_cache))?,
            copy(bytes_of(&batch.block_table))?,
            copy(bytes_of(&batch.seq_lens))?,
            copy(&vec![0xff; plan.workspace_bytes().max(1)])?,
        ];
        let address = |buffer: &DeviceBuffer<u8>| buffer.as_device_ptr().as_raw();
        let rows = |buffer| DeviceRows {
            address: address(buffer),
            token_stride: heads * d,
            head_stride: d,
        };
        let views = batch.inputs();
        let tensors = DeviceTensors {
            q: rows(&inputs[0]),
            k_cache: DeviceCache {
                address: address(&inputs[1]),
                strides: views.k_cache.strides(),
            },
            v_cache: DeviceCache {
                address: address(&inputs[2]),
                strides: views.v_cache.strides(),
            },
            block_table: DeviceTable {
                address: address(&inputs[3]),
                row_stride: batch.shapes.block_table[1],
            },
            seq_lens: address(&inputs[4]),
            out: rows(&out),
            lse: Some(address(&lse)),
            workspace: address(&inputs[5]),
        };
        Ok(Self {
            _inputs: inputs,
            out,
            lse,
            tensors,
        })
    }

    /// Waits for the device and compares the results with the reference.
    fn verify(&self, stream: &Stream, plan: &Plan, batch: &Batch<f16>) -> Result<(), Error> {
        let waited = stream.synchronize();
        waited.map_err(failed("cuStreamSynchronize"))?;
        let mut out = Buffer::<f16>::zeroed("out", batch.q.len())?;
        let mut lse = Buffer::<f32>::zeroed("lse", self.lse.len() / size_of::<f32>())?;
        for (from, to) in [(&self.out, out.bytes_mut()), (&self.lse, lse.bytes_mut())] {
            from.copy_to(to).map_err(failed("cuMemcpyDtoH"))?;
        }
        check::check(batch, plan, plan.decode_variant().kind, &out, &lse).map(drop)
    }
}
