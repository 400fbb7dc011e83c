//! Tests that truncated, false and ungranted trains write nothing that they must not.

use super::memory::{export, put};
use super::sim::Sim;
use super::sim_trains::{
    Carriage, Follower, Merge, SEAL, Tamper, merged, merged_at_random, seal, unmerged,
};
use crate::transfer::HANDLE;
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::time::Duration;
use zerolane_wire::{
    ClearToSend, Flags, Grant, HEADER_LEN, Header, MAX_TRAIN, Op, Operation, Rights, Train,
};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// A path with much payload in flight.
fn long() -> LinkConfig {
    LinkConfig {
        delay: 2 * MS,
        rate_bits_per_s: Some(10_000_000_000),
        ..LinkConfig::default()
    }
}

fn connected(config: Config, merging: Merge) -> Sim {
    let config = Config {
        control: Control::Lan,
        ..config
    };
    Sim::with_trains(long(), 1, config, merging)
}

/// A Transfer from A to B.
fn post(sim: &mut Sim, seed: u64, length: u64) -> (TransferId, TransferId, Span) {
    let now = sim.now();
    let source = sim.a.filled(seed, length);
    let target = sim.b.empty(length);
    let receive = sim.b.c().post_receive(now, target).unwrap();
    let send = sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    (send, receive, target)
}

/// How a Transfer ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Early {
    SourceCancels,
    ReceiverCancels,
    SourceCloses,
    ReceiverCloses,
}

/// Ends the first of two Transfers, or both, with trains of both in flight.
fn end_early(merging: Merge, early: Early) {
    let mut sim = connected(Config::default(), merging);
    let (send, receive, target) = post(&mut sim, 1, 16 << 20);
    let (_, other, other_target) = post(&mut sim, 2, 20 << 20);
    sim.run_until(S, |sim| sim.b.placed > 4 << 20);
    let now = sim.now();
    let closes = matches!(early, Early::SourceCloses | Early::ReceiverCloses);
    match early {
        Early::SourceCancels => assert!(sim.a.c().cancel(now, send)),
        Early::ReceiverCancels => assert!(sim.b.c().cancel(now, receive)),
        Early::SourceCloses => sim.a.c().close(now),
        Early::ReceiverCloses => sim.b.c().close(now),
    }
    if early != Early::ReceiverCancels {
        sim.run_until(S, |sim| sim.b.failed(receive).is_some());
    }
    sim.b.freeze(target);
    if closes {
        sim.b.freeze(other_target);
    } else {
        sim.run_until(10 * S, |sim| sim.b.received(other).is_some());
        assert!(sim.b.holds(other_target, 2, 20 << 20));
    }
    sim.run_for(5 * S);
    sim.b.assert_frozen();
    sim.b.assert_guards();
    sim.b.c().assert_bounded();
    assert!(!sim.b.c().expects_trains());
    assert!(sim.b.c().counters().trains_received > 50);
    if early == Early::ReceiverCancels {
        // They came when it was over, while others were awaited.
        let trains = sim.b.trains.as_ref().expect("trains");
        assert!(trains.unplaced > 0);
        assert!(sim.b.c().counters().dropped(DropReason::NoGrant) > 0);
    }
}

#[test]
fn ended__with_trains_in_flight_nothing_is_written_any_more() {
    for merging in [unmerged, merged, merged_at_random] {
        for early in [
            Early::SourceCancels,
            Early::ReceiverCancels,
            Early::SourceCloses,
            Early::ReceiverCloses,
        ] {
            end_early(merging, early);
        }
    }
}

#[test]
fn revoked__with_trains_in_flight_nothing_is_written_any_more() {
    for others in [false, true] {
        let mut sim = connected(Config::default(), merged);
        let target = sim.b.empty(8 << 20);
        let place = export(&mut sim, target, Rights::WRITE);
        let id = put(&mut sim, place, 9, 8 << 20, None);
        let other = others.then(|| post(&mut sim, 2, 8 << 20));
        sim.run_until(S, |sim| sim.b.placed > 3 << 20);
        let now = sim.now();
        assert!(sim.b.c().revoke(now, place.handle));
        sim.b.freeze(target);
        sim.run_until(S, |sim| sim.a.outcomes(id) > 0);
        assert!(!sim.a.sent(id));
        sim.run_for(5 * S);
        sim.b.assert_frozen();
        sim.b.assert_guards();
        sim.b.c().assert_bounded();
        if let Some((_, receive, target)) = other {
            assert!(sim.b.received(receive).is_some());
            assert!(sim.b.holds(target, 2, 8 << 20));
        }
    }
}

