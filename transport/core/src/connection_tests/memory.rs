//! Tests that operations on persistent memory follow Figure 12 of the thesis (4.3.2): order, visibility, messages.

use super::sim::{Host, Sim, bytes_of, content, wake_time};
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::time::Duration;
use zerolane_wire::{
    FetchOpKind, Flags, Frames, Get, HEADER_LEN, Header, Op, Operation, Packet, Profile, Profiles,
    Reason, Rights, Word,
};

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const S: Duration = Duration::from_secs(1);

fn clean() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(100),
        ..LinkConfig::default()
    }
}

/// Connected, idle, and recording from now on.
pub(super) fn quiet(config: Config) -> Sim {
    let mut sim = Sim::new(clean(), 1, config.clone(), config);
    sim.connect();
    sim.run_for(S);
    sim.trace = Some(vec![]);
    sim
}

fn classic() -> Config {
    Config {
        profiles: Profiles::only(Profile::Classic),
        classic_block_log2: 11,
        ..Config::default()
    }
}

/// Exports `span` of B to A directly.
pub(super) fn export(sim: &mut Sim, span: Span, rights: Rights) -> RemotePlace {
    let (handle, mx) = sim.b.c().export(span, rights, ExportAs::Handle).unwrap();
    let address = 0;
    RemotePlace {
        handle,
        mx,
        address,
    }
}

pub(super) fn at(place: RemotePlace, address: u64) -> RemotePlace {
    RemotePlace { address, ..place }
}

pub(super) fn put(
    sim: &mut Sim,
    place: RemotePlace,
    seed: u64,
    len: u64,
    immediate: Option<u32>,
) -> TransferId {
    let now = sim.now();
    let span = sim.a.filled(seed, len);
    let flags = WorkFlags::default();
    sim.a
        .c()
        .post_put(now, place, span, immediate, flags)
        .unwrap()
}

/// The same, behind a fence.
fn put_fenced(sim: &mut Sim, place: RemotePlace, seed: u64, len: u64) -> TransferId {
    let now = sim.now();
    let span = sim.a.filled(seed, len);
    let flags = WorkFlags {
        fence: true,
        ..WorkFlags::default()
    };
    sim.a.c().post_put(now, place, span, None, flags).unwrap()
}

pub(super) fn get(sim: &mut Sim, place: RemotePlace, len: u64) -> (TransferId, Span) {
    let now = sim.now();
    let span = sim.a.empty(len);
    let flags = WorkFlags::default();
    (sim.a.c().post_get(now, place, span, flags).unwrap(), span)
}

pub(super) const fn atomic(kind: FetchOpKind, operand: u64, comparand: u64) -> Atomic {
    Atomic {
        kind,
        word: Word::U64,
        operand,
        comparand,
    }
}

pub(super) fn fetch(sim: &mut Sim, place: RemotePlace, it: Atomic) -> TransferId {
    let now = sim.now();
    let flags = WorkFlags::default();
    sim.a.c().post_fetch_op(now, place, it, flags).unwrap()
}

pub(super) fn until_over(sim: &mut Sim, id: TransferId) {
    sim.run_until(20 * S, |sim| sim.a.outcomes(id) > 0);
}

impl Host {
    pub(super) fn fetched(&self, id: TransferId) -> Option<u64> {
        self.events.iter().find_map(|event| match event {
            Event::Fetched { id: other, value } if *other == id => Some(*value),
            _ => None,
        })
    }
}

#[test]
fn region__figure_12_requested_and_available() {
    let mut sim = quiet(Config::default());
    let span = sim.b.filled(1, 10_000);
    let name = *b"the region's name, 32 bytes long";
    sim.b
        .c()
        .export(span, Rights::ALL, ExportAs::Name(name))
        .unwrap();
    let now = sim.now();
    let id = sim.a.c().request_region(now, name, Rights::READ).unwrap();
    until_over(&mut sim, id);
    assert_eq!(
        sim.spoken(),
        "A RequestMemoryRegion, B MemoryRegionAvailable"
    );
    let found = sim.a.events.iter().find_map(|event| match event {
        Event::Region { region, .. } => Some(*region),
        _ => None,
    });
    let region = found.expect("available");
    assert_eq!((region.length, region.rights), (10_000, Rights::READ));
    let (id, place) = get(&mut sim, at(region.start, 9_000), 1_000);
    until_over(&mut sim, id);
    let right = (0..1000).all(|i| sim.a.bytes(place)[i] == content(1, 9_000 + i as u64));
    assert!(right && sim.a.received(id) == Some(1_000));
}

