//! Tests that operations on the wire follow the thesis's sequences (4.3, Figures 10 and 11).

use super::sim::Sim;
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::time::Duration;
use zerolane_wire::{
    Header, Op, Operation, Packet, Profile, Profiles, RequestState, RequestToSend,
};

const MS: Duration = Duration::from_millis(1);

fn clean() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(100),
        ..LinkConfig::default()
    }
}

/// Connected, idle, and recording from now on.
fn quiet(config: Config) -> Sim {
    let mut sim = Sim::new(clean(), 1, config.clone(), config);
    sim.connect();
    sim.run_for(Duration::from_secs(1));
    sim.trace = Some(vec![]);
    sim
}

/// Everything is announced and granted.
fn announced() -> Config {
    Config {
        eager_limit: 0,
        ..Config::default()
    }
}

fn classic() -> Config {
    Config {
        profiles: Profiles::only(Profile::Classic),
        classic_block_log2: 11,
        ..Config::default()
    }
}

/// Sends `length` bytes from A to `offset` at B. Returns the delivery mode.
fn write(sim: &mut Sim, length: u64, offset: u64, delivery: Delivery) -> Delivery {
    let now = sim.now();
    let source = sim.a.filled(3, length);
    let target = sim.b.empty_at(offset, length);
    let to = sim.b.c().post_receive(now, target).unwrap();
    let from = sim.a.c().post_send(now, source, delivery).unwrap();
    sim.run_until(Duration::from_secs(1), |sim| {
        sim.a.sent(from) && sim.b.received(to).is_some()
    });
    assert!(sim.b.holds(target, 3, length));
    sim.b
        .events
        .iter()
        .find_map(|event| match event {
            Event::Received { id, delivery, .. } if *id == to => Some(*delivery),
            _ => None,
        })
        .expect("received")
}

#[test]
fn write__figure_10_classic_one_grant_at_a_time() {
    let mut sim = quiet(classic());
    write(&mut sim, 5632, 512, Delivery::Polled);
    assert_eq!(
        sim.spoken(),
        "A RequestToSend, B ClearToSend 0, A Data 0, B State, B ClearToSend 1, A Data 1, B State, \
         B ClearToSend 2, A Data 2, B State complete"
    );
}

#[test]
fn write__figure_11_cut_the_better_way() {
    let mut sim = quiet(classic());
    write(&mut sim, 5632, 512, Delivery::Polled);
    let mut stus = vec![];
    for (_, bytes) in sim.trace.iter().flatten() {
        let header = Header::parse(bytes).unwrap();
        if header.op == Op::Data {
            stus.push((header.b_num, bytes.len() - 40));
        }
    }
    let blocks = [
        (0, 1024),
        (0, 512),
        (1, 1024),
        (1, 1024),
        (2, 1024),
        (2, 1024),
    ];
    assert_eq!(stus, blocks);
}

#[test]
fn write__extended_grants_ahead() {
    let config = Config {
        block: 60_000,
        ..Config::default()
    };
    let mut sim = quiet(config);
    write(&mut sim, 170_000, 0, Delivery::Polled);
    assert_eq!(
        sim.spoken(),
        "A RequestToSend, B ClearToSend 0, B ClearToSend 1, B ClearToSend 2, A Data 0, A Data 1, \
         A Data 2, B State, B State, B State complete",
        "the round trip is not known yet: the source asks"
    );
}

#[test]
fn write__not_ready_is_told_and_woken() {
    for config in [announced(), classic()] {
        let mut sim = quiet(config);
        let now = sim.now();
        let source = sim.a.filled(3, 1000);
        let from = sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
        sim.run_for(20 * MS);
        assert_eq!(sim.spoken(), "A RequestToSend, B RequestAnswer");
        assert_eq!(sim.b.c().announced(), Some(1000));
        assert!(sim.b.events.contains(&Event::Announced { length: 1000 }));
        let now = sim.now();
        let target = sim.b.empty(1000);
        sim.b.c().post_receive(now, target).unwrap();
        sim.run_until(10 * MS, |sim| sim.a.sent(from));
        assert_eq!(
            sim.spoken(),
            "A RequestToSend, B RequestAnswer, B ClearToSend 0, A Data 0, B State complete"
        );
        assert!(sim.b.holds(target, 3, 1000));
    }
}

