//! Makes network namespaces joined by veth: several hosts on one machine.
//!
//! Two joined directly ([`Topology`]) or by a router ([`Routed`]), or any number around a hub that forwards their frames
//! ([`Star`]):
//!
//! ```text
//!  namespace a                      namespace b
//!  10.77.0.1/24                     10.77.0.2/24
//!  fd77::1/64                       fd77::2/64
//!  [ PREFIX-a ]------- veth --------[ PREFIX-b ]
//! ```
//!
//! A host may have several interfaces, each in a network of its own: the second pair has 10.78.0.1/24 and 10.78.0.2/24, and
//! so on ([`Interface`]).
//!
//! Nothing in the caller's own namespace changes, and nothing leaves the pair: there is no route out.
//!
//! This process makes all of it by messages to the kernel, without other programs. The namespaces have their names where `ip
//! netns` looks, so `ip netns exec NAME` can inspect them.

mod counters;
mod error;
mod name;
mod netlink;
mod offload;
mod routed;
mod rtnetlink;
mod star;

pub use counters::Counters;
pub use error::{Error, Result};
pub use name::sweep_stale;
pub use offload::{OffloadChange, Offloads};
pub use routed::Routed;
pub use rtnetlink::{Rtnetlink, TokenBucket};
pub(crate) use star::hardware_address;
pub use star::{MAX_HOSTS, Star};

use name::{NETNS_DIR, Names, maker_of, names_in_use, path_of, processes};
use netsim::Side;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{AccessFlags, access};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{io, panic, thread};

/// Below this the kernel takes IPv6 away from a device (RFC 8200, section 5).
const IPV6_MIN_MTU_BYTES: u32 = 1280;

/// Bits of the addresses of one network that are the same.
const PREFIX_LEN: u8 = 24;
const IPV6_PREFIX_LEN: u8 = 64;

/// Whether this process may make network namespaces. Asks the kernel by making
/// one and dropping it at once.
#[must_use]
pub fn is_permitted() -> bool {
    let names_writable = [NETNS_DIR, "/run"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .is_some_and(|path| access(path, AccessFlags::W_OK).is_ok());
    // On a thread of its own, because it leaves the thread in the new one.
    names_writable
        && thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET).is_ok())
            .join()
            .unwrap_or(false)
}

/// Two namespaces joined by veth. Dropping it removes them, also while
/// panicking; after a kill, [`sweep_stale`] does.
///
/// Dropping cuts the veth at once. Processes still running inside keep their
/// nameless namespace until they end: end them first.
///
/// ```
/// use netlab::netns::{self, Topology};
/// use std::net::UdpSocket;
///
/// if !netns::is_permitted() {
///     eprintln!("skipped: needs root");
///     return Ok(());
/// }
/// let hosts = Topology::pair("doc", 1500)?;
/// let server = hosts.b().enter_thread(|| UdpSocket::bind((hosts.b().ipv4(), 9)))??;
/// hosts.a().enter_thread(|| {
///     UdpSocket::bind("0.0.0.0:0")?.send_to(b"hello", (hosts.b().ipv4(), 9))
/// })??;
/// let mut buffer = [0; 16];
/// let (length, from) = server.recv_from(&mut buffer)?;
/// assert_eq!(&buffer[..length], b"hello");
/// assert_eq!(from.ip(), hosts.a().ipv4());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Topology {
    /// Indexed by side.
    ends: [Host; 2],
}

impl Topology {
    /// Makes two namespaces joined by a veth pair of the given MTU (68 to 65535
    /// bytes), with addresses, everything up. `prefix` is 1 to 8 characters
    /// from a-z and 0-9 and appears in all names; different topologies may
    /// share one.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without the rights, [`Error::BadPrefix`], or
    /// [`Error::Io`] with what the kernel said. Nothing is left behind.
    pub fn pair(prefix: &str, mtu: u32) -> Result<Self> {
        Self::pairs(prefix, mtu, 1)
    }

    /// As [`Topology::pair`], joined by so many veth pairs (1 to [`MAX_INTERFACES`]). What a method does to a side, it does to
    /// the first.
    ///
    /// # Errors
    /// As of [`Topology::pair`], and [`Error::BadInterfaceCount`].
    pub fn pairs(prefix: &str, mtu: u32, pairs: usize) -> Result<Self> {
        let name = Names::unique(prefix)?;
        let host = |label, number| Host::create(&name, label, number, pairs);
        let topology = Self {
            ends: [host("a", 1)?, host("b", 2)?],
        };
        for pair in 0..pairs {
            topology.join(pair, mtu)?;
            for side in Side::BOTH {
                topology.bring_up(side, pair)?;
                topology.side(side).assign_ipv6(pair)?;
            }
        }
        Ok(topology)
    }

