//! Offsets past 2^31 and 2^32 bytes: slots and blocks that lie far from the cache's start.

use half::f16;
use half::slice::HalfBitsSliceExt;
use paged_attention::{
    CacheLaunch, CacheLayout, CacheSizes, CacheStrides, CacheViewMut, DType, DeviceCache,
    DeviceRows, DeviceTable, Error, RowsView, cpu,
};
use ptx_emulator::{Memory, Report};

use crate::backend::{Ptx, sets};
use crate::far::PLACES;
use crate::random::Random;

const HEADS: usize = 2;
const D: usize = 64;
const BLOCK_SIZE: usize = 16;
/// Bytes of a block.
const BLOCK: usize = BLOCK_SIZE * HEADS * D * 2;
/// Bytes of a token's keys.
const TOKEN: usize = HEADS * D * 2;

/// Emulated memory whose contents are random and known.
struct Device {
    memory: Memory,
    random: Random,
}

impl Device {
    fn new() -> Self {
        Self {
            memory: Memory::new(),
            random: Random::new(1, 0),
        }
    }

    fn alloc(&self, bytes: usize, name: &str) -> u64 {
        self.memory.alloc(bytes as u64, 256, name).unwrap()
    }

    fn random(&mut self, bytes: usize, name: &str) -> (u64, Vec<u8>) {
        let words = (0..bytes / 8).flat_map(|_| self.random.bits().to_le_bytes());
        let contents: Vec<u8> = words.collect();
        let address = self.alloc(bytes, name);
        self.memory.write(address, &contents).unwrap();
        (address, contents)
    }

    fn i64s(&self, values: &[i64], name: &str) -> u64 {
        let address = self.alloc(values.len() * 8, name);
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.memory.write(address, &bytes).unwrap();
        address
    }

    fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut contents = vec![0; bytes];
        self.memory.read(address, &mut contents).unwrap();
        contents
    }

    fn run(&self, ptx: &Ptx, launch: Option<CacheLaunch>) -> Result<Report, Error> {
        ptx.launch_cache(&self.memory, &launch.expect("a launch"))
    }
}

fn sizes(num_blocks: usize) -> CacheSizes {
    CacheSizes::new(DType::F16, num_blocks, BLOCK_SIZE, HEADS, D).unwrap()
}

fn strides(block: usize) -> CacheStrides {
    CacheStrides {
        block,
        ..CacheLayout::Nhd.strides(BLOCK_SIZE, HEADS, D)
    }
}

/// A cache of which block `place.0` lies at `block`; its start is nowhere in memory.
fn cache(block: u64, place: (i32, usize)) -> DeviceCache {
    let start = place.0 as u64 * place.1 as u64 * 2;
    DeviceCache {
        address: block.wrapping_sub(start),
        strides: strides(place.1),
    }
}

fn rows(address: u64) -> DeviceRows {
    DeviceRows {
        address,
        token_stride: HEADS * D,
        head_stride: D,
    }
}

/// Writes one token to the last slot of a far block. A wrong result panics.
pub fn write(ptx: &Ptx, place: (i32, usize)) -> Result<(), Error> {
    let mut device = Device::new();
    let blocks = ["k_cache", "v_cache"].map(|name| device.alloc(BLOCK, name));
    let tokens = ["k", "v"].map(|name| device.random(TOKEN, name));
    let slots = device.i64s(&[place.0 as i64 * BLOCK_SIZE as i64 + 15], "slot_mapping");
    let launch = sizes(place.0 as usize + 1).reshape_and_cache(
        1,
        tokens.each_ref().map(|(address, _)| rows(*address)),
        blocks.map(|block| cache(block, place)),
        slots,
    )?;
    device.run(ptx, launch)?;
    for (block, (_, row)) in blocks.into_iter().zip(&tokens) {
        let slot = block + 15 * TOKEN as u64;
        assert_eq!(&device.read(slot, TOKEN), row, "{place:?}");
        for slot in 0..15 {
            let row = block + slot * TOKEN as u64;
            let unwritten = device.memory.first_unwritten(row, TOKEN as u64).unwrap();
            assert_eq!(unwritten, Some(row), "{place:?}");
        }
    }
    Ok(())
}

