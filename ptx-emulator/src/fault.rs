//! Faults: what a program did wrong, as data and as one sentence.

use std::fmt;

/// Where an address points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Space {
    /// Device memory, constants included.
    Global,
    /// The block's shared memory.
    Shared,
    /// The thread's own memory.
    Local,
    /// The kernel's parameters.
    Param,
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Space::Global => "global",
            Space::Shared => "shared",
            Space::Local => "local",
            Space::Param => "param",
        })
    }
}

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An atomic read-modify-write.
    Atomic,
    /// The write of a `cp.async`.
    AsyncCopy,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::Atomic => "atomic update",
            Access::AsyncCopy => "asynchronous copy",
        })
    }
}

/// A named piece of memory near a faulting address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// Name of the allocation or variable.
    pub name: String,
    /// Its first byte.
    pub base: u64,
    /// Its length in bytes.
    pub size: u64,
    /// The faulting address minus `base`.
    pub offset: i64,
    /// Whether it had been freed.
    pub freed: bool,
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Nearest {
            name,
            base,
            size,
            offset,
            freed,
        } = self;
        let freed = if *freed { "freed " } else { "" };
        if *offset < 0 {
            let before = offset.unsigned_abs();
            write!(
                f,
                "{before} bytes before {freed}`{name}` ({size} bytes at {base:#x})"
            )
        } else if (*offset as u64) < *size {
            write!(
                f,
                "byte {offset} of {freed}`{name}` ({size} bytes at {base:#x})"
            )
        } else {
            let past = *offset as u64 - size;
            write!(
                f,
                "{past} bytes past the end of {freed}`{name}` ({size} bytes at {base:#x})"
            )
        }
    }
}

/// The other side of a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// What it did.
    pub access: Access,
    /// PTX line of its instruction.
    pub line: u32,
    /// Its thread in the block.
    pub thread: [u32; 3],
}

/// Where a thread was when others waited for it in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Whereabouts {
    /// It had exited.
    Exited,
    /// It waited at this PTX line.
    WaitingAt(u32),
    /// The block never had such a thread.
    NeverExisted,
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whereabouts::Exited => f.write_str("has exited"),
            Whereabouts::WaitingAt(line) => write!(f, "waits at line {line}"),
            Whereabouts::NeverExisted => f.write_str("does not exist in this block"),
        }
    }
}

/// The kinds of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// Bytes that belong to no allocation.
    OutOfBounds {
        /// Space of the access.
        space: Space,
        /// Read, write, …
        access: Access,
        /// First byte.
        address: u64,
        /// Length.
        bytes: u32,
        /// The allocation or variable closest to it, if there is any.
        nearest: Option<Nearest>,
    },
    /// An address that is not a multiple of the access size.
    Misaligned {
        /// Space of the access.
        space: Space,
        /// Read, write, …
        access: Access,
        /// The address.
        address: u64,
        /// The alignment that the instruction needs.
        required: u32,
        /// The allocation or variable there.
        nearest: Option<Nearest>,
    },
    /// A read of bytes that nothing has written.
    Uninitialised {
        /// Space of the access.
        space: Space,
        /// Read or atomic.
        access: Access,
        /// First byte of the access.
        address: u64,
        /// Length.
        bytes: u32,
        /// The first byte that was never written.
        first: u64,
        /// The allocation or variable there.
        nearest: Option<Nearest>,
    },
    /// Two accesses to shared memory, at least one a write, with nothing that orders them.
    SharedRace {
        /// What this thread did.
        access: Access,
        /// The byte in conflict.
        address: u64,
        /// The earlier access.
        other: Other,
        /// The shared variable there.
        nearest: Option<Nearest>,
    },
    /// An access to bytes that a `cp.async` may still be writing.
    AsyncPending {
        /// What this thread did.
        access: Access,
        /// The byte in conflict.
        address: u64,
        /// The copy.
        copy: Other,
        /// The shared variable there.
        nearest: Option<Nearest>,
    },
    /// A barrier that part of the block can never reach.
    BarrierPartial {
        /// Number of the barrier.
        barrier: u32,
        /// Threads that wait at it.
        arrived: u32,
        /// Threads it waits for.
        expected: u32,
        /// A thread that did not come, the lowest.
        missing: [u32; 3],
        /// Where that thread was.
        whereabouts: Whereabouts,
    },
    /// Barrier operands out of range, or threads that disagree about them.
    BarrierOperands {
        /// Number of the barrier.
        barrier: u32,
        /// The thread count given.
        count: u32,
        /// The rule that is broken.
        wanted: &'static str,
    },
    /// A warp instruction that names, or reads from, a lane that does not take part.
    InactiveLane {
        /// The member mask.
        mask: u32,
        /// Lanes that execute the instruction.
        active: u32,
        /// The lowest lane at fault.
        lane: u32,
        /// Where that lane was.
        whereabouts: Whereabouts,
    },
    /// A warp instruction executed by a lane that its own member mask leaves out.
    LaneNotInMask {
        /// The member mask.
        mask: u32,
        /// The lane.
        lane: u32,
    },
    /// A `.aligned` instruction executed by part of a warp.
    PartialWarp {
        /// Lanes that execute it.
        active: u32,
        /// Lanes that must.
        required: u32,
        /// The lowest lane missing.
        lane: u32,
        /// Where that lane was.
        whereabouts: Whereabouts,
    },
    /// An integer division or remainder by zero.
    DivisionByZero,
    /// `brx.idx` with an index outside its table.
    BranchIndex {
        /// The index.
        index: u32,
        /// Entries of the table.
        count: u32,
    },
    /// `trap`, or the end of the text without `ret`.
    Trap,
    /// The block executed more warp instructions than allowed.
    InstructionLimit {
        /// The limit per block.
        limit: u64,
    },
}

