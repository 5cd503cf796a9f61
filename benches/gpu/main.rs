//! `cargo bench --features cuda --bench gpu`: paged decode on a CUDA device.
//!
//! Every shape is verified against the f64 reference first, paged and contiguous. Then a
//! device-to-device copy, paged decode, and decode by the contiguous twin of the same kernel are
//! timed in turn with events on one stream. Calls rotate through sets of distinct blocks that
//! together hold at least four times what the L2 cache does. A share is (bytes of K and V per second) ÷
//! (bytes that the copy reads and writes per second), medians of one run.
//!
//! `-- --small` takes small sizes, for the emulated driver; `-- --csv FILE` writes the numbers.

mod batch;
mod time;
#[path = "../../cli/src/report/twin.rs"]
mod twin;

use std::path::{Path, PathBuf};

use cust::context::Context;
use cust::device::Device;
use cust::memory::DeviceBuffer;
use cust::stream::{Stream, StreamFlags};
use paged_attention::cuda::CudaBackend;

use batch::{Batch, Shape};
use time::{Copy, Times, time};

/// The table's shapes: f16, head_dim 128, blocks of 16.
const SHAPES: [Shape; 4] = [
    Shape::new("MHA 32/32 bs16 4k", 16, 4096, 32, 32),
    Shape::new("GQA 64/8 bs64 8k", 64, 8192, 64, 8),
    Shape::new("GQA 64/8 bs1 64k", 1, 65_536, 64, 8),
    // What vLLM's own benchmark of its kernel takes when nothing else is asked for.
    Shape::new("vLLM default 64/8 bs8 4k", 8, 4096, 64, 8),
];

/// The same for an interpreter.
const SMALL: [Shape; 4] = [
    Shape::new("MHA 4/4 bs2 128, small", 2, 128, 4, 4),
    Shape::new("GQA 16/2 bs3 256, small", 3, 256, 16, 2),
    Shape::new("GQA 16/2 bs1 1024, small", 1, 1024, 16, 2),
    Shape::new("GQA 8/1 bs2 128, small", 2, 128, 8, 1),
];

struct Args {
    small: bool,
    csv: Option<PathBuf>,
}

impl Args {
    fn parse() -> Result<Self, String> {
        let mut args = Self {
            small: false,
            csv: None,
        };
        let mut words = std::env::args_os().skip(1);
        while let Some(word) = words.next() {
            match word.to_str() {
                Some("--small") => args.small = true,
                Some("--csv") => {
                    let file = words.next().ok_or("--csv must be followed by a file")?;
                    args.csv = Some(file.into());
                }
                // cargo's own.
                Some("--bench") => {}
                _ => {
                    return Err(format!(
                        "`{}` is unknown, must be --small or --csv FILE",
                        word.display()
                    ));
                }
            }
        }
        Ok(args)
    }
}

fn main() {
    if let Err(error) = run() {
        eprintln!("gpu: {error}");
        std::process::exit(2);
    }
}

fn run() -> Result<(), String> {
    let args = Args::parse()?;
    // Initialises the driver, and its errors are sentences.
    drop(CudaBackend::open(0).map_err(|error| format!("no CUDA device answers: {error}"))?);
    let device = Device::get_device(0).map_err(|error| error.to_string())?;
    let context = Context::new(device).map_err(|error| error.to_string())?;
    let backend = CudaBackend::new(&context).map_err(|error| error.to_string())?;
    let twin = CudaBackend::new(&context).map_err(|error| error.to_string())?;
    let twin = twin.with_ptx(twin::set());
    let l2 = backend.l2_cache_bytes();
    let ((major, minor), (cuda, point)) = (backend.compute_capability(), backend.driver_version());
    let sms = backend.limits().sm_count;
    println!("device: {}", backend.device_name());
    println!(
        "compute capability: {major}.{minor}, {sms} multiprocessors, {} MiB of L2",
        l2 >> 20
    );
    println!("driver: CUDA {cuda}.{point}");

    if backend.device_name().contains("emulated") {
        println!("The driver is the emulated one: these times say nothing about a GPU.");
        if !args.small {
            return Err("the emulated driver takes hours for full sizes, pass --small".into());
        }
        if args.csv.as_deref().is_some_and(among_results) {
            return Err("times of the emulated driver do not belong under benches/results".into());
        }
    }
    let bench = Bench {
        backend: &backend,
        twin: &twin,
        stream: Stream::new(StreamFlags::DEFAULT, None).map_err(|error| error.to_string())?,
        l2,
        small: args.small,
    };
    let shapes = if args.small { SMALL } else { SHAPES };
    let mut csv = String::from(
        "device,driver,shape,seqs,ctx,q_heads,kv_heads,head_dim,block_size,dtype,split_tokens,\
         splits,sets,kernel,bytes,samples,calls,median_us,q1_us,q3_us,gb_per_s,share_of_copy\n",
    );
    let mut summary = Summary::default();
    for shape in shapes {
        bench.shape(shape, &mut csv, &mut summary)?;
    }
    if let Some(path) = &args.csv {
        std::fs::write(path, csv).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    println!(
        "summary: {} shapes verified, paged {:.0} to {:.0} % of the copy, {:.2} to {:.2} of \
         contiguous time",
        shapes.len(),
        100.0 * summary.share.0,
        100.0 * summary.share.1,
        summary.paging.0,
        summary.paging.1
    );
    Ok(())
}

fn among_results(path: &Path) -> bool {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    path.ancestors()
        .any(|folder| folder.ends_with("benches/results"))
}

/// Least and most over the shapes.
struct Summary {
    share: (f64, f64),
    paging: (f64, f64),
}

impl Default for Summary {
    fn default() -> Self {
        let none = (f64::INFINITY, 0.0);
        Self {
            share: none,
            paging: none,
        }
    }
}

fn widen(range: &mut (f64, f64), value: f64) {
    *range = (range.0.min(value), range.1.max(value));
}

struct Bench<'a> {
    backend: &'a CudaBackend,
    twin: &'a CudaBackend,
    stream: Stream,
    l2: usize,
    small: bool,
}

