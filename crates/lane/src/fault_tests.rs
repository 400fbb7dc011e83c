#![allow(non_snake_case)]
use super::*;
use crate::{Access, Memory, Region};
use std::fs::File;
use std::os::fd::FromRawFd;

const PAGE: usize = 4096;

/// A file that has no name, of `len` bytes, mapped for writing.
fn mapped(len: usize) -> (File, Region) {
    // SAFETY: the name is a C string; the descriptor is new and no other's.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(c"fault".as_ptr(), 0)) };
    file.set_len(len as u64).expect("sized");
    let region = Region::map_file(&file, 0, len, Access::Write).expect("mapped");
    (file, region)
}

/// Where it lies, without a reference to what may be gone.
fn start(region: Region) -> (*mut u8, Memory) {
    (region.raw().0, Memory::from(region))
}

#[test]
fn read_write__of_what_is_gone_fail_without_a_signal() {
    let (file, region) = mapped(4 * PAGE);
    let (at, _memory) = start(region);
    file.set_len(PAGE as u64).expect("truncated");
    let mut buffer = vec![0; 2 * PAGE];
    // SAFETY: within the mapping.
    unsafe {
        let gone = Err(Gone);
        assert_eq!(read(at.add(2 * PAGE), &mut buffer, None), gone, "all of it");
        assert_eq!(read(at, &mut buffer, None), gone, "the second half");
        assert_eq!(write(&buffer, at, None), gone, "the second half");
        assert_eq!(write(&buffer[..1], at.add(PAGE), None), gone, "all of it");
        assert_eq!(read(at, &mut buffer[..PAGE], None), Ok(()), "what is left");
        assert_eq!(write(&buffer[..PAGE], at, None), Ok(()), "what is left");
    }
}

#[test]
fn is_writable__tells_what_is_gone() {
    let (file, region) = mapped(4 * PAGE);
    let (at, _memory) = start(region);
    file.set_len(PAGE as u64).expect("truncated");
    // SAFETY: within the mapping.
    unsafe {
        // A kernel that cannot tell says neither.
        assert_ne!(is_writable(at.add(10), 100), Some(false));
        assert_ne!(is_writable(at.add(PAGE - 1), 2), Some(true));
    }
}
