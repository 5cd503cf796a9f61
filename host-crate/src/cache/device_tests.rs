//! The cache kernels' PTX in the emulator, all detectors on, against plain loops. Buffers hold only
//! what a kernel may read: everything else is uninitialised, and must be so afterwards.

use std::collections::BTreeMap;

use half::{bf16, f16};
use ptx_emulator::{Memory, Options, Report};

use crate::element::{bytes_of, bytes_of_mut};
use crate::emulator::Emulator;
use crate::{
    CacheLaunch, CacheLayout, CacheSizes, CacheStrides, DType, DeviceCache, DeviceRows,
    DeviceTable, Element, Error, Op,
};

/// Sizes and strides of one case, in elements.
#[derive(Clone, Copy, Debug)]
struct Case {
    num_blocks: usize,
    block_size: usize,
    heads: usize,
    d: usize,
    /// Of the cache; `block` leaves a gap between K and V of a fused pool.
    strides: CacheStrides,
    token_stride: usize,
    head_stride: usize,
}

/// Layouts, block sizes, head counts and head sizes that divide evenly and do not.
fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (block_size, heads, d) in [
        (1, 1, 32),
        (3, 5, 40),
        (16, 2, 128),
        (48, 8, 80),
        (7, 3, 256),
    ] {
        for layout in [CacheLayout::Nhd, CacheLayout::Hnd] {
            let dense = layout.strides(block_size, heads, d);
            let fused = CacheStrides {
                block: 2 * dense.block,
                ..dense
            };
            for (strides, pad) in [(dense, 0), (fused, 16)] {
                let (token_stride, head_stride) = (heads * (d + pad) + pad, d + pad);
                let num_blocks = 9;
                cases.push(Case {
                    num_blocks,
                    block_size,
                    heads,
                    d,
                    strides,
                    token_stride,
                    head_stride,
                });
            }
        }
    }
    cases
}

impl Case {
    fn sizes<T: Element>(&self) -> CacheSizes {
        let Case {
            num_blocks,
            block_size,
            heads,
            d,
            ..
        } = *self;
        CacheSizes::new(T::DTYPE, num_blocks, block_size, heads, d).unwrap()
    }

    fn cache_len(&self) -> usize {
        self.num_blocks * self.strides.block
    }

    /// Where a slot's row of a head starts in the cache.
    fn at(&self, slot: usize, head: usize) -> usize {
        let Case {
            block_size,
            strides,
            ..
        } = *self;
        slot / block_size * strides.block + slot % block_size * strides.token + head * strides.head
    }

    fn row_at(&self, token: usize, head: usize) -> usize {
        token * self.token_stride + head * self.head_stride
    }

    fn rows(&self, address: u64) -> DeviceRows {
        let Case {
            token_stride,
            head_stride,
            ..
        } = *self;
        DeviceRows {
            address,
            token_stride,
            head_stride,
        }
    }

    fn cache(&self, address: u64) -> DeviceCache {
        DeviceCache {
            address,
            strides: self.strides,
        }
    }
}

/// A device buffer of which the test knows the initialised rows, by element offset.
struct Tracked<T> {
    address: u64,
    len: usize,
    rows: BTreeMap<usize, Vec<T>>,
}

/// Emulated memory, and numbers that never repeat.
struct Device {
    memory: Memory,
    next: u32,
}

impl Device {
    fn new() -> Self {
        Self {
            memory: Memory::new(),
            next: 0,
        }
    }

    fn buffer<T>(&self, name: &str, len: usize) -> Tracked<T> {
        let address = self
            .memory
            .alloc((len * size_of::<T>()) as u64, 256, name)
            .unwrap();
        Tracked {
            address,
            len,
            rows: BTreeMap::new(),
        }
    }

    /// Fills one row with fresh numbers.
    fn fill<T: Element>(&mut self, buffer: &mut Tracked<T>, at: usize, d: usize) {
        let row: Vec<T> = (0..d)
            .map(|_| {
                self.next = self
                    .next
                    .wrapping_mul(1_664_525)
                    .wrapping_add(1_013_904_223);
                T::from_f32((self.next >> 8) as f32 / (1 << 23) as f32 - 1.0)
            })
            .collect();
        let address = buffer.address + (at * size_of::<T>()) as u64;
        self.memory.write(address, bytes_of(&row)).unwrap();
        buffer.rows.insert(at, row);
    }

