//! Tests that message payload granted in advance saves round trips, and that void grants lose nothing.
//!
//! Covers lost datagrams, cancels at either end, and a lying peer.

use super::advance::{
    LENGTH, count, granted_in_advance, lose_grants_in_advance, sim_with, where_an_end_takes_none,
};
use super::eager;
use super::liars::grant;
use super::memory::{atomic, export, fetch, put};
use super::memory_faults::bad;
use super::seeds::{Dice, each};
use super::sim::{Sim, bytes_of};
use crate::limits::MAX_REMEMBERED_BLOCKS;
use crate::transfer::HANDLE;
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::collections::VecDeque;
use std::time::Duration;
use zerolane_wire::{
    Advance, ClearToSend, FetchOpKind, Flags, Grant, Header, Op, Operation, Packet, Rights,
};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const CONTROL: u64 = 16;

/// A posted receive of a message, and its memory.
#[derive(Clone, Copy)]
struct Receive {
    id: TransferId,
    control: Span,
    payload: Span,
}

/// A sent message: content and length.
#[derive(Clone, Copy)]
struct Sent {
    id: TransferId,
    seed: u64,
    length: u64,
}

fn receive(sim: &mut Sim, room: u64) -> Receive {
    let (control, payload) = (sim.b.empty(CONTROL), sim.b.empty(room));
    let posted = sim.b.c().post_message_receive(control, Some(payload));
    let id = posted.expect("posted");
    Receive {
        id,
        control,
        payload,
    }
}

fn send(sim: &mut Sim, seed: u64, length: u64) -> Sent {
    let now = sim.now();
    let control = bytes_of(2 * seed, CONTROL);
    let payload = (length > 0).then(|| sim.a.filled(2 * seed + 1, length));
    let flags = WorkFlags {
        signalled: true,
        ..WorkFlags::default()
    };
    let posted = sim.a.c().post_message(now, &control, payload, flags);
    let id = posted.expect("posted");
    Sent { id, seed, length }
}

fn is_received(sim: &Sim, receive: &Receive) -> bool {
    let is_it = |event: &Event| matches!(event, Event::Message { id, .. } if *id == receive.id);
    sim.b.events.iter().any(is_it)
}

fn assert_holds(sim: &Sim, to: &Receive, sent: &Sent) {
    let event = Event::Message {
        id: to.id,
        control: CONTROL as u32,
        payload: sent.length,
    };
    assert!(sim.b.events.contains(&event), "message {}", sent.seed);
    let seed = 2 * sent.seed;
    assert!(sim.b.holds(to.control, seed, CONTROL));
    assert!(sim.b.holds(to.payload, seed + 1, sent.length));
}

/// Two messages of [`LENGTH`] bytes come; from then on such messages are granted in advance, and A has heard of that.
fn begin_row(sim: &mut Sim) {
    let receives = [(); 2].map(|()| receive(sim, LENGTH));
    transfer(sim, &receives, &[LENGTH; 2]);
    sim.run_for(100 * MS);
}

/// Connected over a round trip of 10 ms. Messages of [`LENGTH`] bytes came, and `receives` receives are posted and
/// granted in advance, which A has heard.
fn granted(receives: usize) -> (Sim, Vec<Receive>) {
    let mut sim = sim_with(Config::default(), Config::default());
    begin_row(&mut sim);
    let receives: Vec<_> = (0..receives).map(|_| receive(&mut sim, LENGTH)).collect();
    sim.run_for(100 * MS);
    assert_eq!(granted_in_advance(&mut sim) > 0, !receives.is_empty());
    let expected = sim.b.c().expected_payload();
    assert_eq!(expected, 0, "nothing is expected of what did not come");
    sim.trace = Some(vec![]);
    (sim, receives)
}

/// Sends messages of these `lengths` into `receives`, and checks their content.
fn transfer(sim: &mut Sim, receives: &[Receive], lengths: &[u64]) {
    let sent: Vec<_> = (10..)
        .zip(lengths)
        .map(|(seed, &length)| send(sim, seed, length))
        .collect();
    arrive(sim, receives, &sent);
}

fn arrive(sim: &mut Sim, receives: &[Receive], sent: &[Sent]) {
    sim.run_until(60 * S, |sim| sent.iter().all(|it| sim.a.sent(it.id)));
    for (to, sent) in receives.iter().zip(sent) {
        assert_holds(sim, to, sent);
    }
    sim.b.assert_guards();
}