#[test]
fn posted__before_the_connection_stands() {
    let mut sim = Sim::new(clean(), 1, Config::default(), Config::default());
    let now = sim.now();
    let early = sim
        .a
        .c()
        .request_region(now, [1; 32], Rights::READ)
        .unwrap();
    sim.run_until(S, |sim| sim.b.connection.is_some());
    let now = sim.now();
    let span = sim.a.filled(1, 100);
    sim.a
        .c()
        .export(span, Rights::READ, ExportAs::Name([2; 32]))
        .unwrap();
    let asked = sim
        .b
        .c()
        .request_region(now, [2; 32], Rights::READ)
        .unwrap();
    sim.b.c().on_timeout(now);
    sim.run_until(S, |sim| {
        sim.a.outcomes(early) == 1 && sim.b.outcomes(asked) == 1
    });
    let unknown = TransferError::Refused(Reason::Unknown);
    assert_eq!(
        (sim.a.failed(early), sim.b.failed(asked)),
        (Some(unknown), None)
    );
}

#[test]
fn region__refused_in_words() {
    let mut sim = quiet(Config::default());
    let span = sim.b.filled(1, 100);
    sim.b
        .c()
        .export(span, Rights::READ, ExportAs::Name([1; 32]))
        .unwrap();
    let cases = [
        ([2; 32], Rights::READ, Reason::Unknown),
        ([1; 32], Rights::ALL, Reason::Denied),
    ];
    for (name, rights, reason) in cases {
        let now = sim.now();
        let id = sim.a.c().request_region(now, name, rights).unwrap();
        until_over(&mut sim, id);
        assert_eq!(sim.a.failed(id), Some(TransferError::Refused(reason)));
    }
    assert_eq!(
        sim.spoken(),
        "A RequestMemoryRegion, B RequestAnswer refused, A RequestMemoryRegion, B RequestAnswer \
         refused"
    );
}

#[test]
fn put__figure_12_needs_no_announcement() {
    for config in [classic(), Config::default()] {
        let mut sim = quiet(config);
        let target = sim.b.empty(1_000);
        let place = export(&mut sim, target, Rights::WRITE);
        let id = put(&mut sim, at(place, 3), 5, 900, None);
        until_over(&mut sim, id);
        assert!(sim.a.sent(id) && sim.b.holds(target.part(3, 900), 5, 900));
        assert_eq!(sim.spoken(), "A Data 0, B State below 1");
        sim.b.assert_guards();
    }
}

#[test]
fn get__figure_12_is_answered_with_data() {
    for config in [classic(), Config::default()] {
        let mut sim = quiet(config);
        let source = sim.b.filled(4, 500);
        let place = export(&mut sim, source, Rights::READ);
        let (id, span) = get(&mut sim, place, 500);
        until_over(&mut sim, id);
        assert!(sim.a.holds(span, 4, 500));
        assert_eq!(sim.spoken(), "A Get, B Data 0");
    }
}

#[test]
fn fetch_op__figure_12_classic_acknowledges_the_value() {
    let mut sim = quiet(classic());
    let word = sim.b.words(&[40]);
    let place = export(&mut sim, word, Rights::ATOMIC);
    let id = fetch(&mut sim, place, atomic(FetchOpKind::Increment, 0, 0));
    until_over(&mut sim, id);
    sim.run_for(MS);
    assert_eq!((sim.a.fetched(id), sim.b.word(word)), (Some(40), 41));
    assert_eq!(sim.spoken(), "A FetchOp, B Data 0, A FetchOpComplete");
}

#[test]
fn fetch_op__extended_acknowledges_with_the_next() {
    let mut sim = quiet(Config::default());
    let word = sim.b.words(&[40]);
    let place = export(&mut sim, word, Rights::ATOMIC);
    for n in 0..3 {
        let id = fetch(&mut sim, place, atomic(FetchOpKind::Add, 2, 0));
        until_over(&mut sim, id);
        assert_eq!(sim.a.fetched(id), Some(40 + 2 * n));
    }
    sim.run_for(S);
    assert_eq!(
        sim.spoken(),
        "A FetchOp, B Data 0, A FetchOp, B Data 0, A FetchOp, B Data 0"
    );
}

#[test]
fn fetch_op__a_value_that_comes_twice_is_no_burst() {
    let mut sim = quiet(Config::default());
    let word = sim.b.words(&[40]);
    let place = export(&mut sim, word, Rights::ATOMIC);
    for _ in 0..40 {
        let id = fetch(&mut sim, place, atomic(FetchOpKind::Add, 2, 0));
        until_over(&mut sim, id);
    }
    let trace = sim.trace.take().unwrap_or_default();
    let (_, value) = trace
        .into_iter()
        .rfind(|(side, _)| *side == Side::B)
        .unwrap();
    sim.inject(Side::A, &value);
    // A's claim of which bursts of B it has seen is believed.
    let now = sim.now();
    let (source, target) = (sim.b.filled(3, 100_000), sim.a.empty(100_000));
    sim.a.c().post_receive(now, target).unwrap();
    let from = sim.b.c().post_send(now, source, Delivery::Polled).unwrap();
    sim.run_until(S, |sim| sim.b.sent(from));
    assert_eq!(sim.b.c().counters().dropped(DropReason::Unexpected), 0);
    assert!(sim.a.holds(target, 3, 100_000));
}

