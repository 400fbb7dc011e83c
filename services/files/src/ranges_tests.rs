//! Tests that ranges of files are read as they are, and that a hostile server cannot pass off others.

#![allow(non_snake_case)]

use crate::client::{Client, Ranges};
use crate::error::{Cause, Error, Refusal};
use crate::limits::{FILE_BYTES, RANGE_BYTES, UNIT_BYTES};
use crate::location::Host;
use crate::message::{
    EntryKind, Meta, RangeReply, RangeRequest, Reply, Request, Status, Version, encode_range,
};
use crate::opening::{hear, say};
use crate::service_tests::{Lab, content};
use crate::stop::Stop;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::thread;
use std::time::Duration;
use zerolane::request::{MAX_CONTROL, Message};
use zerolane::{Endpoint, Options, Region};

const LONG: Duration = Duration::from_secs(20);

/// The bytes of a range with room for `len`.
fn read(ranges: &mut Ranges, path: &str, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
    let memory = Region::anonymous(len).unwrap();
    let range = ranges.read(path.as_bytes(), offset, None, memory)?;
    assert_eq!(range.status.kind, EntryKind::File);
    Ok(range.memory[..range.len as usize].to_vec())
}

fn cause<T: std::fmt::Debug>(result: Result<T, Error>) -> Cause {
    match result {
        Err(Error::Refused(Refusal::Path { cause, .. })) => cause,
        other => panic!("{other:?}"),
    }
}

#[test]
fn read__every_kind_of_range() {
    let lab = Lab::new(true);
    let all = content(3 * UNIT_BYTES + 77);
    fs::write(lab.share("file"), &all).unwrap();
    fs::write(lab.share("empty"), b"").unwrap();
    let mut ranges = lab.client().ranges().unwrap();
    let ends = [
        0,
        1,
        4096,
        UNIT_BYTES - 1,
        UNIT_BYTES,
        2 * UNIT_BYTES + 9,
        all.len() - 1,
    ];
    for start in ends {
        for len in [1, 100, UNIT_BYTES, UNIT_BYTES + 1, all.len()] {
            let part = read(&mut ranges, "file", start as u64, len).unwrap();
            assert!(part == all[start..][..part.len()], "{len} bytes at {start}");
            assert_eq!(part.len(), len.min(all.len() - start));
        }
    }
    for beyond in [all.len() as u64, FILE_BYTES, u64::MAX] {
        assert_eq!(read(&mut ranges, "file", beyond, 10).unwrap(), b"");
    }
    assert_eq!(read(&mut ranges, "empty", 0, UNIT_BYTES + 1).unwrap(), b"");
    let sparse = fs::File::create(lab.share("sparse")).unwrap();
    sparse.set_len(2 * RANGE_BYTES as u64).unwrap();
    let most = read(&mut ranges, "sparse", 5, RANGE_BYTES + 1).unwrap();
    assert_eq!(most, vec![0; RANGE_BYTES]);
}

#[test]
fn wait__without_a_limit() {
    let lab = Lab::new(true);
    fs::write(lab.share("file"), content(300)).unwrap();
    let mut ranges = lab.client().ranges().unwrap();
    let memory = Region::anonymous(300).unwrap();
    ranges.ask(b"file", 0, None, memory).unwrap();
    let range = ranges.wait(Duration::MAX).unwrap().unwrap();
    assert!(range.memory[..range.len as usize] == content(300));
}

#[test]
fn status__of_files_directories_and_links() {
    let lab = Lab::new(true);
    fs::create_dir(lab.share("directory")).unwrap();
    fs::write(lab.share("directory/file"), b"12345").unwrap();
    symlink("directory/file", lab.share("link")).unwrap();
    symlink("nowhere", lab.share("dangling")).unwrap();
    symlink("/etc/passwd", lab.share("out")).unwrap();
    let mut ranges = lab.client().ranges().unwrap();
    for directory in ["", "directory", "directory/"] {
        let status = ranges.status(directory.as_bytes()).unwrap();
        assert_eq!(status.kind, EntryKind::Directory);
    }
    for file in ["directory/file", "link"] {
        let status = ranges.status(file.as_bytes()).unwrap();
        assert_eq!((status.kind, status.size), (EntryKind::File, 5));
    }
    assert_eq!(read(&mut ranges, "link", 1, 3).unwrap(), b"234");
    let mut refused = |path: &str| {
        let status = cause(ranges.status(path.as_bytes()));
        assert_eq!(cause(read(&mut ranges, path, 0, 8)), status, "{path}");
        status
    };
    assert_eq!(refused("none"), Cause::NotFound);
    assert_eq!(refused("dangling"), Cause::LinkToNothing);
    assert_eq!(refused("link/"), Cause::NotADirectory);
    for outside in ["out", "../local", "/etc/passwd"] {
        assert_eq!(refused(outside), Cause::OutsideRoot);
    }
    assert_eq!(
        cause(read(&mut ranges, "directory", 0, 8)),
        Cause::IsADirectory
    );
}