/// Nothing was dropped, retransmitted or timed out.
fn assert_nothing_in_vain(sim: &mut Sim) {
    for counters in [*sim.a.c().counters(), *sim.b.c().counters()] {
        let vain = (counters.dropped_total(), counters.bytes_resent);
        assert_eq!(vain, (0, 0), "{counters:?}");
        assert_eq!((counters.timeouts, counters.reports_sent), (0, 0));
    }
}

/// Sends `messages` of [`LENGTH`] bytes with two posted at either end. Returns the time it took.
fn stream(sim: &mut Sim, messages: u64) -> Duration {
    let start = sim.net.now();
    let mut sending: VecDeque<Sent> = VecDeque::new();
    let mut receiving: VecDeque<Receive> = VecDeque::new();
    let (mut posted, mut taken) = (0, 0);
    while taken < messages {
        while receiving.len() < 2 && taken + (receiving.len() as u64) < messages {
            receiving.push_back(receive(sim, LENGTH));
        }
        while sending.len() < 2 && posted < messages {
            posted += 1;
            sending.push_back(send(sim, posted, LENGTH));
        }
        assert!(sim.step(start + 60 * S), "over in time");
        sending.retain(|it| !sim.a.sent(it.id));
        while let Some(to) = receiving.pop_front_if(|it| is_received(sim, it)) {
            taken += 1;
            let sent = Sent {
                id: 0,
                seed: taken,
                length: LENGTH,
            };
            assert_holds(sim, &to, &sent);
        }
    }
    sim.net.now() - start
}

#[test]
fn stream__of_messages_takes_a_round_trip_each_not_two() {
    const MESSAGES: u64 = 40;
    let off = Config {
        advance_grants: false,
        ..Config::default()
    };
    let announced_first = stream(&mut sim_with(off.clone(), off), MESSAGES);
    let mut sim = sim_with(Config::default(), Config::default());
    let granted_first = stream(&mut sim, MESSAGES);
    let round_trips = |time: Duration| time.as_secs_f64() * 100.0 / (MESSAGES as f64 / 2.0);
    assert!(round_trips(announced_first) >= 2.0, "{announced_first:?}");
    assert!(round_trips(granted_first) <= 1.25, "{granted_first:?}");
    assert_nothing_in_vain(&mut sim);
}

#[test]
fn message__that_was_granted_leaves_with_its_payload() {
    let (mut sim, receives) = granted(2);
    let sent = send(&mut sim, 10, LENGTH);
    let start = sim.net.now();
    sim.run_until(S, |sim| is_received(sim, &receives[0]));
    // Half a round trip, and the opening of the window.
    let there = sim.net.now() - start;
    assert!(there <= 8 * MS, "{there:?}");
    arrive(&mut sim, &receives, &[sent]);
    assert_eq!(count(&sim, Side::A, Op::RequestToSend), 1);
    assert_eq!(count(&sim, Side::B, Op::ClearToSend), 0);
    assert_nothing_in_vain(&mut sim);
}

#[test]
fn message__shorter_or_longer_than_what_was_granted_or_without_payload() {
    for lengths in [
        [20_000, LENGTH],
        [LENGTH - 1, 50_001],
        [LENGTH, 17_000],
        // Eager payload, and none.
        [100, LENGTH],
        [0, LENGTH],
    ] {
        let (mut sim, receives) = granted(2);
        transfer(&mut sim, &receives, &lengths);
        assert_nothing_in_vain(&mut sim);
    }
    // The grant is as long as the previous payload: this one is longer, and has room.
    let (mut sim, _) = granted(0);
    let to = receive(&mut sim, 5 * LENGTH);
    sim.run_for(100 * MS);
    transfer(&mut sim, &[to], &[5 * LENGTH]);
    assert_eq!(granted_in_advance(&mut sim), 1);
}

#[test]
fn message__too_large_fails_with_its_receive_and_the_next_is_met() {
    let (mut sim, receives) = granted(2);
    let large = send(&mut sim, 9, LENGTH + 1);
    sim.run_until(S, |sim| sim.a.failed(large.id).is_some());
    let error = TransferError::MessageTooLarge {
        length: LENGTH + 1,
        room: LENGTH,
    };
    assert_eq!(sim.a.failed(large.id), Some(error));
    assert_eq!(sim.b.failed(receives[0].id), Some(error));
    transfer(&mut sim, &receives[1..], &[LENGTH]);
}