#[test]
fn fetch_op__every_kind() {
    use FetchOpKind as K;
    let mut sim = quiet(Config::default());
    let word = sim.b.words(&[u64::MAX, 7]);
    let place = at(export(&mut sim, word, Rights::ATOMIC), 8);
    let steps = [
        (atomic(K::Add, u64::MAX, 0), 7),
        (atomic(K::Increment, 99, 99), 6),
        (atomic(K::Decrement, 99, 99), 7),
        (atomic(K::Swap, 50, 99), 6),
        (atomic(K::CompareAndSwap, 60, 49), 50),
        (atomic(K::CompareAndSwap, 60, 50), 50),
        (atomic(K::Clear, 99, 99), 60),
        (atomic(K::Decrement, 0, 0), 0),
        (atomic(K::And, 0b1101, 99), u64::MAX),
        (atomic(K::Or, 0b10, 99), 0b1101),
        (atomic(K::Xor, 0b110, 99), 0b1111),
        (atomic(K::Min, 10, 99), 9),
        (atomic(K::Min, 8, 99), 9),
        (atomic(K::Max, 7, 99), 8),
        (atomic(K::Max, u64::MAX, 99), 8),
    ];
    let ids = steps.map(|(it, _)| fetch(&mut sim, place, it));
    until_over(&mut sim, ids[14]);
    let before = steps.map(|(_, before)| Some(before));
    assert_eq!(ids.map(|id| sim.a.fetched(id)), before);
    assert_eq!(sim.b.word(word.part(8, 8)), u64::MAX);
    assert_eq!(sim.b.word(word.part(0, 8)), u64::MAX, "the word beside it");
}

#[test]
fn fetch_op__every_kind_on_either_half_of_a_word() {
    use FetchOpKind as K;
    const MAX: u64 = u32::MAX as u64;
    for half in [0, 4] {
        let mut sim = quiet(Config::default());
        let word = sim.b.words(&[u64::MAX, 0x0101_0101_0101_0101]);
        let place = at(export(&mut sim, word, Rights::ATOMIC), 8 + half);
        let narrow = |kind, operand, comparand| Atomic {
            word: Word::U32,
            ..atomic(kind, operand, comparand)
        };
        let steps = [
            (narrow(K::Add, MAX, 0), 0x0101_0101),
            (narrow(K::Increment, 9, 9), 0x0101_0100),
            (narrow(K::Swap, 0, 9), 0x0101_0101),
            (narrow(K::Decrement, 9, 9), 0),
            (narrow(K::Add, 3, 9), MAX),
            (narrow(K::CompareAndSwap, 60, 3), 2),
            (narrow(K::CompareAndSwap, 13, 2), 2),
            (narrow(K::And, 0b0111, 9), 13),
            (narrow(K::Or, 0b1000, 9), 5),
            (narrow(K::Xor, MAX, 9), 13),
            (narrow(K::Min, MAX, 9), MAX - 13),
            (narrow(K::Max, MAX, 9), MAX - 13),
            (narrow(K::Clear, 9, 9), MAX),
        ];
        let ids = steps.map(|(it, _)| fetch(&mut sim, place, it));
        until_over(&mut sim, ids[12]);
        let before = steps.map(|(_, before)| Some(before));
        assert_eq!(ids.map(|id| sim.a.fetched(id)), before);
        assert_eq!(sim.b.word(word.part(0, 8)), u64::MAX, "the word before");
        let both = sim.b.word(word.part(8, 8)).to_ne_bytes();
        let (it, other) = (half as usize, 4 - half as usize);
        assert_eq!(both[it..it + 4], [0; 4]);
        assert_eq!(both[other..other + 4], [1; 4], "the other half");
    }
}

#[test]
fn fetch_op__of_32_bits_is_aligned_and_in_a_whole_word_of_the_region() {
    let mut sim = quiet(Config::default());
    let words = sim.b.words(&[0, 0]);
    let place = export(&mut sim, words.part(0, 12), Rights::ATOMIC);
    let increment = Atomic {
        word: Word::U32,
        ..atomic(FetchOpKind::Increment, 0, 0)
    };
    let request = |address| WorkRequest::FetchOp {
        place: at(place, address),
        atomic: increment,
        flags: WorkFlags::default(),
    };
    let now = sim.now();
    for address in [1, 2, 3, 6] {
        let posted = sim.a.c().post(now, request(address), Span::EMPTY);
        assert_eq!(posted, Err(PostError::Misaligned), "{address}");
    }
    let ids = [0, 4, 8, 12].map(|address| fetch(&mut sim, at(place, address), increment));
    until_over(&mut sim, ids[3]);
    assert_eq!(sim.a.fetched(ids[1]), Some(0));
    assert_eq!(sim.b.word(words.part(0, 8)), 1 << 32 | 1);
    let outside = Some(TransferError::Refused(Reason::OutOfBounds));
    assert_eq!([ids[2], ids[3]].map(|id| sim.a.failed(id)), [outside; 2]);
    assert_eq!(
        sim.b.word(words.part(8, 8)),
        0,
        "not a whole word of the region"
    );
}

