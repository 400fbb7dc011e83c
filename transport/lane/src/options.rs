//! Defines the settings of a connection.

mod check;

use crate::address::{LaneChoice, PathAddresses, RendezvousName};
use crate::ethernet::{EthernetDevice, NeighbourName};
use crate::seal::Security;
use crate::socket::Ports;
use crate::threads::Scheduler;
use std::sync::Arc;
use std::time::Duration;
use zerolane_core::{Config, Control, limits};
use zerolane_wire::{MAX_PATHS, PrivateData, Profiles};

/// Which threads carry a connection over several paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathThreads {
    /// The thread that drives the connection carries all paths.
    #[default]
    OneForAll,
    /// The thread that drives the connection carries the first path, and each other path has its own thread. That
    /// thread receives, seals and sends the path's datagrams, and opens sealed payload in its place. A path over raw
    /// Ethernet stays with the thread that drives the connection. A connection over two paths thus uses two cores if
    /// there are two, and at most 1 MiB of memory for each path.
    OnePerPath,
}

/// From a switch of commands and bindings: whether each path has a thread.
impl From<bool> for PathThreads {
    fn from(one_per_path: bool) -> PathThreads {
        match one_per_path {
            true => PathThreads::OnePerPath,
            false => PathThreads::OneForAll,
        }
    }
}

/// Settings of a connection, in groups. The defaults suit a LAN.
///
/// Later versions may have more settings, so change the defaults or others:
///
/// ```
/// # use zerolane_lane as zerolane;
/// use std::time::Duration;
/// use zerolane::Options;
///
/// let options = Options::default().with(|it| {
///     it.times.idle = Duration::from_secs(60);
///     it.paths.most = 2;
/// });
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How connections are protected, and the identities of the ends.
    pub security: Security,
    /// The lane of a connection, and how its ends find each other.
    pub lane: LaneOptions,
    /// The paths of a connection.
    pub paths: PathOptions,
    /// How long a connection waits.
    pub times: TimeOptions,
    /// How much the peer may send or announce before this end answers.
    pub flow: FlowOptions,
    /// How fast payload is sent, and received from several peers.
    pub rate: RateOptions,
    /// How payload becomes datagrams.
    pub datagrams: DatagramOptions,
    /// What a listener accepts. Has no effect on connections opened from here.
    pub listen: ListenOptions,
    /// Data of the program, up to 64 bytes: of a connecting end with its request, of a listener with each answer,
    /// unless the program gives others as it accepts. A client that gives some, even empty, gets those of the answer,
    /// so that no answer is longer than its request. Encrypted with the rest; in plain mode anyone on the path can read
    /// it.
    pub private_data: Option<PrivateData>,
    /// Ends the connection rather than copy payload of a Transfer in user space, however short. Payload that fits one
    /// datagram and comes unannounced ([`MoveCause::Unannounced`](crate::account::MoveCause)) is still copied once.
    /// This end asks its peer to send nothing else before a grant, and plain connections use no trains, because a
    /// broken train would need a copy.
    pub strict: bool,
    /// Profiles offered or accepted: extended, unless others are requested. Classic is the protocol of the thesis, for
    /// comparison. Both ends must request it, and a peer that supports nothing else is refused with
    /// [`Reason::NoCommonProfile`](zerolane_wire::Reason::NoCommonProfile).
    pub profiles: Profiles,
}

/// The lane of a connection, and how its ends find each other.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LaneOptions {
    /// The lane: by default the best that both ends support.
    pub choice: LaneChoice,
    /// The name by which both ends of shared memory find each other, in place of the address and the network namespace:
    /// for containers of one kernel with separate networks. Both ends must see one rendezvous directory (`zerolane` in
    /// XDG_RUNTIME_DIR or `/run/user/UID`, else `/tmp/zerolane-UID`), as the same user. The address serves UDP if
    /// shared memory is not possible.
    pub rendezvous: Option<RendezvousName>,
    /// The name of a raw Ethernet listener, which it tells to hosts that look for this name or for any.
    pub neighbour: NeighbourName,
    /// The raw Ethernet device of the connection, or of a listener and its connections. `None`: no device is needed.
    pub device: Option<Arc<EthernetDevice>>,
}

