//! Probes loopback and the way to a host with real connections.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use zerolane::counters::Account;
use zerolane::options::LaneChoice;
use zerolane::{Connection, Endpoint, Options, PathId};

use super::findings::{self, Finding, Probed};

/// How long to wait for a host's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Poll interval for the result of the path MTU probes.
const LOOK: Duration = Duration::from_millis(10);

/// UDP even for this host, because the checks concern the network.
fn over_udp() -> Options {
    Options::default().with(|it| {
        it.times.connect = PATIENCE;
        it.lane.choice = LaneChoice::Udp;
    })
}

/// Connects this process to itself, and returns the counters.
pub(super) fn loopback() -> Result<Account, zerolane::Error> {
    let options = over_udp();
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone())?;
    let address = endpoint.local_addr();
    let connecting = std::thread::spawn(move || Connection::connect(address, &options));
    let accepted = endpoint.accept(Some(PATIENCE))?;
    let connected = connecting
        .join()
        .map_err(|_| zerolane::Error::TimedOut(PATIENCE))??;
    drop(accepted);
    Ok(connected.account())
}

/// Checks the path MTU to a host, and whether it answers.
pub(super) fn way_to(name: &str, port: u16) -> Vec<Finding> {
    let addresses = match (name, port).to_socket_addrs() {
        Ok(addresses) => addresses.collect::<Vec<_>>(),
        Err(error) => return vec![findings::no_address(name, &error)],
    };
    let options = over_udp();
    let look = |address: SocketAddr| {
        // A fresh key, so that the host does not learn this user's key.
        let tried = Connection::connect(address, &options).map(carried);
        let found = tried.as_ref().ok().copied().flatten();
        let mtu = mtu(address).map(|it| findings::mtu(address.ip(), it, found));
        mtu.ok()
            .into_iter()
            .chain([findings::answer(
                &address.to_string(),
                tried.as_ref().map(|_| ()),
            )])
            .collect::<Vec<_>>()
    };
    addresses.into_iter().flat_map(look).collect()
}

/// The path MTU that the connection's probes find; `None` if they do not finish.
fn carried(mut connection: Connection) -> Option<Probed> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let (_, path) = connection
            .paths()
            .into_iter()
            .find(|it| it.0 == PathId::FIRST)?;
        if path.mtu_probed {
            return match path.too_narrow {
                true => Some(Probed::TooNarrow),
                false => path.mtu.map(Probed::Passes),
            };
        }
        connection
            .wait(Some(LOOK))
            .map(zerolane::Waited::got)
            .ok()?;
    }
    None
}

/// The kernel's path MTU to an address: that of the interface, unless the kernel has learned of a smaller one.
fn mtu(to: SocketAddr) -> io::Result<u32> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    Ok(match to {
        SocketAddr::V4(_) => sockopt::ip_mtu(&socket)?,
        SocketAddr::V6(_) => sockopt::ipv6_mtu(&socket)?,
    })
}
