//! Tests that forbidden operations on persistent memory are refused, from honest and hostile peers.

use super::memory::{S, at, atomic, export, fetch, get, put, quiet, until_over};
use super::sim::Sim;
use crate::*;
use netsim::Side;
use zerolane_wire::{
    FetchOp, FetchOpKind, Flags, HEADER_LEN, Header, Op, Operation, Packet, Reason, Rights, Route,
};

const ADD: Atomic = atomic(FetchOpKind::Add, 1, 0);

/// Posts operations of all kinds at `place`, and checks that all fail for `reason`, once, and change nothing.
fn all_refused(sim: &mut Sim, place: RemotePlace, length: u64, reason: Reason) {
    let ids = [
        put(sim, place, 1, length, None),
        put(sim, place, 1, length + 5_000, Some(7)),
        get(sim, place, length).0,
        get(sim, place, length + 5_000).0,
        fetch(sim, at(place, place.address & !7), ADD),
    ];
    for id in ids {
        until_over(sim, id);
        let error = TransferError::Refused(reason);
        assert_eq!((sim.a.outcomes(id), sim.a.failed(id)), (1, Some(error)));
    }
    sim.b.assert_frozen();
}

/// Puts still come through.
fn still_works(sim: &mut Sim) {
    let target = sim.b.empty(100);
    let place = export(sim, target, Rights::ALL);
    let id = put(sim, place, 4, 100, None);
    until_over(sim, id);
    assert!(sim.a.sent(id) && sim.b.holds(target, 4, 100));
}

fn frozen(sim: &mut Sim, rights: Rights) -> RemotePlace {
    let span = sim.b.filled(3, 4_096);
    sim.b.freeze(span);
    export(sim, span, rights)
}

#[test]
fn refused__outside_the_region() {
    let mut sim = quiet(Config::default());
    let place = frozen(&mut sim, Rights::ALL);
    all_refused(&mut sim, at(place, 4_096), 8, Reason::OutOfBounds);
    all_refused(
        &mut sim,
        at(place, u64::from(u32::MAX)),
        8,
        Reason::OutOfBounds,
    );
    let partly = put(&mut sim, at(place, 4_090), 1, 7, None);
    until_over(&mut sim, partly);
    assert_eq!(
        sim.a.failed(partly),
        Some(TransferError::Refused(Reason::OutOfBounds))
    );
    sim.b.assert_frozen();
    still_works(&mut sim);
}

#[test]
fn refused__without_the_right() {
    let mut sim = quiet(Config::default());
    let place = frozen(&mut sim, Rights::NONE);
    all_refused(&mut sim, place, 8, Reason::Denied);
    still_works(&mut sim);
}

#[test]
fn refused__revoked_stale_and_unknown_handles() {
    let mut sim = quiet(Config::default());
    let place = frozen(&mut sim, Rights::ALL);
    let now = sim.now();
    sim.b.c().revoke(now, place.handle);
    all_refused(&mut sim, place, 8, Reason::Revoked);
    let next = frozen(&mut sim, Rights::ALL);
    assert_ne!(next.handle, place.handle);
    all_refused(&mut sim, place, 8, Reason::Revoked);
    let wrong = [
        RemotePlace {
            mx: place.mx,
            ..next
        },
        RemotePlace {
            handle: next.handle ^ 1 << 22,
            ..next
        },
        RemotePlace {
            handle: next.handle + 200,
            mx: next.mx.wrapping_add(200),
            ..next
        },
    ];
    for place in wrong {
        all_refused(&mut sim, place, 8, Reason::Unknown);
    }
    still_works(&mut sim);
}

