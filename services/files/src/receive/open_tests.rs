//! Tests that a receiver that copies kept units reports that it is at work.

#![allow(non_snake_case)]

use crate::copy_tests::pack;
use crate::digest::Digester;
use crate::error::Error;
use crate::limits::{BUFFER_BYTES, CONTROL_BYTES, COPIED_UNITS, UNIT_BYTES};
use crate::message::{CopyOptions, Feedback, Meta, Record, Totals, decode_feedback};
use crate::port::{Buffer, Filled, port};
use crate::reached::Reached;
use crate::receive::{FileReceiver, Role, TopLevel};
use crate::stop::Stop;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Units of the old file, all of which are kept.
const KEPT: u64 = 2 * COPIED_UNITS + 1;
/// Calls of the receiver before it is told to keep these units: it sends digests, and releases two packs.
const CALLS_BEFORE: usize = 4;

fn old() -> Vec<u8> {
    let units = (0..KEPT).map(|index| vec![index as u8 + 1; UNIT_BYTES]);
    units.collect::<Vec<_>>().concat()
}

/// Receives a file that grew by a unit and keeps the rest; returns the receiver's messages. `stopped`: it is asked to
/// stop before that unit.
fn grown(base: &Path, stopped: bool) -> (Result<Totals, Error>, Vec<Feedback>) {
    let digester = Digester::fixed();
    let (old, new) = (old(), vec![77; UNIT_BYTES]);
    std::fs::write(base.join("f"), &old).unwrap();
    let mut units = digester.hasher();
    for unit in old.chunks(UNIT_BYTES).chain([&new[..]]) {
        units.update(&digester.digest(unit));
    }
    let meta = Meta {
        mode: 0o644,
        ..Meta::default()
    };
    let open = Record::Open {
        name: b"f",
        meta,
        size: (old.len() + new.len()) as u64,
        number: 0,
        resume: true,
    };
    let digest = units.finish();
    let close = [Record::Close { digest }, Record::Finish];
    let transfers = [
        pack(&[open], b""),
        pack(&[Record::Keep { units: KEPT }], b""),
        pack(&[Record::Run { units: 1 }], b""),
        new,
        pack(&close, b""),
    ];
    let (stop, calls) = (Stop::default(), AtomicUsize::new(0));
    let stopping = stop.clone();
    let control = (0..8).map(|_| Buffer::anonymous(CONTROL_BYTES).unwrap());
    let (port, end) = port(control.collect(), vec![], Arc::default(), move || {
        if calls.fetch_add(1, Ordering::Relaxed) + 1 == CALLS_BEFORE && stopped {
            stopping.request();
        }
    });
    for transfer in transfers {
        let mut buffer = Buffer::anonymous(BUFFER_BYTES).unwrap();
        let len = transfer.len();
        buffer[..len].copy_from_slice(&transfer);
        end.events.arrived(Filled { buffer, len });
    }
    let options = CopyOptions {
        resume: true,
        delta: true,
        ..CopyOptions::default()
    };
    let to = (File::open(base).unwrap().into(), TopLevel::Any);
    let mut reached = Reached::default();
    let role = (Role::Asks, &mut reached);
    let port = port.heeding(&stop);
    let done = FileReceiver::new(port, &(), options, digester, to, role).receive_all();
    let said = end.outgoing.iter();
    let said = said.map(|it| decode_feedback(it.bytes()).unwrap());
    (done, said.collect())
}

#[test]
fn catch_up__the_sender_hears_that_the_receiver_is_at_work() {
    let base = tempfile::tempdir().unwrap();
    let (done, said) = grown(base.path(), false);
    assert_eq!(done.unwrap().bytes_kept, KEPT * UNIT_BYTES as u64);
    let at_work = said.iter().filter(|&it| *it == Feedback::AT_WORK);
    assert_eq!(at_work.count() as u64, KEPT / COPIED_UNITS, "{said:?}");
    let file = std::fs::read(base.path().join("f")).unwrap();
    assert!(file == [old(), vec![77; UNIT_BYTES]].concat());
}

#[test]
fn catch_up__ends_when_it_is_asked_to_stop() {
    let base = tempfile::tempdir().unwrap();
    let (done, said) = grown(base.path(), true);
    assert!(matches!(done, Err(Error::Stopped)), "{done:?}");
    // Fewer units were copied than need such a message.
    assert!(!said.contains(&Feedback::AT_WORK), "{said:?}");
    assert!(std::fs::read(base.path().join("f")).unwrap() == old());
}
