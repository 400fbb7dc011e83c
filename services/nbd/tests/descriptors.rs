//! Tests a process without free descriptors. It is a program of its own, because the limit belongs to the process.
#![allow(non_snake_case)]
#![allow(dead_code)] // A part of what the other program has.

#[path = "door/lab.rs"]
mod lab;
#[path = "door/raw.rs"]
mod raw;

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zerolane_nbd::server::ServerEvent;

use lab::Lab;
use raw::{READ, Raw, WRITE};

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that cannot be taken waits, the others are served meanwhile, and it is taken when it can be.
#[test]
fn door__without_a_descriptor_serves_on_and_takes_the_client_later() {
    let lab = Lab::new(false);
    let mut first = Raw::new(&lab.door.socket);
    assert_eq!(first.call(WRITE, 0, 4096, &[7; 4096]).error, 0);
    assert_eq!(
        lab.door.news.recv_timeout(PATIENCE),
        Ok(ServerEvent::Connected)
    );
    let before = getrlimit(Resource::Nofile);
    let next = File::open("/dev/null").unwrap().as_raw_fd();
    let scarce = Rlimit {
        current: Some(next as u64 + 1),
        ..before
    };
    setrlimit(Resource::Nofile, scarce).unwrap();
    // It has the last one.
    let mut second = Raw::silent(&lab.door.socket);
    assert!(File::open("/dev/null").is_err(), "there is none left");
    for _ in 0..100 {
        assert_eq!(first.call(READ, 0, 4096, &[]).data, [7; 4096]);
    }
    // Nor has the door, while nothing is asked of it, ended for it.
    assert!(lab.door.news.recv_timeout(Duration::from_secs(1)).is_err());
    setrlimit(Resource::Nofile, before).unwrap();
    assert_eq!(
        lab.door.news.recv_timeout(PATIENCE),
        Ok(ServerEvent::Connected)
    );
    let mut greeting = [0; 18];
    second.stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    assert_eq!(first.call(READ, 0, 4096, &[]).error, 0);
}
