//! Checks the memory that a request returns.

use zerolane::Region;
use zerolane_disk::initiator::Error;

use crate::failure::Failure;

/// The `bytes` bytes of the memory that a request has returned.
///
/// # Errors
/// It returned less, or more.
pub(crate) fn all_of(memory: &Region, bytes: usize) -> Result<&[u8], Failure> {
    match memory.len() == bytes {
        true => Ok(&memory[..]),
        false => {
            let words = format!("{} bytes of memory came back, not {bytes}", memory.len());
            Err(Error::System(words).into())
        }
    }
}
