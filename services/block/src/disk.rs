//! Describes a disk to initiators: its block length, features and names.

use crate::cdb::Extent;
use crate::identity::Identity;
use crate::limits::{MAX_LOGICAL_BLOCK_BYTES, MIN_LOGICAL_BLOCK_BYTES};
use crate::store::Store;

/// Block size and count of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Logical blocks, at least 1.
    pub blocks: u64,
    /// Binary logarithm of the number of logical blocks in a physical one.
    pub physical_exponent: u8,
}

/// Why a store cannot be a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Blocks of such a length are not possible.
    #[error(
        "blocks of {0} bytes: the length must be a power of two from {MIN_LOGICAL_BLOCK_BYTES} to {MAX_LOGICAL_BLOCK_BYTES}"
    )]
    BlockBytes(u32),
    /// The store's own blocks are longer.
    #[error(
        "blocks of {block_bytes} bytes: the device has blocks of {least} bytes, and cannot write parts of them"
    )]
    Part {
        /// The requested block length, bytes.
        block_bytes: u32,
        /// The shortest possible block length, bytes.
        least: u32,
    },
    /// There is not one block.
    #[error("{bytes} bytes: less than a block of {block_bytes}")]
    Empty {
        /// Length of the store, bytes.
        bytes: u64,
        /// The requested block length of the store, bytes.
        block_bytes: u32,
    },
}

impl Geometry {
    /// The geometry of a store of `bytes` bytes in blocks of `block_bytes`. Bytes after the last whole block are not
    /// reachable.
    ///
    /// # Errors
    /// The block length is not possible, or the store is shorter than a block.
    pub fn of(bytes: u64, block_bytes: u32) -> Result<Geometry, GeometryError> {
        let is_possible =
            (MIN_LOGICAL_BLOCK_BYTES..=MAX_LOGICAL_BLOCK_BYTES).contains(&block_bytes);
        if !is_possible || !block_bytes.is_power_of_two() {
            return Err(GeometryError::BlockBytes(block_bytes));
        }
        let blocks = bytes / u64::from(block_bytes);
        if blocks == 0 {
            return Err(GeometryError::Empty { bytes, block_bytes });
        }
        let physical_exponent = (MAX_LOGICAL_BLOCK_BYTES / block_bytes).trailing_zeros() as u8;
        Ok(Geometry {
            block_bytes,
            blocks,
            physical_exponent,
        })
    }

    /// Where `extent` is in bytes, and how many they are. It must be within the disk.
    pub(crate) fn bytes(&self, extent: &Extent) -> (u64, u64) {
        let block = u64::from(self.block_bytes);
        (extent.lba * block, extent.blocks * block)
    }

    /// So many bytes in blocks.
    pub(crate) fn blocks_in(&self, bytes: u64) -> u64 {
        bytes / u64::from(self.block_bytes)
    }
}

/// The description of a disk for INQUIRY, MODE SENSE and READ CAPACITY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its blocks.
    pub geometry: Geometry,
    /// Its identity.
    pub identity: Identity,
    /// The disk is read-only.
    pub read_only: bool,
    /// Blocks can be unmapped.
    pub thin: bool,
    /// Unflushed writes may be lost. Without a write cache, each write is flushed before its status.
    pub write_cache: bool,
}

/// Length of a block where nothing asks for another one, bytes.
const BLOCK_BYTES: u32 = 512;

impl Disk {
    /// Default length of a logical block of `store`: 512 bytes, or the store's own block length if that is more.
    pub fn block_bytes_of(store: &dyn Store) -> u32 {
        BLOCK_BYTES.max(store.least_block_bytes())
    }

    /// The disk that `store` is, in blocks of `block_bytes`, with a write cache.
    ///
    /// # Errors
    /// The store is shorter than a block, or the block length is not possible or shorter than the store's own.
    pub fn of(
        store: &dyn Store,
        block_bytes: u32,
        identity: Identity,
    ) -> Result<Disk, GeometryError> {
        let (geometry, least) = (
            Geometry::of(store.bytes(), block_bytes)?,
            store.least_block_bytes(),
        );
        if block_bytes < least {
            return Err(GeometryError::Part { block_bytes, least });
        }
        Ok(Disk {
            geometry,
            identity,
            read_only: store.is_read_only(),
            thin: store.gives_back(),
            write_cache: true,
        })
    }
}
