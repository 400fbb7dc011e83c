//! Parses and emits the Scheduled Transfer header and operations: bytes become types, checked once at the edge.
//!
//! This crate uses no socket and no clock. A datagram is one 40-byte [`Header`] followed by nothing, by exactly 32
//! bytes of options (control operations; then perhaps [`PrivateData`]), or by payload (Data). [`Packet::parse`] turns
//! control datagrams into an [`Operation`]. For Data, [`Header::parse`] alone is enough, because only its header needs
//! checking.
//!
//! The header is Figure 9 of the Scheduled Transfer thesis. The operation code points are Zerolane's own
//! (`docs/reference/protocol.md`): no public table was used.
//!
//! ```
//! use zerolane_wire::{Header, Op, HEADER_LEN};
//! let header = Header { op: Op::Data, param: 7, b_num: 3, ..Header::new(Op::Data) };
//! let bytes = header.emit();
//! assert_eq!(bytes.len(), HEADER_LEN);
//! assert_eq!(Header::parse(&bytes).unwrap(), header);
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod checksum;
mod datagram;
pub mod discovery;
pub mod encapsulation;
mod frames;
pub mod handshake;
mod header;
mod operation;
mod train;

pub use datagram::{DatagramPart, MAX_DATAGRAM};
pub use frames::{
    FRAME_HEAD_LEN, FrameFields, FrameHead, Frames, MAX_FRAME_HEAD_LEN, MAX_FRAMES,
    MAX_TRAIN_FRAMES,
};
pub use header::{Field, Flags, HEADER_LEN, Header, Op, ParseError, Problem};
pub use operation::{
    Advance, Answer, Capabilities, ClearToSend, ConnectionAnswer, ConnectionVerdict, Delivered,
    Disconnect, Eager, End, FetchOp, FetchOpKind, Get, Grant, Immediate, MAX_CONTROL, MAX_EAGER,
    MAX_PATHS, MAX_PRIVATE_DATA, MAX_RANGES, MemoryRegionAvailable, MemoryState, Nop, OPTIONS_LEN,
    Occasion, Operation, Packet, Place, PrivateData, PrivateDataTooLong, Profile, Profiles,
    Progress, Range, Ranges, Reason, Report, RequestAnswer, RequestConnection, RequestDisconnect,
    RequestMemoryRegion, RequestState, RequestToReceive, RequestToSend, Rights, Route, State,
    Target, VERSION, VERSION_MIN, Word,
};
pub use train::{Assembled, Assembler, DIGEST_LEN, MAX_TRAIN, Train};
