//! The shipped PTX, each set, on a CUDA device, through the safe interface: cust's buffers and stream.

use std::sync::LazyLock;

use cust::context::{Context, CurrentContext};
use cust::device::Device;
use cust::memory::{CopyDestination, DeviceBuffer, DeviceCopy, DeviceSlice};
use cust::stream::{Stream, StreamFlags};
use half::{bf16, f16};
use paged_attention::cuda::{
    CudaBackend, CudaBufferMut, CudaCache, CudaInputs, CudaRows, CudaRowsMut, CudaTable,
};
use paged_attention::{Element, Error, Op};

use super::{Backend, KernelOrder, Output, Set, collect, with_element};
use crate::batch::{Batch, Place};
use crate::bound::Order;

/// The first CUDA device, with a set of PTX.
pub struct Cuda {
    pub context: Context,
    pub backend: CudaBackend,
    set: Set,
}

/// The device under test with the default set.
#[track_caller]
pub fn cuda() -> &'static Cuda {
    cuda_with(Set::Default)
}

/// The device under test. Where there is none, every test that asks for it fails and says so.
#[track_caller]
pub fn cuda_with(set: Set) -> &'static Cuda {
    type Opened = LazyLock<Result<Cuda, String>>;
    static DEFAULT: Opened = LazyLock::new(|| Cuda::open(Set::Default));
    #[cfg(feature = "rust-cuda-ptx")]
    static RUST_CUDA: Opened = LazyLock::new(|| Cuda::open(Set::RustCuda));
    let opened: &Opened = match set {
        Set::Default => &DEFAULT,
        #[cfg(feature = "rust-cuda-ptx")]
        Set::RustCuda => &RUST_CUDA,
    };
    opened.as_ref().unwrap_or_else(|error| panic!("{error}"))
}

impl Cuda {
    fn open(set: Set) -> Result<Self, String> {
        let none = |error: Error| {
            format!("the feature `cuda` tests a CUDA device, and none answers: {error}")
        };
        // Initialises the driver, and its errors are sentences.
        drop(CudaBackend::open(0).map_err(none)?);
        let context = Device::get_device(0).and_then(Context::new).unwrap();
        let backend = CudaBackend::new(&context).map_err(none)?;
        let backend = backend.with_ptx(set.load());
        Ok(Self {
            context,
            backend,
            set,
        })
    }

    /// Makes the device's primary context current on this thread.
    pub fn enter(&self) {
        CurrentContext::set_current(&self.context).unwrap();
    }
}

impl Backend for Cuda {
    fn name(&self) -> &'static str {
        match self.set {
            Set::Default => "cuda_default",
            #[cfg(feature = "rust-cuda-ptx")]
            Set::RustCuda => "cuda_rust_cuda",
        }
    }

    fn order(&self) -> &dyn Order {
        &KernelOrder
    }

    fn cases(&self, usual: u32) -> u32 {
        self.set.cases(usual)
    }

    fn decode(&self, batch: &Batch) -> Result<Output, Error> {
        self.enter();
        decode(&self.backend, batch)
    }
}

/// Runs a batch in the current context, which is the back end's.
pub fn decode(backend: &CudaBackend, batch: &Batch) -> Result<Output, Error> {
    with_element!(batch.case.dtype, T => decode_as::<T>(backend, batch))
}

fn decode_as<T: Bits>(backend: &CudaBackend, batch: &Batch) -> Result<Output, Error> {
    let typed = batch.typed::<T>();
    collect(batch, |mut out, lse| {
        // Table and lengths are on the host, too, where they can be looked at.
        let bytes = batch.plan.workspace_bytes();
        batch
            .plan
            .validate(Op::Decode, &typed.inputs(), &out, Some(lse), bytes)?;
        let stream = stream();
        let mut tensors = Tensors::<T>::upload(batch);
        tensors.launch(backend, &stream, batch)?;
        stream
            .synchronize()
            .unwrap_or_else(|error| panic!("cuda: {error}\n{}", batch.case));
        tensors.read(batch, out.data_mut(), lse);
        Ok(())
    })
}

pub fn stream() -> Stream {
    Stream::new(StreamFlags::DEFAULT, None).unwrap()
}

/// An element as cust takes it to a device.
pub trait Bits: Element {
    type Bits: DeviceCopy + Default;

    fn bits(self) -> Self::Bits;

    fn of(bits: Self::Bits) -> Self;
}

macro_rules! bits {
    ($($element:ty: $bits:ty),*) => {
        $(impl Bits for $element {
            type Bits = $bits;

            fn bits(self) -> $bits {
                self.to_bits()
            }

            fn of(bits: $bits) -> Self {
                Self::from_bits(bits)
            }
        })*
    };
}
bits!(f32: u32, f16: u16, bf16: u16);

