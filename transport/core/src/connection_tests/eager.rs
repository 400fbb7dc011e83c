//! Tests that eager payload arrives, and is confirmed, without a round trip for a grant.
//!
//! Covers lost, late and repeated datagrams, cancels at either end, and a lying peer.

use super::seeds::{Dice, each};
use super::sim::{Sim, bytes_of};
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Reorder};
use std::time::Duration;
use zerolane_wire::{Header, Operation, Packet, Reason, RequestToSend, Target};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// Lengths for which a grant would cost another round trip.
const LENGTHS: [u64; 3] = [1, 4 << 10, 16 << 10];

fn link() -> LinkConfig {
    LinkConfig {
        delay: 5 * MS,
        ..LinkConfig::default()
    }
}

fn sim_with(link: LinkConfig, seed: u64, a: Config, b: Config) -> Sim {
    let mut sim = Sim::new(link, seed, a, b);
    sim.connect();
    sim.run_for(Duration::from_secs(1));
    sim.trace = Some(vec![]);
    sim
}

/// Connected over a round trip of 10 ms, idle, and recording from now on.
fn quiet() -> Sim {
    sim_with(link(), 1, Config::default(), Config::default())
}

pub(super) fn send(sim: &mut Sim, seed: u64, length: u64) -> TransferId {
    let now = sim.now();
    let source = sim.a.filled(seed, length);
    let posted = sim.a.c().post_send(now, source, Delivery::Polled);
    posted.expect("posted")
}

pub(super) fn receive(sim: &mut Sim, length: u64) -> (TransferId, Span) {
    let now = sim.now();
    let target = sim.b.empty(length);
    let posted = sim.b.c().post_receive(now, target);
    (posted.expect("posted"), target)
}

/// Runs until B has received `to` and A knows that `from` is complete. Returns the time of each.
fn timed(sim: &mut Sim, from: TransferId, to: TransferId) -> (Duration, Duration) {
    let start = sim.net.now();
    sim.run_until(Duration::from_secs(20), |sim| sim.b.received(to).is_some());
    let there = sim.net.now() - start;
    sim.run_until(Duration::from_secs(20), |sim| sim.a.sent(from));
    (there, sim.net.now() - start)
}

pub(super) fn datagrams(sim: &Sim, side: Side) -> usize {
    let all = sim.trace.iter().flatten();
    all.filter(|(sender, _)| *sender == side).count()
}

pub(super) fn assert_nothing_in_vain(sim: &mut Sim) {
    for host in [&mut sim.a, &mut sim.b] {
        let counters = *host.c().counters();
        assert_eq!(counters.grants_sent, 0);
        assert_eq!(counters.bytes_resent, 0);
        assert_eq!(counters.reports_sent, 0);
        assert_eq!(counters.timeouts, 0);
        assert_eq!(counters.dropped_total(), 0);
        assert!(host.holds.is_empty());
    }
}

#[test]
fn send__there_after_half_a_round_trip_and_known_after_one() {
    for length in LENGTHS {
        let mut sim = quiet();
        // The first, and one on a path that is known.
        for seed in 0..4 {
            let (to, target) = receive(&mut sim, length);
            let from = send(&mut sim, seed, length);
            let (there, known) = timed(&mut sim, from, to);
            assert!(there <= 5 * MS + 200 * US, "{length} bytes: {there:?}");
            assert!(known <= 10 * MS + 400 * US, "{length} bytes: {known:?}");
            assert!(sim.b.holds(target, seed, length));
        }
        assert_nothing_in_vain(&mut sim);
    }
}

