//! Launches of the shipped kernels: what a driver, or the emulator, is asked to do.

use crate::kernels::abi::{DecodeArgs, MergeArgs};
use crate::kernels::geometry::head_tiles;
use crate::kernels::offsets::BlockDivisor;
use crate::{ALIGNMENT, CacheStrides, Error, Op, Plan};

/// `[num_seqs, num_heads, head_dim]` in device memory: q or out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRows {
    /// Address of the first element.
    pub address: u64,
    /// Elements from one sequence's row to the next.
    pub token_stride: usize,
    /// Elements from one head to the next.
    pub head_stride: usize,
}

/// A key or value cache in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCache {
    /// Address of the first element.
    pub address: u64,
    /// Strides in elements.
    pub strides: CacheStrides,
}

/// A block table in device memory, i32 `[num_seqs, row_stride]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTable {
    /// Address of the first entry.
    pub address: u64,
    /// Entries from one sequence's row to the next.
    pub row_stride: usize,
}

/// Device addresses and strides of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTensors {
    /// Queries.
    pub q: DeviceRows,
    /// Keys.
    pub k_cache: DeviceCache,
    /// Values.
    pub v_cache: DeviceCache,
    /// Block table.
    pub block_table: DeviceTable,
    /// Address of the lengths, i32 `[num_seqs]`.
    pub seq_lens: u64,
    /// Output.
    pub out: DeviceRows,
    /// Address of the log-sum-exp, f32 `[num_seqs, num_q_heads]`, if wanted.
    pub lse: Option<u64>,
    /// Address of [`Plan::workspace_bytes`] bytes; anything, 0 too, where that is 0.
    pub workspace: u64,
}

/// Arguments of one launch: a struct by value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LaunchArgs {
    /// For a decode entry.
    Decode(DecodeArgs),
    /// For a merge entry.
    Merge(MergeArgs),
}

impl LaunchArgs {
    /// The parameter buffer, little endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            LaunchArgs::Decode(args) => args.to_bytes().to_vec(),
            LaunchArgs::Merge(args) => args.to_bytes().to_vec(),
        }
    }
}

/// One kernel launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Launch {
    /// Symbol in the PTX file of the plan's (dtype, head_dim).
    pub entry: &'static str,
    /// Grid dimensions.
    pub grid: [u32; 3],
    /// CTA dimensions.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// The single argument.
    pub args: LaunchArgs,
}

/// The launches of one call, in order, on one stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Launches {
    /// Decode; none for an empty batch.
    pub decode: Option<Launch>,
    /// Merge, after decode; none with a single split.
    pub merge: Option<Launch>,
}

impl Launches {
    /// The launches in order.
    pub fn iter(&self) -> impl Iterator<Item = &Launch> {
        self.decode.iter().chain(&self.merge)
    }
}

