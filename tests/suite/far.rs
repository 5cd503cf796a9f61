//! Element offsets past 2^31 and 2^32: blocks that lie far from the pool's start.

use half::f16;
use half::slice::HalfBitsSliceExt;
use paged_attention::kernels::variants::{DECODE, DecodeKind, DecodeVariant};
use paged_attention::{
    BlockTable, CacheStrides, CacheView, DType, DecodeInputs, LaunchArgs, RowsView, RowsViewMut,
    cpu,
};
use ptx_emulator::Module;

use crate::backend::{Backend, Cpu, KernelOrder, Ptx, sets};
use crate::batch::Batch;
use crate::case::Case;
use crate::compare::within;
use crate::device::Device;
use crate::{bound, oracle};

/// (block, block stride in elements): element offsets of 2^31, 2^32 and 2^38.
pub const PLACES: [(i32, usize); 4] = [(32, 1 << 26), (64, 1 << 26), (1, 1 << 32), (64, 1 << 32)];

/// One sequence in one block of `place`; the pool's start is nowhere in memory, which a kernel that
/// reads live slots alone does not notice. The error is in the launch; a wrong output panics.
pub fn decode(
    module: &Module,
    variant: &DecodeVariant,
    place: (i32, usize),
) -> Result<(), ptx_emulator::Error> {
    let heads = match variant.kind {
        DecodeKind::CudaCore if variant.heads_per_tile == 1 => (2, 2),
        _ => (8, 2),
    };
    // Blocks of 16 are whole units, blocks of 24 are not.
    for block_size in [16, 24] {
        let case = Case::new(variant.dtype, variant.head_dim as usize, &[13]);
        let case = Case {
            spare_blocks: 0,
            ..case.heads(heads.0, heads.1).block_size(block_size)
        };
        let batch = Batch::new(&case);
        assert_eq!(batch.plan.decode_variant().entry, variant.entry);
        let mut device = Device::upload(&batch, batch.plan.workspace_bytes());
        let (block, stride) = place;
        let start = block as u64 * stride as u64 * u64::from(case.dtype.bytes());
        for cache in [&mut device.tensors.k_cache, &mut device.tensors.v_cache] {
            cache.strides.block = stride;
            cache.address -= start;
        }
        let table = device.tensors.block_table.address;
        device.memory.write(table, &block.to_le_bytes()).unwrap();
        let launch = batch
            .plan
            .launches(&device.tensors)
            .unwrap()
            .decode
            .unwrap();
        let LaunchArgs::Decode(_) = launch.args else {
            panic!("{launch:?}")
        };
        device.launch(module, variant.entry, &launch, launch.args)?;
        let out = device.out(&batch, batch.out_len);
        compare(&KernelOrder, &batch, &out);
    }
    Ok(())
}

#[track_caller]
fn compare(order: &dyn bound::Order, batch: &Batch, out: &[f32]) {
    let d = batch.case.head_dim;
    for h in 0..batch.case.num_q_heads {
        let seq = &batch.logical.seqs[0];
        let row = oracle::row(batch.config(), seq, h);
        let bounds = bound::bounds(order, &batch.plan, seq, h, &row);
        for i in 0..d {
            within("out", (0, h, i), out[h * d + i], row.out[i], bounds.out[i])
                .unwrap_or_else(|error| panic!("{error}\n{}", batch.case));
        }
    }
}

sets!(offsets_pass_2_to_the_31_and_32);

fn offsets_pass_2_to_the_31_and_32(ptx: &Ptx) {
    for variant in DECODE.iter().filter(|v| [64, 120].contains(&v.head_dim)) {
        let file = &ptx.set().entry(variant.entry).unwrap().file;
        let module = Module::parse(ptx.set().ptx(file).unwrap()).unwrap();
        for place in PLACES {
            decode(&module, variant, place)
                .unwrap_or_else(|error| panic!("{}, {place:?}: {error}", variant.entry));
        }
    }
}

/// Zeroed memory of which the system backs only the pages that are touched.
#[test]
fn cpu_offsets_pass_2_to_the_31() {
    let case = Case {
        spare_blocks: 0,
        ..Case::new(DType::F16, 64, &[13])
    };
    let batch = Batch::new(&case);
    let typed = batch.typed::<f16>();
    let inputs = typed.inputs();
    let (block, stride) = PLACES[0];
    let table = [block];
    let block_elements = batch.k.strides.block;
    let start = block as usize * stride;
    let pool = |data: &[f16]| {
        let mut bits = vec![0u16; start + block_elements];
        bits[start..]
            .reinterpret_cast_mut::<f16>()
            .copy_from_slice(data);
        bits
    };
    let (k, v) = (pool(inputs.k_cache.data()), pool(inputs.v_cache.data()));
    let view = |bits| {
        let strides = CacheStrides {
            block: stride,
            ..batch.k.strides
        };
        CacheView::with_strides(bits, block as usize + 1, 16, 1, 64, strides)
    };
    let inputs = DecodeInputs {
        k_cache: view(k.reinterpret_cast::<f16>()),
        v_cache: view(v.reinterpret_cast::<f16>()),
        block_table: BlockTable::new(&table, 1, 1),
        q: RowsView::contiguous(inputs.q.data(), 1, 2, 64),
        seq_lens: &[13],
    };
    let mut out = vec![f16::NAN; 2 * 64];
    let rows = RowsViewMut::contiguous(&mut out, 1, 2, 64);
    cpu::decode(&batch.plan, &inputs, rows, None, &mut []).unwrap();
    let out: Vec<f32> = out.iter().map(|x| x.to_f32()).collect();
    compare(Cpu.order(), &batch, &out);
}
