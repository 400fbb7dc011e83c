//! Carries a connection in datagrams: over UDP, IP protocol 118 or raw Ethernet, by one path or several.
//!
//! `lane` is the datapath over a `DatagramSocket`, which `udp`, `ip118` and `ethernet` implement. `send` and `receive`
//! are its halves, with the keys that `protect` gives them. `links` has the paths beside the first, `path_thread` their
//! threads. `migration` and `new_addresses` follow a peer whose address changes.

pub(crate) mod ethernet;
pub(crate) mod ip118;
mod lane;
mod links;
mod message;
mod migration;
mod new_addresses;
mod path_thread;
mod protect;
mod receive;
mod send;
pub(crate) mod udp;
mod zerocopy;

pub use ethernet::max_ethernet_datagram;
pub use ip118::max_ip118_datagram;
pub use lane::DatagramLane;
pub(crate) use migration::PeerMigration;