#[test]
fn send__costs_its_payload_and_one_confirmation() {
    for (length, expected) in [(1, 1), (1432, 1), (4 << 10, 3), (16 << 10, 12)] {
        let mut sim = quiet();
        let (to, _) = receive(&mut sim, length);
        let from = send(&mut sim, 3, length);
        timed(&mut sim, from, to);
        sim.run_for(Duration::from_secs(1));
        assert_eq!(
            sim.spoken(),
            "A Data eager, B State complete",
            "{length} bytes"
        );
        assert_eq!(datagrams(&sim, Side::A), expected, "{length} bytes");
        assert_eq!(datagrams(&sim, Side::B), 1);
        assert_nothing_in_vain(&mut sim);
    }
}

#[test]
fn send__without_a_receive_is_held_and_there_when_one_is_posted() {
    for length in LENGTHS {
        let mut sim = quiet();
        let from = send(&mut sim, 3, length);
        sim.run_for(100 * MS);
        assert_eq!(sim.b.c().announced(), Some(length));
        assert_eq!(sim.b.holds.len(), 1);
        let (to, target) = receive(&mut sim, length);
        sim.run_for(Duration::ZERO);
        let delivery = Delivery::Polled;
        let id = to;
        assert!(
            sim.b.events.contains(&Event::Received {
                id,
                length,
                delivery
            }),
            "at once, and as its sender asked"
        );
        let (_, known) = timed(&mut sim, from, to);
        assert!(known <= 5 * MS + 200 * US, "{length} bytes: {known:?}");
        assert!(sim.b.holds(target, 3, length));
        assert_eq!(sim.b.c().counters().eager_held, 1);
        assert_nothing_in_vain(&mut sim);
    }
}

#[test]
fn message__control_and_payload_at_once() {
    for length in LENGTHS {
        let mut sim = quiet();
        let (from, to, target) = message(&mut sim, length, true);
        let start = sim.net.now();
        sim.run_until(Duration::from_secs(1), |sim| sim.b.outcomes(to) > 0);
        assert!(sim.net.now() - start <= 5 * MS + 200 * US);
        sim.run_until(Duration::from_secs(1), |sim| sim.a.outcomes(from) > 0);
        assert!(sim.net.now() - start <= 10 * MS + 400 * US);
        assert!(sim.b.holds(target, 7, length) && sim.a.sent(from));
        assert_nothing_in_vain(&mut sim);
    }
}

/// Sends a message from A to B, whose receive is posted, or posted later.
fn message(sim: &mut Sim, length: u64, posted: bool) -> (TransferId, TransferId, Span) {
    message_with(sim, 20, length, posted)
}

fn message_with(
    sim: &mut Sim,
    control: u64,
    length: u64,
    posted: bool,
) -> (TransferId, TransferId, Span) {
    let now = sim.now();
    let (control, payload) = (bytes_of(9, control), sim.a.filled(7, length));
    let flags = WorkFlags {
        signalled: true,
        ..WorkFlags::default()
    };
    let request = WorkRequest::Message {
        control: &control,
        flags,
    };
    let post_receive = |sim: &mut Sim| {
        let now = sim.now();
        let (control, target) = (sim.b.empty(128), sim.b.empty(length));
        let request = WorkRequest::ReceiveMessage { control };
        let to = sim.b.c().post(now, request, target).expect("posted");
        (to, target)
    };
    let early = posted.then(|| post_receive(sim));
    let from = sim.a.c().post(now, request, payload).expect("posted");
    let (to, target) = early.unwrap_or_else(|| {
        sim.run_for(50 * MS);
        post_receive(sim)
    });
    (from, to, target)
}

/// Sends a bare message from A.
fn send_message(sim: &mut Sim, seed: u64, length: u64) -> TransferId {
    let now = sim.now();
    let payload = sim.a.filled(seed, length);
    let flags = WorkFlags::default();
    let posted = sim.a.c().post_message(now, &[], Some(payload), flags);
    posted.expect("posted")
}

