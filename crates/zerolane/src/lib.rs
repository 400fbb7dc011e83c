//! Memory moved between machines over the Ethernet they already have: data lands once, in its final
//! place.
//!
//! An [`Endpoint`] accepts [`Connection`]s. On a connection one send is one Transfer is one receive
//! (SOCK_SEQPACKET semantics): blocking with borrowed memory ([`Connection::send`],
//! [`Connection::recv_into`]), or many in flight with owned memory ([`Connection::post_send`],
//! [`Connection::post_recv`], [`Connection::wait`]). Payload is placed by the kernel's own copy in
//! the memory of the posted receive; an [`Account`] says how much of it really was.
//!
//! ```
//! use zerolane::{Connection, Endpoint, Options, Region};
//! let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
//! let address = endpoint.local_addr();
//! let receiver = std::thread::spawn(move || -> zerolane::Result<u64> {
//!     let mut connection = endpoint.accept(None)?.expect("no timeout");
//!     for _ in 0..4 {
//!         connection.post_recv(Region::anonymous(1 << 20)?)?;
//!     }
//!     let mut total = 0;
//!     for _ in 0..4 {
//!         let completion = connection.wait(None)?.expect("no timeout");
//!         total += completion.result? as u64;
//!     }
//!     connection.close()?;
//!     Ok(total)
//! });
//! let mut connection = Connection::connect(address, &Options::default())?;
//! let shared = Region::anonymous(1 << 20)?.share();
//! for _ in 0..4 {
//!     connection.post_send(shared.clone())?;
//! }
//! connection.close()?; // flushes
//! assert_eq!(receiver.join().unwrap()?, 4 << 20);
//! # Ok::<(), zerolane::Error>(())
//! ```
#![forbid(unsafe_code)]

mod completion;
mod connection;
mod endpoint;
mod error;
mod key;
pub mod keys;
mod queue;
mod remote;
pub mod st;
mod vectored;

pub use completion::Completion;
pub use connection::Connection;
pub use endpoint::Endpoint;
pub use error::{Error, Posted, Result};
pub use key::RegionKey;
pub use queue::CompletionQueue;
pub use remote::{FetchOp, Message, Work};
pub use zerolane_lane::udp::ListenerCounters;
pub use zerolane_lane::{
    Access, Account, Anyone, Cipher, CloseReason, Code, CodeError, Control, Counters, Delivery,
    DropReason, ExportedRegion, FastAnswer, GateCounters, GateLimit, Identity, KeyError,
    MAX_INLINE, Memory, MessageControl, Mode, MoveCause, NotPosted, Options, Owner, PathState,
    PostError, PreShared, PublicKey, Region, Schedule, Scheduler, Security, SharedRegion,
    TransferError, TransferId, Trust, Waker, WorkKind, Zerocopy, random,
};
pub use zerolane_wire::{Profile, Profiles, Reason, Rights};

pub use zerolane_lane::handshake_limits::CODE_GUESSES;

/// Most bytes of control in a message.
pub const MAX_CONTROL: usize = zerolane_lane::limits::MAX_CONTROL as usize;