    /// The first host.
    #[must_use]
    pub fn a(&self) -> &Namespace {
        self.side(Side::A)
    }

    /// The second host.
    #[must_use]
    pub fn b(&self) -> &Namespace {
        self.side(Side::B)
    }

    /// The host at this side.
    #[must_use]
    pub fn side(&self, side: Side) -> &Namespace {
        &self.ends[side.index()].namespace
    }

    /// Name of the device at this side, at most 15 bytes.
    #[must_use]
    pub fn device(&self, side: Side) -> &str {
        self.side(side).device()
    }

    /// Sets the MTU of both devices, in bytes (68 to 65535). Below 1280 the
    /// kernel takes the IPv6 addresses away; back above, they return.
    ///
    /// # Errors
    /// [`Error::Io`] with what the kernel said.
    pub fn set_mtu(&self, mtu: u32) -> Result<()> {
        Side::BOTH
            .into_iter()
            .try_for_each(|side| self.set_mtu_at(side, mtu))
    }

    /// Sets the MTU of one device only, as [`set_mtu`](Self::set_mtu) does. If
    /// the other end sends more than this end takes, the packets vanish
    /// silently.
    ///
    /// # Errors
    /// [`Error::Io`] with what the kernel said.
    pub fn set_mtu_at(&self, side: Side, mtu: u32) -> Result<()> {
        let end = self.side(side);
        end.rtnetlink()?.set_mtu(end.device(), mtu)?;
        end.assign_ipv6(0)
    }

    /// Takes one device down or up again. The other end loses its carrier
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::Io`] with what the kernel said.
    pub fn set_link_up(&self, side: Side, up: bool) -> Result<()> {
        self.side(side).set_up(0, up)
    }

    /// Switches segmentation and coalescing at one device and returns the
    /// outcome: features that are fixed or unknown are not an error.
    ///
    /// # Errors
    /// [`Error::Io`] on a kernel without the netlink family `ethtool` (5.8).
    pub fn set_offloads(&self, side: Side, offloads: Offloads) -> Result<OffloadChange> {
        offload::set(self.side(side), self.device(side), offloads)
    }

    /// Switches whether one device computes and checks checksums, or the stack does, and returns the outcome. On veth an
    /// offloaded checksum is never computed.
    ///
    /// # Errors
    /// As [`set_offloads`](Topology::set_offloads).
    pub fn set_checksums(&self, side: Side, on: bool) -> Result<OffloadChange> {
        offload::set_checksums(self.side(side), self.device(side), on)
    }

    /// Makes a veth pair, each end at once in its namespace.
    fn join(&self, pair: usize, mtu: u32) -> Result<()> {
        let [a, b] = [self.a(), self.b()];
        let [near, far] = [a, b].map(|it| it.interface(pair).device());
        a.rtnetlink()?.add_veth(near, mtu, (b, far))
    }

    fn bring_up(&self, side: Side, pair: usize) -> Result<()> {
        let end = self.side(side);
        let own = end.interface(pair);
        let kernel = end.rtnetlink()?;
        kernel.set_up("lo", true)?;
        kernel.assign_address(own.device(), own.ipv4().into(), PREFIX_LEN)?;
        kernel.set_up(own.device(), true)
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        // Cut the link now: the kernel takes namespaces apart later, and not
        // at all while a process is inside. Fails if it was never made.
        for pair in 0..self.a().interfaces().len() {
            let _ = self.a().delete(pair);
        }
    }
}

/// A namespace with the addresses of a host, removed when dropped.
#[derive(Debug)]
struct Host {
    namespace: Namespace,
    _guard: Guard,
}

impl Host {
    /// The host of this label, number `number` of its networks, of which there are so many.
    fn create(names: &Names, label: &str, number: u8, interfaces: usize) -> Result<Self> {
        let count = match u8::try_from(interfaces) {
            Ok(count) if (1..=MAX_INTERFACES).contains(&interfaces) => count,
            _ => return Err(Error::BadInterfaceCount(interfaces)),
        };
        let device = names.device(label);
        let own = |network| Interface::of(&device, network, number);
        Self::with(names, label, (0..count).map(own).collect())
    }

    /// The host of this label with one interface, of this address.
    fn at(names: &Names, label: &str, ipv4: Ipv4Addr) -> Result<Self> {
        let own = Interface {
            device: names.device(label),
            ipv4,
            ipv6: None,
        };
        Self::with(names, label, vec![own])
    }

    fn with(names: &Names, label: &str, interfaces: Vec<Interface>) -> Result<Self> {
        let namespace = Namespace {
            name: names.namespace(label),
            interfaces,
        };
        let guard = Guard::create(namespace.name.clone())?;
        Ok(Self {
            namespace,
            _guard: guard,
        })
    }
}

/// A named namespace that is removed when dropped.
#[derive(Debug)]
struct Guard {
    name: String,
}

impl Guard {
    fn create(name: String) -> Result<Self> {
        name::create(&name)?;
        Ok(Self { name })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = name::remove(&self.name) {
            // This is the last chance to say that something was left behind.
            eprintln!("netlab: cannot remove namespace {}: {error}", self.name);
        }
    }
}

fn kernel_has_ipv6() -> bool {
    Path::new("/proc/net/if_inet6").exists()
}

/// Most interfaces of a host.
pub const MAX_INTERFACES: usize = 8;

/// An interface of a host, in a network that it shares with those of the same index of other hosts.
#[derive(Clone, Debug)]
pub struct Interface {
    device: String,
    ipv4: Ipv4Addr,
    ipv6: Option<Ipv6Addr>,
}

impl Interface {
    /// That of a namespace with nothing of its own that others reach.
    fn loopback() -> Self {
        Self {
            device: "lo".to_owned(),
            ipv4: Ipv4Addr::LOCALHOST,
            ipv6: None,
        }
    }

    /// That of the host with this number and this first device, in the network of this index.
    fn of(device: &str, network: u8, number: u8) -> Self {
        let ipv6 = Ipv6Addr::new(0xfd77, 0, 0, network.into(), 0, 0, 0, number.into());
        Self {
            device: match network {
                0 => device.to_owned(),
                _ => format!("{device}_{network}"),
            },
            ipv4: Ipv4Addr::new(10, 77 + network, 0, number),
            ipv6: kernel_has_ipv6().then_some(ipv6),
        }
    }

    /// Its name, at most 15 bytes, unless it was renamed.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Its IPv4 address.
    #[must_use]
    pub fn ipv4(&self) -> Ipv4Addr {
        self.ipv4
    }

    /// Its IPv6 address, `None` on a kernel without IPv6. It is not assigned while the MTU is below 1280 bytes.
    #[must_use]
    pub fn ipv6(&self) -> Option<Ipv6Addr> {
        self.ipv6
    }
}

/// One host of a [`Topology`], a [`Routed`] or a [`Star`]. A clone can go to another thread; it does not
/// keep the namespace alive.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
    /// One at least.
    interfaces: Vec<Interface>,
}

impl Namespace {
    /// Name for `ip netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its interfaces, as they were made.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The interface of this index, from 0.
    ///
    /// # Panics
    /// If there are not that many.
    #[must_use]
    pub fn interface(&self, index: usize) -> &Interface {
        &self.interfaces[index]
    }

