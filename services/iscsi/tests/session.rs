//! Tests sessions in memory, with an initiator and a portal without sockets.

#![allow(non_snake_case)]

mod support;

use std::sync::Arc;

use support::initiator::{Rig, Told};
use support::{BLOCK, NAME, of, portal};
use zerolane_block::Residual;
use zerolane_block::store::MemoryStore;
use zerolane_iscsi::limits::{FIRST_BURST_BYTES, MAX_CONNECTIONS, WINDOW};
use zerolane_iscsi::pdu::{AnswerBody, NO_TAG, Reason, RequestBody};
use zerolane_iscsi::session::Offence;
use zerolane_iscsi::text;

const BYTES: u64 = 8 << 20;
const FREE: [(&str, &str); 2] = [("InitialR2T", "No"), ("ImmediateData", "Yes")];

fn read_10(lba: u32, blocks: u16) -> Vec<u8> {
    ten(0x28, lba, blocks)
}

fn write_10(lba: u32, blocks: u16) -> Vec<u8> {
    ten(0x2a, lba, blocks)
}

fn ten(code: u8, lba: u32, blocks: u16) -> Vec<u8> {
    let mut cdb = vec![code, 0];
    cdb.extend(lba.to_be_bytes());
    cdb.push(0);
    cdb.extend(blocks.to_be_bytes());
    cdb.push(0);
    cdb
}

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|it| (it / 7) as u8 ^ seed).collect()
}

fn status(told: &[Told]) -> Option<u8> {
    match told.last()?.body {
        AnswerBody::Response { status, .. } => Some(status),
        AnswerBody::DataIn { status, .. } => status.map(|it| it.0),
        _ => None,
    }
}

/// Reads with a fresh initiator.
fn stored(rig: &mut Rig, lba: u32, blocks: u16) -> Vec<u8> {
    let mut initiator = rig.login(99, &[]);
    initiator.ready(rig);
    let length = u32::from(blocks) * BLOCK as u32;
    initiator.command(rig, 1, &read_10(lba, blocks), (length, 0), &[]);
    let told = initiator.outcome(rig);
    assert_eq!(status(&told), Some(0), "{told:?}");
    told.into_iter().flat_map(|it| it.data).collect()
}

#[test]
fn session__data_is_asked_for_in_bursts_and_written() {
    let keys = [
        ("InitialR2T", "Yes"),
        ("MaxBurstLength", "4096"),
        ("MaxOutstandingR2T", "2"),
        ("MaxRecvDataSegmentLength", "1024"),
        ("HeaderDigest", "CRC32C"),
        ("DataDigest", "CRC32C"),
    ];
    let mut rig = Rig::new(portal(BYTES));
    let mut initiator = rig.login(1, &keys);
    initiator.ready(&mut rig);
    let content = pattern(32 * BLOCK, 1);
    initiator.command(&mut rig, 5, &write_10(3, 32), (0, 16384), &content[..512]);
    let mut asked = 512;
    let mut told = initiator.told(&mut rig);
    while let Some(it) = told.first().cloned() {
        let AnswerBody::R2t {
            transfer_tag,
            offset,
            length,
            ..
        } = it.body
        else {
            break;
        };
        assert!(told.len() <= 2, "two at a time");
        assert_eq!((it.tag, offset), (5, asked));
        assert!(length <= 4096);
        asked += length;
        let (mut at, mut number) = (offset as usize, 0);
        let end = (offset + length) as usize;
        while at < end {
            let next = (at + 1000).min(end);
            let place = (transfer_tag, number, at as u32);
            initiator.data(&mut rig, 5, place, &content[at..next], next == end);
            (at, number) = (next, number + 1);
        }
        told.remove(0);
        told.extend(initiator.told(&mut rig));
    }
    let told = initiator.outcome(&mut rig);
    assert_eq!(status(&told), Some(0), "{told:?}");
    assert_eq!(asked, 16384);
    assert_eq!(stored(&mut rig, 3, 32), content);
    // What is read comes in segments of what the initiator takes, in bursts of what was agreed on.
    initiator.command(&mut rig, 6, &read_10(3, 32), (16384, 0), &[]);
    let told = initiator.outcome(&mut rig);
    assert_eq!(told.len(), 16);
    for (number, it) in told.iter().enumerate() {
        let AnswerBody::DataIn {
            last,
            data_number,
            offset,
            status,
        } = it.body
        else {
            panic!("{it:?}");
        };
        assert_eq!((data_number, offset), (number as u32, 1024 * number as u32));
        assert_eq!(last, number % 4 == 3);
        assert_eq!(status.is_some(), number == 15);
    }
    let read: Vec<u8> = told.into_iter().flat_map(|it| it.data).collect();
    assert_eq!(read, content);
}

