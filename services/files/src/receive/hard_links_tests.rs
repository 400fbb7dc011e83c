//! Tests that hard links are made only to the right files.

#![allow(non_snake_case)]

use super::*;
use crate::digest::Digester;
use crate::message::{Attributes, Feedback, Record, Totals};
use crate::receive::Role;
use crate::receive::kept::tests::receive_as;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::slice::from_ref;
use std::time::SystemTime;

const KEPT: Attributes = Attributes {
    hard_links: true,
    ..Attributes::NONE
};

const META: Meta = Meta {
    mode: 0o644,
    mtime_seconds: 1,
    mtime_nanoseconds: 0,
    owner: None,
};

/// An empty file.
fn file(name: &[u8]) -> Record<'_> {
    Record::File {
        name,
        meta: META,
        size: 0,
        digest: Digester::fixed().digest(b""),
    }
}

/// A directory that other users can enter.
fn enter(name: &[u8]) -> Record<'_> {
    let meta = Meta {
        mode: 0o755,
        ..META
    };
    Record::Enter { name, meta }
}

fn link<'a>(name: &'a [u8], level: u32, first: &'a [u8]) -> Record<'a> {
    Record::HardLink {
        name,
        level,
        first,
        size: 0,
        meta: META,
        before: false,
    }
}

fn before<'a>(name: &'a [u8], first: &'a [u8]) -> Record<'a> {
    match link(name, 0, first) {
        Record::HardLink {
            name,
            level,
            first,
            size,
            meta,
            ..
        } => Record::HardLink {
            name,
            level,
            first,
            size,
            meta,
            before: true,
        },
        other => other,
    }
}

fn inode(path: impl AsRef<Path>) -> u64 {
    path.as_ref().symlink_metadata().unwrap().ino()
}

/// An empty file with the time of the received ones.
fn put(path: impl AsRef<Path>) {
    let file = File::create(path).unwrap();
    let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
    file.set_modified(time).unwrap();
}