#[test]
fn write__nothing_is_lost_if_the_receiver_takes_its_time() {
    let mut sim = quiet(announced());
    let now = sim.now();
    let source = sim.a.filled(3, 1000);
    let from = sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    sim.run_for(Duration::from_secs(100));
    let operations = sim.trace.as_ref().unwrap().len();
    assert!(
        operations < 350,
        "waits quietly: {operations} operations in 100 s"
    );
    let now = sim.now();
    let target = sim.b.empty(1000);
    sim.b.c().post_receive(now, target).unwrap();
    sim.run_until(10 * MS, |sim| sim.a.sent(from));
    assert!(sim.b.holds(target, 3, 1000));
}

#[test]
fn write__no_bytes_needs_no_grant() {
    let mut sim = quiet(Config::default());
    write(&mut sim, 0, 0, Delivery::Polled);
    assert_eq!(sim.spoken(), "A RequestToSend, B State complete");
}

#[test]
fn write__too_large_fails_both_and_the_next_one_passes() {
    let mut sim = quiet(announced());
    let now = sim.now();
    let target = sim.b.empty(99);
    let to = sim.b.c().post_receive(now, target).unwrap();
    let source = sim.a.filled(3, 100);
    let from = sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    sim.run_for(20 * MS);
    let error = TransferError::MessageTooLarge {
        length: 100,
        room: 99,
    };
    assert_eq!(
        (sim.a.failed(from), sim.b.failed(to)),
        (Some(error), Some(error))
    );
    assert_eq!(
        error.to_string(),
        "message too large: 100 bytes for a receive of 99 bytes"
    );
    assert_eq!(sim.spoken(), "A RequestToSend, B RequestAnswer refused");
    assert!(sim.b.bytes(target).iter().all(|&byte| byte == 0xee));
    write(&mut sim, 100, 0, Delivery::Polled);
}

#[test]
fn write__too_large_is_told_again_if_the_answer_is_lost() {
    let mut sim = quiet(announced());
    let now = sim.now();
    let target = sim.b.empty(99);
    sim.b.c().post_receive(now, target).unwrap();
    let source = sim.a.filled(3, 100);
    let from = sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    sim.net.link_mut(Side::B).set_up(false);
    sim.run_for(10 * MS);
    sim.net.link_mut(Side::B).set_up(true);
    sim.run_for(Duration::from_secs(1));
    let error = TransferError::MessageTooLarge {
        length: 100,
        room: 99,
    };
    assert_eq!(
        sim.a.failed(from),
        Some(error),
        "the words survive the loss"
    );
}

#[test]
fn read__figure_10_with_the_ends_exchanged() {
    let mut sim = quiet(announced());
    let now = sim.now();
    let source = sim.b.filled(3, 1000);
    let offer = sim.b.c().post_offer(now, source, Delivery::Polled).unwrap();
    let target = sim.a.empty(1000);
    let read = sim.a.c().post_read(now, target).unwrap();
    sim.run_until(20 * MS, |sim| {
        sim.a.received(read).is_some() && sim.b.sent(offer)
    });
    assert_eq!(
        sim.spoken(),
        "A RequestToReceive, B RequestToSend, A ClearToSend 0, B Data 0, A State complete"
    );
    assert!(sim.a.holds(target, 3, 1000));
}

#[test]
fn read__waits_for_an_offer() {
    let mut sim = quiet(announced());
    let now = sim.now();
    let target = sim.a.empty(1000);
    let read = sim.a.c().post_read(now, target).unwrap();
    sim.run_for(20 * MS);
    assert_eq!(sim.spoken(), "A RequestToReceive, B RequestAnswer");
    let now = sim.now();
    let source = sim.b.filled(3, 500);
    sim.b.c().post_offer(now, source, Delivery::Polled).unwrap();
    sim.run_until(20 * MS, |sim| sim.a.received(read) == Some(500));
    assert!(sim.a.holds(target, 3, 500));
}

#[test]
fn read__does_not_take_a_send_nor_a_receive_an_offer() {
    let mut sim = quiet(Config::default());
    let now = sim.now();
    let (offered, sent) = (sim.b.filled(1, 300), sim.b.filled(2, 300));
    let (read_to, receive_to) = (sim.a.empty(300), sim.a.empty(300));
    sim.b.c().post_send(now, sent, Delivery::Polled).unwrap();
    sim.b
        .c()
        .post_offer(now, offered, Delivery::Polled)
        .unwrap();
    let read = sim.a.c().post_read(now, read_to).unwrap();
    let receive = sim.a.c().post_receive(now, receive_to).unwrap();
    sim.run_until(20 * MS, |sim| {
        sim.a.received(read).is_some() && sim.a.received(receive).is_some()
    });
    assert!(sim.a.holds(read_to, 1, 300) && sim.a.holds(receive_to, 2, 300));
}

