//! The operations on every back end.

use half::{bf16, f16};
use paged_attention::{
    CacheStrides, CacheView, CacheViewMut, DeviceCache, DeviceRows, DeviceTable, Element, Error,
    Op, RowsView, RowsViewMut, cpu,
};
use ptx_emulator::{Memory, Report};

use super::case::CacheCase;
use super::world::{Call, Place, World};
use crate::backend::{Backend, Cpu, Ptx, with_element};

/// Something that runs an operation on a world's buffers.
pub trait CacheBackend: Sync {
    /// Random cases to run of a property that has `usual` by default.
    fn cases(&self, usual: u32) -> u32 {
        usual
    }

    /// Runs a call. The buffers are as the back end left them, also after a refusal.
    fn run(&self, world: &mut World, call: &Call<'_>) -> Result<(), Error>;
}

/// Runs a call and compares every byte of every buffer with what must be there.
pub fn check(backend: &dyn CacheBackend, world: &mut World, call: &Call<'_>) -> Result<(), String> {
    let expected = world.after(call);
    backend
        .run(world, call)
        .map_err(|error| format!("{error}\n{:?}", world.case))?;
    world.same(&expected)
}

/// The sentence with which a call is refused; no byte has changed.
#[track_caller]
pub fn refusal(backend: &dyn CacheBackend, world: &mut World, call: &Call<'_>) -> String {
    let before = world.buffers.clone();
    let error = backend.run(world, call).expect_err("must be refused");
    world
        .same(&before)
        .unwrap_or_else(|e| panic!("{error}: {e}"));
    error.to_string()
}

/// Elements from and to little-endian bytes.
pub trait Raw: Copy {
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;

    fn to_bytes(values: &[Self]) -> Vec<u8>;
}

macro_rules! raw {
    ($($type:ty),*) => {
        $(impl Raw for $type {
            fn from_bytes(bytes: &[u8]) -> Vec<Self> {
                bytes.as_chunks().0.iter().map(|&b| Self::from_le_bytes(b)).collect()
            }

            fn to_bytes(values: &[Self]) -> Vec<u8> {
                values.iter().flat_map(|x| x.to_le_bytes()).collect()
            }
        })*
    };
}
raw!(f32, f16, bf16, u16, u32);

/// A place's strides in elements.
pub fn cache_strides(case: &CacheCase, place: &Place) -> CacheStrides {
    let [block, token, head] = [0, 1, 2].map(|i| place.dims[i].1 / case.element());
    CacheStrides { block, token, head }
}

/// (tokens, token stride, head stride) of rows, in elements.
pub fn row_strides(case: &CacheCase, place: &Place) -> (usize, usize, usize) {
    let [token, head] = [0, 1].map(|i| place.dims[i].1 / case.element());
    (place.dims[0].0, token, head)
}

/// A place's elements of its buffer.
pub fn elements(case: &CacheCase, place: &Place) -> std::ops::Range<usize> {
    let range = place.range();
    range.start / case.element()..range.end / case.element()
}

impl CacheBackend for Cpu {
    fn run(&self, world: &mut World, call: &Call<'_>) -> Result<(), Error> {
        with_element!(world.case.dtype, T => on_cpu::<T>(world, call))
    }
}

fn on_cpu<T: Element + Raw>(world: &mut World, call: &Call<'_>) -> Result<(), Error> {
    let mut buffers: Vec<Vec<T>> = world.buffers.iter().map(|b| T::from_bytes(b)).collect();
    let result = on_slices(&world.case, &mut buffers, call);
    world.buffers = buffers.iter().map(|b| T::to_bytes(b)).collect();
    result
}

fn cache_mut<'a, T: Element>(
    case: &CacheCase,
    buffer: &'a mut [T],
    place: &Place,
) -> CacheViewMut<'a, T> {
    let shape = (case.num_blocks, case.block_size, case.heads, case.head_dim);
    let data = &mut buffer[elements(case, place)];
    CacheViewMut::with_strides(data, shape, cache_strides(case, place))
}

fn on_slices<T: Element>(
    case: &CacheCase,
    buffers: &mut [Vec<T>],
    call: &Call<'_>,
) -> Result<(), Error> {
    let CacheCase {
        num_blocks,
        block_size,
        heads,
        head_dim,
        ..
    } = *case;
    match call {
        Call::Write {
            rows,
            caches,
            slots,
        } => {
            for (rows, cache) in rows.iter().zip(*caches) {
                // Out of the list, so that the rows can be borrowed meanwhile.
                let mut buffer = std::mem::take(&mut buffers[cache.buffer]);
                let (tokens, token, head) = row_strides(case, rows);
                let data = &buffers[rows.buffer][elements(case, rows)];
                let rows = RowsView::with_strides(data, tokens, heads, head_dim, token, head);
                let written =
                    cpu::reshape_and_cache(rows, cache_mut(case, &mut buffer, cache), slots);
                buffers[cache.buffer] = buffer;
                written?;
            }
        }
        Call::Copy { caches, pairs } => {
            // K of every layer, then V: both may lie in one buffer.
            for first in 0..2.min(caches.len()) {
                let half = || caches.iter().skip(first).step_by(2);
                let views = buffers.iter_mut().enumerate().filter_map(|(i, buffer)| {
                    let place = half().find(|place| place.buffer == i)?;
                    Some(cache_mut(case, buffer, place))
                });
                let mut views: Vec<_> = views.collect();
                assert_eq!(views.len(), half().count());
                cpu::copy_blocks(&mut views, pairs)?;
            }
        }
        Call::Gather {
            caches,
            table,
            lens,
            rows,
        } => {
            for (cache, rows) in caches.iter().zip(*rows) {
                let mut buffer = std::mem::take(&mut buffers[rows.buffer]);
                let data = &buffers[cache.buffer][elements(case, cache)];
                let strides = cache_strides(case, cache);
                let view =
                    CacheView::with_strides(data, num_blocks, block_size, heads, head_dim, strides);
                let (tokens, token, head) = row_strides(case, rows);
                let data = &mut buffer[elements(case, rows)];
                let out = RowsViewMut::with_strides(data, tokens, heads, head_dim, token, head);
                let gathered = cpu::gather_cache(view, table.view(), lens, out);
                buffers[rows.buffer] = buffer;
                gathered?;
            }
        }
    }
    Ok(())
}

