//! Makes several namespaces around a hub.
//!
//! ```text
//!  namespace h1            namespace hub             namespace h2
//!  10.77.0.1/24            (no addresses)            10.77.0.2/24
//!  [ PREFIX-h1 ]-- veth --[ PREFIX-p1 | PREFIX-p2 ]-- veth --[ PREFIX-h2 ]
//!                         [ PREFIX-p3 ]-- veth --[ PREFIX-h3 ] ...
//! ```
//!
//! With several interfaces, each host has one in 10.78.0.0/24 as well, and so on: `PREFIX-h1_1` at the port `PREFIX-p1_1`.
//!
//! The kernel passes nothing on between the ports: a program that reads frames
//! from one and writes them to another, as [`Lab`](crate::lab::Lab) does, is the
//! network. Hosts know each other's hardware addresses from the start, so that
//! no address resolution is lost on a bad link.

use super::error::{Error, Result};
use super::name::Names;
use super::offload::{self, Offloads};
use super::{Guard, Host, IPV6_MIN_MTU_BYTES, IPV6_PREFIX_LEN, Interface, Namespace, PREFIX_LEN};
use std::net::IpAddr;

/// Most hosts of a star, and most interfaces of all its hosts: each costs a namespace, two devices and a socket, and
/// one thread serves them all.
pub const MAX_HOSTS: usize = 64;

/// Hosts hand over large sends, which the network cuts, and merge nothing themselves.
const WHOLE: Offloads = Offloads {
    tx: true,
    gro: false,
};

/// Hosts around a hub. Dropping it removes all namespaces, as with
/// [`Topology`](super::Topology).
#[derive(Debug)]
pub struct Star {
    hosts: Vec<Host>,
    hub: Namespace,
    _hub_guard: Guard,
}

impl Star {
    /// Makes `hosts` (2 to [`MAX_HOSTS`]) namespaces, and one for the hub,
    /// joined by veth of the given MTU (68 to 65535 bytes). The devices of the
    /// hosts leave the cutting to MTU and the checksums to the hub, where they can, as to a
    /// network card. `prefix` is as in [`Topology::pair`](super::Topology::pair).
    ///
    /// # Errors
    /// As [`Topology::pair`](super::Topology::pair), and
    /// [`Error::BadHostCount`]. Nothing is left behind.
    pub fn new(prefix: &str, hosts: usize, mtu: u32) -> Result<Self> {
        Self::with_interfaces(prefix, hosts, 1, mtu)
    }

    /// The same with so many interfaces of each host: 1 to [`MAX_INTERFACES`](super::MAX_INTERFACES), and [`MAX_HOSTS`] of
    /// all hosts together.
    ///
    /// # Errors
    /// As [`Star::new`], and [`Error::BadInterfaceCount`].
    pub fn with_interfaces(
        prefix: &str,
        hosts: usize,
        interfaces: usize,
        mtu: u32,
    ) -> Result<Self> {
        let count = match u8::try_from(hosts) {
            Ok(count) if (2..=MAX_HOSTS).contains(&hosts) => count,
            _ => return Err(Error::BadHostCount(hosts)),
        };
        if hosts.saturating_mul(interfaces) > MAX_HOSTS {
            return Err(Error::BadInterfaceCount(interfaces));
        }
        let names = Names::unique(prefix)?;
        let hub_guard = Guard::create(names.namespace("hub"))?;
        let hub = Namespace {
            name: names.namespace("hub"),
            interfaces: vec![Interface::loopback()],
        };
        silence(&hub)?;
        let hosts = (1..=count)
            .map(|number| Host::create(&names, &format!("h{number}"), number, interfaces))
            .collect::<Result<Vec<Host>>>()?;
        let star = Self {
            hosts,
            hub,
            _hub_guard: hub_guard,
        };
        for port in 0..star.ports() {
            star.attach(port, mtu)?;
        }
        Ok(star)
    }

