//! Tests that puts of more than one datagram leave at once, as runs of numbered operations.

use super::memory::{MS, S, at, export, put, quiet, until_over};
use super::overlap::{far, time_until};
use super::seeds::{Dice, each};
use super::sim::Sim;
use crate::ExportAs;
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss};
use std::time::Duration;
use zerolane_wire::{Flags, Frames, HEADER_LEN, Header, Op, Profile, Profiles, Reason, Rights};

const EAGER: u64 = limits::MAX_EAGER_PUT;

#[test]
fn put__of_16_kib_is_there_after_half_a_round_trip() {
    for immediate in [None, Some(7)] {
        let mut sim = far();
        let target = sim.b.empty(EAGER);
        let place = export(&mut sim, target, Rights::WRITE);
        let start = sim.now();
        let id = put(&mut sim, place, 1, EAGER, immediate);
        let placed = time_until(&mut sim, |sim| sim.b.holds(target, 1, EAGER));
        assert!(placed <= Duration::from_micros(5_200), "{placed:?}");
        let shown = immediate.map(|value| (value, place.handle, EAGER));
        assert!(sim.b.immediates().eq(shown));
        until_over(&mut sim, id);
        let complete = sim.now() - start;
        assert!(complete <= Duration::from_micros(10_400), "{complete:?}");
        assert!(sim.a.sent(id) && sim.a.outcomes(id) == 1);
        sim.b.assert_guards();
    }
}

#[test]
fn put__of_one_byte_more_is_announced() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(EAGER + 1);
    let place = export(&mut sim, target, Rights::WRITE);
    let id = put(&mut sim, place, 1, EAGER, None);
    until_over(&mut sim, id);
    assert_eq!(sim.spoken().matches("RequestToSend").count(), 0);
    let id = put(&mut sim, place, 2, EAGER + 1, None);
    until_over(&mut sim, id);
    assert_eq!(sim.spoken().matches("RequestToSend").count(), 1);
    assert!(sim.b.holds(target, 2, EAGER + 1));
}

/// A put that fits a datagram is exempt: it is an operation, and never announced.
#[test]
fn limit__the_lesser_of_both_and_none_where_one_end_takes_none() {
    for (a, b, eager) in [
        (16 << 10, 4 << 10, 4 << 10),
        (4 << 10, 16 << 10, 4 << 10),
        (u32::MAX, u32::MAX, EAGER),
        (0, 16 << 10, 1000),
        (16 << 10, 0, 1000),
        // Credit counts only payload that the peer must hold.
        (100, 16 << 10, 1000),
    ] {
        let config = |eager_limit| Config {
            eager_limit,
            eager_credit: 0,
            ..Config::default()
        };
        let mut sim = Sim::new(LinkConfig::default(), 1, config(a), config(b));
        sim.connect();
        sim.run_for(S);
        sim.trace = Some(vec![]);
        let target = sim.b.empty(EAGER + 1);
        let place = export(&mut sim, target, Rights::WRITE);
        for (len, announced) in [(eager, 0), (eager.max(2000) + 1, 1)] {
            let id = put(&mut sim, place, len, len, None);
            until_over(&mut sim, id);
            assert!(sim.b.holds(target, len, len));
            let spoken = sim.spoken();
            let requests = spoken.matches("RequestToSend").count();
            assert_eq!(requests, announced, "{a} and {b}: {len} bytes");
        }
    }
}

#[test]
fn put__across_a_buffer_boundary_needs_no_announcement() {
    let tiny = |buffer_log2| Config {
        buffer_log2,
        ..Config::default()
    };
    // Pieces of 256 bytes would be 65.
    for (buffer_log2, len, announced) in [(12, 5_000, false), (8, 300, false), (8, EAGER, true)] {
        let mut sim = quiet(tiny(buffer_log2));
        let target = sim.b.empty(30_000);
        let place = export(&mut sim, target, Rights::WRITE);
        let id = put(&mut sim, at(place, 4_000), 1, len, None);
        until_over(&mut sim, id);
        assert!(sim.b.holds(target.part(4_000, len), 1, len));
        let asked = sim.spoken().contains("RequestToSend");
        assert_eq!(asked, announced, "{}", sim.spoken());
        sim.b.assert_guards();
    }
}

