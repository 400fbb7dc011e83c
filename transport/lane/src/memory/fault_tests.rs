//! Tests that accesses to a shrunk file fail without a signal.
#![allow(non_snake_case)]
use super::*;
use crate::memory::{Access, Memory, Region};
use std::fs::File;
use std::os::fd::FromRawFd;
use std::sync::atomic::Ordering;

const PAGE: usize = 4096;

/// An unnamed file of `len` bytes, mapped for writing.
fn mapped(len: usize) -> (File, Region) {
    // SAFETY: the name is a C string; the descriptor is new, and nothing else owns it.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(c"fault".as_ptr(), 0)) };
    file.set_len(len as u64).expect("sized");
    let region = Region::map_file(&file, 0, len, Access::Write).expect("mapped");
    (file, region.into_inner())
}

/// Its address, without a reference to pages that may be gone.
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

/// Most bytes that the kernel of this test moves at a time, as the real one moves less than 2 GiB.
const MOST: usize = 1000;

/// process_vm_readv, with a bounded part at a time.
unsafe extern "C" fn read_a_part(
    process: libc::pid_t,
    local: *const libc::iovec,
    locals: libc::c_ulong,
    remote: *const libc::iovec,
    remotes: libc::c_ulong,
    flags: libc::c_ulong,
) -> isize {
    // SAFETY: one iovec a side, as the caller provides.
    let (mut local, mut remote) = unsafe { (*local, *remote) };
    local.iov_len = local.iov_len.min(MOST);
    remote.iov_len = remote.iov_len.min(MOST);
    let (local, remote) = (&raw const local, &raw const remote);
    // SAFETY: as the caller of this function promised.
    unsafe { libc::process_vm_readv(process, local, locals, remote, remotes, flags) }
}

#[test]
fn through_kernel__goes_on_where_a_call_moved_less() {
    let (file, mut region) = mapped(2 * PAGE);
    region
        .iter_mut()
        .zip(0..)
        .for_each(|(byte, n)| *byte = n as u8 ^ (n >> 8) as u8);
    let expected = region.to_vec();
    let (at, _memory) = start(region);
    let mut bytes = vec![0; 2 * PAGE];
    // SAFETY: within the mapping, and our own buffer.
    let mut read = || unsafe {
        through_kernel(read_a_part, bytes.as_mut_ptr(), at, 2 * PAGE).expect("permitted")
    };
    assert_eq!(read(), Ok(()));
    file.set_len(PAGE as u64).expect("truncated");
    assert_eq!(read(), Err(Gone));
    assert_eq!(bytes, expected);
}

#[test]
fn is_writable__tells_what_is_gone() {
    let (file, region) = mapped(4 * PAGE);
    let (at, _memory) = start(region);
    file.set_len(PAGE as u64).expect("truncated");
    // SAFETY: within the mapping.
    unsafe {
        // A kernel that cannot tell returns `None`.
        assert_ne!(is_writable(at.add(10), 100), Some(false));
        assert_ne!(is_writable(at.add(PAGE - 1), 2), Some(true));
    }
}

#[test]
fn touch__fails_without_a_signal_where_a_write_would_and_changes_nothing() {
    let (file, region) = mapped(4 * PAGE);
    let (at, _memory) = start(region);
    // SAFETY: words of the mapping, which are only accessed atomically.
    let [there, only_read, gone] =
        [0, PAGE, 2 * PAGE].map(|it| unsafe { AtomicU64::from_ptr(at.add(it + 8).cast()) });
    there.store(u64::MAX, Ordering::SeqCst);
    // As if the disk had no room for a hole: the page can only be read.
    // SAFETY: a page of the mapping, which nothing writes any more.
    let set = unsafe { libc::mprotect(at.add(PAGE).cast(), PAGE, libc::PROT_READ) };
    assert_eq!(set, 0);
    file.set_len(2 * PAGE as u64).expect("truncated");
    assert_eq!(touch(there), Ok(()));
    assert_eq!(there.load(Ordering::SeqCst), u64::MAX);
    assert_eq!(only_read.load(Ordering::SeqCst), 0);
    assert_eq!(touch(only_read), Err(Gone));
    assert_eq!(touch(gone), Err(Gone));
}
