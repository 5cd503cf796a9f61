//! Decode over host tensors, for tools and tests.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::Duration;

use cust::error::CudaError;
use cust::event::{Event, EventFlags};
use cust::memory::{AsyncCopyDestination, DeviceBuffer};
use cust::stream::{Stream, StreamFlags};

use super::driver::{Current, cust_error};
use super::held::Held;
use super::{CudaBackend, OP};
use crate::element::{bytes_of, bytes_of_mut};
use crate::views::RowsShape;
use crate::{
    DecodeInputs, DeviceCache, DeviceRows, DeviceTable, DeviceTensors, Element, Error, Plan,
    RowsViewMut,
};

/// A byte that makes a NaN of every storage type, so that what is not written shows.
const UNWRITTEN: u8 = 0xff;

/// Decode attention over device copies of host tensors, from [`CudaBackend::upload`]: for tools and
/// tests that run it over and over.
pub struct CudaDecode<'a> {
    backend: &'a CudaBackend,
    plan: Plan,
    /// Addresses in the buffers.
    tensors: DeviceTensors,
    out: Held<u8>,
    lse: Option<Held<u8>>,
    _others: [Held<u8>; 6],
    /// Not to be run by two threads at a time, which would write the same results.
    _one_thread: PhantomData<Cell<()>>,
}

impl CudaBackend {
    /// Decode attention over host tensors: copies them to the device, runs, waits, copies the results
    /// back, and says how long the device took to run. Engines keep their tensors on the device and
    /// call [`CudaBackend::decode`].
    ///
    /// # Errors
    /// What [`Plan::validate`] and [`CudaBackend::prepare`] refuse; [`Error::Driver`].
    /// `out` and `lse` stay as they are unless the device has run.
    pub fn decode_host<T: Element>(
        &self,
        plan: &Plan,
        inputs: &DecodeInputs<'_, T>,
        mut out: RowsViewMut<'_, T>,
        lse: Option<&mut [f32]>,
    ) -> Result<Duration, Error> {
        plan.validate(OP, inputs, &out, lse.as_deref(), plan.workspace_bytes())?;
        let (shape, len) = (out.shape(), out.data().len());
        let mut call = self.upload_for(plan, inputs, (shape, len), lse.is_some())?;
        // With what lies between the rows.
        call.out.set(bytes_of(out.data()), false)?;
        let elapsed = CudaDecode::time(&[&call], 1)?[0][0];
        if let (Some(to), Some(from)) = (lse, &call.lse) {
            let rows = shape.num_seqs * shape.num_heads;
            from.copy_to(bytes_of_mut(&mut to[..rows]))?;
        }
        call.out.copy_to(bytes_of_mut(out.data_mut()))?;
        Ok(elapsed)
    }

    /// Copies host tensors to the device, with room for a dense output, `lse` and the workspace, all
    /// NaN.
    ///
    /// # Errors
    /// What [`Plan::validate`] refuses of inputs, and [`CudaBackend::prepare`]; [`Error::Driver`].
    pub fn upload<T: Element>(
        &self,
        plan: &Plan,
        inputs: &DecodeInputs<'_, T>,
    ) -> Result<CudaDecode<'_>, Error> {
        plan.validate_inputs(OP, inputs)?;
        let (num_seqs, config) = (plan.num_seqs(), plan.config());
        let shape = RowsShape::contiguous(num_seqs, config.num_q_heads, config.head_dim);
        let len = num_seqs.saturating_mul(shape.token_stride);
        self.upload_for(plan, inputs, (shape, len), true)
    }

    /// Copies validated inputs, with room for an output of so many elements.
    fn upload_for<T: Element>(
        &self,
        plan: &Plan,
        inputs: &DecodeInputs<'_, T>,
        (out_shape, out_len): (RowsShape, usize),
        lse: bool,
    ) -> Result<CudaDecode<'_>, Error> {
        self.prepare(plan)?;
        let context = &self.context;
        let copy = |argument, bytes: &[u8]| {
            let mut held = Held::zeroed(context, argument, bytes.len())?;
            held.set(bytes, false)?;
            Ok::<_, Error>(held)
        };
        let room = |argument, bytes| {
            let mut held = Held::zeroed(context, argument, bytes)?;
            held.fill(UNWRITTEN)?;
            Ok::<_, Error>(held)
        };
        let DecodeInputs {
            q,
            k_cache,
            v_cache,
            block_table,
            seq_lens,
        } = inputs;
        let others = [
            copy("q", bytes_of(q.data()))?,
            copy("k_cache", bytes_of(k_cache.data()))?,
            copy("v_cache", bytes_of(v_cache.data()))?,
            copy("block_table", bytes_of(block_table.entries()))?,
            copy("seq_lens", bytes_of(seq_lens))?,
            room("workspace", plan.workspace_bytes())?,
        ];
        let out = room("out", out_len.saturating_mul(size_of::<T>()))?;
        let lse = lse
            .then(|| {
                room(
                    "lse",
                    out_shape.num_seqs * out_shape.num_heads * size_of::<f32>(),
                )
            })
            .transpose()?;
        let at = |held: &Held<u8>| held.address(OP, context);
        let rows = |address, shape: RowsShape| DeviceRows {
            address,
            token_stride: shape.token_stride,
            head_stride: shape.head_stride,
        };
        let tensors = DeviceTensors {
            q: rows(at(&others[0])?, q.shape()),
            k_cache: DeviceCache {
                address: at(&others[1])?,
                strides: k_cache.strides(),
            },
            v_cache: DeviceCache {
                address: at(&others[2])?,
                strides: v_cache.strides(),
            },
            block_table: DeviceTable {
                address: at(&others[3])?,
                row_stride: block_table.row_stride(),
            },
            seq_lens: at(&others[4])?,
            out: rows(at(&out)?, out_shape),
            lse: lse.as_ref().map(at).transpose()?,
            workspace: at(&others[5])?,
        };
        Ok(CudaDecode {
            backend: self,
            plan: plan.clone(),
            tensors,
            out,
            lse,
            _others: others,
            _one_thread: PhantomData,
        })
    }

    /// How long the device takes to copy `bytes` bytes within its memory, `rounds` times: what its
    /// bandwidth can be held against. Each copy reads the bytes and writes them.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn time_copy(&self, bytes: usize, rounds: usize) -> Result<Vec<Duration>, Error> {
        // Dropped last: the buffers are freed in it.
        let current = self.context.current()?;
        let failed = |error| cust_error("cuMemAlloc or cuMemsetD8", "a copy", error);
        let from = DeviceBuffer::<u8>::zeroed(bytes).map_err(failed)?;
        let mut to = DeviceBuffer::<u8>::zeroed(bytes).map_err(failed)?;
        spans(&current, rounds, |_, stream| {
            // SAFETY: `spans` waits for the stream before it returns, and both buffers live longer.
            let copied = unsafe { to.async_copy_from(&from, stream) };
            copied.map_err(|error| cust_error("cuMemcpyDtoDAsync", "a copy", error))
        })
    }
}

