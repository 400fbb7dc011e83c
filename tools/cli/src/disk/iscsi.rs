//! The iSCSI door of `zerolane disk attach`.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use indicatif::HumanBytes;
use zerolane_block::store::Store;
use zerolane_block::{Disk, Identity, Lun};
use zerolane_disk::remote::RemoteStore;
use zerolane_iscsi::portal::Portal;
use zerolane_iscsi::server::{News, Server};

use super::remote::{Place, open};
use crate::console;
use crate::exit::Exit;
use crate::files::stop_on_signals;
use crate::security::ClientArgs;

/// Where it listens if no address is given: this machine alone, at the port of iSCSI.
pub(super) const DEFAULT: &str = "127.0.0.1:3260";

/// What names of its targets begin with.
const PREFIX: &str = "iqn.2026-11.zerolane:";

/// Threads that wait for the disk of the other host: as many commands are under way there.
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
    // What an initiator knows the disk by is the same at all doors.
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
            "Whoever reaches {address} reads and writes the disk."
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

fn tell(news: News) {
    match news {
        News::Came(from) => console::note(format_args!("{from}: connected")),
        News::Left(from) => console::note(format_args!("{from}: gone")),
        News::CutOff(from, offence) => console::note(format_args!("{from}: cut off: {offence}")),
        News::Full(from) => console::note(format_args!("{from}: closed, there are too many")),
    }
}
