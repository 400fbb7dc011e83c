//! Makes captures for `trace` to read: pages of 4096 bytes in three fragments, as the paper's sender cuts them (P2, 3.2.2).
//!
//! Other packets come in between. Nothing is random. Frames are cut after their headers, as `tcpdump -s` does.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// A capture that is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capture {
    /// Its name in the report.
    pub(crate) name: &'static str,
    /// What it shows.
    pub(crate) what: &'static str,
    pattern: Pattern,
}

#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// One stream of pages, with so many small packets of another host spread over it.
    Interfered(u32),
    /// Two hosts' streams of pages, frame by frame in turn, or one stream after the other.
    Two { at_once: bool },
}

/// All of them: those of the paper's Table 1 at a tenth of its length, and what its Table 2 compares.
pub(crate) const ALL: &[Capture] = &[
    Capture {
        name: "interfered-0",
        what: "one stream, 0 packets between",
        pattern: Pattern::Interfered(0),
    },
    Capture {
        name: "interfered-10",
        what: "one stream, 10 packets between",
        pattern: Pattern::Interfered(10),
    },
    Capture {
        name: "interfered-1000",
        what: "one stream, 1000 packets between",
        pattern: Pattern::Interfered(1000),
    },
    Capture {
        name: "two-at-once",
        what: "two senders at once",
        pattern: Pattern::Two { at_once: true },
    },
    Capture {
        name: "two-in-turn",
        what: "two senders in turn",
        pattern: Pattern::Two { at_once: false },
    },
];

/// Pages of a capture.
const PAGES: u32 = 10_000;
/// Bytes of a page.
const PAGE: u16 = 4096;
/// Payload of a fragment of a packet of 1500 bytes.
const FRAGMENT: u16 = 1480;
const UDP_HEADER: u16 = 8;
/// The flag of all fragments but the last, beside the offset.
const MORE_FRAGMENTS: u16 = 0x2000;
/// What is kept of each frame: Ethernet, IP, UDP.
const KEPT: usize = 14 + 20 + 8;

impl Capture {
    pub(crate) fn file_name(&self) -> String {
        format!("{}.pcap", self.name)
    }

    fn frames(&self) -> Vec<Frame> {
        let mut frames = Vec::new();
        match self.pattern {
            Pattern::Interfered(count) => {
                // After the first, second and third fragment of a page in turn: two of three fall into one.
                let every = (PAGES * 3).checked_div(count);
                let mut done = 0;
                let fragments = (0..PAGES).flat_map(|it| page(1, it));
                for (index, fragment) in (0_u32..).zip(fragments) {
                    frames.push(fragment);
                    if every.is_some_and(|it| done * it + done % 3 == index) {
                        frames.push(small(done));
                        done += 1;
                    }
                }
            }
            Pattern::Two { at_once: true } => {
                for index in 0..PAGES / 2 {
                    let pair = page(1, index).into_iter().zip(page(2, index));
                    frames.extend(pair.flat_map(|(one, other)| [one, other]));
                }
            }
            Pattern::Two { at_once: false } => {
                for host in [1, 2] {
                    frames.extend((0..PAGES / 2).flat_map(|it| page(host, it)));
                }
            }
        }
        frames
    }
}

/// A frame as far as it is kept, and its length on the wire.
struct Frame {
    head: Vec<u8>,
    len: u32,
}

/// A page in a datagram of three fragments, from a host to host 9.
fn page(host: u8, index: u32) -> [Frame; 3] {
    let whole = PAGE + UDP_HEADER;
    [0, 1, 2].map(|part| {
        let offset = part * FRAGMENT;
        let len = FRAGMENT.min(whole - offset);
        let more = offset + len < whole;
        let udp = (part == 0).then_some(whole);
        // Two datagrams of one number are never under way at once.
        frame(host, index as u16, offset, more, len, udp)
    })
}

/// A datagram of 64 bytes from host 3, in one piece.
fn small(index: u32) -> Frame {
    let len = 64 + UDP_HEADER;
    frame(3, index as u16, 0, false, len, Some(len))
}

fn frame(host: u8, id: u16, offset: u16, more: bool, len: u16, udp: Option<u16>) -> Frame {
    let mut head = Vec::with_capacity(KEPT);
    head.extend([2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, host, 8, 0]);
    let ip = head.len();
    head.extend([0x45, 0]);
    head.extend((20 + len).to_be_bytes());
    head.extend(id.to_be_bytes());
    let more = if more { MORE_FRAGMENTS } else { 0 };
    head.extend(((offset / 8) | more).to_be_bytes());
    head.extend([64, 17, 0, 0, 10, 0, 0, host, 10, 0, 0, 9]);
    let sum = checksum(&head[ip..]);
    head[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    if let Some(udp) = udp {
        head.extend((4000 + u16::from(host)).to_be_bytes());
        head.extend(80_u16.to_be_bytes());
        head.extend(udp.to_be_bytes());
        head.extend([0, 0]);
    }
    Frame {
        head,
        len: 14 + 20 + u32::from(len),
    }
}

/// The Internet checksum of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2);
    let mut sum: u32 = words
        .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Writes all captures into `directory`, those of before replaced.
///
/// # Errors
/// One cannot be written: what is there is whole, or not there.
pub(crate) fn write(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    for capture in ALL {
        let path = directory.join(capture.file_name());
        let write = || -> io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(directory)?;
            file.write_all(&pcap(&capture.frames()))?;
            file.persist(&path)?;
            Ok(())
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// A classic pcap of Ethernet, a frame each microsecond.
fn pcap(frames: &[Frame]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4_u32.to_le_bytes());
    file.extend([2, 0, 4, 0]);
    file.extend([0; 8]);
    file.extend((KEPT as u32).to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for (us, frame) in (0_u32..).zip(frames) {
        for word in [
            us / 1_000_000,
            us % 1_000_000,
            frame.head.len() as u32,
            frame.len,
        ] {
            file.extend(word.to_le_bytes());
        }
        file.extend(&frame.head);
    }
    file
}
