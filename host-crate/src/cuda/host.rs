//! Decode over host tensors, for tools and tests.

use std::time::Duration;

use cust::error::CudaError;
use cust::event::{Event, EventFlags};
use cust::memory::{CopyDestination, DeviceBuffer};
use cust::stream::{Stream, StreamFlags};

use super::driver::cust_error;
use super::tensors::{CudaBuffer, CudaBufferMut};
use super::{CudaBackend, CudaCache, CudaInputs, CudaRows, CudaRowsMut, CudaTable, OP};
use crate::element::{bytes_of, bytes_of_mut};
use crate::{CacheView, DecodeInputs, Element, Error, Plan, RowsViewMut};

/// A host slice's copy on the device.
struct Copied {
    argument: &'static str,
    bytes: DeviceBuffer<u8>,
    element_bytes: usize,
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
        let workspace_bytes = plan.workspace_bytes();
        plan.validate(OP, inputs, &out, lse.as_deref(), workspace_bytes)?;
        self.prepare(plan)?;
        if plan.num_seqs() == 0 {
            return Ok(Duration::ZERO);
        }
        // Dropped last: freeing the buffers needs the context.
        let _current = self.context.current()?;
        let q = copy("q", bytes_of(inputs.q.data()), size_of::<T>())?;
        let k = copy("k_cache", bytes_of(inputs.k_cache.data()), size_of::<T>())?;
        let v = copy("v_cache", bytes_of(inputs.v_cache.data()), size_of::<T>())?;
        let table = copy("block_table", bytes_of(inputs.block_table.entries()), 4)?;
        let lens = copy("seq_lens", bytes_of(inputs.seq_lens), 4)?;
        // With what lies between the rows.
        let mut out_copy = copy("out", bytes_of(out.data()), size_of::<T>())?;
        let mut lse_copy = match &lse {
            Some(lse) => Some(copy("lse", bytes_of(&lse[..]), 4)?),
            None => None,
        };
        let zeros = DeviceBuffer::zeroed(workspace_bytes);
        let mut workspace = Copied {
            argument: "workspace",
            bytes: zeros.map_err(|error| cust_error("cuMemAlloc", "workspace", error))?,
            element_bytes: 1,
        };

        let (seqs, heads, d) = (out.num_seqs(), out.num_heads(), out.head_dim());
        let (token_stride, head_stride) = (inputs.q.token_stride(), inputs.q.head_stride());
        let on_device = CudaInputs {
            q: CudaRows::with_strides(q.view(), seqs, heads, d, token_stride, head_stride),
            k_cache: cache(&k, &inputs.k_cache),
            v_cache: cache(&v, &inputs.v_cache),
            block_table: CudaTable::with_stride(
                table.view(),
                seqs,
                inputs.block_table.max_blocks_per_seq(),
                inputs.block_table.row_stride(),
            ),
            seq_lens: lens.view(),
        };
        let (token_stride, head_stride) = (out.token_stride(), out.head_stride());
        let data = out_copy.view_mut();
        let rows = CudaRowsMut::with_strides(data, seqs, heads, d, token_stride, head_stride);

        let entry = plan.decode_variant().entry;
        let failed = |call| move |error: CudaError| cust_error(call, entry, error);
        let stream = Stream::new(StreamFlags::DEFAULT, None).map_err(failed("cuStreamCreate"))?;
        let event = || Event::new(EventFlags::DEFAULT).map_err(failed("cuEventCreate"));
        let (start, end) = (event()?, event()?);
        let record = |event: &Event| event.record(&stream).map_err(failed("cuEventRecord"));
        record(&start)?;
        let lse_view = lse_copy.as_mut().map(Copied::view_mut);
        let workspace = workspace.view_mut();
        self.decode(&stream, plan, &on_device, rows, lse_view, workspace)?;
        record(&end)?;
        stream
            .synchronize()
            .map_err(failed("cuStreamSynchronize"))?;
        let elapsed = end.elapsed_time_f32(&start);
        let elapsed = elapsed.map_err(failed("cuEventElapsedTime"))?;

        if let (Some(lse), Some(copy)) = (lse, &lse_copy) {
            copy.copy_to(bytes_of_mut(lse))?;
        }
        out_copy.copy_to(bytes_of_mut(out.data_mut()))?;
        Ok(Duration::from_secs_f32(elapsed.max(0.0) / 1e3))
    }
}

fn copy(argument: &'static str, bytes: &[u8], element_bytes: usize) -> Result<Copied, Error> {
    let copied = DeviceBuffer::from_slice(bytes);
    Ok(Copied {
        argument,
        bytes: copied.map_err(|error| cust_error("cuMemAlloc or cuMemcpyHtoD", argument, error))?,
        element_bytes,
    })
}

impl Copied {
    fn view(&self) -> CudaBuffer<'_> {
        CudaBuffer::from(&*self.bytes).of_elements(self.element_bytes)
    }

    fn view_mut(&mut self) -> CudaBufferMut<'_> {
        CudaBufferMut::from(&mut *self.bytes).of_elements(self.element_bytes)
    }

    fn copy_to(&self, host: &mut [u8]) -> Result<(), Error> {
        let copied = self.bytes.copy_to(host);
        copied.map_err(|error| cust_error("cuMemcpyDtoH", self.argument, error))
    }
}

fn cache<'a, T: Element>(copy: &'a Copied, view: &CacheView<'_, T>) -> CudaCache<'a> {
    CudaCache::with_strides(
        copy.view(),
        view.num_blocks(),
        view.block_size(),
        view.num_kv_heads(),
        view.head_dim(),
        view.strides(),
    )
}
