//! Tests that a connection over UDP can add a path over raw Ethernet.

use super::{
    ADDED, PATIENCE, PIECE, THREADS, accept, between, bytes_sent, content, hardware_of,
    is_permitted, joins_in_turn, options, path_between, receive, send, two_pairs, until_alone,
    until_usable, usable,
};
use netlab::forge::Forger;
use netlab::netns::{Namespace, Topology};
use netsim::Side;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{ErrorKind, Read};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;
use zerolane::counters::{Account, NoPath, PathState};
use zerolane::options::{PathAddresses, PathThreads};
use zerolane::{Connection, Endpoint, Options, PathId, Security};
use zerolane_wire::encapsulation::ETHERTYPE;
use zerolane_wire::{HEADER_LEN, Header, Op};

/// Bytes before the content of a frame.
pub(super) const AROUND: usize = 14;

/// Options that allow paths of both kinds at either end.
fn mixed(security: Security, paths: u8, threads: PathThreads) -> Options {
    options(security, paths, threads).with(|it| it.paths.ethernet = true)
}

/// A path from the interface with this index of `a`, whose namespace this thread is in, to that of `b`.
pub(super) fn by_ethernet(a: &Namespace, b: &Namespace, index: usize) -> PathAddresses {
    let hardware = hardware_of(b, index);
    let device = a.interface(index).device();
    let path = format!("ether:{device}=ether:{device}/{hardware}");
    path.parse().expect("an interface")
}

/// A receiver's counters, in total and for each path.
pub(super) type Counted = Mutex<(Account, Vec<(PathId, PathState)>)>;

/// Like `receive`, and stores the receiver's counters after every piece.
pub(super) fn receive_and_count(endpoint: &mut Endpoint, counted: &Counted) -> usize {
    let mut connection = accept(endpoint);
    let mut buffer = vec![0; PIECE];
    let mut pieces = 0;
    while let Ok(len) = connection.recv_into(&mut buffer) {
        assert_eq!(len, PIECE);
        assert!(buffer == content(pieces), "piece {pieces}");
        pieces += 1;
        *counted.lock().expect("whole") = (connection.account(), connection.paths());
    }
    pieces
}

#[test]
fn mixed__both_carry_and_each_kind_leaves_and_joins() {
    let all = THREADS.map(|threads| {
        [Security::default(), Security::plain()].map(|security| (threads, security))
    });
    for (threads, security) in all.into_iter().flatten() {
        let Some(hosts) = two_pairs() else { return };
        let options = mixed(security, 3, threads);
        let counted = Counted::default();
        let serve = |endpoint: &mut Endpoint| receive_and_count(endpoint, &counted);
        let (sent, received) = between((hosts.a(), hosts.b()), &options, serve, |to, second| {
            let mut a = Connection::connect(to, &options).expect("connected");
            let framed = by_ethernet(hosts.a(), hosts.b(), 1);
            let by_first = path_between(hosts.a(), hosts.b(), 0, to.port());
            // The same index becomes UDP's in its turn, and then there is one path of each kind.
            let turns: [&[_]; 3] = [&[framed], &[second], &[framed, by_first]];
            let sent = send(&mut a, joins_in_turn(&turns));
            let account = a.account();
            assert_eq!((account.paths_refused, account.no_path), (0, None));
            assert_eq!(account.dropped_foreign, 0);
            a.close().expect("closed");
            sent
        });
        assert_eq!(sent, received);
        let (account, paths) = counted.into_inner().expect("whole");
        assert_eq!((account.paths_refused, account.dropped_foreign), (0, 0));
        assert_eq!(paths.len(), 3, "{paths:?}");
        let of_two = paths.iter().filter(|it| it.0 <= ADDED);
        let least = of_two.map(|it| it.1.bytes_received).min();
        assert!(least > Some(1 << 20), "{paths:?}");
    }
}

#[test]
fn mixed__paths_of_the_options_are_there_from_the_start() {
    let Some(hosts) = two_pairs() else { return };
    let options = mixed(Security::default(), 2, PathThreads::OneForAll);
    let (sent, received) = between((hosts.a(), hosts.b()), &options, receive, |to, _| {
        let options = super::options(Security::default(), 1, PathThreads::OneForAll)
            .with(|it| it.paths.links = vec![by_ethernet(hosts.a(), hosts.b(), 1)]);
        let mut a = Connection::connect(to, &options).expect("connected");
        let mut sent = 0;
        until_usable(&mut a, 2, 8, &mut sent);
        a.close().expect("closed");
        sent
    });
    assert_eq!(sent, received);
}