#[test]
fn message__grants_name_operations_and_those_of_receives_announcements() {
    let (mut sim, receives) = granted(2);
    // Transfers for receives have their own numbers: grants to messages stay valid.
    let posted = eager::receive(&mut sim, LENGTH);
    let from = eager::send(&mut sim, 3, LENGTH);
    let sent = send(&mut sim, 10, LENGTH);
    sim.run_until(S, |sim| sim.a.sent(from));
    assert!(sim.b.holds(posted.1, 3, LENGTH));
    arrive(&mut sim, &receives, &[sent]);
    assert_nothing_in_vain(&mut sim);
}

#[test]
fn detour__an_operation_that_is_no_message_voids_what_was_granted_and_nothing_is_lost() {
    let operate: [fn(&mut Sim, RemotePlace); 4] = [
        |sim, place| {
            put(sim, place, 5, 100, None);
        },
        |sim, place| {
            put(sim, place, 5, 8_000, Some(7));
        },
        |sim, place| {
            fetch(sim, place, atomic(FetchOpKind::Add, 1, 0));
        },
        // Whether the message still exists is unknown to its source.
        |sim, _| {
            let cancelled = send(sim, 6, LENGTH);
            let now = sim.now();
            sim.a.c().cancel(now, cancelled.id);
        },
    ];
    for (is_known, operate) in [true, true, true, false].into_iter().zip(operate) {
        let (mut sim, receives) = granted(2);
        let target = sim.b.words(&[0; 1024]);
        let place = export(&mut sim, target, Rights::ALL);
        operate(&mut sim, place);
        let sent = [10, 11].map(|seed| send(&mut sim, seed, LENGTH));
        arrive(&mut sim, &receives, &sent);
        match is_known {
            true => assert_nothing_in_vain(&mut sim),
            // Payload sent by void grants is granted anew.
            false => assert_eq!(sim.a.c().counters().timeouts, 0),
        }
    }
}

#[test]
fn detour__voids_nothing_of_the_messages_before_it() {
    let (mut sim, _) = granted(0);
    let target = sim.b.words(&[0; 16]);
    let place = export(&mut sim, target, Rights::ALL);
    let to = receive(&mut sim, LENGTH);
    // The grant is in flight when the put behind its message is numbered.
    let sent = send(&mut sim, 10, LENGTH);
    put(&mut sim, place, 5, 100, None);
    let start = sim.net.now();
    sim.run_until(S, |sim| is_received(sim, &to));
    let there = sim.net.now() - start;
    assert!(there <= 14 * MS, "{there:?}");
    arrive(&mut sim, &[to], &[sent]);
    assert_eq!(count(&sim, Side::B, Op::ClearToSend), 1);
    assert_nothing_in_vain(&mut sim);
}

#[test]
fn detour__again_and_again_is_granted_for_no_more() {
    let (mut sim, mut receives) = granted(5);
    let target = sim.b.words(&[0; 16]);
    let place = export(&mut sim, target, Rights::ALL);
    let before = granted_in_advance(&mut sim);
    for seed in 0..20 {
        put(&mut sim, place, seed, 100, None);
        sim.run_for(20 * MS);
        receives.push(receive(&mut sim, LENGTH));
    }
    assert_eq!(granted_in_advance(&mut sim), before);
    // Nor where messages come between.
    for (seed, to) in (30..).zip(&receives[..10]) {
        put(&mut sim, place, seed, 100, None);
        let sent = send(&mut sim, seed, LENGTH);
        arrive(&mut sim, &[*to], &[sent]);
    }
    assert_eq!(granted_in_advance(&mut sim), before);
    transfer(&mut sim, &receives[10..], &[LENGTH; 15]);
}

/// A receive that is granted in advance to message 2, which is next, and its grant.
fn granted_to_next() -> (Sim, Receive, ClearToSend) {
    let mut sim = sim_with(Config::default(), Config::default());
    begin_row(&mut sim);
    let to = receive(&mut sim, LENGTH);
    sim.run_for(100 * MS);
    let said = sim.trace.iter().flatten().filter(|it| it.0 == Side::B);
    let mut grants = said.filter_map(|it| match Packet::parse(&it.1).ok()?.operation {
        Operation::ClearToSend(cts) if cts.s_id == to.id => Some(cts),
        _ => None,
    });
    let cts = grants.next_back().expect("granted in advance");
    assert_eq!(cts.advance(), Some(Advance::Message(2)));
    (sim, to, cts)
}

