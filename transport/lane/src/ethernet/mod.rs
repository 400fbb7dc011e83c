//! Opens packet sockets and AF_XDP sockets at Ethernet interfaces, loads programs into drivers, and finds neighbours.

pub(crate) mod afxdp;
mod bpf;
pub(crate) mod device;
mod device_options;
mod discovery;
pub(crate) mod filter;
mod frames;
mod named;
mod path;
pub(crate) mod socket;
mod statistics;
mod xdp;

pub(crate) use afxdp::{Incoming, Queues};
pub use device::EthernetDevice;
pub(crate) use device::Line;
pub use device_options::DeviceOptions;
pub(crate) use discovery::Answering;
pub use discovery::{Neighbour, NeighbourName, neighbours};
pub(crate) use frames::{IncomingFrames, OutgoingFrames};
pub use named::{resolve, resolve_host};
pub(crate) use path::{Ear, EthernetPath, leave_to};
pub(crate) use socket::{ListenerFrame, is_gone, receive, send};
pub use statistics::driver_statistics;
pub use xdp::XdpCounters;

/// Bytes before a frame's payload.
pub(crate) const AROUND: usize = 14;

#[cfg(test)]
pub(crate) mod bpf_for_tests;
