//! What can go wrong: loading, launching, and the program itself.

use crate::fault::Fault;

/// Why a PTX text was not loaded. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The text is not PTX as this loader understands it.
    #[error("line {line}: expected {wanted}, found {found}")]
    Syntax {
        /// Line in the text.
        line: u32,
        /// What would have been right there.
        wanted: String,
        /// What stands there.
        found: String,
    },
    /// Valid or not, this instruction or directive is not executed by the emulator.
    #[error("line {line}: `{instruction}` is not supported by the emulator")]
    Unsupported {
        /// Line in the text.
        line: u32,
        /// The instruction in the manual's spelling, with its modifiers.
        instruction: String,
    },
    /// A name that nothing in the text defines.
    #[error("line {line}: {what} `{name}` is not defined in this module")]
    Undefined {
        /// Line in the text.
        line: u32,
        /// Label, function, variable or register.
        what: &'static str,
        /// The name as written.
        name: String,
    },
    /// A name defined twice in one scope.
    #[error("line {line}: `{name}` is already defined")]
    Duplicate {
        /// Line of the second definition.
        line: u32,
        /// The name as written.
        name: String,
    },
    /// An operand that the instruction does not take.
    #[error("line {line}: `{instruction}`: operand {index} must be {wanted}, it is {found}")]
    Operand {
        /// Line in the text.
        line: u32,
        /// The instruction with its modifiers.
        instruction: String,
        /// Position of the operand, the destination being 0.
        index: usize,
        /// What the instruction takes there.
        wanted: String,
        /// What stands there.
        found: String,
    },
    /// A size beyond what the emulator (or the machine) has.
    #[error("line {line}: {what} is {value}, must be at most {limit}")]
    TooLarge {
        /// Line in the text.
        line: u32,
        /// The quantity.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The bound.
        limit: u64,
    },
}

impl LoadError {
    pub(crate) fn syntax(line: u32, wanted: &str, found: &str) -> Self {
        LoadError::Syntax {
            line,
            wanted: wanted.to_string(),
            found: found.to_string(),
        }
    }

    /// The line that the error is about.
    pub fn line(&self) -> u32 {
        match self {
            LoadError::Syntax { line, .. }
            | LoadError::Unsupported { line, .. }
            | LoadError::Undefined { line, .. }
            | LoadError::Duplicate { line, .. }
            | LoadError::Operand { line, .. }
            | LoadError::TooLarge { line, .. } => *line,
        }
    }
}

/// Why a launch was refused before any instruction ran.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The module has no such entry.
    #[error("launch: entry `{entry}` is not in the module, which has: {available}")]
    UnknownEntry {
        /// The name asked for.
        entry: String,
        /// The entries there are, separated by commas.
        available: String,
    },
    /// The parameter buffer has another length than the entry's parameters.
    #[error("launch {entry}: param_bytes holds {given} bytes, must be {expected}")]
    ParamBytes {
        /// The entry.
        entry: String,
        /// Length given.
        given: usize,
        /// Length of the packed parameters.
        expected: usize,
    },
    /// A grid or block extent outside the machine's range.
    #[error("launch {entry}: {argument}[{axis}] = {value}, must be in 1..={limit}")]
    Extent {
        /// The entry.
        entry: String,
        /// `grid` or `block`.
        argument: &'static str,
        /// 0, 1, 2 for x, y, z.
        axis: usize,
        /// The value given.
        value: u32,
        /// The largest value allowed.
        limit: u32,
    },
    /// Too many threads in a block.
    #[error(
        "launch {entry}: the block has {threads} threads, must be at most {limit} ({source_of_limit})"
    )]
    BlockThreads {
        /// The entry.
        entry: String,
        /// Threads in the block.
        threads: u64,
        /// The bound.
        limit: u32,
        /// Where the bound comes from: the machine or `.maxntid`.
        source_of_limit: &'static str,
    },
    /// A block shape other than the one `.reqntid` demands.
    #[error("launch {entry}: block is {given:?}, must be {required:?} (.reqntid)")]
    RequiredBlock {
        /// The entry.
        entry: String,
        /// Shape given.
        given: [u32; 3],
        /// Shape demanded.
        required: [u32; 3],
    },
    /// More shared memory than a block can have.
    #[error(
        "launch {entry}: {total} bytes of shared memory ({fixed} static + {dynamic} dynamic), must be at most {limit}"
    )]
    SharedBytes {
        /// The entry.
        entry: String,
        /// Static plus dynamic, with alignment.
        total: u64,
        /// Static bytes.
        fixed: u32,
        /// Dynamic bytes asked for.
        dynamic: u32,
        /// The bound.
        limit: u32,
    },
}

/// A use of [`Memory`](crate::Memory) from the host that it refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The range is not inside one live allocation.
    #[error("{operation}: {bytes} bytes at {address:#x} are not inside one allocation{nearest}")]
    OutOfBounds {
        /// The operation: read, write, fill.
        operation: &'static str,
        /// First byte.
        address: u64,
        /// Length of the range.
        bytes: u64,
        /// Empty, or a clause that names the nearest allocation.
        nearest: String,
    },
    /// The address is not the start of a live allocation.
    #[error("free: {address:#x} is not the start of a live allocation{nearest}")]
    NotAnAllocation {
        /// The address given.
        address: u64,
        /// Empty, or a clause that names the nearest allocation.
        nearest: String,
    },
    /// An allocation that cannot be made.
    #[error(
        "alloc {name}: {bytes} bytes aligned to {align}: the size must be at most 2^40 and the alignment a power of two up to 2^20"
    )]
    BadRequest {
        /// Name of the allocation.
        name: String,
        /// Size asked for.
        bytes: u64,
        /// Alignment asked for.
        align: u64,
    },
}

/// Any reason why a launch gave no report.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program did something wrong.
    #[error(transparent)]
    Fault(Box<Fault>),
    /// The launch was refused.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Global memory refused.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}
