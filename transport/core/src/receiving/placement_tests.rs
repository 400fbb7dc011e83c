//! Tests that a payload byte counts only in a live grant.
//!
//! Port and key belong to the connection. Each other field that names a place is changed alone.
#![allow(non_snake_case)]

use super::*;
use crate::limits::{MAX_FORECAST_RUNS, MAX_GAPS_PER_BLOCK, MIN_BUFFER_LOG2};
use crate::receiving::Forecast;
use crate::span::RegionId;
use crate::transmit::split;
use proptest::prelude::*;
use std::collections::HashSet;
use zerolane_wire::Op;

/// Buffers of 4 KiB.
const BUFFER_LOG2: u8 = 12;
const BUFFER: u32 = 1 << BUFFER_LOG2;
const MS: Duration = Duration::from_millis(1);

fn at(ms: u32) -> Instant {
    Instant::ZERO + MS * ms
}

fn span(region: u32, offset: u64, len: u32) -> Span {
    Span {
        region: RegionId {
            index: region,
            generation: 1,
        },
        offset,
        len: u64::from(len),
    }
}

/// A table with one Block for each of `lens`, of Transfers 1, 2 and so on, each at the start of a region.
fn granted(lens: &[u32]) -> PlacementTable {
    let mut grants = PlacementTable::new(BUFFER_LOG2);
    for (index, &len) in (0..).zip(lens) {
        grants.grant(at(0), index + 1, 0, span(index, 0, len), 0);
    }
    grants
}

/// Data for `block`, `start` bytes into it.
fn data(block: &GrantedBlock, start: u32) -> Header {
    data_in(BUFFER_LOG2, block, start)
}

/// The same, in buffers of another size.
fn data_in(buffer_log2: u8, block: &GrantedBlock, start: u32) -> Header {
    let (bufx, offset) = split(block.address + u64::from(start), buffer_log2);
    Header {
        b_id: block.mx,
        b_num: block.b_num,
        d_id: block.transfer,
        bufx,
        offset,
        ..Header::new(Op::Data)
    }
}

fn take(grants: &mut PlacementTable, header: &Header, len: u32) -> Result<Accepted, DropReason> {
    let claim = grants.claim(header, len)?;
    grants.accept(at(1), claim)
}

/// `len` bytes come for Block `sequence`, `start` bytes into it.
fn come(
    grants: &mut PlacementTable,
    sequence: u32,
    start: u32,
    len: u32,
) -> Result<Accepted, DropReason> {
    let header = data(&grants.blocks[grants.index(sequence)], start);
    let accepted = take(grants, &header, len);
    grants.assert_bounded();
    accepted
}

#[test]
fn accept__a_claim_holds_no_longer_than_its_grant() {
    let mut grants = granted(&[4_000]);
    let header = data(&grants.blocks[0], 1_000);
    let claim = grants.claim(&header, 1_000).expect("a place");
    assert!(grants.is_missing(&claim));
    grants.revoke(0);
    let late = grants.accept(at(1), claim).map(|it| it.new_bytes);
    assert_eq!(late, Err(DropReason::NoGrant));

    // Granted in advance, and shortened by the announcement.
    let mut grants = granted(&[4_000]);
    grants.reserve(0);
    let claim = grants.claim(&header, 1_000).expect("a place");
    grants.expect_reserved(at(1), 1, 1_999);
    let beyond = grants.accept(at(1), claim).map(|it| it.new_bytes);
    assert_eq!(beyond, Err(DropReason::OutOfBounds));
    grants.assert_bounded();
}

fn forecast(grants: &PlacementTable, stu: u32, stus: u32) -> Vec<(u32, u64, u64)> {
    let mut out = Forecast::default();
    grants.forecast(stu, stus, &mut out);
    out.runs()
        .map(|run| (run.span.region.index, run.span.offset, run.span.end()))
        .collect()
}

