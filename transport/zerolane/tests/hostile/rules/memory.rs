//! Tests that the owner of persistent memory enforces its rules.

use super::peer::{PATIENCE, Peer};
use super::rule::{Rule, rule};
use super::victim::{EXPORTED, MESSAGE_ROOM, NEVER_SHOWN};
use std::time::{Duration, Instant};
use zerolane::counters::DropReason::{Duplicate, Early, Limit, NoGrant};
use zerolane_wire::{Flags, Header, Op, Operation, RequestMemoryRegion, Rights};

pub(super) const RULES: &[Rule] = &[
    rule("region_by_its_name", region_by_its_name),
    rule("handle_of_a_region", handle_of_a_region).drops(&[(NoGrant, 10)]),
    rule("handle_rights", handle_rights).drops(&[(NoGrant, 4)]),
    rule("handle_rights_to_read", handle_rights_to_read).drops(&[(NoGrant, 2)]),
    rule("place_inside_the_region", place_inside_the_region).drops(&[(NoGrant, 10)]),
    rule("get_no_flood", get_no_flood),
    rule("get_lands_somewhere", get_lands_nowhere),
    rule("numbered_in_order", numbered_in_order).drops(&[(Early, 50)]),
    rule("numbered_once", numbered_once).drops(&[(Duplicate, 40)]),
    rule("numbered_of_one_datagram", numbered_too_long).drops(&[(NoGrant, 1)]),
    rule("numbered_after_a_refusal", numbered_after_a_refusal).drops(&[(NoGrant, 1), (Early, 10)]),
    rule("values_that_are_confirmed", values_never_confirmed).drops(&[(Limit, 1), (Early, 100)]),
    rule("values_of_what_was_asked", values_never_asked_for),
    rule("message_needs_a_receive", message_without_a_receive).drops(&[(Limit, 10)]),
    rule("message_control_length", message_control_length).drops(&[(NoGrant, 1)]),
    rule("message_payload_as_it_says", message_of_another_length),
    rule("put_of_several_as_promised", put_unlike_its_promise).drops(&[(NoGrant, 1)]),
    rule("immediate_behind_what_it_follows", immediate_too_early).drops(&[(Limit, 100)]),
];

/// Opens a region of the victim; returns handle and Mx.
pub(super) fn opened(peer: &mut Peer, name: &str, rights: Rights) -> (u32, u16) {
    let s_id = peer.id();
    let mut padded = [0; 32];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    // Exported as soon as the victim's program gets there.
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        peer.say(Operation::RequestMemoryRegion(RequestMemoryRegion {
            rights,
            length: 0,
            s_id,
            name: padded,
        }));
        while let Some((header, _)) = peer.hear(Duration::from_millis(20)) {
            if header.op == Op::MemoryRegionAvailable && header.d_id == s_id {
                return (header.s_id, header.b_id);
            }
        }
    }
    panic!("no region {name}");
}

fn region_by_its_name(peer: &mut Peer) {
    for n in 0..1000u32 {
        let mut name = [b'x'; 32];
        name[..4].copy_from_slice(&n.to_be_bytes());
        let header = Header {
            param: 7,
            s_id: n + 1,
            ..peer.header(Op::RequestMemoryRegion)
        };
        peer.say_raw(&header, &name);
    }
    let heard = peer.listen_for_a_while();
    assert!(!heard.iter().any(|it| it.op == Op::MemoryRegionAvailable));
}

/// A Get of `length` bytes from `place`.
fn get(peer: &Peer, (handle, mx): (u32, u16), place: u64, length: u32) -> (Header, [u8; 32]) {
    let header = Header {
        b_id: mx,
        d_id: handle,
        s_id: 77,
        ..peer.header(Op::Get).with_wide(place)
    };
    let mut options = [0; 32];
    options[8..12].copy_from_slice(&length.to_be_bytes());
    (header, options)
}

/// A put of 8 bytes, numbered `sync`.
pub(super) fn put(peer: &Peer, (handle, mx): (u32, u16), place: u64, sync: u32) -> Header {
    Header {
        flags: Flags::SEND_STATE,
        b_id: mx,
        d_id: handle,
        s_id: 78,
        sync,
        ..peer.header(Op::Data).with_wide(place)
    }
}

