//! Changes links, addresses, routes and neighbours of a namespace, as `ip` does.

use super::Namespace;
use super::error::{Error, Result};
use super::netlink::Netlink;
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoMacVlan, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
    LinkXdp, MacVlanMode,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;

/// An Ethernet address.
type Hardware = [u8; 6];

/// What `IFLA_XDP_FD` says for "no program".
const NO_PROGRAM: i32 = -1;

/// The links, addresses, routes and neighbours of a namespace, by messages to its kernel. Devices go by their names.
///
/// Every method fails with [`Error::NotPermitted`] without the rights, and with [`Error::Io`] and the kernel's words if it
/// refuses.
///
/// ```
/// use netlab::netns::{self, Topology};
///
/// # if !netns::is_permitted() { return Ok(()); }
/// let hosts = Topology::pair("doc", 1500)?;
/// let b = hosts.b().rtnetlink()?;
/// b.assign_address(hosts.b().device(), [10, 77, 0, 9].into(), 24)?;
/// b.set_mtu(hosts.b().device(), 9000)?;
/// assert_eq!(hosts.b().mtu()?, 9000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Rtnetlink(Netlink);

impl Namespace {
    /// A connection to the kernel of this namespace.
    ///
    /// # Errors
    /// As [`enter_thread`](Self::enter_thread).
    pub fn rtnetlink(&self) -> Result<Rtnetlink> {
        Netlink::open(self, NETLINK_ROUTE).map(Rtnetlink)
    }
}

#[expect(clippy::missing_errors_doc, reason = "the error type documents them")]
impl Rtnetlink {
    /// Takes a device up or down.
    pub fn set_up(&self, device: &str, up: bool) -> Result<()> {
        let state = if up { "up" } else { "down" };
        self.set_flag(&format!("set {device} {state}"), device, LinkFlags::Up, up)
    }

    /// Gives a device another hardware address.
    pub fn set_hardware_address(&self, device: &str, address: Hardware) -> Result<()> {
        let asked = format!("set the hardware address of {device}");
        let address = LinkAttribute::Address(address.to_vec());
        self.set(&asked, device, vec![address])
    }

    /// Has a device resolve addresses, or not.
    pub fn set_arp(&self, device: &str, on: bool) -> Result<()> {
        let asked = format!("switch address resolution of {device}");
        self.set_flag(&asked, device, LinkFlags::Noarp, !on)
    }

    /// Sets the MTU of a device, in bytes.
    pub fn set_mtu(&self, device: &str, mtu: u32) -> Result<()> {
        let asked = format!("set the MTU of {device} to {mtu}");
        self.set(&asked, device, vec![LinkAttribute::Mtu(mtu)])
    }

    /// Sets how much a device merges of IPv6 into one packet at most, and of IPv4 if that is not more than 64 KiB, in bytes.
    pub fn set_gro_max_size(&self, device: &str, bytes: u32) -> Result<()> {
        let asked = format!("limit merged packets of {device} to {bytes} bytes");
        self.set(&asked, device, vec![LinkAttribute::GroMaxSize(bytes)])
    }

    /// Gives a device that is down another name.
    pub fn rename(&self, device: &str, name: &str) -> Result<()> {
        let asked = format!("rename {device} to {name}");
        self.set(&asked, device, vec![LinkAttribute::IfName(name.to_owned())])
    }

    /// Makes a device a port of a bridge.
    pub fn set_bridge(&self, device: &str, bridge: &str) -> Result<()> {
        let index = self.index(bridge)?;
        let asked = format!("make {device} a port of {bridge}");
        self.set(&asked, device, vec![LinkAttribute::Controller(index)])
    }

    /// Detaches the XDP program of a device, unless a link has attached it: then the kernel refuses.
    pub fn detach_xdp(&self, device: &str) -> Result<()> {
        let asked = format!("detach the XDP program of {device}");
        let none = LinkAttribute::Xdp(vec![LinkXdp::Fd(NO_PROGRAM)]);
        self.set(&asked, device, vec![none])
    }

    /// Removes a device, and the other end of a veth.
    pub fn delete(&self, device: &str) -> Result<()> {
        let link = link_of(self.index(device)?, Vec::new());
        let asked = format!("remove {device}");
        self.ask(&asked, RouteNetlinkMessage::DelLink(link), 0)
    }

    /// Makes a bridge, which is down.
    pub fn add_bridge(&self, name: &str) -> Result<()> {
        let kind = vec![LinkInfo::Kind(InfoKind::Bridge)];
        let asked = format!("make the bridge {name}");
        self.add(&asked, name, vec![LinkAttribute::LinkInfo(kind)])
    }

