//! Runs PTX on the CPU: results, faults, races and counters.
//!
//! [`Module::parse`] loads a text and refuses what it cannot execute; [`Module::launch`] runs an
//! entry over a [`Memory`] and gives a [`Report`] or the first [`Fault`]. The README says which
//! faults are detected, which are not, and what is guaranteed.
//!
//! ```
//! use ptx_emulator::{Launch, Memory, Module, Options};
//!
//! let module = Module::parse(
//!     ".version 7.0 .target sm_80 .address_size 64
//!      .visible .entry double(.param .u64 x) {
//!          .reg .b32 %r<3>; .reg .b64 %rd<4>;
//!          ld.param.u64 %rd1, [x];
//!          mov.u32 %r1, %tid.x;
//!          mul.wide.u32 %rd2, %r1, 4;
//!          add.s64 %rd3, %rd1, %rd2;
//!          ld.global.u32 %r2, [%rd3];
//!          add.s32 %r2, %r2, %r2;
//!          st.global.u32 [%rd3], %r2;
//!          ret;
//!      }",
//! )?;
//! let memory = Memory::new();
//! let x = memory.alloc(4 * 64, 256, "x")?;
//! memory.fill(x, 1, 4 * 64)?;
//! let launch = Launch { grid: [1, 1, 1], block: [64, 1, 1], shared_bytes: 0 };
//! let report = module.launch(&memory, "double", launch, &x.to_le_bytes(), &Options::default())?;
//! let mut out = [0; 4];
//! memory.read(x + 252, &mut out)?;
//! assert_eq!(u32::from_le_bytes(out), 0x0202_0202);
//! assert_eq!(report.counters.allocations["x"].loaded, 8);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod arith;
mod ast;
mod cfg;
mod code;
mod counters;
mod decode;
mod error;
mod exec;
mod fault;
mod lex;
mod memory;
mod module;
mod options;
mod parse;
mod table;

pub use counters::{ByteCounts, Counters, HotLine, Report, SectorCounts, SharedCounts};
pub use error::{Error, LaunchError, LoadError, MemoryError};
pub use fault::{Access, Fault, FaultKind, Nearest, Other, Space, Whereabouts};
pub use memory::{AllocationInfo, Memory};
pub use module::{EntryInfo, Module, ParamInfo};
pub use options::{Detectors, Launch, Options};
pub use table::{Class, OPCODES};
