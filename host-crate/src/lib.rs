//! PagedAttention: attention that reads keys and values through a block table.
//!
//! A call goes through three types. [`AttentionConfig`] says what is computed, [`Plan`] decides
//! once how (which kernel entries, how contexts are split, how much workspace), and a back end runs
//! the plan over tensor views: [`cpu::decode`] on any machine. The same plan launches the shipped
//! PTX, see [`Plan::launches`] and [`artefacts`].

pub use paged_attention_kernels as kernels;

pub mod artefacts;
mod config;
pub mod contiguous;
pub mod cpu;
mod element;
mod error;
mod launch;
mod limits;
mod plan;
pub mod reference;
mod split;
mod table;
mod validate;
mod views;

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
pub const ALIGNMENT: usize = 16;
