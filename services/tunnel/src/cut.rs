//! Cuts a packet that the kernel left uncut when the path is slow or loses packets.

use crate::packet::{GSO_NONE, Packet, TCP, VNET_HEADER_LEN, checksum_at, fold};
use std::net::IpAddr;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Cuts `frame` into packets that are at most `longest` bytes long, or have one segment. `None`: it stays as it is.
///
/// The last keeps FIN and PSH (RFC 9293), the first CWR (RFC 3168). The receiver's kernel makes the checksums, as it would
/// have for the whole.
pub(crate) fn cut(frame: &[u8], longest: usize) -> Option<Vec<Vec<u8>>> {
    if frame.len() <= longest || *frame.get(1)? == GSO_NONE {
        return None;
    }
    let it = Packet::parse(frame).ok()?;
    let header = VNET_HEADER_LEN + it.payload(&frame[VNET_HEADER_LEN..])?;
    let sum = checksum_at(it.protocol);
    let segment = usize::from(u16::from_le_bytes([frame[4], frame[5]]));
    let (headers, payload) = frame.split_at_checked(header)?;
    let segments = (longest.saturating_sub(header) / segment).max(1);
    let step = segments * segment;
    if payload.len() <= step {
        return None;
    }
    let pieces = (0..).step_by(step).zip(payload.chunks(step));
    let pieces = pieces.map(|(before, part)| {
        let mut piece = [headers, part].concat();
        piece[2..4].copy_from_slice(&((header - VNET_HEADER_LEN) as u16).to_le_bytes());
        if part.len() <= segment {
            (piece[1], piece[4], piece[5]) = (GSO_NONE, 0, 0);
        }
        let packet = &mut piece[VNET_HEADER_LEN..];
        set_length(&it, packet, (before / segment) as u16);
        let ends = before + part.len() == payload.len();
        set_transport(&it, &mut packet[it.transport..], before as u32, ends, sum);
        piece
    });
    Some(pieces.collect())
}

/// Gives the IP header of `packet`, whose first segment is number `index` of the whole, its length.
fn set_length(it: &Packet, packet: &mut [u8], index: u16) {
    if it.source.is_ipv6() {
        let length = (packet.len() - it.transport) as u16;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        return;
    }
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    let id = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(index);
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[10..12].fill(0);
    let sum = !fold(words(&packet[..it.transport]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Gives the transport's header in `bytes`, which reach to the end of the packet, what belongs to a part that begins
/// at byte `before`. Its checksum is at `sum`: until the kernel makes it, that of the pseudo header.
fn set_transport(it: &Packet, bytes: &mut [u8], before: u32, ends: bool, sum: usize) {
    let length = bytes.len() as u32;
    if it.protocol == TCP {
        let sequence = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        bytes[4..8].copy_from_slice(&sequence.wrapping_add(before).to_be_bytes());
        if before > 0 {
            bytes[13] &= !CWR;
        }
        if !ends {
            bytes[13] &= !(FIN | PSH);
        }
    } else {
        bytes[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    }
    let addresses = match (it.source, it.destination) {
        (IpAddr::V4(a), IpAddr::V4(b)) => words(&a.octets()) + words(&b.octets()),
        (IpAddr::V6(a), IpAddr::V6(b)) => words(&a.octets()) + words(&b.octets()),
        _ => 0,
    };
    let pseudo = fold(addresses + u32::from(it.protocol) + length);
    bytes[sum..sum + 2].copy_from_slice(&pseudo.to_be_bytes());
}

/// The sum of the 16-bit words of `bytes`, whose number is even.
fn words(bytes: &[u8]) -> u32 {
    let words = bytes.as_chunks::<2>().0.iter();
    words.map(|it| u32::from(u16::from_be_bytes(*it))).sum()
}

#[cfg(test)]
#[path = "cut_tests.rs"]
mod tests;
