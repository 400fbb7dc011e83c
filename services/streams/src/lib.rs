//! Carries byte streams over one connection: thousands, each with its own flow control, so that none delays another.
//!
//! An [`Engine`](engine::Engine) multiplexes without IO; a [`Session`](session::Session) drives one over a connection
//! of a [`Worker`](zerolane::worker::Worker).
//!
//! # Design
//!
//! A message is a Transfer: a *chunk* of one stream, up to 256 KiB, or a *bundle* of frames of many, up to 16 KiB. A
//! source is read into the memory that a chunk is sent from, and a chunk is read from the memory that the lane placed
//! it in, so between two sockets user space copies nothing but short payload, which is gathered into bundles. Chunks
//! may overtake each other after a loss; they carry their offset. Bundles are processed in order.
//!
//! Each end keeps receives posted, whatever the program reads, because each stream has credit of its own, in bytes. A
//! window begins with 64 KiB, soon with 4 MiB if few streams are open, and grows while it, not the reader, limits the
//! peer, to 16 MiB; all windows of a connection together may grow by 64 MiB. A stream that is not read so costs its
//! window, and no other stream anything.
//!
//! A sender takes what the streams have queued by priority, and by turns within one. What is in flight is bounded by
//! three times rate and delay, and a source is read only while less than 1 MiB of its priority is queued: so little
//! waits in front of an urgent byte, and a socket that is not read is TCP's back-pressure for its writer.
#![forbid(unsafe_code)]

pub mod engine;
pub mod forward;
pub mod limits;
pub mod message;
mod passing;
pub mod session;
pub mod sockets;
mod stream;

pub use engine::Role;
pub use message::{Reset, ResetCode, StreamId};
pub use stream::{Ready, Stream, StreamError, Streams, wait};