/// The classic profile is the thesis's: a put longer than one datagram is announced.
#[test]
fn put__classic_is_announced() {
    let mut sim = quiet(Config {
        profiles: Profiles::only(Profile::Classic),
        ..Config::default()
    });
    let target = sim.b.empty(2_000);
    let place = export(&mut sim, target, Rights::WRITE);
    let id = put(&mut sim, place, 1, 2_000, None);
    until_over(&mut sim, id);
    assert!(sim.spoken().starts_with("A RequestToSend"));
    assert!(sim.b.holds(target, 1, 2_000));
}

/// Out of bounds with its last byte: none of it is placed, nothing is shown, and everything continues.
#[test]
fn put__refused_changes_nothing_and_fails_once() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(EAGER);
    let place = export(&mut sim, target, Rights::WRITE);
    let bad = put(&mut sim, at(place, 1), 1, EAGER, Some(7));
    let good = put(&mut sim, place, 2, EAGER, None);
    let before = sim.b.bytes(target).to_vec();
    until_over(&mut sim, bad);
    assert!(sim.b.bytes(target) == before, "placed in part");
    until_over(&mut sim, good);
    let refused = TransferError::Refused(Reason::OutOfBounds);
    assert_eq!(sim.a.failed(bad), Some(refused));
    assert!(sim.a.sent(good) && sim.b.holds(target, 2, EAGER));
    sim.run_for(S);
    assert_eq!((sim.a.outcomes(bad), sim.b.is_shown(7)), (1, false));
    let refusals = sim.spoken().matches("RequestAnswer refused").count();
    assert!(refusals <= 3, "not one for each operation: {refusals}");
    sim.b.assert_guards();
}

#[test]
fn put__revoked_in_flight_fails_once() {
    let mut sim = far();
    let (target, other) = (sim.b.empty(EAGER), sim.b.empty(EAGER));
    let place = export(&mut sim, target, Rights::WRITE);
    let next = export(&mut sim, other, Rights::WRITE);
    let revoked = put(&mut sim, place, 1, EAGER, Some(7));
    let fine = put(&mut sim, next, 2, EAGER, None);
    sim.run_for(4 * MS);
    let now = sim.now();
    assert!(sim.b.c().revoke(now, place.handle));
    sim.b.freeze(target);
    until_over(&mut sim, fine);
    sim.run_for(S);
    let error = TransferError::Refused(Reason::Revoked);
    assert_eq!(sim.a.failed(revoked), Some(error));
    assert_eq!((sim.a.outcomes(revoked), sim.a.outcomes(fine)), (1, 1));
    assert!(sim.b.holds(other, 2, EAGER) && !sim.b.is_shown(7));
    sim.b.assert_frozen();
}

/// Refused, and closed before the operations ahead of it have returned their values.
#[test]
fn close__between_a_refusal_and_its_turn_fails_once() {
    let mut sim = far();
    let target = sim.b.empty(EAGER);
    let place = export(&mut sim, target, Rights::ALL);
    let bad = put(&mut sim, at(place, 1), 1, EAGER, None);
    for wait in 0..14 {
        sim.run_for(wait * MS / 10);
    }
    let now = sim.now();
    sim.a.c().close(now);
    sim.run_for(S);
    assert_eq!(sim.a.outcomes(bad), 1);
}

/// Lossy links, cancels at any moment: each put ends once, complete ones are placed, immediates are shown once and
/// behind their bytes.
#[test]
fn model__eager_puts_end_once_and_in_order() {
    each(60, |seed| {
        let mut dice = Dice::new(seed);
        let link = LinkConfig {
            delay: Duration::from_micros(dice.pick(&[20, 300, 5_000])),
            loss: Loss::Random(dice.pick(&[0.0, 0.02, 0.1])),
            duplicate: 0.1,
            queue_packets: dice.pick(&[10, 100_000]),
            rate_bits_per_s: dice.pick(&[None, Some(100_000_000)]),
            ..LinkConfig::default()
        };
        let config = Config {
            buffer_log2: dice.pick(&[10, 12, 30]),
            ..Config::default()
        };
        let mut sim = Sim::new(link, seed, config.clone(), config);
        sim.connect();
        if seed.is_multiple_of(3) {
            sim.a.c().age_operations(u32::MAX - 20);
            sim.b.c().age_operations(u32::MAX - 20);
        }
        let mut puts = vec![];
        for n in 0..40 {
            let len = dice.below(EAGER + 1);
            let target = sim.b.empty(len);
            let place = export(&mut sim, target, Rights::WRITE);
            let id = put(&mut sim, place, n, len, Some(n as u32));
            puts.push((id, target, false, place.handle));
            if dice.chance(20) {
                let index = dice.below(n + 1) as usize;
                let now = sim.now();
                puts[index].2 |= sim.a.c().cancel(now, puts[index].0);
            }
            sim.run_for(Duration::from_micros(dice.below(1_000)));
        }
        sim.run_until(200 * S, |sim| {
            puts.iter().all(|it| sim.a.outcomes(it.0) == 1)
        });
        sim.run_for(S);
        let shown: Vec<_> = sim.b.immediates().collect();
        assert!(shown.is_sorted_by(|a, b| a.0 < b.0), "{shown:?}");
        for (n, &(id, target, cancelled, handle)) in (0..).zip(&puts) {
            assert_eq!(sim.a.outcomes(id), 1);
            let there = sim.b.holds(target, n, target.len);
            let told = shown.iter().find(|it| it.0 == n as u32);
            let right = (n as u32, handle, target.len);
            assert!(told.is_none_or(|told| *told == right), "{n}: {told:?}");
            let told = told.is_some();
            assert!(cancelled || sim.a.sent(id) && there && told, "{n}");
            assert!(there || !told, "{n} was shown without its bytes");
        }
        sim.b.assert_guards();
        sim.a.c().assert_bounded();
    });
}

