//! One source to many machines over Zerolane connections: what drives the engine of `zerolane-cast`.
//!
//! | module | what it holds |
//! |---|---|
//! | `invitation` | what a source and a host say to each other before the host is a node, and about its end |
//! | `drive` | a node over connections: its peers, its memory, the threads that check, write and read chunks |
//! | `links` | which connection leads to which peer |
//! | `pool` | the memory that chunks land in, and are forwarded from |
//! | `jobs` | the threads beside the connections |
//! | [`source`] | calls the hosts, leads them, and says what became of each |
//! | [`receiver`] | waits for a source, and takes part |
//! | `content` | what is cast: a file, a device, a tree, a stream |
//! | `target` | where it goes: the partial file, its end, and what an earlier try left |
//! | `feed` | content in order, as it comes, for what reads it as a stream |
//! | [`limits`] | every limit, with its reason |
//!
//! `docs/cast.md` has the design.
#![forbid(unsafe_code)]

mod content;
mod drive;
mod error;
mod feed;
mod invitation;
mod jobs;
pub mod limits;
mod links;
mod pool;
pub mod receiver;
pub mod source;
mod target;
#[cfg(test)]
mod tests;

pub use content::Content;
pub use error::Error;
pub use invitation::Form;
pub use receiver::{Received, Receiver};
pub use source::{Cast, Host, HostOutcome, Outcome, Progress};
pub use target::Destination;