    /// The hosts, in order of their addresses.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &Namespace> {
        self.hosts.iter().map(|host| &host.namespace)
    }

    /// The host of this index, from 0.
    ///
    /// # Panics
    /// If there are not that many.
    #[must_use]
    pub fn host(&self, index: usize) -> &Namespace {
        &self.hosts[index].namespace
    }

    /// The namespace of the hub's ports. It has no addresses.
    #[must_use]
    pub fn hub(&self) -> &Namespace {
        &self.hub
    }

    /// Ports of the hub: of the first interfaces of all hosts, then of the second ones, and so on.
    #[must_use]
    pub fn ports(&self) -> usize {
        self.hosts.len() * self.host(0).interfaces().len()
    }

    /// The host behind this port of the hub, and which of its interfaces.
    fn behind(&self, port: usize) -> (&Namespace, &Interface) {
        let host = self.host(port % self.hosts.len());
        (host, host.interface(port / self.hosts.len()))
    }

    /// Name of the hub's device at this port.
    ///
    /// # Panics
    /// If there are not that many.
    #[must_use]
    pub fn port(&self, port: usize) -> String {
        let device = self.behind(port).1.device();
        let (prefix, label) = device.rsplit_once('-').unwrap_or((device, ""));
        format!("{prefix}-p{}", label.trim_start_matches('h'))
    }

    fn attach(&self, port: usize, mtu: u32) -> Result<()> {
        let (host, own) = self.behind(port);
        let (device, name) = (own.device(), self.port(port));
        let [kernel, at_hub] = [host.rtnetlink()?, self.hub.rtnetlink()?];
        kernel.add_veth(device, mtu, (&self.hub, &name))?;
        kernel.set_hardware_address(device, hardware_address(number_of(port)))?;
        offload::set(host, device, WHOLE)?;
        at_hub.set_arp(&name, false)?;
        at_hub.set_up(&name, true)?;
        kernel.set_up("lo", true)?;
        kernel.assign_address(device, own.ipv4().into(), PREFIX_LEN)?;
        kernel.set_up(device, true)?;
        let ipv6 = |of: &Interface| of.ipv6().filter(|_| mtu >= IPV6_MIN_MTU_BYTES);
        if let Some(ipv6) = ipv6(own) {
            kernel.assign_address(device, ipv6.into(), IPV6_PREFIX_LEN)?;
        }
        let network = port - port % self.hosts.len();
        for other in (network..network + self.hosts.len()).filter(|&it| it != port) {
            let address = hardware_address(number_of(other));
            let (_, other) = self.behind(other);
            let ips = [
                Some(IpAddr::from(other.ipv4())),
                ipv6(other).map(IpAddr::from),
            ];
            for ip in ips.into_iter().flatten() {
                kernel.add_neighbour(device, ip, address)?;
            }
        }
        Ok(())
    }
}

impl Drop for Star {
    fn drop(&mut self) {
        // Cut the links now: see `Topology`. Fails for those never made.
        for (host, own) in (0..self.ports()).map(|port| self.behind(port)) {
            let _ = host.rtnetlink().and_then(|it| it.delete(own.device()));
        }
    }
}

/// The hardware address of the interface behind the port of this number, from 1. It is locally administered, and only
/// this network's.
pub(crate) const fn hardware_address(number: u8) -> [u8; 6] {
    [0x02, 0x00, 0x00, b'z', b'l', number]
}

/// The number of a port, from 1.
fn number_of(port: usize) -> u8 {
    // There are no more than MAX_HOSTS.
    u8::try_from(port + 1).unwrap_or(u8::MAX)
}

/// Keeps the hub's own IPv6 from speaking on the ports.
fn silence(hub: &Namespace) -> Result<()> {
    const SWITCH: &str = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
    if !super::kernel_has_ipv6() {
        return Ok(());
    }
    hub.enter_thread(|| std::fs::write(SWITCH, "1"))?
        .map_err(|error| Error::io(format!("write {SWITCH}"), error))
}