#[test]
fn put__long_is_announced_and_granted() {
    for config in [classic(), Config::default()] {
        let mut sim = quiet(config);
        let target = sim.b.empty(70_000);
        let place = export(&mut sim, target, Rights::WRITE);
        let id = put(&mut sim, at(place, 5_001), 9, 60_000, None);
        until_over(&mut sim, id);
        assert!(sim.b.holds(target.part(5_001, 60_000), 9, 60_000));
        let words = sim.spoken();
        assert!(
            words.starts_with("A RequestToSend, B ClearToSend 0"),
            "{words}"
        );
        assert!(words.ends_with("B State complete"), "{words}");
        assert_eq!(sim.b.moved, 0, "all of it was placed by forecast");
        sim.b.assert_guards();
    }
}

#[test]
fn get__long_is_granted_by_its_gets() {
    for config in [classic(), Config::default()] {
        let mut sim = quiet(config);
        let source = sim.b.filled(9, 3 << 20);
        let place = export(&mut sim, source, Rights::READ);
        let (id, span) = get(&mut sim, place, 3 << 20);
        until_over(&mut sim, id);
        assert!(sim.a.holds(span, 9, 3 << 20));
        assert!(sim.spoken().starts_with("A Get, "), "{}", sim.spoken());
        assert!(
            sim.a.placed > sim.a.moved * 10,
            "most of it was placed by forecast"
        );
        sim.a.assert_guards();
    }
}

#[test]
fn put__many_queued_together_are_one_burst_and_one_confirmation() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(64 * 30);
    let place = export(&mut sim, target, Rights::WRITE);
    let ids: Vec<_> = (0..30)
        .map(|n| put(&mut sim, at(place, 64 * n), n, 64, None))
        .collect();
    let now = sim.now();
    let burst = sim.a.c().poll_transmit(now, BurstLimit::default());
    let Some(Transmit::Operations(burst)) = burst else {
        panic!("{burst:?}");
    };
    let operations: Vec<_> = burst.datagrams().map(|it| it.operations().len()).collect();
    // Sixteen frames of 7 + 64 bytes are in 1192 bytes.
    assert_eq!((operations, burst.segment), (vec![16, 14], 40 + 16 * 71));
    // Lost on the way; all arrive later, in order.
    until_over(&mut sim, ids[29]);
    assert!((0..30).all(|n| sim.b.holds(target.part(64 * n, 64), n, 64)));
    // The repeat measures the path as well.
    let spoken = "A Nop, A Data of 16, A Data of 14, B Nop reply, B State below 30";
    assert_eq!(sim.spoken(), spoken);
}

#[test]
fn confirm__rides_on_what_leaves_anyway() {
    let mut sim = quiet(Config::default());
    let (there, here) = (sim.b.empty(8), sim.a.empty(8));
    let place = export(&mut sim, there, Rights::WRITE);
    let (handle, mx) = sim
        .a
        .c()
        .export(here, Rights::WRITE, ExportAs::Handle)
        .unwrap();
    let back = RemotePlace {
        handle,
        mx,
        address: 0,
    };
    for n in 0..5 {
        let id = put(&mut sim, place, n, 8, None);
        sim.run_until(S, |sim| sim.b.holds(there, n, 8));
        let now = sim.now();
        let span = sim.b.filled(n, 8);
        let flags = WorkFlags::default();
        sim.b.c().post_put(now, back, span, None, flags).unwrap();
        sim.run_until(S, |sim| sim.a.holds(here, n, 8));
        assert!(sim.a.sent(id), "confirmed by the put that came back");
    }
    assert_eq!(sim.spoken().matches("State").count(), 0, "{}", sim.spoken());
    sim.run_for(MS);
    assert_eq!(
        sim.spoken().matches("State").count(),
        1,
        "the last one alone"
    );
}

#[test]
fn order__later_small_puts_to_the_same_place_win() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(8_000);
    let place = export(&mut sim, target, Rights::WRITE);
    put(&mut sim, place, 1, 8_000, None);
    put_fenced(&mut sim, place, 2, 1_000);
    let last = put(&mut sim, at(place, 10), 3, 100, None);
    until_over(&mut sim, last);
    assert!(sim.b.holds(target.part(10, 100), 3, 100));
    let around = |seed, i: u64| sim.b.bytes(target)[i as usize] == content(seed, i);
    assert!((0..10).chain(110..1_000).all(|i| around(2, i)));
    assert!((1_000..8_000).all(|i| around(1, i)));
}