impl CudaDecode<'_> {
    /// Runs `calls` in turn, `rounds` times, on one stream, and waits. The result says how long the
    /// device took, `[rounds][calls]`. Everything is launched before anything is waited for, so that
    /// the device never waits for the host.
    ///
    /// # Errors
    /// [`Error::ForeignContext`] where their back ends are of several contexts; [`Error::Driver`].
    pub fn time(calls: &[&Self], rounds: usize) -> Result<Vec<Vec<Duration>>, Error> {
        let Some(first) = calls.first() else {
            return Ok(vec![vec![]; rounds]);
        };
        let current = first.backend.context.current()?;
        let spans = spans(&current, rounds * calls.len(), |i, stream| {
            let call = calls[i % calls.len()];
            // SAFETY: the stream is live as cust's type is, and `spans` waits for it. The buffers
            // reach as far as the slices that they are copies of, which were validated as the table
            // and the lengths were, and are `call`'s own, which is on this thread alone.
            unsafe {
                let stream = stream.as_inner();
                call.backend.decode_raw(stream, &call.plan, &call.tensors)
            }
        })?;
        Ok(spans.chunks(calls.len()).map(<[_]>::to_vec).collect())
    }

    /// The results, `[num_seqs, num_q_heads, head_dim]` and `[num_seqs, num_q_heads]`; NaN before the
    /// first run.
    ///
    /// # Errors
    /// [`Error::DTypeMismatch`]; [`Error::Driver`].
    pub fn results<T: Element>(&self) -> Result<(Vec<T>, Vec<f32>), Error> {
        let config = self.plan.config();
        if T::DTYPE != config.dtype {
            return Err(Error::DTypeMismatch {
                op: OP,
                found: T::DTYPE,
                expected: config.dtype,
            });
        }
        let rows = self.plan.num_seqs() * config.num_q_heads;
        let mut out = vec![T::from_f32(0.0); rows * config.head_dim];
        let mut lse = vec![0.0; rows];
        self.out.copy_to(bytes_of_mut(&mut out))?;
        if let Some(from) = &self.lse {
            from.copy_to(bytes_of_mut(&mut lse))?;
        }
        Ok((out, lse))
    }
}

/// How long each of `count` calls takes that are given to a stream of the current context, one behind
/// the other.
fn spans(
    _current: &Current,
    count: usize,
    mut call: impl FnMut(usize, &Stream) -> Result<(), Error>,
) -> Result<Vec<Duration>, Error> {
    let failed = |call| move |error: CudaError| cust_error(call, "timing", error);
    let stream = Stream::new(StreamFlags::DEFAULT, None).map_err(failed("cuStreamCreate"))?;
    let event = |_| Event::new(EventFlags::DEFAULT).map_err(failed("cuEventCreate"));
    let events: Vec<Event> = (0..=count).map(event).collect::<Result<_, _>>()?;
    let record = |event: &Event| event.record(&stream).map_err(failed("cuEventRecord"));
    let mut given = record(&events[0]);
    for (i, event) in events[1..].iter().enumerate() {
        given = given
            .and_then(|()| call(i, &stream))
            .and_then(|()| record(event));
    }
    // Also after an error: what the calls use may be freed next.
    let waited = stream.synchronize();
    given?;
    waited.map_err(failed("cuStreamSynchronize"))?;
    let span = |pair: &[Event]| {
        let milliseconds = pair[1].elapsed_time_f32(&pair[0]);
        let milliseconds = milliseconds.map_err(failed("cuEventElapsedTime"))?;
        Ok(Duration::from_secs_f32(milliseconds.max(0.0) / 1e3))
    };
    events.windows(2).map(span).collect()
}
