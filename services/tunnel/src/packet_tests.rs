//! Tests that only whole packets with fitting headers pass.
#![allow(non_snake_case)]
use super::*;

/// A TCP packet with its virtio header, `len` bytes of payload and `options`.
fn tcp(len: usize, options: &[u8]) -> Vec<u8> {
    let mut it = vec![0; VNET_HEADER_LEN + 20];
    let total = (40 + options.len() + len) as u16;
    it[VNET_HEADER_LEN] = 0x45;
    it[VNET_HEADER_LEN + 2..VNET_HEADER_LEN + 4].copy_from_slice(&total.to_be_bytes());
    it[VNET_HEADER_LEN + 9] = TCP;
    it[VNET_HEADER_LEN + 12..VNET_HEADER_LEN + 20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let mut header = [0; 20];
    header[12] = ((20 + options.len()) as u8 / 4) << 4;
    it.extend(header);
    it.extend(options);
    it.resize(it.len() + len, 7);
    it
}

fn offloaded(change: impl FnOnce(&mut [u8])) -> Result<Packet, Bad> {
    let mut it = tcp(5000, &[]);
    it[..VNET_HEADER_LEN].copy_from_slice(&[1, GSO_TCP4, 40, 0, 0xb4, 5, 20, 0, 16, 0]);
    change(&mut it);
    Packet::parse(&it)
}

#[test]
fn parse__addresses() {
    let it = Packet::parse(&tcp(100, &[])).unwrap();
    assert_eq!(it.source, IpAddr::from([10, 0, 0, 1]));
    assert_eq!(it.destination, IpAddr::from([10, 0, 0, 2]));
    let mut v6 = vec![0; VNET_HEADER_LEN + 40];
    (
        v6[VNET_HEADER_LEN],
        v6[VNET_HEADER_LEN + 23],
        v6[VNET_HEADER_LEN + 39],
    ) = (0x60, 1, 2);
    let it = Packet::parse(&v6).unwrap();
    assert_eq!(it.source, IpAddr::from(Ipv6Addr::from_bits(1)));
    assert_eq!(it.destination, IpAddr::from(Ipv6Addr::from_bits(2)));
}

#[test]
fn parse__lengths_that_are_not_true() {
    for len in 0..VNET_HEADER_LEN + 20 {
        assert!(Packet::parse(&tcp(100, &[])[..len]).is_err(), "{len}");
    }
    let mut longer = tcp(100, &[]);
    longer.push(0);
    assert_eq!(Packet::parse(&longer), Err(Bad::Length));
    assert_eq!(Packet::parse(&longer[..90]), Err(Bad::Length));
    let mut header = tcp(0, &[]);
    header[VNET_HEADER_LEN] = 0x44;
    assert_eq!(Packet::parse(&header), Err(Bad::Short));
    header[VNET_HEADER_LEN] = 0x75;
    assert_eq!(Packet::parse(&header), Err(Bad::Version));
}

#[test]
fn parse__offload_that_does_not_fit() {
    assert!(offloaded(|_| {}).is_ok());
    assert!(offloaded(|it| it[1] |= GSO_ECN).is_ok());
    let wrong: [(usize, u8); 9] = [
        (0, 0),        // no checksum to make
        (0, 0x81),     // a flag that nobody knows
        (1, GSO_TCP6), // of the other family
        (1, GSO_UDP),  // of another protocol
        (1, GSO_NONE), // a segment without cutting
        (1, 3),        // UFO
        (3, 0xff),     // headers longer than the packet
        (7, 0xff),     // a checksum beyond it
        (9, 0xff),
    ];
    for (at, byte) in wrong {
        assert_eq!(
            offloaded(|it| it[at] = byte),
            Err(Bad::Offload),
            "{at} {byte}"
        );
    }
    let segments = offloaded(|it| it[4..6].copy_from_slice(&[0, 0]));
    assert_eq!(segments, Err(Bad::Offload), "segments of no bytes");
    let fragment = offloaded(|it| it[VNET_HEADER_LEN + 7] = 9);
    assert_eq!(fragment, Err(Bad::Offload));
}

/// An uncut UDP packet of 5,000 bytes of payload.
fn uncut_udp(change: impl FnOnce(&mut [u8])) -> Result<Packet, Bad> {
    offloaded(|it| {
        it[..VNET_HEADER_LEN].copy_from_slice(&[1, GSO_UDP, 28, 0, 0xb4, 5, 20, 0, 6, 0]);
        it[VNET_HEADER_LEN + 9] = UDP;
        change(it);
    })
}

#[test]
fn parse__udp_offload_that_does_not_fit() {
    assert!(uncut_udp(|_| {}).is_ok());
    let wrong: [(usize, u8); 10] = [
        (0, 0),        // no checksum to make
        (1, GSO_TCP4), // of another protocol
        (1, 3),        // UFO, which no kernel takes any more
        (1, GSO_UDP | GSO_ECN),
        (3, 0xff), // headers longer than the packet
        (6, 24),   // the checksum of something else
        (8, 16),
        (9, 1),
        (VNET_HEADER_LEN + 9, 1), // ICMP
        (VNET_HEADER_LEN + 7, 9), // a later fragment
    ];
    for (at, byte) in wrong {
        let refused = uncut_udp(|it| it[at] = byte);
        assert_eq!(refused, Err(Bad::Offload), "{at} {byte}");
    }
    for segment in [0, MIN_SEGMENT - 1] {
        let tiny = uncut_udp(|it| it[4..6].copy_from_slice(&segment.to_le_bytes()));
        assert_eq!(tiny, Err(Bad::Offload), "{segment}");
    }
}

#[test]
fn parse__an_uncut_segment_whose_header_is_not_true() {
    // Shorter than TCP's, and longer than the packet.
    for words in [0, 4] {
        let refused = offloaded(|it| it[VNET_HEADER_LEN + 20 + 12] = words << 4);
        assert_eq!(refused, Err(Bad::Offload), "{words}");
    }
    let mut short = tcp(10, &[]);
    short[..VNET_HEADER_LEN].copy_from_slice(&[1, GSO_TCP4, 40, 0, 0xb4, 5, 20, 0, 16, 0]);
    short[VNET_HEADER_LEN + 20 + 12] = 15 << 4;
    assert_eq!(Packet::parse(&short), Err(Bad::Offload));
}

#[test]
fn is_taken__by_what_the_kernel_has() {
    for (kind, taken) in [
        (GSO_NONE, [true, true, true]),
        (GSO_TCP4, [false, true, true]),
        (GSO_TCP6 | GSO_ECN, [false, true, true]),
        (GSO_UDP, [false, false, true]),
    ] {
        let frame = [1, kind, 0, 0];
        let all = [TunOffload::None, TunOffload::Tcp, TunOffload::TcpAndUdp];
        assert_eq!(all.map(|it| is_taken(&frame, it)), taken, "{kind}");
    }
}

#[test]
fn dscp__of_both_families() {
    let mut v4 = tcp(0, &[]);
    v4[VNET_HEADER_LEN + 1] = 46 << 2 | 3;
    assert_eq!(dscp(&v4), 46);
    let mut v6 = vec![0; VNET_HEADER_LEN + 40];
    // Traffic class 46 << 2 | 3.
    v6[VNET_HEADER_LEN..VNET_HEADER_LEN + 2].copy_from_slice(&[0x6b, 0xb7]);
    assert_eq!(dscp(&v6), 46);
    assert_eq!(dscp(&v6[..VNET_HEADER_LEN + 1]), 0);
}

fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|it| u32::from(it[0]) << 8 | u32::from(*it.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn clamp__a_syn_and_its_checksum() {
    for options in [&[2, 4, 5, 180, 1, 1, 1, 0][..], &[1, 2, 4, 5, 180, 0, 0, 0]] {
        let mut it = tcp(0, options);
        it[VNET_HEADER_LEN + 20 + 13] = 2;
        let at = VNET_HEADER_LEN + 20;
        let right = sum(&it[at..]);
        it[at + 16..at + 18].copy_from_slice(&right.to_be_bytes());
        let packet = Packet::parse(&it).unwrap();
        let before = it.clone();
        clamp_segments(&mut it, &packet, 1500);
        assert_eq!(it, before, "1460 fits");
        clamp_segments(&mut it, &packet, 1420);
        assert_ne!(it, before);
        assert_eq!(sum(&it[at..]), 0, "the checksum is right");
        let told = it.windows(4).any(|it| it == [2, 4, 5, 100]);
        assert!(told, "1380");
    }
}

#[test]
fn clamp__nothing_else() {
    let mut it = tcp(10, &[2, 4, 5, 180]);
    let packet = Packet::parse(&it).unwrap();
    let before = it.clone();
    clamp_segments(&mut it, &packet, 500);
    assert_eq!(it, before, "no SYN");
    for end in [
        VNET_HEADER_LEN,
        VNET_HEADER_LEN + 25,
        VNET_HEADER_LEN + 41,
        VNET_HEADER_LEN + 42,
    ] {
        clamp_segments(&mut it[..end], &packet, 500);
    }
}

#[test]
fn mark__those_that_are_capable() {
    for (tos, marked) in [
        (0, None),
        (0xb9, Some(0xbb)),
        (0xba, Some(0xbb)),
        (3, Some(3)),
    ] {
        let mut it = tcp(10, &[]);
        it[VNET_HEADER_LEN + 1] = tos;
        let right = sum(&it[VNET_HEADER_LEN..VNET_HEADER_LEN + 20]);
        it[VNET_HEADER_LEN + 10..VNET_HEADER_LEN + 12].copy_from_slice(&right.to_be_bytes());
        let before = it.clone();
        assert_eq!(mark(&mut it), marked.is_some());
        assert_eq!(it[VNET_HEADER_LEN + 1], marked.unwrap_or(tos));
        assert_eq!(
            sum(&it[VNET_HEADER_LEN..VNET_HEADER_LEN + 20]),
            0,
            "the checksum is right"
        );
        assert_eq!(before[VNET_HEADER_LEN + 12..], it[VNET_HEADER_LEN + 12..]);
    }
    let mut v6 = vec![0; VNET_HEADER_LEN + 40];
    v6[VNET_HEADER_LEN..VNET_HEADER_LEN + 2].copy_from_slice(&[0x6b, 0x95]);
    assert!(mark(&mut v6));
    assert_eq!(v6[VNET_HEADER_LEN..VNET_HEADER_LEN + 2], [0x6b, 0xb5]);
    v6[VNET_HEADER_LEN + 1] = 0x85;
    assert!(!mark(&mut v6));
    for len in 0..VNET_HEADER_LEN + 20 {
        assert!(!mark(&mut v6[..len]));
    }
}
