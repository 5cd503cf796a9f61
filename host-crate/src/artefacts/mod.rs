//! The shipped PTX and its manifest.

mod manifest;

pub use manifest::{EntryKind, Manifest, ManifestEntry, Parameter, ParameterField};
