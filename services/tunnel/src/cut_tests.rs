//! Tests that the pieces of a packet are what the kernel would have made of it.
#![allow(non_snake_case)]
use super::*;

/// An uncut TCP packet of `len` bytes of payload, in segments of `segment`, with all flags that move.
fn uncut(v6: bool, len: usize, segment: u16) -> Vec<u8> {
    let ip = if v6 { 40 } else { 20 };
    let mut it = vec![1, if v6 { 4 } else { 1 }, ip + 32, 0, 0, 0, ip, 0, 16, 0];
    it[4..6].copy_from_slice(&segment.to_le_bytes());
    let total = usize::from(ip) + 32 + len;
    if v6 {
        it.extend([0x60, 0, 0, 0]);
        it.extend(((total - 40) as u16).to_be_bytes());
        it.extend([6, 64]);
        it.extend([0xfd; 16]);
        it.extend([0xfe; 16]);
    } else {
        it.extend([0x45, 0]);
        it.extend((total as u16).to_be_bytes());
        it.extend([0xff, 0xfe, 0x40, 0, 64, 6, 0, 0]);
        it.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    }
    it.extend([1, 2, 3, 4, 0xff, 0xff, 0xff, 0, 0, 0, 0, 9]);
    it.extend([0x80, FIN | PSH | CWR | 0x10, 1, 1, 0, 0, 0, 0]);
    it.extend([1; 12]);
    it.extend((0..len).map(|at| (at / 7) as u8));
    it
}

/// The checksum of what follows the pseudo header, once the kernel has made it of `packet`.
fn transport_sum(packet: &[u8], ip: usize) -> u16 {
    let mut bytes = packet[ip..].to_vec();
    let rest = fold(words(&bytes));
    bytes[16..18].copy_from_slice(&(!rest).to_be_bytes());
    let addresses = if ip == 20 { 12..20 } else { 8..40 };
    let pseudo = words(&packet[addresses]) + 6 + bytes.len() as u32;
    fold(pseudo + words(&bytes))
}

#[test]
fn cut__is_what_the_kernel_would_have_made() {
    for v6 in [false, true] {
        let ip = if v6 { 40 } else { 20 };
        let whole = uncut(v6, 10_000, 1000);
        for (longest, most) in [(0, 1), (1000, 1), (2100, 2), (4000, 3), (9000, 8)] {
            let pieces = cut(&whole, longest).expect("it is longer");
            assert_eq!(pieces.len(), 10_usize.div_ceil(most), "{longest}");
            let mut payload = vec![];
            for (index, piece) in pieces.iter().enumerate() {
                Packet::parse(piece).expect("the receiver takes it");
                let packet = &piece[VNET_HEADER_LEN..];
                let sequence = u32::from_be_bytes(packet[ip + 4..ip + 8].try_into().unwrap());
                assert_eq!(sequence, 0xffff_ff00_u32.wrapping_add(payload.len() as u32));
                if !v6 {
                    assert_eq!(fold(words(&packet[..20])), 0xffff, "the header's checksum");
                    let id = u16::from_be_bytes([packet[4], packet[5]]);
                    assert_eq!(id, 0xfffe_u16.wrapping_add((index * most) as u16));
                }
                assert_eq!(transport_sum(packet, ip), 0xffff);
                let (first, last) = (index == 0, index == pieces.len() - 1);
                assert_eq!(packet[ip + 13] & CWR != 0, first);
                assert_eq!(packet[ip + 13] & FIN != 0, last);
                assert_eq!(packet[ip + 13] & PSH != 0, last);
                assert_eq!(piece[1] == GSO_NONE, packet.len() <= ip + 32 + 1000);
                payload.extend_from_slice(&packet[ip + 32..]);
            }
            assert_eq!(payload, whole[VNET_HEADER_LEN + ip + 32..]);
        }
    }
}

#[test]
fn cut__udp_tells_the_length_of_each() {
    let mut whole = vec![1, 5, 28, 0, 0xe8, 3, 20, 0, 6, 0, 0x45, 0];
    whole.extend((28 + 2500_u16).to_be_bytes());
    whole.extend([
        0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 2, 0, 0, 0, 0,
    ]);
    whole.resize(whole.len() + 2500, 5);
    let pieces = cut(&whole, 1500).expect("it is longer");
    let lengths = pieces.iter().map(|it| {
        Packet::parse(it).expect("the receiver takes it");
        u16::from_be_bytes([it[VNET_HEADER_LEN + 24], it[VNET_HEADER_LEN + 25]])
    });
    assert_eq!(lengths.collect::<Vec<_>>(), [1008, 1008, 508]);
}

#[test]
fn cut__leaves_alone_what_fits_or_has_one_segment() {
    let whole = uncut(false, 3000, 1000);
    assert_eq!(cut(&whole, whole.len()), None);
    assert_eq!(cut(&uncut(false, 900, 1000), 100), None);
    let mut plain = uncut(false, 900, 0);
    plain[1] = GSO_NONE;
    assert_eq!(cut(&plain, 100), None);
    for len in 0..whole.len() {
        assert_eq!(cut(&whole[..len], 10), None, "{len}");
    }
}
