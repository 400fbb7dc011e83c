//! Registers, maps, exports and fills the program's memory, where payload has its final place.

mod available;
pub(crate) mod cleanup;
mod datagrams;
pub(crate) mod delegated;
pub(crate) mod delegations;
pub(crate) mod exported;
pub(crate) mod fault;
pub(crate) mod file_region;
mod grace;
mod holds;
pub(crate) mod mapping;
pub(crate) mod memfd;
mod pool;
pub(crate) mod posted;
pub(crate) mod region;
pub(crate) mod registry;
pub(crate) mod shared;
pub(crate) mod uninit;

pub(crate) use datagrams::Datagrams;
pub use exported::{ExportedRegion, Exporting};
pub use file_region::{Access, FileRegion};
pub(crate) use holds::Holds;
pub(crate) use mapping::Mapping;
pub(crate) use pool::Member;
pub use pool::{MemoryWake, ReceivePool};
pub use posted::{Memory, Writable};
pub use region::{Owner, Region, SharedRegion};
pub use registry::Registry;