#[test]
fn accept__counts_each_byte_once() {
    let mut grants = granted(&[3000]);
    let accepted = come(&mut grants, 0, 0, 1000).expect("granted");
    assert_eq!(
        (accepted.span, accepted.new_bytes),
        (span(0, 0, 1000), 1000)
    );
    assert_eq!(grants.outstanding(), 2000);
    assert_eq!(
        come(&mut grants, 0, 0, 1000).unwrap_err(),
        DropReason::Duplicate
    );
    let accepted = come(&mut grants, 0, 500, 1000).expect("half of it is new");
    assert_eq!((accepted.new_bytes, accepted.block_complete), (500, false));
    let accepted = come(&mut grants, 0, 1500, 1500).expect("granted");
    assert_eq!((accepted.new_bytes, accepted.block_complete), (1500, true));
    assert_eq!(grants.outstanding(), 0);
}

#[test]
fn accept__refuses_what_names_another_grant() {
    let mut grants = granted(&[1000, 1000]);
    let right = data(grants.get(0).expect("live"), 0);
    let another = |change: fn(&mut Header)| {
        let mut header = right;
        change(&mut header);
        header
    };
    for (what, header) in [
        ("Mx without a grant", another(|it| it.b_id = 7)),
        ("Mx of another Block", another(|it| it.b_id = 1)),
        (
            "another generation",
            another(|it| it.b_id += MAX_LIVE_BLOCKS as u16),
        ),
        ("another Transfer", another(|it| it.d_id = 2)),
        ("another Block", another(|it| it.b_num = 1)),
    ] {
        let refused = take(&mut grants, &header, 100).unwrap_err();
        assert_eq!(refused, DropReason::NoGrant, "{what}");
        assert_eq!(grants.outstanding(), 2000, "{what}");
    }
    assert!(take(&mut grants, &right, 100).is_ok());
}

#[test]
fn accept__refuses_what_lies_outside() {
    let mut grants = PlacementTable::new(BUFFER_LOG2);
    grants.grant(at(0), 1, 0, span(0, 5000, 2000), 0);
    let first = data(grants.get(0).expect("live"), 0);
    let place = |bufx, offset| Header {
        bufx,
        offset,
        ..first
    };
    // The Block lies in buffer 1, from 904 to 2904.
    for (what, header, len) in [
        ("before it", place(1, 903), 100),
        ("behind it", place(1, 2904), 1),
        ("beyond its end", place(1, 2900), 5),
        ("the buffer before", place(0, 904), 100),
        ("the buffer after", place(2, 904), 100),
        ("the last address there is", place(u32::MAX, u32::MAX), 100),
        ("more than 32 bits", place(1, 904), u32::MAX),
        ("nothing", place(1, 904), 0),
    ] {
        let refused = take(&mut grants, &header, len).unwrap_err();
        assert_eq!(refused, DropReason::OutOfBounds, "{what}");
        assert_eq!(grants.outstanding(), 2000, "{what}");
    }
    assert!(take(&mut grants, &first, 1).is_ok());
    assert!(take(&mut grants, &place(1, 2903), 1).is_ok());
}

#[test]
fn accept__refuses_what_crosses_a_buffer_boundary() {
    let mut grants = granted(&[3 * BUFFER]);
    assert_eq!(
        come(&mut grants, 0, BUFFER - 100, 101).unwrap_err(),
        DropReason::OutOfBounds
    );
    // The same address, named by the previous buffer.
    let aliased = Header {
        bufx: 0,
        offset: BUFFER,
        ..data(grants.get(0).expect("live"), 0)
    };
    let refused = take(&mut grants, &aliased, 1).unwrap_err();
    assert_eq!(refused, DropReason::OutOfBounds);
    assert!(come(&mut grants, 0, BUFFER - 100, 100).is_ok());
    assert!(come(&mut grants, 0, BUFFER, BUFFER).is_ok());
}

#[test]
fn accept__drops_what_would_make_too_many_gaps() {
    let mut grants = granted(&[BUFFER]);
    let gaps = MAX_GAPS_PER_BLOCK as u32;
    for index in 1..gaps {
        come(&mut grants, 0, 2 * index, 1).expect("one more gap");
    }
    let before = grants.outstanding();
    assert_eq!(
        come(&mut grants, 0, 2 * gaps, 1).unwrap_err(),
        DropReason::Limit
    );
    assert_eq!(grants.outstanding(), before);
    assert!(come(&mut grants, 0, 0, 3).is_ok(), "fewer gaps");
}

