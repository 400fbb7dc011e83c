//! Tests that every limit that a peer can reach moves a counter, and that honest peers move none.

use super::memory::{MS, S, export};
use super::sim::Sim;
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use zerolane_wire::{
    End, Get, Header, Nop, Occasion, Operation, Range, Ranges, Reason, Report, RequestToReceive,
    RequestToSend, Rights, State, Target,
};

fn connected(config: Config) -> Sim {
    let mut sim = Sim::new(LinkConfig::default(), 1, config.clone(), config);
    sim.connect();
    sim.run_for(S);
    let counters = *sim.b.c().counters();
    assert_eq!(counters.dropped(DropReason::Limit), 0);
    assert_eq!((counters.records_dropped, counters.grants_deferred), (0, 0));
    sim
}

fn limited(sim: &mut Sim) -> u64 {
    sim.b.c().counters().dropped(DropReason::Limit)
}

#[test]
fn limit__announcements_beyond_the_slots() {
    let mut sim = connected(Config::default());
    let now = sim.now();
    for sequence in 0..u32::from(limits::DEFAULT_SLOTS) + 7 {
        let announced = RequestToSend {
            length: 1000,
            s_id: 1 + sequence,
            target: Target::Receive,
            sequence,
            send_state: false,
        };
        sim.say(now, Side::A, Operation::RequestToSend(announced));
    }
    assert_eq!(limited(&mut sim), 7);
}

#[test]
fn limit__reads_of_offers_beyond_the_slots() {
    let mut sim = connected(Config::default());
    let now = sim.now();
    for sequence in 0..u32::from(limits::DEFAULT_SLOTS) + 7 {
        let read = RequestToReceive {
            capacity: 1000,
            s_id: 1 + sequence,
            sequence,
        };
        sim.say(now, Side::A, Operation::RequestToReceive(read));
    }
    assert_eq!(limited(&mut sim), 7);
}

#[test]
fn limit__questions_beyond_the_queue_of_answers() {
    let mut sim = connected(Config::default());
    let now = sim.now();
    for sync in 0..limits::MAX_CONTROL_QUEUE as u32 + 7 {
        let question = Nop {
            send_state: true,
            reply: false,
            probe: 0,
            sync,
            options: None,
            ..Nop::default()
        };
        sim.say(now, Side::A, Operation::Nop(question));
    }
    assert_eq!(limited(&mut sim), 7);
}

#[test]
fn limit__gets_beyond_the_queue_of_replies() {
    let mut sim = connected(Config::default());
    let span = sim.b.filled(1, 1 << 20);
    let place = export(&mut sim, span, Rights::ALL);
    let now = sim.now();
    for n in 0..limits::MAX_REPLIES as u32 + 7 {
        let get = Get {
            mx: place.mx,
            bufx: 0,
            offset: n * 100,
            handle: place.handle,
            s_id: 1 + n,
            return_mx: 0,
            return_bufx: 0,
            return_offset: n * 100,
            length: 100,
            after: 0,
            b_num: 0,
            numbered: false,
            repeated: false,
            trains: false,
        };
        sim.say(now, Side::A, Operation::Get(get));
    }
    assert_eq!(limited(&mut sim), 7);
}

/// B has granted A's announcement; A's datagrams of payload are held back. Returns their headers.
pub(super) fn held_back(sim: &mut Sim, length: u64) -> Vec<Header> {
    let now = sim.now();
    let target = sim.b.empty(length);
    sim.b.c().post_receive(now, target).expect("posted");
    let source = sim.a.filled(7, length);
    let posted = sim.a.c().post_send(now, source, Delivery::Polled);
    posted.expect("posted");
    for _ in 0..4 {
        for (bytes, is_data) in sim.a.outgoing(now) {
            assert!(!is_data);
            sim.b.c().on_control(now, &bytes, bytes.len());
        }
        for (bytes, _) in sim.b.outgoing(now) {
            sim.a.c().on_control(now, &bytes, bytes.len());
        }
        if sim.a.c().has_data() {
            break;
        }
    }
    let data = sim.a.outgoing(now).into_iter().filter(|&(_, data)| data);
    data.map(|(bytes, _)| Header::parse(&bytes).unwrap())
        .collect()
}

