//! What messages name: operations, dimensions, lists.

use std::fmt;

/// The operation that refused, as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// [`crate::supports`], and every operation that asks it first.
    Config,
    /// [`crate::Plan::new`].
    Plan,
    /// Paged decode attention, on any back end.
    Decode,
    /// The f64 reference.
    Reference,
    /// Attention over contiguous keys and values.
    Contiguous,
    /// Writing new keys or values into the cache.
    ReshapeAndCache,
    /// Copying blocks of the cache.
    CopyBlocks,
    /// Gathering cached keys or values into contiguous rows.
    GatherCache,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Config => "config",
            Op::Plan => "plan",
            Op::Decode => "decode",
            Op::Reference => "reference",
            Op::Contiguous => "contiguous",
            Op::ReshapeAndCache => "reshape_and_cache",
            Op::CopyBlocks => "copy_blocks",
            Op::GatherCache => "gather_cache",
        })
    }
}

/// Named dimensions, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(pub Vec<(&'static str, usize)>);

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, size)) in self.0.iter().enumerate() {
            write!(f, "{}{name} {size}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// Numbers in a row, separated by commas.
pub(super) struct List<'a>(pub(super) &'a [u32]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, value) in self.0.iter().enumerate() {
            write!(f, "{}{value}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