/// A Transfer whose trains are all lost. Returns the header of the first as well.
fn granted(config: Config, length: u64) -> (Sim, TransferId, Span, Header) {
    let mut sim = connected(config, merged);
    let (_, receive, target) = post(&mut sim, 1, length);
    let mut follower = Follower::default();
    let lose: Tamper = Box::new(move |bytes| match follower.follow(bytes) {
        Some(_) => vec![],
        None => vec![bytes.to_vec()],
    });
    sim.b.trains.as_mut().expect("trains").tamper = Some(lose);
    sim.run_until(S, |sim| {
        !sim.a.trains.as_ref().expect("trains").left.is_empty()
    });
    let header = sim.a.trains.as_ref().expect("trains").left[0];
    (sim, receive, target, header)
}

/// B has no place for the train of `header`.
#[track_caller]
fn dropped(sim: &mut Sim, header: &Header, why: DropReason) {
    assert_eq!(sim.b.c().claim_train(header), Err(why), "{header:?}");
}

#[test]
fn hostile__headers_of_trains() {
    let (mut sim, receive, target, header) = granted(Config::default(), 1 << 20);
    let malformed = [
        Train::data(&header),
        Header { s_id: 0, ..header },
        Header {
            s_id: MAX_TRAIN + 1,
            ..header
        },
        Header { param: 2, ..header },
        Header {
            op: Op::ClearToSend,
            ..header
        },
    ];
    for header in malformed {
        dropped(&mut sim, &header, DropReason::Malformed);
    }
    for other in [
        Flags::EAGER,
        Flags::FRAMES,
        Flags::MEMORY,
        Flags::MESSAGE,
        Flags::CONTINUES,
    ] {
        let flags = header.flags.with(other);
        dropped(&mut sim, &Header { flags, ..header }, DropReason::Malformed);
    }
    let (d_key, d_port) = (header.d_key ^ 1, header.d_port ^ 1);
    dropped(&mut sim, &Header { d_key, ..header }, DropReason::WrongKey);
    dropped(&mut sim, &Header { d_port, ..header }, DropReason::WrongKey);
    let (b_id, b_num) = (header.b_id ^ 1, header.b_num + 7);
    dropped(&mut sim, &Header { b_id, ..header }, DropReason::NoGrant);
    dropped(&mut sim, &Header { b_num, ..header }, DropReason::NoGrant);
    // Another Transfer; exported memory, or none; messages.
    for d_id in [0, header.d_id + 1, HANDLE, HANDLE | header.d_id, u32::MAX] {
        dropped(&mut sim, &Header { d_id, ..header }, DropReason::NoGrant);
    }
    let out = [
        (header.bufx + 1, header.offset),
        (header.bufx, u32::MAX),
        (header.bufx, header.offset + (1 << 20)),
        (header.bufx, header.offset - 1),
        (u32::MAX, header.offset),
    ];
    for (bufx, offset) in out {
        let it = Header {
            bufx,
            offset,
            ..header
        };
        dropped(&mut sim, &it, DropReason::OutOfBounds);
    }
    sim.b.trains.as_mut().expect("trains").tamper = None;
    sim.run_until(10 * S, |sim| sim.b.received(receive).is_some());
    assert!(sim.b.holds(target, 1, 1 << 20));
    dropped(&mut sim, &header, DropReason::NoGrant);
    sim.b.assert_guards();
}

#[test]
fn hostile__a_train_of_which_some_is_there() {
    let (mut sim, _, target, header) = granted(Config::default(), 1 << 20);
    let now = sim.now();
    // A few bytes of it come with a header.
    let middle = Train::data(&Header {
        offset: header.offset + 1_000,
        flags: header.flags.with(Flags::SILENT),
        ..header
    });
    let placement = sim.b.c().on_data(now, &middle, 8, 8, None);
    assert_eq!(placement, Placement::Move(target.part(1_000, 8)));
    let part = |start: u32, len: u32| Header {
        offset: header.offset + start,
        s_id: len,
        ..header
    };
    for (start, len) in [(0, header.s_id), (0, 1_001), (1_000, 8), (1_007, 5_000)] {
        dropped(&mut sim, &part(start, len), DropReason::Duplicate);
    }
    // The bytes beside it have their places.
    for (start, len) in [(0, 1_000), (1_008, 5_000)] {
        let it = part(start, len);
        let claim = sim.b.c().claim_train(&it).expect("a place");
        assert_eq!(claim.span(), target.part(start.into(), len.into()));
        assert_eq!(sim.b.c().on_train(now, &it, claim, 1_472), Ok(()));
        // The claim does not hold twice, nor does the header find another.
        let again = sim.b.c().on_train(now, &it, claim, 1_472);
        assert_eq!(again, Err(DropReason::Duplicate));
        dropped(&mut sim, &it, DropReason::Duplicate);
    }
    sim.b.c().assert_bounded();
}

