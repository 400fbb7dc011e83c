//! Builds standard INQUIRY data (SPC-4, 6.6.2).

/// Vendor: exactly eight characters.
pub const VENDOR: &str = "ZEROLANE";

/// Product: sixteen characters.
pub const PRODUCT: &str = "DISK            ";

/// Revision: four characters.
pub const REVISION: &str = "0001";

/// Bytes of the data.
const BYTES: usize = 96;

/// No unit can be here: peripheral qualifier 3, device type 1Fh.
const ABSENT: u8 = 0x7f;

/// SPC-4.
const VERSION: u8 = 0x06;

/// HISUP (LUNs as of SAM), response data format 2. No NormACA.
const FORMAT: u8 = 0x12;

/// CMDQUE: many commands at a time.
const QUEUE: u8 = 0x02;

/// SAM-5, SPC-4, SBC-3, without a version of them.
const STANDARDS: [u16; 3] = [0x00a0, 0x0460, 0x04c0];

/// The standard INQUIRY data of a disk.
pub fn standard() -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    bytes[2] = VERSION;
    bytes[3] = FORMAT;
    bytes[4] = (BYTES - 5) as u8;
    bytes[7] = QUEUE;
    bytes[8..16].copy_from_slice(VENDOR.as_bytes());
    bytes[16..32].copy_from_slice(PRODUCT.as_bytes());
    bytes[32..36].copy_from_slice(REVISION.as_bytes());
    for (place, standard) in bytes[58..].chunks_exact_mut(2).zip(STANDARDS) {
        place.copy_from_slice(&standard.to_be_bytes());
    }
    bytes
}

/// The same for a LUN without a unit.
pub(crate) fn absent() -> Vec<u8> {
    let mut bytes = standard();
    bytes[0] = ABSENT;
    bytes
}
