//! Tests that segmentation gives valid frames, and that merging restores the long one.
#![allow(non_snake_case)]

use super::*;
use crate::checksum::sum;

const ETHERNET: [u8; 14] = [2, 0, 0, b'z', b'l', 1, 2, 0, 0, b'z', b'l', 2, 0x08, 0x00];
const SOURCE: [u8; 4] = [10, 77, 0, 2];
const TARGET: [u8; 4] = [10, 77, 0, 1];

fn pseudo_ipv4(protocol: u8, length: usize) -> u16 {
    let length = (length as u16).to_be_bytes();
    let parts = [&SOURCE[..], &TARGET, &[0, protocol], &length].concat();
    sum(&parts)
}

/// IPv4 with the transport's header and payload, as the kernel hands it over: the IP checksum done, the
/// transport's begun.
fn ipv4(protocol: u8, mut transport: Vec<u8>) -> Vec<u8> {
    let offset = if protocol == 6 { 16 } else { 6 };
    let pseudo = pseudo_ipv4(protocol, transport.len());
    transport[offset..offset + 2].copy_from_slice(&pseudo.to_be_bytes());
    let length = (20 + transport.len()) as u16;
    let mut header = vec![0x45, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0];
    header[2..4].copy_from_slice(&length.to_be_bytes());
    header.extend([SOURCE, TARGET].concat());
    let checksum = !sum(&header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [&ETHERNET[..], &header, &transport].concat()
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let mut header = vec![0x24, 0x00, 0x23, 0xdd, 0, 0, 0, 0];
    header[4..6].copy_from_slice(&length.to_be_bytes());
    ipv4(17, [&header, payload].concat())
}

fn tcp(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x24, 0x00, 0x23, 0xdd];
    header.extend(sequence.to_be_bytes());
    header.extend([0, 0, 0, 9, 0x80, flags, 0xff, 0xff, 0, 0, 0, 0]);
    header.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    ipv4(6, [&header, payload].concat())
}

fn vnet(segmentation: Segmentation, segment_bytes: u16) -> Vnet {
    let (offset, header_bytes) = match segmentation {
        Segmentation::Udp => (6, 42),
        _ => (16, 66),
    };
    Vnet {
        checksum: Some(Checksum { start: 34, offset }),
        segmentation,
        header_bytes,
        segment_bytes,
    }
}

fn cut_all(vnet: &Vnet, bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    cut(vnet, bytes, &mut vec![vec![1; 9]], |frame| {
        frames.push(frame)
    });
    frames
}

fn together(frames: &[Frame]) -> Vec<Together<'_>> {
    let all: Vec<&Frame> = frames.iter().collect();
    put_together(&all)
}

fn bytes_of(it: &Together<'_>) -> (Vec<u8>, Vec<u8>) {
    let (vnet, headers) = it.head.split_at(HEADER_BYTES);
    (
        vnet.to_vec(),
        [headers.to_vec(), it.payloads.concat()].concat(),
    )
}

/// All lengths and sums in the headers of a frame are right.
fn assert_right(frame: &Frame, protocol: u8) {
    let bytes = &frame.bytes;
    assert_eq!(usize::from(word(bytes, 16)), bytes.len() - 14);
    assert_eq!(sum(&bytes[14..34]), 0xffff);
    let offset = if protocol == 6 { 50 } else { 40 };
    assert_eq!(word(bytes, offset), pseudo_ipv4(protocol, bytes.len() - 34));
    if protocol == 17 {
        assert_eq!(usize::from(word(bytes, 38)), bytes.len() - 34);
    }
}

#[test]
fn cut__udp_into_datagrams_that_are_right() {
    let payload = content(5000);
    let frames = cut_all(&vnet(Segmentation::Udp, 1472), &udp(&payload));
    let lengths: Vec<usize> = frames.iter().map(|it| it.bytes.len() - 42).collect();
    assert_eq!(lengths, [1472, 1472, 1472, 584]);
    let ids: Vec<u16> = frames.iter().map(|it| word(&it.bytes, 18)).collect();
    assert_eq!(ids, [0xfffe, 0xffff, 0, 1]);
    frames.iter().for_each(|it| assert_right(it, 17));
    let all: Vec<u8> = frames
        .iter()
        .flat_map(|it| it.bytes[42..].to_vec())
        .collect();
    assert_eq!(all, payload);
}

#[test]
fn cut__tcp_into_segments_that_are_right() {
    let payload = content(3000);
    let whole = tcp(u32::MAX - 99, ACK | PSH | CWR, &payload);
    let frames = cut_all(&vnet(Segmentation::TcpIpv4, 1448), &whole);
    let heads: Vec<(u32, u8)> = frames
        .iter()
        .map(|it| {
            let sequence = it.bytes[38..42].try_into().unwrap();
            (u32::from_be_bytes(sequence), it.bytes[47])
        })
        .collect();
    let second = (u32::MAX - 99).wrapping_add(1448);
    let third = second.wrapping_add(1448);
    assert_eq!(
        heads,
        [
            (u32::MAX - 99, ACK | CWR),
            (second, ACK),
            (third, ACK | PSH)
        ]
    );
    frames.iter().for_each(|it| assert_right(it, 6));
}

