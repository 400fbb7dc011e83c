//! Sets up Zerolane connections for a job.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::ifaddrs::getifaddrs;
use zerolane::counters::PathLife;
use zerolane::options::{EthernetAddress, LaneChoice};
use zerolane::{Connection, Options};

use super::super::contract::expect_word;
use crate::job::Job;
use crate::job::settings::Protection;
use crate::limits::{CONNECT, STALL};

/// A connection that gives up on a peer as soon as the rest of the benchmark does.
pub(crate) fn options(protection: Protection) -> Options {
    Options::default().with(|it| {
        it.security = protection.security();
        it.times.idle = STALL;
        it.times.connect = CONNECT;
        // What is measured is a network, also where loopback stands for one.
        it.lane.choice = LaneChoice::Udp;
    })
}

/// Connects to the responder and shows it the token.
pub(super) fn connect(to: SocketAddr, token: u64, options: &Options) -> Result<Connection> {
    let mut connection = Connection::connect(to, options)
        .with_context(|| format!("cannot connect to the receiver at {to}"))?;
    connection.send(&token.to_le_bytes())?;
    await_paths(&mut connection, options.paths.links.len() + 1)?;
    Ok(connection)
}

/// Waits until `paths` paths carry data, so that the measurement uses all of them.
fn await_paths(connection: &mut Connection, wanted: usize) -> Result<()> {
    const LOOK: Duration = Duration::from_millis(1);
    let usable = |connection: &Connection| {
        let paths = connection.paths();
        let usable = paths.iter().filter(|it| it.1.life == PathLife::Usable);
        usable.count()
    };
    let deadline = Instant::now() + CONNECT;
    while usable(connection) < wanted {
        ensure!(
            Instant::now() < deadline,
            "only {} of {wanted} paths work: can each --path's address reach its peer's?",
            usable(connection)
        );
        connection.wait(Some(LOOK))?;
    }
    Ok(())
}

/// Where to listen over raw Ethernet: at any port of the interface that has the address `own`.
pub(super) fn ethernet_of(own: IpAddr) -> Result<SocketAddr> {
    ethernet(own, None, 0)
}

/// The responder at `to` over raw Ethernet, which has this hardware address behind the interface that leads to `to`.
pub(super) fn ethernet_to(to: SocketAddr, hardware: [u8; 6]) -> Result<SocketAddr> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket
        .connect(to)
        .with_context(|| format!("no route to {to}"))?;
    ethernet(socket.local_addr()?.ip(), Some(hardware), to.port())
}

/// `options` with the device of the interface of `address`, if the job uses one.
pub(super) fn with_device(options: Options, address: SocketAddr, job: &Job) -> Result<Options> {
    let interface = || Ok(EthernetAddress::of(address)?.interface().to_owned());
    let bypass = job.bypass.beside(!job.links.is_empty())?;
    let device = bypass.device(job.lane, interface)?;
    Ok(options.with(|it| it.lane.device = device))
}

fn ethernet(own: IpAddr, hardware: Option<[u8; 6]>, port: u16) -> Result<SocketAddr> {
    let its = |it: &nix::ifaddrs::InterfaceAddress| {
        let address = it.address.as_ref()?;
        let v4 = address.as_sockaddr_in().map(|it| IpAddr::from(it.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|it| it.ip().into()))
    };
    let interface = getifaddrs()?.find(|it| its(it) == Some(own));
    let interface = interface.with_context(|| format!("no interface has the address {own}"))?;
    let address = EthernetAddress::new(interface.interface_name, hardware, port);
    let mut found = address.to_socket_addrs()?;
    found.next().context("not a raw Ethernet address")
}

/// Receives the one-byte message `word`.
pub(crate) fn await_word(connection: &mut Connection, word: u8) -> Result<()> {
    let mut heard = [0];
    connection.recv_into(&mut heard)?;
    expect_word(heard[0], word)
}