#[test]
fn read__another_version_is_refused_and_the_connection_goes_on() {
    let lab = Lab::new(true);
    fs::write(lab.share("file"), b"first").unwrap();
    let mut ranges = lab.client().ranges().unwrap();
    let version = ranges.status(b"file").unwrap().version;
    let mut again = || ranges.read(b"file", 0, Some(version), Region::anonymous(5).unwrap());
    assert_eq!(again().unwrap().memory[..], *b"first");
    // Another file of the same length.
    fs::write(lab.share("new"), b"other").unwrap();
    fs::rename(lab.share("new"), lab.share("file")).unwrap();
    assert_eq!(cause(again()), Cause::SourceChanged);
    assert!(ranges.is_fresh());
    assert_eq!(read(&mut ranges, "file", 0, 9).unwrap(), b"other");
}

/// The result of a read of 10 bytes at a server that gives this answer.
fn answered(reply: RangeReply, payload: &'static [u8]) -> Result<Vec<u8>, Error> {
    let mut endpoint = Endpoint::bind((Ipv4Addr::LOCALHOST, 0), Options::default()).unwrap();
    let address = endpoint.local_addr();
    let server = thread::spawn(move || {
        let mut connection = endpoint.accept(Some(LONG)).unwrap().unwrap();
        let stop = Stop::default();
        let request: Request = hear(&mut connection, &stop, LONG).unwrap();
        assert_eq!(request, Request::Ranges);
        let begun = Reply::Done {
            done: 0,
            backed_up: 0,
            failures: Vec::new(),
            last: false,
        };
        say(&mut connection, &begun, &stop, LONG).unwrap();
        let asked: RangeRequest = hear(&mut connection, &stop, LONG).unwrap();
        assert_eq!((asked.offset, asked.len), (4, 10));
        let mut control = [0; MAX_CONTROL];
        let len = encode_range(&reply, &mut control).unwrap();
        let message = Message::new(&control[..len]).payload(Region::from_vec(payload.to_vec()));
        connection
            .post(message)
            .map_err(zerolane::Error::from)
            .unwrap();
        // The client ends the connection.
        while connection.wait(Some(LONG)).is_ok() {}
    });
    let mut ranges = Client::new(Host::from(address)).ranges().unwrap();
    let result = read(&mut ranges, "file", 4, 10);
    let is_usable = matches!(result, Ok(_) | Err(Error::Refused(_)));
    assert_eq!(ranges.is_fresh(), is_usable);
    drop(ranges);
    server.join().unwrap();
    result
}

fn found(size: u64) -> RangeReply {
    RangeReply::Found(Status {
        kind: EntryKind::File,
        size,
        meta: Meta::default(),
        version: Version {
            inode: u64::MAX,
            size: u64::MAX,
            changed_seconds: i64::MIN,
            changed_nanoseconds: u32::MAX,
        },
    })
}

#[test]
fn read__a_server_that_answers_something_else() {
    assert_eq!(answered(found(9), b"12345").unwrap(), b"12345");
    assert_eq!(
        answered(found(u64::MAX), b"1234567890").unwrap(),
        b"1234567890"
    );
    for (reply, payload) in [
        (found(9), &b"1234"[..]),
        (found(9), b"123456"),
        (found(3), b"1"),
        (RangeReply::Failed(Cause::NotFound), b"1"),
    ] {
        let answer = answered(reply, payload);
        assert!(matches!(answer, Err(Error::Protocol(_))), "{answer:?}");
    }
    assert_eq!(
        cause(answered(RangeReply::Failed(Cause::Special), b"")),
        Cause::Special
    );
}

#[test]
fn ranges__more_units_than_allowed_end_the_connection() {
    let lab = Lab::new(true);
    fs::write(lab.share("file"), b"x").unwrap();
    let to = lab.address;
    let mut connection = zerolane::Connection::connect(to, &Options::default()).unwrap();
    let stop = Stop::default();
    say(&mut connection, &Request::Ranges, &stop, LONG).unwrap();
    let _: Reply = hear(&mut connection, &stop, LONG).unwrap();
    let request = RangeRequest {
        path: b"file".to_vec(),
        offset: 0,
        len: u64::MAX,
        version: None,
    };
    say(&mut connection, &request, &stop, LONG).unwrap();
    while connection.wait(Some(LONG)).is_ok() {}
    // The server goes on.
    assert_eq!(
        lab.client().ranges().unwrap().status(b"file").unwrap().size,
        1
    );
}
