//! Reads and writes whole buffers at an offset of a file.

use crate::error::Cause;
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, pread, pwrite};

/// Reads until `buffer` is full or the file ends; returns the number of bytes.
pub(crate) fn read_full(
    file: BorrowedFd<'_>,
    buffer: &mut [u8],
    offset: u64,
) -> Result<usize, Cause> {
    let mut done = 0;
    while done < buffer.len() {
        match pread(file, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(done)
}

/// Writes all of `bytes` to `file` at `offset`.
pub(crate) fn write_at(
    file: BorrowedFd<'_>,
    mut bytes: &[u8],
    mut offset: u64,
) -> Result<(), Cause> {
    while !bytes.is_empty() {
        match pwrite(file, bytes, offset) {
            Ok(0) => return Err(Cause::NoSpace),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
