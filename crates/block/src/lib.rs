//! Disks for other hosts: a SCSI target without IO (SPC-4, SBC-3), what its disks keep their blocks in, and the
//! messages of SCSI over Scheduled Transfer.
//!
//! | module | what it holds |
//! |---|---|
//! | [`cdb`] | commands and their bytes, for initiator and target |
//! | [`sense`] | why a command was not done, both formats |
//! | [`store`] | files, block devices, memory |
//! | [`Target`] | logical units, task sets, attentions, reservations |
//! | [`sst`] | the messages of SCSI over Scheduled Transfer |
//! | [`Work`] | what a command does with its disk, for any thread |
//!
//! The target moves no payload: it says which part of which store a command reads or writes, and the transport has it
//! go straight between that and memory of its own. `docs/reference/disks.md` has the tables.
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