impl CacheBackend for Ptx {
    fn cases(&self, usual: u32) -> u32 {
        Backend::cases(self, usual)
    }

    fn run(&self, world: &mut World, call: &Call<'_>) -> Result<(), Error> {
        launch(self, world, call).map(drop)
    }
}

/// What an engine checks before it copies integers to a device.
pub fn validate(case: &CacheCase, call: &Call<'_>) -> Result<(), Error> {
    match call {
        Call::Write { rows, slots, .. } => case.sizes().check_slots(rows[0].dims[0].0, slots),
        Call::Copy { pairs, .. } => case.sizes().check_pairs(pairs),
        Call::Gather { table, lens, .. } => {
            let (op, size, blocks) = (Op::GatherCache, case.block_size, case.num_blocks);
            table.view().validate(op, lens, size, blocks)
        }
    }
}

/// Runs a call's launch, if there is one, and says what it did. Host data is checked before, as an
/// engine checks it. Only what may be read is initialised in the emulator, and what is initialised
/// afterwards and was not before has been written.
pub fn launch(ptx: &Ptx, world: &mut World, call: &Call<'_>) -> Result<Option<Report>, Error> {
    let case = &world.case;
    let sizes = case.sizes();
    validate(case, call)?;
    let memory = Memory::new();
    let alloc = |name, bytes: usize| memory.alloc(bytes as u64, 256, name).unwrap();
    let addresses: Vec<u64> = world
        .names
        .iter()
        .zip(&world.buffers)
        .map(|(name, bytes)| alloc(*name, bytes.len()))
        .collect();
    for source in call.moves() {
        let (buffer, range) = source.from;
        let address = addresses[buffer] + range.start as u64;
        memory
            .write(address, &world.buffers[buffer][range])
            .unwrap();
    }
    let put = |name, bytes: &[u8]| {
        let address = alloc(name, bytes.len().max(8));
        memory.write(address, bytes).unwrap();
        address
    };
    let i64s = |name, values: &[i64]| {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        put(name, &bytes)
    };
    let rows = |rows: &[Place; 2]| {
        rows.each_ref().map(|place| {
            let (_, token_stride, head_stride) = row_strides(case, place);
            DeviceRows {
                address: addresses[place.buffer] + place.offset as u64,
                token_stride,
                head_stride,
            }
        })
    };
    let cache = |place: &Place| DeviceCache {
        address: addresses[place.buffer] + place.offset as u64,
        strides: cache_strides(case, place),
    };
    let launch = match call {
        Call::Write {
            rows: from,
            caches,
            slots,
        } => {
            let mapping = i64s("slot_mapping", slots);
            let caches = caches.each_ref().map(cache);
            sizes.reshape_and_cache(slots.len(), rows(from), caches, mapping)
        }
        Call::Copy { caches, pairs } => {
            let list = i64s("pairs", pairs.as_flattened());
            let table: Vec<i64> = caches.iter().map(|c| cache(c).address as i64).collect();
            let table = (caches.len(), i64s("caches", &table));
            match caches.first() {
                None => Ok(None),
                Some(first) => {
                    let strides = cache_strides(case, first);
                    sizes.copy_blocks(table, strides, (pairs.len(), list))
                }
            }
        }
        Call::Gather {
            caches,
            table,
            lens,
            rows: to,
        } => {
            let entries = alloc("block_table", table.entries.len() * 4);
            for (seq, &len) in lens.iter().enumerate() {
                let live = (len as usize).div_ceil(case.block_size);
                let row = &table.entries[seq * table.stride..][..live];
                let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
                let address = entries + (seq * table.stride * 4) as u64;
                memory.write(address, &bytes).unwrap();
            }
            let starts = i64s("starts", &paged_attention::CacheSizes::starts(lens)?);
            let longest = lens.iter().max().map_or(0, |&len| len as usize);
            let table = DeviceTable {
                address: entries,
                row_stride: table.stride,
            };
            let caches = caches.each_ref().map(cache);
            sizes.gather_cache((lens.len(), longest), caches, (table, starts), rows(to))
        }
    }?;
    let Some(launch) = launch else {
        return Ok(None);
    };
    let report = ptx.launch_cache(&memory, &launch)?;
    for (buffer, &address) in world.buffers.iter_mut().zip(&addresses) {
        for at in (0..buffer.len()).step_by(8) {
            let here = address + at as u64;
            match memory.first_unwritten(here, 8).unwrap() {
                None => memory.read(here, &mut buffer[at..at + 8]).unwrap(),
                unwritten => assert_eq!(unwritten, Some(here), "half of 8 bytes is written"),
            }
        }
    }
    Ok(Some(report))
}