/// The paths of a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PathOptions {
    /// Most paths of a connection over UDP or raw Ethernet at a time, 1 to 8; the smaller of both ends' values applies.
    /// More than 1 takes one more descriptor for each connection, and one for each path. Over raw Ethernet, the
    /// listening end needs one more while the peer may add a path. Not with [`LaneOptions::device`].
    pub most: u8,
    /// Paths to add, besides the first, once a connection opened from here is established. [`PathOptions::most`] counts
    /// as at least one more than these, of which there are at most 7. A path that cannot be opened is counted in
    /// [`Account::paths_refused`](crate::account::Account::paths_refused).
    pub links: Vec<PathAddresses>,
    /// Whether the peer may add paths over raw Ethernet to a connection over UDP that a listener accepts, at any
    /// interface of the network namespace. Needs CAP_NET_RAW while connections may add paths, and takes one more
    /// descriptor for each such connection. Has no effect with [`PathOptions::most`] below 2, or over other lanes: a
    /// listener of raw Ethernet accepts such paths without it.
    pub ethernet: bool,
    /// Whether the peer may add paths over UDP to a connection over raw Ethernet that a listener accepts, at any
    /// address of the host, at the UDP port with the listener's number. Has no effect with [`PathOptions::most`] below
    /// 2, or over other lanes: a listener of UDP accepts such paths without it.
    pub udp: bool,
    /// Which threads carry a connection over several paths. Each end chooses for itself.
    pub threads: PathThreads,
}

/// How long a connection waits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TimeOptions {
    /// Give up connecting after this time. Not 0; [`Duration::MAX`] means no limit.
    pub connect: Duration,
    /// Declare the peer dead after it left requests unanswered for this time. Not 0; [`Duration::MAX`] means no limit.
    pub idle: Duration,
    /// Ask the peer ten times an idle timeout whether it lives, also while no request depends on it, so that an idle
    /// connection ends when its peer has died or is out of reach. Costs some datagrams. A peer whose program makes no
    /// call for the idle timeout counts as dead, unless a worker's thread answers for it. This end alone decides.
    /// Unless set, an idle connection over a network has no traffic and does not notice; in shared memory the end of
    /// the peer's process is noticed at once in any case.
    pub keep_alive: bool,
    /// Spin this long for the next datagram before sleeping.
    pub spin: Duration,
    /// Drop a datagram of the program that has not left after this time.
    pub datagram: Duration,
}

/// How much the peer may send or announce before this end answers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FlowOptions {
    /// Receive socket buffer to request, in bytes, 4 KiB to 1 GiB. The size that the kernel grants limits the bytes in
    /// flight.
    pub receive_buffer: usize,
    /// Most bytes granted ahead, 4 KiB to 1 GiB. A short path gets as much as the socket buffer holds. A long path gets
    /// as much as fills it, up to this limit, and may lose datagrams when this end is slow for a moment. A third of the
    /// socket buffer avoids such loss.
    pub max_in_flight: u32,
    /// Longest send, or payload of a message, that leaves with its announcement instead of waiting for a grant, in
    /// bytes, at most 64 KiB; 0: none. The smaller of both ends' values applies. It saves a round trip and costs the
    /// receiver a copy. A put of more than one datagram also leaves at once up to this length, at most 16 KiB.
    pub eager_limit: u32,
    /// Target length of a Block, in bytes, 4 KiB to 1 GiB.
    pub block: u32,
    /// Length of a Block in the classic profile, in bytes: a power of two, 4 KiB to 16 MiB. The thesis has 32 STUs.
    pub classic_block: u32,
    /// Transfers the peer may announce before the first is answered, 1 to 1024.
    pub slots: u16,
}

/// How fast payload is sent, and received from several peers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RateOptions {
    /// Most payload that this end sends over one connection, in bytes per second, with retransmissions and without
    /// headers, not 0; `None`: as much as the peer and the path take. Each connection has its own limit. The peer
    /// limits the rate of receives.
    pub max: Option<u64>,
    /// The congestion control of the path.
    pub control: Control,
    /// Divides the receiving link among all connections with the same scheduler (incast). `None`: a listener makes a
    /// scheduler for the connections that it accepts, and only its own window limits a connection opened from here. The
    /// same is true of each connection in shared memory, which uses no link.
    pub scheduler: Option<Scheduler>,
}

/// How payload becomes datagrams.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DatagramOptions {
    /// Most payload of a datagram that this end accepts, an STU, in bytes, 512 to 65,467. The path may carry less.
    pub stu: u32,
    /// Use UDP segmentation offload for sending, if the kernel has it.
    pub gso: bool,
    /// Use UDP receive offload, if the kernel has it.
    pub gro: bool,
    /// Accept trains, if this end can: payload without headers, up to 60 KiB at a time (`docs/reference/protocol.md`).
    pub trains: bool,
    /// Send without the kernel's copy (MSG_ZEROCOPY) if a probe shows that the kernel makes none, and datagrams are
    /// large enough for it to pay. Memory sent in this way returns when the kernel has released it, which may be after
    /// the peer has received all of it. Plain mode only: in the other modes the seal makes the copy.
    pub zerocopy: bool,
    /// Checksum payload in addition to UDP's checksum.
    pub checksum: bool,
    /// Predict where granted payload belongs, so that the kernel's copy puts it there (row P2.1). Without it all payload
    /// that is not decrypted into its place is copied there in user space: for experiments. Not with
    /// [`Options::strict`]. Over UDP and IP protocol 118.
    pub forecast: bool,
    /// Swap neighbours in each burst of datagrams with headers, so that a receiver that predicts is always wrong
    /// (row P2.3): for experiments. Plain connections over UDP and IP protocol 118; trains have no neighbours.
    pub swap: bool,
}

