//! Everything that can go wrong. Each message is one full sentence that names the file or argument,
//! what was found, and what was wanted.

use std::io;
use std::path::{Path, PathBuf};

use safetensors::Dtype;

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

    /// The header is no safetensors header.
    #[error("{}: the header is not that of a safetensors file: {source}", path.display())]
    HeaderSyntax {
        path: PathBuf,
        source: serde_json::Error,
    },

    /// A tensor's shape has more bytes than 64 bits count.
    #[error("{}: tensor {tensor} of shape {shape:?} {dtype} overflows {} bits", path.display(), usize::BITS)]
    ShapeOverflow {
        path: PathBuf,
        tensor: String,
        shape: Vec<usize>,
        dtype: Dtype,
    },

    /// A tensor's byte range and shape disagree.
    #[error(
        "{}: tensor {tensor} of shape {shape:?} {dtype} lies at bytes {}..{}, must span {needed} bytes",
        path.display(), offsets.0, offsets.1
    )]
    ByteRange {
        path: PathBuf,
        tensor: String,
        shape: Vec<usize>,
        dtype: Dtype,
        offsets: (usize, usize),
        needed: usize,
    },

    /// A tensor ends past the file.
    #[error(
        "{}: tensor {tensor} ends at byte {end} of the data, must end within the {data} bytes that the file holds",
        path.display()
    )]
    DataPastEnd {
        path: PathBuf,
        tensor: String,
        end: usize,
        data: u64,
    },

    /// A tensor is absent.
    #[error("{}: there is no tensor {tensor}, the file must have {}", path.display(), needed.join(", "))]
    MissingTensor {
        path: PathBuf,
        tensor: &'static str,
        needed: &'static [&'static str],
    },

    /// A tensor has another storage type than needed.
    #[error("{}: tensor {tensor} has dtype {found}, must have {expected}", path.display())]
    WrongDtype {
        path: PathBuf,
        tensor: &'static str,
        found: Dtype,
        expected: &'static str,
    },

    /// A tensor has another number of dimensions than needed.
    #[error(
        "{}: tensor {tensor} has shape {found:?}, must have {} dimensions [{}]",
        path.display(),
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
    #[error("{}: tensor {tensor} has shape {found:?}, its {dimension} must be at least 1", path.display())]
    ZeroDimension {
        path: PathBuf,
        tensor: &'static str,
        found: Vec<usize>,
        dimension: &'static str,
    },

    /// A metadata value is not one of those known.
    #[error("{}: metadata {key} = `{value}`, must be {expected}", path.display())]
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
        bound: f64,
    },
}

/// What is wrong with an error; numbers too large for f32 have no bound.
fn past_bound(error: f64, bound: f64) -> String {
    if bound.is_finite() {
        format!("the error {error:e} exceeds the bound {bound:e}")
    } else {
        format!(
            "the error is {error:e}, and no bound can be derived: scores or values are too large"
        )
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