#[test]
fn order__a_get_sees_the_puts_before_it() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(20_000);
    let place = export(&mut sim, target, Rights::ALL);
    put(&mut sim, at(place, 100), 1, 19_900, None);
    put(&mut sim, place, 2, 100, None);
    let (short, first) = get(&mut sim, place, 100);
    let (long, all) = get(&mut sim, at(place, 100), 19_900);
    until_over(&mut sim, short);
    until_over(&mut sim, long);
    assert!(sim.a.holds(first, 2, 100));
    assert!(sim.a.holds(all, 1, 19_900));
}

#[test]
fn fence__begins_when_all_before_is_complete() {
    let mut sim = quiet(Config::default());
    let target = sim.b.filled(1, 50_000);
    let place = export(&mut sim, target, Rights::ALL);
    let (long, all) = get(&mut sim, place, 50_000);
    let now = sim.now();
    let span = sim.a.filled(2, 100);
    let fenced = WorkFlags {
        fence: true,
        ..WorkFlags::default()
    };
    let id = sim.a.c().post_put(now, place, span, None, fenced).unwrap();
    until_over(&mut sim, id);
    assert!(sim.a.received(long).is_some());
    assert!(sim.a.holds(all, 1, 50_000), "read before it was written");
    assert!(sim.b.holds(target.part(0, 100), 2, 100));
}

#[test]
fn immediate__shown_when_its_put_and_all_before_are_there() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(100_000);
    let place = export(&mut sim, target, Rights::WRITE);
    let mut ids = vec![];
    for (n, len) in [(1, 50), (2, 90_000), (3, 0)] {
        ids.push(put(&mut sim, place, u64::from(n), len, Some(n)));
        let shown = (n, place.handle, len);
        sim.run_until(S, |sim| sim.b.immediates().any(|it| it == shown));
        assert!(sim.b.holds(target.part(0, len), u64::from(n), len));
    }
    until_over(&mut sim, ids[2]);
    assert!(
        ids.iter()
            .all(|&id| sim.a.outcomes(id) == 1 && sim.a.sent(id))
    );
}

/// The Gets that A sent.
fn gets_of(sim: &mut Sim) -> Vec<Get> {
    let sent = sim.trace.take().unwrap();
    let of_a = sent.iter().filter(|(side, _)| *side == Side::A);
    let gets = of_a.filter_map(|(_, bytes)| match Packet::parse(bytes).ok()?.operation {
        Operation::Get(get) => Some(get),
        _ => None,
    });
    gets.collect()
}

/// Repeated too early: the answer is in flight.
#[test]
fn get__asked_again_too_soon_is_answered_once() {
    let mut sim = quiet(Config::default());
    let len = 300_000;
    let span = sim.b.filled(3, len);
    let place = export(&mut sim, span, Rights::READ);
    let (id, got) = get(&mut sim, place, len);
    sim.run_until(S, |sim| {
        let connection = sim.b.connection.as_ref();
        connection.is_some_and(|it| it.counters().bytes_sent == len)
    });
    for again in gets_of(&mut sim) {
        let now = sim.now();
        let again = Get {
            repeated: true,
            ..again
        };
        sim.say(now, Side::A, Operation::Get(again));
    }
    until_over(&mut sim, id);
    assert!(sim.a.holds(got, 3, len));
    sim.run_for(S);
    let counters = *sim.b.c().counters();
    assert_eq!((counters.bytes_sent, counters.bytes_resent), (len, 0));
}

/// Nothing of it came: as far as the Initiator knows, nothing was lost.
#[test]
fn get__unheard_is_no_loss_of_payload() {
    let mut sim = quiet(Config::default());
    let len = 50_000;
    let span = sim.b.filled(3, len);
    let place = export(&mut sim, span, Rights::READ);
    let (id, got) = get(&mut sim, place, len);
    let now = sim.now();
    while sim
        .a
        .c()
        .poll_transmit(now, BurstLimit::default())
        .is_some()
    {}
    until_over(&mut sim, id);
    assert!(sim.a.holds(got, 3, len));
    let gets = gets_of(&mut sim);
    assert!(!gets.is_empty() && gets.iter().all(|it| !it.repeated));
    assert_eq!(sim.b.c().counters().bytes_resent, 0);
}

