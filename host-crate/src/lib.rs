//! PagedAttention: attention that reads keys and values through a block table.
//!
//! A call goes through three types. [`AttentionConfig`] says what is computed, [`Plan`] decides
//! once how (which kernel entries, how contexts are split, how much workspace), and a back end runs
//! the plan over tensor views: [`cpu::decode`] on any machine. The same plan launches the shipped
//! PTX, see [`Plan::launches`] and [`artefacts`].
//!
//! ```
//! use paged_attention::*;
//!
//! // 8 query heads read 2 kv heads of 64 elements; a physical block holds 16 tokens.
//! let config = AttentionConfig::new(DType::F32, 8, 2, 64, 16);
//! let (q, k_cache, v_cache) = (vec![0.1; 2 * 8 * 64], vec![0.2; 13 * 2048], vec![0.5; 13 * 2048]);
//! let inputs = DecodeInputs {
//!     q: RowsView::contiguous(&q, 2, 8, 64),
//!     k_cache: CacheView::dense(&k_cache, CacheLayout::Nhd, 13, 16, 2, 64),
//!     v_cache: CacheView::dense(&v_cache, CacheLayout::Nhd, 13, 16, 2, 64),
//!     // 60 tokens lie in blocks 7, 1, 12, 4, and 5 tokens in block 3.
//!     block_table: BlockTable::new(&[7, 1, 12, 4, 3, -1, -1, -1], 2, 4),
//!     seq_lens: &[60, 5],
//! };
//! let plan = Plan::new(&config, 2, 64, SplitPolicy::Tokens(512), &DeviceLimits::this_cpu())?;
//! let (mut out, mut lse) = (vec![0.0f32; 2 * 8 * 64], vec![0.0; 2 * 8]);
//! let mut workspace = vec![0.0; plan.workspace_len()];
//! let rows = RowsViewMut::contiguous(&mut out, 2, 8, 64);
//! cpu::decode(&plan, &inputs, rows, Some(&mut lse), &mut workspace)?;
//! println!("{} {}", out[0], lse[0]);
//! assert!((out[0] - 0.5).abs() < 1e-6);
//! # Ok::<(), Error>(())
//! ```

pub use half;
pub use paged_attention_kernels as kernels;

mod apart;
pub mod artefacts;
mod cache;
mod checks;
mod config;
pub mod contiguous;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod element;
#[cfg(feature = "emulator")]
pub mod emulator;
mod error;
mod launch;
mod limits;
mod plan;
pub mod pool;
pub mod reference;
mod split;
mod table;
mod validate;
mod views;

pub use cache::{CacheArgs, CacheLaunch, CacheSizes, CacheViewMut};
pub use config::{AttentionConfig, supports};
pub use element::Element;
pub use error::{Error, Op, Shape};
pub use kernels::variants::DType;
pub use launch::{
    DeviceCache, DeviceRows, DeviceTable, DeviceTensors, Launch, LaunchArgs, Launches,
};
pub use limits::DeviceLimits;
pub use plan::Plan;
pub use split::SplitPolicy;
pub use table::{BlockTable, i32_from_u32};
pub use validate::DecodeInputs;
pub use views::{CacheLayout, CacheStrides, CacheView, RowsView, RowsViewMut};

/// Bytes that a lane reads at a time: base pointers and block, token and head strides are multiples
/// of it, on every back end.
///
/// The global allocator of a 64-bit machine aligns a `Vec` so; arrays on the stack and literals may
/// start anywhere.
pub const ALIGNMENT: usize = 16;
