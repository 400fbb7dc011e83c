//! Implements `zerolane disk attach --iscsi`: serves the disk to iSCSI initiators.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use indicatif::HumanBytes;
use zerolane_block::store::Store;
use zerolane_block::{Disk, Identity, Lun};
use zerolane_disk::remote::RemoteStore;
use zerolane_iscsi::portal::Portal;
use zerolane_iscsi::server::{Server, ServerEvent};

use super::remote::{Place, open};
use crate::console;
use crate::exit::Exit;
use crate::files::stop_on_signals;
use crate::security::ClientArgs;

/// The default address: loopback, at the port of iSCSI.
pub(super) const DEFAULT: &str = "127.0.0.1:3260";

/// The beginning of target names.
const PREFIX: &str = "iqn.2026-11.zerolane:";

/// Threads that wait for the remote disk; also the most commands in flight there.
const THREADS: usize = 16;

/// Serves the disk until Ctrl-C or SIGTERM.
pub(super) fn run(
    place: &Place,
    security: &ClientArgs,
    read_only: bool,
    address: SocketAddr,
) -> Result<()> {
    let queue = open(place, security, Default::default())?;
    let unit = queue.unit().clone();
    let stop = stop_on_signals()?;
    // Initiators know the disk by the same identity over NBD and iSCSI.
    let identity = Identity::of_serial(&unit.serial);
    let identity = identity.unwrap_or_else(|| Identity::named(&unit.serial));
    let store = Arc::new(RemoteStore::new(queue));
    let disk = Disk {
        read_only: read_only || unit.read_only,
        ..Disk::of(&*store, unit.block_bytes, identity)?
    };
    let mut portal = Portal::new(&format!("{PREFIX}{identity}"), read_only);
    let lun = Lun::new(0).context("LUN 0")?;
    portal.add_unit(lun, disk, Arc::clone(&store) as Arc<dyn Store>)?;
    let url = format!("{}/{lun}", portal.name());
    let server = Server::bind(address, portal, THREADS);
    let server = server.with_context(|| format!("cannot listen on {address}"))?;
    let address = server.address()?;
    console::note(format_args!(
        "{place}: {}, serial number {}",
        HumanBytes(unit.bytes()),
        unit.serial
    ));
    console::note("iSCSI is not encrypted, and no initiator is authenticated here.");
    if !address.ip().is_loopback() {
        console::note(format_args!(
            "Anyone who reaches {address} can read and write the disk."
        ));
    }
    console::say(format_args!("iscsi://{address}/{url}"))?;
    let failed = stop.clone();
    store.queue().when_failed(move || failed.request());
    server.serve(stop.descriptor()?, tell)?;
    match store.queue().failure() {
        Some(error) => Err(anyhow!(error)),
        None => Err(Exit::Interrupted.into()),
    }
}

fn tell(news: ServerEvent) {
    match news {
        ServerEvent::Connected(from) => console::note(format_args!("{from}: connected")),
        ServerEvent::Disconnected(from) => console::note(format_args!("{from}: gone")),
        ServerEvent::CutOff(from, offence) => {
            console::note(format_args!("{from}: cut off: {offence}"))
        }
        ServerEvent::Full(from) => {
            console::note(format_args!("{from}: closed, there are too many"))
        }
    }
}