#[test]
fn read__is_answered_by_the_payload() {
    let mut sim = quiet();
    let now = sim.now();
    let source = sim.b.filled(3, 4096);
    sim.b.c().post_offer(now, source, Delivery::Polled).unwrap();
    let target = sim.a.empty(4096);
    let read = sim.a.c().post_read(now, target).unwrap();
    sim.run_until(20 * MS, |sim| sim.a.received(read) == Some(4096));
    assert_eq!(sim.spoken(), "A RequestToReceive, B Data eager");
    assert!(sim.a.holds(target, 3, 4096));
}

#[test]
fn loss__of_any_one_datagram_is_mended() {
    for length in [1, 4 << 10, 16 << 10] {
        for kind in 0..6 {
            for lost in 0..18 {
                let mut sim = quiet();
                let mut count = 0;
                sim.copies = Some(Box::new(move |_, _| {
                    count += 1;
                    usize::from(count != lost + 1)
                }));
                let (from, to, target) = exchange(&mut sim, kind, length);
                let start = sim.net.now();
                sim.run_until(Duration::from_secs(5), |sim| {
                    sim.b.outcomes(to) == 1 && sim.a.sent(from)
                });
                let took = sim.net.now() - start;
                let what = format!("{length} bytes, kind {kind}, datagram {lost} lost");
                assert!(sim.b.holds(target, 7, length), "{what}");
                assert!(took < 300 * MS, "{what}: {took:?}");
                sim.run_for(Duration::from_secs(3));
                assert_eq!((sim.a.outcomes(from), sim.b.outcomes(to)), (1, 1), "{what}");
                assert!(sim.b.holds.is_empty(), "{what}");
                sim.b.assert_guards();
            }
        }
    }
}

/// A send to a receive that is posted (0) or posted later (1), a message (2, 3), or a bare message (4, 5).
fn exchange(sim: &mut Sim, kind: u32, length: u64) -> (TransferId, TransferId, Span) {
    match kind {
        0 => {
            let (to, target) = receive(sim, length);
            (send(sim, 7, length), to, target)
        }
        1 => {
            let from = send(sim, 7, length);
            sim.run_for(50 * MS);
            let (to, target) = receive(sim, length);
            (from, to, target)
        }
        2 | 3 => message(sim, length, kind == 2),
        kind => message_with(sim, 0, length, kind == 4),
    }
}

#[test]
fn loss__of_all_of_it_is_announced_and_granted() {
    let mut sim = quiet();
    let mut count = 0;
    sim.copies = Some(Box::new(move |side, _| {
        count += usize::from(side == Side::A);
        usize::from(count > 12)
    }));
    let (to, target) = receive(&mut sim, 16 << 10);
    let from = send(&mut sim, 3, 16 << 10);
    let (there, _) = timed(&mut sim, from, to);
    assert!(there < 60 * MS, "{there:?}");
    assert!(sim.b.holds(target, 3, 16 << 10));
    let spoken = sim.spoken();
    let expected = "A Data eager, A RequestToSend, B ClearToSend 0, A Data 0, B State";
    assert!(spoken.starts_with(expected), "{spoken}");
    assert_eq!(
        sim.b.c().counters().reports_sent,
        0,
        "all of it is sent under the grant"
    );
}

#[test]
fn loss__costs_the_repair_of_what_was_lost() {
    let mut sim = quiet();
    let mut count = 0;
    sim.copies = Some(Box::new(move |side, _| {
        count += usize::from(side == Side::A);
        usize::from(count != 5)
    }));
    let (to, _) = receive(&mut sim, 16 << 10);
    let from = send(&mut sim, 3, 16 << 10);
    let (there, _) = timed(&mut sim, from, to);
    assert!(there < 20 * MS, "{there:?}");
    let a = *sim.a.c().counters();
    assert_eq!(
        a.bytes_resent,
        u64::from(sim.a.c().stu()),
        "the one that was lost"
    );
    assert_eq!(sim.b.c().counters().reports_sent, 1);
    assert_eq!(sim.b.c().counters().grants_sent, 0);
}

