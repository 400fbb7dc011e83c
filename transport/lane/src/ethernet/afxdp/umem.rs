//! Divides the memory for frames into receive chunks and transmit frames.

use super::system;
use crate::ethernet::AROUND;
use crate::memory::Mapping;
use std::io;
use std::os::fd::BorrowedFd;

/// Room that the kernel reserves before a frame that it writes (XDP_PACKET_HEADROOM).
const HEADROOM: usize = 256;
/// Bytes of a chunk: the shorter ones if they hold a frame, because more of them fit in a cache. None is longer than a
/// page.
const CHUNKS: [usize; 2] = [2048, 4096];
/// Bytes that a frame may have besides its datagram.
const TAGGED: usize = AROUND + 4;
/// Most chunks of one received frame: the most pieces of one packet of the kernel.
const MAX_CHUNKS: usize = 17;
/// Receive chunks of each line, and entries of its ring, a power of two.
const RECEIVE_CHUNKS: u32 = 2048;
/// Most transmit frames of each line: those of several bursts.
const FRAMES: u32 = 256;
/// Fewest, for frames of many chunks: those of one burst.
const LEAST_FRAMES: u32 = 64;

/// How the memory is divided: receive chunks, and after them the transmit frames, line by line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes of a chunk.
    pub(super) chunk: u32,
    /// Chunks of the longest frame, which are contiguous in a transmit frame.
    pub(super) chunks: u32,
    pub(super) lines: u32,
    /// Transmit frames of each line.
    pub(super) frames: u32,
    /// Each receive chunk begins at the last [`HEADROOM`] bytes of the chunk before it, so that pieces that arrive one
    /// after the other are contiguous. Only if the kernel copies: into the room before a piece it writes nothing except
    /// the data of a program in the driver, and ours has none.
    joined: bool,
}

impl Layout {
    pub(super) fn of(mtu: usize, lines: u32) -> Layout {
        let fits = |chunk: &usize| mtu + TAGGED + HEADROOM <= *chunk;
        let chunk = CHUNKS.into_iter().find(fits);
        let chunks = match chunk {
            Some(_) => 1,
            None => (mtu + AROUND).div_ceil(CHUNKS[1]).min(MAX_CHUNKS) as u32,
        };
        Layout {
            chunk: chunk.unwrap_or(CHUNKS[1]) as u32,
            chunks,
            lines,
            frames: (FRAMES / chunks).max(LEAST_FRAMES),
            joined: false,
        }
    }

    /// The same layout with the pieces of a frame contiguous. `None`: a frame is one piece.
    pub(super) fn joined(self) -> Option<Layout> {
        let joined = true;
        (self.chunks > 1).then_some(Layout { joined, ..self })
    }

    /// Distance between the starts of two receive chunks.
    fn step(&self) -> u64 {
        match self.joined {
            true => u64::from(self.chunk) - HEADROOM as u64,
            false => u64::from(self.chunk),
        }
    }

    /// Number of receive chunks.
    fn receive_count(&self) -> u64 {
        u64::from(self.lines) * u64::from(RECEIVE_CHUNKS)
    }

    /// Bytes of the receive chunks, rounded to whole chunks.
    fn received(&self) -> u64 {
        let end = self.receive_count() * self.step() + (u64::from(self.chunk) - self.step());
        end.next_multiple_of(self.chunk.into())
    }

    fn frame_len(&self) -> u64 {
        u64::from(self.chunk) * u64::from(self.chunks)
    }

    /// Bytes of the whole memory.
    fn len(&self) -> u64 {
        self.received() + u64::from(self.lines) * u64::from(self.frames) * self.frame_len()
    }

    pub(super) fn receive_ring(&self) -> u32 {
        RECEIVE_CHUNKS
    }

    pub(super) fn transmit_ring(&self) -> u32 {
        (self.frames * self.chunks).next_power_of_two()
    }

    /// Entries for all receive chunks.
    pub(super) fn fill_ring(&self) -> u32 {
        (self.lines * RECEIVE_CHUNKS).next_power_of_two()
    }

    /// Entries for all transmit frames.
    pub(super) fn completion_ring(&self) -> u32 {
        (self.lines * self.frames * self.chunks).next_power_of_two()
    }

    pub(super) fn receive_chunks(&self) -> impl Iterator<Item = u64> {
        (0..self.receive_count()).map(|it| it * self.step())
    }

    /// The transmit frames of a line.
    pub(super) fn frames_of(&self, line: u32) -> impl Iterator<Item = u32> + use<> {
        line * self.frames..(line + 1) * self.frames
    }

    /// The start of a transmit frame.
    pub(super) fn address(&self, frame: u32) -> u64 {
        self.received() + u64::from(frame) * self.frame_len()
    }

    /// The transmit frame with a chunk at `address`.
    pub(super) fn frame_at(&self, address: u64) -> Option<u32> {
        let behind = address.checked_sub(self.received())?;
        let frame = u32::try_from(behind / self.frame_len()).ok()?;
        (frame < self.lines * self.frames).then_some(frame)
    }

    /// The start of the receive chunk in which `len` bytes lie at `address`. `None` if there is none.
    pub(super) fn chunk_of(&self, address: u64, len: u32) -> Option<u64> {
        // The room before the first piece belongs to no piece.
        let piece = address.checked_sub(u64::from(self.chunk) - self.step())?;
        let start = piece - piece % self.step();
        let end = address.checked_add(u64::from(len))?;
        let is_one = start / self.step() < self.receive_count();
        (is_one && end <= start + u64::from(self.chunk)).then_some(start)
    }