#[test]
fn delivery__as_the_sender_asked() {
    for delivery in [Delivery::Silent, Delivery::Polled, Delivery::Interrupt] {
        for config in [Config::default(), classic()] {
            let mut sim = quiet(config);
            assert_eq!(write(&mut sim, 5000, 0, delivery), delivery);
        }
    }
}

/// Sends `operation` from A's connection to B, and returns B's answer.
fn ask(sim: &mut Sim, operation: Operation) -> Vec<Operation> {
    let route = sim.a.c().cx.route;
    let (bytes, len) = Packet { route, operation }.emit();
    sim.trace = Some(vec![]);
    sim.inject(Side::B, &bytes[..len]);
    sim.run_for(MS);
    sim.trace
        .take()
        .into_iter()
        .flatten()
        .filter(|(side, _)| *side == Side::B)
        .map(|(_, bytes)| Packet::parse(&bytes).unwrap().operation)
        .collect()
}

fn request_state(s_id: u32) -> Operation {
    Operation::RequestState(RequestState {
        b_num: 0,
        d_id: 0,
        s_id,
        sync: 4242,
    })
}

#[test]
fn request_state__unknown_waiting_and_complete() {
    let mut sim = quiet(Config::default());
    let answers = ask(&mut sim, request_state(500));
    let [Operation::State(state)] = answers[..] else {
        panic!("{answers:?}");
    };
    assert!(
        state.unknown && !state.complete && state.occasion == zerolane_wire::Occasion::Reply(4242)
    );

    let announcement = RequestToSend {
        length: 10,
        s_id: 500,
        target: zerolane_wire::Target::Receive,
        sequence: 0,
        send_state: true,
    };
    ask(&mut sim, Operation::RequestToSend(announcement));
    let answers = ask(&mut sim, request_state(500));
    assert!(
        matches!(answers[..], [Operation::RequestAnswer(_)]),
        "{answers:?}"
    );

    let mut sim = quiet(Config::default());
    write(&mut sim, 100, 0, Delivery::Polled);
    let answers = ask(&mut sim, request_state(1));
    let [Operation::State(state)] = answers[..] else {
        panic!("{answers:?}");
    };
    assert!(state.complete && state.occasion == zerolane_wire::Occasion::Reply(4242));
}

#[test]
fn send_state__lost_confirmation_is_asked_for() {
    let mut sim = quiet(announced());
    let now = sim.now();
    let target = sim.b.empty(1000);
    let to = sim.b.c().post_receive(now, target).unwrap();
    let source = sim.a.filled(3, 1000);
    let from = sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    sim.run_until(20 * MS, |sim| sim.spoken().ends_with("A Data 0"));
    sim.net.link_mut(Side::B).set_up(false);
    sim.run_for(5 * MS);
    assert!(sim.b.received(to).is_some() && !sim.a.sent(from));
    sim.net.link_mut(Side::B).set_up(true);
    sim.run_until(Duration::from_secs(1), |sim| sim.a.sent(from));
    assert!(
        sim.spoken().ends_with("A RequestState, B State complete"),
        "{}",
        sim.spoken()
    );
}

#[test]
fn clean_link__costs_are_exact() {
    let mut sim = quiet(Config::default());
    let length = 16 << 20;
    let now = sim.now();
    let source = sim.a.filled(3, length);
    let target = sim.b.empty(length);
    sim.b.c().post_receive(now, target).unwrap();
    let from = sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    let control =
        |sim: &mut Sim| sim.a.c().counters().control_sent + sim.b.c().counters().control_sent;
    let before = control(&mut sim);
    sim.trace = None;
    sim.run_until(Duration::from_secs(60), |sim| sim.a.sent(from));
    let operations = control(&mut sim) - before;
    // One grant per Block of about 1 MiB, the announcement and the confirmation.
    assert!(
        operations <= 64 + 8,
        "{operations} control operations for 64 MiB"
    );
    assert_eq!(sim.b.moved, 0, "every byte landed in place");
    assert_eq!(sim.b.placed, length);
    for host in [&mut sim.a, &mut sim.b] {
        let counters = *host.c().counters();
        assert_eq!(counters.bytes_resent, 0);
        assert_eq!(counters.dropped_total(), 0);
        assert_eq!(counters.timeouts, 0);
    }
    assert!(sim.b.holds(target, 3, length));
}
