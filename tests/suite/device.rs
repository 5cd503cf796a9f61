//! Launches over emulated memory that a test lays out itself.

use paged_attention::kernels::abi::DecodeArgs;
use paged_attention::{
    DeviceCache, DeviceRows, DeviceTable, DeviceTensors, Element, Launch, LaunchArgs,
};
use ptx_emulator::{Error, Launch as Geometry, Memory, Module, Options, Report};

use crate::backend::with_element;
use crate::batch::{Batch, Place};

/// Emulated device memory with a batch in it.
pub struct Device {
    pub memory: Memory,
    pub tensors: DeviceTensors,
}

impl Device {
    /// Uploads a batch. `workspace_bytes` may be other than what the plan asks for.
    pub fn upload(batch: &Batch, workspace_bytes: usize) -> Self {
        with_element!(batch.case.dtype, T => Self::upload_as::<T>(batch, workspace_bytes))
    }

    fn upload_as<T: Element>(batch: &Batch, workspace_bytes: usize) -> Self {
        let memory = Memory::new();
        let rows = |name, data: &[f32], strides: (usize, usize)| DeviceRows {
            address: put(&memory, name, &bytes::<T>(data)),
            token_stride: strides.0,
            head_stride: strides.1,
        };
        let cache = |name, place: Place| DeviceCache {
            address: put(
                &memory,
                name,
                &bytes::<T>(&batch.pools[place.pool][place.offset..]),
            ),
            strides: place.strides,
        };
        let integers = |name, values: &[i32]| {
            let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            put(&memory, name, &bytes)
        };
        let reserve = |name, bytes: usize| memory.alloc(bytes as u64, 256, name).unwrap();
        let heads = batch.case.num_q_heads;
        let tensors = DeviceTensors {
            q: rows("q", &batch.q, batch.q_strides),
            k_cache: cache("k_cache", batch.k),
            v_cache: cache("v_cache", batch.v),
            block_table: DeviceTable {
                address: integers("block_table", &batch.table),
                row_stride: batch.table_stride,
            },
            seq_lens: integers("seq_lens", &batch.lens),
            out: DeviceRows {
                address: reserve("out", batch.out_len * size_of::<T>()),
                token_stride: batch.out_strides.0,
                head_stride: batch.out_strides.1,
            },
            lse: Some(reserve("lse", batch.num_seqs() * heads * size_of::<f32>())),
            workspace: reserve("workspace", workspace_bytes),
        };
        Self { memory, tensors }
    }

    /// Launches an entry of `module` with the geometry of `launch` and `args`.
    pub fn launch(
        &self,
        module: &Module,
        entry: &str,
        launch: &Launch,
        args: LaunchArgs,
    ) -> Result<Report, Error> {
        let geometry = Geometry {
            grid: launch.grid,
            block: launch.block,
            shared_bytes: launch.shared_bytes,
        };
        module.launch(
            &self.memory,
            entry,
            geometry,
            &args.to_bytes(),
            &Options::default(),
        )
    }

    /// `count` elements of `out`, widened.
    pub fn out(&self, batch: &Batch, count: usize) -> Vec<f32> {
        let mut bytes = vec![0; count * batch.case.dtype.bytes() as usize];
        self.memory
            .read(self.tensors.out.address, &mut bytes)
            .unwrap();
        match batch.case.dtype {
            paged_attention::DType::F32 => bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect(),
            paged_attention::DType::F16 => bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| half::f16::from_le_bytes(*b).to_f32())
                .collect(),
            paged_attention::DType::Bf16 => bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| half::bf16::from_le_bytes(*b).to_f32())
                .collect(),
        }
    }
}

/// The arguments of a decode launch.
#[track_caller]
pub fn decode_args(launch: &Launch) -> DecodeArgs {
    match launch.args {
        LaunchArgs::Decode(args) => args,
        LaunchArgs::Merge(_) => panic!("not a decode launch: {launch:?}"),
    }
}

fn put(memory: &Memory, name: &str, bytes: &[u8]) -> u64 {
    let address = memory.alloc(bytes.len() as u64, 256, name).unwrap();
    memory.write(address, bytes).unwrap();
    address
}

/// Values in the storage type, little endian.
pub fn bytes<T: Element>(values: &[f32]) -> Vec<u8> {
    let narrow = |x: f32| match T::DTYPE {
        paged_attention::DType::F32 => x.to_le_bytes().to_vec(),
        paged_attention::DType::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
        paged_attention::DType::Bf16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
    };
    values.iter().flat_map(|&x| narrow(x)).collect()
}