#[test]
fn length__over_4_gib_and_wrap_around() {
    let mut sim = quiet(Config::default());
    let place = frozen(&mut sim, Rights::ALL);
    let region = RegionId {
        index: 0,
        generation: 1,
    };
    let huge = |len| Span {
        region,
        offset: 0,
        len,
    };
    let flags = WorkFlags::default();
    for len in [(4 << 30) + 1, 5 << 30] {
        let now = sim.now();
        let ids = [
            sim.a
                .c()
                .post_put(now, place, huge(len), None, flags)
                .unwrap(),
            sim.a.c().post_get(now, place, huge(len), flags).unwrap(),
        ];
        for id in ids {
            until_over(&mut sim, id);
            let error = TransferError::Refused(Reason::OutOfBounds);
            assert_eq!(sim.a.failed(id), Some(error));
        }
    }
    let now = sim.now();
    let far = at(place, u64::MAX - 3);
    let out = Err(PostError::OutOfBounds);
    assert_eq!(sim.a.c().post_put(now, far, huge(8), None, flags), out);
    assert_eq!(sim.a.c().post_get(now, far, huge(8), flags), out);
    let past = at(place, (1 << 62) - 8);
    assert_eq!(sim.a.c().post_fetch_op(now, past, ADD, flags), out);
    sim.b.assert_frozen();
    still_works(&mut sim);
}

#[test]
fn length__zero_is_nothing_and_checked() {
    let mut sim = quiet(Config::default());
    let place = frozen(&mut sim, Rights::ALL);
    let ids = [
        put(&mut sim, place, 1, 0, None),
        put(&mut sim, at(place, 4_096), 1, 0, None),
        get(&mut sim, place, 0).0,
    ];
    let beyond = put(&mut sim, at(place, 4_097), 1, 0, None);
    until_over(&mut sim, beyond);
    assert!(
        ids.iter()
            .all(|&id| sim.a.failed(id).is_none() && sim.a.outcomes(id) == 1)
    );
    let error = TransferError::Refused(Reason::OutOfBounds);
    assert_eq!(sim.a.failed(beyond), Some(error));
    sim.b.assert_frozen();
}

#[test]
fn fetch_op__misaligned_is_refused_here_and_malformed_there() {
    let mut sim = quiet(Config::default());
    let place = frozen(&mut sim, Rights::ALL);
    let now = sim.now();
    let flags = WorkFlags::default();
    for address in [1, 4, 7, 12] {
        let refused = sim.a.c().post_fetch_op(now, at(place, address), ADD, flags);
        assert_eq!(refused, Err(PostError::Misaligned));
    }
    let packet = Packet {
        route: route(&sim),
        operation: Operation::FetchOp(FetchOp {
            kind: FetchOpKind::Add,
            word: zerolane_wire::Word::U64,
            mx: place.mx,
            bufx: 0,
            offset: 8,
            handle: place.handle,
            s_id: 1,
            sync: 0,
            confirmed: 0,
            operand: 1,
            comparand: 0,
        }),
    };
    let (mut bytes, len) = packet.emit();
    bytes[23] = 12;
    sim.inject(Side::B, &bytes[..len]);
    sim.run_for(S);
    assert_eq!(sim.b.c().counters().dropped(DropReason::Malformed), 1);
    sim.b.assert_frozen();
}

/// Ports and key as B expects them.
fn route(sim: &Sim) -> Route {
    let sent = sim.a.connection.as_ref().unwrap().cx.route;
    Route { ..sent }
}

/// A put as A would send it.
fn forged(sim: &Sim, place: RemotePlace, number: u32, flags: Flags) -> Vec<u8> {
    let route = route(sim);
    let header = Header {
        flags,
        d_port: route.d_port,
        s_port: route.s_port,
        d_key: route.d_key,
        b_id: place.mx,
        offset: place.address as u32,
        sync: number,
        d_id: place.handle,
        s_id: 99,
        ..Header::new(Op::Data)
    };
    let mut bytes = header.emit().to_vec();
    bytes.extend_from_slice(&[0x55; 16]);
    bytes
}

#[test]
fn put__with_a_forged_key_is_not_even_looked_at() {
    let mut sim = quiet(Config::default());
    let place = frozen(&mut sim, Rights::ALL);
    let mut datagram = forged(&sim, place, 0, Flags::SILENT);
    datagram[8] ^= 1;
    sim.inject(Side::B, &datagram);
    sim.run_for(S);
    assert_eq!(sim.b.c().counters().dropped(DropReason::WrongKey), 1);
    assert_eq!(sim.spoken(), "", "and not answered");
    sim.b.assert_frozen();
}

