//! Cuts long frames into frames of wire size, and merges consecutive ones again.
//!
//! Hosts hand over up to 64 KiB at a time (TSO, and its like for UDP), because the kernel's cost is per frame and not per
//! byte. The network cuts these as a network card does, so that each frame is queued, delayed, marked and lost alone.
//! Consecutive frames that leave at the same moment go out together, as a receiving card (LRO, GRO) hands them up.

use super::frame::{self, ETHERNET_HEADER_BYTES, Frame};
use super::vnet::{Checksum, HEADER_BYTES, Segmentation, Vnet};

const IPV4_HEADER: usize = ETHERNET_HEADER_BYTES;
const IPV4_LENGTH: usize = IPV4_HEADER + 2;
const IPV4_ID: usize = IPV4_HEADER + 4;
const IPV4_FLAGS: usize = IPV4_HEADER + 6;
const IPV4_CHECKSUM: usize = IPV4_HEADER + 10;
const DO_NOT_FRAGMENT: u8 = 0x40;
const IPV6_LENGTH: usize = ETHERNET_HEADER_BYTES + 4;
const IPV6_HEADER_BYTES: usize = 40;

const UDP_HEADER_BYTES: usize = 8;
const UDP_LENGTH: usize = 4;
const UDP_CHECKSUM: u16 = 6;
const TCP_MIN_HEADER_BYTES: usize = 20;
const TCP_SEQUENCE: usize = 4;
const TCP_DATA_OFFSET: usize = 12;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: u16 = 16;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const CWR: u8 = 0x80;

/// Most frames put together, as the kernel's own for UDP, and bytes: what an IP packet can say.
const MOST_FRAMES: usize = 64;
const MOST_BYTES: usize = ETHERNET_HEADER_BYTES + 65_535;

/// Where the parts of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    is_ipv4: bool,
    is_tcp: bool,
    checksum: Checksum,
    transport: usize,
    payload: usize,
}

impl Layout {
    /// Of TCP or UDP whose checksum the kernel left open; `None` for all else.
    fn of(bytes: &[u8], checksum: Option<Checksum>) -> Option<Self> {
        let checksum = checksum?;
        let transport = usize::from(checksum.start);
        let is_tcp = match checksum.offset {
            TCP_CHECKSUM => true,
            UDP_CHECKSUM => false,
            _ => return None,
        };
        let is_ipv4 = match bytes.get(12..14)? {
            it if it == frame::TYPE_IPV4 => true,
            it if it == frame::TYPE_IPV6 => false,
            _ => return None,
        };
        let least = if is_ipv4 { 20 } else { IPV6_HEADER_BYTES };
        let header = match is_tcp {
            true => usize::from(bytes.get(transport + TCP_DATA_OFFSET)? >> 4) * 4,
            false => UDP_HEADER_BYTES,
        };
        let payload = transport + header;
        let fits = transport >= ETHERNET_HEADER_BYTES + least && payload <= bytes.len();
        let plausible = !is_tcp || header >= TCP_MIN_HEADER_BYTES;
        (fits && plausible).then_some(Self {
            is_ipv4,
            is_tcp,
            checksum,
            transport,
            payload,
        })
    }

    fn segmentation(&self) -> Segmentation {
        match (self.is_tcp, self.is_ipv4) {
            (false, _) => Segmentation::Udp,
            (true, true) => Segmentation::TcpIpv4,
            (true, false) => Segmentation::TcpIpv6,
        }
    }

    /// Makes the headers those of a frame of `now` bytes that had `before`.
    fn set_length(&self, headers: &mut [u8], before: usize, now: usize) {
        // Lengths are at most what 16 bits hold: checked where frames are put together.
        let ip = |total: usize| (total - ETHERNET_HEADER_BYTES) as u16;
        let transport = |total: usize| (total - self.transport) as u16;
        if self.is_ipv4 {
            set_ipv4_word(headers, IPV4_LENGTH, ip(now));
        } else {
            set_word(headers, IPV6_LENGTH, ip(now) - IPV6_HEADER_BYTES as u16);
        }
        if !self.is_tcp {
            set_word(headers, self.transport + UDP_LENGTH, transport(now));
        }
        // The sum of the pseudo header, which holds the length; not complemented yet.
        let at = self.transport + usize::from(self.checksum.offset);
        let sum = !frame::amend(!word(headers, at), transport(before), transport(now));
        set_word(headers, at, sum);
    }
}

