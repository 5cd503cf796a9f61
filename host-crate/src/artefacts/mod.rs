//! The shipped PTX and its manifest.
//!
//! [`PtxSet::embedded`] is compiled into the crate; [`PtxSet::load`] reads another build of the same
//! kernels from a folder. Both hold one PTX file per (dtype, head_dim) with its decode and merge
//! entries, and a [`Manifest`] that says how to launch them without this crate.

mod embedded;
mod manifest;
mod requirements;
mod set;

pub use manifest::{
    CACHE_FILE, EntryKind, Manifest, ManifestEntry, Parameter, ParameterField, file_name,
};
pub use set::{PlannedPtx, PtxSet};

/// The manifest of the embedded set.
pub fn manifest() -> &'static Manifest {
    PtxSet::embedded().manifest()
}