#[test]
fn put__numbers_that_are_not_expected_write_nothing() {
    let mut sim = quiet(Config::default());
    let place = frozen(&mut sim, Rights::ALL);
    for number in [1, 2, 1000, u32::MAX / 2, u32::MAX, u32::MAX - 7] {
        for flags in [Flags::SILENT, Flags::SEND_STATE, Flags::INTERRUPT] {
            let datagram = forged(&sim, place, number, flags);
            sim.inject(Side::B, &datagram);
            sim.run_for(S / 100);
        }
    }
    sim.b.assert_frozen();
    sim.b.c().assert_bounded();
    still_works(&mut sim);
}

/// A put says how many of its bytes follow; those that come for another region, or are too few, do not complete it.
#[test]
fn put__continued_as_it_did_not_say_shows_nothing() {
    let continued = Flags::CONTINUES.with(Flags::INTERRUPT);
    for (other, rest, told) in [(false, 16, 1), (true, 16, 0), (false, 17, 0)] {
        let mut sim = quiet(Config::default());
        let targets = [sim.b.empty(64), sim.b.empty(64)];
        let places = targets.map(|it| export(&mut sim, it, Rights::WRITE));
        let parts = [
            (places[0], Flags::SILENT, rest),
            (places[usize::from(other)], continued, 7),
        ];
        for (number, (place, flags, b_num)) in (0..).zip(parts) {
            let mut datagram = forged(&sim, at(place, 16), number, flags);
            let header = Header::parse(&datagram).expect("ours");
            datagram[..HEADER_LEN].copy_from_slice(&Header { b_num, ..header }.emit());
            sim.inject(Side::B, &datagram);
        }
        sim.run_for(S);
        let shown: Vec<_> = sim.b.immediates().collect();
        let all = [(7, places[0].handle, 32)];
        assert_eq!(shown, all[..told], "{other} {rest}");
    }
}

#[test]
fn state__that_confirms_what_was_never_sent_is_ignored() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(100);
    let place = export(&mut sim, target, Rights::ALL);
    let id = put(&mut sim, place, 1, 8, None);
    let now = sim.now();
    for expected in [1, 2, 1000, u32::MAX] {
        for resend in [false, true] {
            let state = zerolane_wire::MemoryState {
                expected,
                resend,
                trains: false,
            };
            let from_b = sim.b.connection.as_ref().unwrap().cx.route;
            let (bytes, len) = Packet {
                route: from_b,
                operation: Operation::MemoryState(state),
            }
            .emit();
            sim.a.c().on_control(now, &bytes[..len], len);
            assert_eq!(sim.a.outcomes(id), 0);
        }
    }
    until_over(&mut sim, id);
    assert!(sim.a.sent(id) && sim.b.holds(target.part(0, 8), 1, 8));
}

#[test]
fn get__answered_by_another_length_or_elsewhere_is_dropped_and_counted() {
    let mut sim = quiet(Config::default());
    let place = frozen(&mut sim, Rights::ALL);
    let (id, into) = get(&mut sim, place, 100);
    let now = sim.now();
    let route = sim.b.connection.as_ref().unwrap().cx.route;
    let reply = Header {
        d_port: route.d_port,
        s_port: route.s_port,
        d_key: route.d_key,
        d_id: id,
        ..Header::new(Op::Data)
    };
    let wrong = [
        (reply, 99),
        (reply, 101),
        (reply.with_wide(8), 100),
        (reply.with_wide(1 << 32), 100),
    ];
    for (header, len) in wrong {
        let placement = sim.a.c().on_data(now, &header, len, len, None);
        assert_eq!(placement, Placement::Drop(DropReason::OutOfBounds));
    }
    assert_eq!(sim.a.c().counters().dropped(DropReason::OutOfBounds), 4);
    until_over(&mut sim, id);
    assert!(sim.a.received(id) == Some(100) && sim.a.holds(into, 3, 100));
}