#[test]
fn put_get__beyond_4_gib_is_no_small_one() {
    let mut sim = quiet(Config::default());
    let target = sim.b.filled(3, 8);
    let place = export(&mut sim, target, Rights::ALL);
    // Truncated to 32 bits the length would be 8, which fits.
    let span = Span {
        len: (1 << 32) + 8,
        ..sim.a.filled(1, 8)
    };
    let now = sim.now();
    let flags = WorkFlags::default();
    let put = sim.a.c().post_put(now, place, span, None, flags).unwrap();
    let get = sim.a.c().post_get(now, place, span, flags).unwrap();
    for id in [put, get] {
        until_over(&mut sim, id);
        let refused = TransferError::Refused(Reason::OutOfBounds);
        assert_eq!(sim.a.failed(id), Some(refused));
    }
    assert!(sim.b.holds(target, 3, 8), "untouched");
}

#[test]
fn put__awaited_is_confirmed_in_the_turn_it_arrives_in() {
    for (awaited, at_once) in [(true, true), (false, false)] {
        let mut sim = quiet(Config::default());
        let target = sim.b.empty(8);
        let place = export(&mut sim, target, Rights::WRITE);
        let (now, span) = (sim.now(), sim.a.filled(1, 8));
        let flags = WorkFlags {
            awaited,
            ..WorkFlags::default()
        };
        let id = sim.a.c().post_put(now, place, span, None, flags).unwrap();
        until_over(&mut sim, id);
        let took = sim.now() - now;
        let rtt = 2 * (clean().delay + wake_time(Duration::ZERO));
        assert_eq!(took < rtt + limits::CONFIRM_DELAY, at_once, "{took:?}");
    }
}

#[test]
fn put__unsignalled_tells_of_failure_alone() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(100);
    let place = export(&mut sim, target, Rights::WRITE);
    let quietly = WorkFlags {
        signalled: false,
        ..WorkFlags::default()
    };
    let now = sim.now();
    let span = sim.a.filled(1, 60);
    let good = sim.a.c().post_put(now, place, span, None, quietly).unwrap();
    let bad = sim
        .a
        .c()
        .post_put(now, at(place, 41), span, None, quietly)
        .unwrap();
    let last = put(&mut sim, place, 2, 8, None);
    until_over(&mut sim, last);
    assert_eq!(sim.a.outcomes(good), 0);
    assert_eq!(
        sim.a.failed(bad),
        Some(TransferError::Refused(Reason::OutOfBounds))
    );
    assert!(sim.a.sent(last), "the connection goes on");
    assert!(sim.b.holds(target.part(0, 8), 2, 8));
}

fn receive(sim: &mut Sim, payload: Option<u64>) -> (TransferId, Span, Option<Span>) {
    let control = sim.b.empty(u64::from(limits::MAX_CONTROL));
    let payload = payload.map(|len| sim.b.empty(len));
    let id = sim.b.c().post_message_receive(control, payload).unwrap();
    (id, control, payload)
}

fn message(sim: &mut Sim, seed: u64, control: u64, payload: Option<u64>) -> TransferId {
    let now = sim.now();
    let control = bytes_of(seed, control);
    let payload = payload.map(|len| sim.a.filled(seed + 1, len));
    let flags = WorkFlags::default();
    sim.a
        .c()
        .post_message(now, &control, payload, flags)
        .unwrap()
}

#[test]
fn message__meets_the_receives_in_order() {
    let mut sim = quiet(Config::default());
    let receives: Vec<_> = (0..3).map(|_| receive(&mut sim, None)).collect();
    let ids = [0, 8, 128].map(|len| message(&mut sim, 40 + len, len, None));
    until_over(&mut sim, ids[2]);
    for ((id, span, _), len) in receives.into_iter().zip([0u64, 8, 128]) {
        let (control, payload) = (len as u32, 0);
        assert!(sim.b.events.contains(&Event::Message {
            id,
            control,
            payload
        }));
        assert!(sim.b.holds(span, 40 + len, len));
    }
    assert!(ids.iter().all(|&id| sim.a.sent(id)));
}

#[test]
fn message__waits_for_a_receive_without_loss() {
    let mut sim = quiet(Config::default());
    let ids = [1, 2, 3].map(|n| message(&mut sim, n, 20, None));
    sim.run_for(500 * MS);
    assert!(ids.iter().all(|&id| sim.a.outcomes(id) == 0));
    for n in 1..4 {
        let (id, span, _) = receive(&mut sim, None);
        sim.run_until(S, |sim| sim.b.outcomes(id) == 1);
        assert!(sim.b.holds(span, n, 20));
    }
    until_over(&mut sim, ids[2]);
    assert!(ids.iter().all(|&id| sim.a.sent(id)));
}

