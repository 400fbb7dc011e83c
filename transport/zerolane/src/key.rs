//! Names an exported region to the peer, as RDMA's rkey does.

use crate::error::Error;
use zerolane_lane::{PostError, RegionName, RegionNumber, RemotePlace, RemoteRegion};
use zerolane_wire::Rights;

/// Names a region that one end of a connection exported to the other end.
///
/// [`Connection::export`](crate::Connection::export) makes a key for the peer. The peer gets it as bytes by any means,
/// or by name with [`Connection::open_region`](crate::Connection::open_region). It is RDMA's rkey together with address
/// and length; in the thesis's terms, handle, Mx and Bufx.
///
/// A region that its owner exports under a number ([`Connection::export_numbered`](crate::Connection::export_numbered),
/// [`Worker::export_numbered`](crate::worker::Worker::export_numbered)) needs no such exchange: the peer makes the key
/// from the number. Such a key fits in 8 bytes.
///
/// ```
/// use zerolane::RegionKey;
/// let bytes = [0; RegionKey::BYTES];
/// assert_eq!(RegionKey::from_bytes(bytes).map(|key| key.to_bytes()), Some(bytes));
/// assert_eq!(RegionKey::from_bytes([0xff; RegionKey::BYTES]), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionKey {
    region: RemoteRegion,
}

impl RegionKey {
    /// Encoded length, bytes.
    pub const BYTES: usize = 24;

    pub(crate) fn new(region: RemoteRegion) -> RegionKey {
        RegionKey { region }
    }

    /// Bits of the offset in the 8 bytes of a key that was made from a number; the other 24 bits are the number.
    pub const OFFSET_BITS: u32 = 40;

    /// The key of the region that the peer exports under `number`, from its byte `offset` on: offset 0 of the key. The
    /// peer is not asked, so the key claims all rights and the longest region; the peer refuses what it does not
    /// permit: `Unknown` without an export of that number, `OutOfBounds`, `Denied`.
    ///
    /// ```
    /// use zerolane::{RegionKey, RegionNumber};
    /// let number = RegionNumber::new(7).expect("below 2^24");
    /// let key = RegionKey::numbered(number, 4096);
    /// assert_eq!(key.to_u64(), Some(7 << 40 | 4096));
    /// assert_eq!(RegionKey::from_u64(7 << 40 | 4096), key);
    /// ```
    pub fn numbered(number: RegionNumber, offset: u64) -> RegionKey {
        RegionKey::new(RemoteRegion {
            start: number.place(offset),
            length: u64::MAX - offset,
            rights: Rights::ALL,
        })
    }

    /// The key in 8 bytes: the number times 2^40, plus the offset of its first byte. `None` unless it is the key of a
    /// numbered region and that offset is below 2^40 (1 TiB). Length and rights are not part of it.
    pub fn to_u64(&self) -> Option<u64> {
        let address = self.region.start.address;
        let number = self.number()?;
        let fits = address >> RegionKey::OFFSET_BITS == 0;
        fits.then_some(u64::from(number.get()) << RegionKey::OFFSET_BITS | address)
    }

    /// The key that [`RegionKey::to_u64`] encoded, with all rights, as [`RegionKey::numbered`] makes it. Every value is
    /// a key.
    pub fn from_u64(key: u64) -> RegionKey {
        let [a, b, c, ..] = key.to_be_bytes();
        let offset = key & ((1 << RegionKey::OFFSET_BITS) - 1);
        RegionKey::numbered(RegionNumber::from_be_bytes([a, b, c]), offset)
    }

    /// The number that the region's owner exports it under. `None` if the library chose the key.
    pub fn number(&self) -> Option<RegionNumber> {
        RegionNumber::of_handle(self.handle())
    }

    /// Length of the region, bytes. A key made by [`RegionKey::numbered`] says 2^64 - 1 less its offset, because only
    /// the peer knows.
    pub fn len(&self) -> u64 {
        self.region.length
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The operations that the peer may do.
    pub fn rights(&self) -> Rights {
        self.region.rights
    }

    /// The handle: region and generation.
    pub(crate) fn handle(&self) -> u32 {
        self.region.start.handle
    }

    /// Encodes the key, big-endian, for transmission to the peer.
    pub fn to_bytes(&self) -> [u8; RegionKey::BYTES] {
        let RemoteRegion {
            start,
            length,
            rights,
        } = self.region;
        let mut bytes = [0; RegionKey::BYTES];
        bytes[..4].copy_from_slice(&start.handle.to_be_bytes());
        bytes[4..6].copy_from_slice(&start.mx.to_be_bytes());
        bytes[6..8].copy_from_slice(&rights.bits().to_be_bytes());
        bytes[8..16].copy_from_slice(&start.address.to_be_bytes());
        bytes[16..].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    /// Decodes a key; `None` if the bytes are malformed. The owner of the memory refuses a forged key.
    pub fn from_bytes(bytes: [u8; RegionKey::BYTES]) -> Option<RegionKey> {
        let [a, b, c, d, e, f, g, h, rest @ ..] = bytes;
        let [address @ .., _, _, _, _, _, _, _, _] = rest;
        let [_, _, _, _, _, _, _, _, length @ ..] = rest;
        let start = RemotePlace {
            handle: u32::from_be_bytes([a, b, c, d]),
            mx: u16::from_be_bytes([e, f]),
            address: u64::from_be_bytes(address),
        };
        let length = u64::from_be_bytes(length);
        start.address.checked_add(length)?;
        let rights = Rights::from_bits(u16::from_be_bytes([g, h]))?;
        Some(RegionKey {
            region: RemoteRegion {
                start,
                length,
                rights,
            },
        })
    }

    /// The place of `len` bytes at `offset`, if they lie in the region and its rights include `right`.
    ///
    /// # Errors
    /// The error that the peer would return.
    pub(crate) fn place(
        &self,
        offset: u64,
        len: u64,
        right: Rights,
    ) -> Result<RemotePlace, PostError> {
        let end = offset.checked_add(len);
        if end.is_none_or(|end| end > self.region.length) {
            return Err(PostError::OutOfBounds);
        }
        if !self.region.rights.contains(right) {
            return Err(PostError::Denied);
        }
        Ok(RemotePlace {
            address: self.region.start.address + offset,
            ..self.region.start
        })
    }
}

/// The name of a region, as peers ask for it: padded with zeros, so a name with zeros would be that of another region.
///
/// # Errors
/// The name is empty, too long, or has a NUL.
pub(crate) fn region_name(name: &str) -> Result<RegionName, Error> {
    if let Some(at) = name.bytes().position(|it| it == 0) {
        return Err(Error::NulInName { at });
    }
    let mut padded = RegionName::default();
    match padded.get_mut(..name.len()) {
        Some(place) if !place.is_empty() => place.copy_from_slice(name.as_bytes()),
        _ => return Err(Error::NameLength { len: name.len() }),
    }
    Ok(padded)
}
