//! Tests that mapped files work as memory, and that a Transfer fails if its file shrinks.

use crate::content;
use crate::drive::{both, next, receive_all, send_all};
use crate::path::{Pair, Path, plain};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek, Write};
use std::os::unix::fs::FileExt;
use std::process::Command;
use zerolane::failure::{Reason, TransferError};
use zerolane::memory::Access;
use zerolane::{Options, Region};

const FAULT: TransferError = TransferError::Refused(Reason::MemoryFault);

fn open(dir: &tempfile::TempDir, name: &str) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(dir.path().join(name)).expect("opened")
}

/// A file of `len` bytes with the content of the Transfer `seed`.
fn file_with(dir: &tempfile::TempDir, seed: u64, len: usize) -> File {
    let mut bytes = vec![0; len];
    content::fill(seed, &mut bytes);
    let mut file = open(dir, "source");
    file.write_all(&bytes).expect("written");
    file
}

fn empty_file(dir: &tempfile::TempDir, len: u64) -> File {
    let file = open(dir, "target");
    file.set_len(len).expect("sized");
    file
}

const PATHS: [Path; 5] = [
    Path::LoopbackV4,
    Path::Shared,
    Path::Veth(1500),
    Path::Ethernet(1500),
    Path::Lossy(0.05),
];

/// Each of these paths, encrypted and plain: the kernel places payload in the file only if it is plain.
fn ways() -> impl Iterator<Item = (Path, Options)> {
    PATHS
        .into_iter()
        .flat_map(|path| [(path, Options::default()), (path, plain())])
}

#[test]
fn map_file__from_disk_to_disk() {
    for (path, options) in ways() {
        let Some(mut pair) = path.connect(&options) else {
            continue;
        };
        let dir = tempfile::tempdir().expect("made");
        let len = path.scale(8 << 20) + 123;
        let source = file_with(&dir, 1, len);
        let target = empty_file(&dir, len as u64);
        let sends = |a: &mut zerolane::Connection| {
            let region = Region::map_file(&source, 0, len, Access::Read).expect("mapped");
            a.post_send(region).expect("posted");
            assert_eq!(next(a).result, Ok(len));
        };
        let receives = |b: &mut zerolane::Connection| {
            // Two ranges of one file, the second one not at the start of a page.
            let region = Region::map_file(&target, 0, len, Access::Write).expect("mapped");
            b.post_recv(region).expect("posted");
            assert_eq!(next(b).result, Ok(len));
        };
        both(&mut pair, sends, receives);
        let on_disk = std::fs::read(dir.path().join("target")).expect("read");
        assert_eq!(on_disk.len(), len);
        content::verify(1, &on_disk);
    }
}

#[test]
fn map_file__at_any_offset() {
    let pair = Path::LoopbackV4.connect(&Options::default());
    let mut pair = pair.expect("always permitted");
    let dir = tempfile::tempdir().expect("made");
    let target = empty_file(&dir, 30_000);
    let receives = |b: &mut zerolane::Connection| {
        for (offset, len) in [(5001, 10_000), (0, 5001), (15_001, 14_999)] {
            let region = Region::map_file(&target, offset, len, Access::Write).expect("mapped");
            b.post_recv(region).expect("posted");
        }
        for _ in 0..3 {
            next(b).result.expect("received");
        }
    };
    both(
        &mut pair,
        |a| send_all(a, 7, &[10_000, 5001, 14_999]),
        receives,
    );
    let on_disk = std::fs::read(dir.path().join("target")).expect("read");
    content::verify(8, &on_disk[..5001]);
    content::verify(7, &on_disk[5001..15_001]);
    content::verify(9, &on_disk[15_001..]);
}

/// A loop device over a file; detached when dropped.
struct Device(String);

impl Device {
    /// Makes one over a file of `len` bytes.
    fn new(dir: &tempfile::TempDir, name: &str, len: u64) -> Option<Device> {
        open(dir, name).set_len(len).expect("sized");
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(dir.path().join(name))
            .output();
        match made {
            Ok(made) if made.status.success() => {
                let name = String::from_utf8(made.stdout).expect("a name");
                Some(Device(name.trim().to_owned()))
            }
            why => {
                eprintln!("skipped: devices are made by root: {why:?}");
                None
            }
        }
    }

