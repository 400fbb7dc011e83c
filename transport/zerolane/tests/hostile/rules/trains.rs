//! Tests that ends enforce the rules of trains: payload in many datagrams with one header at the end.

use super::data::{grant, granted};
use super::frames::frames;
use super::memory::{opened, put};
use super::peer::Peer;
use super::rule::{Rule, rule};
use super::victim::EXPORTED;
use twox_hash::XxHash3_64;
use zerolane::counters::DropReason::{
    Checksum, Duplicate, Early, Forged, Malformed, NoGrant, OutOfBounds, Replayed, Unexpected,
};
use zerolane_wire::{
    Flags, Frames, HEADER_LEN, Header, MAX_TRAIN, MAX_TRAIN_FRAMES, Op, Rights, Train,
};

pub(super) const RULES: &[Rule] = &[
    rule("train_header_is_behind", headers_in_front).drops(&[(Unexpected, 5)]),
    rule("train_says_what_is_in_front", lengths_that_lie)
        .with_trains()
        .drops(&[(Malformed, 4)]),
    rule("train_is_nothing_else", trains_of_others)
        .with_trains()
        .drops(&[(Malformed, 5)]),
    rule("train_is_whole", trains_that_are_spoiled)
        .with_trains()
        .drops(&[(Checksum, 4), (Duplicate, 1)])
        .sealed_drops(&[(Forged, 4), (Replayed, 1)]),
    rule("train_inside_its_block", trains_elsewhere)
        .with_trains()
        .drops(&[(OutOfBounds, 3), (NoGrant, 3)]),
    rule("train_comes_to_its_end", parts_without_end).with_trains(),
    rule("train_announces_what_was_granted", announcements_that_lie)
        .with_trains()
        .advance()
        .drops(&[(Malformed, 1), (NoGrant, 2)]),
    rule("train_of_frames_with_form", frames_without_form)
        .with_trains()
        .drops(&[(Malformed, 4)]),
    rule("train_of_frames_once_in_order", frames_elsewhere)
        .with_trains()
        .drops(&[(Early, 10), (Duplicate, 10), (NoGrant, 1)]),
];

/// Bytes of a datagram.
const DATAGRAM: usize = 1400;
/// Payload of a train: five datagrams, the last one short.
const LEN: usize = 6000;

/// Requests a grant of `length` bytes, as trains. Returns the header for Data.
fn offered(peer: &mut Peer, length: u64) -> Header {
    // An end that accepts trains gets merged datagrams.
    let nop = peer.header(Op::Nop).emit();
    let burst: Vec<Vec<u8>> = (0..4).map(|_| peer.sealed(&nop)).collect();
    peer.send_burst(&burst.concat(), burst[0].len());
    peer.is_answered();
    let (grant, data) = grant(peer, length);
    assert!(grant.flags.contains(Flags::TRAIN), "no trains are offered");
    data
}

/// The header of a train of [`LEN`] bytes.
fn header(data: Header) -> Header {
    let (len, padding) = (LEN as u32, 0);
    Train { len, padding }.header(data)
}

/// The train that `header` ends, as on the wire. Its payload identifies its offset, and its `train`.
fn train(peer: &mut Peer, header: &Header, train: usize) -> Vec<u8> {
    // Not the first byte of an operation.
    let payload = (0..LEN).map(|at| 0xe0 | ((at / 97 + train) % 16) as u8);
    let payload: Vec<u8> = payload.collect();
    train_of(peer, header, &payload)
}

fn train_of(peer: &mut Peer, header: &Header, payload: &[u8]) -> Vec<u8> {
    let sealed = peer.sealed(&[&header.emit()[..], payload].concat());
    let (head, rest) = sealed.split_at(HEADER_LEN);
    let (payload, trailer) = rest.split_at(payload.len());
    let padding = vec![0; usize::from(header.param)];
    let digest = XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(head), payload);
    let digest = digest.to_be_bytes();
    let check = if peer.is_sealed() { trailer } else { &digest };
    [payload, &padding, head, check].concat()
}

fn send(peer: &mut Peer, header: Header) {
    let train = train(peer, &header, 0);
    peer.send_burst(&train, DATAGRAM);
}

/// The victim sends nothing back, as it would after a receive.
fn nothing_is_received(peer: &mut Peer) {
    let heard = peer.listen_for_a_while();
    let back = heard.iter().any(|it| it.op == Op::RequestToSend);
    assert!(!back, "received what is no train");
}

/// A header in the place where Data has it; one of an operation that may be a train, and one that may not.
fn headers_in_front(peer: &mut Peer) {
    let data = granted(peer, 50_000);
    let others = [
        Flags::default(),
        Flags::EAGER,
        Flags::MEMORY,
        Flags::MESSAGE,
        Flags::CONTINUES,
    ];
    for _ in 0..3 {
        for other in others {
            let flags = Flags::TRAIN.with(other);
            let s_id = 1000;
            peer.say_raw(
                &Header {
                    flags,
                    s_id,
                    ..data
                },
                &[0xee; 1000],
            );
        }
    }
}

/// Empty, longer than possible, longer than it is; more padding than possible.
fn lengths_that_lie(peer: &mut Peer) {
    let train = header(offered(peer, LEN as u64));
    for s_id in [0, MAX_TRAIN + 1, u32::MAX, LEN as u32 + 1, MAX_TRAIN] {
        send(peer, Header { s_id, ..train });
    }
    send(peer, Header { param: 2, ..train });
    nothing_is_received(peer);
}