/// A fault: what, where, and who.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Entry that was launched.
    pub kernel: String,
    /// PTX line of the instruction.
    pub line: u32,
    /// The instruction in the manual's spelling, with modifiers.
    pub instruction: String,
    /// Block index.
    pub block: [u32; 3],
    /// Thread index within the block; the lowest at fault.
    pub thread: [u32; 3],
    /// What happened.
    pub kind: FaultKind,
}

impl std::error::Error for Fault {}

struct At<'a>(&'a Option<Nearest>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(nearest) => write!(f, ", {nearest}"),
            None => f.write_str(", where nothing is allocated"),
        }
    }
}

fn triple([x, y, z]: [u32; 3]) -> String {
    format!("({x}, {y}, {z})")
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::OutOfBounds {
                space,
                access,
                address,
                bytes,
                nearest,
            } => write!(
                f,
                "out of bounds: {space} {access} of {bytes} bytes must stay inside one \
                 allocation, found address {address:#x}{}",
                At(nearest)
            ),
            FaultKind::Misaligned {
                space,
                access,
                address,
                required,
                nearest,
            } => write!(
                f,
                "misaligned: {space} {access} must be at a multiple of {required} bytes, \
                 found address {address:#x}{}",
                At(nearest)
            ),
            FaultKind::Uninitialised {
                space,
                access,
                address,
                bytes,
                first,
                nearest,
            } => write!(
                f,
                "uninitialised: {space} {access} of {bytes} bytes at {address:#x} must find \
                 written bytes, byte {first:#x} was never written{}",
                At(nearest)
            ),
            FaultKind::SharedRace {
                access,
                address,
                other,
                nearest,
            } => write!(
                f,
                "shared-memory race: this {access} of byte {address:#x} must be ordered by a \
                 barrier after the {} at line {} by thread {}, found none between them{}",
                other.access,
                other.line,
                triple(other.thread),
                At(nearest)
            ),
            FaultKind::AsyncPending {
                access,
                address,
                copy,
                nearest,
            } => write!(
                f,
                "asynchronous copy still pending: this {access} of byte {address:#x} must come \
                 after the wait of thread {} for its cp.async at line {}, found no such wait{}",
                triple(copy.thread),
                copy.line,
                At(nearest)
            ),
            FaultKind::BarrierPartial {
                barrier,
                arrived,
                expected,
                missing,
                whereabouts,
            } => {
                write!(
                    f,
                    "divergent barrier: barrier {barrier} must be reached by {expected} threads, \
                     found {arrived}; thread {} {whereabouts}",
                    triple(*missing)
                )
            }
            FaultKind::BarrierOperands {
                barrier,
                count,
                wanted,
            } => write!(
                f,
                "barrier operands: {wanted}, found barrier {barrier} with thread count {count}"
            ),
            FaultKind::InactiveLane {
                mask,
                active,
                lane,
                whereabouts,
            } => write!(
                f,
                "inactive lane: every lane that the instruction names (mask {mask:#010x}) or \
                 reads must execute it, found lanes {active:#010x}; lane {lane} {whereabouts}"
            ),
            FaultKind::LaneNotInMask { mask, lane } => write!(
                f,
                "lane not in mask: a lane that executes the instruction must be in its member \
                 mask, found mask {mask:#010x} without lane {lane}"
            ),
            FaultKind::PartialWarp {
                active,
                required,
                lane,
                whereabouts,
            } => write!(
                f,
                "partial warp: the instruction must be executed by lanes {required:#010x} \
                 together, found {active:#010x}; lane {lane} {whereabouts}"
            ),
            FaultKind::BranchIndex { index, count } => write!(
                f,
                "branch index: the index must be below the {count} targets of its table, \
                 found {index}"
            ),
            FaultKind::DivisionByZero => {
                f.write_str("division by zero: the divisor must not be 0, found 0")
            }
            FaultKind::Trap => f.write_str("trap: must not be reached, it was executed"),
            FaultKind::InstructionLimit { limit } => write!(
                f,
                "instruction limit: a block must end within {limit} warp instructions, \
                 found it still running"
            ),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (kernel {}, line {} `{}`, block {}, thread {})",
            self.kind,
            self.kernel,
            self.line,
            self.instruction,
            triple(self.block),
            triple(self.thread)
        )
    }
}