/// Cuts `bytes`, of which the kernel said `vnet`, into the frames of a wire, in buffers from `spare` as far
/// as there are any.
pub(super) fn cut(
    vnet: &Vnet,
    bytes: &[u8],
    spare: &mut Vec<Vec<u8>>,
    mut each: impl FnMut(Frame),
) {
    let mut buffer = |parts: [&[u8]; 2]| {
        let mut buffer = spare.pop().unwrap_or_default();
        buffer.clear();
        parts.iter().for_each(|part| buffer.extend_from_slice(part));
        buffer
    };
    let size = usize::from(vnet.segment_bytes);
    let layout = Layout::of(bytes, vnet.checksum);
    let Some(layout) = layout.filter(|_| vnet.segmentation != Segmentation::None && size > 0)
    else {
        let bytes = buffer([bytes, &[]]);
        return each(Frame {
            bytes,
            checksum: vnet.checksum,
        });
    };
    let (headers, payload) = bytes.split_at(layout.payload);
    let last = payload.len().div_ceil(size).saturating_sub(1);
    for (index, part) in payload.chunks(size).enumerate() {
        let mut segment = buffer([headers, part]);
        let now = segment.len();
        layout.set_length(&mut segment, bytes.len(), now);
        if layout.is_ipv4 {
            let id = word(headers, IPV4_ID).wrapping_add(index as u16);
            set_ipv4_word(&mut segment, IPV4_ID, id);
        }
        if layout.is_tcp {
            let sequence = sequence(headers, &layout).wrapping_add((index * size) as u32);
            let at = layout.transport + TCP_SEQUENCE;
            segment[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
            let not_last = if index < last { FIN | PSH } else { 0 };
            let not_first = if index > 0 { CWR } else { 0 };
            segment[layout.transport + TCP_FLAGS] &= !(not_last | not_first);
        }
        each(Frame {
            bytes: segment,
            checksum: Some(layout.checksum),
        });
    }
}

/// Frames that go out as one: what the kernel is told, with the headers; and the payloads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Together<'a> {
    pub(super) head: Vec<u8>,
    pub(super) payloads: Vec<&'a [u8]>,
    pub(super) frames: usize,
}

/// Puts together what follows each other in `frames`.
pub(super) fn put_together<'a>(frames: &[&'a Frame]) -> Vec<Together<'a>> {
    let mut all = Vec::new();
    let mut rest = frames;
    while let Some((first, behind)) = rest.split_first() {
        let mut run = Run::of(first);
        let more = behind.iter().take_while(|it| run.take(it)).count();
        all.push(run.finish(&rest[..=more]));
        rest = &behind[more..];
    }
    all
}

/// Frames that follow each other.
struct Run<'a> {
    first: &'a Frame,
    layout: Option<Layout>,
    /// Payload of each frame but the last.
    segment_bytes: usize,
    frames: usize,
    bytes: usize,
    /// Nothing can follow the last one.
    is_closed: bool,
}

impl<'a> Run<'a> {
    fn of(first: &'a Frame) -> Self {
        let layout = Layout::of(&first.bytes, first.checksum);
        let mut run = Self {
            first,
            layout,
            segment_bytes: 0,
            frames: 1,
            bytes: first.bytes.len(),
            is_closed: true,
        };
        if let Some(layout) = layout {
            run.segment_bytes = first.bytes.len() - layout.payload;
            run.is_closed = run.segment_bytes == 0 || !run.may_go_on(first, &layout);
        }
        run
    }

    /// Whether the headers of `frame` leave room for another one behind it.
    fn may_go_on(&self, frame: &Frame, layout: &Layout) -> bool {
        // A router might cut packets that may be fragmented, which numbers tell apart.
        let whole = !layout.is_ipv4 || frame.bytes[IPV4_FLAGS] & DO_NOT_FRAGMENT != 0;
        whole && (!layout.is_tcp || frame.bytes[layout.transport + TCP_FLAGS] == ACK)
    }

