//! Makes two namespaces with a router between them.
//!
//! ```text
//!  namespace a              namespace r                 namespace b
//!  10.77.0.1/24             10.77.0.254/24              10.78.0.1/24
//!                           10.78.0.254/24
//!  [ PREFIX-a ]--- veth ---[ PREFIX-ra | PREFIX-rb ]--- veth ---[ PREFIX-b ]
//! ```

use super::error::{Error, Result};
use super::name::Names;
use super::{Guard, Host, Interface, Namespace, PREFIX_LEN};
use netsim::Side;
use std::net::Ipv4Addr;

/// What the router has as the last byte of its addresses.
const ROUTER: u8 = 254;

/// Two hosts on networks of their own, and a router that forwards IPv4 between them: what crosses it is IP, and nothing
/// else. Dropping it removes all namespaces, as with [`Topology`](super::Topology).
#[derive(Debug)]
pub struct Routed {
    /// Indexed by side.
    ends: [Host; 2],
    router: Namespace,
    _router_guard: Guard,
}

impl Routed {
    /// Makes the namespaces. The links towards a and b have these MTUs, in bytes (68 to 65535): where the second is
    /// smaller, the router tells of packets that do not fit. `prefix` is as in
    /// [`Topology::pair`](super::Topology::pair).
    ///
    /// # Errors
    /// As [`Topology::pair`](super::Topology::pair), and [`Error::Io`] if the router may not forward. Nothing is left
    /// behind.
    pub fn pair(prefix: &str, mtus: [u32; 2]) -> Result<Self> {
        let names = Names::unique(prefix)?;
        let router = Namespace {
            name: names.namespace("r"),
            interfaces: vec![Interface::loopback()],
        };
        let router_guard = Guard::create(router.name.clone())?;
        let ends = [
            Host::at(&names, "a", Ipv4Addr::new(10, 77, 0, 1))?,
            Host::at(&names, "b", Ipv4Addr::new(10, 78, 0, 1))?,
        ];
        let routed = Self {
            ends,
            router,
            _router_guard: router_guard,
        };
        routed.forward()?;
        for (side, mtu) in Side::BOTH.into_iter().zip(mtus) {
            routed.attach(&names, side, mtu)?;
        }
        Ok(routed)
    }

    /// The host at this side.
    #[must_use]
    pub fn side(&self, side: Side) -> &Namespace {
        &self.ends[side.index()].namespace
    }

    /// The router's namespace.
    #[must_use]
    pub fn router(&self) -> &Namespace {
        &self.router
    }

    fn forward(&self) -> Result<()> {
        const SWITCH: &str = "/proc/sys/net/ipv4/ip_forward";
        self.router
            .enter_thread(|| std::fs::write(SWITCH, "1"))?
            .map_err(|error| Error::io(format!("write {SWITCH}"), error))
    }

    fn attach(&self, names: &Names, side: Side, mtu: u32) -> Result<()> {
        let host = self.side(side);
        let (device, ipv4) = (host.device(), host.ipv4());
        let port = names.device(&format!("r{}", device.chars().next_back().unwrap_or('x')));
        let [kernel, at_router] = [host.rtnetlink()?, self.router.rtnetlink()?];
        kernel.add_veth(device, mtu, (&self.router, &port))?;
        let [a, b, c, _] = ipv4.octets();
        let gateway = Ipv4Addr::new(a, b, c, ROUTER);
        at_router.assign_address(&port, gateway.into(), PREFIX_LEN)?;
        at_router.set_up(&port, true)?;
        kernel.set_up("lo", true)?;
        kernel.assign_address(device, ipv4.into(), PREFIX_LEN)?;
        kernel.set_up(device, true)?;
        kernel.add_route(Ipv4Addr::UNSPECIFIED, 0, gateway)
    }
}

impl Drop for Routed {
    fn drop(&mut self) {
        // Cut the links now: see `Topology`. Fails for those never made.
        for side in Side::BOTH {
            let host = self.side(side);
            let _ = host.delete(0);
        }
    }
}
