//! Names an exported region to the peer, as RDMA's rkey does.

use zerolane_lane::{PostError, RemotePlace, RemoteRegion};
use zerolane_wire::Rights;

/// Names a region that one end of a connection exported to the other end.
///
/// [`Connection::export`](crate::Connection::export) makes a key for the peer. The peer gets it as bytes by any means,
/// or by name with [`Connection::open_region`](crate::Connection::open_region). It is RDMA's rkey together with address
/// and length; in the thesis's terms, handle, Mx and Bufx.
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

    /// Length of the region, bytes.
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
