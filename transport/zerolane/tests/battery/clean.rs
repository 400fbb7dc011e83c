//! Tests that deterministic counts, strict mode, offloads and small buffers hold where nothing is lost.

use crate::content;
use crate::drive::{PATIENCE, both, next, receive_all, send_all, transfer, transfer_by_turns};
use crate::path::{Pair, Path, plain};
use std::time::{Duration, Instant};
use zerolane::counters::{Account, MoveCause};
use zerolane::failure::TransferError;
use zerolane::request::{Message, ReceiveMessage};
use zerolane::{Error, ExportedRegion, FetchOp, Options, Region, Rights};

const MIB: u64 = 1 << 20;

/// Payload that fits the smallest default receive buffer of an ordinary user: the kernel counts 208 KiB twice, and a
/// third of that is payload. If an end is suspended on a busy machine, the path looks long. This bound keeps the grants
/// small even then.
const HELD: u32 = 140_000;

/// The counts of bulk one way.
struct Counts {
    bytes: u64,
    sender: Account,
    receiver: Account,
}

/// The counts of the first run in which neither end repeated anything and the socket's buffer did not overflow, or of the
/// last run: a busy machine may suspend the thread, or what carries the packets, for longer than an end waits.
fn undisturbed(path: Path, options: &Options) -> Option<Counts> {
    const PIECE: usize = 4 << 20;
    let runs = [(16, 4), (1, 40)].map(|(pieces, times)| std::iter::repeat_n(pieces, times));
    let mut last = None;
    for pieces in runs.into_iter().flatten() {
        let mut pair = path.connect(options)?;
        // Path probes settle meanwhile.
        transfer(&mut pair, 1, &[1000]);
        transfer_by_turns(&mut pair, 2, &vec![PIECE; pieces]).expect("connected");
        let (sender, receiver) = (pair.a.account(), pair.b.account());
        let repeats = sender.protocol.timeouts + receiver.protocol.timeouts;
        let quiet = repeats + receiver.dropped_socket_buffer == 0;
        last = Some(Counts {
            bytes: (pieces * PIECE) as u64,
            sender,
            receiver,
        });
        if quiet {
            break;
        }
    }
    last
}

fn assert_placed_and_sent_once(counts: &Counts) {
    let Counts {
        bytes,
        sender,
        receiver,
    } = counts;
    assert_eq!(receiver.protocol.bytes_received, bytes + 1000);
    let moved = receiver.bytes_moved();
    assert!(moved * 1000 <= *bytes, "{moved} bytes moved: {receiver:#?}");
    assert!(receiver.bytes_placed * 1000 >= 999 * bytes, "{receiver:#?}");
    assert_eq!(sender.protocol.bytes_resent, 0, "{sender:#?}");
    assert_eq!(receiver.dropped_socket_buffer, 0);
    assert_eq!(receiver.dropped_truncated, 0);
    assert_eq!(sender.dropped_on_send, 0);
    assert_eq!(receiver.protocol.dropped_total(), 0, "{receiver:#?}");
}

#[test]
fn gate__loopback_places_all_and_repeats_nothing() {
    for options in [Options::default(), plain()] {
        let counts = undisturbed(Path::LoopbackV4, &options);
        assert_placed_and_sent_once(&counts.expect("always permitted"));
    }
}

#[test]
fn gate__veth_places_all_with_few_syscalls() {
    for (mtu, base) in [1500, 9000]
        .into_iter()
        .flat_map(|mtu| [(mtu, Options::default()), (mtu, plain())])
    {
        // The value chosen on such a path, unless the machine is so busy that the path looks long.
        let options = base.with(|it| it.rate.control = zerolane::options::Control::Lan);
        let Some(counts) = undisturbed(Path::Veth(mtu), &options) else {
            return;
        };
        assert_placed_and_sent_once(&counts);
        let Counts {
            bytes,
            sender,
            receiver,
        } = counts;
        assert!(sender.gso && receiver.gro, "veth has both");
        let (sent, received) = (sender.tx_data_syscalls, receiver.rx_data_syscalls);
        let most = 20 * (bytes / MIB);
        // Payload given to the kernel takes two calls.
        let given = 20 * (sender.bytes_sent_zerocopy / MIB);
        assert!(sent <= most + given, "{sent} data sends for {bytes} bytes");
        assert!(
            received <= most,
            "{received} data receives for {bytes} bytes"
        );
    }
}

/// Transfers as [`transfer_by_turns`]. Returns whether b's strict mode ended the connection.
fn ends_by_turns(pair: &mut Pair, lengths: &[usize]) -> bool {
    if transfer_by_turns(pair, 2, lengths).is_ok() {
        return false;
    }
    let end = loop {
        match pair.b.poll() {
            Ok(left) => assert!(left.is_some(), "a alone ended it"),
            Err(end) => break end,
        }
    };
    assert!(matches!(end, Error::Strict { .. }), "{end:?}");
    true
}