    /// Makes a device with a hardware address of its own on the segment of `device`, which is down (macvlan in bridge mode).
    pub fn add_macvlan(&self, device: &str, name: &str, address: Hardware) -> Result<()> {
        let below = self.index(device)?;
        let mode = vec![InfoMacVlan::Mode(MacVlanMode::Bridge)];
        let attributes = vec![
            LinkAttribute::Link(below),
            LinkAttribute::Address(address.to_vec()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::MacVlan),
                LinkInfo::Data(InfoData::MacVlan(mode)),
            ]),
        ];
        let asked = format!("make {name} on {device}");
        self.add(&asked, name, attributes)
    }

    /// Makes a veth of this MTU, one end here and the other in `there`, both down. The kernel makes up their hardware
    /// addresses.
    pub fn add_veth(&self, name: &str, mtu: u32, (there, peer): (&Namespace, &str)) -> Result<()> {
        let there = there.open()?;
        let mut end = LinkMessage::default();
        end.attributes = vec![
            LinkAttribute::IfName(peer.to_owned()),
            LinkAttribute::Mtu(mtu),
            LinkAttribute::NetNsFd(there.as_raw_fd()),
        ];
        let attributes = vec![
            LinkAttribute::Mtu(mtu),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(end))),
            ]),
        ];
        let asked = format!("make the veth {name} with an MTU of {mtu}");
        self.add(&asked, name, attributes)
    }

    /// Gives a device an address, unless it has it. It is usable at once: no duplicate is looked for.
    pub fn assign_address(&self, device: &str, ip: IpAddr, prefix_len: u8) -> Result<()> {
        let asked = format!("give {device} the address {ip}/{prefix_len}");
        let message = RouteNetlinkMessage::NewAddress(self.address(device, ip, prefix_len)?);
        self.ask(&asked, message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Takes an address away from a device.
    pub fn remove_address(&self, device: &str, ip: IpAddr, prefix_len: u8) -> Result<()> {
        let asked = format!("remove the address {ip}/{prefix_len} of {device}");
        let message = RouteNetlinkMessage::DelAddress(self.address(device, ip, prefix_len)?);
        self.ask(&asked, message, 0)
    }

    /// Adds a route to a network, all of IPv4 if the prefix is of no length.
    pub fn add_route(&self, network: Ipv4Addr, prefix_len: u8, via: Ipv4Addr) -> Result<()> {
        let mut route = RouteMessage::default();
        route.header.address_family = AddressFamily::Inet;
        route.header.destination_prefix_length = prefix_len;
        route.header.table = RouteHeader::RT_TABLE_MAIN;
        route.header.protocol = RouteProtocol::Boot;
        route.header.kind = RouteType::Unicast;
        route.attributes = vec![
            RouteAttribute::Destination(network.into()),
            RouteAttribute::Gateway(via.into()),
        ];
        let asked = format!("add a route to {network}/{prefix_len} by {via}");
        let message = RouteNetlinkMessage::NewRoute(route);
        self.ask(&asked, message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Tells a device for good which hardware address an address has.
    pub fn add_neighbour(&self, device: &str, ip: IpAddr, address: Hardware) -> Result<()> {
        let mut neighbour = NeighbourMessage::default();
        neighbour.header.family = ip.into();
        neighbour.header.ifindex = self.index(device)?;
        neighbour.header.state = NeighbourState::Permanent;
        neighbour.header.kind = RouteType::Unicast;
        neighbour.attributes = vec![
            NeighbourAttribute::Destination(ip.into()),
            NeighbourAttribute::LinkLayerAddress(address.to_vec()),
        ];
        let asked = format!("add the neighbour {ip} of {device}");
        let message = RouteNetlinkMessage::NewNeighbour(neighbour);
        self.ask(&asked, message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Has a device send no faster than by a token bucket, anew or for what waits already. A kernel without `tbf` refuses.
    pub fn set_token_bucket(&self, device: &str, bucket: TokenBucket) -> Result<()> {
        let mut queue = TcMessage::with_index(self.index(device)?.cast_signed());
        queue.header.parent = TcHandle::ROOT;
        queue.attributes = vec![
            TcAttribute::Kind("tbf".to_owned()),
            TcAttribute::Options(bucket.options()),
        ];
        let asked = format!("limit the rate of {device}");
        let message = RouteNetlinkMessage::NewQueueDiscipline(queue);
        self.ask(&asked, message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// MTU of a device, in bytes.
    pub fn mtu(&self, device: &str) -> Result<u32> {
        self.attribute(device, "MTU", |it| match it {
            LinkAttribute::Mtu(mtu) => Some(mtu),
            _ => None,
        })
    }

    /// Hardware address of a device.
    pub fn hardware_address(&self, device: &str) -> Result<[u8; 6]> {
        self.attribute(device, "hardware address", |it| match it {
            LinkAttribute::Address(bytes) => bytes.try_into().ok(),
            _ => None,
        })
    }

    /// Number of the XDP program that the driver of a device runs, if there is one.
    pub fn xdp_program(&self, device: &str) -> Result<Option<u32>> {
        let attributes = self.link(device)?.attributes.into_iter();
        let mut programs = attributes.filter_map(|it| match it {
            LinkAttribute::Xdp(xdp) => xdp.into_iter().find_map(|it| match it {
                LinkXdp::DrvProgId(number) => Some(number),
                _ => None,
            }),
            _ => None,
        });
        Ok(programs.next())
    }

    /// How many rules of routing, for IPv4 and IPv6, programs made that go by this number (`rtm_protocol`).
    pub fn rules_of(&self, protocol: u8) -> Result<usize> {
        let maker = RuleAttribute::Protocol(RouteProtocol::from(protocol));
        let mut count = 0;
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut all = RuleMessage::default();
            all.header.family = family;
            let message = RouteNetlinkMessage::GetRule(all);
            let found = self.0.ask("list the rules", message, NLM_F_DUMP)?;
            let is_theirs = |it: &&RouteNetlinkMessage| match it {
                RouteNetlinkMessage::NewRule(rule) => rule.attributes.contains(&maker),
                _ => false,
            };
            count += found.iter().filter(is_theirs).count();
        }
        Ok(count)
    }

    fn ask(&self, asked: &str, message: RouteNetlinkMessage, flags: u16) -> Result<()> {
        self.0.ask(asked, message, flags).map(drop)
    }

    fn add(&self, asked: &str, name: &str, mut attributes: Vec<LinkAttribute>) -> Result<()> {
        attributes.push(LinkAttribute::IfName(name.to_owned()));
        let message = RouteNetlinkMessage::NewLink(link_of(0, attributes));
        self.ask(asked, message, NLM_F_CREATE | NLM_F_EXCL)
    }

    fn set(&self, asked: &str, device: &str, attributes: Vec<LinkAttribute>) -> Result<()> {
        let link = link_of(self.index(device)?, attributes);
        self.ask(asked, RouteNetlinkMessage::SetLink(link), 0)
    }

    fn set_flag(&self, asked: &str, device: &str, flag: LinkFlags, on: bool) -> Result<()> {
        let mut link = link_of(self.index(device)?, Vec::new());
        link.header.flags.set(flag, on);
        link.header.change_mask = flag;
        self.ask(asked, RouteNetlinkMessage::SetLink(link), 0)
    }

    fn index(&self, device: &str) -> Result<u32> {
        self.link(device).map(|it| it.header.index)
    }

    fn link(&self, device: &str) -> Result<LinkMessage> {
        let named = link_of(0, vec![LinkAttribute::IfName(device.to_owned())]);
        let asked = format!("find {device}");
        let message = RouteNetlinkMessage::GetLink(named);
        let answers = self.0.ask(&asked, message, 0)?;
        let mut links = answers.into_iter().filter_map(|it| match it {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        links
            .next()
            .ok_or_else(|| Error::io(asked, io::ErrorKind::NotFound.into()))
    }

    fn attribute<T>(
        &self,
        device: &str,
        what: &str,
        of: impl FnMut(LinkAttribute) -> Option<T>,
    ) -> Result<T> {
        let attributes = self.link(device)?.attributes.into_iter();
        attributes.filter_map(of).next().ok_or_else(|| {
            let none = io::Error::from(io::ErrorKind::NotFound);
            Error::io(format!("read the {what} of {device}"), none)
        })
    }

    fn address(&self, device: &str, ip: IpAddr, prefix_len: u8) -> Result<AddressMessage> {
        let mut address = AddressMessage::default();
        address.header.family = ip.into();
        address.header.prefix_len = prefix_len;
        address.header.flags = AddressHeaderFlags::Nodad;
        address.header.index = self.index(device)?;
        address.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
        Ok(address)
    }
}

fn link_of(index: u32, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes = attributes;
    link
}

/// How fast a device sends, and what waits there meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Bytes a second.
    pub rate_bytes_per_s: u32,
    /// Bytes that leave at once after a pause.
    pub burst_bytes: u32,
    /// Bytes that wait; more are dropped.
    pub limit_bytes: u32,
}

impl TokenBucket {
    fn options(self) -> Vec<TcOption> {
        /// `TCA_TBF_PARMS` and `TCA_TBF_BURST` of linux/pkt_sched.h.
        const PARAMETERS: u16 = 1;
        const BURST: u16 = 6;
        /// `struct tc_tbf_qopt`: two `tc_ratespec` of 12 bytes, limit, buffer and MTU.
        const PARAMETERS_LEN: usize = 36;
        const LINK_LAYER: usize = 1;
        const RATE: std::ops::Range<usize> = 8..12;
        const LIMIT: std::ops::Range<usize> = 24..28;
        /// Frames take what they are long: the kernel needs no table of their times.
        const ETHERNET: u8 = 1;
        let mut parameters = vec![0; PARAMETERS_LEN];
        parameters[LINK_LAYER] = ETHERNET;
        parameters[RATE].copy_from_slice(&self.rate_bytes_per_s.to_ne_bytes());
        parameters[LIMIT].copy_from_slice(&self.limit_bytes.to_ne_bytes());
        let burst = self.burst_bytes.to_ne_bytes().to_vec();
        [(PARAMETERS, parameters), (BURST, burst)]
            .map(|(kind, value)| TcOption::Other(DefaultNla::new(kind, value)))
            .to_vec()
    }
}