#[test]
fn duplicates__and_late_datagrams_change_nothing() {
    each(40, |seed| {
        let mut dice = Dice::new(seed);
        let link = LinkConfig {
            duplicate: 0.5,
            reorder: Reorder {
                probability: 0.5,
                by: dice.pick(&[MS, 30 * MS]),
            },
            ..link()
        };
        let mut sim = sim_with(link, seed, Config::default(), Config::default());
        let mut all = vec![];
        for n in 0..12 {
            let length = 8 + dice.below(16 << 10);
            let late = dice.chance(50);
            let early = (!late).then(|| receive(&mut sim, length));
            let from = send(&mut sim, n, length);
            if late {
                sim.run_for(Duration::from_micros(dice.below(40_000)));
            }
            let (to, target) = early.unwrap_or_else(|| receive(&mut sim, length));
            all.push((from, to, target, n, length));
        }
        let wanted = all.clone();
        sim.run_until(Duration::from_secs(20), |sim| {
            let mut wanted = wanted.iter();
            wanted.all(|it| sim.a.sent(it.0) && sim.b.received(it.1) == Some(it.4))
        });
        sim.run_for(Duration::from_secs(5));
        for (from, to, target, n, length) in all {
            assert!(sim.b.holds(target, n, length));
            assert_eq!((sim.a.outcomes(from), sim.b.outcomes(to)), (1, 1));
        }
        assert!(sim.b.holds.is_empty());
        sim.b.assert_guards();
    });
}

#[test]
fn cancel__at_either_end_at_every_step() {
    for (side, kind) in [
        (Side::A, 0),
        (Side::A, 1),
        (Side::B, 0),
        (Side::A, 2),
        (Side::B, 2),
        (Side::A, 4),
        (Side::B, 4),
        (Side::A, 5),
    ] {
        for steps in 0..60 {
            let mut sim = quiet();
            let (length, what) = (4 << 10, format!("{side:?}, kind {kind}, {steps} steps"));
            let (from, to, target) = match kind {
                1 | 5 => {
                    let from = match kind {
                        1 => send(&mut sim, 7, length),
                        _ => send_message(&mut sim, 7, length),
                    };
                    for _ in 0..steps {
                        sim.step(sim.net.now() + MS);
                    }
                    (from, 0, Span::EMPTY)
                }
                kind => {
                    let posted = exchange(&mut sim, kind, length);
                    for _ in 0..steps {
                        sim.step(sim.net.now() + MS);
                    }
                    posted
                }
            };
            let now = sim.now();
            let id = if side == Side::A { from } else { to };
            sim.host(side).obey_holds();
            let cancelled = sim.host(side).c().cancel(now, id);
            if cancelled && side == Side::B {
                sim.b.freeze(target);
            }
            sim.run_for(Duration::from_secs(3));
            if sim.a.outcomes(from) == 0 {
                // It waits for another receive.
                assert_eq!(side, Side::B, "{what}");
                let now = sim.now();
                assert!(sim.a.c().cancel(now, from), "{what}");
                sim.run_for(Duration::from_secs(3));
            }
            assert_eq!(sim.a.outcomes(from), 1, "{what}");
            sim.b.assert_frozen();
            if to != 0 && sim.b.received(to).is_some() {
                assert!(sim.b.holds(target, 7, length), "{what}");
            }
            // Nothing is left over: the next send matches the next receive, and all credit is back.
            if to != 0 && sim.b.outcomes(to) == 0 {
                let now = sim.now();
                assert!(sim.b.c().cancel(now, to), "{what}");
            }
            sim.run_for(Duration::from_secs(3));
            assert!(sim.b.holds.is_empty(), "{what}");
            assert!(!sim.a.c().is_busy() && !sim.b.c().is_busy(), "{what}");
            let before = sim.a.c().counters().eager_sent;
            let pairs: Vec<_> = (0..4)
                .map(|n| (send(&mut sim, n, 16 << 10), receive(&mut sim, 16 << 10), n))
                .collect();
            for (from, (to, target), n) in pairs {
                timed(&mut sim, from, to);
                assert!(sim.b.holds(target, n, 16 << 10), "{what}");
            }
            assert_eq!(sim.a.c().counters().eager_sent - before, 4, "{what}");
        }
    }
}