fn trains_of_others(peer: &mut Peer) {
    let train = header(offered(peer, LEN as u64));
    for other in [
        Flags::EAGER,
        Flags::FRAMES,
        Flags::MEMORY,
        Flags::MESSAGE,
        Flags::CONTINUES,
    ] {
        let flags = train.flags.with(other);
        send(peer, Header { flags, ..train });
    }
    nothing_is_received(peer);
}

/// Trains with missing, doubled, swapped, changed and foreign datagrams; then the right one, twice.
fn trains_that_are_spoiled(peer: &mut Peer) {
    let data = header(offered(peer, 50_000));
    let other = train(peer, &data, 1);
    for turn in 0..6 {
        let whole = train(peer, &data, 0);
        let mut parts: Vec<&[u8]> = whole.chunks(DATAGRAM).collect();
        let mut changed = parts[1].to_vec();
        changed[7] ^= 1;
        match turn {
            0 => drop(parts.remove(1)),
            1 => parts.insert(2, parts[1]),
            2 => parts.swap(0, 1),
            3 => parts[1] = &changed,
            4 => parts[1] = &other[DATAGRAM..2 * DATAGRAM],
            _ => parts.insert(0, &other[..DATAGRAM]),
        }
        // Before the sixth there are foreign bytes: it is right, and opens.
        peer.send_burst(&parts.concat(), DATAGRAM);
        if turn == 5 {
            peer.send_burst(&whole, DATAGRAM);
        }
    }
}

/// Before the Block, across its end, after it, far away; with another Mx, Transfer, Block; and over received bytes.
fn trains_elsewhere(peer: &mut Peer) {
    let length = 20_000;
    let data = header(offered(peer, length));
    let wide = data.wide();
    for place in [
        wide.wrapping_sub(1),
        wide + length - 1,
        wide + length,
        wide + (1 << 32),
        u64::MAX - 100,
    ] {
        send(peer, data.with_wide(place));
    }
    for d_id in [0, data.d_id + 1] {
        send(peer, Header { d_id, ..data });
    }
    for b_id in [data.b_id ^ 1, u16::MAX] {
        send(peer, Header { b_id, ..data });
    }
    send(peer, Header { b_num: 7, ..data });
    for start in [0, 3000, 3000] {
        send(peer, data.with_wide(wide + start));
    }
}

/// For no Transfer, for an announced one, for one granted to no receive, and again.
fn announcements_that_lie(peer: &mut Peer) {
    let data = header(offered(peer, 2 * LEN as u64));
    let say = |peer: &mut Peer, s_id: u32, data: Header| {
        let header = Train::announcing(data, s_id);
        send(peer, header);
    };
    say(peer, 0, data);
    for other in [
        Header {
            d_id: data.d_id + 1,
            ..data
        },
        Header {
            b_id: data.b_id ^ 1,
            ..data
        },
    ] {
        say(peer, u32::MAX, other);
    }
    // Payload of an announced Transfer under any identifier.
    for _ in 0..2 {
        say(peer, u32::MAX, data);
    }
    nothing_is_received(peer);
}

/// A train of ten puts of 600 bytes, numbered from `first` on, to `place`.
fn puts(peer: &mut Peer, open: (u32, u16), place: u64, first: u32) -> (Header, Vec<u8>) {
    let number = |n| put(peer, open, place, first.wrapping_add(n));
    let operations: Vec<Header> = (0..10).map(number).collect();
    let (_, content) = frames(&operations, &[2; 600]);
    let (len, padding) = (content.len() as u32, 0);
    let header = Frames::train_header(&operations[0], Train { len, padding });
    (header, content)
}

/// Truncated, too many, with the identifier of a Transfer, and one that announces.
fn frames_without_form(peer: &mut Peer) {
    offered(peer, 50_000);
    let open = opened(peer, "open", Rights::ALL);
    let (good, mut content) = puts(peer, open, 0, 0);
    let mut send = |header: Header, content: &[u8]| {
        let s_id = content.len() as u32;
        let train = train_of(peer, &Header { s_id, ..header }, content);
        peer.send_burst(&train, DATAGRAM);
    };
    let announces = good.flags.with(Flags::ANNOUNCES);
    send(
        Header {
            flags: announces,
            ..good
        },
        &content,
    );
    send(Header { d_id: 7, ..good }, &content);
    send(good, &[0x80, 0, 0, 0, 0, 0, 0].repeat(MAX_TRAIN_FRAMES + 1));
    content.truncate(content.len() - 1);
    send(good, &content);
    nothing_is_received(peer);
}

/// Early, right, again; and outside of the region.
fn frames_elsewhere(peer: &mut Peer) {
    offered(peer, 50_000);
    let open = opened(peer, "open", Rights::ALL);
    let far = EXPORTED as u64 - 100;
    for (place, first) in [(0, 10), (0, 0), (0, 0), (far, 10)] {
        let (header, content) = puts(peer, open, place, first);
        let train = train_of(peer, &header, &content);
        peer.send_burst(&train, DATAGRAM);
    }
    peer.await_heard(|it, _| it.op == Op::RequestAnswer && it.flags.contains(Flags::REJECT));
    nothing_is_received(peer);
}

/// Parts of all sizes, of trains that never end.
fn parts_without_end(peer: &mut Peer) {
    let data = header(offered(peer, 50_000));
    for size in [1, 63, 64, DATAGRAM, 1200, DATAGRAM] {
        for _ in 0..50 {
            peer.send_burst(&vec![0xee; 40 * size], size);
        }
    }
    // Gives the victim time to process these.
    peer.is_answered();
    send(peer, data);
}
