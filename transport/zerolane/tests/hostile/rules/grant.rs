//! Tests that a sender enforces the rules of grants and reports.

use std::collections::BTreeSet;

use super::data::announced;
use super::peer::Peer;
use super::rule::{Outcome, Rule, rule};
use zerolane::counters::DropReason::{Duplicate, Limit, NoGrant, OutOfBounds, Unexpected};
use zerolane_core::limits::MAX_HELD_GRANTS;
use zerolane_wire::{Flags, Header, Op};

pub(super) const RULES: &[Rule] = &[
    rule("grant_of_what_was_announced", grant_of_what_was_announced)
        .drops(&[(NoGrant, 1), (OutOfBounds, 5)]),
    rule("grant_as_the_profile_has_it", grant_of_the_other_profile)
        .classic()
        .drops(&[(OutOfBounds, 1)]),
    // Some of 976 are lost if the socket buffer is small.
    rule("grant_no_more_than_is_held", grant_no_more_than_is_held).drops(&[(Limit, 500)]),
    rule("grant_in_turn", grant_numbers_that_leap),
    rule("grant_after_no_refusal", grant_after_a_refusal).drops(&[(NoGrant, 1)]),
    rule("report_of_what_was_sent", report_of_what_was_sent).drops(&[(Unexpected, 12)]),
    rule("report_comes", report_never_comes).outcome(Outcome::GivenUp),
    rule("report_does_not_contradict", report_contradicts),
    rule("answer_to_what_was_asked", answer_to_nothing).drops(&[(Unexpected, 2), (Duplicate, 4)]),
];

/// A grant of a part of Transfer `d_id`.
pub(super) fn grant(peer: &Peer, d_id: u32, b_num: u32, at: u64, len: u32) -> (Header, [u8; 32]) {
    let header = Header {
        b_id: 5,
        sync: b_num,
        b_num,
        d_id,
        s_id: 9,
        ..peer.header(Op::ClearToSend)
    };
    let mut options = [0; 32];
    options[..8].copy_from_slice(&at.to_be_bytes());
    options[8..12].copy_from_slice(&len.to_be_bytes());
    (header, options)
}

fn grant_of_what_was_announced(peer: &mut Peer) {
    let announcement = announced(peer);
    let (id, length) = (announcement.s_id, announcement.wide());
    assert_eq!(length, 1000);
    for (d_id, at, len) in [
        (id + 1, 0, 1000),
        (id, 0, 1001),
        (id, 1000, 1),
        (id, 999, 2),
        (id, u64::MAX - 10, 10),
        (id, 1 << 40, u32::MAX),
    ] {
        let (header, options) = grant(peer, d_id, 0, at, len);
        peer.say_raw(&header, &options);
    }
    // The other profile's grant, and a place beyond all buffers.
    let (header, options) = grant(peer, id, 0, 0, 1000);
    peer.say_raw(
        &Header {
            param: 16,
            ..header
        },
        &[],
    );
    peer.say_raw(&header.with_wide(u64::MAX), &options);
    let heard = peer.listen_for_a_while();
    assert!(
        !heard.iter().any(|it| it.op == Op::Data),
        "sent what was not granted"
    );
}

/// The victim answers those that it holds. It may repeat each answer, because the peer confirms none.
fn grant_no_more_than_is_held(peer: &mut Peer) {
    const GRANTS: u32 = 2000;
    let id = announced(peer).s_id;
    for n in 0..GRANTS {
        let (header, options) = grant(peer, id, n, 0, 1000);
        peer.say_raw(&header, &options);
    }
    let heard = peer.listen_for_a_while();
    let data = heard.iter().filter(|it| it.op == Op::Data);
    let answered: BTreeSet<_> = data.map(|it| it.b_num).collect();
    assert!(
        answered.len() <= MAX_HELD_GRANTS,
        "{} of {GRANTS} grants are answered",
        answered.len()
    );
}

/// A report on Transfer `d_id`.
fn report(peer: &Peer, d_id: u32, flags: Flags, fields: [u32; 4]) -> Header {
    let [bufx, offset, sync, b_num] = fields;
    Header {
        flags,
        bufx,
        offset,
        sync,
        b_num,
        d_id,
        s_id: 9,
        ..peer.header(Op::State)
    }
}

