//! Tests that ends enforce the rules of operations that share a datagram.

use super::memory::{message, opened, put};
use super::peer::Peer;
use super::rule::{Rule, rule};
use super::victim::{EXPORTED, NEVER_SHOWN};
use zerolane::counters::DropReason::{Duplicate, Early, Malformed, NoGrant, Unexpected};
use zerolane_wire::{
    DatagramPart, Flags, FrameFields, FrameHead, Frames, Header, MAX_DATAGRAM, MAX_FRAME_HEAD_LEN,
    MAX_FRAMES, Op, Operation, Rights,
};

pub(super) const RULES: &[Rule] = &[
    rule("frames_inside_their_datagram", frames_without_form).drops(&[(Malformed, 60)]),
    rule("frames_of_numbered_operations", frames_of_others).drops(&[(Malformed, 3)]),
    rule("frames_inside_the_region", frames_elsewhere).drops(&[(NoGrant, 1), (Early, 20)]),
    rule("frames_once_in_order", frames_again).drops(&[(Duplicate, 40), (Early, 40)]),
    rule("frames_of_the_extended_profile", frames_in_classic)
        .drops(&[(Unexpected, 10)])
        .classic(),
    rule(
        "payload_adds_up_to_its_message",
        payload_that_does_not_add_up,
    )
    .drops(&[(NoGrant, 3), (Early, 5)]),
    rule("datagrams_inside_their_length", datagrams_without_form).drops(&[(Malformed, 6)]),
];

/// Header and content of a datagram with these operations, all with the same payload.
pub(super) fn frames(operations: &[Header], payload: &[u8]) -> (Header, Vec<u8>) {
    let mut content = vec![];
    let mut before = None;
    for it in operations {
        let it = FrameFields::of(it);
        let head = FrameHead::new(before, it, payload.len() as u16);
        let mut place = [0; MAX_FRAME_HEAD_LEN];
        let len = head.emit_into(&mut place);
        content.extend_from_slice(&place[..len]);
        content.extend_from_slice(payload);
        before = Some(it);
    }
    (Frames::header(&operations[0]), content)
}

/// Puts numbered from `first` on.
fn puts(peer: &Peer, open: (u32, u16), first: u32, count: u32) -> Vec<Header> {
    let number = |n| put(peer, open, 0, first.wrapping_add(n));
    (0..count).map(number).collect()
}

/// Truncated, with bytes that begin no frame, empty, with lengths that overrun, too many.
fn frames_without_form(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    let (header, good) = frames(&puts(peer, open, 0, 4), &[0xee; 8]);
    // The first frame is 15 bytes, the others have an identifier.
    for len in (0..good.len()).filter(|len| ![15, 34, 53].contains(len)) {
        peer.say_raw(&header, &good[..len]);
    }
    peer.say_raw(&header, &[0; 100]);
    peer.say_raw(&header, &[0x7f; 100]);
    let mut longer = good.clone();
    longer[16..18].fill(0xff);
    peer.say_raw(&header, &longer);
    let (header, many) = frames(&puts(peer, open, 0, MAX_FRAMES as u32 + 1), &[]);
    peer.say_raw(&header, &many);
}

/// Frames with the identifier of a Transfer, and a header with one.
fn frames_of_others(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    let mut operations = puts(peer, open, 0, 3);
    for index in 0..3 {
        operations[index].d_id &= !(1 << 31);
        let (header, content) = frames(&operations, &[0xee; 8]);
        peer.say_raw(&header, &content);
        operations[index].d_id |= 1 << 31;
    }
}

