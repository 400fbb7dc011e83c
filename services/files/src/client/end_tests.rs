//! Tests that a copy reports its end once, before its last connection is closed.

#![allow(non_snake_case)]

use crate::client::Client;
use crate::location::Host;
use crate::message::{CopyOptions, Landing, Reply, Request};
use crate::opening::{hear, say};
use crate::pump::{self, CONTROL, DATA};
use crate::reached::Reached;
use crate::send::FileSender;
use crate::service_tests::{Lab, StopsAtOnce, content};
use crate::stop::Stop;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use zerolane::{Endpoint, Options};

const LONG: Duration = Duration::from_secs(60);

/// Counts calls.
fn counted() -> (Arc<AtomicUsize>, impl Fn() + Send + Sync + 'static) {
    let count = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&count);
    let done = move || {
        counts.fetch_add(1, SeqCst);
    };
    (count, done)
}

#[test]
fn with_done__is_called_once_for_a_copy_that_is_complete() {
    let lab = Lab::new(false);
    let (count, done) = counted();
    let client = lab.client().with_done(done);
    let options = CopyOptions {
        recursive: true,
        ..CopyOptions::default()
    };
    fs::create_dir(lab.local("d")).unwrap();
    for file in 0..9 {
        fs::write(lab.local("d").join(file.to_string()), content(5000)).unwrap();
    }
    let sources = [lab.local("d")];
    client.put(&sources, b"one", &options, &()).unwrap();
    assert_eq!(count.load(SeqCst), 1);
    client
        .get(&[b"one".to_vec()], &lab.local("back"), &options, &())
        .unwrap();
    assert_eq!(count.load(SeqCst), 2);
    let several = client.clone().with_connections(3);
    several.put(&sources, b"three", &options, &()).unwrap();
    assert_eq!(count.load(SeqCst), 3);
    let input = File::open(lab.local("d/1")).unwrap();
    client.put_stream(&input, b"s", &options, &()).unwrap();
    assert_eq!(count.load(SeqCst), 4);
    let out = File::create(lab.local("out")).unwrap();
    client
        .get_stream(b"s", &out, &CopyOptions::default(), &())
        .unwrap();
    assert_eq!(count.load(SeqCst), 5);
    // None of these operations is a copy.
    client
        .get(&[b"one".to_vec()], &lab.local("no/where"), &options, &())
        .unwrap_err();
    let stop = Stop::default();
    let stopped = client.with_stop(stop.clone());
    fs::write(lab.local("large"), content(64 << 20)).unwrap();
    let observer = StopsAtOnce(stop);
    let sources = [lab.local("large")];
    stopped.put(&sources, b"", &options, &observer).unwrap_err();
    assert_eq!(count.load(SeqCst), 5);
}

/// When a server sees the end of the connection, `done` was called before.
#[test]
fn with_done__is_called_before_the_connection_ends() {
    let mut endpoint = Endpoint::bind((Ipv4Addr::LOCALHOST, 0), Options::default()).unwrap();
    let address = endpoint.local_addr();
    let (count, done) = counted();
    let done = move || {
        // If the connection were closed already, the other end would see it meanwhile.
        thread::sleep(Duration::from_millis(300));
        done();
    };
    let server = thread::spawn(move || {
        let mut connection = endpoint.accept(Some(LONG)).unwrap().unwrap();
        let stop = Stop::default();
        let Request::Get { digester, .. } = hear(&mut connection, &stop, LONG).unwrap() else {
            panic!("another request");
        };
        let digester = digester.accept();
        let accepted = Reply::Accepted {
            algorithm: digester.algorithm(),
            landing: Landing::Into,
            boot: [0; 16],
        };
        say(&mut connection, &accepted, &stop, LONG).unwrap();
        let mut reached = Reached::default();
        pump::run(&mut connection, DATA, CONTROL, &stop, |port| {
            FileSender::new(port, &(), CopyOptions::default(), digester, &mut reached).send_all(&[])
        })
        .unwrap();
        while connection.wait(Some(LONG)).is_ok() {}
        count.load(SeqCst)
    });
    let target = tempfile::tempdir().unwrap();
    Client::new(Host::from(address))
        .with_done(done)
        .get(&[Vec::new()], target.path(), &CopyOptions::default(), &())
        .unwrap();
    assert_eq!(server.join().unwrap(), 1);
}
