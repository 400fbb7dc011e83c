//! Dissects a recorded packet: its flow, its length, and its position in the stream.

use crate::limits::MAX_PACKET_BYTES;
use crate::packet::{FlowKey, Fragment, Packet, Piece, Position, Unread};
use crate::record::Record;
use etherparse::{
    EtherType, IpAuthHeaderSlice, IpNumber, Ipv6FragmentHeaderSlice, Ipv6RawExtHeaderSlice,
    LaxIpv4Slice, LaxIpv6Slice, LaxNetSlice, LaxSlicedPacket, TcpSlice, ip_number,
};
use std::net::IpAddr;

/// The kinds of links that are read, by their LINKTYPE.
mod link {
    pub(super) const NULL: i32 = 0;
    pub(super) const ETHERNET: i32 = 1;
    pub(super) const LOOP: i32 = 108;
    pub(super) const SLL: i32 = 113;
    pub(super) const SLL2: i32 = 276;
    /// Raw IP by its number, and by those that some systems write.
    pub(super) const RAW: [i32; 5] = [101, 12, 14, 228, 229];
}

const TCP: u8 = IpNumber::TCP.0;
const UDP: u8 = IpNumber::UDP.0;
/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;
/// Bytes of the link's header of loopback: a family.
const NULL_HEADER: usize = 4;
/// Bytes of the header of Linux's cooked captures, and where the protocol stands in it.
const SLL_HEADER: (usize, usize) = (16, 14);
/// The same of their second version.
const SLL2_HEADER: (usize, usize) = (20, 0);

/// Takes a packet apart.
pub(crate) fn dissect(record: &Record<'_>) -> Result<Packet, Unread> {
    let data = record.data;
    let cooked = |(header, protocol): (usize, usize)| {
        let payload = data.get(header..).ok_or(Unread::Cut)?;
        let protocol = EtherType(u16::from_be_bytes([data[protocol], data[protocol + 1]]));
        Ok(LaxSlicedPacket::from_ether_type(protocol, payload))
    };
    let sliced = match record.link {
        link::ETHERNET => LaxSlicedPacket::from_ethernet(data).map_err(|_| Unread::Cut)?,
        link::SLL => cooked(SLL_HEADER)?,
        link::SLL2 => cooked(SLL2_HEADER)?,
        link::NULL | link::LOOP => raw(data.get(NULL_HEADER..).ok_or(Unread::Cut)?)?,
        it if link::RAW.contains(&it) => raw(data)?,
        other => return Err(Unread::Link(other)),
    };
    match &sliced.net {
        Some(LaxNetSlice::Ipv4(ip)) => of_ipv4(record, ip),
        Some(LaxNetSlice::Ipv6(ip)) => of_ipv6(record, ip),
        Some(LaxNetSlice::Arp(_)) => Err(Unread::NotIp),
        None => Err(why_no_ip(&sliced)),
    }
}

/// A packet that begins with its IP header.
fn raw(data: &[u8]) -> Result<LaxSlicedPacket<'_>, Unread> {
    match data.first().map(|it| it >> 4) {
        Some(4 | 6) => LaxSlicedPacket::from_ip(data).map_err(|error| match error {
            etherparse::err::ip::LaxHeaderSliceError::Len(_) => Unread::Cut,
            etherparse::err::ip::LaxHeaderSliceError::Content(_) => Unread::Malformed,
        }),
        Some(_) => Err(Unread::NotIp),
        None => Err(Unread::Cut),
    }
}

/// Why there is no IP header in a packet whose link's header could be read.
fn why_no_ip(sliced: &LaxSlicedPacket<'_>) -> Unread {
    use etherparse::err::packet::SliceError;
    match &sliced.stop_err {
        None => Unread::NotIp,
        Some((SliceError::Len(_), _)) => Unread::Cut,
        Some(_) => Unread::Malformed,
    }
}

/// What both versions of IP say of a packet.
struct Ip<'a> {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    /// Bytes of its header, extensions included.
    header: usize,
    /// Bytes of all of it; `None`: longer than its field can say, as what an offload merged.
    total: Option<usize>,
    /// The first byte of it.
    start: *const u8,
    /// What was recorded behind the header.
    payload: &'a [u8],
    fragment: Option<Fragment>,
}

fn of_ipv4(record: &Record<'_>, ip: &LaxIpv4Slice<'_>) -> Result<Packet, Unread> {
    let head = ip.header();
    let header = head.slice().len() + ip.extensions().auth.map_or(0, |it| it.slice().len());
    let total = usize::from(head.total_len());
    let offset = u32::from(head.fragments_offset().value()) * 8;
    let id = u32::from(head.identification());
    of_ip(
        record,
        &Ip {
            source: head.source_addr().into(),
            destination: head.destination_addr().into(),
            protocol: ip.payload().ip_number.0,
            header,
            total: (total > 0).then_some(total),
            start: head.slice().as_ptr(),
            payload: ip.payload().payload,
            fragment: fragment(id, offset, head.more_fragments()),
        },
    )
}