impl Bench<'_> {
    fn shape(&self, shape: Shape, csv: &mut String, summary: &mut Summary) -> Result<(), String> {
        let sets = match self.small {
            true => 2,
            false => (4 * self.l2).div_ceil(shape.bytes()).max(1),
        };
        let mut batch = Batch::new([self.backend, self.twin], shape, sets)?;
        batch.verify(&self.stream)?;
        let copied = if self.small {
            1 << 20
        } else {
            (4 * self.l2).max(256 << 20)
        };
        let mut copy = Copy::new(copied)?;

        let (rounds, samples) = if self.small { (2, 2) } else { (5, 20) };
        let (mut set, mut other) = (0, 0);
        let mut times = [Times::default(), Times::default(), Times::default()];
        for _ in 0..rounds {
            let [copies, paged, contiguous] = &mut times;
            let stream = &self.stream;
            time(stream, samples, copies, || copy.run(stream))?;
            time(stream, samples, paged, || {
                set = (set + 1) % sets;
                batch.paged(stream, set)
            })?;
            time(stream, samples, contiguous, || {
                other = (other + 1) % sets;
                batch.contiguous(stream, other)
            })?;
        }
        let [copies, paged, contiguous] = &times;
        let copy_rate = 2.0 * copied as f64 / copies.median();
        let plan = &batch.plan;
        println!("\n{}", shape.name);
        println!(
            "  {:.1} MB of K and V, {sets} sets, up to {} splits of {} tokens",
            shape.bytes() as f64 / 1e6,
            plan.num_splits(),
            plan.split_tokens()
        );
        let bytes = [2 * copied, shape.bytes(), shape.bytes()];
        for ((kernel, times), bytes) in ["copy", "paged", "contiguous"]
            .iter()
            .zip(&times)
            .zip(bytes)
        {
            let (q1, median, q3) = times.quartiles();
            let rate = bytes as f64 / median;
            let share = rate / copy_rate;
            println!(
                "  {kernel:<10} {median:>10.1} us ({q1:.1} to {q3:.1})  {:>8.1} GB/s  {:>5.1} % of \
                 the copy",
                rate / 1e3,
                100.0 * share
            );
            let Shape {
                seqs,
                ctx,
                q_heads,
                kv_heads,
                ..
            } = shape;
            let (cuda, point) = self.backend.driver_version();
            csv.push_str(&format!(
                "{},{cuda}.{point},{},{seqs},{ctx},{q_heads},{kv_heads},{},{},f16,{},{},{sets},\
                 {kernel},{bytes},{},{},{median:.2},{q1:.2},{q3:.2},{:.1},{share:.4}\n",
                self.backend.device_name().replace(',', ";"),
                shape.name.replace(',', ";"),
                batch::HEAD_DIM,
                batch::BLOCK_SIZE,
                plan.split_tokens(),
                plan.num_splits(),
                times.len(),
                times.calls,
                rate / 1e3,
            ));
        }
        widen(
            &mut summary.share,
            shape.bytes() as f64 / paged.median() / copy_rate,
        );
        widen(&mut summary.paging, paged.median() / contiguous.median());
        Ok(())
    }
}

/// Device memory that is written before it is read.
fn memory<T: cust::memory::DeviceCopy>(len: usize, what: &str) -> Result<DeviceBuffer<T>, String> {
    // SAFETY: any bits are numbers, and callers write before a kernel reads.
    unsafe { DeviceBuffer::uninitialized(len) }.map_err(|error| {
        format!(
            "{} bytes of device memory for {what}: {error}",
            len * size_of::<T>()
        )
    })
}
