//! Tests that files being written get their names only when complete.

#![allow(non_snake_case)]
use super::*;
use crate::copy_tests::FRESH;
use std::fs::{File, Permissions, read, read_dir, set_permissions, write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

const RESUME: CopyOptions = CopyOptions {
    resume: true,
    ..FRESH
};
const FORCE: CopyOptions = CopyOptions {
    replace_read_only: true,
    ..FRESH
};
const META: Meta = Meta {
    mode: 0o640,
    mtime_seconds: 1_000_000_000,
    mtime_nanoseconds: 123_456_789,
    owner: None,
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

/// One of each kind, empty.
fn each(dir: &Arc<OwnedFd>, target: &[u8]) -> [Part; 3] {
    let (file, name) = temporary::random(dir.as_fd()).unwrap();
    let random = Part {
        meta: Meta::default(),
        wanted: None,
        backups: None,
        directory: dir.clone(),
        target: target.to_vec(),
        file,
        place: Place::Random(name),
        left_over: 0,
        end: 0,
    };
    let lasting = Part::lasting(dir, target, &FRESH).unwrap();
    [Part::brief(dir, target).unwrap(), random, lasting]
}

/// One of a kind.
fn one(dir: &Arc<OwnedFd>, target: &[u8], kind: usize) -> Part {
    let mut parts = Vec::from(each(dir, target));
    let wanted = parts.swap_remove(kind);
    for other in parts {
        other.discard();
    }
    wanted
}

/// Leaves what a killed copy of `bytes` to `target` leaves; returns its name.
fn leave(dir: &Arc<OwnedFd>, target: &[u8], bytes: &[u8]) -> String {
    let mut part = Part::lasting(dir, target, &FRESH).unwrap();
    part.write(bytes, 0).unwrap();
    match &part.place {
        Place::Lasting { name, .. } => String::from_utf8(name.clone()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn commit__replaces_at_once_and_keeps_mode_and_time() {
    for old in [None, Some(b"old")] {
        for kind in 0..3 {
            let base = tempfile::tempdir().unwrap();
            let dir = open(base.path());
            let target = base.path().join("a");
            if let Some(old) = old {
                write(&target, old).unwrap();
            }
            let mut part = one(&dir, b"a", kind);
            part.write(b"new content", 0).unwrap();
            assert_eq!(read(&target).ok().as_deref(), old.map(|old| &old[..]));
            let durable = CopyOptions {
                durable: true,
                ..FRESH
            };
            part.commit(11, &META, &durable).unwrap();
            assert_eq!(read(&target).unwrap(), b"new content");
            let meta = target.metadata().unwrap();
            assert_eq!(
                (meta.mode() & 0o7777, meta.mtime(), meta.mtime_nsec()),
                (0o640, 1_000_000_000, 123_456_789)
            );
            let mut attributes = [0; 4096];
            let listed = fs::listxattr(&target, &mut attributes[..]).unwrap();
            let attributes = String::from_utf8_lossy(&attributes[..listed]).into_owned();
            assert!(!attributes.contains("zerolane"), "{attributes}");
        }
    }
}

#[test]
fn commit__leaves_only_the_target() {
    for kind in 0..3 {
        let base = tempfile::tempdir().unwrap();
        let dir = open(base.path());
        for round in 0..2 {
            one(&dir, b"a", kind).commit(0, &META, &FRESH).unwrap();
            assert_eq!(names(base.path()), ["a"], "{kind} {round}");
        }
    }
}

#[test]
fn commit__drops_set_user_id() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    let meta = Meta {
        mode: 0o6755,
        ..META
    };
    for part in each(&dir, b"a") {
        part.commit(0, &meta, &FRESH).unwrap();
        let mode = base.path().join("a").metadata().unwrap().mode();
        assert_eq!(mode & 0o7777, 0o755);
    }
}

#[test]
fn commit__holes_at_the_end() {
    let base = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = open(base.path());
    for mut part in each(&dir, b"a") {
        part.write(b"x", 0).unwrap();
        part.commit(1 << 20, &META, &FRESH).unwrap();
        let meta = base.path().join("a").metadata().unwrap();
        assert_eq!(meta.len(), 1 << 20);
        assert!(meta.blocks() * 512 <= 4096, "{} blocks", meta.blocks());
    }
}

#[test]
fn commit__looks_again_at_what_stands_there() {
    for kind in 0..3 {
        let base = tempfile::tempdir().unwrap();
        let dir = open(base.path());
        let target = base.path().join("a");
        let part = one(&dir, b"a", kind);
        nix::unistd::mkfifo(&target, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(part.commit(0, &META, &FRESH), Err(Cause::Special));
        std::fs::remove_file(&target).unwrap();
        write(&target, b"old").unwrap();
        set_permissions(&target, Permissions::from_mode(0o444)).unwrap();
        let part = Part::lasting(&dir, b"a", &RESUME).unwrap();
        assert_eq!(part.commit(0, &META, &RESUME), Err(Cause::ReadOnly));
        let part = Part::brief(&dir, b"a").unwrap();
        assert_eq!(part.commit(0, &META, &FRESH), Err(Cause::ReadOnly));
        assert_eq!(read(&target).unwrap(), b"old");
        Part::brief(&dir, b"a")
            .unwrap()
            .commit(0, &META, &FORCE)
            .unwrap();
        assert_eq!(names(base.path()), ["a"]);
        assert_eq!(read(&target).unwrap(), b"");
    }
}

#[test]
fn commit__of_a_lasting_one_that_is_gone_or_anothers() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    let name = leave(&dir, b"a", b"");
    let first = Part::lasting(&dir, b"a", &FRESH).unwrap();
    std::fs::remove_file(base.path().join(&name)).unwrap();
    let mut second = Part::lasting(&dir, b"a", &FRESH).unwrap();
    second.write(b"half", 0).unwrap();
    assert_eq!(first.commit(0, &META, &FRESH), Err(Cause::TemporaryLost));
    assert_eq!(names(base.path()), [&*name], "the other copy's stays");
    second.commit(4, &META, &FRESH).unwrap();
    assert_eq!(read(base.path().join("a")).unwrap(), b"half");

    let third = Part::lasting(&dir, b"a", &FRESH).unwrap();
    std::fs::remove_file(base.path().join(&name)).unwrap();
    write(base.path().join(&name), b"theirs").unwrap();
    third.discard();
    assert_eq!(read(base.path().join(&name)).unwrap(), b"theirs");
}

#[test]
fn give_up__keeps_what_there_is_on_a_full_disk_only() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    for (cause, kept) in [(Cause::NoSpace, true), (Cause::DigestMismatch, false)] {
        let mut part = Part::lasting(&dir, b"a", &FRESH).unwrap();
        part.write(b"half", 0).unwrap();
        // As late as possible: everything but the name was set.
        part.settle(4, &META, false).unwrap();
        part.give_up(&cause);
        drop(part);
        let next = Part::lasting(&dir, b"a", &RESUME).unwrap();
        assert_eq!(next.left_over(), if kept { 4 } else { 0 });
        next.discard();
        assert_eq!(names(base.path()), [""; 0]);
    }
}

#[test]
fn discard__leaves_the_target_alone() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    write(base.path().join("a"), b"old").unwrap();
    for mut part in each(&dir, b"a") {
        part.write(b"new", 0).unwrap();
        part.discard();
    }
    assert_eq!(names(base.path()), ["a"]);
    assert_eq!(read(base.path().join("a")).unwrap(), b"old");
}

#[test]
fn lasting__another_copy_is_refused_until_it_ends() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    let first = Part::lasting(&dir, b"a", &FRESH).unwrap();
    let second = Part::lasting(&dir, b"a", &FRESH);
    assert_eq!(second.unwrap_err(), Cause::Busy);
    drop(first);
    Part::lasting(&dir, b"a", &FRESH).unwrap();
}

#[test]
fn lasting__leftover_is_kept_only_for_resume() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    let name = leave(&dir, b"a", b"left");
    assert_eq!(Part::lasting(&dir, b"a", &RESUME).unwrap().left_over(), 4);
    assert_eq!(read(base.path().join(&name)).unwrap(), b"left");
    assert_eq!(Part::lasting(&dir, b"a", &FRESH).unwrap().left_over(), 0);
    assert_eq!(read(base.path().join(&name)).unwrap(), b"");
    assert_eq!(names(base.path()), [name]);
}