    /// Takes `next` if it follows.
    fn take(&mut self, next: &Frame) -> bool {
        let Some(layout) = self.layout.filter(|_| !self.is_closed) else {
            return false;
        };
        let payload = next.bytes.len().saturating_sub(layout.payload);
        let fits = payload > 0
            && payload <= self.segment_bytes
            && self.frames < MOST_FRAMES
            && self.bytes + payload <= MOST_BYTES;
        if !fits || Layout::of(&next.bytes, next.checksum) != Some(layout) || !self.follows(next) {
            return false;
        }
        (self.frames, self.bytes) = (self.frames + 1, self.bytes + payload);
        self.is_closed = payload < self.segment_bytes || !self.may_go_on(next, &layout);
        true
    }

    /// Whether the headers of `next` are those of the first, but for what has to differ.
    fn follows(&self, next: &Frame) -> bool {
        let Some(layout) = self.layout else {
            return false;
        };
        // Length, number and checksum of IPv4; length of IPv6.
        let ip: &[(usize, usize)] = match layout.is_ipv4 {
            true => &[(IPV4_LENGTH, 4), (IPV4_CHECKSUM, 2)],
            false => &[(IPV6_LENGTH, 2)],
        };
        let at = |offset: usize| layout.transport + offset;
        let transport: &[(usize, usize)] = match layout.is_tcp {
            true => &[
                (at(TCP_SEQUENCE), 4),
                (at(TCP_FLAGS), 1),
                (at(TCP_CHECKSUM.into()), 2),
            ],
            false => &[(at(UDP_LENGTH), 4)],
        };
        let mut from = 0;
        let same = ip.iter().chain(transport).all(|&(start, bytes)| {
            let same = self.first.bytes[from..start] == next.bytes[from..start];
            from = start + bytes;
            same
        });
        let rest = from..layout.payload;
        same && self.first.bytes[rest.clone()] == next.bytes[rest]
            && self.is_in_sequence(next, &layout)
    }

    fn is_in_sequence(&self, next: &Frame, layout: &Layout) -> bool {
        if !layout.is_tcp {
            return true;
        }
        let sent = (self.frames * self.segment_bytes) as u32;
        let flags = next.bytes[layout.transport + TCP_FLAGS];
        let due = sequence(&self.first.bytes, layout).wrapping_add(sent);
        sequence(&next.bytes, layout) == due && flags & !(PSH | FIN) == ACK
    }

    fn finish(self, frames: &[&'a Frame]) -> Together<'a> {
        let Some(layout) = self.layout.filter(|_| frames.len() > 1) else {
            return Together {
                head: Vnet::whole(self.first.checksum).to_bytes().to_vec(),
                payloads: vec![&self.first.bytes],
                frames: 1,
            };
        };
        let vnet = Vnet {
            checksum: self.first.checksum,
            segmentation: layout.segmentation(),
            header_bytes: layout.payload as u16,
            segment_bytes: self.segment_bytes as u16,
        };
        let mut head = vnet.to_bytes().to_vec();
        head.extend_from_slice(&self.first.bytes[..layout.payload]);
        let headers = &mut head[HEADER_BYTES..];
        layout.set_length(headers, self.first.bytes.len(), self.bytes);
        if let (true, Some(last)) = (layout.is_tcp, frames.last()) {
            let at = layout.transport + TCP_FLAGS;
            headers[at] |= last.bytes[at];
        }
        Together {
            head,
            payloads: frames
                .iter()
                .map(|it| &it.bytes[layout.payload..])
                .collect(),
            frames: frames.len(),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn set_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Sets a word of an IPv4 header, and keeps its checksum right.
fn set_ipv4_word(bytes: &mut [u8], at: usize, value: u16) {
    let checksum = frame::amend(word(bytes, IPV4_CHECKSUM), word(bytes, at), value);
    set_word(bytes, at, value);
    set_word(bytes, IPV4_CHECKSUM, checksum);
}

fn sequence(bytes: &[u8], layout: &Layout) -> u32 {
    let at = layout.transport + TCP_SEQUENCE;
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
#[path = "segments_tests.rs"]
mod tests;