    /// Name of its first interface.
    #[must_use]
    pub fn device(&self) -> &str {
        self.interface(0).device()
    }

    /// Its IPv4 address there.
    #[must_use]
    pub fn ipv4(&self) -> Ipv4Addr {
        self.interface(0).ipv4()
    }

    /// Its IPv6 address there, as [`Interface::ipv6`].
    #[must_use]
    pub fn ipv6(&self) -> Option<Ipv6Addr> {
        self.interface(0).ipv6()
    }

    /// Takes the interface of this index down, or up again.
    ///
    /// # Errors
    /// [`Error::Io`] with what the kernel said.
    pub fn set_up(&self, index: usize, up: bool) -> Result<()> {
        self.rtnetlink()?
            .set_up(self.interface(index).device(), up)?;
        // The kernel forgets the IPv6 addresses of a device that goes down.
        if up { self.assign_ipv6(index) } else { Ok(()) }
    }

    /// Removes the interface of this index, and the other end of its veth.
    ///
    /// # Errors
    /// [`Error::Io`] with what the kernel said.
    pub fn delete(&self, index: usize) -> Result<()> {
        self.rtnetlink()?.delete(self.interface(index).device())
    }

    /// Gives the interface of this index another name, which only the kernel knows: it is down for a moment, as kernels before
    /// 6.2 ask for.
    ///
    /// # Errors
    /// [`Error::Io`] with what the kernel said.
    pub fn rename(&self, index: usize, name: &str) -> Result<()> {
        let device = self.interface(index).device();
        let kernel = self.rtnetlink()?;
        kernel.set_up(device, false)?;
        kernel.rename(device, name)?;
        kernel.set_up(name, true)
    }

    /// Assigns the IPv6 address, or does nothing where the kernel or the MTU
    /// allows none. Without duplicate address detection, so that it is usable
    /// at once.
    fn assign_ipv6(&self, index: usize) -> Result<()> {
        let own = self.interface(index);
        let Some(ipv6) = own.ipv6() else {
            return Ok(());
        };
        let kernel = self.rtnetlink()?;
        if kernel.mtu(own.device())? < IPV6_MIN_MTU_BYTES {
            return Ok(());
        }
        kernel.assign_address(own.device(), ipv6.into(), IPV6_PREFIX_LEN)
    }