/// The counts of bulk one way in strict mode, and whether strict mode ended the connection.
fn strict_bulk(path: Path, strict: &Options) -> Option<(Account, Account, bool)> {
    const COUNT: usize = 16;
    const LEN: usize = 4 << 20;
    let mut pair = path.connect(strict)?;
    let mut ended = ends_by_turns(&mut pair, &[1000]);
    // Lets both ends measure the path, so that the STU size does not change later.
    let settles = |end: &mut zerolane::Connection| {
        let give_up = Instant::now() + PATIENCE;
        while end.account().stu < 1400 {
            assert!(Instant::now() < give_up, "{:#?}", end.account());
            end.wait(Some(Duration::from_millis(2))).expect("connected");
        }
    };
    if !ended {
        both(&mut pair, settles, settles);
        ended = ends_by_turns(&mut pair, &[LEN; COUNT]);
    }
    Some((pair.a.account(), pair.b.account(), ended))
}

#[test]
fn strict__passes_on_a_clean_path() {
    const TRIES: usize = 20;
    for base in [Options::default(), plain()] {
        let strict = base.with(|it| {
            it.strict = true;
            it.flow.max_in_flight = HELD;
        });
        for path in [Path::LoopbackV4, Path::LoopbackV6, Path::Veth(1500)] {
            // An end repeats something if what carries the packets was suspended.
            let passes = || match strict_bulk(path, &strict) {
                Some((a, b, true)) => {
                    let repeats = a.protocol.timeouts + b.protocol.timeouts;
                    assert!(repeats > 0, "{path:?} {b:#?}");
                    false
                }
                Some((_, b, false)) => {
                    assert_eq!(b.bytes_moved(), 0);
                    true
                }
                None => true,
            };
            assert!((0..TRIES).any(|_| passes()), "{path:?}");
        }
    }
}

/// Payload copied although a forecast could have placed it: that of Transfers.
fn missed(account: &Account) -> u64 {
    account.bytes_moved() - account.moved(MoveCause::Unannounced)
}

#[test]
fn strict__ends_the_connection_where_a_copy_is_needed() {
    for base in [Options::default(), plain()] {
        for (path, len) in [
            (Path::Lossy(0.05), 4 << 20),
            // STUs of 1184 bytes, encrypted: shorter than the longest small put.
            (Path::LossyNarrow(0.05), 4 << 20),
            // At most one datagram, and still a Transfer.
            (Path::Lossy(0.05), 1000),
            (Path::LossyNarrow(0.05), 8),
        ] {
            strict_ends_where_a_copy_is_needed(path, &base, len);
        }
    }
}

fn strict_ends_where_a_copy_is_needed(path: Path, base: &Options, len: usize) {
    let strict = base.clone().with(|it| it.strict = true);
    let posted = if len > 1 << 20 { 2 } else { 16 };
    let pair = path.connect_with(base, &strict);
    let mut pair = pair.expect("always permitted");
    let receives = |b: &mut zerolane::Connection| {
        let expect = |b: &mut zerolane::Connection| {
            let region = Region::anonymous(len).expect("memory");
            b.post_recv(region).is_ok()
        };
        assert!((0..posted).all(|_| expect(b)));
        let end = Instant::now() + PATIENCE;
        let (mut strict, mut completions) = (false, 0);
        loop {
            assert!(Instant::now() < end);
            match b.wait(Some(PATIENCE)).map(zerolane::Waited::got) {
                Err(Error::Strict { bytes }) => strict = bytes > 0,
                Err(Error::Closed(_)) => break,
                Err(other) => panic!("{other}"),
                Ok(None) => {}
                // A completed Transfer has the right content. If all of it was in place, the next one is tested.
                Ok(Some(it)) if it.result.is_ok() => {
                    content::verify(3, &it.into_region().expect("a region"));
                    assert!(
                        strict || missed(&b.account()) == 0,
                        "copied: {:#?}",
                        b.account()
                    );
                    expect(b);
                }
                Ok(Some(it)) => {
                    assert!(matches!(it.result, Err(TransferError::Closed(_))), "{it:?}");
                    completions += 1;
                }
            }
        }
        assert!(strict && completions > 0);
    };
    let sends = |a: &mut zerolane::Connection| {
        let end = Instant::now() + 2 * PATIENCE;
        while Instant::now() < end {
            while a.in_flight() < posted && a.post_send(content::region(3, len)).is_ok() {}
            if a.wait(Some(PATIENCE)).is_err() {
                return;
            }
        }
        panic!("nothing missed its place");
    };
    both(&mut pair, sends, receives);
}

