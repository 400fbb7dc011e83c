//! Builds the pages of vital product data (SPC-4, 7.8; SBC-3, 6.5).

use crate::disk::Disk;
use crate::limits;
use crate::report::inquiry::{PRODUCT, VENDOR};

/// Codes of the pages: supported pages, unit serial number, device identification, block limits, block device
/// characteristics, logical block provisioning.
pub const PAGES: [u8; 6] = [0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2];

/// Code sets of designators.
const BINARY: u8 = 1;
const ASCII: u8 = 2;

/// Types of designators.
const T10: u8 = 1;
const NAA: u8 = 3;
const RELATIVE_PORT: u8 = 4;

/// A designator of the target port that was asked, rather than of the unit.
const OF_PORT: u8 = 0x10;

/// The only target port.
pub(crate) const PORT: u16 = 1;

/// The page `code` of `disk`; `None` if it is not supported.
pub fn page(code: u8, disk: &Disk) -> Option<Vec<u8>> {
    let body = match code {
        0x00 => PAGES.to_vec(),
        0x80 => disk.identity.to_string().into_bytes(),
        0x83 => designators(disk),
        0xb0 => limits_of(disk),
        0xb1 => characteristics(),
        0xb2 => provisioning(disk),
        _ => return None,
    };
    let mut bytes = vec![0, code];
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend(body);
    Some(bytes)
}

fn designators(disk: &Disk) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut add = |set: u8, kind: u8, designator: &[u8]| {
        bytes.extend([set, kind, 0, designator.len() as u8]);
        bytes.extend(designator);
    };
    add(BINARY, NAA, &disk.identity.naa());
    let name = format!("{VENDOR}{PRODUCT}{}", disk.identity);
    add(ASCII, T10, name.as_bytes());
    let [high, low] = PORT.to_be_bytes();
    add(BINARY, OF_PORT | RELATIVE_PORT, &[0, 0, high, low]);
    bytes
}

fn limits_of(disk: &Disk) -> Vec<u8> {
    let blocks = |bytes: u64| disk.geometry.blocks_in(bytes);
    let mut body = vec![0; 60];
    let unmap = if disk.thin {
        blocks(limits::MAX_UNMAP_BYTES)
    } else {
        0
    };
    let ranges = if disk.thin {
        limits::MAX_UNMAP_RANGES as u64
    } else {
        0
    };
    let granularity = 1u64 << disk.geometry.physical_exponent;
    // WSNZ: WRITE SAME of no blocks is refused.
    body[0] = 1;
    body[1] = blocks(limits::MAX_COMPARE_BYTES).min(255) as u8;
    body[2..4].copy_from_slice(&(granularity as u16).to_be_bytes());
    let mut word = |at: usize, value: u64| {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        body[at..at + 4].copy_from_slice(&value.to_be_bytes());
    };
    word(4, blocks(limits::MAX_TRANSFER_BYTES));
    word(8, blocks(limits::OPTIMAL_TRANSFER_BYTES));
    word(16, unmap);
    word(20, ranges);
    word(24, if disk.thin { granularity } else { 0 });
    // Granules begin at block 0.
    word(28, if disk.thin { 1 << 31 } else { 0 });
    // The upper half is zero.
    word(36, blocks(limits::MAX_WRITE_SAME_BYTES));
    body
}

/// Nothing rotates.
fn characteristics() -> Vec<u8> {
    let mut body = vec![0; 60];
    body[1] = 1;
    body
}

fn provisioning(disk: &Disk) -> Vec<u8> {
    /// LBPU, LBPWS, LBPWS10: by UNMAP and by both WRITE SAME. LBPRZ: unmapped blocks read as zeros.
    const BY_ALL: u8 = 0xe0 | 0x04;
    const THIN: u8 = 2;
    if disk.thin {
        vec![0, BY_ALL, THIN, 0]
    } else {
        vec![0; 4]
    }
}