fn of_ipv6(record: &Record<'_>, ip: &LaxIpv6Slice<'_>) -> Result<Packet, Unread> {
    let head = ip.header();
    let extensions = ip.extensions().slice();
    let part = extension_of_fragment(head.next_header(), extensions)?;
    let above = usize::from(head.payload_length());
    of_ip(
        record,
        &Ip {
            source: head.source_addr().into(),
            destination: head.destination_addr().into(),
            protocol: ip.payload().ip_number.0,
            header: head.slice().len() + ip.extensions().slice().len(),
            total: (above > 0).then_some(head.slice().len() + above),
            start: head.slice().as_ptr(),
            payload: ip.payload().payload,
            fragment: part,
        },
    )
}

/// What the extension header of a fragment says, if there is one in `extensions`, the first of which is `number`.
///
/// The iterator of the library trusts that the last header names none that was cut off, and reads beyond the packet where it
/// does (etherparse 0.21): so each is taken with its checks.
fn extension_of_fragment(
    mut number: IpNumber,
    mut extensions: &[u8],
) -> Result<Option<Fragment>, Unread> {
    loop {
        let len = match number {
            ip_number::IPV6_FRAG => {
                let it = Ipv6FragmentHeaderSlice::from_slice(extensions);
                let it = it.map_err(|_| Unread::Cut)?;
                let offset = u32::from(it.fragment_offset().value()) * 8;
                return Ok(fragment(it.identification(), offset, it.more_fragments()));
            }
            ip_number::AUTH => {
                let it = IpAuthHeaderSlice::from_slice(extensions).map_err(|_| Unread::Cut)?;
                number = it.next_header();
                it.slice().len()
            }
            ip_number::IPV6_HOP_BY_HOP | ip_number::IPV6_ROUTE | ip_number::IPV6_DEST_OPTIONS => {
                let it = Ipv6RawExtHeaderSlice::from_slice(extensions);
                let it = it.map_err(|_| Unread::Cut)?;
                number = it.next_header();
                it.slice().len()
            }
            _ => return Ok(None),
        };
        extensions = &extensions[len..];
    }
}

fn fragment(id: u32, offset: u32, more: bool) -> Option<Fragment> {
    let piece = match (offset, more) {
        (0, false) => return None,
        (0, true) => Piece::First,
        (_, true) => Piece::Middle,
        (_, false) => Piece::Last,
    };
    Some(Fragment { id, offset, piece })
}

fn of_ip(record: &Record<'_>, ip: &Ip<'_>) -> Result<Packet, Unread> {
    let before = (ip.start as usize).wrapping_sub(record.data.as_ptr() as usize);
    let on_wire = (record.len as usize).max(record.data.len());
    let room = on_wire.checked_sub(before).ok_or(Unread::Malformed)?;
    // What is behind it in the frame is padding; what is said to be and is not there, was never sent.
    let total = ip.total.unwrap_or(room).min(room);
    let above_ip = total.checked_sub(ip.header).ok_or(Unread::Malformed)?;
    if total > MAX_PACKET_BYTES {
        return Err(Unread::Malformed);
    }
    let begins = ip.fragment.is_none_or(|it| it.piece == Piece::First);
    let transport = match begins {
        true => transport(ip.protocol, ip.payload)?,
        false => Transport::NONE,
    };
    let payload = above_ip
        .checked_sub(transport.header)
        .ok_or(Unread::Malformed)?;
    Ok(Packet {
        time: record.time,
        key: FlowKey {
            protocol: ip.protocol,
            source: ip.source,
            source_port: transport.ports.0,
            destination: ip.destination,
            destination_port: transport.ports.1,
        },
        len: on_wire as u32,
        above_ip: above_ip as u32,
        header: (ip.header + transport.header) as u32,
        transport: transport.header as u32,
        payload: payload as u32,
        position: transport.position,
        fragment: ip.fragment,
    })
}

/// What a transport's header says.
struct Transport {
    ports: (u16, u16),
    header: usize,
    position: Position,
}

impl Transport {
    const NONE: Transport = Transport {
        ports: (0, 0),
        header: 0,
        position: Position::Unnumbered,
    };
}

fn transport(protocol: u8, bytes: &[u8]) -> Result<Transport, Unread> {
    match protocol {
        TCP => {
            use etherparse::err::tcp::HeaderSliceError;
            let tcp = TcpSlice::from_slice(bytes).map_err(|error| match error {
                HeaderSliceError::Len(_) => Unread::Cut,
                HeaderSliceError::Content(_) => Unread::Malformed,
            })?;
            Ok(Transport {
                ports: (tcp.source_port(), tcp.destination_port()),
                header: tcp.header_slice().len(),
                position: Position::Sequence {
                    number: tcp.sequence_number().wrapping_add(u32::from(tcp.syn())),
                    begins: tcp.syn(),
                },
            })
        }
        UDP => {
            let header: &[u8; UDP_HEADER] = bytes.first_chunk().ok_or(Unread::Cut)?;
            Ok(Transport {
                ports: (
                    u16::from_be_bytes([header[0], header[1]]),
                    u16::from_be_bytes([header[2], header[3]]),
                ),
                header: UDP_HEADER,
                position: Position::Unnumbered,
            })
        }
        _ => Ok(Transport::NONE),
    }
}