/// What a listener accepts. Has no effect on connections opened from here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListenOptions {
    /// Most connections of one listener that may exist at a time, not 0.
    pub max_connections: usize,
    /// Most of these from one origin, not 0: an IPv4 address, or an IPv6 network of 64 bits.
    pub max_connections_of_origin: usize,
    /// Connections that an endpoint accepts before its program does. A thread of the endpoint answers their peers,
    /// whose requests wait until the program accepts, exports memory and posts receives. Beyond this number clients
    /// wait: they repeat their request, for at most [`TimeOptions::connect`]. 0: no thread, and clients wait until the
    /// program calls `accept`. A worker accepts by itself, and ignores this.
    pub backlog: u16,
    /// Whether a listener asks its program about each request: it accepts none by itself, and the program reads the
    /// client's private data before it accepts or refuses. Clients repeat their request meanwhile, for at most
    /// [`TimeOptions::connect`].
    pub asks: bool,
    /// The ports of listeners whose connections live. Give the same value to a later listener at an address whose
    /// former listener still has connections; otherwise that address is in use.
    pub ports: Ports,
}

impl Default for Options {
    fn default() -> Options {
        let config = Config::default();
        Options {
            security: Security::default(),
            lane: LaneOptions {
                choice: LaneChoice::default(),
                rendezvous: None,
                neighbour: NeighbourName::default(),
                device: None,
            },
            paths: PathOptions {
                most: 1,
                links: Vec::new(),
                ethernet: false,
                udp: false,
                threads: PathThreads::default(),
            },
            times: TimeOptions {
                connect: config.connect_timeout,
                idle: config.idle_timeout,
                keep_alive: config.keep_alive,
                spin: Duration::from_micros(50),
                datagram: Duration::from_millis(100),
            },
            flow: FlowOptions {
                receive_buffer: 8 << 20,
                max_in_flight: config.max_window,
                eager_limit: config.eager_limit,
                block: config.block,
                classic_block: 1 << config.classic_block_log2,
                slots: config.slots,
            },
            rate: RateOptions {
                max: config.max_rate,
                control: config.control,
                scheduler: None,
            },
            datagrams: DatagramOptions {
                stu: config.max_stu,
                gso: true,
                gro: true,
                trains: true,
                zerocopy: true,
                checksum: false,
                forecast: true,
                swap: false,
            },
            listen: ListenOptions {
                max_connections: zerolane_handshake::limits::MAX_CONNECTIONS,
                max_connections_of_origin: zerolane_handshake::limits::MAX_CONNECTIONS_OF_ORIGIN,
                backlog: zerolane_handshake::limits::DEFAULT_BACKLOG,
                asks: false,
                ports: Ports::default(),
            },
            private_data: None,
            strict: false,
            profiles: config.profiles,
        }
    }
}

/// Longest eager Transfers that are held at a time.
const EAGER_TRANSFERS: u32 = limits::DEFAULT_EAGER_CREDIT / limits::DEFAULT_EAGER;

impl Options {
    /// These settings after `change`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Options)) -> Options {
        change(&mut self);
        self
    }

    /// Most paths that a connection may have: the number requested, and at least enough for the paths named.
    pub(crate) fn most_paths(&self) -> u8 {
        let named = u8::try_from(1 + self.paths.links.len()).unwrap_or(MAX_PATHS);
        self.paths.most.max(named).clamp(1, MAX_PATHS)
    }

    /// Whether connections over UDP that a listener accepts may get paths over raw Ethernet.
    pub(crate) fn takes_ethernet_paths(&self) -> bool {
        let may = match self.lane.choice {
            LaneChoice::Udp | LaneChoice::Best => true,
            LaneChoice::SharedMemory | LaneChoice::Ethernet | LaneChoice::Ip118 => false,
        };
        may && self.paths.ethernet && self.most_paths() > 1
    }

    /// Whether connections over raw Ethernet that a listener accepts may get paths over UDP.
    pub(crate) fn takes_udp_paths(&self) -> bool {
        self.lane.choice == LaneChoice::Ethernet && self.paths.udp && self.most_paths() > 1
    }

    /// Bytes of eager Transfers that the peer may send before receives are posted: enough for several of the longest.
    pub(crate) fn eager_credit(&self) -> u32 {
        match self.strict {
            true => 0,
            false => self
                .flow
                .eager_limit
                .min(limits::MAX_EAGER)
                .saturating_mul(EAGER_TRANSFERS),
        }
    }
}
