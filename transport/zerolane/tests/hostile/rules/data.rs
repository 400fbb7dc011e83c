//! Tests that ends enforce the rules of payload.

use super::peer::Peer;
use super::rule::{Outcome, Rule, rule};
use super::victim::ROOM;
use std::time::Duration;
use zerolane::counters::DropReason::{Duplicate, NoGrant, OutOfBounds};
use zerolane_wire::{Flags, Header, Op};

pub(super) const RULES: &[Rule] = &[
    rule("data_needs_a_grant", data_needs_a_grant).drops(&[(NoGrant, 100)]),
    rule("data_inside_its_block", data_inside_its_block).drops(&[(OutOfBounds, 5), (NoGrant, 5)]),
    rule("data_of_a_grant_that_lives", data_of_a_dead_grant).drops(&[(NoGrant, 3)]),
    rule("data_no_larger_than_its_grant", data_too_large).drops(&[(OutOfBounds, 1)]),
    rule("data_once", data_once).drops(&[(Duplicate, 50)]),
    rule("data_burst_of_equal_parts", data_burst_of_odd_parts).drops(&[(NoGrant, 5)]),
    rule("data_where_its_burst_lands", data_across_its_own_burst),
    rule("data_comes_after_a_grant", data_never_comes).outcome(Outcome::GivenUp),
    rule("data_classic", data_inside_its_block)
        .classic()
        .drops(&[(OutOfBounds, 5), (NoGrant, 5)]),
];

/// Announces a message of `length` bytes and waits for its first grant. Returns the header for Data.
pub(super) fn granted(peer: &mut Peer, length: u64) -> Header {
    grant(peer, length).1
}

/// Like [`granted`], and the grant itself.
pub(super) fn grant(peer: &mut Peer, length: u64) -> (Header, Header) {
    let (s_id, sync) = (peer.id(), peer.sequence());
    let announcement = Header {
        s_id,
        sync,
        ..peer.header(Op::RequestToSend).with_wide(length)
    };
    peer.say_raw(&announcement, &[]);
    let (grant, _) =
        peer.await_heard(|header, _| header.op == Op::ClearToSend && header.d_id == s_id);
    let data = first_data(peer, &grant);
    (grant, data)
}

/// The first Data under `grant`.
pub(super) fn first_data(peer: &Peer, grant: &Header) -> Header {
    Header {
        b_id: grant.b_id,
        bufx: grant.bufx,
        offset: grant.offset,
        b_num: grant.b_num,
        d_id: grant.s_id,
        sync: 1,
        ..peer.header(Op::Data)
    }
}

/// Makes the victim announce a Transfer: sends it a message, which it sends back. Returns the announcement.
pub(super) fn announced(peer: &mut Peer) -> Header {
    let data = granted(peer, 1000);
    let last = Header {
        flags: Flags::SEND_STATE,
        ..data
    };
    peer.say_raw(&last, &[7; 1000]);
    peer.await_heard(|header, _| header.op == Op::RequestToSend)
        .0
}

fn data_needs_a_grant(peer: &mut Peer) {
    for mx in 0..500 {
        let header = Header {
            b_id: mx * 131,
            d_id: u32::from(mx) + 1,
            offset: 64 * u32::from(mx),
            ..peer.header(Op::Data)
        };
        peer.say_raw(&header, &[0xee; 1000]);
    }
}

fn data_inside_its_block(peer: &mut Peer) {
    let data = granted(peer, 5000);
    let wide = data.wide();
    let places = [
        wide.wrapping_sub(1),
        wide.wrapping_sub(1000),
        wide + 4001,
        wide + 4999,
        wide + 5000,
        wide + (1 << 32),
        u64::MAX,
        u64::MAX - 999,
        wide.wrapping_sub(8000),
        wide + ROOM as u64,
    ];
    for place in places {
        peer.say_raw(&data.with_wide(place), &[0xee; 1000]);
    }
    for b_num in [1, u32::MAX] {
        peer.say_raw(&Header { b_num, ..data }, &[0xee; 1000]);
    }
    for d_id in [0, data.d_id + 1, data.d_id | 1 << 31, u32::MAX] {
        peer.say_raw(&Header { d_id, ..data }, &[0xee; 1000]);
    }
    for b_id in [data.b_id ^ 1, data.b_id ^ 0x8000, u16::MAX] {
        peer.say_raw(&Header { b_id, ..data }, &[0xee; 1000]);
    }
}

