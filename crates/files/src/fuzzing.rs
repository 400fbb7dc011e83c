//! What the fuzz targets of the file service hold on to; in no other build.

use crate::digest::Digester;
use crate::error::Error;
use crate::limits::{BUFFER_BYTES, CONTROL_BYTES};
use crate::message::{
    CopyOptions, Record, Reply, Request, decode_feedback, decode_opening, decode_record,
    encode_feedback, encode_opening,
};
use crate::name::RelativePath;
use crate::pack::PackWriter;
use crate::port::{Buffer, Event, Filled, port};
use crate::receive::{FileReceiver, TopLevel};
use std::fs::File;
use std::path::Path;

/// The largest file that a fuzzed sender may announce, bytes: a hole of any size is hashed.
const FILE_BYTES: u64 = 8 << 20;

/// Decodes `bytes` as each message there is. What is taken must be the same when sent again, and a
/// path that is taken must stay below the served directory.
pub fn messages(bytes: &[u8]) {
    if let Ok(request) = decode_opening::<Request>(bytes) {
        let again = encode_opening(&request).expect("as short as it came");
        assert_eq!(decode_opening::<Request>(&again).unwrap(), request);
        let paths = match &request {
            Request::Put { destination, .. } => std::slice::from_ref(destination),
            Request::Get { sources, .. } => sources,
            Request::List { path } => std::slice::from_ref(path),
        };
        for path in paths {
            if let Ok(path) = RelativePath::parse(path) {
                let bytes = path.as_bytes();
                assert!(!bytes.starts_with(b"/") && !bytes.contains(&0));
                assert!(bytes.split(|&byte| byte == b'/').all(|name| name != b".."));
            }
        }
    }
    if let Ok(reply) = decode_opening::<Reply>(bytes) {
        let again = encode_opening(&reply).expect("as short as it came");
        assert_eq!(decode_opening::<Reply>(&again).unwrap(), reply);
    }
    if let Ok(feedback) = decode_feedback(bytes) {
        let mut buffer = vec![0; bytes.len() + 16];
        let len = encode_feedback(&feedback, &mut buffer).expect("as short as it came");
        assert_eq!(decode_feedback(&buffer[..len]).unwrap(), feedback);
    }
}

/// Receives into `directory` what a hostile sender sends. The first byte of `input` chooses the
/// options, the rest is records; an invalid record ends a pack, and what follows the record of a run
/// is its units.
pub fn receive(directory: &Path, input: &[u8]) {
    let Some((&choice, mut records)) = input.split_first() else {
        return;
    };
    let options = CopyOptions {
        recursive: choice & 1 != 0,
        resume: choice & 2 != 0,
        durable: false,
        replace_read_only: choice & 4 != 0,
        count_first: false,
    };
    let top = match choice & 8 {
        0 => TopLevel::Any,
        _ => TopLevel::One(b"renamed".to_vec()),
    };
    let buffers = |count, bytes| {
        let make = |_| Buffer::anonymous(bytes).expect("memory");
        (0..count).map(make).collect()
    };
    let (port, end) = port(buffers(2, CONTROL_BYTES), vec![], || {});
    while !records.is_empty() {
        let filled = next_transfer(&mut records);
        end.events.send(Event::Arrived(filled)).expect("the port");
    }
    drop(end);
    let base = File::open(directory).expect("a directory");
    let receiver = FileReceiver::new(port, &(), options, Digester::fixed(), base.into(), top);
    let _: Result<_, Error> = receiver.receive_all();
}

/// The records up to an invalid one, as a pack with their contents.
fn next_transfer(records: &mut &[u8]) -> Filled {
    let mut buffer = Buffer::anonymous(BUFFER_BYTES).expect("memory");
    let mut pack = PackWriter::default();
    while let Ok(record) = decode_record(records) {
        let last = matches!(record, Record::Run { .. });
        let (record, contents) = with_contents(record, records);
        if !pack.fits(contents.len(), BUFFER_BYTES) {
            break;
        }
        let at = pack.contents_at();
        buffer[at..][..contents.len()].copy_from_slice(contents);
        if pack.add(&record, contents.len()).is_err() || last {
            break;
        }
    }
    // An invalid record alone.
    if pack.is_empty() {
        let (unit, rest) = records.split_at(records.len().min(64));
        *records = rest;
        buffer[..unit.len()].copy_from_slice(unit);
        return Filled {
            buffer,
            len: unit.len(),
        };
    }
    let len = pack.finish(&mut buffer);
    Filled { buffer, len }
}

/// The record made harmless in size only, with contents off the front of `rest` and their digest, where
/// it speaks of any.
fn with_contents<'a>(record: Record<'a>, rest: &mut &'a [u8]) -> (Record<'a>, &'a [u8]) {
    match record {
        Record::File {
            name, meta, size, ..
        } => {
            let (contents, left) = rest.split_at(rest.len().min(size as usize % 64));
            *rest = left;
            let record = Record::File {
                name,
                meta,
                size: contents.len() as u32,
                digest: Digester::fixed().digest(contents),
            };
            (record, contents)
        }
        Record::Open {
            name,
            meta,
            size,
            number,
        } => {
            let size = size.min(FILE_BYTES);
            let record = Record::Open {
                name,
                meta,
                size,
                number,
            };
            (record, &[])
        }
        record => (record, &[]),
    }
}