#[test]
fn message__with_a_payload_of_any_length() {
    for config in [classic(), Config::default()] {
        let mut sim = quiet(config);
        let receives = [100, 5_000, 300_000].map(|room| receive(&mut sim, Some(room)));
        let lengths = [1, 5_000, 200_000];
        let ids = lengths.map(|len| message(&mut sim, len, 16, Some(len)));
        for ((id, span, payload), length) in receives.into_iter().zip(lengths) {
            sim.run_until(S, |sim| sim.b.outcomes(id) == 1);
            let event = Event::Message {
                id,
                control: 16,
                payload: length,
            };
            assert!(sim.b.events.contains(&event));
            assert!(sim.b.holds(span, length, 16));
            assert!(sim.b.holds(payload.unwrap(), length + 1, length));
        }
        ids.iter().for_each(|&id| until_over(&mut sim, id));
        assert!(
            ids.iter()
                .all(|&id| sim.a.sent(id) && sim.a.outcomes(id) == 1)
        );
        sim.b.assert_guards();
    }
}

#[test]
fn message__too_large_fails_both_and_nothing_else() {
    let mut sim = quiet(Config::default());
    let (small, ..) = receive(&mut sim, Some(10));
    let (next, span, _) = receive(&mut sim, None);
    let large = message(&mut sim, 1, 8, Some(11));
    let fits = message(&mut sim, 2, 8, None);
    sim.run_until(S, |sim| sim.b.outcomes(next) == 1);
    until_over(&mut sim, fits);
    let error = TransferError::MessageTooLarge {
        length: 11,
        room: 10,
    };
    assert_eq!(
        (sim.a.failed(large), sim.b.failed(small)),
        (Some(error), Some(error))
    );
    assert!(sim.a.sent(fits) && sim.b.holds(span, 2, 8));
    assert_eq!(sim.a.outcomes(large), 1);
}

/// The headers of a datagram's operations.
fn headers(datagram: OperationDatagram<'_>) -> Vec<Header> {
    let mut bytes = vec![];
    for it in datagram.operations() {
        let payload = it.payload.map_or(0, |span| span.len as usize);
        bytes.extend_from_slice(it.head);
        bytes.resize(bytes.len() + payload, 0);
    }
    let header = Header::parse(&bytes).unwrap();
    if !header.flags.contains(Flags::FRAMES) {
        return vec![header];
    }
    let frames = Frames::parse(&header, &bytes[HEADER_LEN..]).unwrap();
    frames.map(|(header, _)| header).collect()
}

#[test]
fn immediate__waits_until_the_peer_looks() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(8);
    let place = export(&mut sim, target, Rights::WRITE);
    let count = limits::MAX_UNREAD as u32 + 50;
    let now = sim.now();
    let span = sim.a.filled(1, 8);
    let flags = WorkFlags::default();
    // The test polls B's events itself: none, at first.
    let mut last = 0;
    for n in 0..count {
        last = sim
            .a
            .c()
            .post_put(now, place, span, Some(n), flags)
            .unwrap();
    }
    let mut b = sim.b.connection.take().unwrap();
    let mut seen = vec![];
    let mut now = now;
    for round in 0..400 {
        now = now + 10 * MS;
        sim.a.c().on_timeout(now);
        b.on_timeout(now);
        while let Some(it) = sim.a.c().poll_transmit(now, BurstLimit::default()) {
            match it {
                Transmit::Operations(burst) => {
                    for datagram in burst.datagrams() {
                        for header in headers(datagram) {
                            b.on_data(now, &header, 8, 8, None);
                        }
                    }
                }
                Transmit::Control(it) => b.on_control(now, it.bytes(), it.bytes().len()),
                Transmit::Data(_) => panic!("nothing granted"),
                Transmit::Handshake => panic!("plain"),
            }
        }
        while let Some(Transmit::Control(it)) = b.poll_transmit(now, BurstLimit::default()) {
            sim.a.c().on_control(now, it.bytes(), it.bytes().len());
        }
        if round == 100 {
            assert!(!sim.a.sent(last), "no room for all");
            assert!(b.counters().dropped(DropReason::Limit) > 0);
        }
        while round >= 100
            && let Some(event) = b.poll_event()
        {
            match event {
                Event::Immediate { value, length, .. } => seen.push((value, length)),
                other => panic!("{other:?}"),
            }
        }
    }
    let all: Vec<_> = (0..count).map(|value| (value, 8)).collect();
    assert_eq!(seen, all, "none lost, none twice, in order");
}

#[test]
fn cancel__a_put_that_waits_is_not_done() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(100_000);
    let place = export(&mut sim, target, Rights::WRITE);
    let long = put(&mut sim, place, 1, 100_000, None);
    let waits = put_fenced(&mut sim, place, 2, 50);
    let now = sim.now();
    assert!(sim.a.c().cancel(now, waits));
    let last = put(&mut sim, at(place, 50), 3, 50, None);
    until_over(&mut sim, last);
    until_over(&mut sim, long);
    assert_eq!(sim.a.failed(waits), Some(TransferError::Cancelled));
    assert!(sim.a.sent(long) && sim.b.holds(target.part(0, 50), 1, 50));
}

