//! From a block of a capture file to the packet that it has.

use crate::limits::MAX_INTERFACES;
use pcap_parser::{
    Block, EnhancedPacketBlock, InterfaceDescriptionBlock, LegacyPcapBlock, PcapBlockOwned,
    PcapHeader,
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

/// The packet of a block, if it is of one.
pub(crate) fn record_of<'a>(
    interfaces: &mut Vec<Interface>,
    block: &'a PcapBlockOwned<'_>,
) -> Option<Record<'a>> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            *interfaces = vec![interface_of(header)];
            None
        }
        PcapBlockOwned::Legacy(block) => Some(of_pcap(interfaces.first()?, block)),
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            None
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(block)) => {
            if interfaces.len() < MAX_INTERFACES {
                interfaces.push(Interface::of(block));
            }
            None
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(block)) => Some(of_pcapng(interfaces, block)),
        PcapBlockOwned::NG(Block::SimplePacket(block)) => Some(Record {
            time: 0,
            link: interfaces.first().map_or(UNKNOWN_LINK, |it| it.link),
            data: captured(block.data, block.origlen),
            len: block.origlen,
        }),
        PcapBlockOwned::NG(_) => None,
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

fn of_pcapng<'a>(interfaces: &[Interface], block: &'a EnhancedPacketBlock<'_>) -> Record<'a> {
    let interface = interfaces.get(block.if_id as usize);
    let units = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
    Record {
        time: interface.map_or(0, |it| it.nanoseconds(units)),
        link: interface.map_or(UNKNOWN_LINK, |it| it.link),
        data: captured(block.data, block.caplen),
        len: block.origlen,
    }
}

/// Of `data`, which may be padded, the first `len` bytes.
fn captured(data: &[u8], len: u32) -> &[u8] {
    &data[..data.len().min(len as usize)]
}
