//! Everything that can be refused. Each message is one sentence that starts with the operation and
//! names the argument, the index, the value and the bound.

mod words;

use std::path::PathBuf;

use crate::DType;
use words::List;
pub use words::{Op, Shape};

/// Why an operation was refused. Nothing has been written when one is returned, unless the
/// variant says otherwise.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no kernel for this head size.
    #[error(
        "config: head_dim = {head_dim} is not supported for {}, must be one of {}",
        dtype.name(),
        List(supported)
    )]
    UnsupportedHeadDim {
        /// Storage type of the configuration.
        dtype: DType,
        /// Elements per head of the configuration.
        head_dim: usize,
        /// What is supported for `dtype`, ascending.
        supported: Vec<u32>,
    },

    /// The query heads do not divide among the kv heads.
    #[error(
        "config: num_q_heads = {num_q_heads}, must be a multiple of num_kv_heads {num_kv_heads}"
    )]
    HeadRatio {
        /// Query heads.
        num_q_heads: usize,
        /// Key/value heads.
        num_kv_heads: usize,
    },

    /// The scale, times log2(e), is not a finite f32.
    #[error("config: scale = {scale}, must be finite, also after multiplication by log2(e)")]
    Scale {
        /// The scale.
        scale: f32,
    },

    /// A number lies outside its range.
    #[error("{op}: {argument} = {value}, must be between {min} and {max}")]
    OutOfRange {
        /// The operation.
        op: Op,
        /// The argument.
        argument: &'static str,
        /// Its value.
        value: u64,
        /// Least value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },

    /// The split length of [`crate::SplitPolicy::Tokens`] cannot be used.
    #[error(
        "plan: split_tokens = {split_tokens}, must be a positive multiple of {unit} and at most {max}"
    )]
    SplitTokens {
        /// The length asked for, in tokens.
        split_tokens: u32,
        /// What it must be a multiple of.
        unit: u32,
        /// The longest split.
        max: u32,
    },

    /// The planned context needs more splits than the merge takes.
    #[error(
        "plan: max_seq_len = {max_seq_len} with splits of {split_tokens} tokens makes {num_splits} \
         splits, must be at most {max}"
    )]
    TooManySplits {
        /// Planned capacity in tokens.
        max_seq_len: usize,
        /// Tokens per split.
        split_tokens: u32,
        /// Splits needed.
        num_splits: u64,
        /// Most splits.
        max: u32,
    },

    /// A size does not fit into this machine's addresses.
    #[error(
        "{op}: the size of {argument} overflows {} bits for {shape}",
        usize::BITS
    )]
    Overflow {
        /// The operation.
        op: Op,
        /// The buffer.
        argument: &'static str,
        /// The dimensions whose product or sum it is.
        shape: Shape,
    },

    /// A tensor's storage type is not the configuration's.
    #[error(
        "{op}: the tensors hold {}, must hold the configuration's {}",
        found.name(),
        expected.name()
    )]
    DTypeMismatch {
        /// The operation.
        op: Op,
        /// Storage type of the tensors.
        found: DType,
        /// Storage type of the configuration.
        expected: DType,
    },

    /// A dimension of a tensor differs from what the configuration or another tensor says.
    #[error("{op}: {argument} has {dimension} {found}, must have {expected}")]
    ShapeMismatch {
        /// The operation.
        op: Op,
        /// The tensor.
        argument: &'static str,
        /// The dimension.
        dimension: &'static str,
        /// Its size.
        found: usize,
        /// The size wanted.
        expected: usize,
    },

    /// A stride is not a multiple of 16 bytes.
    #[error(
        "{op}: {argument}.{stride}_stride = {elements} elements ({bytes} bytes), must be a multiple \
         of {} bytes",
        crate::ALIGNMENT
    )]
    StrideNotAligned {
        /// The operation.
        op: Op,
        /// The tensor.
        argument: &'static str,
        /// `block`, `token` or `head`.
        stride: &'static str,
        /// The stride in elements.
        elements: usize,
        /// The stride in bytes.
        bytes: usize,
    },

    /// A stride in bytes is more than any buffer holds.
    #[error(
        "{op}: {argument}.{stride}_stride = {elements} elements of {element_bytes} bytes, must span \
         at most {} bytes",
        isize::MAX
    )]
    StrideTooLarge {
        /// The operation.
        op: Op,
        /// The tensor.
        argument: &'static str,
        /// `block`, `token` or `head`.
        stride: &'static str,
        /// The stride in elements.
        elements: usize,
        /// Bytes per element.
        element_bytes: usize,
    },

    /// A tensor does not start at a multiple of its alignment: 16 bytes, 4 for tables and lengths.
    #[error(
        "{op}: {argument} starts at address {address:#x}, must be a multiple of {alignment} bytes"
    )]
    BaseNotAligned {
        /// The operation.
        op: Op,
        /// The tensor.
        argument: &'static str,
        /// Its address.
        address: u64,
        /// The alignment wanted, in bytes.
        alignment: usize,
    },

    /// A device address that is needed is 0.
    #[error("{op}: {argument} is the null address, must point to device memory")]
    NullPointer {
        /// The operation.
        op: Op,
        /// The buffer.
        argument: &'static str,
    },

    /// A buffer ends before the last element that its shape and strides reach.
    #[error("{op}: {argument} holds {found} elements, must hold at least {needed} for {shape}")]
    BufferTooSmall {
        /// The operation.
        op: Op,
        /// The buffer.
        argument: &'static str,
        /// Elements that it holds.
        found: usize,
        /// Elements that are reached.
        needed: usize,
        /// The dimensions that reach so far.
        shape: Shape,
    },

    /// Rows of the output share elements, so that one would overwrite another.
    #[error(
        "{op}: out.token_stride = {token_stride} and out.head_stride = {head_stride} make rows \
         overlap, must keep {num_seqs} × {num_heads} rows of {head_dim} elements apart"
    )]
    OutputOverlap {
        /// The operation.
        op: Op,
        /// Elements from one sequence's row to the next.
        token_stride: usize,
        /// Elements from one head to the next.
        head_stride: usize,
        /// Sequences.
        num_seqs: usize,
        /// Heads.
        num_heads: usize,
        /// Elements per row.
        head_dim: usize,
    },

    /// Rows of a cache that is written share elements.
    #[error(
        "{op}: strides of {}, {} and {} elements (block, token, head) make rows of {argument} \
         overlap, must keep {} × {} × {} rows of {head_dim} elements apart",
        strides[0], strides[1], strides[2], rows[0], rows[1], rows[2]
    )]
    CacheOverlap {
        /// The operation.
        op: Op,
        /// The cache.
        argument: &'static str,
        /// Elements from one block, token and head to the next.
        strides: [usize; 3],
        /// Blocks, tokens per block, and kv heads.
        rows: [usize; 3],
        /// Elements per row.
        head_dim: usize,
    },

    /// Two tensors that one call writes share rows.
    #[error(
        "{op}: {argument} at address {address:#x} shares rows with {other} at {other_address:#x}, \
         must be apart from it"
    )]
    TensorsOverlap {
        /// The operation.
        op: Op,
        /// The tensor.
        argument: String,
        /// Its address.
        address: u64,
        /// The tensor that it shares rows with.
        other: String,
        /// That one's address.
        other_address: u64,
    },

    /// A length is negative.
    #[error("{op}: seq_lens[{index}] = {value}, must be at least 0")]
    NegativeSeqLen {
        /// The operation.
        op: Op,
        /// The sequence.
        index: usize,
        /// Its length.
        value: i32,
    },

    /// A sequence is longer than its row of the block table.
    #[error(
        "{op}: seq_lens[{index}] = {value}, must be at most {} (block table of {max_blocks_per_seq} \
         columns × block_size {block_size})",
        max_blocks_per_seq.saturating_mul(*block_size)
    )]
    SeqLenPastTable {
        /// The operation.
        op: Op,
        /// The sequence.
        index: usize,
        /// Its length.
        value: i32,
        /// Columns of the block table.
        max_blocks_per_seq: usize,
        /// Tokens per block.
        block_size: usize,
    },

    /// A sequence is longer than the plan's capacity or the contiguous tensor.
    #[error("{op}: seq_lens[{index}] = {value}, must be at most max_seq_len {max_seq_len}")]
    SeqLenPastCapacity {
        /// The operation.
        op: Op,
        /// The sequence.
        index: usize,
        /// Its length.
        value: i32,
        /// The capacity in tokens.
        max_seq_len: usize,
    },

    /// A live entry of the block table is no physical block.
    #[error(
        "{op}: block_table[{sequence}][{column}] = {value}, must be {}< num_blocks {num_blocks}",
        if *value < 0 { ">= 0 and " } else { "" }
    )]
    TableEntry {
        /// The operation.
        op: Op,
        /// The sequence.
        sequence: usize,
        /// The logical block.
        column: usize,
        /// The entry.
        value: i32,
        /// Physical blocks in the cache.
        num_blocks: usize,
    },

    /// A slot lies past the cache.
    #[error(
        "{op}: slot_mapping[{index}] = {value}, must be < {num_blocks} blocks × block_size {block_size}"
    )]
    Slot {
        /// The operation.
        op: Op,
        /// The row.
        index: usize,
        /// Its slot.
        value: i64,
        /// Physical blocks in the cache.
        num_blocks: usize,
        /// Tokens per block.
        block_size: usize,
    },

    /// There are more slots than rows to write.
    #[error("{op}: slot_mapping has {slots} slots, must have at most the {rows} rows")]
    MoreSlotsThanRows {
        /// The operation.
        op: Op,
        /// Slots.
        slots: usize,
        /// Rows.
        rows: usize,
    },

    /// A block to copy from or to is no physical block.
    #[error(
        "{op}: the {side} of pairs[{index}] = {value}, must be >= 0 and < num_blocks \
         {num_blocks}"
    )]
    PairBlock {
        /// The operation.
        op: Op,
        /// The pair.
        index: usize,
        /// `source` or `destination`.
        side: &'static str,
        /// The block.
        value: i64,
        /// Physical blocks in the smallest cache.
        num_blocks: usize,
    },

    /// One pair writes a block that another one reads or writes.
    #[error(
        "{op}: pairs[{index}] takes part in block {block}, which pairs[{other}] writes; must be in \
         another call"
    )]
    PairConflict {
        /// The operation.
        op: Op,
        /// The pair.
        index: usize,
        /// The pair that writes the block.
        other: usize,
        /// The block.
        block: i64,
    },

    /// A pair copies a block onto itself.
    #[error(
        "{op}: pairs[{index}] copies block {block} onto itself, must name two blocks or be left out"
    )]
    PairOntoItself {
        /// The operation.
        op: Op,
        /// The pair.
        index: usize,
        /// The block.
        block: i64,
    },

    /// Caches of one call differ where they must not.
    #[error("{op}: caches[{index}] has {property} {found}, must have {expected}")]
    CacheMismatch {
        /// The operation.
        op: Op,
        /// The cache.
        index: usize,
        /// What differs: a stride in elements, or the device address.
        property: &'static str,
        /// As found.
        found: u64,
        /// As wanted.
        expected: u64,
    },

    /// The workspace is shorter than [`crate::Plan::workspace_bytes`].
    #[error("{op}: the workspace holds {found} bytes, must hold at least {needed}")]
    WorkspaceTooSmall {
        /// The operation.
        op: Op,
        /// Bytes given.
        found: usize,
        /// Bytes needed.
        needed: usize,
    },

    /// A launch grid exceeds a dimension of the device's.
    #[error(
        "plan: {entry} would launch {num_seqs} sequences × {num_kv_heads} kv heads × {num_splits} \
         splits, must fit a grid of 2147483647 × 65535 × 65535"
    )]
    GridTooLarge {
        /// The kernel entry.
        entry: &'static str,
        /// Sequences.
        num_seqs: u32,
        /// Key/value heads.
        num_kv_heads: u32,
        /// Splits.
        num_splits: u32,
    },

    /// A PTX artefact cannot be read.
    #[error("ptx: cannot read {}: {kind}", path.display())]
    ArtefactUnreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        kind: std::io::ErrorKind,
    },

    /// In place of a PTX artefact there is a folder, a pipe, a device or the like.
    #[error("ptx: cannot read {}: it is not a regular file", path.display())]
    ArtefactNotRegular {
        /// What is there.
        path: PathBuf,
    },

    /// The manifest is not what this crate can read.
    #[error("ptx: manifest.json line {line}, column {column}: {reason}")]
    ManifestSyntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What the parser wanted.
        reason: String,
    },

    /// The artefacts were built for another launch interface.
    #[error("ptx: the manifest has abi_version {found}, must have {expected}")]
    AbiVersion {
        /// The manifest's.
        found: u32,
        /// This crate's.
        expected: u32,
    },

    /// The artefacts contradict the manifest or this crate's ABI.
    #[error("ptx: {symbol} in {file} has {property} {found}, must have {expected}")]
    ArtefactMismatch {
        /// PTX file.
        file: String,
        /// Entry.
        symbol: String,
        /// What differs.
        property: &'static str,
        /// As found.
        found: String,
        /// As wanted.
        expected: String,
    },

    /// The emulator does not execute this PTX.
    #[cfg(feature = "emulator")]
    #[error("emulator: {file}: {source}")]
    EmulatorLoad {
        /// PTX file.
        file: String,
        /// Why, and in which line.
        source: ptx_emulator::LoadError,
    },

    /// The emulator found a fault.
    #[cfg(feature = "emulator")]
    #[error("emulator: {subject}: {source}")]
    Emulated {
        /// The kernel entry, or the buffer.
        subject: &'static str,
        /// The fault.
        source: ptx_emulator::Error,
    },

    /// A kernel left a result unwritten.
    #[error("{op}: the kernel left {argument}[{sequence}][{head}] unwritten, must write every row")]
    OutputNotWritten {
        /// The operation.
        op: Op,
        /// `out` or `lse`.
        argument: &'static str,
        /// The sequence.
        sequence: usize,
        /// The query head.
        head: usize,
    },

    /// The PTX is built for a newer device.
    #[error("ptx: {file} is built for {target}, cannot run on {device} of compute capability {}.{}", capability.0, capability.1)]
    DeviceTooOld {
        /// PTX file.
        file: String,
        /// Its target.
        target: String,
        /// The device's name.
        device: String,
        /// The device's compute capability.
        capability: (u32, u32),
    },

    /// The PTX's version is newer than the driver.
    #[error(
        "ptx: {file} has PTX version {ptx_version} and needs a driver for CUDA {}.{}, this driver is \
         for CUDA {}.{}",
        needed.0, needed.1, driver.0, driver.1
    )]
    DriverTooOld {
        /// PTX file.
        file: String,
        /// Its PTX ISA version.
        ptx_version: String,
        /// The first CUDA version that reads it.
        needed: (u32, u32),
        /// The driver's CUDA version.
        driver: (u32, u32),
    },

    /// A kernel needs more shared memory than the device gives a block.
    #[error(
        "cuda: {entry} needs {bytes} bytes of shared memory per block, {device} has at most {max}"
    )]
    SharedMemory {
        /// The entry.
        entry: &'static str,
        /// Bytes that a block needs.
        bytes: u32,
        /// The device's name.
        device: String,
        /// Bytes that a block may opt in to.
        max: u32,
    },

    /// A call of the CUDA driver failed. Launches that were made before it may have written.
    #[error("cuda: {call} for {subject} failed with {name} ({number}): {detail}")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// What it was called for: kernel and configuration, or argument.
        subject: String,
        /// The driver's name of the error.
        name: String,
        /// The driver's number of the error.
        number: u32,
        /// The driver's description, or the compiler's log.
        detail: String,
    },

    /// A stream or a buffer is not of the back end's context.
    #[error("{op}: {argument} belongs to another CUDA context, must belong to the back end's")]
    ForeignContext {
        /// The operation.
        op: Op,
        /// The stream or buffer.
        argument: &'static str,
    },

    /// A device buffer's elements do not have the size of the storage type.
    #[error("{op}: {argument} has elements of {found} bytes, must have elements of {expected}")]
    ElementSize {
        /// The operation.
        op: Op,
        /// The buffer.
        argument: &'static str,
        /// Bytes per element.
        found: usize,
        /// Bytes per element of the storage type.
        expected: usize,
    },

    /// The artefacts lack an entry that the plan needs.
    #[error("ptx: the manifest lists no entry {symbol}, must list it for {} with head_dim {head_dim}", dtype.name())]
    MissingEntry {
        /// The entry.
        symbol: &'static str,
        /// Storage type.
        dtype: DType,
        /// Elements per head.
        head_dim: u32,
    },

    /// The artefacts lack an entry of the cache operations.
    #[error("ptx: the manifest lists no entry {symbol}, must list it for operations on the cache")]
    MissingCacheEntry {
        /// The entry.
        symbol: &'static str,
    },
}

#[cfg(test)]
mod tests;