fn handle_of_a_region(peer: &mut Peer) {
    let (handle, mx) = opened(peer, "open", Rights::ALL);
    for n in 0..32 {
        let made_up = (handle ^ 1 << n | 1 << 31, mx);
        let (header, options) = get(peer, made_up, 0, 8);
        peer.say_raw(&header, &options);
        let header = put(peer, made_up, 0, 0);
        peer.say_raw(&header, &[0xee; 8]);
    }
    for n in 0..16 {
        let (header, options) = get(peer, (handle, mx ^ 1 << n), 0, 8);
        peer.say_raw(&header, &options);
    }
    // A long put with an invalid handle.
    let header = Header {
        flags: Flags::MEMORY,
        d_id: u32::MAX,
        b_id: 3,
        s_id: peer.id(),
        ..peer.header(Op::RequestToSend).with_wide(100_000)
    };
    peer.say_raw(&header, &[0; 32]);
}

fn handle_rights(peer: &mut Peer) {
    let frozen = opened(peer, "frozen", Rights::READ);
    for sync in 0..4 {
        let header = put(peer, frozen, 0, sync);
        peer.say_raw(&header, &[0xee; 8]);
        let fetch = Header {
            op: Op::FetchOp,
            flags: Flags::NONE,
            param: 4,
            ..header
        };
        peer.say_raw(&fetch, &[0xee; 32]);
        let known = Header {
            sync,
            s_id: 78,
            ..peer.header(Op::FetchOpComplete)
        };
        peer.say_raw(&known, &[]);
    }
    let long = Header {
        flags: Flags::MEMORY,
        b_id: frozen.1,
        d_id: frozen.0,
        s_id: peer.id(),
        ..peer.header(Op::RequestToSend).with_wide(EXPORTED as u64)
    };
    peer.say_raw(&long, &[0; 32]);
    let heard = peer.listen_for_a_while();
    assert!(!heard.iter().any(|it| it.op == Op::ClearToSend));
}

fn place_inside_the_region(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    let end = EXPORTED as u64;
    let places = [
        end,
        end - 4,
        end + 8,
        u64::MAX,
        u64::MAX - 7,
        1 << 32,
        1 << 62,
    ];
    for (sync, place) in (0..).zip(places) {
        let (header, options) = get(peer, open, place, 8);
        peer.say_raw(&header, &options);
        let (header, options) = get(peer, open, place, u32::MAX);
        peer.say_raw(&header, &options);
        let header = put(peer, open, place, sync);
        peer.say_raw(&header, &[0xee; 8]);
        let known = Header {
            sync,
            s_id: 78,
            ..peer.header(Op::FetchOpComplete)
        };
        peer.say_raw(&known, &[]);
    }
    let heard = peer.listen_for_a_while();
    assert!(
        !heard.iter().any(|it| it.op == Op::Data),
        "bytes from outside"
    );
}

/// Requests large answers with small requests, all at once.
fn get_no_flood(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    for n in 0..600 {
        let (header, options) = get(peer, open, 0, EXPORTED as u32);
        peer.say_raw(
            &Header {
                s_id: n + 1,
                b_num: n,
                ..header
            },
            &options,
        );
    }
}

fn numbered_in_order(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    for sync in [1, 2, 50, 40_000, 1 << 31, u32::MAX] {
        for _ in 0..20 {
            let header = put(peer, open, 0, sync);
            peer.say_raw(&header, &[0xee; 8]);
        }
    }
}

fn numbered_once(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    let add = Header {
        op: Op::FetchOp,
        flags: Flags::NONE,
        ..put(peer, open, 8, 0)
    };
    let mut one = [0; 32];
    one[7] = 1;
    for _ in 0..50 {
        peer.say_raw(&add, &one);
    }
    peer.listen_for_a_while();
    // Added once: the next operation returns the sum.
    let next = Header {
        sync: 1,
        s_id: 79,
        ..add
    };
    peer.say_raw(&next, &one);
    let (_, value) = peer.await_heard(|header, _| header.op == Op::Data && header.d_id == 79);
    assert_eq!(value[..8], [2, 2, 2, 2, 2, 2, 2, 3]);
}