#[test]
fn accept__says_how_it_stands_to_the_stream() {
    let mut grants = granted(&[2000, 2000]);
    let mut order = |sequence, start| {
        let accepted = come(&mut grants, sequence, start, 500);
        accepted.expect("granted").order
    };
    assert_eq!(order(0, 0), Arrival::Next);
    assert_eq!(order(0, 1000), Arrival::Ahead((0, 500)));
    assert_eq!(order(0, 500), Arrival::Behind);
    assert_eq!(order(1, 0), Arrival::Ahead((0, 1500)));
    assert_eq!(order(1, 500), Arrival::Next);
    assert_eq!(order(0, 1500), Arrival::Behind);
    assert!(!grants.overtaken(1));
}

#[test]
fn between__is_what_was_overtaken_and_is_missing() {
    let mut grants = granted(&[2000, 1000, 2000]);
    come(&mut grants, 0, 500, 500).expect("granted");
    come(&mut grants, 2, 700, 100).expect("granted");
    let missing: Vec<_> = grants.between((0, 200), (2, 700)).collect();
    assert_eq!(
        missing,
        [(0, 200, 500), (0, 1000, 2000), (1, 0, 1000), (2, 0, 700)]
    );
    assert!(grants.overtaken(0) && grants.overtaken(1) && !grants.overtaken(2));
    grants.revoke(1);
    let missing: Vec<_> = grants.between((0, 1500), (2, 1)).collect();
    assert_eq!(missing, [(0, 1500, 2000), (2, 0, 1)]);
}

#[test]
fn revoke__nothing_is_placed_any_more() {
    let mut grants = granted(&[1000, 1000, 1000]);
    come(&mut grants, 1, 0, 400).expect("granted");
    let late = data(grants.get(1).expect("live"), 400);
    grants.revoke(1);
    grants.assert_bounded();
    assert_eq!(grants.outstanding(), 2000);
    assert!(grants.get(1).is_none());
    assert_eq!(
        take(&mut grants, &late, 100).unwrap_err(),
        DropReason::NoGrant
    );
    assert_eq!(forecast(&grants, 500, 64), [(2, 0, 1000)]);
    // A duplicate, and a grant that never existed.
    grants.revoke(1);
    grants.revoke(99);
    grants.assert_bounded();
    assert_eq!(grants.outstanding(), 2000);
}

#[test]
fn revoke__of_a_transfer_ends_all_its_blocks_and_no_other() {
    let mut grants = PlacementTable::new(BUFFER_LOG2);
    for b_num in 0..6 {
        let place = span(0, u64::from(b_num) * 1000, 1000);
        grants.grant(at(0), 1 + b_num % 2, b_num, place, 0);
    }
    grants.revoke_transfer(1);
    grants.assert_bounded();
    let left: Vec<u32> = grants.iter().map(|(sequence, _)| sequence).collect();
    assert_eq!(left, [1, 3, 5]);
    assert_eq!(grants.outstanding(), 3000);
    grants.revoke_transfer(2);
    assert!(grants.is_idle());
    assert!(forecast(&grants, 500, 64).is_empty());
}

#[test]
fn grant__a_used_entry_gets_another_generation() {
    let mut grants = granted(&[1000; MAX_LIVE_BLOCKS]);
    let late = data(grants.get(5).expect("live"), 0);
    grants.revoke(5);
    grants.assert_bounded();
    let again = grants.grant(at(1), 6, 0, span(5, 0, 1000), 0);
    let mx = grants.get(again).expect("live").mx;
    assert_eq!(
        usize::from(mx) % MAX_LIVE_BLOCKS,
        usize::from(late.b_id) % MAX_LIVE_BLOCKS,
        "the one free entry"
    );
    assert_eq!(
        take(&mut grants, &late, 100).unwrap_err(),
        DropReason::NoGrant
    );
    assert!(come(&mut grants, again, 0, 100).is_ok());
}

#[test]
fn grant__mx_wraps_around_a_block_that_stays() {
    let mut grants = granted(&[1000]);
    grants.next_mx = u16::MAX;
    let mut mx = || {
        let sequence = grants.grant(at(1), 2, 0, span(1, 0, 100), 0);
        grants.get(sequence).expect("live").mx
    };
    assert_eq!((mx(), mx()), (u16::MAX, 1), "0 is in use");
    assert!(come(&mut grants, 0, 0, 1000).is_ok());
}