#[test]
fn too_large__fails_both_ends_and_the_next_one_passes() {
    let mut sim = quiet();
    let (to, target) = receive(&mut sim, 99);
    let from = send(&mut sim, 3, 4096);
    sim.run_for(50 * MS);
    let error = TransferError::MessageTooLarge {
        length: 4096,
        room: 99,
    };
    assert_eq!(sim.a.failed(from), Some(error));
    assert_eq!(sim.b.failed(to), Some(error));
    assert!(sim.b.bytes(target).iter().all(|&byte| byte == 0xee));
    assert!(sim.b.holds.is_empty());
    let (to, target) = receive(&mut sim, 4096);
    let from = send(&mut sim, 5, 4096);
    timed(&mut sim, from, to);
    assert!(sim.b.holds(target, 5, 4096));
}

#[test]
fn credit__what_is_beyond_it_is_announced() {
    let mut sim = quiet();
    let (count, length) = (40, 4096);
    let sends: Vec<TransferId> = (0..count).map(|n| send(&mut sim, n, length)).collect();
    sim.run_for(Duration::from_secs(30));
    assert_eq!(sim.a.c().counters().eager_sent, 16, "64 KiB");
    assert_eq!(sim.b.holds.len(), 16);
    assert_eq!(sim.b.c().counters().dropped(DropReason::Limit), 0);
    sim.b.c().assert_bounded();
    for (n, from) in (0..count).zip(sends) {
        let (to, target) = receive(&mut sim, length);
        timed(&mut sim, from, to);
        assert!(sim.b.holds(target, n, length), "in order");
    }
    assert!(sim.b.holds.is_empty(), "none is kept");
    // All of the credit is back.
    let (to, _) = receive(&mut sim, length);
    let from = send(&mut sim, 1, length);
    timed(&mut sim, from, to);
    assert_eq!(sim.a.c().counters().eager_sent, 17);
}

/// A live peer that answers everything else, but never confirms an eager Transfer.
#[test]
fn credit__that_never_comes_back_holds_up_nothing_else() {
    const EAGER: u64 = 16;
    let mut sim = quiet();
    let length = 4096;
    let mut posted: Vec<_> = (0..40)
        .map(|n| (receive(&mut sim, length), send(&mut sim, n, length), n))
        .collect();
    let kept: Vec<TransferId> = posted.drain(..EAGER as usize).map(|it| it.1).collect();
    let eager = kept.clone();
    sim.copies = Some(Box::new(move |side, bytes| {
        let packet = Packet::parse(bytes);
        let confirms = packet.is_ok_and(|it| match it.operation {
            Operation::State(state) => state.complete && eager.contains(&state.d_id),
            _ => false,
        });
        usize::from(side == Side::A || !confirms)
    }));
    // Without credit, Transfers are announced, granted and confirmed as usual.
    for _ in 0..3 {
        for ((to, target), from, n) in posted.drain(..) {
            timed(&mut sim, from, to);
            assert!(sim.b.holds(target, n, length));
        }
        sim.run_for(Duration::from_secs(60));
        let more = 50..62;
        posted = more
            .map(|n| (receive(&mut sim, length), send(&mut sim, n, length), n))
            .collect();
    }
    // Those are beyond the slots, of which the first is not free: they wait at this end.
    sim.run_for(Duration::from_secs(60));
    assert_eq!(sim.a.c().counters().eager_sent, EAGER, "64 KiB");
    let waiting = posted.iter().map(|it| it.1);
    let left: Vec<_> = kept.into_iter().chain(waiting).collect();
    assert!(left.iter().all(|&id| sim.a.outcomes(id) == 0));
    // The peer is asked about each stored Transfer from time to time, and no more often.
    sim.trace = Some(vec![]);
    let seconds = 600;
    sim.run_for(Duration::from_secs(seconds));
    let asked = datagrams(&sim, Side::A) as u64;
    assert!(
        asked >= seconds && asked <= seconds * (EAGER + 1),
        "{asked}"
    );
    assert!(datagrams(&sim, Side::B) as u64 <= seconds * (EAGER + 1));
    assert_eq!(sim.a.c().counters().bytes_resent, 0);
    sim.a.c().assert_bounded();
    let now = sim.now();
    sim.a.c().close_with(now, Reason::GoingAway);
    sim.run_for(Duration::from_secs(5));
    for id in left {
        assert_eq!(sim.a.outcomes(id), 1);
        let failed = sim.a.failed(id);
        assert!(matches!(failed, Some(TransferError::Closed(_))));
    }
}