fn message_control_length(peer: &mut Peer) {
    for len in [129, 200, 1192, 1400] {
        let header = Header {
            d_id: 1 << 31,
            s_id: 3,
            ..peer.header(Op::Data)
        };
        peer.say_raw(&header, &vec![0xee; len]);
    }
}

fn handle_rights_to_read(peer: &mut Peer) {
    let sink = opened(peer, "sink", Rights::WRITE);
    let (header, options) = get(peer, sink, 0, 8);
    peer.say_raw(&header, &options);
    let fetch = Header {
        op: Op::FetchOp,
        flags: Flags::NONE,
        ..put(peer, sink, 0, 0)
    };
    peer.say_raw(&fetch, &[0; 32]);
    let heard = peer.listen_for_a_while();
    assert!(
        !heard.iter().any(|it| it.op == Op::Data),
        "read without the right"
    );
}

/// Requests the answer to a place where no memory can be.
fn get_lands_nowhere(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    let (header, mut options) = get(peer, open, 0, 8);
    options[..8].fill(0xff);
    peer.say_raw(&header, &options);
}

fn numbered_too_long(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    let header = put(peer, open, 0, 0);
    for len in [EXPORTED + 1, 40_000, 65_400] {
        peer.say_raw(&header, &vec![0xee; len]);
    }
}

/// Ignores a refusal and continues.
fn numbered_after_a_refusal(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    let outside = put(peer, open, EXPORTED as u64, 0);
    peer.say_raw(&outside, &[0xee; 8]);
    for sync in 1..50 {
        let header = put(peer, open, 0, sync);
        peer.say_raw(&header, &[0xee; 8]);
    }
    let executed = |it: &Header| {
        it.op == Op::State && it.flags.contains(Flags::MEMORY.with(Flags::COMPLETE)) && it.sync > 0
    };
    let heard = peer.listen_for_a_while();
    assert!(!heard.iter().any(executed), "executed out of order");
}

/// One atomic operation after another, without confirming a value.
fn values_never_confirmed(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    for sync in 0..500 {
        let fetch = Header {
            op: Op::FetchOp,
            flags: Flags::NONE,
            sync,
            s_id: 1000 + sync,
            ..put(peer, open, 8, sync)
        };
        peer.say_raw(&fetch, &[0; 32]);
        if sync == 100 {
            // Each is answered at least once, but not those beyond the number of values kept.
            let heard = peer.listen_for_a_while();
            let last = heard
                .iter()
                .filter(|it| it.op == Op::Data)
                .map(|it| it.d_id)
                .max();
            assert!(
                last.is_none_or(|id| id < 1000 + 64),
                "more values kept than agreed"
            );
        }
    }
}

/// Confirms values of operations that do not exist.
fn values_never_asked_for(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    for sync in [0, 1, 1 << 31, u32::MAX] {
        let known = Header {
            sync,
            s_id: 78,
            ..peer.header(Op::FetchOpComplete)
        };
        peer.say_raw(&known, &[]);
    }
    let add = Header {
        op: Op::FetchOp,
        flags: Flags::NONE,
        ..put(peer, open, 8, 0)
    };
    let mut options = [0; 32];
    options[7] = 1;
    options[16..20].fill(0x7f);
    for _ in 0..10 {
        peer.say_raw(&add, &options);
    }
    let (_, value) = peer.await_heard(|it, _| it.op == Op::Data && it.d_id == add.s_id);
    assert_eq!(value, [2; 8]);
}

/// A message of control alone.
pub(super) fn message(peer: &Peer, sync: u32) -> Header {
    Header {
        d_id: 1 << 31,
        s_id: 3,
        sync,
        ..peer.header(Op::Data)
    }
}

/// The victim has posted one.
fn message_without_a_receive(peer: &mut Peer) {
    for sync in 0..100 {
        let header = message(peer, sync);
        peer.say_raw(&header, &[7; 16]);
        let again = message(peer, 1);
        peer.say_raw(&again, &[7; 16]);
    }
}

/// Gives one length in the message, and another in the announcement of its payload.
fn message_of_another_length(peer: &mut Peer) {
    let header = message(peer, 0).with_wide(500);
    peer.say_raw(&header, &[7; 16]);
    let announcement = Header {
        flags: Flags::MESSAGE,
        d_id: 0,
        s_id: peer.id(),
        sync: peer.sequence(),
        ..peer
            .header(Op::RequestToSend)
            .with_wide(MESSAGE_ROOM as u64)
    };
    peer.say_raw(&announcement, &[]);
    let (answer, _) = peer.await_heard(|it, _| it.d_id == announcement.s_id);
    assert_eq!(answer.op, Op::RequestAnswer);
    assert!(answer.flags.contains(Flags::REJECT));
}