/// Numbered operation `number` among `datagrams`.
fn numbered(datagrams: &[(Vec<u8>, bool)], number: u32) -> Vec<u8> {
    let is = |header: &Header| header.op == Op::Data && header.sync == number && header.s_id > 0;
    let mut operations = datagrams.iter().flat_map(|it| on_their_own(&it.0));
    let found = operations.find(|(header, _)| is(header));
    let (header, payload) = found.expect("it left");
    [&header.emit()[..], &payload].concat()
}

/// The operations of a datagram.
fn on_their_own(datagram: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let header = Header::parse(datagram).expect("what we send");
    let content = &datagram[HEADER_LEN..];
    match header.op == Op::Data && header.flags.contains(Flags::FRAMES) {
        true => Frames::parse(&header, content)
            .expect("what we send")
            .map(|(header, payload)| (header, payload.to_vec()))
            .collect(),
        false => vec![(header, content.to_vec())],
    }
}

/// An operation is lost, and repeated as its number alone after the put is cancelled; the operations behind it come
/// late, unchanged.
#[test]
fn cancel__of_a_put_whose_middle_was_lost_shows_nothing() {
    // A put that is a run; and one whose immediate is a separate operation.
    for (len, long, lost, count) in [(EAGER, 0, 3, 14), (100, 100_000, 0, 2)] {
        let mut sim = far();
        let target = sim.b.empty(EAGER);
        let place = export(&mut sim, target, Rights::WRITE);
        let other = sim.b.empty(100_000);
        let behind = export(&mut sim, other, Rights::WRITE);
        if long > 0 {
            put(&mut sim, behind, 1, long, None);
        }
        let id = put(&mut sim, place, 2, len, Some(7));
        let now = sim.now();
        let first = sim.a.outgoing(now);
        assert!(sim.a.c().cancel(now, id));
        let later = now + S;
        sim.a.c().on_timeout(later);
        let again = sim.a.outgoing(later);
        for number in 0..count {
            let of = if number == lost { &again } else { &first };
            sim.inject(Side::B, &numbered(of, number));
        }
        sim.run_until(20 * S, |sim| {
            let connection = sim.a.connection.as_ref();
            !connection.is_some_and(Connection::is_busy)
        });
        sim.run_for(S);
        assert_eq!((sim.a.outcomes(id), sim.b.is_shown(7)), (1, false));
        assert!(long == 0 || sim.b.holds(other, 1, long));
    }
}

fn assert_told(event: &Event, number: u32, len: u64) {
    assert!(
        matches!(event, Event::Immediate { value, length, .. } if (*value, *length) == (number, len)),
        "{event:?} instead of {number}, {len} bytes"
    );
}