#[test]
fn session__unsolicited_data_may_come_up_to_the_first_burst() {
    let mut rig = Rig::new(portal(BYTES));
    let mut initiator = rig.login(1, &FREE);
    initiator.ready(&mut rig);
    let content = pattern(8 * BLOCK, 2);
    initiator.open_command(
        &mut rig,
        1,
        &write_10(0, 8),
        (0, 4096),
        &content[..1000],
        false,
    );
    assert_eq!(initiator.outcome(&mut rig), []);
    initiator.data(&mut rig, 1, (NO_TAG, 0, 1000), &content[1000..2000], false);
    initiator.data(&mut rig, 1, (NO_TAG, 1, 2000), &content[2000..3000], true);
    let told = initiator.told(&mut rig);
    let AnswerBody::R2t {
        transfer_tag,
        offset,
        length,
        ..
    } = told[0].body
    else {
        panic!("{told:?}");
    };
    assert_eq!((offset, length), (3000, 1096), "the rest is asked for");
    initiator.data(&mut rig, 1, (transfer_tag, 0, 3000), &content[3000..], true);
    assert_eq!(status(&initiator.outcome(&mut rig)), Some(0));
    assert_eq!(stored(&mut rig, 0, 8), content);
}

#[test]
fn session__a_command_that_fails_waits_for_its_unsolicited_data() {
    let mut rig = Rig::new(portal(BYTES));
    let mut initiator = rig.login(1, &FREE);
    initiator.ready(&mut rig);
    let beyond = (BYTES / BLOCK as u64) as u32;
    initiator.open_command(&mut rig, 1, &write_10(beyond, 1), (0, 512), &[], false);
    assert_eq!(
        initiator.outcome(&mut rig),
        [],
        "the status would come before the data"
    );
    initiator.data(&mut rig, 1, (NO_TAG, 0, 0), &[0; 512], true);
    let told = initiator.outcome(&mut rig);
    assert_eq!(status(&told), Some(2));
    // LENGTH, then sense data in the fixed format: ILLEGAL REQUEST, LOGICAL BLOCK ADDRESS OUT OF RANGE.
    assert_eq!(told[0].data[..2], [0, 18]);
    assert_eq!((told[0].data[4], told[0].data[14]), (5, 0x21));
}

#[test]
fn session__missing_data_fails_the_command_and_writes_nothing() {
    let mut rig = Rig::new(portal(BYTES));
    let mut initiator = rig.login(1, &FREE);
    initiator.ready(&mut rig);
    initiator.open_command(&mut rig, 1, &write_10(0, 2), (0, 1024), &[], false);
    initiator.data(&mut rig, 1, (NO_TAG, 1, 512), &[7; 512], true);
    let told = initiator.outcome(&mut rig);
    assert_eq!(status(&told), Some(2), "{told:?}");
    assert_eq!((told[0].data[4], told[0].data[14]), (0xb, 0x47));
    assert_eq!(stored(&mut rig, 0, 2), [0; 1024]);
}

