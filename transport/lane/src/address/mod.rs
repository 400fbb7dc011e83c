//! Parses and prints addresses: of hosts with an interface, of Ethernet stations, and of paths.

pub(crate) mod ethernet;
mod lane_choice;
mod own;
mod path;
mod rendezvous_name;
pub(crate) mod scoped;

pub use ethernet::{EthernetAddress, is_ethernet};
pub(crate) use ethernet::{Hardware, Station};
pub use lane_choice::LaneChoice;
pub(crate) use own::is_own;
pub use path::{BadPath, PathAddresses};
pub use rendezvous_name::{BadRendezvousName, RendezvousName};
