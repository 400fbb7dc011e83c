//! Makes one tree equal to another: compares listings, copies, then removes.
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
//! The client compares, in both directions: it receives the server's listing as a stream and walks its own tree in the
//! same order, so that neither is held in memory. Differences are copied as in any copy.

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
