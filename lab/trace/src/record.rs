//! Parses a block of a capture file into its packet.

use crate::limits::MAX_INTERFACES;
use pcap_parser::{
    Block, InterfaceDescriptionBlock, LegacyPcapBlock, PcapBlockOwned, PcapHeader, UnknownBlock,
};

/// A packet as it was recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    /// When it came, nanoseconds; 0 where that is not told.
    pub(crate) time: u64,
    /// What its first header is, as a number of the LINKTYPE registry.
    pub(crate) link: i32,
    /// Its first bytes.
    pub(crate) data: &'a [u8],
    /// Its length on the wire, bytes.
    pub(crate) len: u32,
}

/// What pcapng says of an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interface {
    link: i32,
    /// Units of time in a second.
    resolution: u64,
    /// Seconds to add.
    offset: i64,
}

impl Interface {
    fn of(block: &InterfaceDescriptionBlock<'_>) -> Interface {
        Interface {
            link: block.linktype.0,
            resolution: resolution(block.if_tsresol),
            offset: block.ts_offset(),
        }
    }

    fn nanoseconds(&self, units: u64) -> u64 {
        let time = u128::from(units) * 1_000_000_000 / u128::from(self.resolution);
        let time = time as i128 + i128::from(self.offset) * 1_000_000_000;
        u64::try_from(time).unwrap_or(0)
    }
}

/// Units of time in a second by if_tsresol: a power of ten, or of two where the highest bit is set. (The parser's own
/// function knows no powers of two.) Microseconds where it is out of range.
fn resolution(tsresol: u8) -> u64 {
    let exponent = u32::from(tsresol & 0x7f);
    let units = match tsresol & 0x80 {
        0 => 10_u64.checked_pow(exponent),
        _ => 2_u64.checked_pow(exponent),
    };
    units.unwrap_or(1_000_000)
}

/// What the blocks of a file so far say of those that follow.
#[derive(Debug, Default)]
pub(crate) struct Section {
    /// One for all of a pcap file.
    interfaces: Vec<Interface>,
    big_endian: bool,
}

/// The block of a packet before there was the enhanced one. The parser hands it on as it is.
const PACKET_BLOCK: u32 = 2;

impl Section {
    /// The packet of a block, if it is of one.
    pub(crate) fn record_of<'a>(&mut self, block: &'a PcapBlockOwned<'_>) -> Option<Record<'a>> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.interfaces = vec![interface_of(header)];
                None
            }
            PcapBlockOwned::Legacy(block) => Some(of_pcap(self.interfaces.first()?, block)),
            PcapBlockOwned::NG(Block::SectionHeader(block)) => {
                *self = Section {
                    interfaces: Vec::new(),
                    big_endian: block.big_endian(),
                };
                None
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(block)) => {
                if self.interfaces.len() < MAX_INTERFACES {
                    self.interfaces.push(Interface::of(block));
                }
                None
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(block)) => Some(self.record(
                block.if_id as usize,
                (block.ts_high, block.ts_low),
                (block.data, block.caplen, block.origlen),
            )),
            PcapBlockOwned::NG(Block::SimplePacket(block)) => Some(Record {
                time: 0,
                link: self.interfaces.first().map_or(UNKNOWN_LINK, |it| it.link),
                data: captured(block.data, block.origlen),
                len: block.origlen,
            }),
            PcapBlockOwned::NG(Block::Unknown(block)) if self.is_packet_block(block) => {
                Some(self.of_packet_block(block.data))
            }
            PcapBlockOwned::NG(_) => None,
        }
    }

    fn is_packet_block(&self, block: &UnknownBlock<'_>) -> bool {
        // The parser reads the type as little endian, whatever the section is.
        let kind = match self.big_endian {
            true => block.block_type.swap_bytes(),
            false => block.block_type,
        };
        kind == PACKET_BLOCK
    }

    /// A block of two bytes that say the interface, two that say how many packets were lost, and then what an enhanced
    /// one has. One that is too short for that is a packet without a byte.
    fn of_packet_block<'a>(&self, body: &'a [u8]) -> Record<'a> {
        let (words, _) = body.as_chunks::<4>();
        let word = |at: usize| match (words.get(at), self.big_endian) {
            (Some(&bytes), true) => u32::from_be_bytes(bytes),
            (Some(&bytes), false) => u32::from_le_bytes(bytes),
            (None, _) => 0,
        };
        let interface = match self.big_endian {
            true => word(0) >> 16,
            false => word(0) & 0xffff,
        };
        let data = body.get(20..).unwrap_or_default();
        self.record(
            interface as usize,
            (word(1), word(2)),
            (data, word(3), word(4)),
        )
    }

    /// A packet that came by an interface, in the upper and the lower half of its time, and what was recorded of it.
    fn record<'a>(
        &self,
        interface: usize,
        (high, low): (u32, u32),
        (data, caplen, len): (&'a [u8], u32, u32),
    ) -> Record<'a> {
        let interface = self.interfaces.get(interface);
        let units = u64::from(high) << 32 | u64::from(low);
        Record {
            time: interface.map_or(0, |it| it.nanoseconds(units)),
            link: interface.map_or(UNKNOWN_LINK, |it| it.link),
            data: captured(data, caplen),
            len,
        }
    }
}

/// The link of a packet whose interface the file does not describe.
const UNKNOWN_LINK: i32 = -1;

fn interface_of(header: &PcapHeader) -> Interface {
    Interface {
        // The upper half has other things: the length of a checksum behind each frame.
        link: header.network.0 & 0xffff,
        resolution: match header.is_nanosecond_precision() {
            true => 1_000_000_000,
            false => 1_000_000,
        },
        offset: 0,
    }
}

fn of_pcap<'a>(interface: &Interface, block: &'a LegacyPcapBlock<'_>) -> Record<'a> {
    let seconds = interface.nanoseconds(u64::from(block.ts_sec) * interface.resolution);
    Record {
        time: seconds + interface.nanoseconds(block.ts_usec.into()),
        link: interface.link,
        data: captured(block.data, block.caplen),
        len: block.origlen,
    }
}

/// Of `data`, which may be padded, the first `len` bytes.
fn captured(data: &[u8], len: u32) -> &[u8] {
    &data[..data.len().min(len as usize)]
}
