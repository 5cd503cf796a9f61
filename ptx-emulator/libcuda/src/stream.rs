//! Streams: work in order, and its capture.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use crate::boundary::{Handle, In, Out, entry_points};
use crate::context::Context;
use crate::error::Code;
use crate::graph::Graph;
use crate::state::{Kind, State, current, current_unchecked, lock, state};
use crate::work::{HostCall, Work};

/// The greatest priority of a stream; the least is 0.
pub const GREATEST_PRIORITY: c_int = -5;

/// `CU_STREAM_NON_BLOCKING`: not ordered with the legacy default stream.
const NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_GLOBAL`: no thread may make unsafe calls.
const GLOBAL: c_uint = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: every thread may.
const RELAXED: c_uint = 2;

/// A stream.
pub struct Stream {
    pub handle: Handle,
    /// Handle of its context.
    pub context: Handle,
    flags: c_uint,
    priority: c_int,
    /// Held while work runs, so that it runs in order.
    order: Mutex<()>,
    capture: Mutex<Option<Capture>>,
}

/// A capture in progress.
struct Capture {
    mode: c_uint,
    thread: ThreadId,
    number: usize,
    works: Vec<Work>,
    invalidated: bool,
}

impl Stream {
    /// A stream of a context.
    pub fn new(handle: Handle, context: Handle, flags: c_uint, priority: c_int) -> Self {
        let (order, capture) = (Mutex::new(()), Mutex::new(None));
        Stream {
            handle,
            context,
            flags,
            priority,
            order,
            capture,
        }
    }

    /// Whether this is the default stream that orders with all blocking ones.
    fn is_legacy(&self) -> bool {
        self.handle == 1
    }

    /// The number of the capture in progress; an error if it has been invalidated.
    pub fn capture_number(&self) -> Result<Option<usize>, Code> {
        match &*lock(&self.capture) {
            Some(capture) if capture.invalidated => Err(Code::STREAM_CAPTURE_INVALIDATED),
            Some(capture) => Ok(Some(capture.number)),
            None => Ok(None),
        }
    }

    /// Ends the hope of a capture in progress; says whether there was one.
    pub fn invalidate_capture(&self) -> bool {
        match &mut *lock(&self.capture) {
            Some(capture) => {
                capture.invalidated = true;
                true
            }
            None => false,
        }
    }

    /// Fails, and invalidates the capture, if one is in progress.
    fn refuse_capture(&self) -> Result<(), Code> {
        match self.invalidate_capture() {
            true => Err(Code::STREAM_CAPTURE_UNSUPPORTED),
            false => Ok(()),
        }
    }

    /// Runs pieces of work in the stream's order.
    pub fn run<'a>(&self, works: impl IntoIterator<Item = &'a Work>) -> Result<(), Code> {
        if self.is_legacy() {
            refuse_implicit(&*state()?, self.context)?;
        }
        let _in_order = lock(&self.order);
        works.into_iter().try_for_each(Work::run)
    }
}

/// Gives work to a stream: done before this returns, or captured.
pub fn submit(stream: &Stream, work: Work) -> Result<(), Code> {
    if let Some(capture) = &mut *lock(&stream.capture) {
        if capture.invalidated {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        capture.works.push(work);
        return Ok(());
    }
    stream.run([&work])
}

/// The stream of a handle; 0, 1 and 2 are the current context's default streams.
pub fn resolve(context: &Context, handle: Handle) -> Result<Arc<Stream>, Code> {
    match handle {
        0 | 1 => Ok(Arc::clone(&context.default_streams[0])),
        2 => Ok(Arc::clone(&context.default_streams[1])),
        _ => {
            let state = state()?;
            let stream = state.streams.get(handle)?;
            state
                .contexts
                .get(stream.context)
                .map_err(|_| Code::CONTEXT_IS_DESTROYED)?
                .check()?;
            Ok(stream)
        }
    }
}

/// Every stream there is, default streams included.
fn all(state: &State) -> impl Iterator<Item = &Arc<Stream>> {
    state.streams.iter().chain(
        state
            .contexts
            .iter()
            .flat_map(|context| &context.default_streams),
    )
}

/// Refuses a call that a capture in progress forbids, and invalidates that capture: in global mode
/// to every thread, in thread-local mode to its own. With `synchronised`, that context's captures
/// forbid it in any mode.
pub fn refuse_while_capturing(synchronised: Option<Handle>) -> Result<(), Code> {
    let state = state()?;
    let mut refused = false;
    for stream in all(&state) {
        if let Some(capture) = &mut *lock(&stream.capture) {
            let own = capture.thread == std::thread::current().id();
            let unsafe_here = capture.mode == GLOBAL || (capture.mode != RELAXED && own);
            if unsafe_here || synchronised == Some(stream.context) {
                capture.invalidated = true;
                refused = true;
            }
        }
    }
    if refused {
        Err(Code::STREAM_CAPTURE_UNSUPPORTED)
    } else {
        Ok(())
    }
}

/// Refuses work in the legacy default stream while a stream that it waits for is capturing.
fn refuse_implicit(state: &State, context: Handle) -> Result<(), Code> {
    let mut refused = false;
    for stream in state.streams.iter() {
        if stream.context == context && stream.flags & NON_BLOCKING == 0 {
            refused |= stream.invalidate_capture();
        }
    }
    if refused {
        Err(Code::STREAM_CAPTURE_IMPLICIT)
    } else {
        Ok(())
    }
}

fn create(stream: Out<Handle>, flags: c_uint, priority: c_int) -> Result<(), Code> {
    let context = current()?;
    stream.required()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut state = state()?;
    let handle = state.new_handle(Kind::Stream);
    let priority = priority.clamp(GREATEST_PRIORITY, 0);
    let created = Stream::new(handle, context.handle, flags, priority);
    state.streams.insert(handle, Arc::new(created));
    stream.write(handle)
}

fn capture_info(stream: Handle, status: Out<c_uint>, id: Out<u64>) -> Result<(), Code> {
    let stream = resolve(&*current()?, stream)?;
    let capture = lock(&stream.capture);
    status.write(match &*capture {
        None => 0,
        Some(capture) if capture.invalidated => 2,
        Some(_) => 1,
    })?;
    if let Some(capture) = &*capture {
        id.write_if_asked(capture.number as u64);
    }
    Ok(())
}

entry_points! {
    /// Creates a stream.
    2000 fn cuStreamCreate(stream: Out<Handle>, flags: c_uint) {
        create(stream, flags, 0)
    }

    /// Creates a stream with a priority, which is kept, without effect.
    5050 fn cuStreamCreateWithPriority(stream: Out<Handle>, flags: c_uint, priority: c_int) {
        create(stream, flags, priority)
    }

    /// Destroys a stream; its work is done.
    4000 fn cuStreamDestroy_v2(stream: Handle) {
        current_unchecked()?;
        state()?.streams.remove(stream)?;
        Ok(())
    }

    /// Waits for a stream's work, which is done; reports a kernel's fault.
    2000 fn cuStreamSynchronize(stream: Handle) {
        let stream = resolve(&*current()?, stream)?;
        stream.refuse_capture()?;
        // Another thread may be running work in it.
        drop(lock(&stream.order));
        current()?;
        Ok(())
    }

    /// Whether a stream's work is done: it is.
    2000 fn cuStreamQuery(stream: Handle) {
        resolve(&*current()?, stream)?.refuse_capture()
    }

    /// Makes a stream wait for an event, which has happened; in a capture, checks that it belongs.
    3020 fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) {
        let stream = resolve(&*current()?, stream)?;
        let event = state()?.events.get(event)?;
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        event.check_wait(&stream)
    }

    /// The context of a stream.
    9020 fn cuStreamGetCtx(stream: Handle, context: Out<Handle>) {
        context.write(resolve(&*current()?, stream)?.context)
    }

    /// The device of a stream.
    12080 fn cuStreamGetDevice(stream: Handle, device: Out<c_int>) {
        let stream = resolve(&*current()?, stream)?;
        device.write(state()?.contexts.get(stream.context)?.device as c_int)
    }

    /// The flags of a stream.
    5050 fn cuStreamGetFlags(stream: Handle, flags: Out<c_uint>) {
        flags.write(resolve(&*current()?, stream)?.flags)
    }

    /// The priority of a stream.
    5050 fn cuStreamGetPriority(stream: Handle, priority: Out<c_int>) {
        priority.write(resolve(&*current()?, stream)?.priority)
    }

    /// A number that no other stream of the context has.
    12000 fn cuStreamGetId(stream: Handle, id: Out<u64>) {
        id.write(resolve(&*current()?, stream)?.handle as u64)
    }

    /// Calls a function in a stream's order.
    10000 fn cuLaunchHostFunc(
        stream: Handle, function: Option<extern "C" fn(*mut c_void)>, argument: Out<c_void>,
    ) {
        let stream = resolve(&*current()?, stream)?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        let argument = argument.address() as *mut c_void;
        submit(&stream, Work::Host(HostCall { function, argument }))
    }

    /// Begins to capture a stream's work.
    10010 fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) {
        let stream = resolve(&*current()?, stream)?;
        if mode > RELAXED {
            return Err(Code::INVALID_VALUE);
        }
        if stream.is_legacy() {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        let number = state()?.new_number();
        let mut capture = lock(&stream.capture);
        if capture.is_some() {
            return Err(Code::ILLEGAL_STATE);
        }
        let thread = std::thread::current().id();
        *capture = Some(Capture { mode, thread, number, works: vec![], invalidated: false });
        Ok(())
    }

    /// Ends a capture and gives its graph.
    10000 fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) {
        let stream = resolve(&*current()?, stream)?;
        graph.required()?;
        let capture = {
            let mut slot = lock(&stream.capture);
            let capture = slot.as_ref().ok_or(Code::ILLEGAL_STATE)?;
            if capture.mode != RELAXED && capture.thread != std::thread::current().id() {
                return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
            }
            slot.take().ok_or(Code::ILLEGAL_STATE)?
        };
        if capture.invalidated {
            graph.write(0)?;
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        graph.write(Graph::create(&mut *state()?, capture.works))
    }

    /// Whether a stream is capturing.
    10000 fn cuStreamIsCapturing(stream: Handle, status: Out<c_uint>) {
        capture_info(stream, status, Out::null())
    }

    /// Whether a stream is capturing, and the capture's number.
    10010 fn cuStreamGetCaptureInfo(stream: Handle, status: Out<c_uint>, id: Out<u64>) {
        capture_info(stream, status, id)
    }

    /// Whether a stream is capturing, and the capture's number; the graph being built is not shown.
    11030 fn cuStreamGetCaptureInfo_v2(
        stream: Handle, status: Out<c_uint>, id: Out<u64>, graph: In<Handle>,
        dependencies: In<c_void>, count: In<usize>,
    ) {
        if !graph.is_null() || !dependencies.is_null() || !count.is_null() {
            return Err(Code::NOT_SUPPORTED);
        }
        capture_info(stream, status, id)
    }

    /// Whether a stream is capturing, and the capture's number; the graph being built is not shown.
    12030 fn cuStreamGetCaptureInfo_v3(
        stream: Handle, status: Out<c_uint>, id: Out<u64>, graph: In<Handle>,
        dependencies: In<c_void>, edges: In<c_void>, count: In<usize>,
    ) {
        if !graph.is_null() || !dependencies.is_null() || !edges.is_null() || !count.is_null() {
            return Err(Code::NOT_SUPPORTED);
        }
        capture_info(stream, status, id)
    }
}
