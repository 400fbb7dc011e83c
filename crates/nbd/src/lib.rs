//! The NBD door: `zerolane disk attach`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`session`] | the protocol without IO: negotiation, requests, replies |
//! | [`server`] | sockets, and the requests at the disk, in one thread |
//! | [`limits`] | bounds on what a client may have |
//!
//! The protocol is `doc/proto.md` of the NBD project: fixed newstyle negotiation, simple and structured replies, the
//! metadata context `base:allocation`. `docs/reference/disks.md` has the tables.
#![forbid(unsafe_code)]

pub mod limits;
pub mod server;
pub mod session;
