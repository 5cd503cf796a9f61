//! The command line.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use paged_attention::{CacheLayout, DType, SplitPolicy};

use crate::ptx::{self, SetName};

/// Attention that reads keys and values through a block table.
///
/// Start with `paged-attention demo`. Then make a batch with `sample`, or write one of your own,
/// and run it with `decode`. `ptx` shows and exports the GPU kernels that this program carries.
#[derive(Parser)]
#[command(name = "paged-attention", version, verbatim_doc_comment)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Demo(DemoArgs),
    Sample(SampleArgs),
    Decode(DecodeArgs),
    Report(ReportArgs),
    Simulate(SimulateArgs),
    /// The GPU kernels (PTX) that this program carries
    Ptx {
        #[command(subcommand)]
        command: PtxCommand,
    },
}

#[derive(Subcommand)]
pub enum PtxCommand {
    List(PtxListArgs),
    Export(PtxExportArgs),
}

/// Show attention through a block table on a small worked case
///
/// One sequence of 60 tokens in blocks of 16, held by the physical blocks 7, 1, 12 and 4: which
/// block is read where, what each one contributes, how the contributions merge, and that the
/// result equals attention over contiguous keys and values.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct DemoArgs {
    /// Storage type of q, K, V and the output
    #[arg(long, value_enum, ignore_case = true, default_value_t = Dtype::F16)]
    pub dtype: Dtype,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Write a random batch for `decode` to a safetensors file
///
/// Values are uniform in [-1, 1]. The block table is shuffled over a pool with some spare blocks;
/// every slot that no sequence uses holds NaN, and unused table entries hold -1. The same options
/// and seed give the same file.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct SampleArgs {
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Number of sequences
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub num_seqs: usize,
    /// Tokens per sequence: N, or random from A to B, both included
    #[arg(long, default_value = "1..1000", value_name = "N|A..B")]
    pub ctx: ContextRange,
    /// Query heads
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub heads: usize,
    /// Key/value heads; divides the query heads [default: as many as query heads]
    #[arg(long, value_name = "N")]
    pub kv_heads: Option<usize>,
    /// Elements per head
    #[arg(long, default_value_t = 128, value_name = "N")]
    pub head_dim: usize,
    /// Tokens per physical block
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub block_size: usize,
    /// Storage type of q, K and V
    #[arg(long, value_enum, ignore_case = true, default_value_t = Dtype::F16)]
    pub dtype: Dtype,
    /// Order of the cache's dimensions
    #[arg(long, value_enum, ignore_case = true, default_value_t = Layout::Nhd)]
    pub layout: Layout,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

const PTX_SET_MORE: &str = "

`ptx list` shows what this program carries. A folder has a manifest.json and the PTX files that
it names, as `ptx export` writes them.";

const DECODE_FORMAT: &str = "\
Input tensors:
  q            [num_seqs, num_q_heads, head_dim]                    F32, F16 or BF16
  k_cache      [num_blocks, block_size, num_kv_heads, head_dim]     as q (NHD)
               [num_blocks, num_kv_heads, block_size, head_dim]     (HND)
  v_cache      as k_cache
  block_table  [num_seqs, max_blocks_per_seq]                       I32 or U32
  seq_lens     [num_seqs]                                           I32 or U32
Input metadata, both optional:
  layout       NHD (the default) or HND
  scale        factor on q·k before the softmax; the default is 1/sqrt(head_dim)
Output tensors:
  out          [num_seqs, num_q_heads, head_dim]                    as q
  lse          [num_seqs, num_q_heads], natural log-sum-exp         F32

Token t of sequence s lies in physical block block_table[s][t / block_size], slot t % block_size.
Slots past a sequence's length and table entries past its last block are never read. The output
file appears whole or not at all.

Example:
  paged-attention sample -o batch.safetensors --num-seqs 8 --ctx 1..4000 --kv-heads 8
  paged-attention decode --input batch.safetensors --output out.safetensors --check";

/// Run decode attention over a batch in a safetensors file
#[derive(Args)]
#[command(after_help = DECODE_FORMAT)]
pub struct DecodeArgs {
    /// Batch to read
    #[arg(short, long, value_name = "FILE")]
    pub input: PathBuf,
    /// File to write `out` and `lse` to
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// What computes
    #[arg(long, value_enum, default_value_t = Device::Auto)]
    pub device: Device,
    // Its help is not a doc comment: which sets there are depends on how the program was built.
    #[arg(
        long,
        value_name = "SET|DIR",
        help = ptx::help("PTX that --device cuda or emulator runs", "a folder"),
        long_help = ptx::help("PTX that --device cuda or emulator runs", "a folder") + PTX_SET_MORE
    )]
    pub ptx_set: Option<SetName>,
    /// Factor on q·k before the softmax [default: the file's, else 1/sqrt(head_dim)]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub scale: Option<f32>,
    /// Tokens per split: a multiple of 16, or `auto` to fill the device
    ///
    /// With a fixed number, 512 is recommended, the output bits of a sequence do not depend on the
    /// rest of the batch; with `auto` they may.
    #[arg(
        long,
        default_value = "auto",
        value_name = "N|auto",
        verbatim_doc_comment
    )]
    pub split: Split,
    /// Compare with the f64 reference and print the largest error last
    ///
    /// Fails, and writes no output, if an element is off by more than rounding explains. Scores can
    /// be so large that rounding explains anything: such elements are counted and reported.
    #[arg(long, verbatim_doc_comment)]
    pub check: bool,
}

