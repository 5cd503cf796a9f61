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

/// Views of K and V: two slices with their places.
fn both<S, V>([k, v]: [S; 2], places: &[Place; 2], view: impl Fn(S, &Place) -> V) -> [V; 2] {
    [view(k, &places[0]), view(v, &places[1])]
}

impl<B: DeviceCopy + Raw> Buffers<B> {
    pub fn slices(&self, places: &[Place; 2]) -> [DeviceSlice<B>; 2] {
        places.each_ref().map(|place| self.slice(place))
    }

    pub fn rows<'a>(
        &self,
        slices: &'a [DeviceSlice<B>; 2],
        places: &[Place; 2],
    ) -> [CudaRows<'a>; 2] {
        let (heads, d) = (self.case.heads, self.case.head_dim);
        both(slices.each_ref(), places, |slice, place| {
            let (tokens, token, head) = row_strides(&self.case, place);
            CudaRows::with_strides(slice, tokens, heads, d, token, head)
        })
    }

    pub fn rows_mut<'a>(
        &self,
        slices: &'a mut [DeviceSlice<B>; 2],
        places: &[Place; 2],
    ) -> [CudaRowsMut<'a>; 2] {
        let (heads, d) = (self.case.heads, self.case.head_dim);
        both(slices.each_mut(), places, |slice, place| {
            let (tokens, token, head) = row_strides(&self.case, place);
            CudaRowsMut::with_strides(slice, tokens, heads, d, token, head)
        })
    }

    pub fn caches<'a>(
        &self,
        slices: &'a [DeviceSlice<B>; 2],
        places: &[Place; 2],
    ) -> [CudaCache<'a>; 2] {
        let CacheCase {
            num_blocks,
            block_size,
            heads,
            head_dim,
            ..
        } = self.case;
        both(slices.each_ref(), places, |slice, place| {
            let strides = cache_strides(&self.case, place);
            CudaCache::with_strides(slice, num_blocks, block_size, heads, head_dim, strides)
        })
    }

    pub fn caches_mut<'a>(
        &self,
        slices: &'a mut [DeviceSlice<B>; 2],
        places: &[Place; 2],
    ) -> [CudaCacheMut<'a>; 2] {
        both(slices.each_mut(), places, |slice, place| {
            self.cache_mut(slice, place)
        })
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
            let (from, mut to) = (buffers.slices(rows), buffers.slices(caches));
            let mut mapping = backend.slots(&sizes, slots.len())?;
            mapping.set(slots)?;
            backend.reshape_and_cache(
                stream,
                &sizes,
                buffers.rows(&from, rows),
                buffers.caches_mut(&mut to, caches),
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
            let (from, mut to) = (buffers.slices(caches), buffers.slices(rows));
            let entries = put(&table.entries);
            let view = CudaTable::with_stride(&*entries, table.num_seqs, table.width, table.stride);
            let mut lengths = backend.lengths(lens.len())?;
            lengths.set(lens)?;
            backend.gather_cache(
                stream,
                &sizes,
                buffers.caches(&from, caches),
                (&view, &lengths),
                buffers.rows_mut(&mut to, rows),
            )
        }
    }
}