/// Streams over a path of each kind. When both carry payload, `happen` changes the network of the path with this index.
/// The stream continues over the other, and then over `then` paths.
fn stream_while(
    path: usize,
    then: usize,
    threads: PathThreads,
    happen: impl Fn(&Topology) + Sync,
    mend: impl Fn(&Topology) + Sync,
) {
    let Some(hosts) = two_pairs() else { return };
    let options = mixed(Security::default(), 2, threads);
    let (sent, received) = between((hosts.a(), hosts.b()), &options, receive, |to, _| {
        let mut a = Connection::connect(to, &options).expect("connected");
        assert!(a.add_path(by_ethernet(hosts.a(), hosts.b(), 1)));
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

#[test]
fn mixed__interface_down_amid_and_up_again() {
    let [one, each] = THREADS;
    for (path, side, threads) in [
        (0, Side::A, one),
        (0, Side::B, each),
        (1, Side::A, each),
        (1, Side::B, one),
    ] {
        stream_while(
            path,
            2,
            threads,
            |hosts| hosts.side(side).set_up(path, false).expect("set"),
            |hosts| hosts.side(side).set_up(path, true).expect("set"),
        );
    }
}

#[test]
fn mixed__interface_deleted_amid() {
    for (path, threads) in [0, 1].into_iter().zip(THREADS) {
        let delete = |hosts: &Topology| hosts.a().delete(path).expect("deleted");
        stream_while(path, 1, threads, delete, |_| {});
    }
}

/// Captures the frames of this protocol at a host's interfaces.
pub(super) fn overhear(host: &Namespace) -> Socket {
    let opened = host.enter_thread(|| {
        let ethertype = i32::from(ETHERTYPE.to_be());
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(ethertype)));
        let socket = socket.expect("permitted");
        socket.set_nonblocking(true).expect("set");
        socket
    });
    opened.expect("enter")
}

/// The next frame of this operation; while there is none, `more` continues the stream.
pub(super) fn overheard(mut ear: &Socket, op: Op, mut more: impl FnMut()) -> Vec<u8> {
    let mut frame = vec![0; 10_000];
    let start = Instant::now();
    loop {
        match ear.read(&mut frame) {
            Ok(len) if len > AROUND + HEADER_LEN && frame[AROUND] >> 3 == op as u8 => {
                frame.truncate(len);
                return frame;
            }
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                assert!(start.elapsed() < PATIENCE, "no {op:?}");
                more();
            }
        }
    }
}

/// Frames that a forger on the segment makes of one that it overheard: as from another host, or for another or all; and
/// some that look like the peer's.
pub(super) fn forged(heard: &[u8]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = heard.to_vec();
        change(&mut frame);
        frame
    };
    let foreign = vec![
        changed(&|it| it[11] ^= 1),
        changed(&|it| it[..6].fill(0xff)),
        changed(&|it| drop(it.splice(12..12, [0x81, 0, 0, 5]))),
    ];
    let broken = vec![
        // Sealed once, and accepted.
        changed(&|_| {}),
        changed(&|it| *it.last_mut().expect("long") ^= 1),
        changed(&|it| it[AROUND + HEADER_LEN] ^= 1),
        changed(&|it| it.truncate(AROUND + HEADER_LEN)),
        changed(&|it| it.truncate(AROUND + 20)),
    ];
    (foreign, broken)
}

#[test]
fn mixed__frames_that_are_forged_are_dropped_and_counted() {
    let Some(hosts) = two_pairs() else { return };
    let options = mixed(Security::default(), 4, PathThreads::OneForAll);
    let counted = Counted::default();
    let serve = |endpoint: &mut Endpoint| receive_and_count(endpoint, &counted);
    let (sent, received) = between((hosts.a(), hosts.b()), &options, serve, |to, _| {
        let mut a = Connection::connect(to, &options).expect("connected");
        assert!(a.add_path(by_ethernet(hosts.a(), hosts.b(), 1)));
        let mut sent = 0;
        until_usable(&mut a, 2, 4, &mut sent);
        let ears = [hosts.a(), hosts.b()].map(overhear);
        let dropped = |it: &Account| it.protocol.dropped_total();
        let theirs = || counted.lock().expect("whole").0;
        let before = [a.account(), theirs()];
        let [to_a, to_b] = [(&ears[0], Op::State), (&ears[1], Op::Data)]
            .map(|(ear, op)| overheard(ear, op, || until_usable(&mut a, 2, 1, &mut sent)));
        let ((foreign_a, broken_a), (foreign_b, mut broken_b)) = (forged(&to_a), forged(&to_b));
        // A request for a path that does not exist yet, by a forger that overheard the key.
        let key = &to_b[AROUND + 8..][..4];
        let question = Header {
            param: 3,
            d_key: u32::from_be_bytes(key.try_into().expect("four bytes")),
            ..Header::new(Op::Nop)
        };
        broken_b.push([&to_b[..AROUND], &question.emit()[..], &[7; 24]].concat());
        for (from, frames) in [
            (hosts.b(), [&foreign_a, &broken_a]),
            (hosts.a(), [&foreign_b, &broken_b]),
        ] {
            let send = || {
                let forger = Forger::open(from.interface(1).device()).expect("permitted");
                let frames: Vec<&[u8]> = frames.into_iter().flatten().map(Vec::as_slice).collect();
                assert_eq!(forger.send(&frames), 0, "the kernel took them");
            };
            from.enter_thread(send).expect("enter");
        }
        let start = Instant::now();
        loop {
            until_usable(&mut a, 2, 1, &mut sent);
            let now = [a.account(), theirs()];
            let foreign = [0, 1].map(|end| now[end].dropped_foreign - before[end].dropped_foreign);
            let broken = [0, 1].map(|end| dropped(&now[end]) - dropped(&before[end]));
            let expected = [&broken_a, &broken_b].map(|it| it.len() as u64);
            let enough = foreign == [3, 3] && broken[0] >= expected[0] && broken[1] >= expected[1];
            if enough {
                break;
            }
            let late = start.elapsed() > PATIENCE;
            assert!(!late, "{foreign:?} foreign, {broken:?} of {expected:?}");
        }
        until_usable(&mut a, 2, 8, &mut sent);
        assert_eq!(a.paths().len(), 2);
        a.close().expect("closed");
        sent
    });
    assert_eq!(sent, received);
    let (account, _) = counted.into_inner().expect("whole");
    assert_eq!(account.dropped_foreign, 3);
}

