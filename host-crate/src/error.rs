//! Everything that can be refused. Each message is one sentence that starts with the operation and
//! names the argument, the index, the value and the bound.

mod text;
mod words;

use std::path::PathBuf;

use crate::DType;
pub use words::{Op, Shape};

/// Why an operation was refused. Nothing has been written when one is returned, unless the
/// variant says otherwise.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no kernel for this head size.
    UnsupportedHeadDim {
        /// Storage type of the configuration.
        dtype: DType,
        /// Elements per head of the configuration.
        head_dim: usize,
        /// What is supported for `dtype`, ascending.
        supported: Vec<u32>,
    },

    /// The query heads do not divide among the kv heads.
    HeadRatio {
        /// Query heads.
        num_q_heads: usize,
        /// Key/value heads.
        num_kv_heads: usize,
    },

    /// The scale, times log2(e), is not a finite f32.
    Scale {
        /// The scale.
        scale: f32,
    },

    /// A number lies outside its range.
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
    SplitTokens {
        /// The length asked for, in tokens.
        split_tokens: u32,
        /// What it must be a multiple of.
        unit: u32,
        /// The longest split.
        max: u32,
    },

    /// The planned context needs more splits than the merge takes.
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
    Overflow {
        /// The operation.
        op: Op,
        /// The buffer.
        argument: &'static str,
        /// The dimensions whose product or sum it is.
        shape: Shape,
    },

    /// A tensor's storage type is not the configuration's.
    DTypeMismatch {
        /// The operation.
        op: Op,
        /// Storage type of the tensors.
        found: DType,
        /// Storage type of the configuration.
        expected: DType,
    },

    /// A dimension of a tensor differs from what the configuration or another tensor says.
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
    NullPointer {
        /// The operation.
        op: Op,
        /// The buffer.
        argument: &'static str,
    },

    /// A buffer ends before the last element that its shape and strides reach.
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
    NegativeSeqLen {
        /// The operation.
        op: Op,
        /// The sequence.
        index: usize,
        /// Its length.
        value: i32,
    },

    /// A sequence is longer than its row of the block table.
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
    MoreSlotsThanRows {
        /// The operation.
        op: Op,
        /// Slots.
        slots: usize,
        /// Rows.
        rows: usize,
    },

    /// A block to copy from or to is no physical block.
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
    PairOntoItself {
        /// The operation.
        op: Op,
        /// The pair.
        index: usize,
        /// The block.
        block: i64,
    },

    /// Caches of one call differ where they must not.
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
    WorkspaceTooSmall {
        /// The operation.
        op: Op,
        /// Bytes given.
        found: usize,
        /// Bytes needed.
        needed: usize,
    },

    /// A launch grid exceeds a dimension of the device's.
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
    ArtefactUnreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        kind: std::io::ErrorKind,
    },

    /// In place of a PTX artefact there is a folder, a pipe, a device or the like.
    ArtefactNotRegular {
        /// What is there.
        path: PathBuf,
    },

    /// The manifest is not what this crate can read.
    ManifestSyntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What the parser wanted.
        reason: String,
    },

    /// The artefacts were built for another launch interface.
    AbiVersion {
        /// The manifest's.
        found: u32,
        /// This crate's.
        expected: u32,
    },

    /// The artefacts contradict the manifest or this crate's ABI.
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
    EmulatorLoad {
        /// PTX file.
        file: String,
        /// Why, and in which line.
        source: ptx_emulator::LoadError,
    },

    /// The emulator found a fault.
    #[cfg(feature = "emulator")]
    Emulated {
        /// The kernel entry, or the buffer.
        subject: &'static str,
        /// The fault.
        source: ptx_emulator::Error,
    },

    /// A kernel left a result unwritten.
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
    ForeignContext {
        /// The operation.
        op: Op,
        /// The stream or buffer.
        argument: &'static str,
    },

    /// A device buffer's elements do not have the size of the storage type.
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
    MissingEntry {
        /// The entry.
        symbol: &'static str,
        /// Storage type.
        dtype: DType,
        /// Elements per head.
        head_dim: u32,
    },

    /// The artefacts lack an entry of the cache operations.
    MissingCacheEntry {
        /// The entry.
        symbol: &'static str,
    },
}

#[cfg(test)]
mod tests;