/// Payload under `cts` arrives at B, and is dropped.
fn assert_dropped_under(sim: &mut Sim, cts: &ClearToSend) {
    let route = sim.a.c().cx.route;
    let header = Header {
        d_port: route.d_port,
        s_port: route.s_port,
        d_key: route.d_key,
        b_id: cts.mx,
        bufx: cts.bufx,
        offset: cts.offset + 1_000,
        sync: 1,
        b_num: cts.b_num,
        d_id: cts.s_id,
        ..Header::new(Op::Data)
    };
    let mut datagram = header.emit().to_vec();
    datagram.extend([0xee; 1_000]);
    let before = sim.b.c().counters().dropped(DropReason::NoGrant);
    sim.inject(Side::B, &datagram);
    sim.run_for(MS);
    let dropped = sim.b.c().counters().dropped(DropReason::NoGrant);
    assert_eq!(dropped, before + 1);
}

#[test]
fn late__payload_under_a_grant_that_its_message_had_no_use_of_is_dropped() {
    // No payload, eager, and too large.
    for length in [0, 100, 2 * LENGTH] {
        let (mut sim, to, cts) = granted_to_next();
        let sent = send(&mut sim, 20, length);
        sim.run_until(S, |sim| sim.a.outcomes(sent.id) > 0);
        // Its memory belongs to the user again.
        sim.b.freeze(to.payload);
        assert_dropped_under(&mut sim, &cts);
        sim.b.assert_frozen();
    }
}

#[test]
fn late__payload_under_a_grant_is_dropped_while_it_comes_eagerly() {
    let (mut sim, to, cts) = granted_to_next();
    sim.copies = Some(Box::new(|_, bytes| {
        let rest = |it: Header| it.flags.contains(Flags::EAGER) && it.offset > 0;
        usize::from(!Header::parse(bytes).is_ok_and(rest))
    }));
    let sent = send(&mut sim, 20, 3_000);
    sim.run_for(7 * MS);
    assert!(!is_received(&sim, &to));
    assert_dropped_under(&mut sim, &cts);
    sim.copies = None;
    arrive(&mut sim, &[to], &[sent]);
}

#[test]
fn cancel__of_a_receive_that_was_granted_writes_nothing_into_it_and_the_next_is_met() {
    let (mut sim, receives) = granted(3);
    let now = sim.now();
    // A has the grants, and uses them before it hears anything else.
    sim.b.c().cancel(now, receives[0].id);
    sim.b.freeze(receives[0].payload);
    transfer(&mut sim, &receives[1..], &[LENGTH, LENGTH]);
    sim.b.assert_frozen();
    assert!(sim.b.c().counters().dropped(DropReason::NoGrant) > 0);
}

#[test]
fn cancel__of_a_receive_that_its_message_met_writes_nothing_into_it() {
    // The message came, and the announcement of its payload is lost.
    let (mut sim, receives) = granted(2);
    let mut lost = 0;
    sim.copies = Some(Box::new(move |_, bytes| {
        let announces = Header::parse(bytes).is_ok_and(|header| header.op == Op::RequestToSend);
        lost += usize::from(announces);
        usize::from(!announces || lost > 1)
    }));
    let sent = send(&mut sim, 10, LENGTH);
    sim.run_for(6 * MS);
    assert!(!is_received(&sim, &receives[0]));
    let now = sim.now();
    assert!(sim.b.c().cancel(now, receives[0].id));
    sim.b.freeze(receives[0].payload);
    sim.run_until(10 * S, |sim| sim.a.outcomes(sent.id) == 1);
    assert!(sim.a.failed(sent.id).is_some());
    sim.b.assert_frozen();
    transfer(&mut sim, &receives[1..], &[LENGTH]);
}

#[test]
fn cancel__of_a_message_that_was_granted_at_every_step() {
    for at in 0..60 {
        let (mut sim, receives) = granted(3);
        let sent = send(&mut sim, 3, LENGTH);
        sim.run_for(at * MS / 4);
        let now = sim.now();
        sim.a.c().cancel(now, sent.id);
        // The next ones leave under the earlier grants, before anything is heard of that.
        let next = [10, 11].map(|seed| send(&mut sim, seed, LENGTH));
        sim.run_until(60 * S, |sim| next.iter().all(|it| sim.a.sent(it.id)));
        sim.run_until(S, |sim| sim.a.outcomes(sent.id) == 1);
        // The matched receive, if any, is over as well.
        let first = &receives[0];
        let has_it = is_received(&sim, first) && sim.b.holds(first.control, 6, CONTROL);
        let met = usize::from(has_it || sim.b.failed(first.id).is_some());
        arrive(&mut sim, &receives[met..], &next);
    }
}

