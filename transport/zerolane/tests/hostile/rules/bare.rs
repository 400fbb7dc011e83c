//! Tests that ends enforce the rules of messages that consist of a short payload alone.

use super::eager::{next, say_header};
use super::memory::message;
use super::owner::{given, is_repeated};
use super::peer::Peer;
use super::rule::{Rule, rule};
use super::victim::{Ask, MESSAGE_ROOM};
use zerolane::counters::DropReason::{Duplicate, NoGrant, Unexpected};
use zerolane_wire::{Flags, Header, Op, RequestToSend, Target};

pub(super) const RULES: &[Rule] = &[
    rule("bare_in_its_turn", bare_out_of_turn).drops(&[(NoGrant, 3)]),
    rule("bare_once", bare_of_what_was_executed).drops(&[(NoGrant, 3), (Duplicate, 4)]),
    rule("bare_says_the_same", bare_of_changing_words).drops(&[(Unexpected, 3), (Duplicate, 1)]),
    rule("bare_as_its_message_says", bare_unlike_its_message).drops(&[(NoGrant, 1)]),
    rule("bare_fits_its_receive", bare_too_large),
    rule("bare_confirms_what_was_sent", bare_confirms_the_future)
        .asking(Ask::Put)
        .drops(&[(Duplicate, 3)]),
];

/// The announcement of message `number`, with a payload of `length` bytes.
fn announced(peer: &mut Peer, number: u32, length: u64) -> RequestToSend {
    peer.announced = peer.announced.max(length);
    RequestToSend {
        target: Target::Message(number),
        ..next(peer, length)
    }
}

/// Header of the message that `rts` announces, with its payload from `offset` on.
fn bare(rts: &RequestToSend, offset: u32) -> Header {
    let header = rts.eager(offset);
    Header {
        flags: header.flags.with(Flags::MEMORY).with(Flags::SEND_STATE),
        sync: 1,
        ..header
    }
}

/// Sends all of message `number`.
fn say(peer: &mut Peer, number: u32, length: u64) -> RequestToSend {
    let rts = announced(peer, number, length);
    say_header(peer, bare(&rts, 0), length as usize);
    rts
}

fn is_refused(peer: &mut Peer, rts: &RequestToSend) {
    let refused = |it: &Header| it.op == Op::RequestAnswer && it.flags.contains(Flags::REJECT);
    peer.await_heard(|it, _| refused(it) && it.d_id == rts.s_id);
}

fn is_complete(peer: &mut Peer, rts: &RequestToSend) {
    let complete = |it: &Header| it.op == Op::State && it.flags.contains(Flags::COMPLETE);
    peer.await_heard(|it, _| complete(it) && it.d_id == rts.s_id);
}

/// No message completed, and no number from `expected` on is confirmed.
fn is_not_executed(peer: &mut Peer, expected: u32) {
    let confirmed = |it: &Header| match it.flags.contains(Flags::MEMORY) {
        true => it.sync.wrapping_sub(expected + 1) < u32::MAX / 2,
        false => it.flags.contains(Flags::COMPLETE),
    };
    let heard = peer.listen_for_a_while();
    let wrong = heard.iter().find(|it| it.op == Op::State && confirmed(it));
    assert!(wrong.is_none(), "executed: {wrong:?}");
}

/// Ahead of its turn and after it; then the right one.
fn bare_out_of_turn(peer: &mut Peer) {
    for number in [2, 1000, 1 << 30] {
        say(peer, number, 100);
    }
    is_not_executed(peer, 0);
    for number in [u32::MAX, u32::MAX - 1000, 3 << 30] {
        let behind = say(peer, number, 100);
        is_refused(peer, &behind);
    }
    let first = say(peer, 0, 100);
    is_complete(peer, &first);
    is_not_executed(peer, 1);
}

/// Number 0 is a message with control and without payload. Then payloads for it come, and number 1, for which no
/// receive is posted, again and under other announcements.
fn bare_of_what_was_executed(peer: &mut Peer) {
    let header = message(peer, 0);
    peer.say_raw(&header, &[7; 16]);
    peer.await_heard(|it, _| it.op == Op::State && it.flags.contains(Flags::MEMORY));
    for length in [1, 100, 1000] {
        let again = say(peer, 0, length);
        is_refused(peer, &again);
        say_header(peer, bare(&again, 0), length as usize);
    }
    let waits = say(peer, 1, 100);
    say_header(peer, bare(&waits, 0), 100);
    say(peer, 1, 100);
    is_not_executed(peer, 1);
}

/// The first half; then other lengths, and another identifier; the same bytes again; the rest.
fn bare_of_changing_words(peer: &mut Peer) {
    let rts = announced(peer, 0, 600);
    say_header(peer, bare(&rts, 0), 300);
    for length in [599, 601] {
        let other = RequestToSend { length, ..rts };
        say_header(peer, bare(&other, 300), 299);
    }
    let s_id = rts.s_id + 1000;
    say_header(peer, bare(&RequestToSend { s_id, ..rts }, 300), 300);
    say_header(peer, bare(&rts, 0), 300);
    is_not_executed(peer, 1);
    say_header(peer, bare(&rts, 300), 300);
    is_complete(peer, &rts);
}

/// The message with control promises 500 bytes, the bare one has 100.
fn bare_unlike_its_message(peer: &mut Peer) {
    let header = message(peer, 0).with_wide(500);
    peer.say_raw(&header, &[7; 16]);
    let other = say(peer, 0, 100);
    is_refused(peer, &other);
}

/// Longer than the receive; then, without waiting for the refusal, one that would fit.
fn bare_too_large(peer: &mut Peer) {
    let rts = say(peer, 0, MESSAGE_ROOM as u64 + 1);
    is_refused(peer, &rts);
    say(peer, 0, 100);
    is_not_executed(peer, 0);
}

/// A message that was never sent does not confirm the victim's put.
fn bare_confirms_the_future(peer: &mut Peer) {
    let (put, _) = given(peer, Op::Data);
    let rts = announced(peer, 0, 100);
    for beyond in [2, 1000, 1 << 15, u16::MAX] {
        let b_id = (put.sync as u16).wrapping_add(beyond);
        let header = bare(&rts, 0);
        say_header(peer, Header { b_id, ..header }, 100);
    }
    is_repeated(peer, &put);
}