#[test]
fn limit__gaps_of_a_block() {
    let mut sim = connected(Config {
        max_stu: 256,
        ..Config::default()
    });
    let now = sim.now();
    let headers = held_back(&mut sim, 1 << 20);
    let every_second = headers.iter().skip(1).step_by(2);
    let arrived: Vec<Header> = every_second
        .filter(|header| header.b_num == 0)
        .take(limits::MAX_GAPS_PER_BLOCK + 6)
        .copied()
        .collect();
    assert_eq!(arrived.len(), limits::MAX_GAPS_PER_BLOCK + 6);
    for header in &arrived {
        sim.b.c().on_data(now, header, 256, 256, None);
    }
    // The first made a second gap, in front of it.
    assert_eq!(limited(&mut sim), 7);
    sim.b.c().assert_bounded();
}

#[test]
fn limit__repairs_asked_for_at_once() {
    let mut sim = connected(Config::default());
    let now = sim.now();
    let length = 1 << 20;
    let target = sim.a.empty(length);
    let to = sim.a.c().post_receive(now, target).expect("posted");
    let source = sim.b.filled(7, length);
    let posted = sim.b.c().post_send(now, source, Delivery::Polled);
    let from = posted.expect("posted");
    for _ in 0..4 {
        for (bytes, is_data) in sim.b.outgoing(now) {
            if !is_data {
                sim.a.c().on_control(now, &bytes, bytes.len());
            }
        }
        for (bytes, _) in sim.a.outgoing(now) {
            sim.b.c().on_control(now, &bytes, bytes.len());
        }
    }
    assert!(sim.b.c().counters().bytes_sent > length / 2);
    let later = now + S;
    let report = |start: u32| {
        let mut ranges = Ranges::EMPTY;
        assert!(ranges.push(Range { start, len: 50 }));
        Operation::State(State {
            occasion: Occasion::Seen(0),
            complete: false,
            unknown: false,
            blocks_complete: 0,
            b_num: 0,
            reached: length as u32,
            d_id: from,
            s_id: to,
            report: Report::Missing(ranges),
        })
    };
    for n in 0..limits::MAX_REPAIRS as u32 + 7 {
        sim.say(later, Side::A, report(n * 100));
    }
    assert_eq!(limited(&mut sim), 7);
}

#[test]
fn limit__blocks_granted_at_once() {
    let mut sim = connected(Config {
        block: 4096,
        ..Config::default()
    });
    held_back(&mut sim, 4 << 20);
    assert!(sim.b.c().counters().grants_deferred > 0);
    sim.b.c().assert_bounded();
}

#[test]
fn limit__overtaken_ranges_watched() {
    let mut sim = connected(Config::default());
    let now = sim.now();
    let headers = held_back(&mut sim, 1 << 20);
    for n in 0..limits::MAX_OVERTAKEN as u32 {
        assert!(sim.b.c().receiving.loss_detector_mut().overtaken(
            now,
            (u32::MAX, n, n + 1),
            false
        ));
    }
    let stu = sim.b.c().stu();
    sim.b.c().on_data(now, &headers[1], stu, stu, None);
    assert_eq!(sim.b.c().counters().records_dropped, 1);
    sim.b.c().assert_bounded();
}

#[test]
fn limit__bursts_in_flight_remembered() {
    let mut sim = connected(Config::default());
    let now = sim.now();
    for _ in 0..limits::MAX_FLIGHT {
        sim.a.c().sending.sent_log_mut().on_sent(now, 0, 0, 0, 0);
    }
    held_back(&mut sim, 100_000);
    assert!(sim.a.c().counters().records_dropped > 0);
    sim.a.c().assert_bounded();
}

#[test]
fn limit__ends_unconfirmed() {
    let mut sim = connected(Config::default());
    for n in 0..limits::MAX_ENDINGS as u32 + 7 {
        let end = End {
            reason: Reason::Cancelled,
            from_source: true,
            sequence: n,
            d_id: 0,
            s_id: 1 + n,
        };
        sim.b.c().cx.send_end(end);
    }
    assert_eq!(sim.b.c().counters().records_dropped, 7);
    sim.b.c().assert_bounded();
}

#[test]
fn limit__none_bites_an_honest_peer() {
    let mut sim = connected(Config::default());
    let now = sim.now();
    let length = 3 << 20;
    let target = sim.b.empty(length);
    let to = sim.b.c().post_receive(now, target).expect("posted");
    let source = sim.a.filled(7, length);
    sim.a
        .c()
        .post_send(now, source, Delivery::Polled)
        .expect("posted");
    sim.run_until(10 * S + MS, |sim| sim.b.received(to).is_some());
    assert!(sim.b.holds(target, 7, length));
    for host in [&mut sim.a, &mut sim.b] {
        let counters = *host.c().counters();
        assert_eq!(counters.dropped(DropReason::Limit), 0);
        assert_eq!((counters.records_dropped, counters.grants_deferred), (0, 0));
    }
}
