//! Tests that an initiator enforces the rules of answers about the peer's memory.

use super::grant::grant;
use super::peer::{PATIENCE, Peer};
use super::rule::{Outcome, Rule, rule};
use super::victim::{Ask, LONG, SHORT, THEIR_BYTE, THEIRS};
use std::time::Duration;
use zerolane::counters::DropReason::{Duplicate, Malformed, NoGrant, OutOfBounds};
use zerolane_wire::{Flags, Header, Op};

pub(super) const RULES: &[Rule] = &[
    rule("region_as_asked", region_as_asked)
        .asking(Ask::Get)
        .drops(&[(Malformed, 2), (Duplicate, 1)]),
    rule("get_answered_as_asked", get_answered_as_asked)
        .asking(Ask::Get)
        .drops(&[(OutOfBounds, 3), (NoGrant, 1)]),
    rule("get_answered_where_asked", get_answered_where_asked)
        .asking(Ask::LongGet)
        .drops(&[(OutOfBounds, 3), (NoGrant, 3)]),
    rule("get_is_answered", get_never_answered)
        .asking(Ask::LongGet)
        .outcome(Outcome::GivenUp),
    rule("value_of_eight_bytes", value_of_other_lengths)
        .asking(Ask::Fetch)
        .drops(&[(NoGrant, 4)]),
    rule("confirmed_what_was_sent", confirmed_what_was_never_sent)
        .asking(Ask::Put)
        .drops(&[(Duplicate, 4)]),
    rule("refused_what_was_sent", refused_what_was_never_sent).asking(Ask::Put),
    rule("put_granted_as_announced", put_granted_elsewhere)
        .asking(Ask::LongPut)
        .drops(&[(NoGrant, 1), (OutOfBounds, 3)]),
];

const HANDLE: u32 = 1 << 31 | 5;
const MX: u16 = 3;

/// The victim's request for the region.
fn asked(peer: &mut Peer) -> Header {
    let (question, name) = peer.await_heard(|it, _| it.op == Op::RequestMemoryRegion);
    assert!(name.starts_with(THEIRS.as_bytes()));
    question
}

/// An answer to it.
fn available(peer: &Peer, question: &Header, length: u64) -> (Header, [u8; 32]) {
    let header = Header {
        param: question.param,
        b_id: MX,
        d_id: question.s_id,
        s_id: HANDLE,
        ..peer.header(Op::MemoryRegionAvailable)
    };
    let mut options = [0; 32];
    options[..8].copy_from_slice(&length.to_be_bytes());
    (header, options)
}

/// Gives the victim its region, and waits for the operation on it.
pub(super) fn given(peer: &mut Peer, op: Op) -> (Header, Vec<u8>) {
    let question = asked(peer);
    let (header, options) = available(peer, &question, 1 << 20);
    peer.say_raw(&header, &options);
    peer.await_heard(|it, _| it.op == op)
}

fn region_as_asked(peer: &mut Peer) {
    let question = asked(peer);
    let (header, options) = available(peer, &question, 1 << 20);
    let no_handle = Header { s_id: 5, ..header };
    peer.say_raw(&no_handle, &options);
    let (_, beyond) = available(peer, &question, u64::MAX);
    peer.say_raw(&header.with_wide(1 << 20), &beyond);
    let unknown = Header {
        d_id: header.d_id + 1000,
        ..header
    };
    peer.say_raw(&unknown, &options);
    peer.say_raw(&header, &options);
    peer.await_heard(|it, _| it.op == Op::Get && it.d_id == HANDLE);
}

/// The answer to a get of one datagram.
fn reply(peer: &Peer, get: &Header) -> Header {
    Header {
        b_num: get.b_num,
        d_id: get.s_id,
        ..peer.header(Op::Data)
    }
}

fn get_answered_as_asked(peer: &mut Peer) {
    let (get, _) = given(peer, Op::Get);
    let reply = reply(peer, &get);
    let len = SHORT;
    for wrong in [0, 1, len - 1, len + 1, 40_000] {
        peer.say_raw(&reply, &vec![0xee; wrong]);
    }
    for place in [8, 1 << 32, u64::MAX] {
        peer.say_raw(&reply.with_wide(place), &[0xee; SHORT]);
    }
    let unknown = Header {
        d_id: reply.d_id + 1,
        ..reply
    };
    peer.say_raw(&unknown, &[0xee; SHORT]);
    for _ in 0..3 {
        peer.say_raw(&reply, &[THEIR_BYTE; SHORT]);
        // The answer again, and another one, once the request is over.
        peer.say_raw(&reply, &[0xee; SHORT]);
    }
}

/// The answer to a Get that grants a Block, at its start.
fn reply_to_block(peer: &Peer, get: &Header, options: &[u8]) -> Header {
    let word = |at: usize| u32::from_be_bytes(options[at..at + 4].try_into().unwrap());
    Header {
        b_id: u16::from_be_bytes([options[12], options[13]]),
        bufx: word(0),
        offset: word(4),
        sync: 1,
        ..reply(peer, get)
    }
}

