//! Serves disks to other hosts: a SCSI target without IO (SPC-4, SBC-3), its stores, and its messages.
//!
//! | module | what it holds |
//! |---|---|
//! | [`cdb`] | commands and their bytes, for initiator and target |
//! | [`sense`] | sense data: why a command failed, in both formats |
//! | [`store`] | files, block devices, memory |
//! | [`Target`] | logical units, task sets, attentions, reservations |
//! | [`sst`] | the messages of SCSI over Scheduled Transfer |
//! | [`Work`] | what a command does with its disk, in any thread |
//!
//! The target moves no payload: it names the part of the store that a command reads or writes, and the transport moves the
//! bytes between that part and its own memory. `docs/reference/disks.md` has the tables.
#![forbid(unsafe_code)]

mod bytes;
pub mod cdb;
mod direct;
mod disk;
mod identity;
mod initiator;
pub mod limits;
pub mod report;
mod reservations;
pub mod sense;
pub mod sst;
pub mod store;
mod target;
mod unit;
mod work;

pub use direct::execute;
pub use disk::{Disk, Geometry, GeometryError};
pub use identity::Identity;
pub use initiator::Initiator;
pub use target::{
    Access, Address, Answer, Attribute, Function, Lun, NexusId, Refused, Request, Residual,
    Response, Status, Step, Target, TaskId,
};
pub use unit::unmap_list;
pub use work::{Payload, Work};
