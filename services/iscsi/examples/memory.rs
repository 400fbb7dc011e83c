//! Serves a disk in memory over iSCSI, to try other initiators with: `memory [ADDRESS:PORT [MIB]]`.

use std::error::Error;
use std::io::pipe;
use std::sync::Arc;

use zerolane_block::store::MemoryStore;
use zerolane_block::{Disk, Identity, Lun};
use zerolane_iscsi::portal::Portal;
use zerolane_iscsi::server::Server;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:3260".to_owned());
    let mib: u64 = arguments.next().map_or(Ok(256), |it| it.parse())?;
    let store = MemoryStore::new(mib << 20);
    let disk = Disk::of(&store, 512, Identity::named("memory"))?;
    let mut portal = Portal::new("iqn.2026-11.zerolane:memory", false);
    let lun = Lun::new(0).ok_or("no LUN 0")?;
    portal.add_unit(lun, disk, Arc::new(store))?;
    let name = portal.name().to_owned();
    let server = Server::bind(address.parse()?, portal, 4)?;
    println!("iscsi://{}/{name}/{lun}", server.address()?);
    // It is stopped by a signal.
    let (never, _open) = pipe()?;
    server.serve(never, |news| eprintln!("{news:?}"))?;
    Ok(())
}
