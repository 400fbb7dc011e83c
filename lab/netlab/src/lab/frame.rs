//! Parses the fields of an Ethernet frame that the network needs.

use super::vnet::Checksum;
use crate::netns::hardware_address;

/// Destination, source and type.
pub(super) const ETHERNET_HEADER_BYTES: usize = 14;

pub(super) const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
pub(super) const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// Both bits of the ECN field: congestion experienced (RFC 3168).
const ECN_CE: u8 = 0b11;

/// A frame as on a wire, but for a checksum that may be open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) checksum: Option<Checksum>,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// The interface at this port.
    Port(usize),
    /// Every interface of the network but its sender's: broadcast, multicast, and addresses that are
    /// not the hosts' own, as with a switch that has not learnt them.
    Others,
}

/// Where a frame goes among `ports` interfaces.
pub(super) fn destination(frame: &[u8], ports: usize) -> Destination {
    match frame.first_chunk::<6>() {
        Some(&[a, b, c, d, e, number])
            if [a, b, c, d, e, number] == hardware_address(number)
                && (1..=ports).contains(&usize::from(number)) =>
        {
            Destination::Port(usize::from(number) - 1)
        }
        _ => Destination::Others,
    }
}

/// Bytes that the frame counts for: those of its packet.
pub(super) fn size_bytes(frame: &[u8]) -> usize {
    frame.len().saturating_sub(ETHERNET_HEADER_BYTES)
}

/// Writes *congestion experienced* into a packet whose sender understands it
/// (ECN-capable, RFC 3168); leaves every other frame alone.
pub(super) fn mark(frame: &mut [u8]) {
    let Some((header, packet)) = frame.split_at_mut_checked(ETHERNET_HEADER_BYTES) else {
        return;
    };
    match [header[12], header[13]] {
        TYPE_IPV4 => mark_ipv4(packet),
        TYPE_IPV6 => mark_ipv6(packet),
        _ => {}
    }
}

fn mark_ipv4(packet: &mut [u8]) {
    let Some(header) = packet.first_chunk_mut::<20>() else {
        return;
    };
    let old = u16::from_be_bytes([header[0], header[1]]);
    if header[1] & ECN_CE == 0 {
        return;
    }
    header[1] |= ECN_CE;
    let new = u16::from_be_bytes([header[0], header[1]]);
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    header[10..12].copy_from_slice(&amend(checksum, old, new).to_be_bytes());
}

/// The checksum when a word of what it is of changes.
pub(super) fn amend(checksum: u16, old: u16, new: u16) -> u16 {
    // RFC 1624: HC' = ~(~HC + ~m + m').
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

fn mark_ipv6(packet: &mut [u8]) {
    /// Where the field is within the second byte.
    const SHIFT: u32 = 4;
    if let Some(byte) = packet.get_mut(1)
        && *byte & (ECN_CE << SHIFT) != 0
    {
        *byte |= ECN_CE << SHIFT;
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]

    use super::*;
    use crate::checksum::sum;

    fn frame_to(address: [u8; 6]) -> Vec<u8> {
        let mut frame = address.to_vec();
        frame.resize(60, 0);
        frame
    }

    /// An IPv4 packet in a frame, with a right checksum.
    fn ipv4(tos: u8) -> Vec<u8> {
        let mut frame = frame_to(hardware_address(1));
        frame[12..14].copy_from_slice(&TYPE_IPV4);
        let header = [
            0x45, tos, 0, 46, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2,
        ];
        frame[14..34].copy_from_slice(&header);
        let checksum = !sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    #[test]
    fn destination__hosts_have_their_address() {
        for number in 1..=3 {
            let frame = frame_to(hardware_address(number));
            let host = usize::from(number) - 1;
            assert_eq!(destination(&frame, 3), Destination::Port(host));
        }
    }

    #[test]
    fn destination__everybody_elses_goes_everywhere() {
        for address in [
            [0xff; 6],
            hardware_address(0),
            hardware_address(4),
            [0x33, 0x33, 0, 0, 0, 1],
        ] {
            assert_eq!(destination(&frame_to(address), 3), Destination::Others);
        }
        assert_eq!(destination(&[], 3), Destination::Others);
    }

    #[test]
    fn mark__ipv4_keeps_a_right_checksum() {
        for tos in [0b01, 0b10, 0b11, 0xb8 | 0b10] {
            let mut frame = ipv4(tos);
            mark(&mut frame);
            assert_eq!(frame[15], tos | 0b11);
            assert_eq!(sum(&frame[14..34]), 0xffff, "{tos:#x}");
        }
    }

    #[test]
    fn mark__leaves_packets_without_ecn_alone() {
        let mut arp = frame_to([0xff; 6]);
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        arp[15] = 0b10;
        for mut frame in [ipv4(0), ipv4(0xb8), arp, vec![0; 14], vec![], vec![1; 3]] {
            let before = frame.clone();
            mark(&mut frame);
            assert_eq!(frame, before);
        }
    }

    #[test]
    fn mark__ipv6_sets_both_bits() {
        for (before, after) in [(0x00, 0x00), (0x10, 0x30), (0x2f, 0x3f), (0xc0, 0xc0)] {
            let mut frame = frame_to(hardware_address(1));
            frame[12..14].copy_from_slice(&TYPE_IPV6);
            frame[15] = before;
            mark(&mut frame);
            assert_eq!(frame[15], after);
        }
    }
}
