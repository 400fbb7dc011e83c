//! Disks over Zerolane connections: the target of `zerolane-block` served, and the initiator that opens its units.
//!
//! | module | what it holds |
//! |---|---|
//! | [`target`] | [`Server`](target::Server): connections, the memory and the threads that commands are done with |
//! | [`initiator`] | [`Queue`](initiator::Queue): many requests into the caller's memory, over connections that break |
//! | [`remote`] | a unit of another host as a store, for doors of this host |
//! | [`message`] | what the messages carry beside the units of SST |
//!
//! A command is a message; payload goes between the target's memory and the memory that the command names: a put for
//! what is read, a get for what is written. Its status is a put into the initiator's status region, whose immediate
//! is the slot. `docs/reference/disks.md` has the tables.
#![forbid(unsafe_code)]

pub mod initiator;
pub mod limits;
pub mod message;
pub mod remote;
pub mod target;
