//! Emulates a network between namespaces, in real time and for any traffic.
//!
//! ```text
//!   host 1 ---- port 1 \             / port 3 ---- host 3
//!                        one thread
//!   host 2 ---- port 2 /             \ port 4 ---- host 4
//!
//!   frame in -> [its sender's interface: rate] -> [Link towards its receiver] -> frame out
//! ```
//!
//! The hosts are a [`Star`]. The hub is one thread that takes frames from all ports, sends each through the
//! [`Link`](netsim::link::Link) towards its receiver, and puts it out when it is due. Tests run the same model in virtual
//! time. As at the ports of a switch, each receiver has one link and so one queue, where many senders to one receiver meet.
//!
//! # Time
//! The kernel stamps each frame when its sender sends it. The model uses that stamp, not the moment at which the thread read
//! the frame, so queueing, drops and due times do not depend on the load of the machine. How late a frame leaves after its
//! due time does. The lab measures that for each frame ([`Lateness`]).
//!
//! The thread sleeps while nothing is due. It looks for new frames only as often as the links' delay allows, and puts out
//! frames due within 50 microseconds together, because on a small machine the ends under test need the cores. For the same
//! reason hosts hand over up to 64 KiB at a time, and consecutive frames that leave together arrive as one, as with network
//! cards that segment and merge. In between, each frame travels alone.
//!
//! # Sizes
//! The size of a frame is that of its IP packet, without the Ethernet header, as in [`udp`](crate::udp): the links' rate and
//! MTU are those of IP.

mod clock;
mod forwarder;
mod frame;
mod lateness;
pub(crate) mod port;
mod segments;
mod switch;
mod vnet;

pub use lateness::Lateness;

use crate::netns::{self, Star};
use crate::worker::Worker;
use forwarder::Forwarder;
use frame::Frame;
use lateness::Delays;
use netsim::link::{LinkConfig, LinkStats};
use port::Port;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;
use switch::Switch;

/// Most bytes of frames in flight in a lab; further frames are dropped and
/// counted. Two thirds of a second at 10 Gb/s.
pub const MAX_IN_FLIGHT_BYTES: usize = 768 << 20;

/// The configuration of a lab.
#[derive(Clone, Debug, PartialEq)]
pub struct LabConfig {
    /// Part of the namespaces' names: 1 to 8 characters from a-z and 0-9.
    pub prefix: String,
    /// How many hosts, 2 to [`netns::MAX_HOSTS`].
    pub hosts: usize,
    /// How many interfaces each host has, 1 to [`netns::MAX_INTERFACES`], each in a network of its own; at most
    /// [`netns::MAX_HOSTS`] of all hosts.
    pub interfaces: usize,
    /// MTU of the hosts' interfaces, bytes (68 to 65535).
    pub mtu: u32,
    /// The link towards each interface, until [`Lab::set_link`] changes it.
    pub link: LinkConfig,
    /// Rate of each host's own interface in bits per second. What a host sends
    /// faster waits there, without limit or loss. `None`: all it sends enters
    /// the receiver's link at once.
    pub interface_bits_per_s: Option<u64>,
    /// How long frames wait to be put out together while any are in flight, as a card does that moderates its interrupts
    /// (`rx-usecs` of `ethtool -C`): 1 us to 10 ms. The network takes less time of the processor, the hosts are woken for
    /// several frames at once, and what is sent is late by as much at most. `None`: at most 50 us, and not for frames that
    /// come before those in flight are due.
    pub moderation: Option<Duration>,
    /// Core that the network's thread stays on; `None`: any. It runs before all other threads there, so
    /// it should not be the core of a host that has to keep up with the links.
    pub core: Option<usize>,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for LabConfig {
    /// Two hosts, an MTU of 1500 bytes and a perfect link.
    fn default() -> Self {
        Self {
            prefix: "lab".into(),
            hosts: 2,
            interfaces: 1,
            mtu: 1500,
            link: LinkConfig::default(),
            interface_bits_per_s: None,
            moderation: None,
            core: None,
            seed: 0,
        }
    }
}

/// What [`LabConfig::moderation`] may be.
pub const MODERATION: RangeInclusive<Duration> =
    Duration::from_micros(1)..=Duration::from_millis(10);

/// What a lab did so far.
#[derive(Clone, Debug, PartialEq)]
pub struct LabStats {
    /// The link towards each interface, by [`Lab::port`]: as the hosts are, if each has one.
    pub towards: Vec<LinkStats>,
    /// Frames that the thread was too slow to take: dropped by the kernel, and
    /// no part of the model.
    pub missed: u64,
    /// Frames dropped because [`MAX_IN_FLIGHT_BYTES`] were in flight.
    pub overflowed: u64,
    /// Frames that came through a link but that the kernel did not take.
    pub unsent: u64,
    /// How late frames left, since the start or [`Lab::reset_lateness`].
    pub lateness: Lateness,
}

impl LabStats {
    /// All links together.
    #[must_use]
    pub fn total(&self) -> LinkStats {
        let towards = self.towards.iter().copied();
        towards.fold(LinkStats::default(), |sum, link| sum + link)
    }