#[test]
fn grant__room_is_bounded_and_comes_back() {
    let mut grants = granted(&[10; MAX_LIVE_BLOCKS]);
    assert!(!grants.has_room(), "as many live Blocks as may be");
    grants.revoke(1);
    assert!(grants.has_room());
    // Revoked Blocks are remembered behind the first, which stays.
    for _ in MAX_LIVE_BLOCKS..MAX_REMEMBERED_BLOCKS {
        grants.assert_bounded();
        assert!(grants.has_room());
        let sequence = grants.grant(at(1), 1, 0, span(0, 0, 10), 0);
        grants.revoke(sequence);
    }
    assert!(!grants.has_room(), "as many as are remembered");
    (0..MAX_LIVE_BLOCKS as u32).for_each(|sequence| grants.revoke(sequence));
    assert!(grants.blocks.is_empty() && grants.has_room() && grants.is_idle());
}

#[test]
fn forecast__goes_on_behind_what_arrived_furthest() {
    let mut grants = granted(&[3000, 2000]);
    assert_eq!(forecast(&grants, 1000, 2), [(0, 0, 2000)]);
    come(&mut grants, 0, 1000, 1000).expect("granted");
    assert_eq!(
        forecast(&grants, 1000, 64),
        [(0, 2000, 3000), (1, 0, 2000)],
        "what was overtaken is not expected next"
    );
    come(&mut grants, 0, 2000, 1000).expect("granted");
    come(&mut grants, 1, 0, 2000).expect("granted");
    assert_eq!(
        forecast(&grants, 1000, 64),
        [(0, 0, 1000)],
        "and then, when nothing else is left"
    );
}

#[test]
fn forecast__stops_at_a_buffer_boundary_with_a_short_stu() {
    let mut grants = PlacementTable::new(BUFFER_LOG2);
    grants.grant(at(0), 1, 0, span(0, 3000, 4000), 0);
    assert_eq!(
        forecast(&grants, 1000, 64),
        [(0, 3000, 4096), (0, 4096, 7000)]
    );
}

#[test]
fn forecast__is_bounded_in_runs_and_in_stus() {
    let grants = granted(&[1000; 2 * MAX_FORECAST_RUNS]);
    assert_eq!(forecast(&grants, 1000, 64).len(), MAX_FORECAST_RUNS);
    assert_eq!(forecast(&grants, 300, 5), [(0, 0, 1000), (1, 0, 300)]);
    assert!(forecast(&grants, 300, 0).is_empty());
}

#[test]
fn take_overdue__names_each_silent_block_once() {
    let mut grants = granted(&[1000; 2 * MAX_GRANTS_REPEATED]);
    come(&mut grants, 1, 0, 100).expect("granted");
    assert_eq!(
        grants.take_overdue(Instant::ZERO.before(MS)).len(),
        MAX_GRANTS_REPEATED
    );
    let rest = grants.take_overdue(at(5));
    assert_eq!(rest.len(), MAX_GRANTS_REPEATED - 1);
    assert!(!rest.contains(&1), "something of it came");
    assert!(grants.take_overdue(at(5)).is_empty());
}

#[test]
fn delay__is_not_taken_from_a_grant_that_was_repeated() {
    let mut grants = granted(&[1000, 1000]);
    grants.repeated(0);
    come(&mut grants, 0, 0, 100).expect("granted");
    assert_eq!(grants.take_delay(), None);
    come(&mut grants, 1, 0, 100).expect("granted");
    assert_eq!(grants.take_delay(), Some(MS));
    assert_eq!(grants.take_delay(), None);
}

/// Buffers of the oracle, as small as possible: a map of few bytes has many boundaries.
const SMALL_LOG2: u8 = MIN_BUFFER_LOG2;
const SMALL: u32 = 1 << SMALL_LOG2;

/// A Block of the oracle, with a flag for each byte that is missing.
struct Mapped {
    sequence: u32,
    header: Header,
    start: u64,
    region: u32,
    missing: Vec<bool>,
    live: bool,
}

/// Every Block that was ever granted, byte by byte.
#[derive(Default)]
struct Oracle(Vec<Mapped>);

