//! Computes CRC32C over headers and data (RFC 7143, 13.1).

/// Bytes of a digest.
pub(super) const BYTES: usize = 4;

/// The digests of PDUs in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// Over the headers.
    pub header: bool,
    /// Over the data and its padding.
    pub data: bool,
}

/// As it is sent: the standard's order of bits is the little-endian one of bytes.
pub(super) fn of(bytes: &[u8]) -> [u8; BYTES] {
    crc32c::crc32c(bytes).to_le_bytes()
}