#[test]
fn cut__what_is_short_stays_as_it_is() {
    for (vnet, bytes) in [
        (Vnet::whole(None), vec![0xff; 60]),
        (Vnet::whole(None), vec![]),
        (
            Vnet::whole(vnet(Segmentation::Udp, 0).checksum),
            udp(b"short"),
        ),
        // A frame that asks for segmentation but cannot be segmented.
        (vnet(Segmentation::Udp, 1472), vec![0xff; 60]),
        (vnet(Segmentation::TcpIpv4, 1448), vec![0x08; 20]),
    ] {
        let frames = cut_all(&vnet, &bytes);
        let checksum = vnet.checksum;
        assert_eq!(frames, [Frame { bytes, checksum }]);
    }
}

#[test]
fn put_together__what_was_cut() {
    let push = tcp(7, ACK | PSH, &content(9000));
    for (vnet, whole) in [
        (vnet(Segmentation::Udp, 1472), udp(&content(9000))),
        (vnet(Segmentation::Udp, 1000), udp(&content(9000))),
        (vnet(Segmentation::TcpIpv4, 1448), push),
    ] {
        let frames = cut_all(&vnet, &whole);
        let all = together(&frames);
        assert_eq!((all.len(), all[0].frames), (1, frames.len()));
        assert_eq!(bytes_of(&all[0]), (vnet.to_bytes().to_vec(), whole));
    }
}

#[test]
fn put_together__only_what_follows() {
    let datagrams = || cut_all(&vnet(Segmentation::Udp, 1000), &udp(&content(4000)));
    let segments = || {
        cut_all(
            &vnet(Segmentation::TcpIpv4, 1000),
            &tcp(7, ACK, &content(4000)),
        )
    };
    let counts =
        |frames: &[Frame]| -> Vec<usize> { together(frames).iter().map(|it| it.frames).collect() };
    // A datagram that is lost leaves no visible gap; a segment does.
    let (mut udp_lost, mut tcp_lost) = (datagrams(), segments());
    udp_lost.remove(1);
    tcp_lost.remove(1);
    assert_eq!(
        (counts(&udp_lost), counts(&tcp_lost)),
        (vec![3], vec![1, 2])
    );
    // Marked.
    for mut frames in [datagrams(), segments()] {
        frames[2].bytes[15] |= 0b11;
        assert_eq!(counts(&frames), [2, 1, 1]);
    }
    // Of another flow.
    let mut frames = datagrams();
    frames[3].bytes[35] ^= 1;
    assert_eq!(counts(&frames), [3, 1]);
    // Behind a short one, behind one that may be cut, and behind the end.
    let mut frames = datagrams();
    frames.extend(cut_all(
        &vnet(Segmentation::Udp, 1000),
        &udp(&content(1500)),
    ));
    frames.extend(datagrams());
    assert_eq!(counts(&frames), [6, 4]);
    let mut frames = datagrams();
    frames.iter_mut().for_each(|it| it.bytes[20] = 0);
    assert_eq!(counts(&frames), [1, 1, 1, 1]);
    let mut frames = segments();
    frames[1].bytes[47] |= FIN;
    assert_eq!(counts(&frames), [2, 2]);
    // Longer than what came before, empty, or without an open checksum.
    let empty = cut_all(&Vnet::whole(vnet(Segmentation::Udp, 0).checksum), &udp(b""));
    let mut frames = datagrams();
    frames[3] = cut_all(&vnet(Segmentation::Udp, 1001), &udp(&content(1001))).remove(0);
    frames.extend(empty);
    frames.extend(cut_all(&Vnet::whole(None), &udp(b"abc")));
    assert_eq!(counts(&frames), [3, 1, 1, 1]);
}

#[test]
fn put_together__no_more_than_a_packet_may_hold() {
    let frames: Vec<Frame> = (0..200)
        .flat_map(|_| cut_all(&vnet(Segmentation::Udp, 1472), &udp(&content(1472))))
        .collect();
    for it in together(&frames) {
        assert!(it.head.len() - HEADER_BYTES + it.payloads.concat().len() <= MOST_BYTES);
    }
    let frames: Vec<Frame> = (0..200)
        .flat_map(|_| cut_all(&vnet(Segmentation::Udp, 10), &udp(&content(10))))
        .collect();
    let counts: Vec<usize> = together(&frames).iter().map(|it| it.frames).collect();
    assert_eq!(counts, [64, 64, 64, 8]);
}

#[test]
fn put_together__ipv6() {
    let mut whole = ETHERNET.to_vec();
    whole[12..14].copy_from_slice(&frame::TYPE_IPV6);
    let udp_header = [0x24, 0x00, 0x23, 0xdd, 0x0b, 0xc0, 0x12, 0x34];
    whole.extend([0x60, 0, 0, 0, 0x0b, 0xc0, 17, 64]);
    whole.extend([0xfd; 32]);
    whole.extend(udp_header);
    whole.extend(content(3000));
    let vnet = Vnet {
        checksum: Some(Checksum {
            start: 54,
            offset: 6,
        }),
        segmentation: Segmentation::Udp,
        header_bytes: 62,
        segment_bytes: 1452,
    };
    let frames = cut_all(&vnet, &whole);
    let lengths: Vec<(u16, u16)> = frames
        .iter()
        .map(|it| (word(&it.bytes, 18), word(&it.bytes, 58)))
        .collect();
    assert_eq!(lengths, [(1460, 1460), (1460, 1460), (104, 104)]);
    assert_eq!(bytes_of(&together(&frames)[0]).1, whole);
}
