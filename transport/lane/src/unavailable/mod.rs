//! Says why a lane, a device or a path is not available.

mod ethernet;
mod ip118;
mod path;
mod shm;
mod xdp;

pub use ethernet::{NoBypass, NoEthernet};
pub use ip118::NoIp118;
pub use path::NoPath;
pub use shm::{NoSharedMemory, RingFault};
pub use xdp::NoXdp;
