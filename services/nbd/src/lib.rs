//! Attaches a remote disk as a local NBD device: the door behind `zerolane disk attach`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`session`] | the protocol without IO: negotiation, requests, replies |
//! | [`server`] | sockets, and requests to the disk, in one thread |
//! | [`limits`] | bounds on a client |
//!
//! The protocol is `doc/proto.md` of the NBD project: fixed newstyle negotiation, simple and structured replies, the
//! metadata context `base:allocation`. `docs/reference/disks.md` has the tables.
#![forbid(unsafe_code)]

pub mod limits;
pub mod server;
pub mod session;