#[test]
fn lost__announcement_payload_is_placed_and_counts_when_it_is_heard() {
    for op in [Op::RequestToSend, Op::Data] {
        let (mut sim, receives) = granted(1);
        let mut lost = 0;
        sim.copies = Some(Box::new(move |side, bytes| {
            let is_it = |header: Header| {
                let message = header.d_id & HANDLE != 0 || op != Op::Data;
                side == Side::A && header.op == op && message
            };
            let is_it = Header::parse(bytes).is_ok_and(is_it);
            lost += usize::from(is_it);
            usize::from(!is_it || lost > 1)
        }));
        transfer(&mut sim, &receives, &[LENGTH]);
        assert_eq!(sim.a.c().counters().bytes_resent, 0, "it was there");
    }
}

#[test]
fn lost__confirmation_is_asked_for_though_the_announcement_was_told_to_wait() {
    let (mut sim, receives) = granted(1);
    let mut lost = [false; 2];
    sim.copies = Some(Box::new(move |side, bytes| {
        let is = |header: Header| match side {
            Side::A => (header.op == Op::Data && header.d_id & HANDLE != 0).then_some(0),
            Side::B => {
                let complete = header.flags.contains(Flags::COMPLETE);
                let numbered = header.flags.contains(Flags::MEMORY);
                (header.op == Op::State && complete && !numbered).then_some(1)
            }
        };
        // The message comes after its announcement, which is deferred; the first confirmation is lost.
        let which = Header::parse(bytes).ok().and_then(is);
        let loses = which.is_some_and(|which| !core::mem::replace(&mut lost[which], true));
        usize::from(!loses)
    }));
    let start = sim.net.now();
    transfer(&mut sim, &receives, &[LENGTH]);
    let took = sim.net.now() - start;
    assert!(took <= 500 * MS, "{took:?}");
}

#[test]
fn lost__grants_in_advance_are_given_again() {
    let mut sim = sim_with(Config::default(), Config::default());
    let receives: Vec<_> = (0..5).map(|_| receive(&mut sim, LENGTH)).collect();
    lose_grants_in_advance(&mut sim);
    transfer(&mut sim, &receives, &[LENGTH; 5]);
}

#[test]
fn never__where_an_end_does_not_take_them() {
    for mut sim in where_an_end_takes_none() {
        let receives: Vec<_> = (0..5).map(|_| receive(&mut sim, LENGTH)).collect();
        transfer(&mut sim, &receives, &[LENGTH; 5]);
        assert_eq!(granted_in_advance(&mut sim), 0);
    }
}

#[test]
fn idle__grants_hold_up_nothing_else() {
    let (mut sim, receives) = granted(20);
    let target = sim.b.empty(100 << 20);
    let place = export(&mut sim, target, Rights::ALL);
    // More Blocks than are remembered come while the receives wait.
    while sim.b.c().counters().grants_sent < 2 * MAX_REMEMBERED_BLOCKS as u64 {
        let long = put(&mut sim, place, 9, 50 << 20, None);
        sim.run_until(60 * S, |sim| sim.a.sent(long));
    }
    sim.b.c().assert_bounded();
    transfer(&mut sim, &receives, &[LENGTH; 20]);
}

#[test]
fn finish__fails_the_receives_that_were_granted() {
    let (mut sim, receives) = granted(2);
    let now = sim.now();
    sim.a.c().finish(now).expect("open");
    sim.run_for(100 * MS);
    for it in receives {
        assert_eq!(sim.b.failed(it.id), Some(TransferError::Finished));
        sim.b.freeze(it.payload);
    }
    sim.b.assert_frozen();
    sim.b.c().assert_bounded();
}

