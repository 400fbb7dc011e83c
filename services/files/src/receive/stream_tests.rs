//! Tests that a stream becomes a file only when it is complete.

#![allow(non_snake_case)]
use super::super::TopLevel;
use super::*;
use crate::copy_tests::{pack, receive_raw};
use crate::digest::Digester;
use crate::message::{Record, Totals};
use std::fs;
use std::path::Path;

const STREAM: Record<'static> = Record::Stream {
    name: b"-",
    meta: Meta {
        mode: 0o640,
        mtime_seconds: 7,
        mtime_nanoseconds: 0,
        owner: None,
    },
};

/// Receives these records, each in a pack of its own, into `directory`, as `s`.
fn receive(directory: &Path, records: Vec<(Record<'static>, Vec<u8>)>) -> Result<Totals, Error> {
    let packs = records
        .into_iter()
        .map(|(record, bytes)| pack(&[record], &bytes));
    let top = TopLevel::One(b"s".to_vec());
    receive_raw(directory, top, CopyOptions::default(), packs.collect())
}

fn none(record: Record<'static>) -> (Record<'static>, Vec<u8>) {
    (record, vec![])
}

/// A part with these bytes, and with the digest of `meant`.
fn part(bytes: &[u8], meant: &[u8]) -> (Record<'static>, Vec<u8>) {
    let digest = Digester::fixed().digest(meant);
    let size = bytes.len() as u32;
    (Record::Part { size, digest }, bytes.to_vec())
}

fn closed(parts: &[&[u8]]) -> (Record<'static>, Vec<u8>) {
    let mut position = Position::default();
    for part in parts {
        position.pass(Step::Entry, &Digester::fixed().digest(part));
    }
    none(Record::Close {
        digest: position.digest(),
    })
}

fn finished(mut records: Vec<(Record<'static>, Vec<u8>)>) -> Vec<(Record<'static>, Vec<u8>)> {
    records.insert(0, none(STREAM));
    records.push(none(Record::Finish));
    records
}

/// Files in `directory`, with their content.
fn found(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap();
    entries
        .map(|it| it.unwrap())
        .map(|it| {
            (
                it.file_name().into_string().unwrap(),
                fs::read(it.path()).unwrap(),
            )
        })
        .collect()
}

#[test]
fn stream__has_its_name_when_all_of_it_is_right() {
    let directory = tempfile::tempdir().unwrap();
    let whole = vec![7; UNIT_BYTES];
    let records = vec![
        part(&whole, &whole),
        part(b"end", b"end"),
        closed(&[&whole, b"end"]),
    ];
    let totals = receive(directory.path(), finished(records)).unwrap();
    assert_eq!((totals.files, totals.failed), (1, 0));
    assert_eq!(
        found(directory.path()),
        [("s".into(), [&whole[..], b"end"].concat())]
    );
    let totals = receive(directory.path(), finished(vec![closed(&[])])).unwrap();
    assert_eq!((totals.files, totals.bytes), (1, 0));
    assert_eq!(found(directory.path()), [("s".into(), vec![])]);
}

#[test]
fn stream__that_is_not_right_leaves_the_old_file_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("s"), b"old").unwrap();
    let whole = vec![7; UNIT_BYTES];
    for (records, failed) in [
        (vec![part(&whole, b"other"), closed(&[b"other"])], 1),
        (vec![part(&whole, &whole), closed(&[])], 1),
        (
            vec![
                part(b"end", b"end"),
                none(Record::Abandon {
                    cause: Cause::SourceChanged,
                }),
            ],
            1,
        ),
    ] {
        let totals = receive(directory.path(), finished(records)).unwrap();
        assert_eq!((totals.files, totals.failed), (0, failed));
        assert_eq!(found(directory.path()), [("s".into(), b"old".to_vec())]);
    }
    // It ends early.
    let records = vec![none(STREAM), part(&whole, &whole)];
    assert!(matches!(
        receive(directory.path(), records),
        Err(Error::PeerGone)
    ));
    assert_eq!(found(directory.path()), [("s".into(), b"old".to_vec())]);
}

#[test]
fn stream__what_is_out_of_order_ends_the_copy() {
    let directory = tempfile::tempdir().unwrap();
    let end = || part(b"end", b"end");
    let file = Record::Open {
        name: b"f",
        meta: Meta::default(),
        size: 1,
        number: 0,
        resume: false,
    };
    for records in [
        vec![end()],
        vec![none(STREAM), none(STREAM)],
        vec![none(STREAM), none(file)],
        vec![none(STREAM), none(Record::Finish)],
        vec![none(STREAM), none(Record::Run { units: 1 })],
        vec![none(STREAM), end(), end()],
        vec![none(STREAM), part(b"", b"")],
        vec![none(STREAM), closed(&[]), none(STREAM)],
    ] {
        let said = format!("{:?}", records.iter().map(|it| &it.0).collect::<Vec<_>>());
        let done = receive(directory.path(), records);
        assert!(matches!(done, Err(Error::Protocol(_))), "{said}: {done:?}");
    }
}
