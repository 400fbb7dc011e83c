//! Tests that mapped files are read and written by copies alone.
#![allow(non_snake_case)]
use super::*;
use crate::memory::{ExportedRegion, Memory, memfd};
use nix::fcntl::SealFlag;
use std::fs::File;
use std::os::unix::fs::FileExt;

fn file(len: usize) -> File {
    let memory = memfd::create(len, SealFlag::empty()).expect("memory");
    memory.into()
}

#[test]
fn read_write__any_bytes_at_any_offset_and_none_beyond() {
    let file = file(10_000);
    // Not at the start of a page, nor of a word.
    let mut region = Region::map_file(&file, 4099, 5000, Access::Write).expect("mapped");
    assert_eq!(region.len(), 5000);
    region.write(1, b"first").expect("there");
    file.write_all_at(b"second", 4099 + 4000).expect("written");
    let mut back = [0; 6];
    region.read(4000, &mut back).expect("there");
    assert_eq!(&back, b"second");
    let tail = region.split_off(4);
    tail.write(0, b"!").expect("there");
    let mut on_disk = [0; 7];
    file.read_exact_at(&mut on_disk, 4099).expect("there");
    assert_eq!(&on_disk, b"\0fir!t\0");
    assert!(
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tail.write(4996, b"x"))).is_err()
    );
    region.unsplit(tail).expect("parts of one region");
    assert_eq!(region.len(), 5000);
}

#[test]
fn read_write__of_a_file_that_shrank_are_errors() {
    let file = file(8192);
    let region = Region::map_file(&file, 0, 8192, Access::Write).expect("mapped");
    file.set_len(0).expect("cut");
    let kinds = [
        region.read(4096, &mut [0; 8]).map_err(|it| it.kind()),
        region.write(0, &[1; 8]).map_err(|it| it.kind()),
    ];
    assert_eq!(kinds, [Err(io::ErrorKind::UnexpectedEof); 2]);
}

#[test]
fn memory__of_a_file_has_no_slice() {
    let file = file(4096);
    let region = Region::map_file(&file, 0, 4096, Access::Write).expect("mapped");
    let memory = Memory::from(region);
    assert_eq!(memory.len(), 4096);
    assert!(memory.parts().is_none());
    assert_eq!(memory.as_slice(), None);
    let region = memory.into_file().expect("a file's");
    assert!(Memory::from(region).into_region().is_none());
}

#[test]
fn map_sealed__takes_only_what_nobody_can_change() {
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK;
    for missing in [SealFlag::F_SEAL_WRITE, SealFlag::F_SEAL_SHRINK] {
        let file = File::from(memfd::create(4096, seals - missing).expect("memory"));
        let refused = Region::map_sealed(&file, 0, 4096).expect_err("not sealed");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
    let file = file(4096);
    file.write_all_at(b"sealed", 0).expect("written");
    nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_ADD_SEALS(seals)).expect("a memfd");
    let mut region = Region::map_sealed(&file, 0, 4096).expect("sealed");
    assert_eq!(&region[..6], b"sealed");
    region[0] = b'S';
    let mut there = [0; 6];
    file.read_exact_at(&mut there, 0).expect("there");
    assert_eq!(&there, b"sealed", "the region is a copy from then on");
}

#[test]
fn revoke__of_a_file_gives_no_bytes_back() {
    let file = file(4096);
    let region = Region::map_file(&file, 0, 4096, Access::Write).expect("mapped");
    let exported = ExportedRegion::of_file(region).expect("page-aligned");
    exported.write(8, b"kept");
    let region = exported.revoke().expect("the only handle");
    assert!(region.is_empty());
    let mut there = [0; 4];
    file.read_exact_at(&mut there, 8).expect("there");
    assert_eq!(&there, b"kept");
}
