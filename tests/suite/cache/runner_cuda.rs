//! The operations on a CUDA device, through the safe interface.

use cust::memory::{DeviceBuffer, DeviceCopy, DeviceSlice};
use cust::stream::Stream;
use paged_attention::Error;
use paged_attention::cuda::{
    CudaBackend, CudaCache, CudaCacheMut, CudaRows, CudaRowsMut, CudaTable,
};

use super::case::CacheCase;
use super::runner::{CacheBackend, Raw, cache_strides, elements, row_strides, validate};
use super::world::{Call, Place, World};
use crate::backend::Backend;
use crate::backend::cuda::{Cuda, get, put, stream};

impl CacheBackend for Cuda {
    fn cases(&self, usual: u32) -> u32 {
        Backend::cases(self, usual)
    }

    fn run(&self, world: &mut World, call: &Call<'_>) -> Result<(), Error> {
        self.enter();
        match world.case.element() {
            2 => run::<u16>(&self.backend, world, call),
            _ => run::<u32>(&self.backend, world, call),
        }
    }
}

/// A world's buffers on the device.
pub struct Buffers<B: DeviceCopy> {
    case: CacheCase,
    buffers: Vec<DeviceBuffer<B>>,
}

impl<B: DeviceCopy + Raw> Buffers<B> {
    pub fn upload(world: &World) -> Self {
        let buffers = world.buffers.iter().map(|bytes| put(&B::from_bytes(bytes)));
        Self {
            case: world.case.clone(),
            buffers: buffers.collect(),
        }
    }

    pub fn slice(&self, place: &Place) -> DeviceSlice<B> {
        self.buffers[place.buffer].index(elements(&self.case, place))
    }

    pub fn rows<'a>(&self, slice: &'a DeviceSlice<B>, place: &Place) -> CudaRows<'a> {
        let (heads, d) = (self.case.heads, self.case.head_dim);
        let (tokens, token, head) = row_strides(&self.case, place);
        CudaRows::with_strides(slice, tokens, heads, d, token, head)
    }

    pub fn rows_mut<'a>(&self, slice: &'a mut DeviceSlice<B>, place: &Place) -> CudaRowsMut<'a> {
        let (heads, d) = (self.case.heads, self.case.head_dim);
        let (tokens, token, head) = row_strides(&self.case, place);
        CudaRowsMut::with_strides(slice, tokens, heads, d, token, head)
    }

    pub fn cache<'a>(&self, slice: &'a DeviceSlice<B>, place: &Place) -> CudaCache<'a> {
        let CacheCase {
            num_blocks,
            block_size,
            heads,
            head_dim,
            ..
        } = self.case;
        let strides = cache_strides(&self.case, place);
        CudaCache::with_strides(slice, num_blocks, block_size, heads, head_dim, strides)
    }

    pub fn cache_mut<'a>(&self, slice: &'a mut DeviceSlice<B>, place: &Place) -> CudaCacheMut<'a> {
        let CacheCase {
            num_blocks,
            block_size,
            heads,
            head_dim,
            ..
        } = self.case;
        let strides = cache_strides(&self.case, place);
        CudaCacheMut::with_strides(slice, num_blocks, block_size, heads, head_dim, strides)
    }
}

impl<B: DeviceCopy + Raw + Default> Buffers<B> {
    pub fn download(&self, world: &mut World) {
        for (bytes, buffer) in world.buffers.iter_mut().zip(&self.buffers) {
            *bytes = B::to_bytes(&get(buffer));
        }
    }
}

/// Runs a call in the current context, which is the back end's.
pub fn run<B: DeviceCopy + Raw + Default>(
    backend: &CudaBackend,
    world: &mut World,
    call: &Call<'_>,
) -> Result<(), Error> {
    let buffers = Buffers::<B>::upload(world);
    let stream = stream();
    let result = launch(backend, &stream, &buffers, call);
    stream.synchronize().unwrap();
    buffers.download(world);
    result
}

fn launch<B: DeviceCopy + Raw>(
    backend: &CudaBackend,
    stream: &Stream,
    buffers: &Buffers<B>,
    call: &Call<'_>,
) -> Result<(), Error> {
    let sizes = buffers.case.sizes();
    match call {
        Call::Write {
            rows,
            caches,
            slots,
        } => {
            let [k, v] = rows.each_ref().map(|place| buffers.slice(place));
            let [mut k_cache, mut v_cache] = caches.each_ref().map(|place| buffers.slice(place));
            let mut mapping = backend.slots(&sizes, slots.len())?;
            mapping.set(slots)?;
            backend.reshape_and_cache(
                stream,
                &sizes,
                [buffers.rows(&k, &rows[0]), buffers.rows(&v, &rows[1])],
                [
                    buffers.cache_mut(&mut k_cache, &caches[0]),
                    buffers.cache_mut(&mut v_cache, &caches[1]),
                ],
                &mapping,
            )
        }
        Call::Copy { caches, pairs } => {
            let mut slices: Vec<_> = caches.iter().map(|place| buffers.slice(place)).collect();
            let views = slices.iter_mut().zip(*caches);
            let mut views: Vec<_> = views
                .map(|(slice, place)| buffers.cache_mut(slice, place))
                .collect();
            let table = backend.cache_table(&views)?;
            let mut list = backend.pairs(&sizes, pairs.len())?;
            list.set(pairs)?;
            backend.copy_blocks(stream, &sizes, &mut views, &table, &list)
        }
        Call::Gather {
            caches,
            table,
            lens,
            rows,
        } => {
            // The table is on the host, too, where it can be looked at.
            validate(&buffers.case, call)?;
            let [k_cache, v_cache] = caches.each_ref().map(|place| buffers.slice(place));
            let [mut k, mut v] = rows.each_ref().map(|place| buffers.slice(place));
            let entries = put(&table.entries);
            let view = CudaTable::with_stride(&*entries, table.num_seqs, table.width, table.stride);
            let mut lengths = backend.lengths(lens.len())?;
            lengths.set(lens)?;
            backend.gather_cache(
                stream,
                &sizes,
                [
                    buffers.cache(&k_cache, &caches[0]),
                    buffers.cache(&v_cache, &caches[1]),
                ],
                (&view, &lengths),
                [
                    buffers.rows_mut(&mut k, &rows[0]),
                    buffers.rows_mut(&mut v, &rows[1]),
                ],
            )
        }
    }
}
