//! Serves and opens disks over Zerolane connections: the target of `zerolane-block`, and an initiator for its units.
//!
//! | module | what it holds |
//! |---|---|
//! | [`target`] | [`Server`](target::Server): connections, and the memory and threads that execute commands |
//! | [`initiator`] | [`Queue`](initiator::Queue): many requests into the caller's memory, over connections that may break |
//! | [`remote`] | a unit of another host as a store, for doors of this host |
//! | [`message`] | the contents of messages besides the units of SST |
//!
//! A command is a message. Payload moves between the target's memory and the memory that the command names: by a put for a
//! read, by a get for a write. The status is a put into the initiator's status region, with the slot as immediate.
//! `docs/reference/disks.md` has the tables.
#![forbid(unsafe_code)]

pub mod initiator;
pub mod limits;
pub mod message;
pub mod remote;
pub mod target;
