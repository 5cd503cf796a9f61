//! Work that a stream does: now, or later as part of a graph.

use std::ffi::c_void;
use std::sync::Arc;

use ptx_emulator::{Error, FaultKind};

use crate::boundary::{In, Out, in_host_function, say};
use crate::context::Context;
use crate::error::Code;
use crate::event::Event;
use crate::function::Function;
use crate::state::Driver;

/// One end of a copy.
#[derive(Clone)]
pub enum Place {
    /// An address in the client's memory.
    Host(usize),
    /// An address in a context's memory.
    Device(Arc<Context>, u64),
}

/// A copy of rows; one row for a plain copy.
#[derive(Clone)]
pub struct Copy {
    pub from: Place,
    pub to: Place,
    pub from_pitch: usize,
    pub to_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// A repeated pattern.
#[derive(Clone)]
pub struct Fill {
    pub owner: Arc<Context>,
    pub address: u64,
    pub pattern: Vec<u8>,
    pub count: u64,
}

/// A kernel's launch with its packed parameters.
#[derive(Clone)]
pub struct Launch {
    pub function: Arc<Function>,
    pub context: Arc<Context>,
    pub geometry: ptx_emulator::Launch,
    pub params: Vec<u8>,
}

/// A client's function and its argument.
#[derive(Clone, Copy)]
pub struct HostCall {
    pub function: extern "C" fn(*mut c_void),
    pub argument: *mut c_void,
}

// SAFETY: the driver API lets the function be called from any thread; whoever passed the argument
// answers for it.
unsafe impl Send for HostCall {}
// SAFETY: likewise.
unsafe impl Sync for HostCall {}

/// A piece of work.
#[derive(Clone)]
pub enum Work {
    Launch(Launch),
    Copy(Copy),
    Fill(Fill),
    Record(Arc<Event>),
    Host(HostCall),
}

impl Work {
    /// The `CUgraphNodeType` of this work as a node.
    pub fn node_type(&self) -> u32 {
        match self {
            Work::Launch(_) => 0,
            Work::Copy(_) => 1,
            Work::Fill(_) => 2,
            Work::Host(_) => 3,
            Work::Record(_) => 7,
        }
    }

    /// Does it. A kernel's fault becomes its context's error, not this call's.
    pub fn run(&self) -> Result<(), Code> {
        match self {
            Work::Launch(launch) => launch.run(),
            Work::Copy(copy) => copy.run(),
            Work::Fill(fill) => fill.run(),
            Work::Record(event) => {
                event.happen();
                Ok(())
            }
            Work::Host(call) => {
                in_host_function(|| (call.function)(call.argument));
                Ok(())
            }
        }
    }
}

impl Launch {
    fn run(&self) -> Result<(), Code> {
        let options = Driver::get()?.settings.options();
        let Launch {
            function,
            context,
            geometry,
            params,
        } = self;
        let module = &function.module.ptx;
        match module.launch(&context.memory, &function.name, *geometry, params, &options) {
            Ok(_) => Ok(()),
            Err(Error::Fault(fault)) => {
                context.set_fault(fault_code(&fault.kind), &fault.to_string());
                Ok(())
            }
            Err(error) => {
                say(&error.to_string());
                Err(Code::INVALID_VALUE)
            }
        }
    }
}

/// The error that a device would report for a fault.
fn fault_code(kind: &FaultKind) -> Code {
    match kind {
        FaultKind::OutOfBounds { .. } => Code::ILLEGAL_ADDRESS,
        FaultKind::Misaligned { .. } => Code::MISALIGNED_ADDRESS,
        FaultKind::InstructionLimit { .. } => Code::LAUNCH_TIMEOUT,
        _ => Code::LAUNCH_FAILED,
    }
}

/// Copies go through a buffer of this many bytes.
const CHUNK: usize = 1 << 20;

impl Copy {
    fn run(&self) -> Result<(), Code> {
        let mut buffer = vec![0; CHUNK.min(self.width)];
        for row in 0..self.height {
            let mut done = 0;
            while done < self.width {
                let part = CHUNK.min(self.width - done);
                self.from
                    .read(row * self.from_pitch + done, &mut buffer[..part])?;
                self.to.write(row * self.to_pitch + done, &buffer[..part])?;
                done += part;
            }
        }
        Ok(())
    }
}

impl Place {
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Code> {
        match self {
            Place::Host(address) => In::from_address(address.wrapping_add(offset)).copy_to(bytes),
            Place::Device(context, address) => {
                let result = context.memory.read(address + offset as u64, bytes);
                result.map_err(|_| Code::INVALID_VALUE)
            }
        }
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Code> {
        match self {
            Place::Host(address) => {
                Out::from_address(address.wrapping_add(offset)).copy_from(bytes)
            }
            Place::Device(context, address) => {
                let result = context.memory.write(address + offset as u64, bytes);
                result.map_err(|_| Code::INVALID_VALUE)
            }
        }
    }
}

impl Fill {
    fn run(&self) -> Result<(), Code> {
        let repeats = (CHUNK / self.pattern.len()).min(self.count as usize);
        let chunk = self.pattern.repeat(repeats);
        let (mut at, mut left) = (self.address, self.count as usize * self.pattern.len());
        while left > 0 {
            let part = chunk.len().min(left);
            let written = self.owner.memory.write(at, &chunk[..part]);
            written.map_err(|_| Code::INVALID_VALUE)?;
            at += part as u64;
            left -= part;
        }
        Ok(())
    }
}