#[test]
fn session__residuals_are_told() {
    let mut rig = Rig::new(portal(BYTES));
    let mut initiator = rig.login(1, &FREE);
    initiator.ready(&mut rig);
    for (expected, residual, moved) in [
        (1024, Residual::None, 1024),
        (2000, Residual::Under(976), 1024),
        (700, Residual::Over(324), 700),
    ] {
        initiator.command(&mut rig, 1, &read_10(0, 2), (expected, 0), &[]);
        let told = initiator.outcome(&mut rig);
        let AnswerBody::DataIn { status, .. } = told[0].body else {
            panic!("{told:?}");
        };
        assert_eq!(status, Some((0, residual)));
        assert_eq!(told[0].data.len(), moved);
    }
}

#[test]
fn session__command_numbers_are_held() {
    let mut rig = Rig::new(portal(BYTES));
    let mut initiator = rig.login(1, &[]);
    initiator.ready(&mut rig);
    let next = initiator.command_number;
    for outside in [next.wrapping_sub(1), next + WINDOW] {
        initiator.command_number = outside;
        initiator.command(&mut rig, 1, &[0; 6], (0, 0), &[]);
        assert_eq!(initiator.outcome(&mut rig), [], "{outside} is ignored");
    }
    initiator.command_number = next;
    initiator.command(&mut rig, 1, &[0; 6], (0, 0), &[]);
    let told = initiator.outcome(&mut rig);
    assert_eq!(told[0].sequence.expected, next + 1);
    assert_eq!(told[0].sequence.most, next + WINDOW);
    initiator.command_number += 1;
    initiator.command(&mut rig, 2, &[0; 6], (0, 0), &[]);
    assert_eq!(rig.portal.offence(initiator.peer), Some(Offence::Order));
}

#[test]
fn session__numbers_of_statuses_have_no_gap() {
    let mut rig = Rig::new(portal(BYTES));
    let mut initiator = rig.login(1, &[]);
    initiator.ready(&mut rig);
    let mut told = Vec::new();
    for tag in 0..20 {
        match tag % 3 {
            0 => initiator.command(&mut rig, tag, &read_10(0, 40), (40 * 512, 0), &[]),
            1 => initiator.command(&mut rig, tag, &[0; 6], (0, 0), &[]),
            _ => {
                let body = RequestBody::NopOut {
                    lun: [0; 8],
                    transfer_tag: NO_TAG,
                };
                initiator.send(&mut rig, true, tag, body, b"ping");
            }
        }
        told.extend(initiator.outcome(&mut rig));
    }
    assert!(told.iter().any(|it| it.data == b"ping"));
    let numbered = told.iter().filter(|it| match it.body {
        AnswerBody::DataIn { status, .. } => status.is_some(),
        _ => true,
    });
    let numbers: Vec<u32> = numbered.map(|it| it.sequence.status).collect();
    assert_eq!(numbers.len(), 20);
    assert!(
        numbers.windows(2).all(|it| it[1] == it[0] + 1),
        "{numbers:?}"
    );
}

#[test]
fn session__what_is_aborted_is_not_written() {
    let mut rig = Rig::new(portal(BYTES));
    let mut initiator = rig.login(1, &[]);
    initiator.ready(&mut rig);
    for function in [1, 2, 4, 5, 6] {
        initiator.command(&mut rig, 8, &write_10(0, 1), (0, 512), &[]);
        let told = initiator.told(&mut rig);
        let AnswerBody::R2t { transfer_tag, .. } = told[0].body else {
            panic!("{told:?}");
        };
        let body = RequestBody::Management {
            function,
            lun: [0; 8],
            referenced: 8,
            referenced_number: 0,
        };
        initiator.send(&mut rig, true, 9, body, &[]);
        let told = initiator.told(&mut rig);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].body, AnswerBody::Management { response: 0 });
        initiator.data(&mut rig, 8, (transfer_tag, 0, 0), &[1; 512], true);
        assert_eq!(initiator.outcome(&mut rig), [], "no status of it");
        if function >= 4 {
            initiator.ready(&mut rig);
        }
    }
    let gone = RequestBody::Management {
        function: 1,
        lun: [0; 8],
        referenced: 8,
        referenced_number: 0,
    };
    initiator.send(&mut rig, true, 9, gone, &[]);
    assert_eq!(
        initiator.told(&mut rig)[0].body,
        AnswerBody::Management { response: 1 }
    );
    assert_eq!(rig.portal.offence(initiator.peer), None);
    assert_eq!(stored(&mut rig, 0, 1), [0; 512]);
}

