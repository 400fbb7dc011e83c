//! Tests that connections survive changes of paths through relays, without privileges.

use super::{ADDED, THREADS, bytes_sent, options, receive, send, usable};
use netlab::udp::Relay;
use netsim::link::LinkConfig;
use std::time::Duration;
use zerolane::options::{PathAddresses, PathThreads};
use zerolane::{Connection, Endpoint, Security};

/// The life of a connection over relays: both paths carry payload, one dies, one is removed, one is added.
fn over_relays(security: Security, threads: PathThreads) {
    let link = |ms| LinkConfig {
        delay: Duration::from_millis(ms),
        rate_bits_per_s: Some(200_000_000),
        ..LinkConfig::default()
    };
    let options = options(security, 4, threads);
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).expect("bind");
    let server = endpoint.local_addr();
    let relays = [1, 4].map(|ms| Relay::start(server, link(ms), link(ms), 7).expect("relay"));
    let ends = relays.each_ref().map(Relay::addr);
    let receiver = std::thread::spawn(move || receive(&mut endpoint));
    let mut a = Connection::connect(ends[0], &options).expect("connected");
    let second = PathAddresses::Udp {
        local: None,
        peer: Some(ends[1]),
    };
    assert!(a.add_path(second));
    let mut stage = 0;
    let mut mark = 0;
    let pieces = send(&mut a, |a, pieces| {
        match stage {
            0 if usable(a) == 2 && bytes_sent(a, 1) > 8 << 20 => {
                relays[0].set_up(false);
                stage = 1;
            }
            // The first path is dead, and the stream continues.
            1 if usable(a) == 1 => {
                mark = pieces;
                stage = 2;
            }
            2 if pieces > mark + 4 => {
                relays[0].set_up(true);
                stage = 3;
            }
            3 if usable(a) == 2 => {
                a.remove_path(ADDED);
                mark = pieces;
                stage = 4;
            }
            4 if pieces > mark + 4 => {
                assert_eq!(usable(a), 1);
                assert!(a.add_path(second));
                stage = 5;
            }
            // With the same index and the same keys, from another port.
            5 if usable(a) == 2 => {
                mark = pieces;
                stage = 6;
            }
            6 if pieces > mark + 4 => return true,
            _ => {}
        }
        false
    });
    let account = a.account();
    assert_eq!(account.paths_refused, 0);
    assert!(account.protocol.paths_lost > 0, "{account:?}");
    a.close().expect("closed");
    assert_eq!(receiver.join().expect("received"), pieces);
}

#[test]
fn paths__carry_die_come_back_leave_and_join__encrypted() {
    for threads in THREADS {
        over_relays(Security::default(), threads);
    }
}

#[test]
fn paths__carry_die_come_back_leave_and_join__plain() {
    for threads in THREADS {
        over_relays(Security::plain(), threads);
    }
}

#[test]
fn path__is_refused_by_a_peer_that_takes_one() {
    let server = options(Security::default(), 1, PathThreads::OnePerPath);
    let mut endpoint = Endpoint::bind("127.0.0.1:0", server).expect("bind");
    let to = endpoint.local_addr();
    let receiver = std::thread::spawn(move || receive(&mut endpoint));
    let client = options(Security::default(), 1, PathThreads::OnePerPath)
        .with(|it| it.paths.links = vec![PathAddresses::default()]);
    let mut a = Connection::connect(to, &client).expect("connected");
    let pieces = send(&mut a, |_, pieces| pieces == 4);
    assert_eq!((usable(&a), a.account().paths_refused), (1, 1));
    a.close().expect("closed");
    assert_eq!(receiver.join().expect("received"), pieces);
}

#[test]
fn add_path__not_where_one_was_asked_for() {
    let plain = options(Security::plain(), 1, PathThreads::OnePerPath);
    let mut endpoint = Endpoint::bind("127.0.0.1:0", plain.clone()).expect("bind");
    let to = endpoint.local_addr();
    let receiver = std::thread::spawn(move || receive(&mut endpoint));
    let mut a = Connection::connect(to, &plain).expect("connected");
    assert!(!a.add_path(PathAddresses::default()));
    // It stays until it is accepted: the backlog drops those that leave before.
    let pieces = send(&mut a, |_, pieces| pieces == 1);
    a.close().expect("closed");
    assert_eq!(receiver.join().expect("received"), pieces);
}