#[test]
fn limit__the_lesser_of_both_and_none_where_one_end_takes_none() {
    for (a, b, eager) in [
        (16 << 10, 4 << 10, 4 << 10),
        (4 << 10, 16 << 10, 4 << 10),
        (u32::MAX, u32::MAX, 64 << 10),
        (0, 16 << 10, 0),
        (16 << 10, 0, 0),
    ] {
        let config = |eager_limit| Config {
            eager_limit,
            eager_credit: 1 << 20,
            ..Config::default()
        };
        let mut sim = sim_with(link(), 1, config(a), config(b));
        for (length, expected) in [(eager, u64::from(eager > 0)), (eager + 1, 0)] {
            let before = sim.a.c().counters().eager_sent;
            let (to, target) = receive(&mut sim, length);
            let from = send(&mut sim, 3, length);
            timed(&mut sim, from, to);
            assert!(sim.b.holds(target, 3, length));
            let sent = sim.a.c().counters().eager_sent - before;
            assert_eq!(sent, expected, "{a} and {b}: {length} bytes");
        }
    }
}

#[test]
fn stream__beside_eager_payload_is_not_thought_lost() {
    let link = LinkConfig {
        delay: MS,
        rate_bits_per_s: Some(1_000_000_000),
        queue_packets: 100_000,
        ..LinkConfig::default()
    };
    let mut sim = sim_with(link, 1, Config::default(), Config::default());
    sim.trace = None;
    let long = receive(&mut sim, 8 << 20);
    let stream = send(&mut sim, 1, 8 << 20);
    sim.run_for(10 * MS);
    let mut short = vec![];
    for n in 2..40 {
        let (to, target) = receive(&mut sim, 3000);
        let from = send(&mut sim, n, 3000);
        sim.run_for(MS);
        short.push((from, to, target, n));
    }
    timed(&mut sim, stream, long.0);
    assert!(sim.b.holds(long.1, 1, 8 << 20));
    for (from, to, target, n) in short {
        timed(&mut sim, from, to);
        assert!(sim.b.holds(target, n, 3000));
    }
    assert_eq!(sim.a.c().counters().eager_sent, 38);
    for host in [&mut sim.a, &mut sim.b] {
        let counters = *host.c().counters();
        assert_eq!(counters.bytes_resent, 0);
        assert_eq!(counters.reports_sent, 0);
        assert_eq!(counters.spurious_requests, 0);
        assert_eq!(counters.dropped_total(), 0);
    }
}

/// Sends eager Data of `len` bytes as A to B, bypassing the link.
fn inject(sim: &mut Sim, rts: RequestToSend, offset: u32, len: usize) {
    let route = sim.a.c().cx.route;
    let header = Header {
        d_port: route.d_port,
        s_port: route.s_port,
        d_key: route.d_key,
        ..rts.eager(offset)
    };
    let mut bytes = header.emit().to_vec();
    bytes.resize(bytes.len() + len, 0x77);
    sim.inject(Side::B, &bytes);
    sim.run_for(MS);
    sim.b.c().assert_bounded();
}