#[test]
fn lasting__leftover_goes_when_a_small_file_or_a_link_takes_its_place() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    leave(&dir, b"a", b"left");
    let part = Part::brief(&dir, b"a").unwrap();
    part.commit(0, &META, &FRESH).unwrap();
    assert_eq!(names(base.path()), ["a"]);
    leave(&dir, b"a", b"left");
    make_link(dir.as_fd(), b"a", b"x", &META, &FRESH, None).unwrap();
    assert_eq!(names(base.path()), ["a"]);
    // Unless another copy writes it.
    let lasting = Part::lasting(&dir, b"a", &FRESH).unwrap();
    let part = Part::brief(&dir, b"a").unwrap();
    part.commit(0, &META, &FRESH).unwrap();
    lasting.commit(0, &META, &FRESH).unwrap();
    assert_eq!(names(base.path()), ["a"]);
}

#[test]
fn lasting__what_cannot_be_replaced() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    let refused = |name, options| Part::lasting(&dir, name, options).unwrap_err();
    std::fs::create_dir(base.path().join("dir")).unwrap();
    assert_eq!(refused(b"dir", &FRESH), Cause::IsADirectory);
    write(base.path().join("ro"), b"x").unwrap();
    set_permissions(base.path().join("ro"), Permissions::from_mode(0o444)).unwrap();
    assert_eq!(refused(b"ro", &FRESH), Cause::ReadOnly);
    Part::lasting(&dir, b"ro", &FORCE).unwrap().discard();
    assert_eq!(names(base.path()), ["dir", "ro"]);
}