/// A train's header stands in front of payload, as if it were Data.
#[test]
fn hostile__a_train_s_header_in_front() {
    let (mut sim, receive, target, header) = granted(Config::default(), 1 << 20);
    let now = sim.now();
    let placement = sim.b.c().on_data(now, &header, 1_424, 1_424, None);
    assert_eq!(placement, Placement::Drop(DropReason::Unexpected));
    let payload = [0x66; 1_424];
    let header = header.emit();
    let datagram = [&header[..], &payload, &seal(&header, &payload)].concat();
    sim.b.trains.as_mut().expect("trains").tamper = None;
    assert!(sim.b.c().expects_trains());
    for _ in 0..200 {
        sim.inject(Side::B, &datagram);
        sim.run_for(MS / 10);
    }
    sim.run_until(10 * S, |sim| sim.b.received(receive).is_some());
    assert!(sim.b.holds(target, 1, 1 << 20));
    let before = sim.b.c().counters().dropped(DropReason::Unexpected);
    sim.b.freeze(target);
    sim.inject(Side::B, &datagram);
    sim.run_for(MS);
    // No train is expected: it is an operation like any other.
    let after = sim.b.c().counters().dropped(DropReason::Unexpected);
    assert_eq!(after, before + 1);
    sim.b.assert_frozen();
    sim.b.assert_guards();
}

/// A header that states less, or more, than the bytes in front of it.
#[test]
fn hostile__lengths_that_disagree() {
    let cases: [(i32, Merge); 4] = [
        (-1_000, merged),
        (1_000, merged),
        (-1, unmerged),
        (1, unmerged),
    ];
    for (more, merging) in cases {
        let mut sim = connected(Config::default(), merging);
        let mut follower = Follower::default();
        let lie: Tamper = Box::new(move |bytes| {
            let mut bytes = bytes.to_vec();
            if let Some(Carriage { last: true, .. }) = follower.follow(&bytes) {
                let at = bytes.len() - SEAL - HEADER_LEN;
                let header = Header::parse(&bytes[at..]).expect("a header");
                let s_id = header.s_id.wrapping_add_signed(more).min(MAX_TRAIN);
                bytes[at..at + HEADER_LEN].copy_from_slice(&Header { s_id, ..header }.emit());
            }
            vec![bytes]
        });
        sim.b.trains.as_mut().expect("trains").tamper = Some(lie);
        let (_, receive, target) = post(&mut sim, 1, 2 << 20);
        sim.run_until(20 * S, |sim| sim.b.received(receive).is_some());
        assert!(sim.b.holds(target, 1, 2 << 20));
        sim.b.assert_guards();
        assert_eq!(sim.b.c().counters().trains_received, 0);
        let trains = sim.b.trains.as_ref().expect("trains");
        assert!(trains.spoiled + trains.incomplete + trains.unplaced > 10);
    }
}

#[test]
fn hostile__datagrams_of_one_byte_where_none_go_together() {
    let config = Config {
        burst_segments: 1,
        block: 30_000,
        window: 100_000,
        eager_limit: 0,
        ..Config::default()
    };
    let (mut sim, receive, target, header) = granted(config, 1 << 20);
    let now = sim.now();
    let first = Train::data(&Header {
        flags: header.flags.with(Flags::SILENT),
        ..header
    });
    let placement = sim.b.c().on_data(now, &first, 1, 1, None);
    assert_eq!(placement, Placement::Move(target.part(0, 1)));
    // The rest of its Block, which does not show the length of others.
    let rest = Train::data(&Header {
        offset: header.offset + 1,
        flags: Flags::TRAIN,
        ..header
    });
    let len = header.s_id - 1;
    let placement = sim.b.c().on_data(now, &rest, len, len, None);
    assert_eq!(placement, Placement::Move(target.part(1, len.into())));
    for (offset, byte) in (0..).zip(sim.b.bytes_mut(target.part(0, header.s_id.into()))) {
        *byte = super::sim::content(1, offset);
    }
    sim.b.trains.as_mut().expect("trains").tamper = None;
    sim.run_until(60 * S, |sim| sim.b.received(receive).is_some());
    assert!(sim.b.holds(target, 1, 1 << 20));
}

/// Not even where the receiver's grant crosses a boundary.
#[test]
fn hostile__a_grant_across_a_boundary() {
    let config = Config {
        buffer_log2: 16,
        ..Config::default()
    };
    let mut sim = connected(config, merged);
    let now = sim.now();
    let source = sim.a.filled(1, 200_000);
    let send = sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    sim.run_for(5 * MS);
    let now = sim.now();
    let grant = ClearToSend {
        block_log2: 0,
        mx: 3,
        bufx: 0,
        offset: (1 << 16) - 30_000,
        sequence: 1,
        b_num: 0,
        d_id: send,
        s_id: 9,
        grant: Some(Grant {
            transfer_offset: 0,
            length: 60_000,
            trains: true,
            blocks_complete: 0,
            advance: None,
        }),
    };
    sim.say(now, Side::B, Operation::ClearToSend(grant));
    sim.run_for(5 * MS);
    let left = &sim.a.trains.as_ref().expect("trains").left;
    let left: Vec<_> = left
        .iter()
        .map(|it| (it.bufx, it.offset, it.s_id))
        .collect();
    let first = (0, (1 << 16) - 30_000, 30_000);
    assert_eq!(left, [first, (1, 0, 30_000)]);
}
