//! Moves memory between Linux machines over the Ethernet they already have: data lands once, in its final place.
//!
//! An [`Endpoint`] accepts [`Connection`]s. One send is one Transfer and fills one receive (as with SOCK_SEQPACKET):
//! blocking with borrowed memory ([`Connection::send`], [`Connection::recv_into`]), or many in flight with owned memory
//! ([`Connection::post`], [`Connection::wait`]). The receiver grants its memory in
//! advance, so payload goes to its final place; an [`Account`](counters::Account) counts the bytes that had to be
//! copied.
//!
//! ```
//! use zerolane::{Connection, Endpoint, Options};
//! let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
//! let address = endpoint.local_addr();
//! let receiver = std::thread::spawn(move || -> zerolane::Result<usize> {
//!     let mut connection = endpoint.accept(None)?.expect("no timeout");
//!     let length = connection.recv_into(&mut vec![0; 1 << 20])?;
//!     connection.close()?;
//!     Ok(length)
//! });
//! let mut connection = Connection::connect(address, &Options::default())?;
//! connection.send(&vec![7; 1 << 20])?;
//! connection.close()?;
//! assert_eq!(receiver.join().unwrap()?, 1 << 20);
//! # Ok::<(), zerolane::Error>(())
//! ```
#![forbid(unsafe_code)]

mod addresses;
pub mod advanced;
mod arrived;
mod backlog;
mod bell;
mod completion;
mod connection;
mod endpoint;
mod error;
mod fetch_op;
mod id;
mod in_order;
mod incoming;
mod key;
pub mod keys;
mod listener;
mod queue;
mod receive_pool;
mod remote;
pub mod request;
mod vectored;
pub mod worker;

pub use completion::Completion;
pub use connection::Connection;
pub use endpoint::Endpoint;
pub use error::{Error, Result};
pub use fetch_op::FetchOp;
pub use id::{PathId, RequestId};
pub use incoming::Incoming;
pub use key::RegionKey;
pub use queue::CompletionQueue;
pub use receive_pool::ReceivePool;
pub use remote::ReceivedMessage;
pub use zerolane_lane::{
    Delivery, ExportedRegion, Options, Process, Region, RegionNumber, Security, SharedRegion,
    Waited, Waker,
};
pub use zerolane_wire::Rights;

/// Socket activation: sockets that a service manager opened before it started this process, for
/// [`Endpoint::adopt`].
pub mod activation {
    pub use zerolane_lane::passed_sockets;
}

/// The types that [`Options`] uses: its groups, profiles, congestion control, receive schedules.
pub mod options {
    pub use zerolane_lane::Ports;
    pub use zerolane_lane::{
        BadPath, BadRendezvousName, Control, DatagramOptions, DeviceOptions, EthernetAddress,
        EthernetDevice, FlowOptions, LaneChoice, LaneOptions, ListenOptions, NeighbourName,
        PathAddresses, PathOptions, PathThreads, RateOptions, RendezvousName, Schedule, Scheduler,
        TimeOptions,
    };
    pub use zerolane_wire::{MAX_PATHS, MAX_PRIVATE_DATA, PrivateData, Profile, Profiles};
}

/// The types that [`Security`] uses: identities, trusted peers, one-time codes.
pub mod security {
    pub use zerolane_lane::Untrusted;
    pub use zerolane_lane::handshake_limits::CODE_GUESSES;
    pub use zerolane_lane::{
        Anyone, Cipher, Code, CodeError, Identity, KeyError, Mode, PreShared, PublicKey, Trust,
        random,
    };
}

/// Memory of other libraries as a [`Region`], and the memory that a refused request gives back.
pub mod memory {
    pub use zerolane_lane::{Access, FileRegion, Memory, Owner, Writable};
}

/// The details of an [`Error`]: why a request was refused or failed, why a connection ended.
pub mod failure {
    pub use crate::error::{Posted, Refused};
    pub use zerolane_lane::{CloseReason, NoEthernet, NoIp118, NoXdp, PostError, TransferError};
    pub use zerolane_wire::{PrivateDataTooLong, Reason};
}

/// A network interface of the kernel whose packets a program sends and receives.
pub mod tun {
    pub use zerolane_lane::{TunDevice, TunOffload};
}

/// The socket calls of programs that this process starts, and options of sockets by number.
pub mod trap {
    pub use zerolane_lane::{
        NotTrapped, SocketCall, Trap, TrappedCall, change_epoll, set_socket_option, socket_option,
    };
}

/// The available lanes to a host, and parsing of host names and addresses.
pub mod lanes {
    pub use crate::addresses::ToAddresses;
    pub use zerolane_lane::{
        Neighbour, Reach, is_ethernet, max_ethernet_datagram, max_ip118_datagram, neighbours,
        probe_shared_memory, resolve, resolve_host,
    };
    pub use zerolane_wire::discovery::is_neighbour_name;
}

/// Counters: payload placed and moved, datagrams dropped, unauthenticated peers rejected.
pub mod counters {
    pub use zerolane_lane::ListenerCounters;
    pub use zerolane_lane::{
        Account, Counters, DropReason, GateCounters, GateLimit, LaneKind, MoveCause, NoBypass,
        NoPath, NoSharedMemory, PathLife, PathState, RingFault, Zerocopy,
    };
}