impl Oracle {
    fn live(&self) -> impl Iterator<Item = &Mapped> {
        self.0.iter().filter(|it| it.live)
    }

    /// The expected result for `len` bytes with `header`.
    fn accept(&mut self, header: &Header, len: u32) -> Result<u32, DropReason> {
        let names = |it: &Header| (it.b_id, it.d_id, it.b_num);
        let mut live = self.0.iter_mut().filter(|it| it.live);
        let block = live.find(|it| names(&it.header) == names(header));
        let block = block.ok_or(DropReason::NoGrant)?;
        let address = u64::from(header.bufx) * u64::from(SMALL) + u64::from(header.offset);
        let range = address..address + u64::from(len);
        let end = block.start + block.missing.len() as u64;
        let one_buffer = range.end <= (u64::from(header.bufx) + 1) * u64::from(SMALL);
        if range.is_empty() || range.start < block.start || range.end > end || !one_buffer {
            return Err(DropReason::OutOfBounds);
        }
        let bytes = range.map(|it| (it - block.start) as usize);
        let new = bytes.filter(|&it| std::mem::take(&mut block.missing[it]));
        match new.count() as u32 {
            0 => Err(DropReason::Duplicate),
            new => Ok(new),
        }
    }

    fn outstanding(&self) -> u64 {
        let missing = |it: &Mapped| it.missing.iter().filter(|it| **it).count() as u64;
        self.live().map(missing).sum()
    }

    /// Checks that every byte of the forecast is granted and missing, and occurs once.
    fn check_forecast(&self, grants: &PlacementTable, stu: u32, stus: u32) {
        let mut out = Forecast::default();
        grants.forecast(stu, stus, &mut out);
        assert_eq!(out.is_empty(), self.outstanding() == 0);
        assert!(out.runs().map(|run| run.stus()).sum::<u32>() <= stus);
        let mut named = HashSet::new();
        for run in out.runs() {
            let region = run.span.region.index;
            let block = self.live().find(|it| it.region == region).expect("live");
            for byte in run.span.offset..run.span.end() {
                assert!(named.insert((region, byte)), "{byte} is named twice");
                assert!(
                    block.missing[(byte - block.start) as usize],
                    "{byte} is here"
                );
            }
        }
    }
}

/// The wrong field of a header.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Nothing,
    Index,
    Generation,
    Transfer,
    Block,
    Buffer,
    Alias,
}

#[derive(Clone, Debug)]
enum Step {
    Grant {
        offset: u64,
        len: u32,
    },
    Data {
        block: prop::sample::Index,
        start: i64,
        len: u32,
        wrong: Wrong,
    },
    Next {
        stus: usize,
    },
    Revoke(prop::sample::Index),
    RevokeTransfer(u32),
}

/// Transfers with several Blocks each.
const TRANSFERS: u32 = 3;

fn step() -> impl Strategy<Value = Step> {
    use Wrong::*;
    let wrong = prop_oneof![
        8 => Just(Nothing),
        4 => prop::sample::select(vec![Index, Generation, Transfer, Block, Buffer, Alias]),
    ];
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => (0..3 * u64::from(SMALL), 1..2 * SMALL)
            .prop_map(|(offset, len)| Step::Grant { offset, len }),
        8 => (index(), -20i64..2 * i64::from(SMALL), 0..SMALL, wrong)
            .prop_map(|(block, start, len, wrong)| Step::Data { block, start, len, wrong }),
        8 => (1..5usize).prop_map(|stus| Step::Next { stus }),
        1 => index().prop_map(Step::Revoke),
        1 => (1..=TRANSFERS).prop_map(Step::RevokeTransfer),
    ]
}

/// The table, and the oracle that it must match.
struct Pair {
    grants: PlacementTable,
    oracle: Oracle,
}

impl Pair {
    fn grant(&mut self, offset: u64, len: u32) {
        if !self.grants.has_room() {
            return;
        }
        // Separate regions, so that addresses of several Blocks are equal.
        let region = self.oracle.0.len() as u32;
        let transfer = 1 + region % TRANSFERS;
        let place = span(region, offset, len);
        let sequence = self.grants.grant(at(0), transfer, region, place, 0);
        let block = self.grants.get(sequence).expect("granted");
        let header = data_in(SMALL_LOG2, block, 0);
        let same = |it: &&Mapped| it.header.b_id == header.b_id;
        assert_eq!(self.oracle.live().find(same).map(|it| it.sequence), None);
        self.oracle.0.push(Mapped {
            sequence,
            header,
            start: offset,
            region,
            missing: vec![true; len as usize],
            live: true,
        });
    }

