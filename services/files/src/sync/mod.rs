//! Making one tree equal to another: what differs is found by listings, then copied, then what is too
//! much is removed.
//!
//! ```text
//!  walk ----------\                    /---- pages: the peer's listing, checked
//!  (this end)      merge <- compare, filter
//!                    |
//!                  plan: Notes, in order          what to copy; what to remove
//!                    |
//!   send::planned, receive::replace, remove       carried out, a batch at a time
//! ```
//!
//! The client compares, in both directions: the server's listing comes in one stream, and the own tree
//! is walked in the same order, so neither is ever held. What it finds goes over as in any copy.

pub(crate) mod compare;
pub(crate) mod link_dest;
pub(crate) mod merge;
pub(crate) mod options;
pub(crate) mod pages;
pub(crate) mod plan;
pub(crate) mod remove;
pub(crate) mod sight;
pub(crate) mod walk;

#[cfg(test)]
mod tests;
