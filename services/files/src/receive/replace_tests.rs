//! Tests that a sync changes metadata and exchanges entries safely.

#![allow(non_snake_case)]

use crate::digest::Digester;
use crate::error::{Cause, Error, Failure};
use crate::limits::{BUFFER_BYTES, CONTROL_BYTES};
use crate::message::{CopyOptions, Meta, Record, Totals};
use crate::observe::Observer;
use crate::pack::PackWriter;
use crate::port::{Buffer, Filled, port};
use crate::reached::Reached;
use crate::receive::Role;
use crate::receive::{FileReceiver, TopLevel};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

const RANDOM: &[u8] = b".zlpart-0123456789abcdef0123456789abcdef";

#[derive(Default)]
struct Failures(Mutex<Vec<Cause>>);

impl Observer for Failures {
    fn failed(&self, failure: &Failure) {
        self.0.lock().unwrap().push(failure.cause.clone());
    }
}

/// Receives these records into `base`, as a sync or as another copy.
fn receive(base: &Path, sync: bool, records: &[Record<'_>]) -> (Result<Totals, Error>, Vec<Cause>) {
    let control = (0..2).map(|_| Buffer::anonymous(CONTROL_BYTES).unwrap());
    let (port, end) = port(control.collect(), vec![], Arc::default(), || {});
    let mut buffer = Buffer::anonymous(BUFFER_BYTES).unwrap();
    let mut pack = PackWriter::default();
    for record in records.iter().chain(&[Record::Finish]) {
        pack.add(record, 0).unwrap();
    }
    let len = pack.finish(&mut buffer);
    end.events.arrived(Filled { buffer, len });
    let failures = Failures::default();
    let options = CopyOptions {
        recursive: true,
        ..CopyOptions::default()
    };
    let to = (File::open(base).unwrap().into(), TopLevel::Any);
    let mut reached = Reached::default();
    let role = (Role::Asks, &mut reached);
    let digester = Digester::fixed();
    let receiver = FileReceiver::new(port, &failures, options, digester, to, role);
    let receiver = match sync {
        true => receiver.replacing(),
        false => receiver,
    };
    let received = receiver.receive_all();
    (received, failures.0.into_inner().unwrap())
}

fn meta_of(path: &Path) -> Meta {
    let meta = path.metadata().unwrap();
    Meta {
        mode: meta.mode() & 0o7777,
        mtime_seconds: meta.mtime(),
        mtime_nanoseconds: meta.mtime_nsec() as u32,
        owner: None,
    }
}

fn settling(size: u64, was: Meta) -> Record<'static> {
    let meta = Meta {
        mode: 0o600,
        mtime_seconds: 1_000_000,
        mtime_nanoseconds: 7,
        owner: None,
    };
    Record::SetAttributes {
        name: b"file",
        size,
        meta,
        was,
    }
}

#[test]
fn settle__the_file_that_was_compared_and_no_other() {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("file");
    fs::write(&file, b"12345").unwrap();
    let was = meta_of(&file);
    let earlier = Meta {
        mtime_seconds: was.mtime_seconds - 1,
        ..was
    };
    for other in [settling(4, was), settling(5, earlier)] {
        let (received, failures) = receive(base.path(), true, &[other]);
        assert_eq!(received.unwrap().failed, 1);
        assert_eq!(failures, [Cause::ChangedSinceListed]);
        assert_eq!(meta_of(&file), was);
    }
    let (received, _) = receive(base.path(), true, &[settling(5, was)]);
    assert_eq!(received.unwrap().failed, 0);
    assert_eq!(
        meta_of(&file),
        Meta {
            mode: 0o600,
            mtime_seconds: 1_000_000,
            mtime_nanoseconds: 7,
            owner: None,
        }
    );
}

#[test]
fn settle__never_through_a_link() {
    let base = tempfile::tempdir().unwrap();
    fs::write(base.path().join("other"), b"12345").unwrap();
    std::os::unix::fs::symlink("other", base.path().join("file")).unwrap();
    let was = meta_of(&base.path().join("other"));
    let (received, _) = receive(base.path(), true, &[settling(5, was)]);
    assert_eq!(received.unwrap().failed, 1);
    assert_eq!(meta_of(&base.path().join("other")), was);
}

#[test]
fn leave__sets_any_permissions() {
    let base = tempfile::tempdir().unwrap();
    for mode in [0o600, 0o700, 0o755] {
        let meta = Meta {
            mode,
            ..Meta::default()
        };
        let enter = Record::Enter { name: b"d", meta };
        let (received, _) = receive(base.path(), false, &[enter, Record::Leave]);
        assert_eq!(received.unwrap().failed, 0);
        assert_eq!(meta_of(&base.path().join("d")), meta);
    }
}

#[test]
fn exchange__without_what_is_to_come_nothing_goes() {
    let base = tempfile::tempdir().unwrap();
    fs::create_dir_all(base.path().join("d/full")).unwrap();
    let exchange = Record::Exchange {
        name: b"d",
        with: RANDOM,
    };
    let (received, failures) = receive(base.path(), true, &[exchange]);
    assert_eq!(received.unwrap().failed, 1);
    assert_eq!(failures, [Cause::NoReplacement]);
    assert!(base.path().join("d/full").exists());
}

#[test]
fn replace__in_a_sync_only_and_by_a_random_name_only() {
    let base = tempfile::tempdir().unwrap();
    for name in ["file", "other"] {
        fs::write(base.path().join(name), name).unwrap();
    }
    let was = meta_of(&base.path().join("file"));
    let exchange = |name, with| Record::Exchange { name, with };
    for (sync, record) in [
        (false, settling(4, was)),
        (false, exchange(b"file", RANDOM)),
        (true, exchange(b"file", b"other")),
        (true, exchange(b"../file", RANDOM)),
        (
            true,
            exchange(b"file", b".zlpart-0123456789abcdef0123456789abcde/"),
        ),
    ] {
        let (received, _) = receive(base.path(), sync, std::slice::from_ref(&record));
        assert!(matches!(received, Err(Error::Protocol(_))), "{record:?}");
    }
    for name in ["file", "other"] {
        assert_eq!(fs::read(base.path().join(name)).unwrap(), name.as_bytes());
    }
}
