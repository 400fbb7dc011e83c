//! The iSCSI door: disks of `zerolane-block` for iSCSI initiators (RFC 7143), over TCP.
//!
//! | module | what it holds |
//! |---|---|
//! | [`pdu`] | the protocol data units: parser, builder, digests |
//! | [`text`] | keys and values |
//! | [`login`] | negotiation |
//! | [`session`] | numbers, bursts and answers of one session |
//! | [`portal`] | the engine and its sessions, without IO |
//! | [`server`] | sockets and threads |
//!
//! Error recovery level 0, one connection a session. Nothing is encrypted, and no initiator is authenticated: the door
//! is for this machine, and for networks where all may read and write the disk. `docs/reference/disks.md` has the tables.
#![forbid(unsafe_code)]

pub mod limits;
pub mod login;
pub mod pdu;
pub mod portal;
pub mod server;
pub mod session;
pub mod text;
