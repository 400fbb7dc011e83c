//! Builds the data of READ CAPACITY (SBC-3, 5.15 and 5.16) and REPORT LUNS (SPC-4, 6.33).

use crate::disk::Disk;

/// READ CAPACITY(10): a larger address is said as the largest, which means: ask for the other.
pub(crate) fn capacity_10(disk: &Disk) -> Vec<u8> {
    let last = u32::try_from(disk.geometry.blocks - 1).unwrap_or(u32::MAX);
    let mut bytes = last.to_be_bytes().to_vec();
    bytes.extend(disk.geometry.block_bytes.to_be_bytes());
    bytes
}

/// READ CAPACITY(16).
pub(crate) fn capacity_16(disk: &Disk) -> Vec<u8> {
    /// LBPME and LBPRZ: blocks can be unmapped, and read as zeros then.
    const THIN: u8 = 0xc0;
    let mut bytes = vec![0; 32];
    bytes[..8].copy_from_slice(&(disk.geometry.blocks - 1).to_be_bytes());
    bytes[8..12].copy_from_slice(&disk.geometry.block_bytes.to_be_bytes());
    bytes[13] = disk.geometry.physical_exponent;
    bytes[14] = if disk.thin { THIN } else { 0 };
    bytes
}

/// REPORT LUNS.
pub(crate) fn unit_list(units: impl Iterator<Item = [u8; 8]>) -> Vec<u8> {
    let list: Vec<u8> = units.flatten().collect();
    let mut bytes = (list.len() as u32).to_be_bytes().to_vec();
    bytes.extend([0; 4]);
    bytes.extend(list);
    bytes
}
