//! Tests that ends enforce the rules of payload that comes with its announcement.

use super::data::granted;
use super::peer::Peer;
use super::rule::{Outcome, Rule, rule};
use zerolane::counters::DropReason::{Duplicate, Limit, Malformed, NoGrant, Unexpected};
use zerolane_wire::{Flags, Header, Op, RequestToSend, Target};

pub(super) const RULES: &[Rule] = &[
    rule("eager_within_its_credit", eager_within_its_credit).drops(&[(Limit, 150)]),
    rule("eager_as_long_as_agreed", eager_as_long_as_agreed).drops(&[(Limit, 3), (Malformed, 4)]),
    rule("eager_says_the_same", eager_says_the_same).drops(&[
        (Unexpected, 3),
        (Duplicate, 3),
        (NoGrant, 1),
    ]),
    rule("eager_meets_what_there_is", eager_meets_what_there_is)
        .drops(&[(Malformed, 2), (NoGrant, 1)]),
    rule("eager_rest_comes", eager_rest_never_comes).outcome(Outcome::GivenUp),
];

/// The victim's limit, as stated when it connects.
const MOST: u64 = 16 << 10;

/// The next Transfer of the peer, of `length` bytes.
pub(super) fn next(peer: &mut Peer, length: u64) -> RequestToSend {
    RequestToSend {
        length,
        s_id: peer.id(),
        target: Target::Receive,
        sequence: peer.sequence(),
        send_state: true,
    }
}

/// Sends `len` bytes of a Transfer from `offset` on.
fn say(peer: &mut Peer, rts: &RequestToSend, offset: u32, len: usize) {
    peer.announced = peer.announced.max(rts.length.min(MOST));
    let header = Header {
        sync: 1,
        ..rts.eager(offset)
    };
    say_header(peer, header, len);
}

pub(super) fn say_header(peer: &mut Peer, header: Header, len: usize) {
    let route = peer.header(Op::Data);
    let header = Header {
        d_port: route.d_port,
        s_port: route.s_port,
        d_key: route.d_key,
        ..header
    };
    peer.say_raw(&header, &vec![0xee; len]);
}

/// Begins more Transfers than the victim's credit allows; one matches its receive.
fn eager_within_its_credit(peer: &mut Peer) {
    for _ in 0..200 {
        let rts = next(peer, MOST);
        say(peer, &rts, 0, 1000);
    }
}

fn eager_as_long_as_agreed(peer: &mut Peer) {
    for length in [MOST + 1, 64 << 10, u64::from(u32::MAX)] {
        let rts = next(peer, length);
        say(peer, &rts, 0, 1000);
    }
    let rts = next(peer, 1000);
    for (offset, len) in [(0, 1001), (999, 2), (1000, 1), (u32::MAX, 1), (500, 0)] {
        say(peer, &rts, offset, len);
    }
}

fn eager_says_the_same(peer: &mut Peer) {
    let rts = next(peer, 5000);
    say(peer, &rts, 0, 1000);
    for length in [1001, 4999, 5001] {
        say(peer, &RequestToSend { length, ..rts }, 1000, 1);
    }
    let s_id = rts.s_id + 1000;
    say(peer, &RequestToSend { s_id, ..rts }, 1000, 1000);
    // Bytes that are here already.
    say(peer, &rts, 500, 400);
    for offset in [1000, 2000, 3000, 4000] {
        say(peer, &rts, offset, 1000);
    }
    // It is complete now.
    for offset in [0, 4000] {
        say(peer, &rts, offset, 1000);
    }
    // Granted payload needs its grant.
    let data = granted(peer, 5000);
    let granted = RequestToSend {
        s_id: data.d_id,
        sequence: rts.sequence + 1,
        ..rts
    };
    say(peer, &granted, 0, 1000);
}

fn eager_meets_what_there_is(peer: &mut Peer) {
    let read = RequestToSend {
        target: Target::Read(1234),
        ..next(peer, 100)
    };
    say(peer, &read, 0, 100);
    let refused = |it: &Header| it.op == Op::RequestAnswer && it.flags.contains(Flags::REJECT);
    peer.await_heard(|it, _| it.d_id == read.s_id && refused(it));
    for number in [0, 1000, 1 << 31, u32::MAX] {
        let message = RequestToSend {
            target: Target::Message(number),
            ..next(peer, 100)
        };
        say(peer, &message, 0, 100);
    }
    let rts = next(peer, 100);
    for flags in [Flags::MEMORY, Flags::READ.with(Flags::MESSAGE)] {
        let header = rts.eager(0);
        let flags = header.flags.with(flags);
        say_header(peer, Header { flags, ..header }, 100);
    }
}

/// Begins a Transfer that matches a receive, and is silent, until the victim gives it up.
fn eager_rest_never_comes(peer: &mut Peer) {
    let rts = next(peer, MOST);
    say(peer, &rts, 1000, 1000);
}
