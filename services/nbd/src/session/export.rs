//! Describes the disk to a client: size, flags and block sizes.

use crate::limits::MAX_PAYLOAD;

/// Flags of transmission.
const HAS_FLAGS: u16 = 1;
const READ_ONLY: u16 = 1 << 1;
const SEND_FLUSH: u16 = 1 << 2;
const SEND_FUA: u16 = 1 << 3;
const SEND_TRIM: u16 = 1 << 5;
const SEND_WRITE_ZEROES: u16 = 1 << 6;
const SEND_DF: u16 = 1 << 7;
const CAN_MULTI_CONN: u16 = 1 << 8;

/// The preferred block size, bytes: what most clients request at a time.
const PREFERRED: u32 = 4096;

/// A disk as its clients see it. Its name is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// Length, bytes.
    pub bytes: u64,
    /// Bytes of a block, a power of two up to 4096.
    pub block_bytes: u32,
    /// The disk is read-only.
    pub read_only: bool,
    /// Whether trimming frees space. Otherwise trim is not offered, because `mkfs` trims a whole disk before it writes.
    pub thin: bool,
}

impl Export {
    /// Flags of transmission. One connection's flush is a flush of all.
    pub(super) fn flags(&self, structured: bool) -> u16 {
        let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN;
        flags |= match (self.read_only, self.thin) {
            (true, _) => READ_ONLY,
            (false, true) => SEND_TRIM | SEND_WRITE_ZEROES,
            (false, false) => SEND_WRITE_ZEROES,
        };
        // All data of a read is in one chunk anyway.
        flags | if structured { SEND_DF } else { 0 }
    }

    /// Least, preferred and largest length of a request. Shorter ones are done as well, slowly.
    pub(super) fn lengths(&self) -> [u32; 3] {
        [self.block_bytes, PREFERRED, MAX_PAYLOAD]
    }

    /// Whether these bytes are on the disk.
    pub(super) fn has(&self, at: u64, bytes: u64) -> bool {
        at.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }
}