    /// What was counted since `earlier`. Lateness is not counted, and stays.
    #[must_use]
    pub fn since(&self, earlier: &LabStats) -> LabStats {
        let pairs = self.towards.iter().zip(&earlier.towards);
        LabStats {
            towards: pairs.map(|(&now, &then)| now - then).collect(),
            missed: self.missed - earlier.missed,
            overflowed: self.overflowed - earlier.overflowed,
            unsent: self.unsent - earlier.unsent,
            lateness: self.lateness,
        }
    }
}

/// Namespaces joined by an emulated network. Dropping it ends the network and
/// removes them; frames still in flight are gone.
///
/// ```
/// use netlab::{lab::{Lab, LabConfig}, netns};
/// use netsim::link::LinkConfig;
/// use std::net::UdpSocket;
/// use std::time::Duration;
///
/// if !netns::is_permitted() {
///     eprintln!("skipped: needs root");
///     return Ok(());
/// }
/// let slow = LinkConfig { delay: Duration::from_millis(2), ..LinkConfig::default() };
/// let lab = Lab::start(LabConfig { link: slow, ..LabConfig::default() })?;
/// let (client, server) = (lab.host(0), lab.host(1));
/// let socket = server.enter_thread(|| UdpSocket::bind((server.ipv4(), 9)))??;
/// client.enter_thread(|| {
///     UdpSocket::bind("0.0.0.0:0")?.send_to(b"hello", (server.ipv4(), 9))
/// })??;
/// let mut buffer = [0; 16];
/// let (length, from) = socket.recv_from(&mut buffer)?;
/// assert_eq!(&buffer[..length], b"hello");
/// assert_eq!(from.ip(), client.ipv4());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Lab {
    // Declared first, so dropped first: the thread ends before its ports go.
    network: Worker<State>,
    star: Star,
}

impl Lab {
    /// Makes the namespaces and starts the network.
    ///
    /// # Errors
    /// As [`Star::new`], [`netns::Error::BadModeration`], and [`netns::Error::Io`] if a socket or the thread
    /// cannot be made. Nothing is left behind.
    pub fn start(config: LabConfig) -> netns::Result<Self> {
        let (hosts, interfaces) = (config.hosts, config.interfaces);
        let beyond = |it: &Duration| !MODERATION.contains(it);
        if let Some(moderation) = config.moderation.filter(beyond) {
            return Err(netns::Error::BadModeration(moderation));
        }
        let star = Star::with_interfaces(&config.prefix, hosts, interfaces, config.mtu)?;
        let ports = star.hub().enter_thread(|| -> io::Result<Vec<Port>> {
            (0..star.ports())
                .map(|port| Port::open(&star.port(port), config.mtu))
                .collect()
        })?;
        let network = ports.and_then(|ports| {
            Worker::start("netlab-lab", State::new(&config), |shared| {
                let forwarder = Forwarder::new(ports, shared, (config.core, config.moderation));
                Ok(move || forwarder.run())
            })
        });
        let network = network.map_err(|error| netns::Error::io("start the network", error))?;
        Ok(Self { network, star })
    }

    /// The hosts, in order of their addresses.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &netns::Namespace> {
        self.star.hosts()
    }

    /// The host of this index, from 0.
    ///
    /// # Panics
    /// If there are not that many.
    #[must_use]
    pub fn host(&self, index: usize) -> &netns::Namespace {
        self.star.host(index)
    }

    /// The port of the network where that interface of that host is: it names the link towards it. The first ones are those of
    /// the hosts' first interfaces.
    #[must_use]
    pub fn port(&self, host: usize, interface: usize) -> usize {
        interface * self.star.hosts().len() + host
    }

    /// The link towards this port.
    ///
    /// # Panics
    /// If there are not that many.
    #[must_use]
    pub fn link(&self, towards: usize) -> LinkConfig {
        *self.network.state().switch.link(towards).config()
    }

    /// Changes the link towards this port, as
    /// [`Link::set_config`](netsim::link::Link::set_config) does.
    ///
    /// # Panics
    /// If there are not that many.
    pub fn set_link(&self, towards: usize, config: LinkConfig) {
        let mut state = self.network.state();
        state.switch.link_mut(towards).set_config(config);
    }

    /// Takes the link towards this port down or up again, as
    /// [`Link::set_up`](netsim::link::Link::set_up) does. The hosts' interfaces
    /// do not notice.
    ///
    /// # Panics
    /// If there are not that many.
    pub fn set_up(&self, towards: usize, up: bool) {
        let mut state = self.network.state();
        state.switch.link_mut(towards).set_up(up);
    }

    /// The counters as they are now.
    #[must_use]
    pub fn stats(&self) -> LabStats {
        self.network.state().stats()
    }

    /// Forgets how late frames were until now.
    pub fn reset_lateness(&self) {
        self.network.state().delays.reset();
    }

    /// Whether the network still carries frames.
    ///
    /// # Errors
    /// What ended it: since then all frames are lost.
    pub fn check(&self) -> io::Result<()> {
        self.network.check()
    }

    /// Ends the network and removes the namespaces; returns its last counters.
    ///
    /// # Errors
    /// The system's error if one had ended the network before.
    pub fn stop(mut self) -> io::Result<LabStats> {
        self.network.end()?;
        Ok(self.stats())
    }
}

#[derive(Debug)]
struct State {
    switch: Switch<Frame>,
    delays: Delays,
    /// By port, as the kernel counts them.
    missed: Vec<u64>,
    overflowed: u64,
    unsent: u64,
}

impl State {
    fn new(config: &LabConfig) -> Self {
        Self {
            switch: Switch::new(config),
            delays: Delays::default(),
            missed: vec![0; config.hosts * config.interfaces],
            overflowed: 0,
            unsent: 0,
        }
    }

    fn stats(&self) -> LabStats {
        LabStats {
            towards: self.switch.stats(),
            missed: self.missed.iter().sum(),
            overflowed: self.overflowed,
            unsent: self.unsent,
            lateness: self.delays.summary(),
        }
    }
}
