//! What may arrive at the top of a copy.

use std::collections::HashSet;

/// What may arrive at the top of a copy, and under which name it is put there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopLevel {
    /// Anything, under its own name.
    Any,
    /// These names only: what a client asked for. A server cannot slip in another.
    Only(HashSet<Vec<u8>>),
    /// One entry, under this name.
    One(Vec<u8>),
}
