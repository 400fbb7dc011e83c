//! What a user may choose about a connection.

use crate::udp::Ports;
use crate::{EthernetDevice, NeighbourName, PathAddresses, RendezvousName, Scheduler, Security};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use zerolane_core::{Config, Control, limits};
use zerolane_wire::{MAX_PATHS, Profiles};

/// What is to carry connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LaneChoice {
    /// UDP, also to processes of this host.
    Udp,
    /// Shared memory to processes of this host and user that listen with this choice or the next; else UDP, silently:
    /// the [`Account`](crate::Account) says why. UDP, too, where the options name a cipher, for nothing is enciphered in
    /// shared memory, or ask for several paths ([`Options::paths`], [`Options::links`]), for there is one.
    #[default]
    Best,
    /// Shared memory or an error. A listener hears nobody else.
    SharedMemory,
    /// Frames of raw Ethernet to a host of the same segment, whose address is an [`EthernetAddress`](crate::EthernetAddress), or
    /// an error. A listener hears nobody else. Needs CAP_NET_RAW, for a listener as long as it accepts.
    Ethernet,
    /// Packets of IP protocol 118, without UDP, or an error. Ports are those of the protocol's header, and a listener
    /// hears nobody else. Needs CAP_NET_RAW, for a listener as long as it accepts.
    Ip118,
}

/// Which threads carry a connection over several paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathThreads {
    /// The one that drives the connection has all of them.
    #[default]
    OneForAll,
    /// The one that drives the connection has the first path, and each other path a thread of its own: it receives, seals
    /// and sends what that path carries, and opens sealed payload into its place. A path over raw Ethernet stays with the one that
    /// drives the connection. So a connection over two paths takes
    /// two cores where there are, and no more memory than 1 MiB a path.
    OnePerPath,
}

/// As switches of commands and bindings have it: whether each path has a thread.
impl From<bool> for PathThreads {
    fn from(one_per_path: bool) -> PathThreads {
        match one_per_path {
            true => PathThreads::OnePerPath,
            false => PathThreads::OneForAll,
        }
    }
}

