//! Distributes content from one source to many machines in about the time of one: engine without IO, model and simulation.
//!
//! | module | what it holds |
//! |---|---|
//! | `node` | a node as a state machine: receives, verifies, writes, forwards; the source and who follows it lead |
//! | `coordinator` | the membership, and who receives from whom; which nodes hold others back |
//! | `topology` | chain and trees |
//! | `message` | what nodes say to each other, and its form on the wire |
//! | `manifest`, `bitmap` | what is cast, and what is had of it |
//! | `options` | what a cast is told, and what it tells |
//! | [`plan`] | the time of a cast in closed form |
//! | [`sim`] | the engine over a model of a network, in virtual time |
//! | [`limits`] | every limit, with its reason |
//!
//! It knows no socket, no clock and no file: who drives it does. `docs/reference/cast-design.md` has the design.
#![forbid(unsafe_code)]

mod bitmap;
mod coordinator;
pub mod limits;
mod manifest;
mod message;
#[cfg(test)]
mod message_tests;
mod node;
mod options;
pub mod plan;
pub mod sim;
mod topology;

pub use bitmap::{BadBitmap, Bitmap};
pub use manifest::{Hash, Header, Manifest, Mismatch, hash_of_zeros};
pub use message::{BadMessage, Contact, Fault, Message, NodeId, Place, VERSION};
pub use node::{Counters, Node, Profile, Stored};
pub use options::{Action, Event, Options, Slow, window_for};
