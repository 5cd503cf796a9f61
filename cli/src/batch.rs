//! A batch: q, K and V caches, block table and lengths, in memory or in a file.

use std::io::{self, Write};
use std::path::Path;

use paged_attention::{
    AttentionConfig, BlockTable, CacheLayout, CacheView, DType, DecodeInputs, Element,
    Error as LibraryError, Op, RowsView,
};
use safetensors::Dtype;

use crate::buffer::{Buffer, Number};
use crate::error::Error;
use crate::output::byte_bar;
use crate::tensors::{TensorFile, TensorInfo};
use crate::text::field;

/// Elements that can be computed with and stored in a file.
pub trait Storage: Element + Number {}
impl<T: Element + Number> Storage for T {}

/// Tensors of a batch.
pub const TENSORS: &[&str] = &["q", "k_cache", "v_cache", "block_table", "seq_lens"];

/// Shapes of a batch's tensors, each as its tensor has it: whether they agree is for the library to
/// say.
#[derive(Clone, Copy)]
pub struct Shapes {
    pub layout: CacheLayout,
    /// `[num_seqs, num_q_heads, head_dim]`
    pub q: [usize; 3],
    /// `[num_blocks, block_size, num_kv_heads, head_dim]`, or as the layout has it.
    pub k_cache: [usize; 4],
    /// As `k_cache`.
    pub v_cache: [usize; 4],
    /// `[num_seqs, max_blocks_per_seq]`
    pub block_table: [usize; 2],
    /// `[num_seqs]`
    pub seq_lens: [usize; 1],
    /// Whether the block table and the lengths are u32 where they come from.
    pub unsigned: [bool; 2],
}

/// Dimensions of a cache by name.
#[derive(Clone, Copy)]
pub struct CacheDims {
    pub num_blocks: usize,
    pub block_size: usize,
    pub num_kv_heads: usize,
    pub head_dim: usize,
}

impl CacheDims {
    /// From a shape in the order of the layout.
    pub fn named(layout: CacheLayout, shape: [usize; 4]) -> Self {
        let [num_blocks, a, b, head_dim] = shape;
        let (block_size, num_kv_heads) = match layout {
            CacheLayout::Nhd => (a, b),
            CacheLayout::Hnd => (b, a),
        };
        Self {
            num_blocks,
            block_size,
            num_kv_heads,
            head_dim,
        }
    }

    /// The shape in the order of the layout.
    pub fn ordered(self, layout: CacheLayout) -> [usize; 4] {
        match layout {
            CacheLayout::Nhd => [
                self.num_blocks,
                self.block_size,
                self.num_kv_heads,
                self.head_dim,
            ],
            CacheLayout::Hnd => [
                self.num_blocks,
                self.num_kv_heads,
                self.block_size,
                self.head_dim,
            ],
        }
    }

    fn view<T: Element>(self, data: &[T], layout: CacheLayout) -> CacheView<'_, T> {
        CacheView::dense(
            data,
            layout,
            self.num_blocks,
            self.block_size,
            self.num_kv_heads,
            self.head_dim,
        )
    }
}

impl Shapes {
    /// The configuration that the shapes of q and k_cache imply, with the usual scale.
    pub fn config(&self, dtype: DType) -> AttentionConfig {
        let k = CacheDims::named(self.layout, self.k_cache);
        let [_, num_q_heads, head_dim] = self.q;
        AttentionConfig::new(dtype, num_q_heads, k.num_kv_heads, head_dim, k.block_size)
    }
}

/// The layout's name in metadata and reports.
pub fn layout_name(layout: CacheLayout) -> &'static str {
    match layout {
        CacheLayout::Nhd => "NHD",
        CacheLayout::Hnd => "HND",
    }
}

/// Inputs of one call, not yet validated. Buffers have the lengths that `shapes` says.
pub struct Batch<T> {
    pub shapes: Shapes,
    pub config: AttentionConfig,
    pub q: Buffer<T>,
    pub k_cache: Buffer<T>,
    pub v_cache: Buffer<T>,
    pub block_table: Buffer<i32>,
    pub seq_lens: Buffer<i32>,
}

impl<T: Storage> Batch<T> {
    /// Sequences.
    pub fn num_seqs(&self) -> usize {
        self.seq_lens.len()
    }

    /// Longest sequence in tokens, negative lengths left out.
    pub fn max_seq_len(&self) -> usize {
        let lens = self.seq_lens.iter();
        lens.filter_map(|&len| usize::try_from(len).ok())
            .max()
            .unwrap_or(0)
    }

    /// Tokens of all sequences, negative lengths left out.
    pub fn tokens(&self) -> u64 {
        let lens = self.seq_lens.iter();
        lens.filter_map(|&len| u64::try_from(len).ok()).sum()
    }