    fn data(&mut self, header: &Header, len: u32) {
        let expected = self.oracle.accept(header, len);
        let accepted = take(&mut self.grants, header, len);
        assert_eq!(accepted.map(|it| it.new_bytes), expected, "{header:?}");
        let Ok(accepted) = accepted else { return };
        let block = &self.oracle.0[header.b_num as usize];
        let address = join(header.bufx, header.offset, SMALL_LOG2);
        assert_eq!(accepted.span, span(block.region, address, len));
        assert_eq!(accepted.sequence, block.sequence);
        assert_eq!(accepted.block_complete, !block.missing.contains(&true));
        if accepted.block_complete {
            // As a connection does.
            self.revoke(header.b_num as usize);
        }
    }

    /// The forecast payload arrives.
    fn next(&mut self, stus: usize) {
        for _ in 0..stus {
            let mut out = Forecast::default();
            self.grants.forecast(60, 1, &mut out);
            let Some(run) = out.runs().next() else { return };
            let block = &self.oracle.0[run.span.region.index as usize];
            let (bufx, offset) = split(run.span.offset, SMALL_LOG2);
            let header = Header {
                bufx,
                offset,
                ..block.header
            };
            self.data(&header, run.span.len as u32);
        }
    }

    fn revoke(&mut self, index: usize) {
        self.oracle.0[index].live = false;
        self.grants.revoke(self.oracle.0[index].sequence);
    }

    fn revoke_transfer(&mut self, transfer: u32) {
        let of_it = |it: &&mut Mapped| it.header.d_id == transfer;
        let blocks = self.oracle.0.iter_mut().filter(of_it);
        blocks.for_each(|it| it.live = false);
        self.grants.revoke_transfer(transfer);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Grant { offset, len } => self.grant(offset, len),
            Step::Next { stus } => self.next(stus),
            Step::RevokeTransfer(transfer) => self.revoke_transfer(transfer),
            Step::Revoke(_) | Step::Data { .. } if self.oracle.0.is_empty() => {}
            Step::Revoke(block) => self.revoke(block.index(self.oracle.0.len())),
            Step::Data {
                block,
                start,
                len,
                wrong,
            } => {
                let block = &self.oracle.0[block.index(self.oracle.0.len())];
                let address = block.start.saturating_add_signed(start);
                let (bufx, offset) = split(address, SMALL_LOG2);
                let header = Header {
                    bufx,
                    offset,
                    ..block.header
                };
                self.data(&spoiled(header, wrong), len);
            }
        }
    }

    fn check(&self) {
        self.grants.assert_bounded();
        assert_eq!(self.grants.outstanding(), self.oracle.outstanding());
        for (stu, stus) in [(60, 1), (60, 64), (100, 44)] {
            self.oracle.check_forecast(&self.grants, stu, stus);
        }
    }
}

fn spoiled(mut header: Header, wrong: Wrong) -> Header {
    match wrong {
        Wrong::Nothing => {}
        Wrong::Index => header.b_id ^= 1,
        Wrong::Generation => header.b_id ^= MAX_LIVE_BLOCKS as u16,
        Wrong::Transfer => header.d_id = 1 + header.d_id % TRANSFERS,
        Wrong::Block => header.b_num ^= 1,
        Wrong::Buffer => header.bufx += 1,
        Wrong::Alias if header.bufx > 0 => {
            header.bufx -= 1;
            header.offset += SMALL;
        }
        Wrong::Alias => header.offset = u32::MAX,
    }
    header
}

proptest! {
    #[test]
    fn grants__agree_with_a_map_of_bytes(steps in prop::collection::vec(step(), 0..60)) {
        let mut pair = Pair { grants: PlacementTable::new(SMALL_LOG2), oracle: Oracle::default() };
        for step in steps {
            pair.step(step);
            pair.check();
        }
    }
}
