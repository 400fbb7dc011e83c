//! Tests that a peer or an unauthenticated host that lies about paths does no harm.

use super::paths_sim::{DATAGRAM, PathsSim};
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::time::Duration;
use zerolane_wire::{MAX_PATHS, Nop, Occasion, Operation, Packet, Progress, Report, State};

fn joined() -> PathsSim {
    let link = LinkConfig {
        delay: Duration::from_millis(2),
        ..LinkConfig::default()
    };
    PathsSim::over(&[link, link], 1)
}

fn said(sim: &mut PathsSim, operation: Operation) -> Vec<u8> {
    let route = sim.a.c().cx.route;
    let (bytes, len) = Packet { route, operation }.emit();
    bytes[..len].to_vec()
}

fn unexpected(sim: &mut PathsSim) -> u64 {
    sim.b.c().counters().dropped(DropReason::Unexpected)
}

fn question(path: u8) -> Operation {
    Operation::Nop(Nop {
        send_state: true,
        path,
        sync: 5,
        ..Nop::default()
    })
}

#[test]
fn nop__of_another_path_than_it_came_by_is_dropped() {
    let mut sim = joined();
    let datagram = said(&mut sim, question(1));
    sim.deliver(Side::B, 0, datagram);
    assert_eq!(unexpected(&mut sim), 1);
}

#[test]
fn answer__about_a_path_that_is_not_there_is_dropped() {
    let mut sim = joined();
    for path in 0..MAX_PATHS {
        let answer = State {
            occasion: Occasion::Seen(u32::from(path) << 29 | 0x0fff_ffff),
            complete: false,
            unknown: false,
            blocks_complete: 0,
            b_num: 0,
            reached: 0,
            d_id: 1,
            s_id: 1,
            report: Report::Progress(Progress {
                received: u64::MAX,
                delay_us: 0,
                marked: 0,
                capable: 0,
                trains: false,
            }),
        };
        let datagram = said(&mut sim, Operation::State(answer));
        sim.deliver(Side::B, 0, datagram);
    }
    assert_eq!(unexpected(&mut sim), u64::from(MAX_PATHS), "none was sent");
    let it = sim.post(1, 1 << 20);
    sim.finish(it);
}

#[test]
fn leave__of_the_first_path_or_none_is_dropped() {
    let mut sim = joined();
    for path in [0, 5] {
        let leaves = Nop {
            leaves: true,
            path,
            ..Nop::default()
        };
        let datagram = said(&mut sim, Operation::Nop(leaves));
        sim.deliver(Side::B, 0, datagram);
    }
    assert_eq!(unexpected(&mut sim), 2);
}

#[test]
fn joins__neither_a_path_that_stands_nor_one_too_many() {
    let mut sim = joined();
    for (path, joins) in [(0, None), (1, None), (2, Some(2)), (7, Some(7))] {
        let datagram = said(&mut sim, question(path));
        assert_eq!(sim.b.c().joins(&datagram), joins, "{path}");
    }
    let datagram = said(&mut sim, question(2));
    assert_eq!(sim.a.c().joins(&datagram), None, "no Initiator is joined");
    let mut few = PathsSim::unjoined(&[LinkConfig::default()], 1);
    for path in 1..usize::from(MAX_PATHS) {
        let now = few.now();
        assert_eq!(few.a.c().add_path(now, DATAGRAM), Some(path));
    }
    let now = few.now();
    assert_eq!(few.a.c().add_path(now, DATAGRAM), None, "too many");
}

/// The network repeats datagrams, and a socket that receives for all paths of an end receives the questions of a path
/// that has been closed since.
#[test]
fn joins__no_copy_of_a_question_from_before_the_path_was_closed() {
    let mut sim = joined();
    let asks = |sync| {
        Operation::Nop(Nop {
            send_state: true,
            path: 1,
            sync,
            ..Nop::default()
        })
    };
    let leaves = |sync| {
        Operation::Nop(Nop {
            leaves: true,
            path: 1,
            sync,
            ..Nop::default()
        })
    };
    for newest in [1 << 20, 3] {
        let last = said(&mut sim, leaves(newest));
        sim.deliver(Side::B, 0, last);
        assert_eq!(sim.b.c().path_life(1), PathLife::Absent);
        for (age, joins) in [
            (0, None),
            (1, None),
            (65_535, None),
            (65_536, Some(1)),
            (1 << 31, Some(1)),
            (u32::MAX, Some(1)),
        ] {
            let datagram = said(&mut sim, asks(u32::wrapping_sub(newest, age)));
            assert_eq!(sim.b.c().joins(&datagram), joins, "{newest} - {age}");
        }
        let now = sim.now();
        sim.b.c().accept_path(now, 1, DATAGRAM, 0xdead_beef);
        // A path that is questioned, without a farewell.
        sim.b.c().select_path(1);
        let datagram = said(&mut sim, asks(newest + 9));
        sim.b.c().on_control(now, &datagram, datagram.len());
        sim.b.c().select_path(0);
        sim.b.c().remove_path(now, 1);
        assert_eq!(sim.b.c().joins(&datagram), None, "a copy");
        sim.b.c().accept_path(now, 1, DATAGRAM, 0xdead_beef);
    }
}

#[test]
fn path__that_does_not_repeat_the_nonce_carries_nothing() {
    let mut sim = joined();
    let now = sim.now();
    sim.b.c().accept_path(now, 2, DATAGRAM, 0xdead_beef);
    sim.b.c().select_path(2);
    let answer = Nop {
        reply: true,
        path: 2,
        sync: 0xdead_beee,
        ..Nop::default()
    };
    let datagram = said(&mut sim, Operation::Nop(answer));
    sim.b.c().on_control(now, &datagram, datagram.len());
    assert_eq!(sim.b.c().path_life(2), PathLife::Joining);
    // One question is all that leaves for it, however long it lasts.
    let mut questions = 0;
    while sim
        .b
        .c()
        .poll_transmit(now, BurstLimit::default())
        .is_some()
    {
        questions += 1;
    }
    assert_eq!(questions, 1);
    sim.b.c().select_path(0);
    sim.run_for(Duration::from_secs(20));
    assert_eq!(sim.b.c().path_life(2), PathLife::Absent, "it is given up");
}

#[test]
fn paths__are_one_where_an_end_knows_of_none() {
    let link = LinkConfig::default();
    let config = Config {
        paths: 8,
        ..Config::default()
    };
    let mut sim = super::sim::Sim::new(link, 1, config, Config::default());
    sim.connect();
    let now = sim.now();
    assert_eq!(sim.a.c().max_paths(), 1);
    assert_eq!(sim.a.c().add_path(now, DATAGRAM), None);
}
