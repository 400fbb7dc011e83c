//! The file service.

mod digest;
mod error;
mod extents;
pub mod limits;
mod location;
mod message;
mod name;
mod observe;
mod pack;
mod part;
mod port;
mod receive;
mod receive_file;
mod root;
mod send;

pub use error::{Cause, Error, Failure, Refusal};
pub use location::{Host, Location, LocationError};
pub use message::{CopyOptions, Entry, EntryKind, Meta, Totals};
pub use name::escape;
pub use observe::Observer;

#[cfg(test)]
mod copy_tests;