/// Messages of all lengths among other operations, cancelled at either end, over bad links. Each message that was not
/// cancelled comes once, into the next receive; cancelled receives are not written any more.
#[test]
fn random__messages_among_operations_over_bad_links_with_cancels() {
    each(60, |seed| {
        let mut dice = Dice::new(seed);
        let link = match dice.chance(50) {
            true => bad(),
            false => LinkConfig {
                delay: MS,
                rate_bits_per_s: Some(100_000_000),
                ..LinkConfig::default()
            },
        };
        let config = Config {
            window: dice.pick(&[100_000, 2 << 20]),
            block: dice.pick(&[10_000, 1 << 20]),
            slots: dice.pick(&[1, 3, 64]),
            eager_limit: dice.pick(&[0, 3_000, 16 << 10]),
            ..Config::default()
        };
        let mut sim = Sim::new(link, seed, config.clone(), config);
        sim.connect();
        if dice.chance(50) {
            sim.a.c().age_operations(u32::MAX - 20);
            sim.b.c().age_operations(u32::MAX - 20);
        }
        let target = sim.b.words(&[0; 1024]);
        let place = export(&mut sim, target, Rights::ALL);
        let (mut sent, mut receives) = (vec![], vec![]);
        let mut cancelled = [vec![], vec![]];
        let (cancels, others) = (dice.pick(&[0, 10]), dice.pick(&[0, 5, 30]));
        for seed in 0..80 {
            receives.push(receive(&mut sim, LENGTH));
            let length = match dice.below(10) {
                0 => 0,
                1 => 1 + dice.below(2_000),
                2 => 1 + dice.below(LENGTH),
                _ => LENGTH,
            };
            if dice.chance(others) {
                put(&mut sim, place, seed, 1 + dice.below(8_000), None);
            }
            sent.push(send(&mut sim, seed, length));
            sim.run_for(Duration::from_micros(dice.below(3_000)));
            if dice.chance(cancels) {
                let it = sent[dice.below(sent.len() as u64) as usize];
                let now = sim.now();
                if sim.a.c().cancel(now, it.id) {
                    cancelled[0].push(it.id);
                }
            }
            if dice.chance(cancels) {
                let it = receives[dice.below(receives.len() as u64) as usize];
                let now = sim.now();
                if sim.b.c().cancel(now, it.id) {
                    cancelled[1].push(it.id);
                    sim.b.freeze(it.payload);
                }
            }
            sim.a.c().assert_bounded();
            sim.b.c().assert_bounded();
        }
        // For each receive matched by a cancelled message.
        for _ in 0..80 {
            receives.push(receive(&mut sim, LENGTH));
        }
        sim.run_until(400 * S, |sim| {
            sent.iter().all(|it| sim.a.outcomes(it.id) == 1)
        });
        let taken: Vec<_> = receives.iter().filter(|it| is_received(&sim, it)).collect();
        let arrived: Vec<_> = sent.iter().filter(|it| sim.a.sent(it.id)).collect();
        // A cancelled message that had already arrived may count; all others came in order.
        let mut next = sent.iter();
        for to in &taken {
            let is_it = |it: &&Sent| sim.b.holds(to.control, 2 * it.seed, CONTROL);
            let it = next.find(is_it).expect("in order, and none twice");
            assert_holds(&sim, to, it);
        }
        if cancelled[0].is_empty() && cancelled[1].is_empty() {
            assert_eq!(taken.len(), sent.len());
        }
        for it in arrived {
            let came = |to: &&&Receive| sim.b.holds(to.control, 2 * it.seed, CONTROL);
            assert_eq!(taken.iter().filter(came).count(), 1, "message {}", it.seed);
        }
        sim.b.assert_frozen();
        sim.b.assert_guards();
        sim.run_for(5 * S);
        assert!(sent.iter().all(|it| sim.a.outcomes(it.id) == 1));
    });
}

fn advance(number: u32, b_num: u32, offset: u64, length: u32) -> Operation {
    let cts = grant(number, b_num, offset, length);
    let in_advance = |grant| Grant {
        advance: Some(Advance::Message(0)),
        ..grant
    };
    Operation::ClearToSend(ClearToSend {
        grant: cts.grant.map(in_advance),
        ..cts
    })
}

#[test]
fn hostile__grants_in_advance_are_bounded_and_send_no_more_than_there_is() {
    each(20, |seed| {
        let mut dice = Dice::new(seed);
        let mut sim = sim_with(Config::default(), Config::default());
        let queued = dice.chance(50).then(|| send(&mut sim, 2, LENGTH));
        for _ in 0..2000 {
            let (number, b_num) = (dice.below(8) as u32, dice.below(1000) as u32);
            let offset = match dice.chance(10) {
                true => u64::MAX / 2,
                false => dice.below(2 * LENGTH),
            };
            let length = 1 + dice.below(3 * LENGTH) as u32;
            let said = advance(number, b_num, offset, length);
            sim.say(sim.now(), Side::B, said);
        }
        sim.a.c().assert_bounded();
        assert!(sim.a.c().counters().dropped(DropReason::Limit) > 0);
        let sent = send(&mut sim, 1, LENGTH);
        sim.run_for(S);
        sim.a.c().assert_bounded();
        for it in queued.into_iter().chain([sent]) {
            assert_eq!(sim.a.failed(it.id), None);
        }
    });
}
