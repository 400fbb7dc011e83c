//! Checks packets and their virtio headers: those of the peer before they are written into the host's kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use zerolane::tun::{TunDevice, TunOffload};

/// Bytes of the header in front of each packet.
pub const VNET_HEADER_LEN: usize = TunDevice::VNET_HEADER_LEN;

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
/// The kind of a packet that is cut already.
pub(crate) const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`, of Linux 6.2: datagrams of one length, of which the last may be shorter.
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The number of TCP among the protocols of IP.
pub(crate) const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_HEADER_LEN: usize = 20;
const UDP_HEADER_LEN: usize = 8;
/// Fewest payload bytes of a cut packet: fewer would make thousands of one.
const MIN_SEGMENT: u16 = 48;

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// Shorter than its headers.
    #[error("shorter than its headers")]
    Short,
    /// Neither IPv4 nor IPv6.
    #[error("neither IPv4 nor IPv6")]
    Version,
    /// Its header gives another length than it has.
    #[error("its header gives another length")]
    Length,
    /// The virtio header does not fit the packet.
    #[error("its virtio header does not fit it")]
    Offload,
}

/// What the engine must know of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Sender.
    pub source: IpAddr,
    /// Receiver.
    pub destination: IpAddr,
    /// The protocol in it, if no extension header hides it.
    pub(crate) protocol: u8,
    /// Where that begins.
    pub(crate) transport: usize,
    /// It is a fragment other than the first.
    later_fragment: bool,
}

impl Packet {
    /// Parses `frame`, a virtio header and a packet.
    ///
    /// # Errors
    /// See [`Bad`].
    pub fn parse(frame: &[u8]) -> Result<Packet, Bad> {
        let (header, packet) = frame
            .split_first_chunk::<VNET_HEADER_LEN>()
            .ok_or(Bad::Short)?;
        let it = Packet::of(packet)?;
        it.check_offload(header, packet)?;
        Ok(it)
    }

    fn of(packet: &[u8]) -> Result<Packet, Bad> {
        match packet.first().ok_or(Bad::Short)? >> 4 {
            4 => Packet::of_v4(packet),
            6 => Packet::of_v6(packet),
            _ => Err(Bad::Version),
        }
    }

    fn of_v4(packet: &[u8]) -> Result<Packet, Bad> {
        let header = packet.first_chunk::<20>().ok_or(Bad::Short)?;
        let transport = usize::from(header[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if transport < 20 || transport > packet.len() {
            return Err(Bad::Short);
        }
        if total != packet.len() {
            return Err(Bad::Length);
        }
        let [.., a, b, c, d, e, f, g, h] = *header;
        Ok(Packet {
            source: Ipv4Addr::new(a, b, c, d).into(),
            destination: Ipv4Addr::new(e, f, g, h).into(),
            protocol: header[9],
            transport,
            later_fragment: u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0,
        })
    }

    fn of_v6(packet: &[u8]) -> Result<Packet, Bad> {
        let header = packet.first_chunk::<40>().ok_or(Bad::Short)?;
        let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if payload + 40 != packet.len() {
            return Err(Bad::Length);
        }
        let address = |at: usize| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&header[at..at + 16]);
            IpAddr::from(Ipv6Addr::from(bytes))
        };
        Ok(Packet {
            source: address(8),
            destination: address(24),
            protocol: header[6],
            transport: 40,
            later_fragment: false,
        })
    }

    fn check_offload(&self, header: &[u8; VNET_HEADER_LEN], packet: &[u8]) -> Result<(), Bad> {
        let field = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let (flags, kind) = (header[0], header[1]);
        let (header_len, segment) = (usize::from(field(2)), field(4));
        let (start, offset) = (usize::from(field(6)), usize::from(field(8)));
        let sums = flags & NEEDS_CHECKSUM != 0;
        if flags & !(NEEDS_CHECKSUM | DATA_VALID) != 0 {
            return Err(Bad::Offload);
        }
        if sums && (start < self.transport || start + offset + 2 > packet.len()) {
            return Err(Bad::Offload);
        }
        let fits = match kind & !GSO_ECN {
            GSO_NONE => {
                return if segment == 0 && kind == GSO_NONE {
                    Ok(())
                } else {
                    Err(Bad::Offload)
                };
            }
            GSO_TCP4 => self.source.is_ipv4() && self.protocol == TCP,
            GSO_TCP6 => self.source.is_ipv6() && self.protocol == TCP,
            GSO_UDP => self.protocol == UDP && kind == GSO_UDP,
            _ => false,
        };
        // The kernel refuses another checksum than the transport's.
        let whole = fits
            && sums
            && !self.later_fragment
            && segment >= MIN_SEGMENT
            && (start, offset) == (self.transport, checksum_at(self.protocol))
            && self
                .payload(packet)
                .is_some_and(|at| at.max(header_len) <= packet.len());
        if whole { Ok(()) } else { Err(Bad::Offload) }
    }

    /// Where the payload of the transport begins in `packet`, if the transport's header is possible.
    pub(crate) fn payload(&self, packet: &[u8]) -> Option<usize> {
        let header = match self.protocol {
            TCP => usize::from(packet.get(self.transport + 12)? >> 4) * 4,
            _ => UDP_HEADER_LEN,
        };
        let possible = self.protocol != TCP || header >= TCP_HEADER_LEN;
        possible.then_some(self.transport + header)
    }
}

/// Where TCP or UDP have their checksum, from their beginning.
pub(crate) fn checksum_at(protocol: u8) -> usize {
    if protocol == TCP { 16 } else { 6 }
}

/// Whether a host takes `frame` as it is: what is uncut needs an offload of its kernel, or one that its user permits.
pub(crate) fn is_taken(frame: &[u8], offload: TunOffload) -> bool {
    match (frame.get(1).map(|kind| kind & !GSO_ECN), offload) {
        (None | Some(GSO_NONE), _) | (_, TunOffload::TcpAndUdp) => true,
        (Some(kind), TunOffload::Tcp) => kind != GSO_UDP,
        (Some(_), TunOffload::None) => false,
    }
}

/// Limits the segments that the ends of a new TCP connection send to what fits `mtu`: in a SYN that is forwarded. Ends
/// behind a router do not know the MTU in here, and the messages that tell them are often dropped.
pub fn clamp_segments(frame: &mut [u8], packet: &Packet, mtu: u32) {
    let Some((header, bytes)) = frame.split_first_chunk_mut::<VNET_HEADER_LEN>() else {
        return;
    };
    let tcp = packet.transport;
    let Some(fixed) = bytes.get(tcp..tcp + 20) else {
        return;
    };
    const SYN: u8 = 2;
    if packet.protocol != TCP || packet.later_fragment || fixed[13] & SYN == 0 {
        return;
    }
    let end = (tcp + usize::from(fixed[12] >> 4) * 4).min(bytes.len());
    let ip = if packet.source.is_ipv4() { 20 } else { 40 };
    let most = u16::try_from(mtu.saturating_sub(ip + 20)).unwrap_or(u16::MAX);
    let mut at = tcp + 20;
    while let Some(&[kind, len]) = bytes
        .get(at..(at + 2).min(end))
        .and_then(|it| it.first_chunk())
    {
        match (kind, len) {
            (0, _) => return,
            (1, _) => at += 1,
            (2, 4) if at + 4 <= end => {
                let told = u16::from_be_bytes([bytes[at + 2], bytes[at + 3]]);
                if told > most {
                    bytes[at + 2..at + 4].copy_from_slice(&most.to_be_bytes());
                    // Otherwise the sum is of the pseudo header alone.
                    if header[0] & NEEDS_CHECKSUM == 0 {
                        let aligned = (at - tcp).is_multiple_of(2);
                        adjust(&mut bytes[tcp + 16..tcp + 18], told, most, aligned);
                    }
                }
                return;
            }
            (_, 0 | 1) => return,
            (_, len) => at += usize::from(len),
        }
    }
}

/// Marks an ECN-capable packet as one that met congestion (CE, RFC 3168). False: it is not capable.
pub(crate) fn mark(frame: &mut [u8]) -> bool {
    let Some(packet) = frame.get_mut(VNET_HEADER_LEN..).filter(|it| it.len() >= 20) else {
        return false;
    };
    let before = u16::from_be_bytes([packet[0], packet[1]]);
    let is_v4 = packet[0] >> 4 == 4;
    let ecn = if is_v4 { 0b11 } else { 0b11 << 4 };
    if before & ecn == 0 {
        return false;
    }
    let after = before | ecn;
    packet[..2].copy_from_slice(&after.to_be_bytes());
    if is_v4 {
        adjust(&mut packet[10..12], before, after, true);
    }
    true
}

/// The DSCP of a packet (RFC 2474).
pub(crate) fn dscp(frame: &[u8]) -> u8 {
    let Some(&[first, second, ..]) = frame.get(VNET_HEADER_LEN..) else {
        return 0;
    };
    let class = match first >> 4 {
        4 => second,
        _ => first << 4 | second >> 4,
    };
    class >> 2
}

/// Updates a checksum after a word changed (RFC 1624), which lies at an even place or not.
fn adjust(sum: &mut [u8], before: u16, after: u16, aligned: bool) {
    let turn = |it: u16| if aligned { it } else { it.swap_bytes() };
    let old = u16::from_be_bytes([sum[0], sum[1]]);
    let new = fold(u32::from(!old) + u32::from(!turn(before)) + u32::from(turn(after)));
    sum.copy_from_slice(&(!new).to_be_bytes());
}

/// Adds the carries of a sum of 16-bit words (RFC 1071).
pub(crate) fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