    fn upload<T: Copy>(&self, name: &str, values: &[T], bytes: impl Fn(T) -> Vec<u8>) -> u64 {
        let address = self
            .memory
            .alloc((size_of_val(values) as u64).max(8), 256, name)
            .unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|&value| bytes(value)).collect();
        self.memory.write(address, &bytes).unwrap();
        address
    }

    fn i64s(&self, name: &str, values: &[i64]) -> u64 {
        self.upload(name, values, |value| value.to_le_bytes().to_vec())
    }

    #[track_caller]
    fn run(&self, launch: Result<Option<CacheLaunch>, Error>) -> Report {
        let launch = launch.unwrap().expect("a launch");
        let emulator = Emulator::embedded();
        emulator
            .launch_cache(&self.memory, &launch, &Options::default())
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The buffer holds the tracked rows, and nothing else was written.
    #[track_caller]
    fn check<T: Element>(&self, buffer: &Tracked<T>, case: &Case) {
        let address = |at: usize| buffer.address + (at * size_of::<T>()) as u64;
        let mut end = 0;
        for (&at, row) in &buffer.rows {
            let mut found = row.clone();
            self.memory
                .read(address(at), bytes_of_mut(&mut found))
                .unwrap();
            assert_eq!(bytes_of(&found), bytes_of(row), "element {at} of {case:?}");
            self.unwritten(buffer, end..at, case);
            end = at + row.len();
        }
        self.unwritten(buffer, end..buffer.len, case);
    }

    #[track_caller]
    fn unwritten<T>(&self, buffer: &Tracked<T>, range: std::ops::Range<usize>, case: &Case) {
        // Eight bytes at a time: rows start at multiples of 16.
        for byte in (range.start * size_of::<T>()..range.end * size_of::<T>()).step_by(8) {
            let address = buffer.address + byte as u64;
            let first = self.memory.first_unwritten(address, 8).unwrap();
            assert_eq!(first, Some(address), "byte {byte} was written: {case:?}");
        }
    }
}

fn writes<T: Element>() {
    for case in cases() {
        let mut device = Device::new();
        let slots = case.num_blocks * case.block_size;
        // The first and the last slot, one in the middle; skipped rows are never read.
        let mapping = [slots as i64 - 1, -1, slots as i64 / 2, i64::MIN, 0, -7];
        let mut caches = ["k_cache", "v_cache"].map(|name| device.buffer(name, case.cache_len()));
        let len = mapping.len() * case.token_stride;
        let mut rows = ["k", "v"].map(|name| device.buffer::<T>(name, len));
        for (rows, cache) in rows.iter_mut().zip(&mut caches) {
            for (token, &slot) in mapping.iter().enumerate().filter(|(_, slot)| **slot >= 0) {
                for head in 0..case.heads {
                    device.fill(rows, case.row_at(token, head), case.d);
                    let row = rows.rows[&case.row_at(token, head)].clone();
                    cache.rows.insert(case.at(slot as usize, head), row);
                }
            }
        }
        let slot_mapping = device.i64s("slot_mapping", &mapping);
        device.run(case.sizes::<T>().reshape_and_cache(
            mapping.len(),
            rows.each_ref().map(|rows| case.rows(rows.address)),
            caches.each_ref().map(|cache| case.cache(cache.address)),
            slot_mapping,
        ));
        for cache in &caches {
            device.check(cache, &case);
        }
    }
}

fn copies<T: Element>() {
    for case in cases() {
        let mut device = Device::new();
        let pairs = [[0, 8], [3, 1], [0, 5]];
        let mut caches: Vec<Tracked<T>> = (0..3)
            .map(|_| device.buffer("cache", case.cache_len()))
            .collect();
        for cache in &mut caches {
            for source in [0, 3] {
                for slot in 0..case.block_size {
                    for head in 0..case.heads {
                        let at = case.at(source * case.block_size + slot, head);
                        device.fill(cache, at, case.d);
                    }
                }
            }
            for [source, destination] in pairs {
                let offset = |block| block * case.strides.block;
                let range = offset(source)..offset(source + 1);
                let rows: Vec<_> = cache
                    .rows
                    .range(range)
                    .map(|(k, v)| (*k, v.clone()))
                    .collect();
                let moved = rows
                    .into_iter()
                    .map(|(at, row)| (at - offset(source) + offset(destination), row));
                cache.rows.extend(moved);
            }
        }
        let addresses: Vec<i64> = caches.iter().map(|cache| cache.address as i64).collect();
        let table = device.i64s("caches", &addresses);
        let flat: Vec<i64> = pairs
            .as_flattened()
            .iter()
            .map(|&block| block as i64)
            .collect();
        let list = device.i64s("pairs", &flat);
        let sizes = case.sizes::<T>();
        device.run(sizes.copy_blocks((3, table), case.strides, (pairs.len(), list)));
        for cache in &caches {
            device.check(cache, &case);
        }
    }
}