/// The second lies across the end; then, in its place, one with a forged handle.
fn frames_elsewhere(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    let mut operations = puts(peer, open, 0, 20);
    operations[0].flags = Flags::SILENT;
    operations[1].offset = EXPORTED as u32 - 4;
    let (header, content) = frames(&operations, &[2; 8]);
    peer.say_raw(&header, &content);
    peer.await_heard(|it, _| it.op == Op::RequestAnswer && it.flags.contains(Flags::REJECT));
    operations.remove(0);
    operations[0].offset = 0;
    operations[0].d_id ^= 2;
    operations[1].flags = Flags::INTERRUPT;
    operations[1].b_num = NEVER_SHOWN;
    let (header, content) = frames(&operations, &[0xee; 8]);
    peer.say_raw(&header, &content);
    let executed = |it: &Header| {
        it.op == Op::State && it.flags.contains(Flags::MEMORY.with(Flags::COMPLETE)) && it.sync > 1
    };
    let heard = peer.listen_for_a_while();
    assert!(!heard.iter().any(executed), "executed what was refused");
}

/// Repeats among others, early and late, with numbers that wrap.
fn frames_again(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    for count in [1, 20, 21, 22] {
        let (header, content) = frames(&puts(peer, open, 0, count), &[2; 8]);
        peer.say_raw(&header, &content);
    }
    let all = |it: &Header| it.op == Op::State && it.flags.contains(Flags::MEMORY) && it.sync == 22;
    peer.await_heard(|it, _| all(it));
    for first in [23, 40_000, 1 << 31, u32::MAX - 100] {
        let (header, content) = frames(&puts(peer, open, first, 20), &[0xee; 8]);
        peer.say_raw(&header, &content);
    }
}

fn frames_in_classic(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    for first in 0..10 {
        let (header, content) = frames(&puts(peer, open, first, 10), &[0xee; 8]);
        peer.say_raw(&header, &content);
    }
}

/// Parts of no message; a message that says two lengths; parts that are less than their message says.
fn payload_that_does_not_add_up(peer: &mut Peer) {
    let refused = |peer: &mut Peer, it: &Header| {
        peer.await_heard(|heard, _| {
            heard.op == Op::RequestAnswer
                && heard.flags.contains(Flags::REJECT)
                && heard.d_id == it.s_id
        });
        let (sync, s_id) = (it.sync, it.s_id);
        peer.say(Operation::FetchOpComplete { sync, s_id });
    };
    let part = |peer: &Peer, number: u32, rest: u32| Header {
        b_id: 65_532,
        b_num: rest,
        s_id: 30 + number,
        ..message(peer, number)
    };
    let alone = part(peer, 0, 0);
    peer.say_raw(&alone, &[0xee; 100]);
    refused(peer, &alone);
    let unlike = Header {
        b_num: 300,
        s_id: 31,
        ..message(peer, 1).with_wide(200)
    };
    peer.say_raw(&unlike, &[7; 16]);
    refused(peer, &unlike);
    let good = Header {
        b_num: 300,
        ..message(peer, 2).with_wide(300)
    };
    peer.say_raw(&good, &[7; 16]);
    let less = part(peer, 3, 100);
    peer.say_raw(&less, &[0xee; 100]);
    peer.await_heard(|it, _| it.op == Op::RequestAnswer && it.d_id == less.s_id);
    for number in 4..9 {
        let next = part(peer, number, 0);
        peer.say_raw(&next, &[0xee; 100]);
    }
}

/// Datagrams of no bytes, too long, beyond their length, with flags of other Data, and a part of another length.
fn datagrams_without_form(peer: &mut Peer) {
    let part = |number, length, start| DatagramPart {
        number,
        length,
        start,
    };
    let mut say = |it: DatagramPart, flags: Flags| {
        let ports = peer.header(Op::Data);
        let header = Header {
            d_port: ports.d_port,
            s_port: ports.s_port,
            d_key: ports.d_key,
            ..it.header()
        };
        let flags = header.flags.with(flags);
        peer.say_raw(&Header { flags, ..header }, &[0xee; 8]);
    };
    for it in [part(0, 0, 0), part(0, MAX_DATAGRAM + 1, 0)] {
        say(it, Flags::NONE);
    }
    for it in [part(0, 100, 93), part(0, 100, u32::MAX)] {
        say(it, Flags::NONE);
    }
    say(part(0, 100, 0), Flags::SILENT);
    say(part(1, 100, 0), Flags::NONE);
    say(part(1, 101, 8), Flags::NONE);
}
