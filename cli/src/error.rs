//! Everything that can go wrong. Each message is one full sentence that names the file or argument,
//! what was found, and what was wanted.

use std::io;
use std::path::{Path, PathBuf};

use safetensors::Dtype;

use crate::check::Bound;
use crate::text::{escaped, quoted, shape};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library refused.
    #[error(transparent)]
    Library(#[from] paged_attention::Error),

    /// Standard output is gone.
    #[error("cannot write to standard output: {0}")]
    Stdout(#[from] io::Error),

    /// An input file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },

    /// The input is a pipe, a device or the like.
    #[error("cannot read {}: it is not a regular file, whose length is known", path.display())]
    NotRegular { path: PathBuf },

    /// An output file or folder cannot be made.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },

    /// The output exists and is a folder, a device or the like.
    #[error("cannot write {}: it exists and is not a regular file", path.display())]
    NotAFile { path: PathBuf },

    /// Output and input are one file.
    #[error("the output {} is the input file, it must be another one", path.display())]
    OutputIsInput { path: PathBuf },

    /// The file ends within the header's length.
    #[error("{}: the file holds {found} bytes, must hold at least 8 for the length of the header", path.display())]
    NoHeader { path: PathBuf, found: u64 },

    /// The header does not end within the file.
    #[error(
        "{}: the header's length is given as {header} bytes, must be at most {} in a file of {file} bytes",
        path.display(),
        file.saturating_sub(8)
    )]
    HeaderPastEnd {
        path: PathBuf,
        header: u64,
        file: u64,
    },

    /// The header is longer than any real one.
    #[error("{}: the header's length is given as {header} bytes, must be at most {max}", path.display())]
    HeaderTooLong {
        path: PathBuf,
        header: u64,
        max: u64,
    },

    /// The header begins with something else than an object.
    #[error("{}: the header begins with byte {first:#04x}, must begin with {:#04x}, a `{{`", path.display(), b'{')]
    HeaderStart { path: PathBuf, first: u8 },

    /// The header is no safetensors header.
    #[error(
        "{}: the header is not that of a safetensors file: {}",
        path.display(),
        escaped(&source.to_string(), 200)
    )]
    HeaderSyntax {
        path: PathBuf,
        source: serde_json::Error,
    },

    /// A tensor of a storage type that the format does not have, and that is none of a batch's.
    #[error(
        "{}: tensor {} has dtype {}, must have one that the format knows: its bytes cannot be counted",
        path.display(),
        quoted(tensor),
        quoted(dtype)
    )]
    UnknownDtype {
        path: PathBuf,
        tensor: String,
        dtype: String,
    },

    /// A tensor's shape has more bytes than 64 bits count.
    #[error(
        "{}: tensor {} of shape {} {dtype} overflows {} bits",
        path.display(),
        escaped(tensor, 60),
        shape(dims),
        usize::BITS
    )]
    ShapeOverflow {
        path: PathBuf,
        tensor: String,
        dims: Vec<usize>,
        dtype: Dtype,
    },

    /// A tensor of elements smaller than a byte does not fill its last one.
    #[error(
        "{}: tensor {} of shape {} {dtype} has {bits} bits, must have a multiple of 8",
        path.display(),
        escaped(tensor, 60),
        shape(dims)
    )]
    PartOfByte {
        path: PathBuf,
        tensor: String,
        dims: Vec<usize>,
        dtype: Dtype,
        bits: usize,
    },

    /// A tensor's byte range and shape disagree.
    #[error(
        "{}: tensor {} of shape {} {dtype} lies at bytes {}..{}, must span {needed} bytes",
        path.display(),
        escaped(tensor, 60),
        shape(dims),
        offsets.0,
        offsets.1
    )]
    ByteRange {
        path: PathBuf,
        tensor: String,
        dims: Vec<usize>,
        dtype: Dtype,
        offsets: (usize, usize),
        needed: usize,
    },

    /// A tensor ends past the file.
    #[error(
        "{}: tensor {} ends at byte {end} of the data, must end within the {data} bytes that the file holds",
        path.display(),
        escaped(tensor, 60)
    )]
    DataPastEnd {
        path: PathBuf,
        tensor: String,
        end: usize,
        data: u64,
    },

    /// Two tensors overlap, or bytes between them belong to none.
    #[error(
        "{}: tensor {} begins at byte {start} of the data, must begin at byte {end}, {}",
        path.display(),
        escaped(tensor, 60),
        match before {
            Some(before) => format!("where tensor {} ends", escaped(before, 60)),
            None => "as the first".into(),
        }
    )]
    NotSideBySide {
        path: PathBuf,
        tensor: String,
        start: usize,
        end: usize,
        before: Option<String>,
    },

    /// Bytes after the last tensor.
    #[error("{}: the file holds {data} bytes of data, must end with its tensors at byte {end}", path.display())]
    TrailingData {
        path: PathBuf,
        data: u64,
        end: usize,
    },

    /// A tensor is absent.
    #[error("{}: there is no tensor {tensor}, the file must have {}", path.display(), needed.join(", "))]
    MissingTensor {
        path: PathBuf,
        tensor: &'static str,
        needed: &'static [&'static str],
    },

    /// A tensor has another storage type than needed.
    #[error("{}: tensor {tensor} has dtype {}, must have {expected}", path.display(), escaped(found, 60))]
    WrongDtype {
        path: PathBuf,
        tensor: &'static str,
        found: String,
        expected: &'static str,
    },

    /// A tensor has another number of dimensions than needed.
    #[error(
        "{}: tensor {tensor} has shape {}, must have {} dimensions [{}]",
        path.display(),
        shape(found),
        expected.len(),
        expected.join(", ")
    )]
    WrongRank {
        path: PathBuf,
        tensor: &'static str,
        found: Vec<usize>,
        expected: Vec<&'static str>,
    },

    /// A dimension that must not be 0 is.
    #[error("{}: tensor {tensor} has shape {}, its {dimension} must be at least 1", path.display(), shape(found))]
    ZeroDimension {
        path: PathBuf,
        tensor: &'static str,
        found: Vec<usize>,
        dimension: &'static str,
    },

    /// A length of a U32 tensor that no i32 holds.
    #[error(
        "decode: seq_lens[{index}] = {value}, must be at most {} (block table of {max_blocks_per_seq} \
         columns × block_size {block_size})",
        max_blocks_per_seq.saturating_mul(*block_size)
    )]
    UnsignedSeqLen {
        index: usize,
        value: u32,
        max_blocks_per_seq: usize,
        block_size: usize,
    },

    /// A live entry of a U32 block table that no i32 holds.
    #[error(
        "decode: block_table[{sequence}][{column}] = {value}, must be < num_blocks {num_blocks}"
    )]
    UnsignedTableEntry {
        sequence: usize,
        column: usize,
        value: u32,
        num_blocks: usize,
    },

    /// A metadata value is not one of those known.
    #[error("{}: metadata {key} = {}, must be {expected}", path.display(), quoted(value))]
    Metadata {
        path: PathBuf,
        key: &'static str,
        value: String,
        expected: &'static str,
    },

    /// The batch asked for has more elements than can be counted.
    #[error("sample: {tensor} of {shape:?} elements is too large for this machine's addresses")]
    SampleTooLarge {
        tensor: &'static str,
        shape: Vec<usize>,
    },

    /// More physical blocks than table entries can number.
    #[error("sample: the batch needs {blocks} blocks, must be at most {max}")]
    TooManyBlocks { blocks: usize, max: usize },

    /// The block pool of the simulation refused.
    #[error(transparent)]
    Pool(#[from] paged_attention::pool::PoolError),

    /// A number of the simulation is not above 0.
    #[error("simulate: {argument} is {value}, must be above 0 and finite")]
    NotPositive { argument: &'static str, value: f64 },

    /// The simulated memory cannot serve the longest request.
    #[error(
        "simulate: the cache memory holds {found} tokens with --max-len {max_len}, must hold between \
         {needed} and {max}, and --max-len must be at least 2"
    )]
    SimulatedMemory {
        found: usize,
        needed: usize,
        max: usize,
        max_len: usize,
    },

    /// A number of the simulation outside its range.
    #[error("simulate: {argument} = {value}, must be {min} to {max}{why}")]
    SimulatedRange {
        argument: &'static str,
        value: usize,
        min: usize,
        max: usize,
        why: &'static str,
    },

    /// No memory.
    #[error("cannot allocate {bytes} bytes for {what}")]
    OutOfMemory { what: &'static str, bytes: usize },

    /// A CUDA device is asked for, and the program has no code for one.
    #[cfg(not(feature = "cuda"))]
    #[error(
        "--device cuda: this program is built without its feature `cuda`, must be built with it"
    )]
    WithoutCuda,

    /// A set of PTX for a device that may run none.
    #[error(
        "--ptx-set {0}: needs a device that runs PTX, must come with --device cuda or emulator"
    )]
    PtxUnused(String),

    /// The result differs from the reference by more than rounding explains.
    #[error(
        "check: {tensor}{index:?} = {found:e}, the reference is {expected:e}: {}",
        past_bound((found - expected).abs(), *bound)
    )]
    PastBound {
        tensor: &'static str,
        index: Vec<usize>,
        found: f64,
        expected: f64,
        bound: Bound,
    },
}

/// What is wrong with an error; numbers too large for f32 have no bound.
fn past_bound(error: f64, bound: Bound) -> String {
    match bound {
        Bound::Rounding(bound) if bound.is_finite() => {
            format!("the error {error:e} exceeds the bound {bound:e}")
        }
        Bound::Rounding(_) => format!(
            "the error is {error:e}, and no bound can be derived: scores or values are too large"
        ),
        Bound::Class => "its column of v_cache holds an infinity or a NaN, so neither can be a \
                         finite number"
            .into(),
    }
}

impl Error {
    /// [`Error::Read`] of a path.
    pub fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }

    /// [`Error::Write`] of a path.
    pub fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Write { path, source }
    }
}
