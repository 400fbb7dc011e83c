//! Fuzzes a portal whose work is done late with the PDUs of an iSCSI initiator, in pieces; it has logged in unless the
//! first byte is odd. No panic, only valid PDUs as answers, no memory beyond the bounds.

use std::sync::Arc;

use zerolane_block::store::MemoryStore;
use zerolane_block::{Disk, Identity, Lun};
use zerolane_iscsi::pdu::{Answer, Decoder, Digests, Request, RequestBody};
use zerolane_iscsi::portal::{Job, Portal};
use zerolane_iscsi::text;

const NAME: &str = "iqn.2026-11.zerolane:fuzz";

/// A login with the keys that allow most unsolicited data.
fn login() -> Vec<u8> {
    let mut data = Vec::new();
    for (key, value) in [
        ("InitiatorName", "iqn.2026-11.test:a"),
        ("TargetName", NAME),
        ("InitialR2T", "No"),
        ("MaxOutstandingR2T", "4"),
        ("MaxBurstLength", "512"),
    ] {
        text::put(&mut data, key, value);
    }
    let body = RequestBody::Login {
        transit: true,
        continued: false,
        current: 1,
        next: 3,
        version_max: 0,
        version_min: 0,
        isid: [1; 6],
        tsih: 0,
        connection: 0,
    };
    let request = Request {
        immediate: true,
        tag: 0,
        command_number: 0,
        body,
        data,
    };
    let mut bytes = Vec::new();
    request.encode(&mut bytes, Digests::default());
    bytes
}

/// See the first lines of this file.
pub fn run(input: &[u8]) {
    let store = Arc::new(MemoryStore::new(64 << 10));
    let disk = Disk::of(&*store, 512, Identity::named("fuzz")).expect("a disk");
    let mut portal = Portal::new(NAME, false);
    let lun = Lun::new(0).expect("a number");
    portal.add_unit(lun, disk, store).expect("room");
    let peer = portal.connect("127.0.0.1:3260").expect("room");
    let Some((&first, mut rest)) = input.split_first() else {
        return;
    };
    if first & 1 == 0 {
        portal.receive(peer, &login());
        assert!(portal.is_in(peer));
    }
    let piece = usize::from(first >> 1) * 8 + 48;
    let mut jobs: Vec<Job> = Vec::new();
    let mut decoder = Decoder::default();
    while !rest.is_empty() {
        let (bytes, behind) = rest.split_at(piece.min(rest.len()));
        rest = behind;
        portal.receive(peer, bytes);
        while let Some(job) = portal.next_job() {
            jobs.push(job);
        }
        if jobs.len() > 2 {
            portal.finished(jobs.remove(0).perform());
        }
        decoder.push(&portal.take_output(peer));
        portal.on_sent(peer);
        // Digests are agreed on by a login in the input alone; then the answers are not looked at.
        while let Ok(Some(pdu)) = decoder.next(Digests::default()) {
            assert!(first & 1 == 1 || Answer::parse(&pdu).is_some());
        }
    }
    for job in jobs {
        portal.finished(job.perform());
    }
    portal.disconnect(peer);
    assert!(portal.next_job().is_none());
}
