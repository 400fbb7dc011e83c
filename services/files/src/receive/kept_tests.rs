//! Tests that a receiver sets requested attributes alone, and reports those not kept.

#![allow(non_snake_case)]

use super::*;
use crate::digest::Digester;
use crate::limits::{ATTRIBUTE_BYTES, ATTRIBUTES_OF_FILE, BUFFER_BYTES, CONTROL_BYTES};
use crate::message::{Attributes, CopyOptions, Meta, Owner, Totals};
use crate::pack::PackWriter;
use crate::port::{Buffer, Filled, port};
use crate::reached::Reached;
use crate::receive::{Role, TopLevel};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Receives records into a directory, with these attributes requested.
fn receive(
    base: &Path,
    attributes: Attributes,
    records: &[Record<'_>],
) -> (Result<Totals, Error>, Vec<Feedback>) {
    receive_as(Role::Asks, base, attributes, records)
}

/// Receives records as the requesting client, or as a server.
pub(crate) fn receive_as(
    role: Role,
    base: &Path,
    attributes: Attributes,
    records: &[Record<'_>],
) -> (Result<Totals, Error>, Vec<Feedback>) {
    let control = (0..2).map(|_| Buffer::anonymous(CONTROL_BYTES).unwrap());
    let (port, end) = port(control.collect(), vec![], Arc::default(), || {});
    let mut buffer = Buffer::anonymous(BUFFER_BYTES).unwrap();
    let mut pack = PackWriter::default();
    for record in records.iter().chain(&[Record::Finish]) {
        pack.add(record, 0).unwrap();
    }
    let len = pack.finish(&mut buffer);
    end.events.arrived(Filled { buffer, len });
    let options = CopyOptions {
        recursive: true,
        attributes,
        ..CopyOptions::default()
    };
    let to = (File::open(base).unwrap().into(), TopLevel::Any);
    let mut reached = Reached::default();
    let role = (role, &mut reached);
    let digester = Digester::fixed();
    let received = FileReceiver::new(port, &(), options, digester, to, role).receive_all();
    let feedback = end.outgoing.try_iter();
    let decode = |filled: Filled| crate::message::decode_feedback(filled.bytes()).unwrap();
    (received, feedback.map(decode).collect())
}

fn owned(uid: u32, gid: u32) -> Meta {
    Meta {
        mode: 0o755,
        owner: Some(Owner { uid, gid }),
        ..Meta::default()
    }
}

const OWNER: Attributes = Attributes {
    owner: true,
    ..Attributes::NONE
};

#[test]
fn owner__never_unless_asked_for() {
    let base = tempfile::tempdir().unwrap();
    let digest = Digester::fixed().digest(b"");
    for (attributes, meta) in [
        (Attributes::NONE, owned(0, 0)),
        (OWNER, owned(u32::MAX, 0)),
        (OWNER, owned(0, u32::MAX)),
    ] {
        let name = b"n";
        for record in [
            Record::Enter { name, meta },
            Record::Reenter { name, meta },
            Record::Stream { name, meta },
            Record::Link {
                name,
                target: b"t",
                meta,
            },
            Record::File {
                name,
                meta,
                size: 0,
                digest,
            },
            Record::Open {
                name,
                meta,
                size: 1 << 20,
                number: 0,
                resume: false,
            },
            Record::SetAttributes {
                name,
                size: 0,
                meta,
                was: Meta::default(),
            },
            Record::HardLink {
                name,
                level: 0,
                first: name,
                size: 0,
                meta,
                before: false,
            },
        ] {
            let (received, _) = receive(base.path(), attributes, &[record]);
            assert!(
                matches!(received, Err(Error::Protocol(words)) if words.contains("an owner")),
                "{received:?}"
            );
        }
    }
    assert_eq!(base.path().read_dir().unwrap().count(), 0);
}

#[test]
fn owner__that_may_not_be_set_is_told_once() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: this process has the rights");
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let digest = Digester::fixed().digest(b"");
    let meta = owned(0, 0);
    let file = |name| Record::File {
        name,
        meta,
        size: 0,
        digest,
    };
    let link = Record::Link {
        name: b"l",
        target: b"t",
        meta,
    };
    let name = b"d";
    let enter = Record::Enter { name, meta };
    let records = [file(b"a"), file(b"b"), link, enter, Record::Leave];
    let (received, said) = receive(base.path(), OWNER, &records);
    let totals = received.unwrap();
    assert_eq!((totals.files, totals.links, totals.failed), (2, 1, 0));
    let told = said
        .iter()
        .filter(|it| matches!(it, Feedback::NotKept { failures } if failures.len() == 1));
    assert_eq!(told.count(), 1, "{said:?}");
}

/// A pack of attributes with these values, then an empty file.
fn with_attributes(
    base: &Path,
    attributes: Attributes,
    list: &[(&[u8], usize)],
) -> Result<Totals, Error> {
    let (port, end) = port(
        vec![Buffer::anonymous(CONTROL_BYTES).unwrap()],
        vec![],
        Arc::default(),
        || {},
    );
    let digest = Digester::fixed().digest(b"");
    let file = Record::File {
        name: b"f",
        meta: Meta::default(),
        size: 0,
        digest,
    };
    for chunk in list.chunks(8) {
        let mut buffer = Buffer::anonymous(BUFFER_BYTES).unwrap();
        let mut pack = PackWriter::default();
        for &(name, len) in chunk {
            let size = len as u32;
            pack.add(&Record::Attribute { name, size }, len).unwrap();
        }
        let len = pack.finish(&mut buffer);
        end.events.arrived(Filled { buffer, len });
    }
    let mut buffer = Buffer::anonymous(BUFFER_BYTES).unwrap();
    let mut pack = PackWriter::default();
    for record in [file, Record::Finish] {
        pack.add(&record, 0).unwrap();
    }
    let len = pack.finish(&mut buffer);
    end.events.arrived(Filled { buffer, len });
    let options = CopyOptions {
        attributes,
        ..CopyOptions::default()
    };
    let to = (File::open(base).unwrap().into(), TopLevel::Any);
    let mut reached = Reached::default();
    let role = (Role::Asks, &mut reached);
    FileReceiver::new(port, &(), options, Digester::fixed(), to, role).receive_all()
}

#[test]
fn attribute__never_unless_asked_for_and_no_more_than_a_file_may_have() {
    let xattrs = Attributes {
        xattrs: true,
        ..Attributes::NONE
    };
    let acls = Attributes {
        acls: true,
        ..Attributes::NONE
    };
    let many = vec![(&b"user.a"[..], 0); ATTRIBUTES_OF_FILE + 1];
    let base = tempfile::tempdir().unwrap();
    for (attributes, list) in [
        (Attributes::NONE, &[(&b"user.a"[..], 1)][..]),
        (OWNER, &[(b"user.a", 1)]),
        (acls, &[(b"user.a", 1)]),
        (xattrs, &[(b"system.posix_acl_access", 1)]),
        (xattrs, &[(b"user.zerolane.unfinished", 1)]),
        (xattrs, &[(b"user.\0", 1)]),
        (xattrs, &[(&[b'u'; 256], 1)]),
        (xattrs, &[(b"user.a", ATTRIBUTE_BYTES + 1)]),
        (
            xattrs,
            &[(b"user.a", ATTRIBUTE_BYTES), (b"user.b", ATTRIBUTE_BYTES)],
        ),
        (xattrs, &many),
    ] {
        let received = with_attributes(base.path(), attributes, list);
        assert!(
            matches!(received, Err(Error::Protocol(words)) if words.contains("extended attribute")),
            "{received:?}"
        );
    }
    assert_eq!(base.path().read_dir().unwrap().count(), 0);
    with_attributes(base.path(), xattrs, &many[1..]).unwrap();
}
