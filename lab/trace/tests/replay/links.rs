//! Tests that link headers are skipped, and that packets of no flow are not counted.

use crate::support::{Capture, Frame, MSS, ends, traced};
use zerolane_trace::Report;

/// Two pages of TCP, and one datagram.
fn sample() -> Capture {
    let mut capture = Capture::default();
    for index in 0..6 {
        capture.tcp(ends(1, 9), index * MSS, MSS);
    }
    capture.udp(ends(2, 9), 100);
    capture
}

/// `sample` with other bytes in front of each IP header.
fn with_link(change: impl Fn(&[u8]) -> Vec<u8>) -> Capture {
    let mut capture = sample();
    for Frame { bytes, len, .. } in &mut capture.frames {
        *bytes = change(bytes);
        *len = bytes.len() as u32;
    }
    capture
}

/// What does not depend on the length of the link's header.
fn counted(report: &Report) -> (u64, u64, String) {
    let rules = serde_json::to_string(&report.sum.rules).unwrap();
    (report.sum.packets, report.sum.payload_bytes, rules)
}

#[test]
fn dissect__the_same_behind_every_link() {
    let tagged = |tags: &'static [u8]| move |it: &[u8]| [&it[..12], tags, &it[12..]].concat();
    let behind = |head: &'static [u8]| move |it: &[u8]| [head, &it[14..]].concat();
    let expected = counted(&traced(&sample().pcap()));
    assert_eq!(expected.0, 7);
    for (name, link, capture) in [
        ("VLAN", 1, with_link(tagged(&[0x81, 0, 0, 5]))),
        (
            "QinQ",
            1,
            with_link(tagged(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6])),
        ),
        (
            "old QinQ",
            1,
            with_link(tagged(&[0x91, 0, 0, 5, 0x81, 0, 0, 6])),
        ),
        ("raw", 101, with_link(behind(&[]))),
        ("raw of BSD", 12, with_link(behind(&[]))),
        ("raw IPv4", 228, with_link(behind(&[]))),
        ("null", 0, with_link(behind(&[2, 0, 0, 0]))),
        ("loop", 108, with_link(behind(&[0, 0, 0, 2]))),
        (
            "SLL",
            113,
            with_link(behind(&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0])),
        ),
        (
            "SLL2",
            276,
            with_link(behind(&[
                8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0,
            ])),
        ),
    ] {
        let report = traced(&capture.pcap_as(false, false, link));
        assert_eq!(counted(&report), expected, "{name}");
        let seen = &report.seen;
        assert_eq!(
            (seen.cut, seen.malformed, seen.not_ip, seen.unknown_link),
            (0, 0, 0, 0)
        );
    }
}

#[test]
fn dissect__padding_of_short_frames_is_no_payload() {
    let mut capture = Capture::default();
    capture.tcp(ends(1, 9), 0, 0);
    capture.frames[0].bytes.resize(100, 0);
    capture.frames[0].len = 100;
    let sum = traced(&capture.pcap()).sum;
    assert_eq!((sum.packets, sum.data_packets), (1, 0));
}

#[test]
fn dissect__payload_that_the_frame_has_no_room_for_is_none() {
    let mut capture = Capture::default();
    capture.tcp(ends(1, 9), 0, 10);
    capture.frames[0].bytes[16..18].copy_from_slice(&1500_u16.to_be_bytes());
    assert_eq!(traced(&capture.pcap()).sum.payload_bytes, 10);
}

/// The IPv6 packet of UDP that has `extensions` in front of it, the first of the kind `first`.
fn ipv6(first: u8, extensions: &[u8], above: &[u8]) -> Vec<u8> {
    let address = |host| [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[host]].concat();
    let len = (extensions.len() + above.len()) as u16;
    let mut bytes = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    bytes.extend(len.to_be_bytes());
    bytes.extend([first, 64]);
    bytes.extend([address(1), address(9)].concat());
    bytes.extend(extensions);
    bytes.extend(above);
    bytes
}

fn udp(len: u16) -> Vec<u8> {
    let mut bytes = [
        4001_u16.to_be_bytes(),
        80_u16.to_be_bytes(),
        (8 + len).to_be_bytes(),
    ]
    .concat();
    bytes.resize(8 + usize::from(len), 0);
    bytes
}