/// Settings of a connection. The defaults suit a LAN.
#[derive(Clone, Debug)]
pub struct Options {
    /// Profiles offered or accepted: extended, unless more is asked for. Classic is what the thesis describes,
    /// to be compared with; both ends have to ask for it, and a peer that speaks nothing else is refused with
    /// [`Reason::NoCommonProfile`](zerolane_wire::Reason::NoCommonProfile).
    pub profiles: Profiles,
    /// End the connection instead of copying payload of a Transfer in user space, however short. What fits
    /// one datagram and comes unannounced ([`MoveCause::Unannounced`](crate::MoveCause)) is copied once all the same.
    /// The peer is asked to send nothing else before it is granted, and plain connections take no trains: a burst
    /// that turns out to be none would be copied.
    pub strict: bool,
    /// What carries the connection: the best that both ends have, unless they say something else.
    pub lane: LaneChoice,
    /// The name by which both ends of shared memory meet, in place of the address and the network namespace, in which they
    /// meet otherwise: for containers of one kernel that have networks of their own. Both ends see one directory of the
    /// rendezvous (`zerolane` in XDG_RUNTIME_DIR or `/run/user/UID`, else `/tmp/zerolane-UID`), as the same user. The address
    /// is that of UDP, where shared memory is not possible.
    pub rendezvous: Option<RendezvousName>,
    /// What a listener of raw Ethernet calls itself when it is asked by name, or by all.
    pub neighbour: NeighbourName,
    /// The device of raw Ethernet that the connection, or a listener with its connections, is at. `None`: none is needed.
    pub device: Option<Arc<EthernetDevice>>,
    /// Paths that a connection over UDP or raw Ethernet may have at a time, 1 to 8; the lesser of both ends' counts. More than 1
    /// takes one descriptor more for each connection, and one for each path; over raw Ethernet, at the end that listens, one more
    /// as long as the peer may add a path. Not with [`Options::device`].
    pub paths: u8,
    /// Paths beside the first, to be added once a connection that is opened from here is there. [`Options::paths`] is
    /// at least one more than these. One that cannot be opened is counted, in
    /// [`Account::paths_refused`](crate::Account::paths_refused).
    pub links: Vec<PathAddresses>,
    /// Whether the peer may add paths over raw Ethernet to a connection over UDP that a listener accepts, at any interface of the
    /// network namespace. Needs CAP_NET_RAW as long as connections may add paths, and takes one descriptor more for each while
    /// it may. Without [`Options::paths`] of 2 at least, and over other lanes, nothing comes of it: a listener of raw Ethernet takes
    /// such paths without it.
    pub ethernet_paths: bool,
    /// Whether the peer may add paths over UDP to a connection over raw Ethernet that a listener accepts, at any address of the
    /// host, at the UDP port with the number of the listener's. Without [`Options::paths`] of 2 at least, and over other lanes,
    /// nothing comes of it: a listener of UDP takes such paths without it.
    pub udp_paths: bool,
    /// Which threads carry a connection over several paths: this end's own choice.
    pub path_threads: PathThreads,
    /// Use UDP segmentation offload for sending, where the kernel has it.
    pub gso: bool,
    /// Use UDP receive offload, where the kernel has it.
    pub gro: bool,
    /// Take trains, where this end can: payload without headers, up to 60 KiB at a time, as `docs/reference/protocol.md` has it.
    pub trains: bool,
    /// Send without the kernel's copy (MSG_ZEROCOPY) where a probe shows that the kernel does
    /// without, and datagrams are large enough for it to pay. Memory sent so is handed back when
    /// the kernel has let go of it, which may be after the peer has it all. In plain mode only:
    /// sealing makes the copy.
    pub zerocopy: bool,
    /// Checksum payload on top of what UDP does.
    pub checksum: bool,
    /// Receive socket buffer to ask for, bytes. What is granted decides how much is in flight.
    pub receive_buffer: usize,
    /// Most bytes granted ahead. A short path gets what the socket buffer holds; a long one gets what
    /// fills it, up to this, and may lose some when this end is slow for a moment. A third of the
    /// socket buffer rules that out.
    pub max_in_flight: u32,
    /// What keeps the sender from overloading the path.
    pub control: Control,
    /// Most payload that this end sends over one connection, bytes per second, repeats included and headers not;
    /// `None`: as much as the peer and the path take. Several connections have a limit each. What is received is the
    /// peer's to limit.
    pub max_rate: Option<u64>,
    /// Longest send, or payload of a message, that leaves with its announcement instead of waiting for a
    /// grant, bytes, at most 64 KiB; 0: none. The lesser of both ends' counts. It saves a round trip and costs
    /// the receiver a copy. A put of more than one datagram leaves at once up to this, too, and up to 16 KiB.
    pub eager_limit: u32,
    /// Length of a Block to aim at, bytes.
    pub block: u32,
    /// Spin this long for the next datagram before sleeping.
    pub spin: Duration,
    /// Give up connecting after this. Not 0; [`Duration::MAX`] is without end.
    pub connect_timeout: Duration,
    /// Declare the peer dead after it left requests unanswered for this long. Not 0; [`Duration::MAX`] is without end.
    pub idle_timeout: Duration,
    /// How connections are protected, and the identities of the ends.
    pub security: Security,
    /// Transfers the peer may announce before the first is answered.
    pub slots: u16,
    /// Connections accepted by one listener that may exist at a time.
    pub max_connections: usize,
    /// Of those, from one origin: an IPv4 address, or an IPv6 network of 64 bits.
    pub max_connections_of_origin: usize,
    /// Divides the link that this connection receives on among all connections with the same
    /// scheduler (incast). `None`: a listener makes one for the connections it accepts, and a
    /// connection opened from here is bound by nothing but its own window. So is each connection in shared
    /// memory, which crosses no link.
    pub scheduler: Option<Scheduler>,
    /// Where a listener finds the address of one before it, whose connections live: give the same to both. Else
    /// that address is in use.
    pub ports: Ports,
}

