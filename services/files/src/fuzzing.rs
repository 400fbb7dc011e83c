//! Exposes the file service's parsers to fuzz targets, with the feature `fuzzing`.

use crate::backup::Backups;
use crate::digest::Digester;
use crate::error::Error;
use crate::limits::{BUFFER_BYTES, CONTROL_BYTES, TREE_DEPTH};
use crate::message::{
    Attributes, Backup, CopyOptions, RangeRequest, Record, Reply, Request, decode_feedback,
    decode_opening, decode_range, decode_record, encode_feedback, encode_opening, encode_range,
};
use crate::name::{RelativePath, check_name};
use crate::pack::PackWriter;
use crate::port::{Buffer, Filled, port};
use crate::reached::Reached;
use crate::receive::{FileReceiver, Role, TopLevel};
use crate::sync::pages::Pages;
use crate::sync::plan::next_step;
use crate::sync::sight::{Listing, Sight};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The largest file that a fuzzed sender may announce, bytes: holes of any size are hashed.
const FILE_BYTES: u64 = 8 << 20;

/// Decodes `bytes` as each type of message. A message that is accepted must encode to the same bytes again, and an
/// accepted path must stay below the served directory.
pub fn messages(bytes: &[u8]) {
    if let Ok(request) = decode_opening::<Request>(bytes) {
        let again = encode_opening(&request).expect("as short as it came");
        assert_eq!(decode_opening::<Request>(&again).unwrap(), request);
        let both: [Vec<u8>; 2];
        let paths = match &request {
            Request::Put { destination, .. } => std::slice::from_ref(destination),
            Request::Get { sources: paths, .. }
            | Request::List { paths, .. }
            | Request::Delete { paths, .. }
            | Request::MakeDirectories { paths, .. } => paths,
            Request::Rename { from, to, .. } => {
                both = [from.clone(), to.clone()];
                &both
            }
            Request::Walk { path, .. }
            | Request::Remove { path, .. }
            | Request::Update {
                destination: path, ..
            }
            | Request::Fetch { source: path, .. }
            | Request::Read { source: path, .. } => std::slice::from_ref(path),
            Request::AskOffer | Request::Decline | Request::Limit { .. } | Request::Ranges => &[],
        };
        for path in paths {
            if let Ok(path) = RelativePath::parse(path) {
                let bytes = path.as_bytes();
                let up = bytes.split(|&byte| byte == b'/').any(|name| name == b"..");
                assert_eq!(path.leaves(), bytes.starts_with(b"/") || up);
                assert!(!bytes.contains(&0));
            }
        }
    }
    if let Ok(
        Request::Update {
            destination,
            backup: Some(backup),
            ..
        }
        | Request::Remove {
            path: destination,
            backup: Some(backup),
            ..
        },
    ) = decode_opening(bytes)
        && backup.check().is_ok()
        && let Some(below) = backup.below(&destination)
    {
        let mut names = below.split(|&byte| byte == b'/');
        assert!(names.all(|name| check_name(name).is_ok()));
    }
    if let Ok(reply) = decode_opening::<Reply>(bytes) {
        let again = encode_opening(&reply).expect("as short as it came");
        assert_eq!(decode_opening::<Reply>(&again).unwrap(), reply);
    }
    if let Ok(request) = decode_opening::<RangeRequest>(bytes) {
        let again = encode_opening(&request).expect("as short as it came");
        assert_eq!(decode_opening::<RangeRequest>(&again).unwrap(), request);
    }
    if let Ok(reply) = decode_range(bytes) {
        let mut buffer = vec![0; bytes.len() + 16];
        let len = encode_range(&reply, &mut buffer).expect("as short as it came");
        assert_eq!(decode_range(&buffer[..len]).unwrap(), reply);
    }
    if let Ok(feedback) = decode_feedback(bytes) {
        let mut buffer = vec![0; bytes.len() + 16];
        let len = encode_feedback(&feedback, &mut buffer).expect("as short as it came");
        assert_eq!(decode_feedback(&buffer[..len]).unwrap(), feedback);
    }
}