    /// Bytes of K and V that attention has to read: each live token once per kv head.
    pub fn kv_bytes(&self) -> u64 {
        let config = &self.config;
        let row = config.num_kv_heads as u64 * config.head_dim as u64;
        2 * self.tokens() * row * u64::from(config.dtype.bytes())
    }

    /// Prints shapes and lengths.
    pub fn report(&self, out: &mut dyn Write) -> io::Result<()> {
        let shapes = &self.shapes;
        let (dtype, layout) = (self.config.dtype.name(), layout_name(shapes.layout));
        field(out, "q", format!("{:?} {dtype}", shapes.q))?;
        field(
            out,
            "k_cache",
            format!("{:?} {dtype}, {layout}", shapes.k_cache),
        )?;
        field(
            out,
            "v_cache",
            format!("{:?} {dtype}, {layout}", shapes.v_cache),
        )?;
        let [table, integers] = shapes.unsigned.map(|u32| if u32 { "u32" } else { "i32" });
        field(
            out,
            "block_table",
            format!("{:?} {table}", shapes.block_table),
        )?;
        let (least, most) = (self.seq_lens.iter().min(), self.seq_lens.iter().max());
        let lens = match (least, most) {
            (Some(least), Some(most)) => {
                format!("{least} to {most} tokens, {} in all", self.tokens())
            }
            _ => "no sequence".into(),
        };
        field(
            out,
            "seq_lens",
            format!("{:?} {integers}: {lens}", shapes.seq_lens),
        )
    }

    /// What the library says of the batch before it computes; numbers are quoted as the file has
    /// them.
    pub fn validate(&self) -> Result<(), Error> {
        let Err(error) = self.inputs().validate(Op::Decode, &self.config) else {
            return Ok(());
        };
        let [table, lens] = self.shapes.unsigned;
        Err(match error {
            LibraryError::NegativeSeqLen { index, value, .. } if lens => Error::UnsignedSeqLen {
                index,
                value: value as u32,
                max_blocks_per_seq: self.shapes.block_table[1],
                block_size: self.config.block_size,
            },
            LibraryError::TableEntry {
                sequence,
                column,
                value,
                num_blocks,
                ..
            } if table && value < 0 => Error::UnsignedTableEntry {
                sequence,
                column,
                value: value as u32,
                num_blocks,
            },
            other => other.into(),
        })
    }

    /// The library's view of the batch.
    pub fn inputs(&self) -> DecodeInputs<'_, T> {
        let shapes = &self.shapes;
        let [num_seqs, num_q_heads, head_dim] = shapes.q;
        let [rows, columns] = shapes.block_table;
        let cache = |shape, data| CacheDims::named(shapes.layout, shape).view(data, shapes.layout);
        DecodeInputs {
            q: RowsView::contiguous(&self.q, num_seqs, num_q_heads, head_dim),
            k_cache: cache(shapes.k_cache, &*self.k_cache),
            v_cache: cache(shapes.v_cache, &*self.v_cache),
            block_table: BlockTable::new(&self.block_table, rows, columns),
            seq_lens: &self.seq_lens,
        }
    }

    /// The library's view of one sequence of a validated batch.
    pub fn sequence(&self, s: usize) -> DecodeInputs<'_, T> {
        let mut inputs = self.inputs();
        let [_, num_q_heads, head_dim] = self.shapes.q;
        let [_, columns] = self.shapes.block_table;
        let row = num_q_heads * head_dim;
        let q = &self.q[s * row..(s + 1) * row];
        let table = &self.block_table[s * columns..(s + 1) * columns];
        inputs.q = RowsView::contiguous(q, 1, num_q_heads, head_dim);
        inputs.block_table = BlockTable::new(table, 1, columns);
        inputs.seq_lens = &self.seq_lens[s..=s];
        inputs
    }
}

/// A file whose tensors have the right names, storage types and ranks.
pub struct BatchFile {
    file: TensorFile,
    dtype: DType,
    shapes: Shapes,
    scale: Option<f32>,
}

impl BatchFile {
    /// Opens a file and checks all that stands in its header.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = TensorFile::open(path)?;
        let q = find(&file, "q")?;
        let k_cache = find(&file, "k_cache")?;
        let v_cache = find(&file, "v_cache")?;
        let block_table = find(&file, "block_table")?;
        let seq_lens = find(&file, "seq_lens")?;