/// Show what the kernels cost, beside their targets and beside contiguous attention
///
/// Counts come from the emulator, which runs the GPU kernels' PTX: instructions and sectors per byte
/// of K and V, and the bounds that follow for some GPUs. Then paged against contiguous attention,
/// and what the difference means for a whole step.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct ReportArgs {
    /// What paged and contiguous attention are compared on
    #[arg(long, value_enum, default_value_t = ReportDevice::Emulator)]
    pub device: ReportDevice,
    /// Folder for charts, SVG; made if missing [default: no charts]
    #[arg(short, long, visible_alias = "charts", value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Context lengths of the comparison
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [256, 1024, 4096, 16384],
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub ctx: Vec<u32>,
    /// Block sizes of the comparison
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64, 128, 256],
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub block_size: Vec<u32>,
    /// Share of a step that attention takes
    #[arg(long, value_name = "X", default_value_t = 0.25, value_parser = share)]
    pub attention_share: f64,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text
        .parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share));
    share.ok_or(format!("`{text}` must be a number from 0 to 1"))
}

/// What `report` compares on.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportDevice {
    /// The PTX, interpreted: counts
    Emulator,
    /// All cores of this machine: times
    Cpu,
    /// The first CUDA device: times; the program must be built with its feature `cuda`
    Cuda,
}

const SIMULATION: &str = "\
The model:
  Requests   log-normal prompt and output lengths with the means of the paper's traces (ShareGPT
             161 in, 338 out; Alpaca 19, 58), redrawn where both exceed --max-len; Poisson arrivals.
             The paper gives no spread; the sigmas printed are this program's choice.
  Batching   Sequences join and leave between steps, first come, first served. A step computes one
             token of every sequence and the prompts of new ones, at most 4096 prompt tokens.
  Time       max(weights / bandwidth, 2 x parameters x tokens / arithmetic) + bytes of K and V of all
             contexts / bandwidth, x --paging-factor if paged. Peak speeds, no other overhead. The
             factor is the same for every block size; small blocks cost a real kernel more.
  Memory     Paged: the library's own BlockPool; if it runs out, the latest sequence yields and is
             computed again. Contiguous: a buddy allocator, as in the paper, which reserves on
             admission --max-len slots, or the prompt and the next power of two of the output, or
             the exact final length, which no server knows.
  Columns    Shares of the cache memory, and the batch, time-weighted while requests wait with all of
             them there from the start: slots that hold tokens, slots for tokens to come, slots inside
             reservations and blocks that are never used, and the rest (free, or lost to rounding).
             requests/s is the rate at which the mean of (end - arrival) / output tokens reaches
             --latency.
The paper: Kwon et al., Efficient Memory Management for Large Language Model Serving with
PagedAttention, SOSP 2023: 20.4-38.2 % of the memory held tokens before, 96.3 % with paging, and
throughput rose 2-4x at the same latency.";

/// Simulate serving: paged against contiguous cache memory
///
/// Prints what the cache memory holds, the batch and the throughput at equal latency under every
/// policy, and writes charts.
#[derive(Args)]
#[command(after_long_help = SIMULATION, verbatim_doc_comment)]
pub struct SimulateArgs {
    /// Model and GPU; the options below override its numbers
    #[arg(long, value_enum, default_value_t = Preset::Opt13bA100)]
    pub preset: Preset,
    /// Lengths of the requests [default: both traces]
    #[arg(long, value_enum)]
    pub trace: Option<Trace>,
    /// Requests per run
    #[arg(long, default_value_t = 4000, value_name = "N")]
    pub requests: usize,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Folder for the charts; made if missing
    #[arg(
        long,
        visible_alias = "out",
        default_value = "simulation",
        value_name = "DIR"
    )]
    pub charts: PathBuf,
    /// Mean latency in seconds per token at which rates are compared [default: 5 × the time to read
    /// the weights]
    #[arg(long, value_name = "S", verbatim_doc_comment)]
    pub latency: Option<f64>,
    /// Longest prompt and output together, in tokens
    #[arg(long, default_value_t = 2048, value_name = "N")]
    pub max_len: usize,
    /// Bytes of the weights, 16-bit
    #[arg(long, value_name = "GB")]
    pub weights_gb: Option<f64>,
    /// Bytes of K and V per token, all layers together
    #[arg(long, value_name = "KB")]
    pub token_kb: Option<f64>,
    /// Memory for K and V
    #[arg(long, value_name = "GB")]
    pub cache_gb: Option<f64>,
    /// Memory bandwidth
    #[arg(long, value_name = "GB/s")]
    pub bandwidth_gbs: Option<f64>,
    /// Arithmetic
    #[arg(long, value_name = "TFLOP/s")]
    pub tflops: Option<f64>,
    /// Most sequences in a batch
    #[arg(long, value_name = "N")]
    pub max_batch: Option<usize>,
    /// Factor on the time to read K and V through a block table; the paper's kernel had 1.20 to 1.26
    #[arg(long, default_value_t = 1.05, value_name = "X")]
    pub paging_factor: f64,
}

