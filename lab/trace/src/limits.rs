//! Defines every limit and constant of the replay: name, unit, reason.

use std::time::Duration;

/// Bytes of the buffer that a capture is read through.
pub(crate) const READ_BUFFER_BYTES: usize = 128 << 10;

/// Longest packet or block of a capture, bytes: the buffer grows up to this, whatever a length field says.
pub(crate) const MAX_BLOCK_BYTES: usize = 16 << 20;

/// Shortest block of pcapng, bytes: its type, and its length at both ends.
pub(crate) const MIN_BLOCK_BYTES: u32 = 12;

/// Interfaces of one section of pcapng that are remembered. What came by others is counted as unread.
pub(crate) const MAX_INTERFACES: usize = 4096;

/// Most flows followed at a time. With more, those silent for longest are folded together. Each takes at most 8 KiB, or
/// four times that if it is full of holes.
pub const MAX_FLOWS: usize = 16_384;

/// Fragmented datagrams followed at a time. Of one that is forgotten, what comes later counts as a flow without ports.
pub(crate) const MAX_FRAGMENTED: usize = 1024;

/// Longest packet that is believed, bytes: what offloads merge is shorter.
pub(crate) const MAX_PACKET_BYTES: usize = 1 << 20;

/// Missing ranges remembered of a stream, to tell what is late from what is sent again.
pub(crate) const MAX_GAPS: usize = 8;

/// Packets of its stream that a late one may be behind and still count as reordered. From three on a TCP sends it
/// again (RFC 5681, 3.2), so that it counts as lost.
pub(crate) const REORDERING_PACKETS: u64 = 3;

/// Furthest that a stream goes on in one step, bytes. What is further is another stream of the same addresses.
pub(crate) const MAX_STEP_BYTES: u64 = 1 << 30;

/// Bytes behind the IP header from which on a packet is "large (data)" as in the paper's Table 2; less is "small (control)".
/// The paper gives no boundary; a page and TCP's header, in three fragments of Ethernet, leave 1156 for the last.
pub const LARGE_BYTES: u32 = 1024;

/// Bytes of a page, the unit of the paper's speculation (its 3.2.2).
pub const PAGE_BYTES: u32 = 4096;

/// Segments that the kernel merges at most (UDP_GRO_CNT_MAX).
pub(crate) const GRO_SEGMENTS: usize = 64;

/// Payload of a super-packet, bytes, at most.
pub(crate) const GRO_BYTES: u32 = 65_507;

/// Packets of a host that the kernel takes in one poll at most; what is merged is handed on at the end of it (NAPI's weight).
pub(crate) const POLL_PACKETS: u64 = 64;

/// Silence between two packets of a flow that ends a poll, unless told otherwise: what cards wait for more before they
/// interrupt, and four packets of 1500 bytes at 1 Gb/s.
pub const POLL_PAUSE: Duration = Duration::from_micros(50);

/// Bytes of a Block of the predictor: as long as possible, so that packets lie across the end of one of them hardly ever.
pub(crate) const BLOCK_BYTES: u32 = 1 << 30;

/// Position of the first byte of a stream that is seen: what was sent before it has a place, too.
pub(crate) const ORIGIN: u64 = 1 << 32;

/// Bytes behind the IP header that a frame has at most, jumbo frames included. What is longer was merged by the host that
/// recorded it, or is on loopback.
pub(crate) const MAX_FRAME_BYTES: u32 = 9_216;