fn data_of_a_dead_grant(peer: &mut Peer) {
    let data = granted(peer, 1000);
    let last = Header {
        flags: Flags::SEND_STATE,
        ..data
    };
    peer.say_raw(&last, &[1; 1000]);
    peer.await_heard(|header, _| header.op == Op::RequestToSend);
    // The Transfer is complete, and the memory is granted to another one by now.
    let other = granted(peer, 2000);
    peer.say_raw(&last, &[0xee; 1000]);
    peer.say_raw(
        &Header {
            d_id: other.d_id,
            ..data
        },
        &[0xee; 1000],
    );
    peer.say_raw(
        &Header {
            b_id: other.b_id,
            ..data
        },
        &[0xee; 1000],
    );
}

fn data_too_large(peer: &mut Peer) {
    let data = granted(peer, 60_000);
    peer.say_raw(&data, &[]);
    for len in [40_000, 60_000, 60_001, 65_400] {
        peer.say_raw(&data, &vec![0xee; len]);
    }
}

fn data_once(peer: &mut Peer) {
    let data = granted(peer, 5000);
    for _ in 0..100 {
        peer.say_raw(&data, &[1; 1000]);
    }
    // Gives the victim time to process these.
    peer.is_answered();
    std::thread::sleep(Duration::from_millis(50));
    // Half of it new, half of it with changed bytes.
    peer.say_raw(&data.with_wide(data.wide() + 500), &[0xee; 1000]);
    // Overlaps, to make many gaps.
    for n in 0..200 {
        peer.say_raw(&data.with_wide(data.wide() + 5 * n), &[1; 3]);
    }
}

/// Takes a grant and is silent, until the victim gives it up.
fn data_never_comes(peer: &mut Peer) {
    granted(peer, 50_000);
}

/// Bursts that the kernel merges, of unrelated parts: backwards, twice, of another Block, with control in between.
fn data_burst_of_odd_parts(peer: &mut Peer) {
    const PART: usize = 400;
    let data = granted(peer, 60_000);
    for turn in 0..5 {
        let mut burst = vec![];
        for n in 0..40u64 {
            let at = data.wide() + (40 - n) * (PART as u64 - turn);
            let part = match (n + turn) % 5 {
                0 => Header {
                    b_id: data.b_id ^ 1,
                    ..data.with_wide(at)
                },
                1 => data.with_wide(data.wide()),
                2 => Header {
                    op: Op::Nop,
                    flags: Flags::PROBE,
                    ..data
                },
                _ => data.with_wide(at),
            };
            burst.extend(peer.sealed(&[&part.emit()[..], &[1; PART]].concat()));
        }
        let part = burst.len() / 40;
        peer.send_burst(&burst, part);
        // Cut inside of a part.
        peer.send_burst(&burst, part + 7);
        peer.send_burst(&burst[11..], part);
    }
}

/// Bursts whose STUs all belong where others of the same burst land, offset by part of an STU: each must wait until
/// another is moved, and more than one bounce buffer is needed.
fn data_across_its_own_burst(peer: &mut Peer) {
    const PART: u64 = 400;
    const OFF: u64 = 100;
    // As for an STU followed by others, because it shows their size.
    let data = Header {
        flags: Flags::SILENT,
        ..granted(peer, 60_000)
    };
    let mut at = data.wide();
    // The first tells the victim the size of the others.
    let bursts = [vec![0, PART, 2 * PART]]
        .into_iter()
        .chain((0..30).map(|_| vec![PART + OFF, 3 * PART - OFF, OFF]));
    for places in bursts {
        let stu = |place| [&data.with_wide(at + place).emit()[..], &[1; PART as usize]].concat();
        let burst: Vec<Vec<u8>> = places.iter().map(|&it| peer.sealed(&stu(it))).collect();
        peer.send_burst(&burst.concat(), burst[0].len());
        at += places.iter().max().unwrap() + PART;
    }
}