#[test]
fn session__an_abort_is_answered_when_its_work_is_over() {
    let mut rig = Rig::new(portal(BYTES));
    let mut initiator = rig.login(1, &FREE);
    initiator.ready(&mut rig);
    initiator.command(&mut rig, 8, &write_10(0, 1), (0, 512), &[3; 512]);
    let job = rig.portal.next_job().unwrap();
    let body = RequestBody::Management {
        function: 1,
        lun: [0; 8],
        referenced: 8,
        referenced_number: 0,
    };
    initiator.send(&mut rig, true, 9, body, &[]);
    assert_eq!(initiator.told(&mut rig), [], "a thread writes");
    rig.portal.finished(job.perform());
    let told = initiator.told(&mut rig);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].body, AnswerBody::Management { response: 0 });
}

#[test]
fn session__a_newer_login_ends_the_older_and_waits_for_its_work() {
    let mut rig = Rig::new(portal(BYTES));
    let mut older = rig.login(1, &FREE);
    older.ready(&mut rig);
    older.command(&mut rig, 8, &write_10(0, 1), (0, 512), &[3; 512]);
    let job = rig.portal.next_job().unwrap();
    older.command(&mut rig, 9, &write_10(1, 1), (0, 512), &[4; 512]);
    let mut newer = rig.connect(1);
    assert_eq!(
        newer.log_in(&mut rig, &FREE),
        [],
        "what the older had begun goes on"
    );
    assert!(rig.portal.is_over(older.peer));
    let mut other = rig.login(2, &FREE);
    other.ready(&mut rig);
    assert!(rig.portal.next_job().is_none(), "what was not begun is not");
    rig.portal.finished(job.perform());
    let told = newer.told(&mut rig);
    assert!(
        matches!(told[0].body, AnswerBody::Login { status: 0, .. }),
        "{told:?}"
    );
    assert_eq!(stored(&mut rig, 0, 2), [[3; 512], [0; 512]].concat());
}

#[test]
fn session__login_negotiates_and_refuses() {
    let mut rig = Rig::new(portal(BYTES));
    let mut initiator = rig.connect(1);
    let keys = [
        ("HeaderDigest", "X,CRC32C,None"),
        ("DataDigest", "None,CRC32C"),
        ("MaxBurstLength", "16776192"),
        ("FirstBurstLength", "1024"),
        ("MaxConnections", "8"),
        ("ErrorRecoveryLevel", "2"),
        ("DataPDUInOrder", "No"),
        ("X-unheard", "of"),
    ];
    let told = initiator.log_in(&mut rig, &keys);
    let pairs = text::pairs(&told[0].data).unwrap();
    for pair in [
        ("HeaderDigest", "CRC32C"),
        ("DataDigest", "None"),
        ("MaxBurstLength", "1048576"),
        ("FirstBurstLength", "1024"),
        ("MaxConnections", "1"),
        ("ErrorRecoveryLevel", "0"),
        ("DataPDUInOrder", "Yes"),
        ("X-unheard", "NotUnderstood"),
        ("TargetPortalGroupTag", "1"),
        ("MaxRecvDataSegmentLength", "262144"),
    ] {
        assert!(pairs.contains(&pair), "{pair:?} of {pairs:?}");
    }
    for (keys, wanted) in [
        (&[("TargetName", "iqn.2026-11.zerolane:other")][..], 0x0203),
        (&[("AuthMethod", "CHAP")], 0x0201),
        (&[("MaxBurstLength", "1")], 0x0200),
        (&[("InitialR2T", "Maybe")], 0x0200),
        (&[("InitiatorName", "")], 0x0200),
    ] {
        let mut initiator = rig.connect(2);
        let told = initiator.log_in(&mut rig, keys);
        let AnswerBody::Login { status, .. } = told[0].body else {
            panic!("{told:?}");
        };
        assert_eq!(status, wanted, "{keys:?}");
        assert!(rig.portal.is_over(initiator.peer));
    }
}

