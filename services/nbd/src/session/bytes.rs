//! Reads and writes big-endian numbers and length-prefixed names.

/// Bytes that are taken from the front.
pub(super) struct Taker<'a>(pub(super) &'a [u8]);

impl<'a> Taker<'a> {
    /// So many bytes, if they are there.
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        let bytes = self.bytes(2)?.first_chunk()?;
        Some(u16::from_be_bytes(*bytes))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let bytes = self.bytes(4)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        let bytes = self.bytes(8)?.first_chunk()?;
        Some(u64::from_be_bytes(*bytes))
    }

    /// A length of 32 bits, and as many bytes.
    pub(super) fn named(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(usize::try_from(length).ok()?)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