fn announcement(sequence: u32, length: u64) -> RequestToSend {
    RequestToSend {
        length,
        s_id: 100 + sequence,
        target: Target::Receive,
        sequence,
        send_state: true,
    }
}

fn dropped(sim: &mut Sim, reason: DropReason) -> u64 {
    sim.b.c().counters().dropped(reason)
}

#[test]
fn hostile__more_than_its_credit_is_dropped_and_granted_later() {
    let mut sim = quiet();
    for sequence in 0..8 {
        inject(&mut sim, announcement(sequence, 16 << 10), 0, 1000);
    }
    assert_eq!(sim.b.holds.len(), 4, "64 KiB");
    assert_eq!(dropped(&mut sim, DropReason::Limit), 4);
    inject(&mut sim, announcement(5, 16 << 10), 1000, 1000);
    assert_eq!(
        dropped(&mut sim, DropReason::NoGrant),
        1,
        "not kept, so not taken"
    );
    // A receive for each: Transfers that were not held are granted.
    for _ in 0..8 {
        receive(&mut sim, 16 << 10);
    }
    assert_eq!(sim.b.c().counters().grants_sent, 4);
    sim.b.obey_holds();
    assert!(sim.b.holds.is_empty());
}

#[test]
fn hostile__eager_data_that_means_nothing() {
    let mut sim = quiet();
    let (_, target) = receive(&mut sim, 4096);
    inject(&mut sim, announcement(0, 16 << 10 | 1), 0, 1000);
    assert_eq!(
        dropped(&mut sim, DropReason::Limit),
        1,
        "longer than was agreed"
    );
    inject(&mut sim, announcement(5000, 100), 0, 100);
    assert_eq!(dropped(&mut sim, DropReason::Limit), 2, "beyond the slots");
    inject(&mut sim, announcement(0, 100), 50, 51);
    assert_eq!(
        dropped(&mut sim, DropReason::Malformed),
        1,
        "beyond its own end"
    );
    let region = Target::Read(77);
    let read = RequestToSend {
        target: region,
        ..announcement(1, 100)
    };
    inject(&mut sim, read, 0, 100);
    assert_eq!(
        dropped(&mut sim, DropReason::NoGrant),
        1,
        "a Read that is none"
    );
    assert!(sim.b.bytes(target).iter().all(|&byte| byte == 0xee));
    inject(&mut sim, announcement(0, 100), 0, 60);
    let other = RequestToSend {
        length: 200,
        ..announcement(0, 100)
    };
    inject(&mut sim, other, 60, 40);
    assert_eq!(
        dropped(&mut sim, DropReason::Unexpected),
        1,
        "another length"
    );
    inject(&mut sim, announcement(0, 100), 20, 40);
    assert_eq!(dropped(&mut sim, DropReason::Duplicate), 1, "here already");
    inject(&mut sim, announcement(0, 100), 60, 40);
    assert!(sim.b.bytes(target)[..100].iter().all(|&byte| byte == 0x77));
    inject(&mut sim, announcement(0, 100), 0, 60);
    assert_eq!(dropped(&mut sim, DropReason::Duplicate), 2, "over");
    sim.b.assert_guards();
}

#[test]
fn hostile__data_for_what_is_granted_is_dropped() {
    let mut sim = quiet();
    receive(&mut sim, 4096);
    let now = sim.now();
    let rts = announcement(0, 4096);
    sim.say(now, Side::A, zerolane_wire::Operation::RequestToSend(rts));
    inject(&mut sim, rts, 0, 1000);
    assert_eq!(dropped(&mut sim, DropReason::NoGrant), 1);
    sim.b.assert_guards();
}