/// The totals, and the causes of failures.
fn receive(role: Role, base: &Path, records: &[Record<'_>]) -> (Totals, Vec<Cause>) {
    let (received, said) = receive_as(role, base, KEPT, records);
    let causes = said.into_iter().flat_map(|it| match it {
        Feedback::Failed { failures, .. } => failures,
        _ => Vec::new(),
    });
    (received.unwrap(), causes.map(|it| it.cause).collect())
}

#[test]
fn hard_link__of_what_came_wherever_it_is() {
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().join(name);
    let records = [
        Record::Shared,
        file(b"a"),
        enter(b"d"),
        link(b"b", 0, b"a"),
        Record::Shared,
        file(b"c"),
        enter(b"e"),
        link(b"c", 1, b"c"),
        link(b"a", 0, b"a"),
        Record::Leave,
        Record::Leave,
        link(b"c", 0, b"d/e/c"),
    ];
    let (totals, causes) = receive(Role::Asks, base.path(), &records);
    assert_eq!(causes, []);
    assert_eq!((totals.files, totals.hard_links, totals.bytes), (6, 4, 0));
    assert_eq!(inode(at("a")), inode(at("d/b")));
    assert_eq!(inode(at("a")), inode(at("d/e/a")));
    assert_eq!(inode(at("c")), inode(at("d/c")));
    assert_eq!(inode(at("c")), inode(at("d/e/c")));
    assert_ne!(inode(at("a")), inode(at("c")));
}

#[test]
fn hard_link__never_unless_asked_for_or_out_of_the_target() {
    let base = tempfile::tempdir().unwrap();
    let target = base.path().join("target");
    fs::create_dir(&target).unwrap();
    put(base.path().join("outside"));
    let outside = base.path().join("outside");
    let absolute = std::os::unix::ffi::OsStrExt::as_bytes(outside.as_os_str());
    for (attributes, record) in [
        (Attributes::NONE, Record::Shared),
        (Attributes::NONE, link(b"n", 0, b"a")),
        (KEPT, link(b"n", 0, b"../outside")),
        (KEPT, link(b"n", 0, absolute)),
        (KEPT, link(b"n", 0, b"")),
        (KEPT, link(b"n", 0, b".")),
        (KEPT, link(b"n", 0, b"..")),
        (KEPT, link(b"n", 0, b"a/")),
        (KEPT, link(b"n", 0, b"a\0")),
        (KEPT, link(b"n", 1, b"a")),
        (KEPT, link(b"n", u32::MAX, b"a")),
        (KEPT, link(b"../n", 0, b"a")),
        (KEPT, before(b"n", b"../outside")),
    ] {
        for role in [Role::Asks, Role::Tells] {
            let (received, _) = receive_as(role, &target, attributes, from_ref(&record));
            assert!(matches!(received, Err(Error::Protocol(_))), "{record:?}");
        }
    }
    assert_eq!(target.read_dir().unwrap().count(), 0);
}

#[test]
fn hard_link__of_nothing_else_than_what_came() {
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().join(name);
    put(at("foreign"));
    fs::create_dir(at("directory")).unwrap();
    symlink("foreign", at("symlink")).unwrap();
    symlink("directory", at("symlinked")).unwrap();
    put(at("directory/x"));
    let records = [
        // An unannounced name, a failed one, and one whose announcement another file has used up.
        file(b"came"),
        Record::Shared,
        Record::File {
            name: b"failed",
            meta: META,
            size: 0,
            digest: [1; 32],
        },
        Record::Shared,
        Record::Unreadable {
            name: b"unreadable",
            cause: Cause::NotFound,
        },
        file(b"after"),
    ];
    let of = [
        "foreign",
        "directory",
        "directory/x",
        "symlink",
        "symlinked/x",
        "came",
        "failed",
        "after",
        "none",
        "none/x",
        "came/x",
        "new",
    ];
    for first in of {
        for role in [Role::Asks, Role::Tells] {
            let mut records = records.to_vec();
            records.push(link(b"new", 0, first.as_bytes()));
            let (totals, causes) = receive(role, base.path(), &records);
            let expected = [Cause::DigestMismatch, Cause::FirstNotThere];
            assert_eq!(causes, expected, "{first}");
            assert_eq!((totals.files, totals.hard_links), (2, 0));
            assert!(at("new").symlink_metadata().is_err());
        }
    }
    // For a server that claims that it existed before, the same.
    let said = [before(b"new", b"foreign")];
    let (_, causes) = receive(Role::Asks, base.path(), &said);
    assert_eq!(causes, [Cause::FirstNotThere]);
    assert_eq!(base.path().read_dir().unwrap().count(), 6);
}

#[test]
fn hard_link__of_what_a_client_found_unchanged() {
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().join(name);
    put(at("a"));
    fs::create_dir(at("directory")).unwrap();
    symlink("a", at("symlink")).unwrap();
    symlink("directory", at("symlinked")).unwrap();
    put(at("directory/x"));
    let (totals, causes) = receive(Role::Tells, base.path(), &[before(b"b", b"a")]);
    assert_eq!((causes, totals.hard_links), (vec![], 1));
    assert_eq!(inode(at("a")), inode(at("b")));
    for first in ["directory", "symlink", "symlinked/x", "none"] {
        let said = [before(b"c", first.as_bytes())];
        let (_, causes) = receive(Role::Tells, base.path(), &said);
        assert_eq!(causes, [Cause::FirstNotThere], "{first}");
    }
    // It is no longer the same, by its time or its size.
    for change in [0, 1] {
        match change {
            0 => drop(File::create(at("a")).unwrap()),
            _ => fs::write(at("a"), b"longer").unwrap(),
        }
        let (_, causes) = receive(Role::Tells, base.path(), &[before(b"c", b"a")]);
        assert_eq!(causes, [Cause::ChangedSinceListed]);
    }
    assert!(at("c").symlink_metadata().is_err());
}

#[test]
fn hard_link__takes_the_place_of_what_is_there() {
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().join(name);
    fs::write(at("file"), b"other").unwrap();
    symlink("file", at("symlink")).unwrap();
    fs::create_dir(at("directory")).unwrap();
    fs::write(at("read-only"), b"other").unwrap();
    fs::set_permissions(at("read-only"), fs::Permissions::from_mode(0o444)).unwrap();
    let names = [&b"file"[..], b"symlink", b"directory", b"read-only", b"new"];
    let mut records = vec![Record::Shared, file(b"a")];
    records.extend(names.map(|name| link(name, 0, b"a")));
    // Again: the link exists already.
    records.push(link(b"file", 0, b"a"));
    records.push(link(b"a", 0, b"a"));
    let (totals, causes) = receive(Role::Asks, base.path(), &records);
    assert_eq!(causes, [Cause::IsADirectory, Cause::ReadOnly]);
    assert_eq!(totals.hard_links, 5);
    for name in ["file", "symlink", "new"] {
        assert_eq!(inode(at("a")), inode(at(name)), "{name}");
    }
    assert_eq!(at("a").metadata().unwrap().nlink(), 4);
    // No entry with a random name is left.
    assert_eq!(base.path().read_dir().unwrap().count(), 6);
}

#[test]
fn put_link__to_another_file_system_or_of_another_file() {
    let (here, there) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir_in("/dev/shm"),
    );
    let there = there.unwrap();
    put(here.path().join("a"));
    put(here.path().join("b"));
    let open = |path: &Path| OwnedFd::from(File::open(path).unwrap());
    let (from, to) = (open(here.path()), open(there.path()));
    let of = |name: &[u8]| identity(&stat_at(&from, name).unwrap());
    // By now another file is there.
    let outcome = put_link((&from, b"a"), of(b"b"), &from, b"c");
    assert_eq!(outcome, Err(Cause::FirstNotThere));
    assert_eq!(here.path().read_dir().unwrap().count(), 2);
    if of(b"a").0 == identity(&rustix::fs::fstat(&to).unwrap()).0 {
        eprintln!("skipped: there is one file system only");
        return;
    }
    let outcome = put_link((&from, b"a"), of(b"a"), &to, b"c");
    assert_eq!(outcome, Err(Cause::NoHardLink));
    assert_eq!(there.path().read_dir().unwrap().count(), 0);
}
