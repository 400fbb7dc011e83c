//! Tests that files in link directories are linked or copied only if unchanged.

#![allow(non_snake_case)]

use super::*;
use crate::digest::Digester;
use crate::error::Failure;
use crate::limits::{BUFFER_BYTES, CONTROL_BYTES, PATH_BYTES};
use crate::message::{CopyOptions, Record, Totals};
use crate::observe::Observer;
use crate::pack::PackWriter;
use crate::port::{Buffer, Filled, port};
use crate::reached::Reached;
use crate::receive::{Role, TopLevel};
use crate::root::meta_of;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Mutex;

#[derive(Default)]
struct Failures(Mutex<Vec<Cause>>);

impl Observer for Failures {
    fn failed(&self, failure: &Failure) {
        self.0.lock().unwrap().push(failure.cause.clone());
    }
}

/// Receives a record into `t` below `base`, as a sync with the link directories `old` and a missing one.
fn receive(base: &Path, record: &Record<'_>) -> (Result<Totals, Error>, Vec<Cause>) {
    let control = (0..2).map(|_| Buffer::anonymous(CONTROL_BYTES).unwrap());
    let (port, end) = port(control.collect(), vec![], Arc::default(), || {});
    let mut buffer = Buffer::anonymous(BUFFER_BYTES).unwrap();
    let mut pack = PackWriter::default();
    pack.add(record, 0).unwrap();
    pack.add(&Record::Finish, 0).unwrap();
    let len = pack.finish(&mut buffer);
    end.events.arrived(Filled { buffer, len });
    let failures = Failures::default();
    let open = |name: &str| File::open(base.join(name)).unwrap().into();
    let to = (open("t"), TopLevel::Any);
    let mut reached = Reached::default();
    let role = (Role::Asks, &mut reached);
    let (options, digester) = (CopyOptions::default(), Digester::fixed());
    let received = FileReceiver::new(port, &failures, options, digester, to, role)
        .linking_from(vec![Some(open("old")), None])
        .replacing()
        .receive_all();
    (received, failures.0.into_inner().unwrap())
}

/// base/{t/, old/{file, d/file, out -> /tmp, in -> d}}
fn trees() -> (tempfile::TempDir, Meta) {
    let base = tempfile::tempdir().unwrap();
    fs::create_dir(base.path().join("t")).unwrap();
    fs::create_dir_all(base.path().join("old/d")).unwrap();
    for name in ["old/file", "old/d/file"] {
        fs::write(base.path().join(name), b"12345").unwrap();
        let file = File::options().write(true).open(base.path().join(name));
        let time = std::time::SystemTime::UNIX_EPOCH;
        file.unwrap().set_modified(time).unwrap();
    }
    symlink("d", base.path().join("old/in")).unwrap();
    symlink("file", base.path().join("old/link")).unwrap();
    let file = File::open(base.path().join("old/file")).unwrap();
    let was = meta_of(&fstat(file).unwrap());
    (base, was)
}

fn same(path: &[u8], directory: u8, size: u64, was: Meta) -> Record<'_> {
    Record::Same {
        name: b"new",
        directory,
        path,
        size,
        meta: was,
        was,
    }
}

#[test]
fn same__links_what_was_compared_and_nothing_else() {
    let (base, was) = trees();
    let new = base.path().join("t/new");
    let later = Meta {
        mtime_nanoseconds: 1,
        ..was
    };
    let other_mode = Meta {
        mode: was.mode ^ 0o040,
        ..was
    };
    for (path, directory, size, was) in [
        (&b"none"[..], 0, 5, was),
        (b"file", 1, 5, was),
        (b"file", 0, 6, was),
        (b"file", 0, 5, later),
        (b"file", 0, 5, other_mode),
        (b"d", 0, 5, was),
        (b"in/file", 0, 5, was),
        (b"link", 0, 5, was),
        (b"file/file", 0, 5, was),
    ] {
        let (received, failures) = receive(base.path(), &same(path, directory, size, was));
        assert_eq!(received.unwrap().failed, 1);
        assert_eq!(
            failures,
            [Cause::ChangedSinceListed],
            "{}",
            path.escape_ascii()
        );
        assert!(!new.exists());
    }
    fs::write(&new, b"in the way").unwrap();
    for path in [&b"file"[..], b"d/file", b"d/file"] {
        let (received, failures) = receive(base.path(), &same(path, 0, 5, was));
        let totals = received.unwrap();
        assert_eq!((totals.files, totals.hard_links, totals.bytes), (1, 1, 0));
        assert!(failures.is_empty());
        let name = std::str::from_utf8(path).unwrap();
        let old = base.path().join("old").join(name).metadata().unwrap();
        assert_eq!(new.metadata().unwrap().ino(), old.ino());
    }
    assert_eq!(fs::read_dir(base.path().join("t")).unwrap().count(), 1);
}

#[test]
fn same__of_a_path_or_directory_that_cannot_be_ends_the_copy() {
    let (base, was) = trees();
    let long = vec![b'x'; PATH_BYTES + 1];
    for (path, directory) in [
        (&b"file"[..], 2),
        (b"file", u8::MAX),
        (b"../old/file", 0),
        (b"/etc/passwd", 0),
        (b"", 0),
        (b"d/", 0),
        (b"d/..", 0),
        (b"a\0b", 0),
        (&long, 0),
    ] {
        let (received, _) = receive(base.path(), &same(path, directory, 5, was));
        assert!(matches!(received, Err(Error::Protocol(_))), "{received:?}");
    }
    assert_eq!(fs::read_dir(base.path().join("t")).unwrap().count(), 0);
}

/// Permissions of a file that another tree has, too.
#[test]
fn settle__leaves_other_names_of_the_file_as_they_are() {
    let (base, was) = trees();
    let (old, new) = (base.path().join("old/file"), base.path().join("t/file"));
    fs::hard_link(&old, &new).unwrap();
    let meta = Meta {
        mode: 0o600,
        mtime_seconds: 1_000_000,
        ..was
    };
    let settle = Record::SetAttributes {
        name: b"file",
        size: 5,
        meta,
        was,
    };
    let (received, failures) = receive(base.path(), &settle);
    assert_eq!((received.unwrap().failed, failures), (0, vec![]));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&new), 0o600);
    assert_eq!(mode(&old), was.mode & 0o777);
    assert_eq!(old.metadata().unwrap().mtime(), was.mtime_seconds);
    assert_eq!(new.metadata().unwrap().mtime(), 1_000_000);
    assert_eq!(fs::read(&new).unwrap(), b"12345");
    assert_eq!(old.metadata().unwrap().nlink(), 1);
}
