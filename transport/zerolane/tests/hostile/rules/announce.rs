//! Tests that ends enforce the rules of announcements: of messages, of reads, and of their end.

use super::data::granted;
use super::peer::Peer;
use super::rule::{Rule, rule};
use super::victim::ROOM;
use zerolane::counters::DropReason::{Duplicate, Limit, Malformed, NoGrant};
use zerolane_wire::{Flags, Header, Op};

pub(super) const RULES: &[Rule] = &[
    rule("announce_within_slots", announce_within_slots).drops(&[(Limit, 1400)]),
    rule("announce_one_kind", announce_one_kind).drops(&[(Malformed, 3)]),
    rule("announce_answers_a_read", announce_answers_a_read),
    rule("announce_of_a_message", announce_of_a_message),
    rule("announce_unchanged_when_repeated", announce_unchanged),
    rule("announce_numbers_that_wrap", announce_numbers_that_wrap)
        .drops(&[(Limit, 1), (Duplicate, 1)]),
    rule("announce_no_more_than_there_is_room", announce_too_much),
    rule("read_within_slots", read_within_slots).drops(&[(Limit, 1400)]),
    rule("read_numbers_that_wrap", read_numbers_that_wrap).drops(&[(Limit, 1)]),
    rule("end_of_what_there_is", end_of_what_there_is).drops(&[
        (Limit, 1),
        (Duplicate, 1),
        (NoGrant, 1),
    ]),
    rule("end_no_flood", end_no_flood),
];

fn announce_within_slots(peer: &mut Peer) {
    for n in 0..1500 {
        let header = Header {
            s_id: n + 1,
            sync: n,
            ..peer.header(Op::RequestToSend).with_wide(ROOM as u64)
        };
        peer.say_raw(&header, &[]);
        // Avoids overflowing a small socket buffer.
        if n % 64 == 0 {
            peer.is_answered();
        }
    }
}

fn announce_one_kind(peer: &mut Peer) {
    for flags in [
        Flags::READ.with(Flags::MEMORY),
        Flags::READ.with(Flags::MESSAGE),
        Flags::MEMORY.with(Flags::MESSAGE),
    ] {
        let header = Header {
            flags,
            s_id: peer.id(),
            d_id: 1,
            ..peer.header(Op::RequestToSend).with_wide(100)
        };
        peer.say_raw(&header, &[0; 32]);
    }
}

fn announce_answers_a_read(peer: &mut Peer) {
    let header = Header {
        flags: Flags::READ,
        s_id: peer.id(),
        d_id: 1234,
        ..peer.header(Op::RequestToSend).with_wide(100)
    };
    peer.say_raw(&header, &[]);
    let refused = |it: &Header| it.op == Op::RequestAnswer && it.flags.contains(Flags::REJECT);
    peer.await_heard(|it, _| it.d_id == header.s_id && refused(it));
}

/// The payload of a message that was never sent, or of one before all.
fn announce_of_a_message(peer: &mut Peer) {
    for number in [0, 1000, 1 << 31, u32::MAX] {
        let header = Header {
            flags: Flags::MESSAGE,
            d_id: number,
            s_id: peer.id(),
            sync: peer.sequence(),
            ..peer.header(Op::RequestToSend).with_wide(100)
        };
        peer.say_raw(&header, &[]);
    }
    let heard = peer.listen_for_a_while();
    assert!(!heard.iter().any(|it| it.op == Op::ClearToSend));
}

/// More than any receive has room for.
fn announce_too_much(peer: &mut Peer) {
    for length in [ROOM as u64 + 1, 1 << 40, u64::MAX] {
        let header = Header {
            s_id: peer.id(),
            sync: peer.sequence(),
            ..peer.header(Op::RequestToSend).with_wide(length)
        };
        peer.say_raw(&header, &[]);
        let (answer, _) = peer.await_heard(|it, _| it.d_id == header.s_id);
        assert_eq!(answer.op, Op::RequestAnswer);
    }
}

fn announce_unchanged(peer: &mut Peer) {
    let data = granted(peer, 5000);
    for length in [0, 1, 4999, ROOM as u64, u64::MAX] {
        for s_id in [2, 3] {
            let again = Header {
                s_id,
                ..peer.header(Op::RequestToSend).with_wide(length)
            };
            peer.say_raw(&again, &[]);
        }
    }
    peer.say_raw(&data, &[1; 1000]);
}

fn announce_numbers_that_wrap(peer: &mut Peer) {
    for sync in [u32::MAX, 1 << 31, (1 << 31) - 1, 100_000] {
        for length in [0, 1, u64::MAX] {
            let header = Header {
                s_id: peer.id(),
                sync,
                ..peer.header(Op::RequestToSend).with_wide(length)
            };
            peer.say_raw(&header, &[]);
        }
    }
}

fn read_within_slots(peer: &mut Peer) {
    for n in 0..1500 {
        let header = Header {
            s_id: n + 1,
            sync: n,
            ..peer.header(Op::RequestToReceive).with_wide(ROOM as u64)
        };
        peer.say_raw(&header, &[]);
        // Avoids overflowing a small socket buffer.
        if n % 64 == 0 {
            peer.is_answered();
        }
    }
}

fn end_of_what_there_is(peer: &mut Peer) {
    let data = granted(peer, 5000);
    for flags in [Flags::NONE, Flags::FROM_SOURCE] {
        for (d_id, s_id, sync) in [
            (0, 0, 0),
            (data.d_id, 999, 0),
            (7, 7, u32::MAX),
            (0, 5, 1 << 30),
            (u32::MAX, 1, 3),
        ] {
            // Cancelled, and finished: more packets follow nevertheless.
            for (op, param) in [
                (Op::End, 7),
                (Op::EndAck, 7),
                (Op::End, 19),
                (Op::EndAck, 19),
            ] {
                let header = Header {
                    flags,
                    param,
                    d_id,
                    s_id,
                    sync,
                    ..peer.header(op)
                };
                peer.say_raw(&header, &[]);
            }
        }
    }
    // Late payload of a Transfer that was ended.
    peer.say_raw(&data, &[0xee; 1000]);
}

fn read_numbers_that_wrap(peer: &mut Peer) {
    for sync in [u32::MAX, 1 << 31, (1 << 31) - 1, 100_000] {
        for room in [0, 1, u64::MAX] {
            let header = Header {
                s_id: peer.id(),
                sync,
                ..peer.header(Op::RequestToReceive).with_wide(room)
            };
            peer.say_raw(&header, &[]);
        }
    }
}

/// Ends thousands of Transfers that never existed: acknowledged, and no more than that.
fn end_no_flood(peer: &mut Peer) {
    let said = 1500;
    for n in 0..said {
        let header = Header {
            flags: if n % 2 == 0 {
                Flags::NONE
            } else {
                Flags::FROM_SOURCE
            },
            param: 7,
            sync: n / 2,
            s_id: n + 1,
            d_id: n % 3,
            ..peer.header(Op::End)
        };
        peer.say_raw(&header, &[]);
    }
    let heard = peer.listen_for_a_while().len();
    assert!(
        heard < said as usize + 200,
        "{heard} answers to {said} Ends"
    );
}
