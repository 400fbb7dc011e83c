#![allow(non_snake_case)]
use super::*;
use std::fs::{File, Permissions, read, read_dir, set_permissions, write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

const FRESH: Replace = Replace {
    resume: false,
    read_only: false,
};
const RESUME: Replace = Replace {
    resume: true,
    read_only: false,
};
const META: Meta = Meta {
    mode: 0o640,
    mtime_seconds: 1_000_000_000,
    mtime_nanoseconds: 123_456_789,
};

fn open(path: &Path) -> Arc<OwnedFd> {
    Arc::new(File::open(path).unwrap().into())
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = read_dir(path)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn commit__replaces_at_once_and_keeps_mode_and_time() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    write(base.path().join("a"), b"old").unwrap();
    let part = Part::create(&dir, b"a", FRESH).unwrap();
    part.write(b"new content", 0).unwrap();
    assert_eq!(read(base.path().join("a")).unwrap(), b"old");
    assert_eq!(names(base.path()), [".a.zlpart", "a"]);
    part.commit(11, 11, &META, true).unwrap();
    assert_eq!(read(base.path().join("a")).unwrap(), b"new content");
    assert_eq!(names(base.path()), ["a"]);
    let meta = base.path().join("a").metadata().unwrap();
    assert_eq!(
        (meta.mode() & 0o7777, meta.mtime(), meta.mtime_nsec()),
        (0o640, 1_000_000_000, 123_456_789)
    );
}

#[test]
fn commit__drops_set_user_id() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    let meta = Meta {
        mode: 0o6755,
        ..META
    };
    Part::create(&dir, b"a", FRESH)
        .unwrap()
        .commit(0, 0, &meta, false)
        .unwrap();
    assert_eq!(
        base.path().join("a").metadata().unwrap().mode() & 0o7777,
        0o755
    );
}

#[test]
fn commit__holes_at_the_end() {
    let base = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = open(base.path());
    let part = Part::create(&dir, b"a", FRESH).unwrap();
    part.write(b"x", 0).unwrap();
    part.commit(1 << 20, 1, &META, false).unwrap();
    let meta = base.path().join("a").metadata().unwrap();
    assert_eq!(meta.len(), 1 << 20);
    assert!(meta.blocks() * 512 <= 4096, "{} blocks", meta.blocks());
}

#[test]
fn discard__leaves_the_target_alone() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    write(base.path().join("a"), b"old").unwrap();
    let part = Part::create(&dir, b"a", FRESH).unwrap();
    part.write(b"new", 0).unwrap();
    part.discard();
    assert_eq!(names(base.path()), ["a"]);
    assert_eq!(read(base.path().join("a")).unwrap(), b"old");
}

#[test]
fn create__another_copy_is_refused_until_it_ends() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    let first = Part::create(&dir, b"a", FRESH).unwrap();
    assert_eq!(Part::create(&dir, b"a", FRESH).unwrap_err(), Cause::Busy);
    drop(first);
    Part::create(&dir, b"a", FRESH).unwrap();
}

#[test]
fn create__leftover_is_kept_only_for_resume() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    write(base.path().join(".a.zlpart"), b"left").unwrap();
    assert_eq!(Part::create(&dir, b"a", RESUME).unwrap().left_over(), 4);
    assert_eq!(read(base.path().join(".a.zlpart")).unwrap(), b"left");
    assert_eq!(Part::create(&dir, b"a", FRESH).unwrap().left_over(), 0);
    assert_eq!(read(base.path().join(".a.zlpart")).unwrap(), b"");
}

#[test]
fn create__what_cannot_be_replaced() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    std::fs::create_dir(base.path().join("dir")).unwrap();
    assert_eq!(
        Part::create(&dir, b"dir", FRESH).unwrap_err(),
        Cause::IsADirectory
    );
    write(base.path().join("ro"), b"x").unwrap();
    set_permissions(base.path().join("ro"), Permissions::from_mode(0o444)).unwrap();
    assert_eq!(
        Part::create(&dir, b"ro", FRESH).unwrap_err(),
        Cause::ReadOnly
    );
    Part::create(
        &dir,
        b"ro",
        Replace {
            resume: false,
            read_only: true,
        },
    )
    .unwrap()
    .discard();
    assert_eq!(names(base.path()), ["dir", "ro"]);
}

#[test]
fn create__a_link_in_the_temporary_place_is_not_followed() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    write(base.path().join("victim"), b"precious").unwrap();
    symlink("victim", base.path().join(".a.zlpart")).unwrap();
    assert_eq!(
        Part::create(&dir, b"a", FRESH).unwrap_err(),
        Cause::OutsideRoot
    );
    std::fs::hard_link(base.path().join("victim"), base.path().join(".b.zlpart")).unwrap();
    assert_eq!(Part::create(&dir, b"b", FRESH).unwrap_err(), Cause::Special);
    assert_eq!(read(base.path().join("victim")).unwrap(), b"precious");
}

#[test]
fn create__target_that_is_a_link_is_replaced_not_followed() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    write(base.path().join("victim"), b"precious").unwrap();
    symlink("victim", base.path().join("a")).unwrap();
    let part = Part::create(&dir, b"a", FRESH).unwrap();
    part.write(b"mine", 0).unwrap();
    part.commit(4, 4, &META, false).unwrap();
    assert_eq!(read(base.path().join("victim")).unwrap(), b"precious");
    assert!(base.path().join("a").symlink_metadata().unwrap().is_file());
}

#[test]
fn make_hole__only_where_something_was_left() {
    let base = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = open(base.path());
    write(base.path().join(".a.zlpart"), vec![9; 3 * 4096]).unwrap();
    let part = Part::create(&dir, b"a", RESUME).unwrap();
    part.make_hole(4096, 4096).unwrap();
    part.make_hole(1 << 30, 4096).unwrap();
    part.commit(3 * 4096, 3 * 4096, &META, false).unwrap();
    let bytes = read(base.path().join("a")).unwrap();
    assert!(bytes[..4096].iter().chain(&bytes[8192..]).all(|&b| b == 9));
    assert!(bytes[4096..8192].iter().all(|&b| b == 0));
    assert_eq!(
        base.path().join("a").metadata().unwrap().blocks() * 512,
        8192
    );
}

#[test]
fn make_link__replaces_a_link_and_what_a_killed_copy_left() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    symlink("old", base.path().join("a")).unwrap();
    symlink("stale", base.path().join(".a.zlpart")).unwrap();
    make_link(dir.as_fd(), b"a", b"../new\xff", &META, false).unwrap();
    let target = std::fs::read_link(base.path().join("a")).unwrap();
    assert_eq!(target.into_os_string().into_encoded_bytes(), b"../new\xff");
    assert_eq!(
        base.path().join("a").symlink_metadata().unwrap().mtime(),
        META.mtime_seconds
    );
    assert_eq!(names(base.path()), ["a"]);
}

#[test]
fn make_link__over_a_directory_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    std::fs::create_dir(base.path().join("a")).unwrap();
    assert_eq!(
        make_link(dir.as_fd(), b"a", b"x", &META, false),
        Err(Cause::IsADirectory)
    );
}

#[test]
fn part_name__always_fits_and_differs() {
    assert_eq!(part_name(b"a"), b".a.zlpart");
    let long = [b'x'; NAME_BYTES];
    let mut other = long;
    other[254] = b'y';
    assert!(part_name(&long).len() <= NAME_BYTES);
    assert_ne!(part_name(&long), part_name(&other));
}