        let wrong_dtype = |tensor, info: &TensorInfo, expected| Error::WrongDtype {
            path: path.to_owned(),
            tensor,
            found: info.dtype.clone(),
            expected,
        };
        let (dtype, as_q) = match q.known_dtype() {
            Some(Dtype::F32) => (DType::F32, "F32 as q has"),
            Some(Dtype::F16) => (DType::F16, "F16 as q has"),
            Some(Dtype::BF16) => (DType::Bf16, "BF16 as q has"),
            _ => return Err(wrong_dtype("q", q, "F32, F16 or BF16")),
        };
        for (name, cache) in [("k_cache", k_cache), ("v_cache", v_cache)] {
            if cache.dtype != q.dtype {
                return Err(wrong_dtype(name, cache, as_q));
            }
        }
        for (name, integers) in [("block_table", block_table), ("seq_lens", seq_lens)] {
            if !matches!(integers.known_dtype(), Some(Dtype::I32 | Dtype::U32)) {
                return Err(wrong_dtype(name, integers, "I32 or U32"));
            }
        }
        // Sizes follow from storage types, so these come first.
        file.check_ranges()?;

        let metadata = |key, value: &str, expected| Error::Metadata {
            path: path.to_owned(),
            key,
            value: value.into(),
            expected,
        };
        let layout = match file.metadata("layout") {
            None => CacheLayout::Nhd,
            Some(name) if name.eq_ignore_ascii_case("NHD") => CacheLayout::Nhd,
            Some(name) if name.eq_ignore_ascii_case("HND") => CacheLayout::Hnd,
            Some(value) => return Err(metadata("layout", value, "NHD or HND")),
        };
        let scale = match file.metadata("scale") {
            None => None,
            Some(text) => {
                let scale = text.parse::<f32>();
                Some(scale.map_err(|_| metadata("scale", text, "a number"))?)
            }
        };

        let cache: [_; 4] = match layout {
            CacheLayout::Nhd => ["num_blocks", "block_size", "num_kv_heads", "head_dim"],
            CacheLayout::Hnd => ["num_blocks", "num_kv_heads", "block_size", "head_dim"],
        };
        let shapes = Shapes {
            layout,
            q: dims(path, "q", q, ["num_seqs", "num_q_heads", "head_dim"])?,
            k_cache: dims(path, "k_cache", k_cache, cache)?,
            v_cache: dims(path, "v_cache", v_cache, cache)?,
            block_table: dims(
                path,
                "block_table",
                block_table,
                ["num_seqs", "max_blocks_per_seq"],
            )?,
            seq_lens: dims(path, "seq_lens", seq_lens, ["num_seqs"])?,
            unsigned: [block_table, seq_lens].map(|info| info.known_dtype() == Some(Dtype::U32)),
        };
        Ok(Self {
            file,
            dtype,
            shapes,
            scale,
        })
    }

    /// Storage type of q, K and V.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The file's length in bytes.
    pub fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// Reads the tensors. `T` is the type that [`BatchFile::dtype`] names.
    pub fn read<T: Storage>(mut self) -> Result<Batch<T>, Error> {
        let total = TENSORS.iter().filter_map(|name| self.file.info(name));
        let total = total.map(|info| info.data_offsets.1 - info.data_offsets.0);
        let progress = byte_bar("reading", total.map(|bytes| bytes as u64).sum());
        let config = self.shapes.config(T::DTYPE);
        let config = match self.scale {
            Some(scale) => config.with_scale(scale),
            None => config,
        };
        let file = &mut self.file;
        let batch = Batch {
            shapes: self.shapes,
            config,
            q: file.read("q", &progress)?,
            k_cache: file.read("k_cache", &progress)?,
            v_cache: file.read("v_cache", &progress)?,
            block_table: file.read("block_table", &progress)?,
            seq_lens: file.read("seq_lens", &progress)?,
        };
        progress.finish_and_clear();
        Ok(batch)
    }
}

fn find<'a>(file: &'a TensorFile, tensor: &'static str) -> Result<&'a TensorInfo, Error> {
    file.info(tensor).ok_or_else(|| Error::MissingTensor {
        path: file.path().to_owned(),
        tensor,
        needed: TENSORS,
    })
}

/// The dimensions of a tensor. An empty batch, pool or table is a batch; a head or block of
/// nothing is not.
fn dims<const N: usize>(
    path: &Path,
    tensor: &'static str,
    info: &TensorInfo,
    names: [&'static str; N],
) -> Result<[usize; N], Error> {
    let found = &info.shape;
    let Ok(shape) = <[usize; N]>::try_from(found.as_slice()) else {
        return Err(Error::WrongRank {
            path: path.to_owned(),
            tensor,
            found: found.clone(),
            expected: names.to_vec(),
        });
    };
    let may_be_empty = ["num_seqs", "num_blocks", "max_blocks_per_seq"];
    let zero = names.iter().zip(shape);
    let zero = zero.filter(|&(name, size)| size == 0 && !may_be_empty.contains(name));
    match zero.map(|(name, _)| *name).next() {
        Some(dimension) => Err(Error::ZeroDimension {
            path: path.to_owned(),
            tensor,
            found: found.clone(),
            dimension,
        }),
        None => Ok(shape),
    }
}
