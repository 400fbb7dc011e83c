//! Tests that a connection whose first path is raw Ethernet can add paths over raw Ethernet and UDP.

use super::mixed::{AROUND, Counted, by_ethernet, forged, overhear, overheard, receive_and_count};
use super::{
    ADDED, PATIENCE, THREADS, accept, between, between_owned, bytes_sent, content, hardware_of,
    hardware_text, joins_in_turn, options, path_between, receive, send, two_pairs, until_alone,
    until_usable, usable,
};
use netlab::forge::Forger;
use netlab::netns::{Namespace, Topology};
use netsim::Side;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use zerolane::counters::{Account, NoPath, PathLife};
use zerolane::options::{LaneChoice, PathAddresses, PathThreads};
use zerolane::worker::{Event, Worker};
use zerolane::{Connection, Endpoint, Error, Options, Security};
use zerolane_wire::Op;

/// Options with raw Ethernet as the first path.
fn framed(security: Security, paths: u8, threads: PathThreads) -> Options {
    options(security, paths, threads).with(|it| it.lane.choice = LaneChoice::Ethernet)
}

/// Like [`framed`], and others may use UDP.
fn with_udp(paths: u8, threads: PathThreads) -> Options {
    framed(Security::default(), paths, threads).with(|it| it.paths.udp = true)
}

/// Nothing was refused, and no packet for others was received.
fn assert_clean(account: &Account) {
    assert_eq!((account.paths_refused, account.no_path), (0, None));
    assert_eq!(account.dropped_foreign, 0);
}

/// Each of that many paths carried a MiB, and nothing was refused or foreign.
fn assert_each_carried(counted: Counted, count: usize) {
    let (account, paths) = counted.into_inner().expect("whole");
    assert_clean(&account);
    let least = paths.iter().map(|it| it.1.bytes_received).min();
    assert!(paths.len() == count && least > Some(1 << 20), "{paths:?}");
}

#[test]
fn mixed__ethernet_alone_both_carry_and_one_leaves_and_joins() {
    for security in [Security::default(), Security::plain()] {
        let Some(hosts) = two_pairs() else { return };
        let options = framed(security, 2, PathThreads::OneForAll);
        let counted = Counted::default();
        let serve = |endpoint: &mut Endpoint| receive_and_count(endpoint, &counted);
        let (sent, received) = between((hosts.a(), hosts.b()), &options, serve, |to, _| {
            let mut a = Connection::connect(to, &options).expect("connected");
            let second = by_ethernet(hosts.a(), hosts.b(), 1);
            let sent = send(&mut a, joins_in_turn(&[&[second], &[second]]));
            assert_clean(&a.account());
            a.close().expect("closed");
            sent
        });
        assert_eq!(sent, received);
        assert_each_carried(counted, 2);
    }
}

#[test]
fn mixed__ethernet_first_paths_of_either_kind_carry() {
    for threads in THREADS {
        let Some(hosts) = two_pairs() else { return };
        let options = with_udp(4, threads);
        let counted = Counted::default();
        let serve = |endpoint: &mut Endpoint| receive_and_count(endpoint, &counted);
        let (sent, received) = between((hosts.a(), hosts.b()), &options, serve, |to, second| {
            // One without an explicit port, which is then that of the first path.
            let PathAddresses::Udp { peer, .. } = path_between(hosts.a(), hosts.b(), 0, 0) else {
                panic!("it is over UDP");
            };
            let options = options.clone().with(|it| {
                it.paths.links = vec![by_ethernet(hosts.a(), hosts.b(), 1), second];
                it.paths.udp = false;
            });
            let mut a = Connection::connect(to, &options).expect("connected");
            assert!(a.add_path(PathAddresses::Udp { local: None, peer }));
            let sent = send(&mut a, |a, _| {
                let least = (0..4).map(|path| bytes_sent(a, path)).min();
                usable(a) == 4 && least > Some(2 << 20)
            });
            assert_clean(&a.account());
            a.close().expect("closed");
            sent
        });
        assert_eq!(sent, received);
        assert_each_carried(counted, 4);
    }
}

