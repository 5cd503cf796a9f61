//! Events: moments in a stream.

use std::ffi::c_uint;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::boundary::{Handle, Out, entry_points, say};
use crate::error::Code;
use crate::state::{Kind, current, current_unchecked, lock, state};
use crate::stream::{Stream, resolve, submit};
use crate::work::Work;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;

/// An event.
pub struct Event {
    /// Handle of its context.
    pub context: Handle,
    flags: c_uint,
    last: Mutex<Recorded>,
}

/// Where an event was last recorded.
#[derive(Clone, Copy)]
enum Recorded {
    Never,
    At(Instant),
    /// In the capture of this number.
    InCapture(usize),
}

impl Event {
    /// Records the event now.
    pub fn happen(&self) {
        *lock(&self.last) = Recorded::At(Instant::now());
    }

    fn last(&self) -> Recorded {
        *lock(&self.last)
    }

    /// Whether a stream may wait for the event.
    pub fn check_wait(&self, stream: &Stream) -> Result<(), Code> {
        match (self.last(), stream.capture_number()?) {
            (Recorded::Never, _) | (Recorded::At(_), None) => Ok(()),
            (Recorded::InCapture(event), Some(stream)) if event == stream => Ok(()),
            (Recorded::At(_), Some(_)) => {
                stream.invalidate_capture();
                Err(Code::STREAM_CAPTURE_ISOLATION)
            }
            (Recorded::InCapture(_), _) => {
                say("cuStreamWaitEvent: capture across several streams is not supported");
                stream.invalidate_capture();
                Err(Code::NOT_SUPPORTED)
            }
        }
    }

    fn refuse_captured(&self) -> Result<(), Code> {
        match self.last() {
            Recorded::InCapture(_) => Err(Code::CAPTURED_EVENT),
            _ => Ok(()),
        }
    }

    /// When it was recorded, for events with timing.
    fn time(&self) -> Result<Instant, Code> {
        match self.last() {
            Recorded::At(instant) if self.flags & DISABLE_TIMING == 0 => Ok(instant),
            Recorded::InCapture(_) => Err(Code::CAPTURED_EVENT),
            _ => Err(Code::INVALID_HANDLE),
        }
    }
}

fn record(event: Handle, stream: Handle, external: bool) -> Result<(), Code> {
    let context = current()?;
    let stream = resolve(&context, stream)?;
    let event = state()?.events.get(event)?;
    if event.context != stream.context {
        return Err(Code::INVALID_HANDLE);
    }
    match stream.capture_number()? {
        Some(number) if !external => {
            *lock(&event.last) = Recorded::InCapture(number);
            Ok(())
        }
        _ => submit(&stream, Work::Record(event)),
    }
}

fn elapsed(milliseconds: Out<f32>, start: Handle, end: Handle) -> Result<(), Code> {
    current()?;
    let (start, end) = {
        let state = state()?;
        (state.events.get(start)?, state.events.get(end)?)
    };
    let (start, end) = (start.time()?, end.time()?);
    let seconds = match end.checked_duration_since(start) {
        Some(after) => after.as_secs_f64(),
        None => -(start - end).as_secs_f64(),
    };
    milliseconds.write((seconds * 1e3) as f32)
}

entry_points! {
    /// Creates an event.
    2000 fn cuEventCreate(event: Out<Handle>, flags: c_uint) {
        let context = current()?;
        event.required()?;
        if flags > 7 {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = state()?;
        let handle = state.new_handle(Kind::Event);
        let last = Mutex::new(Recorded::Never);
        state.events.insert(handle, Arc::new(Event { context: context.handle, flags, last }));
        event.write(handle)
    }

    /// Destroys an event.
    4000 fn cuEventDestroy_v2(event: Handle) {
        current_unchecked()?;
        state()?.events.remove(event)?;
        Ok(())
    }

    /// Records an event in a stream.
    2000 fn cuEventRecord(event: Handle, stream: Handle) {
        record(event, stream, false)
    }

    /// Records an event in a stream; as a node of its own in a capture, if the flag says so.
    11010 fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) {
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        record(event, stream, flags == 1)
    }

    /// Whether an event has happened: it has.
    2000 fn cuEventQuery(event: Handle) {
        current()?;
        state()?.events.get(event)?.refuse_captured()
    }

    /// Waits for an event, which has happened.
    2000 fn cuEventSynchronize(event: Handle) {
        current()?;
        state()?.events.get(event)?.refuse_captured()
    }

    /// Milliseconds between two events.
    2000 fn cuEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) {
        elapsed(milliseconds, start, end)
    }

    /// Milliseconds between two events.
    12080 fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: Handle, end: Handle) {
        elapsed(milliseconds, start, end)
    }
}
