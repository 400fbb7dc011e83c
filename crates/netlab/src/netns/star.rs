//! Several namespaces around a hub.
//!
//! ```text
//!  namespace h1            namespace hub             namespace h2
//!  10.77.0.1/24            (no addresses)            10.77.0.2/24
//!  [ PREFIX-h1 ]-- veth --[ PREFIX-p1 | PREFIX-p2 ]-- veth --[ PREFIX-h2 ]
//!                         [ PREFIX-p3 ]-- veth --[ PREFIX-h3 ] ...
//! ```
//!
//! The kernel passes nothing on between the ports: a program that reads frames
//! from one and writes them to another, as [`Lab`](crate::lab::Lab) does, is the
//! network. Hosts know each other's hardware addresses from the start, so that
//! no address resolution is lost on a bad link.

use super::error::{Error, Result};
use super::name::Names;
use super::offload::{self, Offloads};
use super::{Guard, Host, IPV6_MIN_MTU_BYTES, Namespace};
use crate::netns::tool::IP;
use std::fmt::Write;

/// Most hosts of a star: each costs a namespace, two devices and a socket, and
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
        let count = match u8::try_from(hosts) {
            Ok(count) if (2..=MAX_HOSTS).contains(&hosts) => count,
            _ => return Err(Error::BadHostCount(hosts)),
        };
        let names = Names::unique(prefix)?;
        let hub_guard = Guard::create(names.namespace("hub"))?;
        let hub = Namespace {
            name: names.namespace("hub"),
            device: "lo".to_owned(),
            ipv4: std::net::Ipv4Addr::LOCALHOST,
            ipv6: None,
        };
        silence(&hub)?;
        let hosts = (1..=count)
            .map(|number| Host::create(&names, &format!("h{number}"), number))
            .collect::<Result<Vec<Host>>>()?;
        let star = Self {
            hosts,
            hub,
            _hub_guard: hub_guard,
        };
        for number in 1..=count {
            star.attach(&names, number, mtu)?;
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

    /// Name of the hub's device towards the host of this index.
    #[must_use]
    pub fn port(&self, index: usize) -> String {
        let device = self.host(index).device();
        let (prefix, label) = device.rsplit_once('-').unwrap_or((device, ""));
        format!("{prefix}-p{}", label.trim_start_matches('h'))
    }

    fn attach(&self, names: &Names, number: u8, mtu: u32) -> Result<()> {
        let host = self.host(usize::from(number) - 1);
        let port = names.device(&format!("p{number}"));
        let (mtu_text, address) = (mtu.to_string(), hardware_address(number));
        #[rustfmt::skip]
        host.ip(&[
            "link", "add", host.device(), "mtu", &mtu_text, "address", &address, "type", "veth",
            "peer", "name", &port, "mtu", &mtu_text, "netns", self.hub.name(),
        ])?;
        offload::set(host, WHOLE)?;
        self.hub
            .ip(&["link", "set", "dev", &port, "arp", "off", "up"])?;
        host.ip_batch(&self.host_commands(host, mtu)?)
    }

    /// What brings a host up and tells it of its neighbours.
    fn host_commands(&self, host: &Namespace, mtu: u32) -> Result<String> {
        let device = host.device();
        let mut commands = format!(
            "link set dev lo up\n\
             addr add {}/24 dev {device}\n\
             link set dev {device} up\n",
            host.ipv4()
        );
        let with_ipv6 = mtu >= IPV6_MIN_MTU_BYTES;
        if let Some(ipv6) = host.ipv6().filter(|_| with_ipv6) {
            line(
                &mut commands,
                format_args!("addr add {ipv6}/64 dev {device} nodad"),
            );
        }
        for (other, number) in self.hosts().zip(1u8..) {
            if other.name() == host.name() {
                continue;
            }
            let address = hardware_address(number);
            let ipv6 = other.ipv6().filter(|_| with_ipv6).map(|ip| ip.to_string());
            for ip in [Some(other.ipv4().to_string()), ipv6].into_iter().flatten() {
                line(
                    &mut commands,
                    format_args!("neigh add {ip} lladdr {address} dev {device} nud permanent"),
                );
            }
        }
        Ok(commands)
    }
}

impl Drop for Star {
    fn drop(&mut self) {
        // Cut the links now: see `Topology`. Fails for those never made.
        for host in self.hosts() {
            let _ = IP.run(&["-n", host.name(), "link", "del", "dev", host.device()]);
        }
    }
}

/// The hardware address of a host: locally administered, and it tells the
/// number, from 1.
fn hardware_address(number: u8) -> String {
    let [a, b, c, d, e, f] = crate::lab::hardware_address(number);
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
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

fn line(commands: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(commands, "{line}");
}
