//! Tests that an idle server sleeps. It is a program of its own: all threads except the test's are the server's.

#![allow(non_snake_case)]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use support::initiator::Rig;
use support::{Door, portal};
use zerolane_iscsi::pdu::{Answer, AnswerBody, Decoder, Digests};

/// How often the threads of this process went to sleep, but for the one that asks and the first, which waits for the test.
fn sleeps() -> u64 {
    let own = fs::read_link("/proc/thread-self").unwrap();
    let own = own.file_name().unwrap().to_owned();
    let first = std::process::id().to_string();
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|it| it.unwrap().file_name());
    let others = names.filter(|it| *it != own && **it != *first);
    let of = |name| {
        let status = fs::read_to_string(format!("/proc/self/task/{name}/status")).unwrap();
        let line = status
            .lines()
            .find_map(|it| it.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    others.map(|it| of(it.to_str().unwrap().to_owned())).sum()
}

/// However busy the machine is, all is done some time, and then no thread wakes any more.
#[test]
fn server__of_an_initiator_that_asks_for_nothing_sleeps() {
    let door = Door::new(portal(1 << 20));
    let mut stream = TcpStream::connect(door.address).unwrap();
    let mut initiator = Rig::new(portal(1 << 20)).connect(1);
    stream.write_all(&initiator.login_pdu(&[])).unwrap();
    let mut decoder = Decoder::default();
    let answer = loop {
        let mut bytes = [0; 512];
        let len = stream.read(&mut bytes).unwrap();
        assert!(len > 0, "it is cut off");
        decoder.push(&bytes[..len]);
        if let Some(pdu) = decoder.next(Digests::default()).unwrap() {
            break Answer::parse(&pdu).unwrap().body;
        }
    };
    assert!(matches!(answer, AnswerBody::Login { status: 0, .. }));
    let started = Instant::now();
    let mut before = sleeps();
    loop {
        thread::sleep(Duration::from_secs(1));
        let now = sleeps();
        if now == before {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "it wakes");
        before = now;
    }
    drop(door);
    // The connection ended with it.
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}
