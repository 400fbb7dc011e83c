//! Tests that waits which were given up leave nothing.

#![allow(non_snake_case)]
use crate::worker::{Event, Worker};
use std::time::Duration;
use zerolane_lane::Options;

#[test]
fn closed__given_up_leaves_nothing() {
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
    for _ in 0..100 {
        drop(handle.closed());
        worker.progress().expect("it goes on");
    }
    worker.progress().expect("it goes on");
    let claims = worker.claims(id).expect("open");
    assert!(claims.ends.is_empty(), "{}", claims.ends.len());
}
