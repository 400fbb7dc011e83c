//! Tests that ends drop malformed datagrams and operations with a broken field.

use super::data::granted;
use super::peer::Peer;
use super::rule::{Rule, rule};
use zerolane::counters::DropReason::{Checksum, Malformed, Unprotected};
use zerolane_wire::{Flags, Header, Op};

pub(super) const RULES: &[Rule] = &[
    rule("form_length", form_length)
        .drops(&[(Malformed, 4)])
        .sealed_drops(&[(Malformed, 4), (Unprotected, 1)]),
    rule("form_operation", form_operation).drops(&[(Malformed, 22)]),
    rule("form_options", form_options).drops(&[(Malformed, 80)]),
    rule("form_one_operation", form_one_operation).drops(&[(Malformed, 2)]),
    rule("form_checksum", form_checksum).drops(&[(Malformed, 1)]),
    rule("form_data_checksum", form_data_checksum)
        .with_checksums()
        .drops(&[(Checksum, 2)])
        .sealed_drops(&[]),
    rule("form_reason", form_reason).drops(&[(Malformed, 4)]),
    rule("form_ranges_of_fields", form_ranges_of_fields).drops(&[(Malformed, 17)]),
    rule("form_unassigned_flags", form_unassigned_flags),
];

fn form_length(peer: &mut Peer) {
    let whole = peer.header(Op::Nop).emit();
    for len in [0, 1, 39] {
        peer.send(&whole[..len]);
    }
    for length in [1, 12, 39, 40, 63] {
        peer.send_as_is(&vec![0x28; length]);
    }
}

fn form_operation(peer: &mut Peer) {
    let nop = peer.header(Op::Nop).emit();
    for code in [0].into_iter().chain(21..=30) {
        let mut header = nop;
        header[0] = code << 3 | header[0] & 7;
        peer.send(&header);
        peer.send(&[&header[..], &[9; 32]].concat());
    }
}

fn form_options(peer: &mut Peer) {
    for op in Op::ALL.into_iter().filter(|&op| op != Op::Data) {
        for len in [1, 31, 33, 1000] {
            let header = Header {
                s_id: 9,
                d_id: 9,
                ..peer.header(op)
            };
            peer.say_raw(&header, &vec![0; len]);
        }
    }
    // Operations that need options, without them.
    for op in [
        Op::RequestConnection,
        Op::ConnectionAnswer,
        Op::RequestMemoryRegion,
        Op::Get,
        Op::FetchOp,
        Op::State,
    ] {
        let header = Header {
            s_id: 9,
            d_id: 9,
            ..peer.header(op)
        };
        peer.say_raw(&header, &[]);
    }
}

fn form_checksum(peer: &mut Peer) {
    let header = Header {
        checksum: 0x1234,
        flags: Flags::SEND_STATE,
        ..peer.header(Op::Nop)
    };
    peer.say_raw(&header, &[]);
}

fn form_reason(peer: &mut Peer) {
    for op in [
        Op::RequestAnswer,
        Op::End,
        Op::EndAck,
        Op::RequestDisconnect,
    ] {
        let header = Header {
            param: 60_000,
            d_id: 9,
            s_id: 9,
            ..peer.header(op)
        };
        peer.say_raw(&header, &[]);
    }
}

fn form_ranges_of_fields(peer: &mut Peer) {
    let say = |peer: &mut Peer, header: Header, options: [u8; 32]| peer.say_raw(&header, &options);
    let of = |peer: &Peer, op| peer.header(op);
    // Identifiers of no Transfer.
    for op in [
        Op::RequestMemoryRegion,
        Op::MemoryRegionAvailable,
        Op::Get,
        Op::FetchOp,
        Op::ClearToSend,
    ] {
        let header = of(peer, op);
        say(peer, header, [1; 32]);
    }
    let header = of(peer, Op::RequestToReceive);
    peer.say_raw(&header, &[]);
    // Invalid rights and kinds, an unaligned word.
    for (op, param, offset) in [
        (Op::RequestMemoryRegion, 8, 0),
        (Op::FetchOp, 11, 0),
        (Op::FetchOp, 0, 4),
    ] {
        let header = Header {
            param,
            offset,
            s_id: 3,
            ..of(peer, op)
        };
        say(peer, header, [0; 32]);
    }
    // A grant that ends beyond 2^64, and an empty one; ranges that end beyond 2^32.
    let grant = Header {
        d_id: 3,
        s_id: 3,
        ..of(peer, Op::ClearToSend)
    };
    say(peer, grant, [0xff; 32]);
    say(peer, grant, [0; 32]);
    let state = Header {
        op: Op::State,
        ..grant
    };
    say(peer, state, [0xff; 32]);
    // A Block of 2^33.
    let classic = Header { param: 33, ..grant };
    peer.say_raw(&classic, &[]);
    // A set-up without its magic, with an inverted range of versions, without slots.
    let request = Header {
        flags: Flags::CAP_EXTENDED,
        param: 1 << 8 | 1,
        b_id: 64,
        bufx: 1408,
        offset: 30,
        s_id: 5,
        ..of(peer, Op::RequestConnection)
    };
    say(peer, request, [0; 32]);
    let mut magic = [0; 32];
    magic[..8].copy_from_slice(b"Zerolane");
    say(
        peer,
        Header {
            param: 2 << 8 | 1,
            ..request
        },
        magic,
    );
    say(peer, Header { b_id: 0, ..request }, magic);
    say(peer, Header { bufx: 0, ..request }, magic);
}

fn form_unassigned_flags(peer: &mut Peer) {
    let assigned = Flags::REPLY.bits() | Flags::PROBE.bits() | Flags::LEAVES.bits();
    let nop = Header {
        flags: Flags::from_bits(0x7ff & !assigned),
        sync: 4711,
        ..peer.header(Op::Nop)
    };
    peer.say_raw(&nop, &[]);
    peer.await_heard(|header, _| header.op == Op::Nop && header.sync == 4711);
}

/// Two in one datagram.
fn form_one_operation(peer: &mut Peer) {
    let nop = peer.header(Op::Nop).emit();
    peer.send(&[nop, nop].concat());
    let last = Header {
        d_id: 9,
        s_id: 9,
        ..peer.header(Op::End)
    };
    peer.send(&[&nop[..], &last.emit()[..], &[0; 32]].concat());
}

/// Without a checksum although one was agreed on, and with a wrong one.
fn form_data_checksum(peer: &mut Peer) {
    let data = granted(peer, 5000);
    peer.say_raw(&data, &[0xee; 1000]);
    let wrong = Header {
        checksum: 0x1234,
        ..data
    };
    peer.say_raw(&wrong, &[0xee; 1000]);
}