fn get_answered_where_asked(peer: &mut Peer) {
    let (get, options) = given(peer, Op::Get);
    let reply = reply_to_block(peer, &get, &options);
    let (start, end) = (reply.wide(), reply.wide() + LONG as u64);
    for place in [
        start.wrapping_sub(1000),
        start.wrapping_sub(1),
        end,
        end - 999,
        start + (1 << 32),
        u64::MAX - 500,
    ] {
        peer.say_raw(&reply.with_wide(place), &[0xee; 1000]);
    }
    for b_id in [reply.b_id ^ 1, reply.b_id ^ 0x4000, u16::MAX] {
        peer.say_raw(&Header { b_id, ..reply }, &[0xee; 1000]);
    }
    for d_id in [0, reply.d_id + 1, reply.d_id | 1 << 31] {
        peer.say_raw(&Header { d_id, ..reply }, &[0xee; 1000]);
    }
    let none = Header {
        flags: Flags::REJECT,
        param: 8,
        d_id: get.s_id + 1000,
        ..peer.header(Op::RequestAnswer)
    };
    peer.say_raw(&none, &[]);
    peer.say_raw(&reply, &[THEIR_BYTE; 1000]);
}

/// Is silent, until the victim gives it up.
fn get_never_answered(peer: &mut Peer) {
    given(peer, Op::Get);
}

fn value_of_other_lengths(peer: &mut Peer) {
    let (fetch, _) = given(peer, Op::FetchOp);
    let value = Header {
        sync: fetch.sync,
        ..reply(peer, &fetch)
    };
    for len in [0, 1, 7, 9, 1000] {
        peer.say_raw(&value, &vec![0xee; len]);
    }
    let of_another = Header {
        sync: fetch.sync + 1,
        ..value
    };
    peer.say_raw(&of_another, &[0xee; 8]);
    for _ in 0..3 {
        peer.say_raw(&value, &[0xee; 8]);
    }
}

/// Checks that the victim still repeats the put that was not confirmed.
pub(super) fn is_repeated(peer: &mut Peer, put: &Header) {
    peer.await_heard(|it, _| it.op == Op::Data && it.d_id == put.d_id && it.sync == put.sync);
}

fn confirmed_what_was_never_sent(peer: &mut Peer) {
    let (put, payload) = given(peer, Op::Data);
    assert!(payload.len() == SHORT && put.d_id == HANDLE);
    for beyond in [2, 1000, 1 << 31, u32::MAX] {
        let sync = put.sync.wrapping_add(beyond);
        for flags in [Flags::MEMORY, Flags::MEMORY.with(Flags::COMPLETE)] {
            let header = Header {
                flags,
                sync,
                ..peer.header(Op::State)
            };
            peer.say_raw(&header, &[]);
        }
    }
    is_repeated(peer, &put);
}

fn refused_what_was_never_sent(peer: &mut Peer) {
    let (put, _) = given(peer, Op::Data);
    for flags in [Flags::MEMORY, Flags::MEMORY.with(Flags::REJECT)] {
        for beyond in [1, 1000, 1 << 30] {
            let header = Header {
                flags,
                param: 9,
                d_id: put.s_id.wrapping_add(beyond),
                ..peer.header(Op::RequestAnswer)
            };
            peer.say_raw(&header, &[]);
        }
    }
    is_repeated(peer, &put);
    // The refusal is confirmed by the victim, however often it is repeated.
    let refusal = Header {
        flags: Flags::MEMORY.with(Flags::REJECT),
        param: 9,
        d_id: put.s_id,
        ..peer.header(Op::RequestAnswer)
    };
    for _ in 0..10 {
        peer.say_raw(&refusal, &[]);
    }
    peer.await_heard(|it, _| it.op == Op::FetchOpComplete && it.sync == put.sync);
}

fn put_granted_elsewhere(peer: &mut Peer) {
    let (announcement, _) = given(peer, Op::RequestToSend);
    assert!(announcement.flags.contains(Flags::MEMORY) && announcement.d_id == HANDLE);
    let (id, length) = (announcement.s_id, announcement.wide());
    assert_eq!(length, LONG as u64);
    for (d_id, at, len) in [
        (id + 1, 0, 1000),
        (id, 0, LONG as u32 + 1),
        (id, length, 1),
        (id, 1 << 40, u32::MAX),
    ] {
        let (header, options) = grant(peer, d_id, 0, at, len);
        peer.say_raw(&header, &options);
    }
    let heard = peer.listen_for_a_while();
    assert!(
        !heard.iter().any(|it| it.op == Op::Data),
        "sent what was not granted"
    );
    // Nothing beyond the grant.
    let (header, options) = grant(peer, id, 0, 0, 2000);
    peer.say_raw(&header, &options);
    let mut sent = 0;
    // The first comes when the victim gets there.
    let patience = |sent| match sent {
        0 => PATIENCE,
        _ => Duration::from_millis(50),
    };
    while let Some((data, payload)) = peer.hear(patience(sent)) {
        if data.op == Op::Data && data.d_id == 9 {
            let end = data.wide() + payload.len() as u64;
            assert!(end <= 2000, "sent beyond the grant: to {end}");
            sent += 1;
        }
    }
    assert!(sent > 0, "sent nothing of what was granted");
}
