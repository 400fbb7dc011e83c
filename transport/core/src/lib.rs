//! Implements the Scheduled Transfer protocol without IO, for lanes to drive.
//!
//! It takes time, bytes and randomness, and returns headers and [`Span`]s.
//!
//! A [`Connection`] is one virtual connection. It never touches a payload byte, except copies of the short ones that
//! are posted inline. It tells the lane where to read payload
//! from ([`DataBurst`]) and where the payload expected next belongs ([`Forecast`]). Given a header and the place where
//! its payload landed, it tells whether that place is right ([`Placement`]). A lane carries the bytes; this crate
//! depends on no lane.
//!
//! ```
//! use zerolane_core::{Config, Connection, Entropy, Instant, Transmit};
//! let mut c = Connection::connect(Instant::ZERO, Config::default(), Entropy { key: 7, port: 1, sync: 9 });
//! let Some(Transmit::Control(request)) = c.poll_transmit(Instant::ZERO, Default::default()) else { panic!() };
//! assert_eq!(request.bytes().len(), 72); // Request_Connection with its options
//! ```
#![forbid(unsafe_code)]
// Keeps clocks, sockets and locks out of reach. The tests use std.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod admission;
mod config;
mod congestion;
mod connection;
mod context;
mod counters;
mod endings;
mod event;
pub mod limits;
mod links;
mod one_sided;
mod path;
mod profile;
mod receiving;
mod recovery;
mod request;
mod sending;
mod session;
mod slot_window;
mod span;
mod tiling;
mod time;
mod timers;
mod transfer;
mod transmit;

pub use admission::{Admission, Allowance, Demand, FastAnswer, Ledger, Schedule};
pub use config::{Config, Entropy, SERVICE_PORT};
pub use congestion::Control;
pub use connection::{Ahead, Connection, HandshakeOutcome, SendingMark, listen, reject};
pub use counters::{Counters, DropReason, PathState};
pub use event::{CloseReason, Event, TransferError};
pub use links::PathLife;
pub use receiving::{
    Claim, DatagramSlot, Forecast, Hold, HoldOrder, Placement, Predictor, Run, pattern_holds,
};
pub use request::{
    Atomic, AtomicRequest, ExportAs, PostError, RegionName, RegionNumber, RemotePlace,
    RemoteRegion, WorkFlags, WorkRequest,
};
pub use session::{Life, PathValidation};
pub use span::{RegionId, Span};
pub use tiling::{Tile, tiles};
pub use time::Instant;
pub use transfer::{Delivery, TransferId};
pub use transmit::{
    BurstLimit, ControlDatagram, DataBurst, OperationBurst, OperationDatagram, Outgoing, Transmit,
};
