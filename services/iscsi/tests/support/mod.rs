//! Sets up a portal in memory, an initiator without sockets, and a door.

#![allow(dead_code, unreachable_pub)] // Each test program uses a part.

pub mod initiator;
pub mod suite;

use std::io::{PipeWriter, pipe};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use zerolane_block::store::{MemoryStore, Store};
use zerolane_block::{Disk, Identity, Lun};
use zerolane_iscsi::portal::Portal;
use zerolane_iscsi::server::Server;

pub const NAME: &str = "iqn.2026-11.zerolane:test";
pub const BLOCK: usize = 512;

/// A portal whose LUN 0 is so many bytes of memory.
pub fn portal(bytes: u64) -> Portal {
    of(Arc::new(MemoryStore::new(bytes)), false)
}

pub fn of(store: Arc<dyn Store>, read_only: bool) -> Portal {
    let disk = Disk::of(&*store, BLOCK as u32, Identity::named("test")).unwrap();
    let mut portal = Portal::new(NAME, read_only);
    portal.add_unit(Lun::new(0).unwrap(), disk, store).unwrap();
    portal
}

/// A portal that serves until it is dropped.
pub struct Door {
    pub address: SocketAddr,
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    pub fn new(portal: Portal) -> Door {
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), portal, 2).unwrap();
        let address = server.address().unwrap();
        let (stopped, stop) = pipe().unwrap();
        let thread = std::thread::spawn(move || server.serve(stopped, |_| {}).unwrap());
        Door {
            address,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub fn url(&self) -> String {
        format!("iscsi://{}/{NAME}/0", self.address)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Its end is readable.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
