//! A portal in memory, an initiator without sockets, and a door with them.

#![allow(dead_code, unreachable_pub)] // Each test program uses a part.

pub mod initiator;
pub mod suite;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    pub fn new(portal: Portal) -> Door {
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), portal, 2).unwrap();
        let address = server.address().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let stop = || stopping.load(Ordering::Relaxed);
            server.serve(stop, |_| {}).unwrap();
        });
        Door {
            address,
            stop,
            thread: Some(thread),
        }
    }

    pub fn url(&self) -> String {
        format!("iscsi://{}/{NAME}/0", self.address)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