fn report_of_what_was_sent(peer: &mut Peer) {
    let id = announced(peer).s_id;
    let mut missing = [0; 32];
    missing[..8].copy_from_slice(&[0, 0, 0, 0, 0, 0, 3, 232]);
    for flags in [Flags::NONE, Flags::REPLY, Flags::UNKNOWN, Flags::PROGRESS] {
        for fields in [
            [0, 0, 77, 0],
            [5, 9000, u32::MAX, 3],
            [u32::MAX; 4],
            [1, 1000, 0, 0],
        ] {
            for d_id in [id + 50, 0, u32::MAX] {
                let header = report(peer, d_id, flags, fields);
                peer.say_raw(&header, &missing);
                peer.say_raw(&header, &[0xff, 0xff, 0xff, 0xff].repeat(8));
            }
        }
    }
    let heard = peer.listen_for_a_while();
    assert!(
        !heard.iter().any(|it| it.op == Op::Data),
        "sent what was not granted"
    );
}

/// Grants, and is silent, until the victim gives it up.
fn report_never_comes(peer: &mut Peer) {
    let id = announced(peer).s_id;
    let (header, options) = grant(peer, id, 0, 0, 1000);
    peer.say_raw(&header, &options);
}

fn report_contradicts(peer: &mut Peer) {
    let id = announced(peer).s_id;
    let (header, options) = grant(peer, id, 0, 0, 1000);
    peer.say_raw(&header, &options);
    peer.await_heard(|header, _| header.op == Op::Data);
    let before = peer.sent.len();
    for n in 0..200u32 {
        let mut missing = [0; 32];
        missing[..4].copy_from_slice(&(n * 4).to_be_bytes());
        missing[4..8].copy_from_slice(&(1000 - n * 4).to_be_bytes());
        let header = report(peer, id, Flags::NONE, [n % 2, 1000 * (n % 2), n % 3, 0]);
        peer.say_raw(&header, &missing);
    }
    let said = peer.sent.len() - before;
    let data = peer
        .listen_for_a_while()
        .iter()
        .filter(|it| it.op == Op::Data)
        .count();
    assert!(data < said, "{data} answers to {said} reports");
}

fn answer_to_nothing(peer: &mut Peer) {
    for op in [
        Op::RequestAnswer,
        Op::MemoryRegionAvailable,
        Op::FetchOpComplete,
        Op::RequestState,
        Op::EndAck,
    ] {
        for flags in [
            Flags::NONE,
            Flags::MEMORY,
            Flags::REJECT,
            Flags::MEMORY.with(Flags::REJECT),
        ] {
            let header = Header {
                flags,
                d_id: 4000,
                s_id: 4000,
                sync: 4000,
                ..peer.header(op)
            };
            peer.say_raw(&header, &[0; 32]);
        }
    }
    let reply = Header {
        flags: Flags::REPLY,
        sync: 4711,
        ..peer.header(Op::Nop)
    };
    peer.say_raw(&reply, &[]);
}

/// With a range that the profile does not allow, and of a Block of the wrong size.
fn grant_of_the_other_profile(peer: &mut Peer) {
    let id = announced(peer).s_id;
    let (header, options) = grant(peer, id, 0, 0, 1000);
    peer.say_raw(&header, &options);
    let far = Header {
        b_num: 77,
        param: 10,
        ..header
    };
    peer.say_raw(&far, &[]);
    let heard = peer.listen_for_a_while();
    assert!(
        !heard.iter().any(|it| it.op == Op::Data),
        "sent what was not granted"
    );
}

/// Grants with random numbers.
fn grant_numbers_that_leap(peer: &mut Peer) {
    let id = announced(peer).s_id;
    for sync in [u32::MAX, 1 << 31, 5000, 7, 7, 1] {
        let (header, options) = grant(peer, id, 0, 0, 1000);
        peer.say_raw(&Header { sync, ..header }, &options);
    }
    let sent = peer.listen_for_a_while();
    let data = sent.iter().filter(|it| it.op == Op::Data).count();
    assert!(data <= 6 * 2, "{data} answers to 6 grants");
}

/// Refuses an announcement, and then grants it.
fn grant_after_a_refusal(peer: &mut Peer) {
    let id = announced(peer).s_id;
    let refusal = Header {
        flags: Flags::REJECT,
        param: 9,
        d_id: id,
        ..peer.header(Op::RequestAnswer)
    };
    peer.say_raw(&refusal, &[]);
    let (header, options) = grant(peer, id, 0, 0, 1000);
    peer.say_raw(&header, &options);
    let heard = peer.listen_for_a_while();
    assert!(
        !heard.iter().any(|it| it.op == Op::Data),
        "sent what was refused"
    );
}