sets!(
    writes_to_slots_past_2_to_the_31_and_32,
    gathers_from_slots_past_2_to_the_31_and_32,
    copies_blocks_past_2_to_the_32,
);

fn writes_to_slots_past_2_to_the_31_and_32(ptx: &Ptx) {
    for place in PLACES {
        write(ptx, place).unwrap_or_else(|error| panic!("{place:?}: {error}"));
    }
}

fn gathers_from_slots_past_2_to_the_31_and_32(ptx: &Ptx) {
    for place in PLACES {
        let mut device = Device::new();
        let blocks = ["k_cache", "v_cache"].map(|name| device.random(BLOCK, name));
        let out = ["k", "v"].map(|name| device.alloc(13 * TOKEN, name));
        let table = device.alloc(4, "block_table");
        device.memory.write(table, &place.0.to_le_bytes()).unwrap();
        let starts = device.i64s(&[0, 13], "starts");
        let table = DeviceTable {
            address: table,
            row_stride: 1,
        };
        let launch = sizes(place.0 as usize + 1)
            .gather_cache(
                (1, 13),
                blocks.each_ref().map(|(block, _)| cache(*block, place)),
                (table, starts),
                out.map(rows),
            )
            .unwrap();
        device
            .run(ptx, launch)
            .unwrap_or_else(|error| panic!("{place:?}: {error}"));
        for (out, (_, block)) in out.into_iter().zip(&blocks) {
            assert_eq!(
                device.read(out, 13 * TOKEN),
                block[..13 * TOKEN],
                "{place:?}"
            );
        }
    }
}

/// Neighbours with numbers so large that both lie past 2^32 bytes.
fn copies_blocks_past_2_to_the_32(ptx: &Ptx) {
    let mut device = Device::new();
    let (source, contents) = device.random(BLOCK, "cache");
    let destination = device.alloc(BLOCK, "cache");
    let stride = (destination - source) as usize / 2;
    for block in [(1 << 26) - 2, 1 << 24] {
        let far = cache(source, (block, stride));
        assert!(block as usize * stride * 2 > 1 << 32);
        let caches = device.i64s(&[far.address as i64], "caches");
        let pairs = device.i64s(&[block.into(), i64::from(block) + 1], "pairs");
        let launch = sizes(block as usize + 2)
            .copy_blocks((1, caches), far.strides, (1, pairs))
            .unwrap();
        device.run(ptx, launch).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(device.read(destination, BLOCK), contents);
        device.memory.write(destination, &[0; BLOCK]).unwrap();
    }
}

/// Zeroed memory of which the system backs only the pages that are touched.
#[test]
fn cpu_writes_and_copies_past_2_to_the_32_bytes() {
    let (block, stride) = PLACES[0];
    let (block, row) = (block as usize, HEADS * D);
    let mut data = vec![0u16; block * stride + BLOCK / 2];
    fn cache(data: &mut [u16], (block, stride): (usize, usize)) -> CacheViewMut<'_, f16> {
        let data = data.reinterpret_cast_mut();
        CacheViewMut::with_strides(data, (block + 1, BLOCK_SIZE, HEADS, D), strides(stride))
    }
    let place = (block, stride);
    let token: Vec<f16> = (0..row).map(|i| f16::from_f32(i as f32 - 64.0)).collect();
    let view = RowsView::contiguous(&token, 1, HEADS, D);
    let slot = block * BLOCK_SIZE + 15;
    cpu::reshape_and_cache(view, cache(&mut data, place), &[slot as i64]).unwrap();
    let bits: Vec<u16> = token.iter().map(|x| x.to_bits()).collect();
    let at = block * stride;
    assert_eq!(data[at + 15 * row..], bits);
    assert!(data[at..at + 15 * row].iter().all(|&x| x == 0));
    cpu::copy_blocks(&mut [cache(&mut data, place)], &[[block as i64, 0]]).unwrap();
    assert_eq!(data[15 * row..16 * row], bits);
}