#[test]
fn mixed__a_peer_that_was_not_told_to_takes_no_frames() {
    let Some(hosts) = two_pairs() else { return };
    let options = options(Security::default(), 2, PathThreads::OneForAll);
    let (sent, received) = between((hosts.a(), hosts.b()), &options, receive, |to, _| {
        let mut a = Connection::connect(to, &options).expect("connected");
        assert!(a.add_path(by_ethernet(hosts.a(), hosts.b(), 1)));
        let sent = send(&mut a, |a, pieces| {
            assert_eq!((usable(a), bytes_sent(a, 1)), (1, 0));
            pieces == 16
        });
        a.close().expect("closed");
        sent
    });
    assert_eq!(sent, received);
}

#[test]
fn mixed__an_interface_that_is_gone_is_told_and_leaves_the_other_path() {
    let Some(hosts) = two_pairs() else { return };
    let options = mixed(Security::default(), 2, PathThreads::OneForAll);
    let (sent, received) = between((hosts.a(), hosts.b()), &options, receive, |to, _| {
        let mut a = Connection::connect(to, &options).expect("connected");
        let path = by_ethernet(hosts.a(), hosts.b(), 1);
        hosts.a().delete(1).expect("deleted");
        assert!(a.add_path(path));
        let sent = send(&mut a, |_, pieces| pieces == 4);
        let account = a.account();
        let told = (account.paths_refused, account.no_path, usable(&a));
        assert_eq!(told, (1, Some(NoPath::NoInterface), 1));
        a.close().expect("closed");
        sent
    });
    assert_eq!(sent, received);
}

/// Set for a process without CAP_NET_RAW, even if it runs as root.
const UNPERMITTED: &str = "ZEROLANE_TEST_WITHOUT_NET_RAW";

#[test]
fn mixed__without_the_right_both_ends_say_so() {
    if std::env::var_os(UNPERMITTED).is_none() {
        let program = std::env::current_exe().expect("this one");
        let name = "mixed::mixed__without_the_right_both_ends_say_so";
        let mut command = match is_permitted() {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw"]);
                command.arg(program);
                command
            }
            false => Command::new(program),
        };
        command.args(["--exact", name, "--nocapture"]);
        let done = command.env(UNPERMITTED, "1").output().expect("started");
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let needs = "raw Ethernet needs CAP_NET_RAW";
    let both = mixed(Security::default(), 2, PathThreads::OneForAll);
    let error = Endpoint::bind("127.0.0.1:0", both).expect_err("not permitted");
    assert!(error.to_string().contains(needs), "{error}");
    let options = options(Security::default(), 2, PathThreads::OneForAll);
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).expect("bind");
    let to = endpoint.local_addr();
    let receiver = std::thread::spawn(move || receive(&mut endpoint));
    let mut a = Connection::connect(to, &options).expect("connected");
    assert!(a.add_path(PathAddresses::Ethernet {
        interface: 1,
        peer: [2, 0, 0, 0, 0, 1],
    }));
    let sent = send(&mut a, |_, pieces| pieces == 4);
    let account = a.account();
    assert_eq!((account.paths_refused, usable(&a)), (1, 1));
    let why = account.no_path.expect("told");
    assert_eq!(why, NoPath::NotPermitted);
    assert!(why.to_string().contains(needs), "{why}");
    a.close().expect("closed");
    assert_eq!(receiver.join().expect("received"), sent);
}
