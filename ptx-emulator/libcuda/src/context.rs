//! Contexts: created, current, destroyed.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use ptx_emulator::Memory;

use crate::boundary::{Handle, In, Out, entry_points, say};
use crate::device::ordinal;
use crate::error::Code;
use crate::limits::{CONTEXT_LIMITS, context_limit};
use crate::state::{Kind, State, current, current_unchecked, lock, state, with_stack};
use crate::stream::{Stream, refuse_while_capturing};

/// Flags that describe scheduling, mapping and local memory; kept, without effect.
const KNOWN_FLAGS: c_uint = 0x1ff;

/// A context: memory of its own, streams, and the error of the kernel that faulted in it.
pub struct Context {
    pub handle: Handle,
    /// A number for `cuCtxGetId`.
    pub number: usize,
    pub device: usize,
    pub flags: AtomicU32,
    pub memory: Memory,
    /// The legacy default stream and the per-thread one.
    pub default_streams: [Arc<Stream>; 2],
    fault: AtomicU32,
    cache_config: AtomicU32,
    shared_config: AtomicU32,
    limits: Mutex<[usize; CONTEXT_LIMITS]>,
}

impl Context {
    /// Adds a context to the state.
    pub fn create(
        state: &mut State,
        device: usize,
        flags: u32,
        handle: Option<Handle>,
    ) -> Arc<Self> {
        let handle = handle.unwrap_or_else(|| state.new_handle(Kind::Context));
        let number = state.contexts_made;
        state.contexts_made += 1;
        let context = Arc::new(Context {
            handle,
            number,
            device,
            flags: AtomicU32::new(flags),
            memory: Memory::starting_at(memory_base(number)),
            default_streams: [
                Arc::new(Stream::new(1, handle, 0, 0)),
                Arc::new(Stream::new(2, handle, 0, 0)),
            ],
            fault: AtomicU32::new(0),
            cache_config: AtomicU32::new(0),
            shared_config: AtomicU32::new(0),
            limits: Mutex::new(std::array::from_fn(|limit| {
                context_limit(limit).unwrap_or(0)
            })),
        });
        state.contexts.insert(handle, Arc::clone(&context));
        context
    }

    /// Ends a context and everything in it.
    pub fn destroy(state: &mut State, handle: Handle) -> Result<(), Code> {
        state
            .contexts
            .remove(handle)
            .map_err(|_| Code::INVALID_CONTEXT)?;
        state.modules.retain(|module| module.context != handle);
        state
            .functions
            .retain(|function| function.context != handle);
        state.streams.retain(|stream| stream.context != handle);
        state.events.retain(|event| event.context != handle);
        state.execs.retain(|exec| exec.context != handle);
        state
            .allocations
            .retain(|_, allocation| allocation.context != handle);
        Ok(())
    }

    /// Fails with the error of the kernel that faulted in this context.
    pub fn check(&self) -> Result<(), Code> {
        match self.fault.load(Relaxed) {
            0 => Ok(()),
            number => Err(Code(number)),
        }
    }

    /// From now on this context's calls fail with `code`.
    pub fn set_fault(&self, code: Code, sentence: &str) {
        say(&format!("{}: {sentence}", code.name()));
        // The first fault is the one to report.
        let _ = self.fault.compare_exchange(0, code.0, Relaxed, Relaxed);
    }
}

/// Where a context's memory starts: above every host address, and 2^40 bytes apart, so that an
/// address says whose it is. The places are used again after 2^14 contexts.
fn memory_base(number: usize) -> u64 {
    (1 << 48) + ((number as u64 & 0x3fff) << 40)
}

fn create(context: Out<Handle>, flags: c_uint, device: c_int) -> Result<(), Code> {
    let mut state = state()?;
    let device = ordinal(device)?;
    context.required()?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let created = Context::create(&mut state, device, flags, None);
    with_stack(|stack| stack.push(created.handle));
    context.write(created.handle)
}

fn synchronize(context: &Context) -> Result<(), Code> {
    refuse_while_capturing(Some(context.handle))?;
    context.check()
}

/// The context of a handle, for calls that take one; 0 is the current one.
fn by_handle(handle: Handle) -> Result<Arc<Context>, Code> {
    match handle {
        0 => current_unchecked(),
        _ => state()?
            .contexts
            .get(handle)
            .map_err(|_| Code::INVALID_CONTEXT),
    }
}