/// Puts of several operations that differ from what they promise, and immediates of puts that were not done, or that
/// follow a put that is never announced.
fn put_unlike_its_promise(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    let beyond = Header {
        b_num: EXPORTED as u32,
        ..put(peer, open, 0, 0)
    };
    peer.say_raw(&beyond, &[0xee; 8]);
    peer.await_heard(|it, _| it.op == Op::RequestAnswer && it.flags.contains(Flags::REJECT));
    let known = Header {
        s_id: 78,
        ..peer.header(Op::FetchOpComplete)
    };
    peer.say_raw(&known, &[]);
    let first = |sync, rest| Header {
        b_num: rest,
        ..put(peer, open, 0, sync)
    };
    let last = |sync| Header {
        flags: Flags::CONTINUES.with(Flags::INTERRUPT),
        b_num: NEVER_SHOWN,
        ..put(peer, open, 8, sync)
    };
    let message = |sync, mx, bufx| Header {
        flags: Flags::INTERRUPT,
        b_num: NEVER_SHOWN,
        bufx,
        offset: 0,
        b_id: mx,
        d_id: 1 << 31,
        ..put(peer, open, 0, sync)
    };
    let said = [
        // Of a put without other operations, of one that promised more, of one that was cancelled.
        last(1),
        first(2, 16),
        last(3),
        first(4, 8),
        message(5, u16::MAX, 0),
        last(6),
        // After no put, and after one, but of announcements to come.
        message(7, u16::MAX, 0),
        message(8, u16::MAX - 1, 0),
        first(9, 0),
        message(10, u16::MAX - 1, 1000),
    ];
    for header in said {
        let len = if header.d_id == 1 << 31 { 0 } else { 8 };
        peer.say_raw(&header, &[2; 8][..len]);
    }
    let all = |it: &Header| it.op == Op::State && it.flags.contains(Flags::MEMORY) && it.sync == 11;
    let ask = Header {
        sync: 10,
        ..put(peer, open, 0, 10)
    };
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        peer.say_raw(&ask, &[2; 8]);
        if peer.listen_for_a_while().iter().any(all) {
            return;
        }
    }
    panic!("not executed");
}

/// A put of `len` bytes, announced with an immediate that follows the operations below `after`.
fn put_with_immediate(peer: &mut Peer, open: (u32, u16), len: u64, after: u32) -> Header {
    let header = Header {
        flags: Flags::MEMORY.with(Flags::INTERRUPT).with(Flags::SEND_STATE),
        b_id: open.1,
        d_id: open.0,
        s_id: peer.id(),
        sync: peer.sequence(),
        ..peer.header(Op::RequestToSend).with_wide(len)
    };
    let mut options = [0; 32];
    options[8..12].copy_from_slice(&NEVER_SHOWN.to_be_bytes());
    options[12..16].copy_from_slice(&after.to_be_bytes());
    peer.say_raw(&header, &options);
    header
}

/// Never does the operations that its immediates follow: small puts, the bytes of a put, and an earlier put.
fn immediate_too_early(peer: &mut Peer) {
    let open = opened(peer, "open", Rights::ALL);
    let later = |it: &Header| it.op == Op::RequestAnswer && !it.flags.contains(Flags::REJECT);
    let mut put_off = false;
    for after in [1, 1000, u32::MAX / 2] {
        for _ in 0..10 {
            for _ in 0..50 {
                put_with_immediate(peer, open, 0, after);
            }
            put_off |= peer.listen_for_a_while().iter().any(later);
        }
    }
    let end = Instant::now() + PATIENCE;
    while !put_off && Instant::now() < end {
        put_off = peer.listen_for_a_while().iter().any(later);
    }
    assert!(put_off, "more are kept than agreed");
    put_with_immediate(peer, open, 2000, 0);
    peer.sequence();
    put_with_immediate(peer, open, 0, 0);
    peer.listen_for_a_while();
}