/// Streams over two paths. When both carry payload, `happen` changes the network of the path with this index. The
/// stream continues over the other, and then over `then` paths.
fn stream_while(
    options: &Options,
    path: usize,
    then: usize,
    happen: impl Fn(&Topology) + Sync,
    mend: impl Fn(&Topology) + Sync,
) {
    let Some(hosts) = two_pairs() else { return };
    let (sent, received) = between((hosts.a(), hosts.b()), options, receive, |to, by_udp| {
        let mut a = Connection::connect(to, options).expect("connected");
        assert!(a.add_path(match options.paths.udp {
            true => by_udp,
            false => by_ethernet(hosts.a(), hosts.b(), 1),
        }));
        let mut sent = 0;
        until_usable(&mut a, 2, 8, &mut sent);
        happen(&hosts);
        until_alone(&mut a, 1 - path, 8, &mut sent);
        let before = bytes_sent(&a, 1 - path);
        until_alone(&mut a, 1 - path, 8, &mut sent);
        assert!(bytes_sent(&a, 1 - path) > before + (4 << 20), "path {path}");
        mend(&hosts);
        until_usable(&mut a, then, 8, &mut sent);
        a.close().expect("closed");
        sent
    });
    assert_eq!(sent, received, "path {path}");
}

/// The second path of either kind.
fn of_two() -> [Options; 2] {
    let [one, each] = THREADS;
    [framed(Security::default(), 2, one), with_udp(2, each)]
}

#[test]
fn mixed__ethernet_first_interface_down_amid_and_up_again() {
    let [by_ethernet, by_udp] = of_two();
    for (options, path, side) in [
        (&by_ethernet, 0, Side::A),
        (&by_ethernet, 0, Side::B),
        (&by_ethernet, 1, Side::A),
        (&by_udp, 0, Side::B),
    ] {
        stream_while(
            options,
            path,
            2,
            |hosts| hosts.side(side).set_up(path, false).expect("set"),
            |hosts| hosts.side(side).set_up(path, true).expect("set"),
        );
    }
}

#[test]
fn mixed__ethernet_first_interface_deleted_amid() {
    let [by_ethernet, by_udp] = of_two();
    for (options, path) in [(&by_ethernet, 0), (&by_ethernet, 1), (&by_udp, 0)] {
        let delete = |hosts: &Topology| hosts.a().delete(path).expect("deleted");
        stream_while(options, path, 1, delete, |_| {});
    }
}

#[test]
fn mixed__ethernet_alone_without_any_interface_ends_with_an_error_that_says_so() {
    let Some(hosts) = two_pairs() else { return };
    let options = framed(Security::default(), 2, PathThreads::OneForAll);
    let serve = |endpoint: &mut Endpoint| {
        let mut b = accept(endpoint);
        let mut buffer = vec![0; super::PIECE];
        loop {
            if let Err(error) = b.recv_into(&mut buffer) {
                return error;
            }
        }
    };
    let (sender, receiver) = between((hosts.a(), hosts.b()), &options, serve, |to, _| {
        let mut a = Connection::connect(to, &options).expect("connected");
        assert!(a.add_path(by_ethernet(hosts.a(), hosts.b(), 1)));
        let mut sent = 0;
        until_usable(&mut a, 2, 8, &mut sent);
        for path in [0, 1] {
            hosts.a().delete(path).expect("deleted");
        }
        loop {
            if let Err(error) = a.send(&content(sent)) {
                return error;
            }
            sent += 1;
        }
    });
    for error in [sender, receiver] {
        assert!(matches!(&error, Error::Io(_)), "{error:?}");
        assert!(error.to_string().contains("interface is gone"), "{error}");
    }
}