/// Decodes `bytes` as the pages of a listing, each after its length (u8), and as the steps of a plan. Accepted entries
/// are in order, their names are path components, and their depth is limited. An odd last byte means that a filter file
/// of each directory was requested.
pub fn listing(bytes: &[u8]) {
    let (port, end) = port(vec![], vec![], Arc::default(), || {});
    let mut rest = bytes;
    while let Some((&len, after)) = rest.split_first() {
        let (page, after) = after.split_at(after.len().min(len.into()));
        let mut buffer = Buffer::anonymous(page.len().max(1)).expect("memory");
        buffer[..page.len()].copy_from_slice(page);
        let len = page.len();
        let filled = Filled { buffer, len };
        end.events.arrived(filled);
        rest = after;
    }
    let released = end.released;
    drop(end.events);
    let filter_files = bytes.last().map_or(0, |last| usize::from(last % 2));
    let mut pages = Pages::new(port).with_filter_files(filter_files);
    let mut last = vec![Vec::new()];
    while let Some(level) = last.last_mut() {
        let Ok(sight) = pages.next() else {
            break;
        };
        if let Some(name) = sight.name() {
            check_name(name).expect("a component");
            assert!(name > level.as_slice());
            *level = name.to_vec();
        }
        match sight {
            Sight::Leave => drop(last.pop()),
            sight if sight.is_directory() => last.push(Vec::new()),
            _ => {}
        }
        assert!(last.len() <= TREE_DEPTH + 1);
    }
    drop(released);
    let mut plan = bytes;
    while let Ok(Some(step)) = next_step(&mut plan) {
        assert!(step.names().all(|name| check_name(name).is_ok()));
    }
}

/// Receives a hostile sender's input into `directory`. The first byte of `input` chooses the options, the second the
/// attributes kept and whether there are backups. The rest is records. An invalid record ends a pack, and the bytes
/// after a run's record are its units.
pub fn receive(directory: &Path, input: &[u8]) {
    let Some((&[choice, kept], mut records)) = input.split_first_chunk() else {
        return;
    };
    let options = CopyOptions {
        recursive: choice & 1 != 0,
        resume: choice & 2 != 0,
        durable: false,
        replace_read_only: choice & 4 != 0,
        count_first: false,
        delta: choice & 64 != 0,
        in_place: choice & 128 != 0,
        copy_links: false,
        keep_links: false,
        allow_changing: false,
        no_permissions: kept & 16 != 0,
        attributes: Attributes {
            owner: kept & 1 != 0,
            xattrs: kept & 2 != 0,
            acls: kept & 4 != 0,
            hard_links: kept & 8 != 0,
        },
    };
    let top = match choice & 8 {
        0 => TopLevel::Any,
        _ => TopLevel::One(b"renamed".to_vec()),
    };
    let buffers = |count, bytes| {
        let make = |_| Buffer::anonymous(bytes).expect("memory");
        (0..count).map(make).collect()
    };
    let (port, end) = port(buffers(2, CONTROL_BYTES), vec![], Arc::default(), || {});
    while !records.is_empty() {
        let filled = next_transfer(&mut records);
        end.events.arrived(filled);
    }
    drop(end);
    let base = File::open(directory).expect("a directory");
    let role = match choice & 16 {
        0 => Role::Asks,
        _ => Role::Tells,
    };
    let to = (base.into(), top);
    let mut reached = Reached::default();
    let role = (role, &mut reached);
    let receiver = FileReceiver::new(port, &(), options, Digester::fixed(), to, role);
    let receiver = match choice & 32 {
        0 => receiver,
        _ => receiver.replacing(),
    };
    let backup = Backup {
        directory: (kept & 64 != 0).then(|| b"new/backups".to_vec()),
        suffix: b"~".to_vec(),
    };
    let backups = (kept & 32 != 0).then(|| {
        let base = File::open(directory).expect("a directory").into();
        Backups::local(&base, (&backup, false)).expect("a path below the directory")
    });
    let receiver = receiver.backing_up(backups);
    let link_dest = (kept & 128 != 0).then(|| {
        let directory = File::open(directory).expect("a directory");
        Some(directory.into())
    });
    let receiver = receiver.linking_from(link_dest.into_iter().collect());
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

/// The record with harmless sizes. If it has contents, they are taken off the front of `rest`, with their digest.
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
        Record::Attribute { name, size } => {
            let (contents, left) = rest.split_at(rest.len().min(size as usize % 64));
            *rest = left;
            let size = contents.len() as u32;
            (Record::Attribute { name, size }, contents)
        }
        Record::Part { size, .. } => {
            let (contents, left) = rest.split_at(rest.len().min(size as usize % 64));
            *rest = left;
            let record = Record::Part {
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
            resume,
        } => {
            let size = size.min(FILE_BYTES);
            let record = Record::Open {
                name,
                meta,
                size,
                number,
                resume,
            };
            (record, &[])
        }
        record => (record, &[]),
    }
}