    /// The position of a received piece from the kernel's `address`: with overlapping chunks, the kernel encodes
    /// separately where the chunk begins and how far after that the bytes lie.
    pub(super) fn place_of(address: u64) -> u64 {
        const OFFSET: i32 = libc::XSK_UNALIGNED_BUF_OFFSET_SHIFT;
        let start = address & libc::XSK_UNALIGNED_BUF_ADDR_MASK;
        start + (address >> OFFSET)
    }

    /// Longest datagram that can be sent.
    pub(super) fn longest_sent(&self) -> usize {
        self.frame_len() as usize - AROUND
    }

    /// Longest datagram that can be received.
    pub(super) fn longest_received(&self) -> usize {
        (self.chunk as usize - HEADROOM) * self.chunks as usize - AROUND
    }

    /// Datagrams of the longest kind that a line's receive ring holds.
    pub(super) fn receives(&self) -> u32 {
        RECEIVE_CHUNKS / self.pieces()
    }

    /// Chunks of the longest frame that can be received.
    pub(super) fn pieces(&self) -> u32 {
        match self.chunks {
            1 => 1,
            _ => (self.frame_len() as usize).div_ceil(self.chunk as usize - HEADROOM) as u32,
        }
    }
}

/// The memory itself. The rings tell whether this end or the kernel holds a chunk or frame.
#[derive(Debug)]
pub(super) struct Umem {
    memory: Mapping,
    pub(super) layout: Layout,
}

impl Umem {
    pub(super) fn new(layout: Layout) -> io::Result<Umem> {
        let len = usize::try_from(layout.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // Allocated as a whole from the start.
        let memory = Mapping::new(len, libc::MAP_PRIVATE | libc::MAP_POPULATE, None)?;
        Ok(Umem { memory, layout })
    }

    /// Registers it with the kernel, by `socket`.
    pub(super) fn register(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let memory = libc::xdp_umem_reg {
            addr: self.memory.at(0).expose_provenance() as u64,
            len: self.memory.len() as u64,
            chunk_size: self.layout.chunk,
            headroom: 0,
            flags: match self.layout.joined {
                true => libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG,
                false => 0,
            },
            tx_metadata_len: 0,
        };
        system::set(socket, libc::XDP_UMEM_REG, &memory)
    }

    /// `len` bytes at `address`, which must lie in the memory.
    pub(super) fn at(&self, address: u64, len: usize) -> *mut u8 {
        debug_assert!(address as usize + len <= self.memory.len());
        self.memory.at(address as usize)
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn Layout__frames_lie_apart_and_are_found_by_any_of_their_chunks() {
        for mtu in [1280, 1500, 3000, 9000, 65_535] {
            let layout = Layout::of(mtu, 3);
            assert!(layout.longest_sent() >= mtu, "{mtu}");
            assert!(layout.receive_ring().is_power_of_two());
            let mut end = layout.received();
            for frame in (0..3).flat_map(|line| layout.frames_of(line)) {
                assert_eq!(layout.address(frame), end, "{mtu}: {frame}");
                end += layout.frame_len();
                for chunk in 0..layout.chunks {
                    let address = layout.address(frame) + u64::from(chunk * layout.chunk);
                    assert_eq!(layout.frame_at(address), Some(frame));
                }
            }
            assert_eq!(end, layout.len(), "{mtu}");
            assert_eq!(layout.frame_at(end), None);
            assert_eq!(layout.frame_at(0), None);
        }
    }

    /// As the kernel fills them: to the end, after the room in front.
    #[test]
    fn Layout__joined_pieces_lie_end_to_end() {
        let split = Layout::of(9000, 3);
        let joined = split.joined().expect("several pieces");
        assert!(Layout::of(1500, 3).joined().is_none());
        assert_eq!(joined.pieces(), split.pieces());
        let chunks: Vec<u64> = joined.receive_chunks().collect();
        assert_eq!(chunks.len(), split.receive_chunks().count());
        let len = joined.chunk - HEADROOM as u32;
        let mut end = HEADROOM as u64;
        for chunk in chunks {
            let told = chunk | (HEADROOM as u64) << 48;
            let place = Layout::place_of(told);
            assert_eq!(place, end);
            for (at, part) in [(0, len), (0, 1), (len - 1, 1)] {
                assert_eq!(joined.chunk_of(place + u64::from(at), part), Some(chunk));
            }
            assert_eq!(joined.chunk_of(place, len + 1), None, "into the next");
            end = place + u64::from(len);
        }
        assert!(end <= joined.received(), "in front of what is sent");
        assert_eq!(joined.chunk_of(end, 1), None, "behind the last");
        assert_eq!(joined.chunk_of(0, 1), None, "in front of the first");
        assert_eq!(joined.address(0) % u64::from(joined.chunk), 0);
        assert!(joined.len() < split.len());
    }

    #[test]
    fn Layout__a_received_piece_lies_in_one_chunk() {
        let layout = Layout::of(1500, 2);
        assert_eq!(layout.chunk, 2048);
        assert_eq!(layout.chunk_of(2048 + 256, 1514), Some(2048));
        assert_eq!(layout.chunk_of(2048 + 256, 1792), Some(2048));
        assert_eq!(layout.chunk_of(2048 + 256, 1793), None, "into the next");
        assert_eq!(layout.chunk_of(u64::MAX, 1), None);
        assert_eq!(
            layout.chunk_of(layout.received(), 1),
            None,
            "a transmit frame"
        );
    }
}
