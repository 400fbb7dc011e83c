//! Tests that the work ahead of a request is known before it is executed by other means.

use super::memory::{S, at, export, put, quiet};
use super::sim::Sim;
use crate::transfer::HANDLE;
use crate::*;
use std::time::Duration;
use zerolane_wire::Rights;

fn exported(sim: &mut Sim) -> RemotePlace {
    let target = sim.b.empty(100_000);
    export(sim, target, Rights::ALL)
}

fn ahead(sim: &mut Sim) -> Ahead {
    sim.a.c().ahead()
}

fn until_nothing(sim: &mut Sim) {
    sim.run_until(S, |sim| {
        let connection = sim.a.connection.as_ref();
        connection.is_some_and(|it| it.ahead() == Ahead::Nothing)
    });
}

#[test]
fn ahead__immediates_alone_are_notices() {
    let mut sim = quiet(Config::default());
    let place = exported(&mut sim);
    assert_eq!(ahead(&mut sim), Ahead::Nothing);
    // More than may be in flight: some wait here.
    for n in 0..2000 {
        put(&mut sim, at(place, u64::from(n)), 0, 0, Some(n));
        assert_eq!(ahead(&mut sim), Ahead::Notices);
    }
    until_nothing(&mut sim);
}

#[test]
fn ahead__all_else_is_work_until_it_is_over() {
    let mut sim = quiet(Config::default());
    let place = exported(&mut sim);
    let flags = WorkFlags::default();
    for case in 0..7 {
        put(&mut sim, place, 0, 0, Some(1));
        let (now, host) = (sim.now(), &mut sim.a);
        let (short, long) = (host.filled(1, 8), host.filled(2, 90_000));
        let atomic = Atomic {
            kind: zerolane_wire::FetchOpKind::Add,
            word: zerolane_wire::Word::U64,
            operand: 1,
            comparand: 0,
        };
        let (request, span) = match case {
            0 => (
                WorkRequest::Put {
                    place,
                    immediate: None,
                    flags,
                },
                short,
            ),
            1 => (
                WorkRequest::Put {
                    place,
                    immediate: Some(2),
                    flags,
                },
                short,
            ),
            2 => (
                WorkRequest::Put {
                    place,
                    immediate: Some(2),
                    flags,
                },
                long,
            ),
            3 => (WorkRequest::Get { place, flags }, short),
            4 => (WorkRequest::Get { place, flags }, long),
            5 => (
                WorkRequest::FetchOp {
                    place,
                    atomic,
                    flags,
                },
                Span::EMPTY,
            ),
            _ => (
                WorkRequest::OpenRegion {
                    name: [0; 32],
                    rights: Rights::READ,
                },
                Span::EMPTY,
            ),
        };
        host.c().post(now, request, span).expect("room");
        assert_eq!(ahead(&mut sim), Ahead::Work, "case {case}");
        // Notices behind it do not hide it.
        put(&mut sim, place, 0, 0, Some(3));
        assert_eq!(ahead(&mut sim), Ahead::Work, "case {case}");
        until_nothing(&mut sim);
        put(&mut sim, place, 0, 0, Some(4));
        assert_eq!(ahead(&mut sim), Ahead::Notices, "case {case}");
        until_nothing(&mut sim);
    }
}

/// A cancelled operation that already left may be executed all the same, behind everything its user was told.
#[test]
fn ahead__what_was_cancelled_is_work_until_the_peer_has_its_number() {
    let mut sim = quiet(Config::default());
    let place = exported(&mut sim);
    let id = put(&mut sim, place, 1, 8, None);
    let now = sim.now();
    while sim
        .a
        .c()
        .poll_transmit(now, BurstLimit::default())
        .is_some()
    {}
    assert!(sim.a.c().cancel(now, id));
    put(&mut sim, place, 0, 0, Some(1));
    assert_eq!(ahead(&mut sim), Ahead::Work);
    until_nothing(&mut sim);
}

/// A message waits for a receive, and the requests behind it wait with it.
#[test]
fn ahead__a_message_without_a_receive_is_work() {
    let mut sim = quiet(Config::default());
    let place = exported(&mut sim);
    let (now, payload) = (sim.now(), sim.a.filled(1, 8));
    let flags = WorkFlags::default();
    let posted = sim.a.c().post_message(now, &[], Some(payload), flags);
    posted.expect("room");
    put(&mut sim, place, 0, 0, Some(1));
    sim.run_for(Duration::from_millis(50));
    assert_eq!(ahead(&mut sim), Ahead::Work);
    let (now, host) = (sim.now(), &mut sim.b);
    let (control, target) = (host.empty(128), host.empty(8));
    let request = WorkRequest::ReceiveMessage { control };
    host.c().post(now, request, target).expect("posted");
    until_nothing(&mut sim);
}

/// Identifiers wrap at 2^31.
#[test]
fn ahead__where_identifiers_wrap() {
    let mut sim = quiet(Config::default());
    let place = exported(&mut sim);
    sim.a.c().cx.age(HANDLE - 6, 0);
    for n in 0..20 {
        put(&mut sim, place, 0, 0, Some(n));
        assert_eq!(ahead(&mut sim), Ahead::Notices, "{n}");
        put(&mut sim, place, 1, 8, None);
        assert_eq!(ahead(&mut sim), Ahead::Work, "{n}");
        put(&mut sim, place, 0, 0, Some(n));
        assert_eq!(ahead(&mut sim), Ahead::Work, "{n}");
        until_nothing(&mut sim);
    }
}
