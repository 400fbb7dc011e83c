//! Tests that a client that cannot be accepted for lack of descriptors does not keep the server awake.
#![allow(non_snake_case)]

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use zerolane::{Connection, Options};
use zerolane_block::store::MemoryStore;
use zerolane_block::{Disk, Identity, Lun};
use zerolane_disk::target::{Server as Target, Settings};

use super::*;

const DISK: u64 = 1 << 20;

/// Calls `act` with what serves a disk in memory of a target in another thread, at a socket that a client waits at.
fn with_a_waiting_client(act: impl FnOnce(&mut Serving<'_, fn(ServerEvent)>)) {
    let mut target = Target::new(Settings::default()).unwrap();
    let store = Arc::new(MemoryStore::new(DISK));
    let disk = Disk::of(&*store, 512, Identity::named("test")).unwrap();
    let lun = Lun::new(0).unwrap();
    target.add_unit(lun, "disk0", disk, store).unwrap();
    let loopback = "127.0.0.1:0".parse().unwrap();
    let endpoint = target.listen(loopback, Options::default()).unwrap();
    let (address, _) = target.endpoint(endpoint).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    let served = thread::spawn(move || target.serve(|| stopping.load(Ordering::Relaxed), drop));
    let dial = Box::new(move || Connection::connect(address, &Options::default()));
    let queue = Queue::open(dial, lun, Default::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let server = Server::bind(&path, false).unwrap();
    let _client = UnixStream::connect(&path).unwrap();
    let (stopped, _stop) = std::io::pipe().unwrap();
    act(&mut server.serving(&queue, stopped.as_fd(), drop));
    drop(queue);
    stop.store(true, Ordering::Relaxed);
    served.join().unwrap().unwrap();
}

/// Else the client that cannot be taken ends each sleep at once.
#[test]
fn sleep__is_ended_by_no_client_that_there_was_no_descriptor_for() {
    with_a_waiting_client(|serving| {
        assert_eq!(serving.sleep().unwrap(), Woken::ToAccept);
        serving.no_room = true;
        assert_eq!(
            serving.sleep().unwrap(),
            Woken::Else,
            "there is none for it"
        );
        // It is tried again, when the time to look has come.
        serving.accept().unwrap();
        assert!(!serving.no_room && serving.clients.len() == 1);
    });
}