    /// A command that will run `program` in the namespace, by `nsenter` of util-linux, which every Debian has. The
    /// child's pid is that of `program` itself. A program that does not exist shows as exit status 127, not as an
    /// error of `spawn`. Its `/sys` is the caller's.
    ///
    /// ```no_run
    /// # fn show(hosts: &netlab::netns::Topology) -> std::io::Result<()> {
    /// let peer = hosts.b().ipv4().to_string();
    /// let status = hosts.a().command("ping").args(["-c", "1", &peer]).status()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut net = OsString::from("--net=");
        net.push(path_of(&self.name));
        let mut command = Command::new("nsenter");
        command.arg(net).arg("--").arg(program.as_ref());
        command
    }

    /// Runs `work` on a new thread inside the namespace and waits for it.
    /// Sockets made there stay in the namespace wherever they go afterwards. A
    /// panic in `work` goes on in the caller.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] or [`Error::Io`] if the namespace cannot be
    /// entered, for example because its topology was dropped.
    pub fn enter_thread<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let inside = || {
            self.enter()?;
            Ok(work())
        };
        thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|payload| panic::resume_unwind(payload))
    }

    /// Whether a TCP socket of the namespace listens on this port.
    ///
    /// # Errors
    /// As [`enter_thread`](Self::enter_thread); or the kernel's table cannot be read.
    pub fn is_listening(&self, port: u16) -> Result<bool> {
        // The port behind the local address, then no peer, and the state TCP_LISTEN.
        let own = format!(":{port:04X}");
        let listens = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|it| it.ends_with(&own)) && words.nth(1) == Some("0A")
        };
        let tables = self.enter_thread(|| {
            // Without IPv6 there is no second table.
            let v6 = fs::read_to_string("/proc/thread-self/net/tcp6").unwrap_or_default();
            fs::read_to_string("/proc/thread-self/net/tcp").map(|v4| v4 + &v6)
        })?;
        let tables = tables.map_err(|error| Error::io("read the table of TCP sockets", error))?;
        Ok(tables.lines().any(listens))
    }

    /// Moves the calling thread into the namespace for good: for threads of
    /// your own. Threads and processes that it starts begin there too.
    ///
    /// # Errors
    /// As [`enter_thread`](Self::enter_thread).
    pub fn enter(&self) -> Result<()> {
        let entered = setns(self.open()?, CloneFlags::CLONE_NEWNET);
        entered.map_err(|error| Error::io(format!("enter namespace {}", self.name), error.into()))
    }

    /// The file that stands for the namespace.
    fn open(&self) -> Result<File> {
        File::open(path_of(&self.name))
            .map_err(|error| Error::io(format!("open namespace {}", self.name), error))
    }

    /// Kills every process in the namespace, children that a command left
    /// behind included. Threads of this process that entered it stay.
    ///
    /// # Errors
    /// [`Error::Io`] if the namespace is gone, or if a process does not end.
    pub fn kill_all(&self) -> Result<()> {
        end_processes(&self.name)
    }

    /// MTU of the first interface as it is now, in bytes.
    ///
    /// # Errors
    /// [`Error::Io`] with what the kernel said.
    pub fn mtu(&self) -> Result<u32> {
        self.rtnetlink()?.mtu(self.device())
    }
}

/// Removes all namespaces that the process `maker` made, and ends what runs in them: for one that was killed, and cannot.
///
/// # Errors
/// As [`sweep_stale`]; what can be removed is.
pub fn remove_all_of(maker: u32) -> Result<()> {
    let mut outcome = Ok(());
    for name in names_in_use()? {
        if maker_of(&name) == Some(maker) {
            let ended = end_processes(&name);
            let removed = name::remove(&name);
            outcome = outcome.and(ended).and(removed);
        }
    }
    outcome
}

/// Ends all processes in a namespace.
fn end_processes(name: &str) -> Result<()> {
    /// A killed process ends within moments, except in the kernel's depths.
    const ATTEMPTS: u32 = 200;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 0..ATTEMPTS {
        let pids = processes(name)?;
        if pids.is_empty() {
            return Ok(());
        }
        for pid in pids {
            // It may be gone already.
            let _ = kill(pid, Signal::SIGKILL);
        }
        thread::sleep(PAUSE);
    }
    let busy = io::Error::from(io::ErrorKind::ResourceBusy);
    Err(Error::io(format!("end all processes in {name}"), busy))
}