/// Models and GPUs on the command line.
#[derive(Clone, Copy, ValueEnum)]
pub enum Preset {
    /// OPT-13B on A100-40G, as in the paper
    #[value(name = "opt-13b-a100")]
    Opt13bA100,
    /// Llama-3-8B on H100
    #[value(name = "llama-3-8b-h100")]
    Llama3H100,
}

/// Traces on the command line.
#[derive(Clone, Copy, ValueEnum)]
pub enum Trace {
    /// Chats: 161 tokens in, 338 out
    Sharegpt,
    /// Instructions: 19 tokens in, 58 out
    Alpaca,
}

/// List the sets of PTX, their files and entries and how they were built
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct PtxListArgs {
    /// One line per entry instead of one per file
    #[arg(long)]
    pub entries: bool,
}

/// Write the PTX files and manifest.json to a folder
///
/// The manifest says all that another program needs to launch the kernels: symbols, the layout of
/// the argument struct, grid, block and shared memory.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct PtxExportArgs {
    /// Folder to write to; made if missing
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    // Not a doc comment, as for `decode`.
    #[arg(
        long,
        value_name = "SET|DIR",
        default_value_t,
        help = ptx::help("What to write", "another folder")
    )]
    pub ptx_set: SetName,
}

/// Storage types on the command line.
#[derive(Clone, Copy, ValueEnum)]
pub enum Dtype {
    F32,
    F16,
    Bf16,
}

impl From<Dtype> for DType {
    fn from(dtype: Dtype) -> DType {
        match dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::Bf16 => DType::Bf16,
        }
    }
}

/// Cache layouts on the command line.
#[derive(Clone, Copy, ValueEnum)]
pub enum Layout {
    /// [num_blocks, block_size, num_kv_heads, head_dim]
    Nhd,
    /// [num_blocks, num_kv_heads, block_size, head_dim]
    Hnd,
}

impl From<Layout> for CacheLayout {
    fn from(layout: Layout) -> CacheLayout {
        match layout {
            Layout::Nhd => CacheLayout::Nhd,
            Layout::Hnd => CacheLayout::Hnd,
        }
    }
}

/// Back ends.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Device {
    /// A CUDA device if the program is built for one and it answers, else the CPU
    Auto,
    /// All cores of this machine
    Cpu,
    /// The first CUDA device; the program must be built with its feature `cuda`
    Cuda,
    /// The GPU kernels' PTX, interpreted and checked: slow, prints counters
    Emulator,
}

/// `--ctx`: lengths from A to B, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextRange(pub RangeInclusive<u32>);

impl FromStr for ContextRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let parsed = text.parse::<u32>().ok().filter(|&n| n <= i32::MAX as u32);
            parsed.ok_or(format!(
                "`{text}` must be a whole number between 0 and {}",
                i32::MAX
            ))
        };
        let (first, last) = match text.split_once("..") {
            Some((first, last)) => {
                let last = last.strip_prefix('=').unwrap_or(last);
                (number(first)?, number(last)?)
            }
            None => (number(text)?, number(text)?),
        };
        if first > last {
            return Err(format!("{first} must not exceed {last}"));
        }
        Ok(Self(first..=last))
    }
}

/// `--split`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split(pub SplitPolicy);

impl FromStr for Split {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self(SplitPolicy::Auto));
        }
        // Which numbers will do is for the plan to say.
        let tokens = text.parse().map_err(|_| {
            format!("`{text}` must be `auto` or a whole number of tokens in 32 bits")
        })?;
        Ok(Self(SplitPolicy::Tokens(tokens)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn context_ranges_include_both_ends() {
        let parse = |text: &str| text.parse::<ContextRange>().map(|range| range.0);
        assert_eq!(parse("7"), Ok(7..=7));
        assert_eq!(parse("0..40"), Ok(0..=40));
        assert_eq!(parse("1..=40"), Ok(1..=40));
        assert_eq!(parse("5..4"), Err("5 must not exceed 4".into()));
        for bad in ["", "..", "1..", "-1", "1..2147483648", "a..b"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn splits_are_auto_or_a_number() {
        assert_eq!("auto".parse(), Ok(Split(SplitPolicy::Auto)));
        assert_eq!("512".parse(), Ok(Split(SplitPolicy::Tokens(512))));
        assert!("".parse::<Split>().is_err() && "-16".parse::<Split>().is_err());
    }
}
