//! Starts two ends on this machine, with the link between them.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::end;
use super::link::{Host, Link, Offloads};
use super::peer::Peer;
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

/// MTU of the veth where the command line names none, bytes.
pub(crate) const MTU: u32 = 1500;

/// Two namespaces, or loopback where those are not allowed and nothing was asked for that loopback
/// cannot give.
pub(crate) fn link(mtu: Option<u32>, offloads: Option<Offloads>) -> Result<Link> {
    pairs(mtu, offloads, 1)
}

/// The same, joined by so many veth pairs.
pub(crate) fn pairs(mtu: Option<u32>, offloads: Option<Offloads>, pairs: usize) -> Result<Link> {
    match Link::namespaces(mtu.unwrap_or(MTU), offloads.unwrap_or_default(), pairs) {
        Ok(link) => Ok(link),
        Err(error) if mtu.is_some() || offloads.is_some() => {
            Err(error.context("--mtu and --offloads need two network namespaces"))
        }
        Err(error) => {
            console::note(format_args!(
                "no network namespaces here ({error:#}): measuring over loopback"
            ));
            Ok(Link::loopback())
        }
    }
}

/// Starts an end on a host, pinned to a core; `files` is the directory whose files it may send and write.
pub(super) fn end(
    link: &Link,
    host: Host,
    core: usize,
    files: Option<&Path>,
    interrupt: &Interrupt,
) -> Result<Peer> {
    let mut command = link.this_program(host)?;
    end::arguments(&mut command, link.address(host), core, files);
    Peer::spawn(host.name(), command, interrupt)
}

/// The first address of HOST:PORT.
pub(super) fn resolve(to: &str) -> Result<SocketAddr> {
    let mut addresses = to
        .to_socket_addrs()
        .with_context(|| format!("cannot resolve {to:?} as HOST:PORT"))
        .context(Exit::Unreachable)?;
    let first = addresses.next();
    ensure!(first.is_some(), "{to:?} has no address");
    first.context("no address")
}
