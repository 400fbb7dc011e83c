//! Makes keys of exported memory, also of numbers that the program chooses.

use crate::pointer::{Output, handle};
use crate::status::{Failure, guard, zl_status};
use zerolane::{RegionKey, RegionNumber};

/// Bytes of a zl_key.
pub const ZL_KEY_LENGTH: usize = 24;

/// Names exported memory on one connection. Plain bytes: pass them to the peer by any means.
#[repr(C)]
pub struct zl_key {
    /// Opaque.
    pub bytes: [u8; ZL_KEY_LENGTH],
}

impl From<RegionKey> for zl_key {
    fn from(key: RegionKey) -> zl_key {
        zl_key {
            bytes: key.to_bytes(),
        }
    }
}

impl zl_key {
    pub(crate) fn read(&self) -> Result<RegionKey, Failure> {
        RegionKey::from_bytes(self.bytes).ok_or_else(|| Failure::argument("not a key"))
    }
}

pub(crate) fn number(number: u32) -> Result<RegionNumber, Failure> {
    RegionNumber::new(number)
        .ok_or_else(|| Failure::argument(format!("number {number}: a region's is below 2^24")))
}

/// Returns the length in bytes of the memory that `key` names; 0 if `key` is null or invalid.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_key_length(key: *const zl_key) -> u64 {
    // SAFETY: C's promise about memory.
    let key = unsafe { handle(key, "key") }.and_then(zl_key::read);
    key.map_or(0, |key| key.len())
}

/// Makes the key of the memory that the peer exports under `number`, below 2^24, from byte `offset`
/// on, which is offset 0 of the key. The peer is not asked: it refuses a request that it does not
/// permit (ZL_ERROR_UNKNOWN, ZL_ERROR_OUT_OF_BOUNDS, ZL_ERROR_DENIED). Its zl_key_length is
/// 2^64 - 1 less `offset`.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_key_numbered(number: u32, offset: u64, key: *mut zl_key) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about outputs.
        let output = unsafe { Output::new(key, "key") }?;
        output.set(RegionKey::numbered(self::number(number)?, offset).into());
        Ok(zl_status::ZL_OK)
    })
}

/// Writes `key` to `value` as 8 bytes: its number times 2^40 plus its offset. ZL_ERROR_ARGUMENT
/// unless it is the key of numbered memory with an offset below 2^40. Length and rights are not part
/// of it.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_key_to_u64(key: *const zl_key, value: *mut u64) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about memory and outputs.
        let (key, output) = unsafe { (handle(key, "key")?.read()?, Output::new(value, "value")?) };
        let made = key.to_u64().ok_or_else(|| {
            Failure::argument("not the key of numbered memory, or its offset is 2^40 or more")
        })?;
        output.set(made);
        Ok(zl_status::ZL_OK)
    })
}

/// Makes the key that zl_key_to_u64 wrote as `value`, as zl_key_numbered does. Every value is a key.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_key_from_u64(value: u64, key: *mut zl_key) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about outputs.
        let output = unsafe { Output::new(key, "key") }?;
        output.set(RegionKey::from_u64(value).into());
        Ok(zl_status::ZL_OK)
    })
}
