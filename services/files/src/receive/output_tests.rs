//! Tests that a stream is passed on only as far as it was verified.

#![allow(non_snake_case)]
use super::*;
use crate::copy_tests::{fed, pack};
use crate::message::Meta;
use rustix::fs::{CWD, FileType, Mode};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

const STREAM: Record<'static> = Record::Stream {
    name: b"-",
    meta: Meta {
        mode: 0,
        mtime_seconds: 0,
        mtime_nanoseconds: 0,
        owner: None,
    },
};

/// A part with these bytes, and with the digest of `meant`.
fn part(bytes: &[u8], meant: &[u8]) -> (Record<'static>, Vec<u8>) {
    let digest = Digester::fixed().digest(meant);
    let size = bytes.len() as u32;
    (Record::Part { size, digest }, bytes.to_vec())
}

/// Receives these records, each in a pack of its own; returns the output and the result.
fn receive(records: Vec<(Record<'static>, Vec<u8>)>) -> (Vec<u8>, Result<Totals, Error>) {
    let packs = records
        .into_iter()
        .map(|(record, bytes)| pack(&[record], &bytes));
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut reached = Reached::default();
    let done = fed(packs.collect(), |port| {
        let receiver = StreamReceiver {
            port,
            observer: &(),
            digester: Digester::fixed(),
            out: file.as_file().as_fd(),
            reached: &mut reached,
            path: b"s",
        };
        receiver.receive()
    });
    (std::fs::read(file.path()).unwrap(), done)
}

fn whole() -> Vec<u8> {
    vec![7; UNIT_BYTES]
}

fn closed(parts: &[&[u8]]) -> (Record<'static>, Vec<u8>) {
    let mut position = crate::position::Position::default();
    for part in parts {
        position.pass(Step::Entry, &Digester::fixed().digest(part));
    }
    let digest = position.digest();
    (Record::Close { digest }, vec![])
}

fn none(record: Record<'static>) -> (Record<'static>, Vec<u8>) {
    (record, vec![])
}

#[test]
fn receive__parts_in_order() {
    let (out, done) = receive(vec![
        none(STREAM),
        part(&whole(), &whole()),
        part(b"end", b"end"),
        closed(&[&whole(), b"end"]),
        none(Record::Finish),
    ]);
    assert_eq!(out, [&whole()[..], b"end"].concat());
    let totals = done.unwrap();
    assert_eq!(
        (totals.files, totals.failed, totals.bytes),
        (1, 0, out.len() as u64)
    );
}

#[test]
fn receive__nothing_leaves_from_a_part_that_is_not_what_was_read_on() {
    let (out, done) = receive(vec![
        none(STREAM),
        part(&whole(), &whole()),
        part(&whole(), b"other"),
        part(b"end", b"end"),
        closed(&[&whole(), &whole(), b"end"]),
        none(Record::Finish),
    ]);
    assert_eq!(out, whole());
    let totals = done.unwrap();
    assert_eq!((totals.files, totals.failed), (0, 1));
    // Correct parts, but one is missing.
    let (_, done) = receive(vec![
        none(STREAM),
        part(&whole(), &whole()),
        closed(&[&whole(), b"end"]),
        none(Record::Finish),
    ]);
    assert_eq!(done.unwrap().failed, 1);
}

#[test]
fn receive__what_is_out_of_order_ends_it() {
    let stream = || none(STREAM);
    let end = || part(b"end", b"end");
    for records in [
        vec![end()],
        vec![stream(), stream()],
        vec![stream(), none(Record::Finish)],
        vec![stream(), end(), end()],
        vec![stream(), part(b"", b"")],
        vec![stream(), none(Record::Leave)],
        vec![stream(), (Record::Finish, b"more".to_vec())],
    ] {
        let said = format!("{:?}", records.iter().map(|it| &it.0).collect::<Vec<_>>());
        let (_, done) = receive(records);
        assert!(matches!(done, Err(Error::Protocol(_))), "{said}: {done:?}");
    }
    // The connection ends before the stream does.
    let (out, done) = receive(vec![stream(), part(&whole(), &whole())]);
    assert!(matches!(done, Err(Error::PeerGone)), "{done:?}");
    assert_eq!(out, whole());
}

/// Reading and writing ends: of a pipe, whose free room can be used exactly, and of a FIFO, whose cannot.
fn pipes() -> [(File, File); 2] {
    let (reader, writer) = std::io::pipe().unwrap();
    let [reader, writer] = [OwnedFd::from(reader), OwnedFd::from(writer)].map(File::from);
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("fifo");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let fifo = || File::options().read(true).write(true).open(&path).unwrap();
    [(reader, writer), (fifo(), fifo())]
}

#[test]
fn write_all__all_of_it_arrives() {
    let content: Vec<u8> = (0..UNIT_BYTES / 4)
        .flat_map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    for (mut reader, writer) in pipes() {
        let mut arrived = vec![0; content.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| reader.read_exact(&mut arrived).unwrap());
            write_all(writer.as_fd(), &content, || Ok(())).unwrap();
        });
        assert!(arrived == content);
    }
}

#[test]
fn receive__a_stop_ends_it_while_nobody_reads() {
    const LONG: Duration = Duration::from_secs(60);
    for (_reader, writer) in pipes() {
        let other = writer.try_clone().unwrap();
        let (stop, (ended, ends)) = (crate::stop::Stop::default(), std::sync::mpsc::channel());
        let heard = stop.clone();
        std::thread::spawn(move || {
            let written = write_all(writer.as_fd(), &whole(), || heard.check());
            ended.send(written).unwrap();
        });
        let is_full = || {
            let mut ready = [PollFd::new(&other, PollFlags::OUT)];
            poll(&mut ready, Some(&Timespec::default())).unwrap() == 0
        };
        while !is_full() {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.request();
        let written = ends.recv_timeout(LONG).unwrap();
        assert!(matches!(written, Err(Error::Stopped)), "{written:?}");
    }
}