entry_points! {
    /// Creates a context and makes it current.
    3020 fn cuCtxCreate_v2(context: Out<Handle>, flags: c_uint, device: c_int) {
        create(context, flags, device)
    }

    /// Creates a context; execution affinities are not supported.
    11040 fn cuCtxCreate_v3(
        context: Out<Handle>, affinities: In<c_void>, count: c_int, flags: c_uint, device: c_int,
    ) {
        if count != 0 || !affinities.is_null() {
            return Err(Code::UNSUPPORTED_EXEC_AFFINITY);
        }
        create(context, flags, device)
    }

    /// Creates a context; parameters other than null are not supported.
    12050 fn cuCtxCreate_v4(
        context: Out<Handle>, params: In<c_void>, flags: c_uint, device: c_int,
    ) {
        if !params.is_null() {
            return Err(Code::NOT_SUPPORTED);
        }
        create(context, flags, device)
    }

    /// Destroys a context that was created; primary contexts are released instead.
    4000 fn cuCtxDestroy_v2(context: Handle) {
        let mut state = state()?;
        if state.primaries.iter().any(|primary| primary.handle == context && context != 0) {
            return Err(Code::INVALID_CONTEXT);
        }
        Context::destroy(&mut state, context)?;
        with_stack(|stack| if stack.last() == Some(&context) { stack.pop(); });
        Ok(())
    }

    /// The current context, or null.
    4000 fn cuCtxGetCurrent(context: Out<Handle>) {
        drop(state()?);
        context.write(with_stack(|stack| stack.last().copied()).unwrap_or(0))
    }

    /// Replaces the current context; null pops it.
    4000 fn cuCtxSetCurrent(context: Handle) {
        let state = state()?;
        if context != 0 {
            state.contexts.get(context).map_err(|_| Code::INVALID_CONTEXT)?;
        }
        with_stack(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
        Ok(())
    }

    /// Makes a context current on top of the thread's stack.
    4000 fn cuCtxPushCurrent_v2(context: Handle) {
        state()?.contexts.get(context).map_err(|_| Code::INVALID_CONTEXT)?;
        with_stack(|stack| stack.push(context));
        Ok(())
    }

    /// Takes the current context off the thread's stack.
    4000 fn cuCtxPopCurrent_v2(context: Out<Handle>) {
        drop(state()?);
        let popped = with_stack(Vec::pop).ok_or(Code::INVALID_CONTEXT)?;
        context.write_if_asked(popped);
        Ok(())
    }

    /// The device of the current context.
    2000 fn cuCtxGetDevice(device: Out<c_int>) {
        device.write(current_unchecked()?.device as c_int)
    }

    /// The device of a context.
    13000 fn cuCtxGetDevice_v2(device: Out<c_int>, context: Handle) {
        device.write(by_handle(context)?.device as c_int)
    }

    /// The flags of the current context.
    7000 fn cuCtxGetFlags(flags: Out<c_uint>) {
        flags.write(current()?.flags.load(Relaxed))
    }

    /// Sets the flags of the current context.
    12010 fn cuCtxSetFlags(flags: c_uint) {
        if flags & !KNOWN_FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        current()?.flags.store(flags, Relaxed);
        Ok(())
    }

    /// A number that no other context has.
    12000 fn cuCtxGetId(context: Handle, id: Out<u64>) {
        id.write(by_handle(context)?.number as u64)
    }

    /// The version of the interface that made the context.
    3020 fn cuCtxGetApiVersion(context: Handle, version: Out<c_uint>) {
        by_handle(context)?;
        version.write(3020)
    }

    /// Waits for the current context's work, which is done; reports a kernel's fault.
    2000 fn cuCtxSynchronize() {
        synchronize(&*current_unchecked()?)
    }

    /// Waits for a context's work, which is done; reports a kernel's fault.
    13000 fn cuCtxSynchronize_v2(context: Handle) {
        synchronize(&*by_handle(context)?)
    }

    /// A limit of the current context.
    3010 fn cuCtxGetLimit(value: Out<usize>, limit: c_uint) {
        let context = current()?;
        let limits = lock(&context.limits);
        value.write(*limits.get(limit as usize).ok_or(Code::UNSUPPORTED_LIMIT)?)
    }

    /// Sets a limit of the current context; kept, without effect.
    3010 fn cuCtxSetLimit(limit: c_uint, value: usize) {
        let context = current()?;
        let mut limits = lock(&context.limits);
        *limits.get_mut(limit as usize).ok_or(Code::UNSUPPORTED_LIMIT)? = value;
        Ok(())
    }

    /// The cache preference of the current context.
    3020 fn cuCtxGetCacheConfig(config: Out<c_uint>) {
        config.write(current()?.cache_config.load(Relaxed))
    }

    /// Sets the cache preference of the current context; kept, without effect.
    3020 fn cuCtxSetCacheConfig(config: c_uint) {
        if config > 3 {
            return Err(Code::INVALID_VALUE);
        }
        current()?.cache_config.store(config, Relaxed);
        Ok(())
    }

    /// The bank width preference of the current context.
    4020 fn cuCtxGetSharedMemConfig(config: Out<c_uint>) {
        config.write(current()?.shared_config.load(Relaxed))
    }

    /// Sets the bank width preference of the current context; kept, without effect.
    4020 fn cuCtxSetSharedMemConfig(config: c_uint) {
        if config > 2 {
            return Err(Code::INVALID_VALUE);
        }
        current()?.shared_config.store(config, Relaxed);
        Ok(())
    }

    /// The priorities that streams may have.
    5050 fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        current()?;
        least.write_if_asked(0);
        greatest.write_if_asked(crate::stream::GREATEST_PRIORITY);
        Ok(())
    }
}