#[test]
fn session__discovery_tells_the_target_and_has_no_disk() {
    let mut rig = Rig::new(portal(BYTES));
    let mut initiator = rig.login(1, &[("SessionType", "Discovery")]);
    let mut asked = Vec::new();
    text::put(&mut asked, "SendTargets", "All");
    let body = RequestBody::Text {
        last: true,
        continued: false,
        transfer_tag: NO_TAG,
    };
    initiator.send(&mut rig, false, 1, body, &asked);
    let told = initiator.told(&mut rig);
    let pairs = text::pairs(&told[0].data).unwrap();
    assert_eq!(
        pairs,
        [("TargetName", NAME), ("TargetAddress", "127.0.0.1:3260,1")]
    );
    initiator.command(&mut rig, 2, &[0; 6], (0, 0), &[]);
    let rejected = AnswerBody::Reject {
        reason: Reason::NotSupported as u8,
    };
    assert_eq!(initiator.outcome(&mut rig)[0].body, rejected);
    let body = RequestBody::Logout {
        reason: 0,
        connection: 1,
    };
    initiator.send(&mut rig, false, 3, body, &[]);
    assert_eq!(
        initiator.told(&mut rig)[0].body,
        AnswerBody::Logout { response: 0 }
    );
    assert!(rig.portal.is_over(initiator.peer));
}

#[test]
fn session__what_no_initiator_does_ends_it() {
    type Offend = fn(&mut Rig, &mut support::initiator::Initiator);
    let cases: [(Offence, Offend); 5] = [
        (Offence::Data, |rig, it| {
            // More than was said.
            it.command(rig, 1, &write_10(0, 1), (0, 512), &[0; 516]);
        }),
        (Offence::Data, |rig, it| {
            let most = FIRST_BURST_BYTES;
            it.open_command(rig, 1, &write_10(0, 256), (0, 131_072), &[], false);
            it.data(rig, 1, (NO_TAG, 0, 0), &vec![0; most as usize + 4], true);
        }),
        (Offence::Data, |rig, it| {
            it.command(rig, 1, &write_10(0, 1), (0, 512), &[]);
            it.data(rig, 1, (77, 0, 0), &[0; 512], true);
        }),
        (Offence::Login, |rig, it| {
            let body = it.login_body(true, 1, 3);
            it.send(rig, true, 1, body, &[]);
        }),
        (Offence::Frame, |rig, it| {
            rig.portal.receive(it.peer, &[0xff; 48])
        }),
    ];
    for (number, (offence, offend)) in cases.into_iter().enumerate() {
        let mut rig = Rig::new(portal(BYTES));
        let mut initiator = rig.login(1, &FREE);
        initiator.ready(&mut rig);
        offend(&mut rig, &mut initiator);
        assert_eq!(
            rig.portal.offence(initiator.peer),
            Some(offence),
            "case {number}"
        );
        assert_eq!(rig.portal.offences().get(&offence), Some(&1));
        assert!(rig.portal.is_over(initiator.peer));
        rig.work();
        assert_eq!(stored(&mut rig, 0, 256), vec![0; 256 * BLOCK]);
    }
}