fn gathers<T: Element>() {
    for case in cases() {
        let mut device = Device::new();
        let size = case.block_size;
        // Full blocks, an empty sequence, a half-full last block, a single token.
        let lens = [2 * size, 0, 3 * size + size / 2, 1];
        let table = [[5, 2, -1, -1], [-1; 4], [7, 0, 8, 1], [3, 99, -1, -1]];
        let mut starts = vec![0i64];
        lens.iter()
            .for_each(|&len| starts.push(starts[starts.len() - 1] + len as i64));
        let total = starts[lens.len()] as usize;
        let mut caches = ["k_cache", "v_cache"].map(|name| device.buffer(name, case.cache_len()));
        let mut rows = ["k", "v"].map(|name| device.buffer::<T>(name, total * case.token_stride));
        for (rows, cache) in rows.iter_mut().zip(&mut caches) {
            for (s, &len) in lens.iter().enumerate() {
                for token in 0..len {
                    let slot = table[s][token / size] as usize * size + token % size;
                    for head in 0..case.heads {
                        device.fill(cache, case.at(slot, head), case.d);
                        let row = cache.rows[&case.at(slot, head)].clone();
                        rows.rows
                            .insert(case.row_at(starts[s] as usize + token, head), row);
                    }
                }
            }
        }
        let entries = device.memory.alloc(64, 256, "block_table").unwrap();
        for (s, &len) in lens.iter().enumerate() {
            let live = &table[s][..len.div_ceil(size)];
            device
                .memory
                .write(entries + s as u64 * 16, bytes_of(live))
                .unwrap();
        }
        let starts = device.i64s("starts", &starts);
        device.run(case.sizes::<T>().gather_cache(
            (lens.len(), 3 * size + size / 2),
            caches.each_ref().map(|cache| case.cache(cache.address)),
            (
                DeviceTable {
                    address: entries,
                    row_stride: 4,
                },
                starts,
            ),
            rows.each_ref().map(|rows| case.rows(rows.address)),
        ));
        for rows in &rows {
            device.check(rows, &case);
        }
    }
}

#[test]
fn reshape_and_cache_writes_the_slots_of_the_mapping_and_nothing_else() {
    writes::<f32>();
    writes::<f16>();
    writes::<bf16>();
}

#[test]
fn copy_blocks_copies_every_cache_and_nothing_else() {
    copies::<f32>();
    copies::<f16>();
    copies::<bf16>();
}

#[test]
fn gather_cache_reads_live_slots_and_writes_rows_and_nothing_else() {
    gathers::<f32>();
    gathers::<f16>();
    gathers::<bf16>();
}