/// A batch on the device. Outputs hold NaN at first, and so does the workspace, which is exactly as
/// long as the plan says and has a canary behind it.
pub struct Tensors<T: Bits> {
    pub q: DeviceBuffer<T::Bits>,
    pub pools: Vec<DeviceBuffer<T::Bits>>,
    pub table: DeviceBuffer<i32>,
    pub lens: DeviceBuffer<i32>,
    pub out: DeviceBuffer<T::Bits>,
    pub lse: DeviceBuffer<f32>,
    pub workspace: DeviceBuffer<f32>,
}

const CANARY: f32 = 1.2345e-20;
const CANARIES: usize = 16;

impl<T: Bits> Tensors<T> {
    /// Copies a batch into the current context.
    pub fn upload(batch: &Batch) -> Self {
        let typed = |values: &[f32]| {
            let bits: Vec<_> = values.iter().map(|&x| T::from_f32(x).bits()).collect();
            put(&bits)
        };
        let mut workspace = vec![f32::NAN; batch.plan.workspace_len()];
        workspace.extend([CANARY; CANARIES]);
        Self {
            q: typed(&batch.q),
            pools: batch.pools.iter().map(|pool| typed(pool)).collect(),
            table: put(&batch.table),
            lens: put(&batch.lens),
            out: typed(&vec![f32::NAN; batch.out_len]),
            lse: put(&vec![f32::NAN; batch.num_seqs() * batch.case.num_q_heads]),
            workspace: put(&workspace),
        }
    }

    /// Gives the plan's launches to a stream.
    pub fn launch(
        &mut self,
        backend: &CudaBackend,
        stream: &Stream,
        batch: &Batch,
    ) -> Result<(), Error> {
        let len = self.workspace.len() - CANARIES;
        let mut workspace = self.workspace.index(..len);
        self.launch_with(backend, stream, batch, (&mut workspace).into())
    }

    /// The same with a workspace of the caller's.
    pub fn launch_with(
        &mut self,
        backend: &CudaBackend,
        stream: &Stream,
        batch: &Batch,
        workspace: CudaBufferMut<'_>,
    ) -> Result<(), Error> {
        let case = &batch.case;
        let (seqs, heads, d) = (batch.num_seqs(), case.num_q_heads, case.head_dim);
        let pool = |place: Place| self.pools[place.pool].index(place.offset..);
        let (k, v) = (pool(batch.k), pool(batch.v));
        let cache = |data, place: Place| cache::<T>(data, batch, place);
        let (token, head) = batch.q_strides;
        let inputs = CudaInputs {
            q: CudaRows::with_strides(&*self.q, seqs, heads, d, token, head),
            k_cache: cache(&k, batch.k),
            v_cache: cache(&v, batch.v),
            block_table: CudaTable::with_stride(
                &*self.table,
                seqs,
                batch.table_width,
                batch.table_stride,
            ),
            seq_lens: (&*self.lens).into(),
        };
        let (token, head) = batch.out_strides;
        let out = CudaRowsMut::with_strides(&mut *self.out, seqs, heads, d, token, head);
        let lse = Some((&mut *self.lse).into());
        backend.decode(stream, &batch.plan, &inputs, out, lse, workspace)
    }

    /// Reads the results; panics if the canary is gone.
    #[track_caller]
    pub fn read(&self, batch: &Batch, out: &mut [T], lse: &mut [f32]) {
        for (to, bits) in out.iter_mut().zip(get(&self.out)) {
            *to = T::of(bits);
        }
        lse.copy_from_slice(&get(&self.lse));
        let workspace = get(&self.workspace);
        let behind = &workspace[workspace.len() - CANARIES..];
        assert!(
            behind.iter().all(|x| x.to_bits() == CANARY.to_bits()),
            "written past the workspace\n{}",
            batch.case
        );
    }
}

fn cache<'a, T: Bits>(
    data: &'a DeviceSlice<T::Bits>,
    batch: &Batch,
    place: Place,
) -> CudaCache<'a> {
    let case = &batch.case;
    CudaCache::with_strides(
        data,
        batch.num_blocks,
        case.block_size,
        case.num_kv_heads,
        case.head_dim,
        place.strides,
    )
}

/// Copies to the device of the current context.
pub fn put<B: DeviceCopy>(values: &[B]) -> DeviceBuffer<B> {
    DeviceBuffer::from_slice(values).unwrap()
}

/// Copies from the device.
pub fn get<B: DeviceCopy + Default>(values: &DeviceSlice<B>) -> Vec<B> {
    let mut host = vec![B::default(); values.len()];
    values.copy_to(&mut host[..]).unwrap();
    host
}