#[test]
fn hostile__unfinished_and_never_met_is_not_asked_for_without_end() {
    let mut sim = quiet();
    sim.a.stalled_until = Duration::from_secs(3600);
    inject(&mut sim, announcement(0, 4096), 0, 1000);
    sim.run_for(Duration::from_secs(600));
    let asked = sim.b.c().counters().reports_sent;
    assert!((1..=6).contains(&asked), "{asked} questions");
    sim.trace = Some(vec![]);
    sim.run_for(Duration::from_secs(600));
    assert_eq!(datagrams(&sim, Side::B), 0, "an idle connection is idle");
}

#[test]
fn refused__by_its_reader_frees_what_is_held() {
    let mut sim = quiet();
    let from = send(&mut sim, 3, 4096);
    sim.run_for(50 * MS);
    assert_eq!(sim.b.holds.len(), 1);
    let now = sim.now();
    sim.b.c().close_with(now, Reason::GoingAway);
    sim.run_for(Duration::from_secs(1));
    assert!(sim.b.holds.is_empty());
    assert_eq!(sim.a.outcomes(from), 1);
}

#[test]
fn confirmation__leaves_behind_an_answer_and_else_at_once() {
    let mut sim = quiet();
    let answered = |sim: &mut Sim, seed: u64| {
        let (to, _) = receive(sim, 100);
        let now = sim.now();
        let (source, target) = (sim.b.filled(seed, 100), sim.a.empty(100));
        let back = sim.a.c().post_receive(now, target).unwrap();
        let from = send(sim, seed, 100);
        sim.trace = Some(vec![]);
        sim.run_until(20 * MS, |sim| sim.b.received(to).is_some());
        let now = sim.now();
        let answer = sim.b.c().post_send(now, source, Delivery::Polled).unwrap();
        sim.run_until(20 * MS, |sim| {
            sim.a.received(back).is_some() && sim.a.sent(from)
        });
        let spoken = sim.spoken();
        sim.run_until(20 * MS, |sim| sim.b.sent(answer));
        spoken
    };
    let first = "A Data eager, B Data eager, B State complete";
    let at_once = "A Data eager, B State complete, B Data eager";
    // B's program is unknown at first; then it is seen to answer.
    assert!(answered(&mut sim, 1).starts_with(at_once));
    for seed in 2..5 {
        let spoken = answered(&mut sim, seed);
        assert!(spoken.starts_with(first), "{spoken}");
    }
    // It no longer answers: the first confirmation waits in vain, for a moment.
    for n in 0..3 {
        let (to, _) = receive(&mut sim, 100);
        let from = send(&mut sim, 9, 100);
        let (_, known) = timed(&mut sim, from, to);
        let late = if n == 0 { 20 * US } else { Duration::ZERO };
        assert!(known <= 10 * MS + 100 * US + late, "{n}: {known:?}");
    }
    assert!(answered(&mut sim, 1).starts_with(at_once));
}

/// While the first deferred Transfer asks for all, the others do not; they are no worse off once it is over.
#[test]
fn send__that_waited_behind_another_asks_soon_for_its_own_confirmation() {
    let mut sim = quiet();
    let sent = [send(&mut sim, 1, 1_000), send(&mut sim, 2, 1_000)];
    sim.run_for(500 * MS);
    let (first, _) = receive(&mut sim, 1_000);
    sim.run_until(50 * MS, |sim| sim.a.sent(sent[0]));
    assert!(sim.b.received(first).is_some());
    sim.net.link_mut(Side::B).set_up(false);
    let (second, target) = receive(&mut sim, 1_000);
    sim.run_for(MS);
    assert!(sim.b.received(second).is_some() && !sim.a.sent(sent[1]));
    sim.net.link_mut(Side::B).set_up(true);
    sim.run_until(300 * MS, |sim| sim.a.sent(sent[1]));
    assert!(sim.b.holds(target, 2, 1_000));
}
