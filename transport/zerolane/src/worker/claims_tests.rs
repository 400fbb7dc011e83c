//! Tests that what was given up leaves nothing, and costs no more than it must.

#![allow(non_snake_case)]
use crate::Region;
use crate::worker::handle::ConnectionHandle;
use crate::worker::pending::GivenUp;
use crate::worker::{ConnectionId, Event, Worker};
use std::time::Duration;
use zerolane_lane::Options;

/// A worker, and a connection from it to itself.
fn connected() -> (Worker, ConnectionId, ConnectionHandle) {
    let mut worker = Worker::new().expect("descriptors");
    let endpoint = worker.listen("127.0.0.1:0", Options::default());
    let endpoint = worker.endpoint(endpoint.expect("a port"));
    let address = endpoint.expect("it listens").local_addr();
    let id = worker.connect(address, &Options::default()).expect("begun");
    let is_connected = |event| matches!(event, Event::Connected { connection } if connection == id);
    for _ in 0..1000 {
        let soon = Some(Duration::from_millis(20));
        worker.wait(soon).expect("it goes on");
        if std::iter::from_fn(|| worker.next_event()).any(is_connected) {
            break;
        }
    }
    let handle = worker.connection_handle(id).expect("established");
    (worker, id, handle)
}

/// Lets `worker` carry out what handles submitted.
fn carry_out(worker: &mut Worker) {
    for _ in 0..1000 {
        if !worker.progress().expect("it goes on") {
            return;
        }
    }
    panic!("it goes on and on");
}

#[test]
fn closed__given_up_leaves_nothing() {
    let (mut worker, id, handle) = connected();
    for _ in 0..100 {
        drop(handle.closed());
        carry_out(&mut worker);
    }
    let many: Vec<_> = (0..100).map(|_| handle.closed()).collect();
    drop(many);
    carry_out(&mut worker);
    let claims = worker.claims(id).expect("open");
    assert!(claims.ends.is_empty(), "{}", claims.ends.len());
}

#[test]
fn given_up__many_of_many_are_removed_in_few_passes() {
    let (mut given_up, mut waits, mut gone, mut looks) = (GivenUp::default(), 1000, 0, 0);
    for _ in 0..1000 {
        gone += 1;
        if given_up.add(waits) {
            looks += waits;
            waits -= std::mem::take(&mut gone);
        }
    }
    assert_eq!(waits, 0);
    assert!(looks <= 2000, "{looks}");
}

/// Those that are posted, and those that wait for room.
#[test]
fn give_up__many_leave_nothing() {
    let (mut worker, id, handle) = connected();
    let receive = || handle.recv(Region::from_vec(vec![0; 8]));
    let requests: Vec<_> = (0..5000).map(|_| receive()).collect();
    carry_out(&mut worker);
    drop(requests);
    carry_out(&mut worker);
    assert!(worker.claims(id).expect("open").is_idle());
}