/// A disk answers reads like this, 32 at a time: data of 4 KiB, then a status that shows itself and triggers the next
/// read. The path loses nothing, so the window opens, and from then on no put is announced.
#[test]
fn puts__of_4_kib_32_at_a_time_need_no_announcements_once_the_window_is_open() {
    let mut sim = quiet(Config::default());
    sim.trace = None;
    let data = sim.b.empty(32 * 4096);
    let data = export(&mut sim, data, Rights::WRITE);
    let status = sim.b.empty(32 * 48);
    let status = export(&mut sim, status, Rights::WRITE);
    let commands = sim.a.empty(32 * 100);
    let (handle, mx) = sim
        .a
        .c()
        .export(commands, Rights::WRITE, ExportAs::Handle)
        .unwrap();
    let ask = |sim: &mut Sim, number: u32| {
        let address = u64::from(number % 32) * 100;
        let place = RemotePlace {
            handle,
            mx,
            address,
        };
        let (now, span) = (sim.now(), sim.b.filled(1, 100));
        let posted = sim
            .b
            .c()
            .post_put(now, place, span, Some(number), WorkFlags::default());
        posted.unwrap();
    };
    (0..32).for_each(|number| ask(&mut sim, number));
    let (mut answered, mut shown) = (0, 0);
    while shown < 9_000 {
        let is_news = |event: &Event| matches!(event, Event::Immediate { .. });
        sim.run_until(S, |sim| {
            sim.a.events.iter().chain(&sim.b.events).any(is_news)
        });
        for event in std::mem::take(&mut sim.a.events) {
            if is_news(&event) {
                assert_told(&event, answered, 100);
                let slot = u64::from(answered % 32);
                put(&mut sim, at(data, slot * 4096), slot, 4096, None);
                put(&mut sim, at(status, slot * 48), slot, 48, Some(answered));
                answered += 1;
            }
        }
        for event in std::mem::take(&mut sim.b.events) {
            if is_news(&event) {
                assert_told(&event, shown, 48);
                ask(&mut sim, shown + 32);
                shown += 1;
                if shown == 8_000 {
                    sim.trace = Some(vec![]);
                }
            }
        }
    }
    assert_eq!(sim.spoken().matches("RequestToSend").count(), 0);
    sim.a.c().assert_bounded();
}

/// A disk answers eight reads at once like this: everything leaves as one burst, of datagrams of one length. Each
/// status shares the last datagram of its data.
#[test]
fn puts__of_4_kib_and_their_statuses_leave_as_one_burst() {
    let mut sim = quiet(Config::default());
    let (data, status) = (sim.b.empty(8 * 4096), sim.b.empty(8 * 64));
    let (into, shown) = (
        export(&mut sim, data, Rights::WRITE),
        export(&mut sim, status, Rights::WRITE),
    );
    for slot in 0..8 {
        put(&mut sim, at(into, slot * 4096), slot, 4096, None);
        put(&mut sim, at(shown, slot * 64), slot, 64, Some(slot as u32));
    }
    let now = sim.now();
    let limit = BurstLimit {
        segments: 64,
        ..BurstLimit::default()
    };
    let burst = sim.a.c().poll_transmit(now, limit);
    let Some(Transmit::Operations(burst)) = burst else {
        panic!("{burst:?}");
    };
    assert_eq!((burst.len(), burst.segments), (8 * 5, 8 * 4));
    sim.a.c().take_back(&burst);
    sim.run_for(S);
    for slot in 0..8 {
        assert!(sim.b.holds(data.part(slot * 4096, 4096), slot, 4096));
        assert!(sim.b.holds(status.part(slot * 64, 64), slot, 64));
    }
    sim.b.assert_guards();
}

/// The prediction for a put before it is posted holds, even when the capacity for puts at once is used up.
#[test]
fn put__is_known_to_leave_at_once_before_it_is_posted() {
    let mut sim = far();
    sim.trace = Some(vec![]);
    let target = sim.b.empty(EAGER + 1);
    let place = export(&mut sim, target, Rights::WRITE);
    let announced = |sim: &mut Sim| {
        sim.run_for(MS);
        sim.spoken().matches("RequestToSend").count()
    };
    for len in [100, 4_096, EAGER] {
        let mut left = 0;
        while sim.a.c().puts_at_once(place, len) {
            put(&mut sim, place, 1, len, None);
            left += 1;
            assert!(left <= limits::MAX_UNCONFIRMED, "without end");
        }
        assert!(left > 1, "{left} of {len} bytes");
        assert_eq!(announced(&mut sim), 0, "one of {left} of {len} bytes");
        sim.run_for(S);
        sim.trace = Some(vec![]);
    }
    assert!(!sim.a.c().puts_at_once(place, EAGER + 1));
    // Behind a put that is a Transfer, a message would wait.
    put(&mut sim, place, 2, EAGER + 1, None);
    assert!(!sim.a.c().puts_at_once(place, 100));
    assert_eq!(announced(&mut sim), 1);
    sim.run_for(S);
    assert!(sim.a.c().puts_at_once(place, 100));
}