impl Plan {
    /// The launches that compute this plan over `tensors`. Nothing is allocated.
    ///
    /// # Errors
    /// [`Error::NullPointer`], [`Error::BaseNotAligned`] and [`Error::StrideNotAligned`]. What lies
    /// in device memory, and whether the addresses reach far enough, is for the caller to know.
    pub fn launches(&self, tensors: &DeviceTensors) -> Result<Launches, Error> {
        if self.num_seqs() == 0 {
            return Ok(Launches {
                decode: None,
                merge: None,
            });
        }
        self.check_device_tensors(tensors)?;
        let config = self.config();
        let variant = self.decode_variant();
        let group_size = config.group_size() as u32;
        let (partial_out, partial_ml) = if self.num_splits() == 1 {
            (0, 0)
        } else {
            let out_bytes = (self.partial_out_len() * size_of::<f32>()) as u64;
            (tensors.workspace, tensors.workspace.wrapping_add(out_bytes))
        };
        let lse = tensors.lse.unwrap_or(0);
        let divisor = BlockDivisor::new(config.block_size as u32);
        let decode = DecodeArgs {
            q: tensors.q.address,
            k_cache: tensors.k_cache.address,
            v_cache: tensors.v_cache.address,
            block_table: tensors.block_table.address,
            seq_lens: tensors.seq_lens,
            out: tensors.out.address,
            lse,
            partial_out,
            partial_ml,
            q_token_stride: tensors.q.token_stride as i64,
            q_head_stride: tensors.q.head_stride as i64,
            out_token_stride: tensors.out.token_stride as i64,
            out_head_stride: tensors.out.head_stride as i64,
            k_block_stride: tensors.k_cache.strides.block as i64,
            k_token_stride: tensors.k_cache.strides.token as i64,
            k_head_stride: tensors.k_cache.strides.head as i64,
            v_block_stride: tensors.v_cache.strides.block as i64,
            v_token_stride: tensors.v_cache.strides.token as i64,
            v_head_stride: tensors.v_cache.strides.head as i64,
            table_stride: tensors.block_table.row_stride as i64,
            scale_log2: config.scale * std::f32::consts::LOG2_E,
            num_q_heads: config.num_q_heads as u32,
            group_size,
            head_tiles: head_tiles(variant, group_size),
            block_size: config.block_size as u32,
            block_magic: divisor.magic,
            block_shift: divisor.shift,
            split_tokens: self.split_tokens(),
            num_splits: self.num_splits(),
            reserved: 0,
        };
        let merge = (self.num_splits() > 1).then(|| Launch {
            entry: self.merge_variant().entry,
            grid: self.merge_grid(),
            block: self.block(),
            shared_bytes: self.merge_shared_bytes(),
            args: LaunchArgs::Merge(MergeArgs {
                partial_out,
                partial_ml,
                seq_lens: tensors.seq_lens,
                out: tensors.out.address,
                lse,
                out_token_stride: decode.out_token_stride,
                out_head_stride: decode.out_head_stride,
                num_q_heads: decode.num_q_heads,
                split_tokens: self.split_tokens(),
                num_splits: self.num_splits(),
                reserved: 0,
            }),
        });
        let decode = Launch {
            entry: variant.entry,
            grid: self.decode_grid(),
            block: self.block(),
            shared_bytes: self.decode_shared_bytes(),
            args: LaunchArgs::Decode(decode),
        };
        Ok(Launches {
            decode: Some(decode),
            merge,
        })
    }

    fn check_device_tensors(&self, tensors: &DeviceTensors) -> Result<(), Error> {
        let op = Op::Decode;
        let base = |argument, address: u64, alignment: usize| {
            if address == 0 {
                return Err(Error::NullPointer { op, argument });
            }
            if !address.is_multiple_of(alignment as u64) {
                return Err(Error::BaseNotAligned {
                    op,
                    argument,
                    address,
                    alignment,
                });
            }
            Ok(())
        };
        base("q", tensors.q.address, ALIGNMENT)?;
        base("k_cache", tensors.k_cache.address, ALIGNMENT)?;
        base("v_cache", tensors.v_cache.address, ALIGNMENT)?;
        base("block_table", tensors.block_table.address, 4)?;
        base("seq_lens", tensors.seq_lens, 4)?;
        base("out", tensors.out.address, ALIGNMENT)?;
        if let Some(lse) = tensors.lse {
            base("lse", lse, 4)?;
        }
        if self.workspace_bytes() > 0 {
            base("workspace", tensors.workspace, ALIGNMENT)?;
        }
        let bytes = self.config().dtype.bytes() as usize;
        let stride = |argument, stride, elements: usize| {
            crate::checks::stride_aligned(op, argument, stride, elements, bytes)
        };
        for (argument, rows) in [("q", &tensors.q), ("out", &tensors.out)] {
            stride(argument, "token", rows.token_stride)?;
            stride(argument, "head", rows.head_stride)?;
        }
        for (argument, cache) in [("k_cache", &tensors.k_cache), ("v_cache", &tensors.v_cache)] {
            stride(argument, "block", cache.strides.block)?;
            stride(argument, "token", cache.strides.token)?;
            stride(argument, "head", cache.strides.head)?;
        }
        Ok(())
    }
}
