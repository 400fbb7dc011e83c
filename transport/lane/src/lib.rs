//! Provides datapaths for the Scheduled Transfer protocol, and the loop that drives them.
//!
//! This is the only crate that touches payload and, with the bindings, the only one with `unsafe`. A [`Lane`] moves
//! datagrams between a network or a peer's process and registered memory. A [`Driver`] runs one connection over a lane
//! in the calling thread. [`DatagramLane`] is the lane for networks, over UDP, IP protocol 118 or raw Ethernet: sendmsg
//! with GSO gathers headers and payload from the user's memory. On arrival, sealed trains are collected in a buffer and
//! decrypted into their place; recvmsg or recvmmsg scatters all else into the user's memory by the core's forecast.
//! [`ShmLane`] connects two processes of one host and user. [`connect`] chooses. ARCHITECTURE.md says what each module
//! holds.
//!
//! ```no_run
//! use zerolane_lane::{Options, Region, Report, WorkRequest};
//! let mut driver = zerolane_lane::connect("192.0.2.1:7411".parse().unwrap(), &Options::default())?;
//! let send = WorkRequest::Send { delivery: Default::default() };
//! let memory = Region::anonymous(1 << 20)?;
//! let id = driver.post_source(send, Report::default(), memory.into())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod account;
mod address;
mod any;
mod arrival;
mod datagram;
mod driver;
mod entropy;
mod error;
mod ethernet;
mod ip118;
mod lane;
mod listener;
mod memory;
mod options;
mod seal;
mod shm;
mod socket;
mod sync;
mod threads;
mod trap;
mod tun;
mod unavailable;
mod wait;

pub use account::{Account, LaneKind, MoveCause, Zerocopy};
pub use address::{
    BadPath, BadRendezvousName, EthernetAddress, LaneChoice, PathAddresses, RendezvousName,
    is_ethernet,
};
pub use any::{AnyLane, connect};
pub use datagram::{DatagramLane, max_ethernet_datagram, max_ip118_datagram};
pub use driver::{
    Completion, Driver, DriverError, IdHasher, MessageControl, NotPosted, OnWake, Progress, Report,
    Step, WorkKind,
};
pub use error::LaneError;
pub use ethernet::{
    DeviceOptions, EthernetDevice, Neighbour, NeighbourName, XdpCounters, driver_statistics,
    neighbours, resolve, resolve_host,
};
pub use lane::{Lane, RemoteAccess, Turn};
pub use listener::{Accept, Listener, ListenerCounters, Untrusted};
pub use memory::{
    Access, ExportedRegion, Exporting, FileRegion, Memory, MemoryWake, Owner, ReceivePool, Region,
    Registry, SharedRegion, Writable,
};
pub use options::{
    DatagramOptions, FlowOptions, LaneOptions, ListenOptions, Options, PathOptions, PathThreads,
    RateOptions, TimeOptions,
};
pub use seal::{Mode, Security, random};
pub use shm::{Reach, ShmLane, probe_shared_memory};
pub use socket::{Ports, passed_sockets, set_socket_option, socket_option};
pub use threads::{Process, Scheduler, Submissions, spawn_thread};
pub use trap::{NotTrapped, SocketCall, Trap, TrappedCall, change_epoll};
pub use tun::{TunDevice, TunOffload};
pub use unavailable::{NoBypass, NoEthernet, NoIp118, NoPath, NoSharedMemory, NoXdp, RingFault};
pub use wait::{Waited, Waker, spin};
pub use zerolane_core::{
    Atomic, CloseReason, Config, Control, Counters, Delivery, DropReason, ExportAs, FastAnswer,
    Life, PathLife, PathState, PostError, RegionName, RegionNumber, RemotePlace, RemoteRegion,
    Schedule, SendingMark, TransferError, TransferId, WorkFlags, WorkRequest, limits,
};
pub use zerolane_handshake::{
    Anyone, Cipher, Code, CodeError, GateCounters, GateLimit, Identity, KeyError, PreShared,
    PublicKey, Trust, limits as handshake_limits,
};