#[test]
fn commit__target_that_is_a_link_is_replaced_not_followed() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    write(base.path().join("victim"), b"precious").unwrap();
    for mut part in each(&dir, b"a") {
        let _ = std::fs::remove_file(base.path().join("a"));
        symlink("victim", base.path().join("a")).unwrap();
        part.write(b"mine", 0).unwrap();
        part.commit(4, &META, &FRESH).unwrap();
        assert_eq!(read(base.path().join("victim")).unwrap(), b"precious");
        assert!(base.path().join("a").symlink_metadata().unwrap().is_file());
    }
}

#[test]
fn make_hole__only_where_something_was_left() {
    let base = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = open(base.path());
    leave(&dir, b"a", &[9; 3 * 4096]);
    let mut part = Part::lasting(&dir, b"a", &RESUME).unwrap();
    part.make_hole(4096, 4096).unwrap();
    part.make_hole(1 << 30, 4096).unwrap();
    part.commit(3 * 4096, &META, &FRESH).unwrap();
    let bytes = read(base.path().join("a")).unwrap();
    assert!(bytes[..4096].iter().chain(&bytes[8192..]).all(|&b| b == 9));
    assert!(bytes[4096..8192].iter().all(|&b| b == 0));
    assert_eq!(
        base.path().join("a").metadata().unwrap().blocks() * 512,
        8192
    );
}

#[test]
fn make_link__replaces_a_link() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    symlink("old", base.path().join("a")).unwrap();
    make_link(dir.as_fd(), b"a", b"../new\xff", &META, &FRESH, None).unwrap();
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
        make_link(dir.as_fd(), b"a", b"x", &META, &FRESH, None),
        Err(Cause::IsADirectory)
    );
}

#[test]
fn make_link__is_on_the_disk_if_it_is_to_be_durable() {
    let base = tempfile::tempdir().unwrap();
    // A descriptor that cannot be synced shows that a sync was tried.
    let flags = fs::OFlags::PATH | fs::OFlags::DIRECTORY;
    let dir = fs::open(base.path(), flags, Mode::empty()).unwrap();
    make_link(dir.as_fd(), b"a", b"x", &META, &FRESH, None).unwrap();
    let durable = CopyOptions {
        durable: true,
        ..FRESH
    };
    let made = make_link(dir.as_fd(), b"b", b"x", &META, &durable, None);
    assert_eq!(made, Err(Cause::from(Errno::BADF)));
    make_link(open(base.path()).as_fd(), b"b", b"x", &META, &durable, None).unwrap();
}
