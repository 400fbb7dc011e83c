//! Tests that both ends enforce the rules of grants in advance.

use super::data::{announced, first_data, granted};
use super::grant::grant;
use super::peer::{Peer, Role};
use super::rule::{Rule, rule};
use zerolane::counters::DropReason::{Duplicate, Limit, NoGrant, OutOfBounds};
use zerolane_wire::{Flags, Header, Op};

pub(super) const RULES: &[Rule] = &[
    rule(
        "advance_no_more_than_are_held",
        advance_no_more_than_are_held,
    )
    .drops(&[(Limit, 200)]),
    rule("advance_of_what_is_announced", advance_of_what_is_announced),
    rule(
        "advance_inside_what_was_granted",
        advance_inside_what_was_granted,
    )
    .advance()
    // An end that listens gives such grants while payload comes.
    .only(Role::Responder)
    .drops(&[(OutOfBounds, 3), (NoGrant, 3), (Duplicate, 1)]),
];

/// Length of a long message, and of the parts in which it is sent.
const LONG: u64 = 50_000;
const PART: u32 = 10_000;

/// A grant in advance for part of the Transfer that announcement `number` will announce.
fn in_advance(peer: &Peer, number: u32, b_num: u32, at: u64, len: u32) -> (Header, [u8; 32]) {
    let (header, options) = grant(peer, number, b_num, at, len);
    let header = Header {
        flags: Flags::ADVANCE,
        ..header
    };
    (header, options)
}

/// A grant in advance for the payload of message `number`.
fn to_message(peer: &Peer, number: u32, b_num: u32, at: u64, len: u32) -> (Header, [u8; 32]) {
    let (header, options) = in_advance(peer, number, b_num, at, len);
    let header = Header {
        flags: header.flags.with(Flags::MESSAGE),
        ..header
    };
    (header, options)
}

fn advance_no_more_than_are_held(peer: &mut Peer) {
    for n in 0..200 {
        for (header, options) in [
            in_advance(peer, 1000 + n, n, 0, 1000),
            to_message(peer, 1000 + n, n, 0, 1000),
        ] {
            peer.say_raw(&header, &options);
        }
    }
}

/// Grants bytes outside of the message that the victim announces next.
fn advance_of_what_is_announced(peer: &mut Peer) {
    for (n, (at, len)) in (0..).zip([(1000, 1), (u64::MAX - 10, 10), (1 << 40, u32::MAX)]) {
        let (header, options) = in_advance(peer, 0, n, at, len);
        peer.say_raw(&header, &options);
    }
    // All of it, if it were the payload of a message.
    let (header, options) = to_message(peer, 0, 0, 0, 1000);
    peer.say_raw(&header, &options);
    // A place beyond all buffers.
    let (header, options) = in_advance(peer, 0, 9, 0, 1000);
    peer.say_raw(&header.with_wide(u64::MAX), &options);
    // Before the announcement, and after it.
    announced(peer);
    peer.say_raw(&header.with_wide(u64::MAX), &options);
    let heard = peer.listen_for_a_while();
    assert!(
        !heard.iter().any(|it| it.op == Op::Data),
        "sent what was not granted"
    );
}

/// Sends the payload granted in advance and everything around it, and announces less than it sent.
fn advance_inside_what_was_granted(peer: &mut Peer) {
    let first = granted(peer, LONG);
    send_all(peer, first, LONG as u32);
    let in_advance = |it: &Header, _: &[u8]| {
        it.op == Op::ClearToSend && it.flags.contains(Flags::ADVANCE) && it.b_num == 0
    };
    let (grant, options) = peer.await_heard(in_advance);
    let len = u32::from_be_bytes(options[8..12].try_into().expect("four bytes"));
    let data = Header {
        sync: 2,
        ..first_data(peer, &grant)
    };
    let payload = vec![0xee; PART as usize];
    // Before it, after it, across its end.
    for offset in [
        data.offset.wrapping_sub(PART),
        data.offset + len,
        data.offset + len - 1,
    ] {
        peer.say_raw(&Header { offset, ..data }, &payload);
    }
    for other in [
        Header {
            b_id: data.b_id + 1000,
            ..data
        },
        Header {
            b_num: 1000,
            ..data
        },
        Header {
            d_id: data.d_id + 1000,
            ..data
        },
    ] {
        peer.say_raw(&other, &payload);
    }
    for _ in 0..2 {
        peer.say_raw(&data, &payload);
    }
    let (s_id, sync) = (peer.id(), peer.sequence());
    let announcement = Header {
        s_id,
        sync,
        ..peer.header(Op::RequestToSend)
    };
    peer.say_raw(&announcement.with_wide(u64::from(PART) / 2), &[]);
    let complete = |it: &Header| it.op == Op::State && it.flags.contains(Flags::COMPLETE);
    peer.await_heard(|it, _| complete(it) && it.d_id == s_id);
}

/// Sends `len` bytes, starting with `data`.
fn send_all(peer: &mut Peer, data: Header, len: u32) {
    for at in (0..len).step_by(PART as usize) {
        let last = at + PART >= len;
        let header = Header {
            offset: data.offset + at,
            flags: Flags::NONE.with_if(Flags::SEND_STATE, last),
            ..data
        };
        peer.say_raw(&header, &vec![7; (len - at).min(PART) as usize]);
    }
}