#[test]
fn session__commands_that_are_not_understood_are_rejected() {
    let mut rig = Rig::new(portal(BYTES));
    let mut initiator = rig.login(1, &[]);
    initiator.ready(&mut rig);
    let body = |read, write, attribute| RequestBody::Command {
        last: true,
        read,
        write,
        attribute,
        lun: [0; 8],
        expected: 512,
        cdb: [0; 16],
        extended: false,
    };
    for (body, reason) in [
        (body(true, true, 1), Reason::NotSupported),
        (body(true, false, 4), Reason::InvalidField),
        (RequestBody::Snack, Reason::Snack),
    ] {
        initiator.send(&mut rig, false, 1, body, &[]);
        let told = initiator.outcome(&mut rig);
        assert_eq!(
            told[0].body,
            AnswerBody::Reject {
                reason: reason as u8
            }
        );
        assert_eq!(told[0].data.len(), 48, "the header that was rejected");
    }
    // Additional headers: of the length in byte 4, in words.
    let mut bytes = [0; 52];
    (bytes[0], bytes[1], bytes[4]) = (0x01, 0x80, 1);
    bytes[24..28].copy_from_slice(&initiator.command_number.to_be_bytes());
    initiator.command_number += 1;
    rig.portal.receive(initiator.peer, &bytes);
    let told = initiator.outcome(&mut rig);
    assert_eq!(
        told[0].body,
        AnswerBody::Reject {
            reason: Reason::NotSupported as u8
        }
    );
    initiator.command(&mut rig, 2, &[0; 6], (0, 0), &[]);
    assert_eq!(
        status(&initiator.outcome(&mut rig)),
        Some(0),
        "the session goes on"
    );
}

#[test]
fn session__a_read_only_door_writes_nothing() {
    let mut rig = Rig::new(of(Arc::new(MemoryStore::new(BYTES)), true));
    let mut initiator = rig.login(1, &FREE);
    initiator.ready(&mut rig);
    initiator.command(&mut rig, 1, &write_10(0, 1), (0, 512), &[1; 512]);
    let told = initiator.outcome(&mut rig);
    assert_eq!(
        (status(&told), told[0].data[4]),
        (Some(2), 7),
        "DATA PROTECT"
    );
    assert_eq!(stored(&mut rig, 0, 1), [0; 512]);
    // Nor does it end what others do: CLEAR TASK SET, and resets, the last of which would end all connections.
    for function in [4, 5, 6, 7] {
        let body = RequestBody::Management {
            function,
            lun: [0; 8],
            referenced: u32::MAX,
            referenced_number: 0,
        };
        initiator.send(&mut rig, true, 9, body, &[]);
        let told = initiator.told(&mut rig);
        assert_eq!(told[0].body, AnswerBody::Management { response: 255 });
    }
    initiator.command(&mut rig, 2, &[0; 6], (0, 0), &[]);
    assert_eq!(status(&initiator.outcome(&mut rig)), Some(0));
}

#[test]
fn session__memory_is_bounded_and_commands_wait_for_it() {
    let mut rig = Rig::new(portal(256 << 20));
    let mut initiator = rig.login(1, &[]);
    initiator.ready(&mut rig);
    // Each of them 31 MiB, of 64 for all.
    let blocks = 62 << 10;
    for tag in 0..5 {
        initiator.command(
            &mut rig,
            tag,
            &read_10(0, blocks),
            (u32::from(blocks) * 512, 0),
            &[],
        );
    }
    let mut done = 0;
    for _ in 0..5 {
        let mut jobs = Vec::new();
        while let Some(job) = rig.portal.next_job() {
            jobs.push(job);
        }
        assert!(jobs.len() <= 2, "{} at a time", jobs.len());
        for job in jobs {
            rig.portal.finished(job.perform());
        }
        let told = initiator.told(&mut rig);
        done += told
            .iter()
            .filter(|it| status(std::slice::from_ref(it)) == Some(0))
            .count();
    }
    assert_eq!(done, 5);
}

#[test]
fn portal__connections_are_bounded() {
    let mut portal = portal(BYTES);
    let peers: Vec<_> = (0..MAX_CONNECTIONS)
        .map(|_| portal.connect("a").unwrap())
        .collect();
    assert_eq!(portal.connect("a"), None);
    portal.disconnect(peers[0]);
    assert!(portal.connect("a").is_some());
}