impl Default for Options {
    fn default() -> Options {
        let config = Config::default();
        Options {
            profiles: config.profiles,
            strict: false,
            lane: LaneChoice::default(),
            rendezvous: None,
            neighbour: NeighbourName::default(),
            device: None,
            paths: 1,
            links: Vec::new(),
            ethernet_paths: false,
            udp_paths: false,
            path_threads: PathThreads::default(),
            gso: true,
            gro: true,
            trains: true,
            zerocopy: true,
            checksum: false,
            receive_buffer: 8 << 20,
            max_in_flight: config.max_window,
            control: config.control,
            max_rate: config.max_rate,
            eager_limit: config.eager_limit,
            block: config.block,
            spin: Duration::from_micros(50),
            connect_timeout: config.connect_timeout,
            idle_timeout: config.idle_timeout,
            security: Security::default(),
            slots: config.slots,
            max_connections: zerolane_handshake::limits::MAX_CONNECTIONS,
            max_connections_of_origin: zerolane_handshake::limits::MAX_CONNECTIONS_OF_ORIGIN,
            scheduler: None,
            ports: Ports::default(),
        }
    }
}

/// Eager Transfers of the longest kind that are held at a time.
const EAGER_TRANSFERS: u32 = limits::DEFAULT_EAGER_CREDIT / limits::DEFAULT_EAGER;

impl Options {
    /// Checks that a connection can live with these settings. All that connects or listens does so.
    ///
    /// # Errors
    /// `InvalidInput`, in words.
    pub fn check(&self) -> io::Result<()> {
        let times = [
            ("connect_timeout", self.connect_timeout),
            ("idle_timeout", self.idle_timeout),
        ];
        match times.iter().find(|it| it.1.is_zero()) {
            None => Ok(()),
            Some((name, _)) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name} is 0, in which no peer can answer"),
            )),
        }
    }

    /// Paths that a connection may have: what is asked for, and no fewer than those named.
    pub(crate) fn most_paths(&self) -> u8 {
        let named = u8::try_from(1 + self.links.len()).unwrap_or(MAX_PATHS);
        self.paths.max(named).clamp(1, MAX_PATHS)
    }

    /// Whether connections over UDP that a listener accepts may get paths over raw Ethernet.
    pub(crate) fn takes_ethernet_paths(&self) -> bool {
        let may = match self.lane {
            LaneChoice::Udp | LaneChoice::Best => true,
            LaneChoice::SharedMemory | LaneChoice::Ethernet | LaneChoice::Ip118 => false,
        };
        may && self.ethernet_paths && self.most_paths() > 1
    }

    /// Whether connections over raw Ethernet that a listener accepts may get paths over UDP.
    pub(crate) fn takes_udp_paths(&self) -> bool {
        self.lane == LaneChoice::Ethernet && self.udp_paths && self.most_paths() > 1
    }

    /// Bytes of eager Transfers that the peer may send before receives are posted: some of the longest.
    pub(crate) fn eager_credit(&self) -> u32 {
        match self.strict {
            true => 0,
            false => self
                .eager_limit
                .min(limits::MAX_EAGER)
                .saturating_mul(EAGER_TRANSFERS),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn check__refuses_timeouts_of_zero_and_says_which() {
        assert!(Options::default().check().is_ok());
        let idle = Options {
            idle_timeout: Duration::ZERO,
            ..Options::default()
        };
        let connect = Options {
            connect_timeout: Duration::ZERO,
            ..Options::default()
        };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        for (options, name) in [(idle, "idle_timeout"), (connect, "connect_timeout")] {
            let connected = crate::connect(any, &options).map(drop);
            let bound = crate::Listener::bind(any, options).map(drop);
            for refused in [connected, bound] {
                let error = refused.expect_err("no such time");
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
                assert!(error.to_string().starts_with(name), "{error}");
            }
        }
    }
}
