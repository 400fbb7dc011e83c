//! Provides datapaths for the Scheduled Transfer protocol, and the loop that drives them.
//!
//! This is the only crate that touches payload and, with the bindings, the only one with `unsafe`. A [`Lane`] moves
//! datagrams between a network and registered memory. A [`Driver`] runs one connection over a lane in the calling
//! thread. [`udp`] is the lane for any network: sendmsg with GSO gathers headers and payload from the user's memory,
//! and recvmmsg with GRO scatters them into it by the core's forecast. [`ShmLane`] connects two processes of one host
//! and user, [`EthernetLane`] hosts of one segment without IP, and [`IpLane`] any hosts without UDP. [`connect`]
//! chooses.
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
mod any;
mod arrival;
mod available;
mod claim;
mod cleanup;
mod clock;
mod datapath;
mod delegated;
mod digest;
mod doorbell;
mod driver;
mod ethernet;
mod exported;
mod fallback;
mod fault;
mod filter;
mod grace;
mod holds;
mod icmp;
mod initiate;
mod ip;
mod lane_error;
mod links;
mod listener;
mod mailbox;
mod mapping;
mod memfd;
mod memory;
mod options;
mod own_address;
mod path_addresses;
mod poll;
mod process;
mod registry;
mod scheduler;
mod scoped;
mod seal;
mod security;
mod shared;
mod shm;
pub mod spin;
mod submissions;
pub mod udp;
mod uninit;
mod waker;

pub use account::{Account, LaneKind, MoveCause, Zerocopy};
pub use any::{AnyLane, connect};
pub use datapath::{Lane, RemoteAccess, Turn};
pub use driver::{
    Completion, Driver, DriverError, MAX_INLINE, MessageControl, NotPosted, Progress, Report,
    WorkKind,
};
pub use ethernet::{
    DeviceOptions, EthernetAddress, EthernetDevice, EthernetLane, Neighbour, NeighbourName,
    NoBypass, NoEthernet, NoXdp, XdpCounters, driver_statistics, is_ethernet,
    max_ethernet_datagram, neighbours, resolve, resolve_host,
};
pub use exported::{ExportedRegion, Exporting};
pub use ip::{IpLane, NoIp118, max_ip118_datagram};
pub use lane_error::LaneError;
pub use listener::{Accept, Listener, ListenerCounters, Untrusted};
pub use memory::{Access, Memory, Owner, Region, SharedRegion};
pub use options::{LaneChoice, Options, PathThreads};
pub use path_addresses::{BadPath, NoPath, PathAddresses};
pub use process::Process;
pub use registry::Registry;
pub use scheduler::Scheduler;
pub use security::{Mode, Security, random};
pub use shm::{
    BadRendezvousName, NoSharedMemory, Reach, RendezvousName, RingFault, ShmLane,
    probe_shared_memory,
};
pub use submissions::Submissions;
pub use waker::Waker;
pub use zerolane_core::{
    Atomic, CloseReason, Config, Control, Counters, Delivery, DropReason, FastAnswer, Life,
    PathLife, PathState, PostError, RegionName, RemotePlace, RemoteRegion, Schedule, SendingMark,
    TransferError, TransferId, WorkFlags, WorkRequest, limits,
};
pub use zerolane_handshake::{
    Anyone, Cipher, Code, CodeError, GateCounters, GateLimit, Identity, KeyError, PreShared,
    PublicKey, Trust, limits as handshake_limits,
};

/// The synchronisation primitives between threads; tests substitute loom's.
mod sync {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use std::sync::{Mutex, MutexGuard};
    pub(crate) use std::thread::yield_now;
}
