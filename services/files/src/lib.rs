//! Copies and lists files between two ends, one of which serves a directory.
//!
//! [`Server`] and [`Client`] are the entry points; [`Location`] parses `HOST:PATH`. `docs/reference/files.md` describes
//! the protocol and its guarantees; [`limits`] lists the limits.
//!
//! ```text
//!        by_code         two people who share a code: finds the peer, then runs a client and a server
//!         |
//!  client / server     opening: Request, Reply; share: the part of one of several connections
//!         |
//!       sync ========= compares two listings; then as any copy
//!      persist            another connection, when one breaks: position, reached
//!         |
//!  local, expand          starts of sending: sources on this machine; the paths and patterns of a request
//!         |
//!       pump ========= drives the Connection; one thread
//!         |            port: buffers go round between the two threads
//!   send | receive === reads or writes, and hashes, files; one thread
//!     |      |
//!  extents  open_file, part         holes; one incoming file, written and given its name
//!     |      |
//!     |     temporary, mark, in_place    names, locks; marks of temporary and incomplete files
//!     \______/
//!   pack, message, digest           many files in a Transfer; records; BLAKE3 by units
//!   name, root, target, glob, links paths that stay below the served directory; patterns; followed links
//!   filter, filter_files            excluded files, also by rules in the tree
//!   positioned, attributes          reads and writes at an offset; owners, permissions, times
//!   extended, escape                extended attributes; printable text
//!   backup                          renames replaced and removed files
//!   hard_links                      first names of files with several names
//!   ranges                          parts of files for programs, one request after another, without the pump
//!   rendezvous                      lines between a client and its server over a login's channel
//! ```
//!
//! Three rules hold everywhere. The end that has the files runs `send` and the other `receive`, whichever is the
//! client. A message that the protocol does not allow at that point ends the connection; an error of the file system
//! fails only that file. A file gets its name only after its digest has been verified.
//!
//! ```
//! use std::net::Ipv4Addr;
//! use zerolane_files::{Client, CopyOptions, Host, ServeOptions, Server, Stop};
//!
//! # let base = tempfile::tempdir()?;
//! # let (share, here) = (base.path().join("share"), base.path().join("here"));
//! # std::fs::create_dir(&share)?;
//! # std::fs::write(&here, b"content")?;
//! let mut server = Server::bind(&share, (Ipv4Addr::LOCALHOST, 0), ServeOptions::default())?;
//! let address = server.local_addr();
//! let stop = Stop::default();
//! let stopped = stop.clone();
//! let serving = std::thread::spawn(move || server.run(&stopped, &()));
//!
//! let client = Client::new(Host::from(address));
//! let totals = client.put(&[here], b"there", &CopyOptions::default(), &())?;
//! assert_eq!((totals.files, totals.failed), (1, 0));
//! assert_eq!(std::fs::read(share.join("there"))?, b"content");
//!
//! stop.request();
//! serving.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod attributes;
mod backup;
mod by_code;
mod client;
mod confine;
mod digest;
mod error;
mod escape;
mod expand;
mod extended;
mod extents;
mod filter;
mod filter_files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod glob;
mod hard_links;
mod in_place;
pub mod limits;
mod links;
mod local;
mod location;
mod mark;
mod message;
mod modes;
mod name;
mod observe;
mod opening;
mod pack;
mod part;
mod persist;
mod port;
mod position;
mod positioned;
mod pump;
mod reached;
mod receive;
mod rendezvous;
mod root;
mod send;
mod server;
mod share;
mod stop;
mod sync;
mod target;
mod temporary;
mod umask;

pub use by_code::{FoundSender, Invitation, Offer, SearchScope, TransferCode, TransferCodeError};
pub use client::{Changes, Client, Entry, Listed, Range, Ranges};
pub use confine::Confinement;
pub use error::{Cause, Error, Failure, FilterError, Refusal};
pub use escape::escape;
pub use filter::Filter;
pub use local::open_stream;
pub use location::{Host, Location, LocationError};
pub use message::{
    Attributes, Backup, CopyOptions, EntryKind, ListOptions, Meta, OfferedEntry, Owner,
    RemoveOptions, Replace, Status, Totals, Version,
};
pub use modes::{Modes, ModesError};
pub use observe::{Observer, Peer, Queued, ServerObserver, Spent, Verb};
pub use rendezvous::{Answer, Call, LineError, Order, Ready};
pub use server::{ServeOptions, Server};
pub use stop::Stop;
pub use sync::options::{
    Action, Change, NotDeleted, SyncObserver, SyncOptions, SyncPaths, SyncTotals,
};

#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod copy_tests;
#[cfg(test)]
mod going_on_tests;
#[cfg(test)]
mod ranges_tests;
#[cfg(test)]
mod service_tests;