#[test]
fn cancel__what_left_keeps_its_number() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(100);
    let place = export(&mut sim, target, Rights::ALL);
    let ids: Vec<_> = (0..3).map(|n| put(&mut sim, place, n, 50, None)).collect();
    let now = sim.now();
    // Removed from the wire: as if lost.
    sim.a.c().poll_transmit(now, BurstLimit::default());
    assert!(sim.a.c().cancel(now, ids[1]));
    let dead = sim.a.filled(1, 50);
    sim.a.freeze(dead);
    until_over(&mut sim, ids[2]);
    assert!(sim.a.sent(ids[0]) && sim.a.sent(ids[2]));
    assert_eq!(
        (sim.a.outcomes(ids[1]), sim.a.failed(ids[1])),
        (1, Some(TransferError::Cancelled))
    );
    assert!(sim.b.holds(target.part(0, 50), 2, 50));
}

#[test]
fn close__fails_everything_once() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(500_000);
    let place = export(&mut sim, target, Rights::ALL);
    let ids = [
        put(&mut sim, place, 1, 400_000, Some(4)),
        put(&mut sim, place, 1, 40, None),
        get(&mut sim, place, 40).0,
        get(&mut sim, place, 400_000).0,
        fetch(&mut sim, place, atomic(FetchOpKind::Clear, 0, 0)),
        message(&mut sim, 1, 10, Some(10_000)),
    ];
    let receive = receive(&mut sim, None).0;
    sim.run_for(Duration::from_micros(250));
    let now = sim.now();
    sim.a.c().close(now);
    sim.run_for(S);
    for id in ids {
        assert_eq!(sim.a.outcomes(id), 1, "{id}");
    }
    assert_eq!(sim.b.outcomes(receive), 1);
    let late = sim.a.c().post_get(now, place, target, WorkFlags::default());
    assert_eq!(late, Err(PostError::Closed));
}

#[test]
fn header__small_operations_are_data_or_fetch_op() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(100);
    let place = export(&mut sim, target, Rights::ALL);
    put(&mut sim, place, 1, 10, None);
    fetch(&mut sim, at(place, 16), atomic(FetchOpKind::Add, 1, 0));
    let last = put(&mut sim, place, 1, 10, Some(77));
    until_over(&mut sim, last);
    let sent = sim
        .trace
        .iter()
        .flatten()
        .filter(|(side, _)| *side == Side::A);
    let headers: Vec<Header> = sent
        .map(|(_, bytes)| Header::parse(bytes).unwrap())
        .collect();
    let seen: Vec<_> = headers
        .iter()
        .map(|it| (it.op, it.sync, it.b_num))
        .collect();
    assert_eq!(
        seen,
        [(Op::Data, 0, 0), (Op::FetchOp, 1, 0), (Op::Data, 2, 77)]
    );
}

/// As in the backlog of a listener: the program has exported and posted nothing yet.
#[test]
fn operations__wait_until_the_program_has_taken_the_connection() {
    for config in [classic(), Config::default()] {
        let mut sim = quiet(config);
        let [word, short, long] = [8, 1_000, 200_000].map(|len| sim.b.empty(len));
        let places = [word, short, long].map(|span| export(&mut sim, span, Rights::ALL));
        let now = sim.now();
        sim.b.c().defer_operations(now, true);
        let name = [7; 32];
        let asked = sim.a.c().request_region(now, name, Rights::READ).unwrap();
        let puts = [
            put(&mut sim, places[1], 1, 1_000, Some(5)),
            put(&mut sim, places[2], 2, 200_000, None),
        ];
        let (got, copy) = get(&mut sim, places[1], 1_000);
        let added = fetch(&mut sim, places[0], atomic(FetchOpKind::Add, 3, 0));
        let all = [asked, puts[0], puts[1], got, added];
        sim.run_for(3 * S);
        assert!(all.iter().all(|&id| sim.a.outcomes(id) == 0));
        assert!(!sim.b.is_shown(5));
        let now = sim.now();
        let exported = ExportAs::Name(name);
        sim.b.c().export(word, Rights::READ, exported).unwrap();
        sim.b.c().defer_operations(now, false);
        sim.run_until(2 * S, |sim| all.iter().all(|&id| sim.a.outcomes(id) == 1));
        assert!(all.iter().all(|&id| sim.a.failed(id).is_none()));
        assert!(sim.b.holds(short, 1, 1_000) && sim.b.holds(long, 2, 200_000));
        assert!(sim.a.holds(copy, 1, 1_000));
        let before = sim.a.fetched(added).expect("over");
        assert_eq!(sim.b.word(word), before.wrapping_add(3));
        assert!(sim.b.is_shown(5));
    }
}
