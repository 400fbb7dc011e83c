//! Names places in registered memory: region, offset, length.

/// A registered region: index and generation. A region that reuses the entry of a closed one has another generation, so
/// that a late use of the old name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId {
    /// Index in the lane's table.
    pub index: u32,
    /// Generation of that entry.
    pub generation: u32,
}

/// A run of bytes in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The region.
    pub region: RegionId,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Span {
    /// No bytes, in no region.
    pub const EMPTY: Span = Span {
        region: RegionId {
            index: 0,
            generation: 0,
        },
        offset: 0,
        len: 0,
    };

    /// The part of `len` bytes that starts `start` bytes in. The caller ensures that it lies inside.
    #[must_use]
    pub fn part(&self, start: u64, len: u64) -> Span {
        debug_assert!(start + len <= self.len, "part within the span");
        Span {
            region: self.region,
            offset: self.offset + start,
            len,
        }
    }

    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }
}