#[test]
fn dissect__ipv6_with_extensions_and_fragments() {
    // Hop by hop with padding, then a route, then what follows; alone, and in front of a fragment.
    let hop = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    let fragment = |next: u8, offset: u16, more: u16| {
        [
            &[next, 0][..],
            &(offset | more).to_be_bytes(),
            &[0, 0, 0, 42],
        ]
        .concat()
    };
    let mut capture = Capture::default();
    capture.push(ipv6(17, &[], &udp(1000)));
    capture.push(ipv6(0, &hop(17), &udp(1000)));
    let datagram = udp(2992);
    let first = [&hop(44)[..], &fragment(17, 0, 1)].concat();
    capture.push(ipv6(0, &first, &datagram[..1400]));
    capture.push(ipv6(44, &fragment(17, 1400, 1), &datagram[1400..2800]));
    capture.push(ipv6(44, &fragment(17, 2800, 0), &datagram[2800..]));
    // What is encrypted has no ports.
    capture.push(ipv6(0, &hop(50), &[7; 500]));
    let report = traced(&capture.pcap());
    let sealed = &report.flows[1];
    assert_eq!(sealed.flow.to_string(), "ip-50 2001:db8::1 > 2001:db8::9");
    assert_eq!((report.flows.len(), sealed.counts.payload_bytes), (2, 500));
    assert_eq!(
        report.flows[0].flow.to_string(),
        "udp [2001:db8::1]:4001 > [2001:db8::9]:80"
    );
    assert_eq!(report.flows[0].counts.payload_bytes, 1000 + 1000 + 2992);
    assert_eq!(report.seen.lone_fragments, 0);
    // Three datagrams, as the socket gets them.
    assert_eq!(report.flows[0].counts.rules.pairs.potential, 3);
}

#[test]
fn dissect__ipv6_cut_off_in_its_extensions() {
    // Two of them; then a fragment, an authentication header and one that is there no more.
    let hop = [60, 0, 1, 4, 0, 0, 0, 0];
    for next in [44, 51, 60, 43] {
        let options = [next, 0, 1, 4, 0, 0, 0, 0];
        let whole = ipv6(
            0,
            &[hop, options, [17, 0, 0, 0, 0, 0, 0, 0]].concat(),
            &udp(100),
        );
        let headers = 14 + 40;
        for len in headers..headers + 24 {
            let mut capture = Capture::default();
            capture.push(whole.clone());
            let report = traced(&capture.snapped(len).pcap());
            assert_eq!(
                (report.seen.cut, report.sum.packets),
                (1, 0),
                "{next}, {len}"
            );
        }
    }
}

#[test]
fn dissect__ipv4_options_are_no_payload() {
    let mut capture = sample();
    for Frame { bytes, len, .. } in &mut capture.frames {
        let options = [&bytes[..34], &[1, 1, 1, 1], &bytes[34..]].concat();
        *bytes = options;
        // 24 bytes of header.
        bytes[14] = 0x46;
        let total = u16::from_be_bytes([bytes[16], bytes[17]]) + 4;
        bytes[16..18].copy_from_slice(&total.to_be_bytes());
        *len = bytes.len() as u32;
    }
    let report = traced(&capture.pcap());
    assert_eq!(counted(&report), counted(&traced(&sample().pcap())));
}

#[test]
fn snap__of_the_headers_is_enough_and_less_is_counted() {
    let expected = counted(&traced(&sample().pcap()));
    let enough = traced(&sample().snapped(14 + 20 + 32).pcap());
    assert_eq!(counted(&enough), expected);
    for (len, cut) in [
        (14 + 20 + 31, 6),
        (14 + 20 + 7, 7),
        (14 + 19, 7),
        (13, 7),
        (0, 7),
    ] {
        let report = traced(&sample().snapped(len).pcap());
        assert_eq!(
            (report.seen.cut, report.sum.packets),
            (cut, 7 - cut),
            "{len}"
        );
        assert_eq!((report.seen.malformed, report.seen.not_ip), (0, 0), "{len}");
    }
}

#[test]
fn not_ip__is_counted_and_in_no_ones_way() {
    let mut capture = sample();
    let arp = [
        &[0xff; 6][..],
        &[2; 6],
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &[0; 20],
    ]
    .concat();
    let other = [&[0xff; 6][..], &[2; 6], &[0x88, 0xcc, 1, 2, 3, 4]].concat();
    for (at, bytes) in [(3, arp), (5, other)] {
        let time = capture.frames[at].time;
        let len = bytes.len() as u32;
        capture.frames.insert(at, Frame { time, bytes, len });
    }
    let report = traced(&capture.pcap());
    assert_eq!((report.seen.not_ip, report.seen.packets), (2, 9));
    assert_eq!(counted(&report), counted(&traced(&sample().pcap())));
}

#[test]
fn link__that_is_not_read_is_named() {
    let report = traced(&sample().pcap_as(false, false, 127));
    assert_eq!((report.seen.unknown_link, report.seen.link), (7, Some(127)));
    assert_eq!(report.sum.packets, 0);
}

#[test]
fn length__that_no_field_can_say_is_that_of_the_frame() {
    let mut capture = Capture::default();
    capture.tcp(ends(1, 9), 0, MSS);
    capture.tcp(ends(1, 9), MSS, 100_000 % 65_000);
    // As Linux records what it merged beyond 64 KiB.
    let Frame { bytes, len, .. } = &mut capture.frames[1];
    bytes[16..18].copy_from_slice(&[0, 0]);
    bytes.truncate(66);
    *len = 66 + 100_000;
    let report = traced(&capture.pcap());
    assert_eq!(report.sum.payload_bytes, u64::from(MSS) + 100_000);
    assert_eq!(report.seen.merged, 1);
}