/// Payload that fits one datagram comes unannounced, so it cannot be forecast, and is copied once.
#[test]
fn strict__permits_small_operations() {
    for base in [Options::default(), plain()] {
        let strict = base.with(|it| it.strict = true);
        let pair = Path::LossyNarrow(0.05).connect(&strict);
        let mut pair = pair.expect("always permitted");
        let memory = ExportedRegion::new(Region::anonymous(4096).expect("memory"));
        let memory = memory.expect("aligned");
        let exported = pair.b.export_named("m", &memory, Rights::ALL);
        exported.expect("exported");
        let owns = |b: &mut zerolane::Connection| {
            for n in 0..32 {
                b.post(ReceiveMessage::new()).expect("posted");
                let completion = next(b);
                assert_eq!(completion.result, Ok(0));
                assert_eq!(completion.control(), Some(&[n; 100][..]));
            }
        };
        let uses = |a: &mut zerolane::Connection| {
            let key = a.open_region("m", Rights::ALL).expect("there");
            for n in 0..32 {
                a.put(&key, 8, &[n; 1000]).expect("put");
                let mut back = [0; 1000];
                a.get(&key, 8, &mut back).expect("got");
                assert_eq!(back, [n; 1000]);
                let before = a.fetch_op(&key, 2048, FetchOp::Add(1)).expect("counted");
                assert_eq!(before, u64::from(n));
                let sent = a.post(Message::new(&[n; 100]));
                sent.expect("posted");
                assert_eq!(next(a).result, Ok(0));
            }
            let got = a.account().moved(MoveCause::Unannounced);
            assert_eq!((got, missed(&a.account())), (32_000, 0));
        };
        both(&mut pair, uses, owns);
        let account = pair.b.account();
        assert_eq!(account.moved(MoveCause::Unannounced), 32 * (1000 + 100));
        assert_eq!(missed(&account), 0);
        let mut there = [0; 1000];
        memory.read(8, &mut there);
        assert_eq!(there, [31; 1000]);
    }
}

#[test]
fn offloads__every_combination_by_option() {
    for path in [Path::LoopbackV4, Path::Veth(1500), Path::VethV6(9000)] {
        let on = [(false, false), (false, true), (true, false), (true, true)];
        let ways = on.map(|on| [(on, Options::default()), (on, plain())]);
        for ((gso, gro), base) in ways.into_iter().flatten() {
            let options = base.with(|it| {
                it.datagrams.gso = gso;
                it.datagrams.gro = gro;
                it.flow.max_in_flight = HELD;
            });
            let Some(mut pair) = path.connect(&options) else {
                continue;
            };
            transfer(&mut pair, 4, &[3 << 20, 1, 100_000]);
            assert_eq!((pair.a.account().gso, pair.b.account().gro), (gso, gro));
            let (a, b) = (pair.a.account(), pair.b.account());
            // A repeated datagram may meet its first copy, which a busy machine has left in the socket.
            let timeouts = a.protocol.timeouts + b.protocol.timeouts;
            assert!(b.dropped_socket_buffer <= timeouts, "{path:?}: {b:#?}");
        }
    }
}

#[test]
fn receive_buffer__small_is_never_overrun() {
    for (path, gro) in [
        (Path::LoopbackV4, true),
        (Path::Veth(1500), true),
        (Path::Veth(1500), false),
        (Path::Veth(9000), false),
    ] {
        let small = Options::default().with(|it| {
            it.flow.receive_buffer = 64 << 10;
            // A path may look long on a busy machine, and would get more.
            it.flow.max_in_flight = 43_000;
            it.datagrams.gro = gro;
        });
        let Some(mut pair) = path.connect(&small) else {
            continue;
        };
        let lengths = [1 << 20; 4];
        let receives = |b: &mut zerolane::Connection| {
            // Everything granted meanwhile waits in the socket.
            for (seed, &len) in (5..).zip(&lengths) {
                receive_all(b, seed, &[len]);
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        both(&mut pair, |a| send_all(a, 5, &lengths), receives);
        let account = pair.b.account();
        // A datagram repeated after a timeout may meet its first copy, which a busy machine has left in the socket.
        assert!(
            account.dropped_socket_buffer <= account.protocol.timeouts,
            "{path:?}: {account:#?}"
        );
    }
}

#[test]
fn shared__one_memory_sent_many_times() {
    let pair = Path::LoopbackV4.connect(&Options::default());
    let Pair { mut a, mut b, net } = pair.expect("always permitted");
    let shared = content::region(6, 300_000).share();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..10 {
                a.post_send(shared.clone()).expect("posted");
            }
            a.close().expect("delivered");
        });
        for _ in 0..10 {
            b.post_recv(Region::anonymous(300_000).expect("memory"))
                .expect("posted");
        }
        for _ in 0..10 {
            let completion = next(&mut b);
            assert_eq!(completion.result, Ok(300_000));
            content::verify(6, &completion.into_region().expect("a region"));
        }
        // Answers the disconnection.
        let _ = b.wait(Some(PATIENCE)).map(zerolane::Waited::got);
    });
    drop(net);
}
