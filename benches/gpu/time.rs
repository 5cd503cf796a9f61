//! Times by events on a stream.

use cust::error::CudaError;
use cust::event::{Event, EventFlags};
use cust::memory::{AsyncCopyDestination, DeviceBuffer};
use cust::stream::Stream;

use crate::memory;

/// Microseconds per call.
#[derive(Default)]
pub struct Times {
    samples: Vec<f64>,
    /// Calls between two events.
    pub calls: usize,
}

impl Times {
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// The first quartile, the median, the third quartile.
    pub fn quartiles(&self) -> (f64, f64, f64) {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |quarter| sorted[(sorted.len() - 1) * quarter / 4];
        (at(1), at(2), at(3))
    }

    pub fn median(&self) -> f64 {
        self.quartiles().1
    }
}

/// What a sample should last, in microseconds: long against an event's resolution and a launch.
const SAMPLE_US: f64 = 500.0;

/// Warms up and adds `samples` samples to `times`. Everything is queued before anything is waited
/// for, so that the device never waits for the host.
pub fn time(
    stream: &Stream,
    samples: usize,
    times: &mut Times,
    mut run: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let failed = |error: CudaError| format!("timing: {error}");
    let event = || Event::new(EventFlags::DEFAULT).map_err(failed);
    let span = |from: &Event, to: &Event| {
        let milliseconds = to.elapsed_time_f32(from).map_err(failed)?;
        Ok::<f64, String>(f64::from(milliseconds) * 1e3)
    };
    if times.calls == 0 {
        let (start, end) = (event()?, event()?);
        run()?;
        start.record(stream).map_err(failed)?;
        run()?;
        end.record(stream).map_err(failed)?;
        stream.synchronize().map_err(failed)?;
        let calls = (SAMPLE_US / span(&start, &end)?.max(1.0)).ceil();
        times.calls = (calls as usize).clamp(1, 50);
    }
    // The first sample warms up: it is not kept.
    let events: Vec<Event> = (0..samples + 2)
        .map(|_| event())
        .collect::<Result<_, _>>()?;
    for (i, event) in events.iter().enumerate() {
        for _ in 0..times.calls.min(i * times.calls) {
            run()?;
        }
        event.record(stream).map_err(failed)?;
    }
    stream.synchronize().map_err(failed)?;
    for pair in events[1..].windows(2) {
        // An event's clock may stand still for a short call of an emulated device.
        let microseconds = span(&pair[0], &pair[1])?.max(1e-3);
        times.samples.push(microseconds / times.calls as f64);
    }
    Ok(())
}

/// A copy on the device.
pub struct Copy {
    from: DeviceBuffer<u32>,
    to: DeviceBuffer<u32>,
}

impl Copy {
    pub fn new(bytes: usize) -> Result<Self, String> {
        let mut from = memory(bytes / 4, "the copy")?;
        from.set_32(0x3c00_3c00)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            from,
            to: memory(bytes / 4, "the copy")?,
        })
    }

    pub fn run(&mut self, stream: &Stream) -> Result<(), String> {
        // SAFETY: both buffers live until the stream has been waited for, and nothing else uses them.
        let copied = unsafe { self.to.async_copy_from(&self.from, stream) };
        copied.map_err(|error| format!("copy: {error}"))
    }
}