#[test]
fn mixed__ethernet_alone_frames_that_are_forged_are_dropped_and_counted() {
    let Some(hosts) = two_pairs() else { return };
    let options = framed(Security::default(), 2, PathThreads::OneForAll);
    let counted = Counted::default();
    let serve = |endpoint: &mut Endpoint| receive_and_count(endpoint, &counted);
    let (sent, received) = between((hosts.a(), hosts.b()), &options, serve, |to, _| {
        let mut a = Connection::connect(to, &options).expect("connected");
        assert!(a.add_path(by_ethernet(hosts.a(), hosts.b(), 1)));
        let mut sent = 0;
        until_usable(&mut a, 2, 4, &mut sent);
        let ear = overhear(hosts.b());
        let theirs = || counted.lock().expect("whole").0;
        let dropped = |it: &Account| it.protocol.dropped_total();
        let before = theirs();
        // Of either path: the sender identifies its interface.
        let heard = overheard(&ear, Op::Data, || until_usable(&mut a, 2, 1, &mut sent));
        let from = |index| hardware_of(hosts.a(), index);
        let source: Vec<String> = heard[6..12].iter().map(|it| format!("{it:02x}")).collect();
        let path = usize::from(source.join(":") != from(0));
        assert_eq!(source.join(":"), from(path));
        let (foreign, mut broken) = forged(&heard);
        // A packet sealed for one path is invalid on the other.
        let elsewhere = 1 - path;
        let turned: Vec<u8> = [hardware_of(hosts.b(), elsewhere), from(elsewhere)]
            .iter()
            .flat_map(|it| it.split(':'))
            .map(|it| u8::from_str_radix(it, 16).expect("hexadecimal"))
            .collect();
        let mut to_other = heard.clone();
        to_other[..12].copy_from_slice(&turned);
        assert!(to_other.len() > AROUND);
        let send = |index: usize, frames: &[Vec<u8>]| {
            let send = || {
                let device = hosts.a().interface(index).device();
                let forger = Forger::open(device).expect("permitted");
                let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
                assert_eq!(forger.send(&frames), 0, "the kernel took them");
            };
            hosts.a().enter_thread(send).expect("enter");
        };
        send(path, &foreign);
        send(path, &broken);
        send(elsewhere, std::slice::from_ref(&to_other));
        broken.push(to_other);
        let start = Instant::now();
        loop {
            until_usable(&mut a, 2, 1, &mut sent);
            let now = theirs();
            let got = (
                now.dropped_foreign - before.dropped_foreign,
                dropped(&now) - dropped(&before),
            );
            if got.0 == 3 && got.1 >= broken.len() as u64 {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{got:?} of 3, {}", broken.len());
        }
        until_usable(&mut a, 2, 8, &mut sent);
        a.close().expect("closed");
        sent
    });
    assert_eq!(sent, received);
    let (account, _) = counted.into_inner().expect("whole");
    assert_eq!(account.dropped_foreign, 3);
}

/// From that interface of this host to the hardware address reached through it.
fn behind(device: &str, hardware: &str) -> PathAddresses {
    let path = format!("=ether:{device}/{hardware}");
    path.parse().expect("an interface")
}

/// The second interface of a host on the first segment, and its hardware address.
const SECOND: (&str, [u8; 6]) = ("second", [2, 0, 0, 0, 0x77, 1]);

fn add_second(host: &Namespace) {
    let (name, hardware) = SECOND;
    let kernel = host.rtnetlink().expect("there");
    let added = kernel.add_macvlan(host.device(), name, hardware);
    added.expect("a second one");
    kernel.set_up(name, true).expect("up");
}

#[test]
fn mixed__ethernet_alone_two_paths_at_one_interface_are_told_apart_by_the_peers() {
    let all = Side::BOTH
        .map(|side| [Security::default(), Security::plain()].map(|security| (side, security)));
    for (side, security) in all.into_iter().flatten() {
        let Some(hosts) = two_pairs() else { return };
        add_second(hosts.side(side));
        let options = framed(security, 3, PathThreads::OneForAll);
        let counted = Counted::default();
        let serve = |endpoint: &mut Endpoint| receive_and_count(endpoint, &counted);
        let (sent, received) = between((hosts.a(), hosts.b()), &options, serve, |to, _| {
            let (device, theirs) = (hosts.a().device(), hardware_of(hosts.b(), 0));
            let first = behind(device, &theirs);
            let second = match side {
                Side::A => behind(SECOND.0, &theirs),
                Side::B => behind(device, &hardware_text(SECOND.1)),
            };
            let mut a = Connection::connect(to, &options).expect("connected");
            assert!(a.add_path(second));
            let mut sent = 0;
            until_usable(&mut a, 2, 8, &mut sent);
            // Packets of one path that also came through the other's socket would have come twice.
            assert_clean(&a.account());
            // The same two interfaces are not another path.
            for there_is in [first, second] {
                assert!(a.add_path(there_is));
                until_usable(&mut a, 2, 2, &mut sent);
                assert_eq!(a.account().no_path, Some(NoPath::Taken));
            }
            assert_eq!(a.account().paths_refused, 2);
            a.remove_path(ADDED);
            until_usable(&mut a, 1, 2, &mut sent);
            assert!(a.add_path(second));
            until_usable(&mut a, 2, 8, &mut sent);
            assert_eq!(a.account().paths_refused, 2);
            a.close().expect("closed");
            sent
        });
        assert_eq!(sent, received);
        let (account, _) = counted.into_inner().expect("whole");
        // The requests for a path fit no socket; payload would be thousands of packets.
        let (foreign, refused) = (account.dropped_foreign, account.paths_refused);
        assert!(
            foreign < 100 && refused == 0,
            "{foreign} foreign, {refused}"
        );
    }
}

#[test]
fn mixed__ethernet_first_a_path_over_udp_is_named_in_whole_and_taken_where_told() {
    let Some(hosts) = two_pairs() else { return };
    let options = framed(Security::default(), 2, PathThreads::OneForAll);
    let (sent, received) = between((hosts.a(), hosts.b()), &options, receive, |to, by_udp| {
        let mut a = Connection::connect(to, &options).expect("connected");
        assert!(a.add_path(PathAddresses::default()));
        let mut sent = 0;
        until_usable(&mut a, 1, 4, &mut sent);
        let account = a.account();
        assert_eq!((account.paths_refused, usable(&a)), (1, 1));
        assert_eq!(account.no_path, Some(NoPath::NoAddress));
        // There is no listener.
        assert!(a.add_path(by_udp));
        let more = send(&mut a, |a, pieces| {
            assert_eq!((usable(a), bytes_sent(a, 1)), (1, 0));
            pieces == 0
        });
        for _ in 0..16 {
            a.send(&content(sent)).expect("sent");
            sent += 1;
            assert_eq!((usable(&a), bytes_sent(&a, 1)), (1, 0));
        }
        a.close().expect("closed");
        sent + more
    });
    assert_eq!(sent, received);
}

/// Adds a path over UDP to an idle connection whose first path is down.
fn add_while_down(hosts: &Topology, to: SocketAddr, by_udp: PathAddresses, options: &Options) {
    let mut a = Connection::connect(to, options).expect("connected");
    let start = Instant::now();
    let wait = |a: &mut Connection| {
        assert!(start.elapsed() < PATIENCE, "{:?}", a.paths());
        a.wait(Some(Duration::from_millis(10))).expect("alive");
        a.account().datagrams_received
    };
    // An open connection has measured its path.
    let (mut heard, mut silent) = (0, 0);
    while silent < 30 {
        let before = std::mem::replace(&mut heard, wait(&mut a));
        silent = if heard == before { silent + 1 } else { 0 };
    }
    hosts.a().set_up(0, false).expect("set");
    assert!(a.add_path(by_udp));
    let carries = |a: &Connection| {
        let mut paths = a.paths().into_iter();
        paths.any(|it| it.0 == ADDED && it.1.life == PathLife::Usable)
    };
    while !carries(&a) {
        wait(&mut a);
    }
    hosts.a().set_up(0, true).expect("set");
    a.close().expect("closed");
}

/// A silent peer is not probed before its timeout.
fn that_stays_silent() -> Options {
    with_udp(2, PathThreads::OneForAll).with(|it| it.times.idle = 100 * PATIENCE)
}

#[test]
fn mixed__ethernet_first_takes_a_path_over_udp_while_the_first_is_down() {
    let Some(hosts) = two_pairs() else { return };
    let options = that_stays_silent();
    let serve = |endpoint: &mut Endpoint| {
        let mut b = accept(endpoint);
        // It requests nothing, and sleeps until the peer closes.
        assert!(b.wait(Some(2 * PATIENCE)).is_err(), "no end");
    };
    between((hosts.a(), hosts.b()), &options, serve, |to, by_udp| {
        add_while_down(&hosts, to, by_udp, &options);
    });
}

#[test]
fn mixed__ethernet_first_a_worker_takes_a_path_over_udp_while_the_first_is_down() {
    let Some(hosts) = two_pairs() else { return };
    let options = that_stays_silent();
    let serve = |endpoint: Endpoint| {
        let mut worker = Worker::new().expect("a worker");
        worker.listen_on(endpoint).expect("listening");
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "no end");
            worker.wait(Some(PATIENCE)).expect("alive");
            while let Some(event) = worker.next_event() {
                if matches!(event, Event::Closed { .. }) {
                    return;
                }
            }
        }
    };
    between_owned((hosts.a(), hosts.b()), &options, serve, |to, by_udp| {
        add_while_down(&hosts, to, by_udp, &options);
    });
}