    fn open(&self) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options.open(&self.0).expect("opened")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn map_file__from_device_to_device() {
    const LEN: usize = 4 << 20;
    let dir = tempfile::tempdir().expect("made");
    let devices = ["source", "target"].map(|name| Device::new(&dir, name, LEN as u64));
    let [Some(source), Some(target)] = devices else {
        return;
    };
    let mut bytes = vec![0; LEN];
    content::fill(1, &mut bytes);
    source.open().write_all(&bytes).expect("written");
    let (source, target) = (source.open(), target.open());
    let beyond = Region::map_file(&source, 1, LEN, Access::Read);
    assert_eq!(beyond.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    for options in [Options::default(), plain()] {
        let Some(mut pair) = Path::Veth(1500).connect(&options) else {
            return;
        };
        (&target).rewind().expect("at its start");
        (&target).write_all(&vec![0; LEN]).expect("written");
        let sends = |a: &mut zerolane::Connection| {
            let region = Region::map_file(&source, 0, LEN, Access::Read).expect("mapped");
            a.post_send(region).expect("posted");
            assert_eq!(next(a).result, Ok(LEN));
        };
        let receives = |b: &mut zerolane::Connection| {
            let region = Region::map_file(&target, 0, LEN, Access::Write).expect("mapped");
            b.post_recv(region).expect("posted");
            assert_eq!(next(b).result, Ok(LEN));
        };
        both(&mut pair, sends, receives);
        bytes.fill(0);
        target.read_exact_at(&mut bytes, 0).expect("read");
        content::verify(1, &bytes);
    }
}

/// With and without access to the payload in user space: encryption and checksums read it, losses move it.
fn faulty_ways() -> impl Iterator<Item = (Path, Options)> {
    let summed = PATHS.into_iter().map(|path| {
        let checksum = true;
        let plain = plain();
        (path, plain.with(|it| it.datagrams.checksum = checksum))
    });
    ways().chain(summed)
}

#[test]
fn fault__source_truncated_fails_that_transfer_alone() {
    for (path, options) in faulty_ways() {
        let Some(mut pair) = path.connect(&options) else {
            continue;
        };
        let dir = tempfile::tempdir().expect("made");
        let len = path.scale(64 << 20);
        let source = file_with(&dir, 1, len);
        let sends = |a: &mut zerolane::Connection| {
            let region = Region::map_file(&source, 0, len, Access::Read).expect("mapped");
            let id = a.post_send(region).expect("posted");
            while a.account().bytes_sent == 0 {
                assert!(a.poll().expect("connected").is_none());
            }
            source.set_len(1000).expect("truncated");
            let completion = next(a);
            assert_eq!((completion.id, completion.result), (id, Err(FAULT)));
            send_all(a, 2, &[50_000, 1]);
        };
        let receives = |b: &mut zerolane::Connection| {
            b.post_recv(Region::anonymous(len).expect("memory"))
                .expect("posted");
            assert_eq!(next(b).result, Err(FAULT));
            receive_all(b, 2, &[50_000, 1]);
        };
        both(&mut pair, sends, receives);
    }
}

#[test]
fn fault__target_truncated_fails_that_transfer_alone() {
    for (path, options) in faulty_ways() {
        let Some(mut pair) = path.connect(&options) else {
            continue;
        };
        let dir = tempfile::tempdir().expect("made");
        let len = path.scale(64 << 20);
        let target = empty_file(&dir, len as u64);
        let sends = |a: &mut zerolane::Connection| {
            a.post_send(content::region(1, len)).expect("posted");
            assert_eq!(next(a).result, Err(FAULT));
            send_all(a, 2, &[50_000, 1]);
        };
        let receives = |b: &mut zerolane::Connection| {
            let region = Region::map_file(&target, 0, len, Access::Write).expect("mapped");
            let id = b.post_recv(region).expect("posted");
            while b.account().protocol.bytes_received == 0 {
                assert!(b.poll().expect("connected").is_none());
            }
            target.set_len(1000).expect("truncated");
            let completion = next(b);
            assert_eq!((completion.id, completion.result), (id, Err(FAULT)));
            receive_all(b, 2, &[50_000, 1]);
        };
        both(&mut pair, sends, receives);
    }
}

#[test]
fn fault__neighbours_in_flight_are_spared() {
    for (gro, base) in [
        (true, plain()),
        (false, plain()),
        (true, Options::default()),
        (false, Options::default()),
    ] {
        let options = base.with(|it| it.datagrams.gro = gro);
        let Some(mut pair) = Path::Veth(1500).connect(&options) else {
            return;
        };
        crate::drive::transfer(&mut pair, 99, &[1]);
        let Pair { a, .. } = &pair;
        // Whole bursts, so that forecasts reach from one Transfer into the next.
        let len = a.account().stu as usize * 64 * 3;
        let dir = tempfile::tempdir().expect("made");
        let target = empty_file(&dir, len as u64);
        let lengths = [len; 5];
        let sends = |a: &mut zerolane::Connection| {
            for (seed, &len) in (10..).zip(&lengths) {
                a.post_send(content::region(seed, len)).expect("posted");
            }
            let failed = (0..5).filter(|_| next(a).result == Err(FAULT)).count();
            assert_eq!(failed, 1);
        };
        let receives = |b: &mut zerolane::Connection| {
            let mut posted = Vec::new();
            for index in 0..5 {
                let region = || Region::anonymous(len).expect("memory");
                let mapped = || Region::map_file(&target, 0, len, Access::Write).expect("mapped");
                posted.push(match index {
                    2 => b.post_recv(mapped()).expect("posted"),
                    _ => b.post_recv(region()).expect("posted"),
                });
            }
            target.set_len(0).expect("truncated");
            for _ in 0..5 {
                let completion = next(b);
                let index = posted.iter().position(|&id| id == completion.id);
                match index.expect("posted") {
                    2 => assert_eq!(completion.result, Err(FAULT)),
                    index => {
                        assert_eq!(completion.result, Ok(len), "neighbour {index}");
                        content::verify(
                            10 + index as u64,
                            &completion.into_region().expect("a region"),
                        );
                    }
                }
            }
        };
        both(&mut pair, sends, receives);
    }
}
