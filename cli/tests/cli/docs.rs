//! Commands that the documents name exist.
