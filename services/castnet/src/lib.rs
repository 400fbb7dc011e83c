//! Casts one source to many machines over Zerolane connections, by driving the engine of `zerolane-cast`.
//!
//! | module | what it holds |
//! |---|---|
//! | `invitation` | what a source and a host say to each other before the host is a node, and about its end |
//! | `drive` | a node over connections: its peers, its memory, the threads that check, write and read chunks |
//! | `links` | which connection leads to which peer |
//! | `pace` | how fast a node passes on what comes to it |
//! | `pool` | the memory that chunks land in, and are forwarded from |
//! | `jobs` | the threads beside the connections |
//! | [`source`] | calls the hosts, leads them, and says what became of each |
//! | [`receiver`] | waits for a source, and takes part |
//! | `racks` | which hosts stand behind one uplink |
//! | `content` | what is cast: a file, a device, a tree, a stream |
//! | `store` | where chunks are read from and written to: a file, a device, memory |
//! | `target` | where it goes: the partial file, its end, and what an earlier try left |
//! | `feed` | content in order, as it comes, for what reads it as a stream |
//! | [`limits`] | every limit, with its reason |
//!
//! A file goes to hosts that wait with `zerolane cast receive`, or with a [`Receiver`]. Memory goes to
//! memory the same way:
//!
//! ```
//! use std::thread;
//! use zerolane::{ExportedRegion, Region, Security};
//! use zerolane_castnet::{Cast, Content, Destination, Host, Receiver};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let region = |bytes| ExportedRegion::new(Region::from_vec(bytes)).expect("it is aligned");
//!
//! // On each host: memory, longer than the content if that is not known.
//! let mut hosts = Vec::new();
//! let mut running = Vec::new();
//! for _ in 0..2 {
//!     let memory = region(vec![0; 1 << 20]);
//!     let target = Destination::Memory(memory.clone());
//!     let receiver = Receiver::bind("127.0.0.1:0", Security::default(), target)?;
//!     let address = receiver.local_addr();
//!     hosts.push(Host {
//!         name: address.to_string(),
//!         addresses: Ok(vec![address]),
//!         security: Security::default(),
//!     });
//!     running.push(thread::spawn(move || {
//!         let received = receiver.run(&|| false, &mut |_| {})?;
//!         let memory = memory.revoke().expect("the cast has let go of it");
//!         Ok::<_, zerolane_castnet::Error>((memory, received.bytes))
//!     }));
//! }
//!
//! // At the source.
//! let weights = region(vec![7; 1_000_000]);
//! let cast = Cast { hosts, ..Cast::default() };
//! let outcome = cast.run(&Content::memory("weights".into(), &weights), &|| false, &mut |_| {})?;
//! assert!(outcome.hosts.iter().all(|it| it.result.is_ok()));
//!
//! for host in running {
//!     let (memory, bytes) = host.join().expect("no panic")?;
//!     assert!(bytes == 1_000_000 && memory[..1_000_000].iter().all(|it| *it == 7));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `docs/reference/cast-design.md` has the design.
#![forbid(unsafe_code)]

mod archive;
mod contact;
mod content;
mod drive;
mod error;
mod feed;
mod host;
mod invitation;
mod jobs;
pub mod limits;
mod links;
mod meta;
mod pace;
mod pool;
mod racks;
pub mod receiver;
pub mod source;
mod stamp;
mod store;
mod target;
#[cfg(test)]
mod tests;

pub use archive::Skipped;
pub use content::{Content, chunk_bytes};
pub use error::Error;
pub use host::Host;
pub use invitation::Form;
pub use racks::Racks;
pub use receiver::{Received, Receiver};
pub use source::{Cast, HostOutcome, Outcome, Predicted, Progress};
pub use target::Destination;
pub use zerolane_cast::Slow;
