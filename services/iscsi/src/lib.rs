//! Serves disks of `zerolane-block` to iSCSI initiators (RFC 7143) over TCP.
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
//! Error recovery level 0, one connection per session. The door neither encrypts nor authenticates: use it on this machine,
//! or on a network where everyone may read and write the disk. `docs/reference/disks.md` has the tables.
#![forbid(unsafe_code)]

pub mod limits;
pub mod login;
pub mod pdu;
pub mod portal;
pub mod server;
pub mod session;
pub mod text;