/// Keys and values pass through once; slots, pairs and table entries are all that comes on top.
#[test]
fn sectors_are_the_least_that_the_bytes_take() {
    let (block_size, heads, d) = (16, 8, 128);
    let strides = CacheLayout::Nhd.strides(block_size, heads, d);
    let (token_stride, head_stride) = (heads * d, d);
    let case = Case {
        num_blocks: 9,
        block_size,
        heads,
        d,
        strides,
        token_stride,
        head_stride,
    };
    let sizes = case.sizes::<f16>();
    let mut device = Device::new();
    let mut cache = device.buffer::<f16>("k_cache", case.cache_len());
    for slot in 0..case.num_blocks * block_size {
        for head in 0..heads {
            device.fill(&mut cache, case.at(slot, head), d);
        }
    }
    let kv = [case.cache(cache.address); 2];
    let tokens = 64;
    let sectors = (2 * tokens * heads * d * size_of::<f16>() / 32) as u64;
    let rows = device.buffer::<f16>("rows", tokens * token_stride);

    let table = [8, 1, 5, 3];
    let entries = device.upload("table", &table, |block: i32| block.to_le_bytes().to_vec());
    let table = DeviceTable {
        address: entries,
        row_stride: 4,
    };
    let starts = device.i64s("starts", &[0, tokens as i64]);
    let out = [case.rows(rows.address); 2];
    let report = device.run(sizes.gather_cache((1, tokens), kv, (table, starts), out));
    let found = &report.counters.allocations;
    assert_eq!(
        (found["k_cache"].loaded, found["rows"].stored),
        (sectors, sectors)
    );
    // One entry for every 32 lanes' 16 bytes, and two starts per warp.
    assert!(found["table"].loaded <= sectors / 16, "{found:?}");

    let mapping: Vec<i64> = (0..tokens as i64)
        .map(|token| (token * 37 + 5) % 144)
        .collect();
    let mapping = device.i64s("slot_mapping", &mapping);
    let report = device.run(sizes.reshape_and_cache(tokens, out, kv, mapping));
    let found = &report.counters.allocations;
    assert_eq!(
        (found["rows"].loaded, found["k_cache"].stored),
        (sectors, sectors)
    );

    let caches = device.i64s("caches", &[cache.address as i64]);
    let pairs = device.i64s("pairs", &[8, 0, 7, 1]);
    let report = device.run(sizes.copy_blocks((1, caches), strides, (2, pairs)));
    let found = &report.counters.allocations;
    let sectors = (2 * strides.block * size_of::<f16>() / 32) as u64;
    assert_eq!(
        (found["k_cache"].loaded, found["k_cache"].stored),
        (sectors, sectors)
    );
}

#[test]
fn nothing_to_do_launches_nothing() {
    let sizes = CacheSizes::new(DType::F16, 4, 16, 2, 64).unwrap();
    let rows = [DeviceRows {
        address: 0,
        token_stride: 0,
        head_stride: 0,
    }; 2];
    let strides = CacheLayout::Nhd.strides(16, 2, 64);
    let cache = [DeviceCache {
        address: 0,
        strides,
    }; 2];
    let table = DeviceTable {
        address: 0,
        row_stride: 0,
    };
    assert_eq!(sizes.reshape_and_cache(0, rows, cache, 0), Ok(None));
    assert_eq!(sizes.copy_blocks((0, 0), strides, (3, 0)), Ok(None));
    assert_eq!(sizes.copy_blocks((3, 0), strides, (0, 0)), Ok(None));
    assert_eq!(
        sizes.gather_cache((0, 9), cache, (table, 0), rows),
        Ok(None)
    );
    assert_eq!(
        sizes.gather_cache((9, 0), cache, (table, 0), rows),
        Ok(None)
    );
}

#[test]
fn launches_refuse_addresses_strides_and_sizes_that_the_kernels_cannot_take() {
    let sizes = CacheSizes::new(DType::F16, 4, 16, 2, 64).unwrap();
    let op = Op::ReshapeAndCache;
    let strides = CacheLayout::Nhd.strides(16, 2, 64);
    let rows = |address, head_stride| {
        [DeviceRows {
            address,
            token_stride: 128,
            head_stride,
        }; 2]
    };
    let cache = |address| [DeviceCache { address, strides }; 2];
    let refused = |rows, cache, slots| sizes.reshape_and_cache(3, rows, cache, slots).unwrap_err();
    let (argument, alignment) = ("k_cache", 16);
    let expected = Error::BaseNotAligned {
        op,
        argument,
        address: 264,
        alignment,
    };
    assert_eq!(refused(rows(256, 64), cache(264), 256), expected);
    let argument = "slot_mapping";
    assert_eq!(
        refused(rows(256, 64), cache(256), 0),
        Error::NullPointer { op, argument }
    );
    let error = refused(rows(256, 60), cache(256), 256);
    assert!(
        error
            .to_string()
            .starts_with("reshape_and_cache: k.head_stride = 60 elements")
    );

    let error = CacheSizes::new(DType::F16, 1 << 28, 16, 2, 64).unwrap_err();
    assert_eq!(
        error.to_string(),
        "config: num_blocks * block_size = 4294967296, must be between 0 and 2147483647"
    );
    let error = CacheSizes::new(DType::F16, 4, 16, 2, 60).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("cache.row_stride = 60 elements (120 bytes)"),
        "{error}"
    );
    assert!(CacheSizes::new(DType::F32, 0, 1, usize::MAX / 2, 4).is_err());
}
