//! Tests that a file written in place is marked until it is complete.

#![allow(non_snake_case)]

use super::*;
use crate::copy_tests::FRESH;
use crate::part::Part;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

const IN_PLACE: CopyOptions = CopyOptions {
    in_place: true,
    ..FRESH
};

const META: Meta = Meta {
    mode: 0o640,
    mtime_seconds: 1_000_000_000,
    mtime_nanoseconds: 5,
    owner: None,
};

fn part(base: &Path, size: u64) -> Result<Option<Part>, Cause> {
    let directory = Arc::new(OwnedFd::from(std::fs::File::open(base).unwrap()));
    Part::in_place(&directory, b"f", (size, META), true, &IN_PLACE)
}

fn unfinished(path: &Path) -> bool {
    is_unfinished(std::fs::File::open(path).unwrap().as_fd())
}

#[test]
fn in_place__is_marked_from_the_first_change_to_the_end() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("f");
    assert!(part(base.path(), 3).unwrap().is_none());
    std::fs::write(&path, b"older").unwrap();
    let time = std::fs::metadata(&path).unwrap().mtime();
    // Nothing changes.
    drop(part(base.path(), 3).unwrap().unwrap());
    assert!(!unfinished(&path));
    assert_eq!(std::fs::metadata(&path).unwrap().mtime(), time);
    let mut first = part(base.path(), 3).unwrap().unwrap();
    assert_eq!(part(base.path(), 3).unwrap_err(), Cause::Busy);
    match first.write(b"n", 0) {
        Err(Cause::CannotMark) => return println!("skipped: no attributes here"),
        written => written.unwrap(),
    }
    assert!(unfinished(&path));
    assert_ne!(
        std::fs::metadata(&path).unwrap().mtime(),
        META.mtime_seconds
    );
    // The copy fails, or its process is killed.
    first.discard();
    drop(first);
    assert!(unfinished(&path));
    let mut again = part(base.path(), 3).unwrap().unwrap();
    again.write(b"new", 0).unwrap();
    again.commit(3, &META, &IN_PLACE).unwrap();
    assert!(!unfinished(&path));
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    let meta = std::fs::metadata(&path).unwrap();
    assert_eq!(
        (meta.mode() & 0o777, meta.mtime()),
        (0o640, META.mtime_seconds)
    );
}

#[test]
fn in_place__a_marked_file_whose_content_is_right_is_repaired_without_a_change() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("f");
    std::fs::write(&path, b"new").unwrap();
    let file = std::fs::File::open(&path).unwrap();
    if fs::fsetxattr(&file, ATTRIBUTE, b"1", XattrFlags::empty()).is_err() {
        return println!("skipped: no attributes here");
    }
    let part = part(base.path(), 3).unwrap().unwrap();
    part.commit(3, &META, &IN_PLACE).unwrap();
    assert!(!unfinished(&path));
}

#[test]
fn change__takes_set_user_id_and_set_group_id_away() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("f");
    std::fs::write(&path, b"old").unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o6755)).unwrap();
    let mode = || path.metadata().unwrap().mode() & 0o7777;
    let directory = std::fs::File::open(base.path()).unwrap();
    let opened = InPlace::open(directory.as_fd(), b"f", 3, true, &IN_PLACE);
    let (file, mut in_place) = opened.unwrap().unwrap();
    assert_eq!(mode(), 0o6755);
    match in_place.change(file.as_fd(), &META) {
        // It failed before it could be marked.
        Err(Cause::CannotMark) => {}
        changed => changed.unwrap(),
    }
    assert_eq!(mode(), 0o755);
}
