//! Tests that LUNs can be added, removed and listed by REPORT LUNS.

use std::sync::Arc;

use zerolane_block::cdb::Command;
use zerolane_block::sense::{Code, Sense};
use zerolane_block::store::MemoryStore;
use zerolane_block::{Access, Address, Disk, Identity, Initiator, Lun, NexusId, Status, Target};

use crate::support::{BLOCK, BLOCKS, Rig, check, disk, extent, illegal, lun, read};

fn add(target: &mut Target, number: u16) {
    let store = Arc::new(MemoryStore::new(BLOCKS * BLOCK as u64));
    let disk: Disk = Disk {
        identity: Identity::of(&[&number.to_be_bytes()]),
        ..disk(&*store)
    };
    target.add_unit(lun(number), disk, store).unwrap();
}

fn report(rig: &mut Rig, nexus: NexusId, at: [u8; 8], select: u8) -> Vec<[u8; 8]> {
    let cdb = Command::ReportLuns {
        select,
        allocation: 4096,
    }
    .cdb()
    .unwrap();
    let (response, data) = rig.raw(nexus, at, cdb.as_bytes(), &[], 4096);
    assert_eq!(response.status, Status::Good, "{response:?}");
    let length = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
    assert_eq!(response.data.len(), 8 + length);
    data[8..8 + length]
        .chunks(8)
        .map(|it| it.try_into().unwrap())
        .collect()
}

const WELL_KNOWN: [u8; 8] = [0xc1, 0x01, 0, 0, 0, 0, 0, 0];

#[test]
fn lun__bytes_and_numbers_are_the_same() {
    for number in [0, 1, 255, 256, Lun::MAX] {
        assert_eq!(
            Address::parse(lun(number).encode()),
            Address::Unit(lun(number))
        );
    }
    assert_eq!(lun(300).encode()[..2], [0x41, 0x2c]);
    assert_eq!(
        Address::parse([0x40, 7, 0, 0, 0, 0, 0, 0]),
        Address::Unit(lun(7))
    );
    for other in [
        [1, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 0],
        [0x80, 0, 0, 0, 0, 0, 0, 0],
    ] {
        assert_eq!(Address::parse(other), Address::Other);
    }
    assert_eq!(Lun::new(Lun::MAX + 1), None);
}

#[test]
fn report_luns__lists_what_is_selected() {
    let mut rig = Rig::new();
    add(&mut rig.target, 300);
    let nexus = rig.nexus;
    let both = [lun(0).encode(), lun(300).encode()];
    assert_eq!(report(&mut rig, nexus, [0; 8], 0), both);
    assert_eq!(report(&mut rig, nexus, WELL_KNOWN, 1), [WELL_KNOWN]);
    assert_eq!(
        report(&mut rig, nexus, WELL_KNOWN, 2),
        [&both[..], &[WELL_KNOWN]].concat()
    );
    let sense = rig.fails(
        &Command::ReportLuns {
            select: 3,
            allocation: 64,
        },
        &[],
        64,
    );
    assert_eq!(sense, Sense::cdb_byte(2));
    let data = rig
        .run(
            &Command::ReportLuns {
                select: 0,
                allocation: 16,
            },
            &[],
            64,
        )
        .0
        .data;
    assert_eq!(data[..4], [0, 0, 0, 16], "the length of all");
    assert_eq!(data.len(), 16);
}

#[test]
fn absent__a_lun_without_a_unit_answers_what_it_must() {
    let mut rig = Rig::new();
    let nexus = rig.nexus;
    let at = lun(9).encode();
    let inquiry = Command::Inquiry {
        page: None,
        allocation: 96,
    }
    .cdb()
    .unwrap();
    let (response, _) = rig.raw(nexus, at, inquiry.as_bytes(), &[], 96);
    assert_eq!((response.status, response.data[0]), (Status::Good, 0x7f));
    let sense = Command::RequestSense {
        descriptor: false,
        allocation: 18,
    }
    .cdb()
    .unwrap();
    let (response, _) = rig.raw(nexus, at, sense.as_bytes(), &[], 18);
    assert_eq!(
        Sense::parse(&response.data),
        Ok(illegal(Code::UNIT_NOT_SUPPORTED))
    );
    for command in [
        Command::TestUnitReady,
        read(extent(0, 1)),
        Command::ReadCapacity10,
    ] {
        let cdb = command.cdb().unwrap();
        let (response, _) = rig.raw(nexus, at, cdb.as_bytes(), &[], 512);
        assert_eq!(check(&response), illegal(Code::UNIT_NOT_SUPPORTED));
    }
    let mut empty = Rig::new();
    assert!(empty.target.remove_unit(lun(0)));
    let nexus = empty.nexus;
    assert_eq!(
        report(&mut empty, nexus, [0; 8], 0),
        <[[u8; 8]; 0]>::default()
    );
}

#[test]
fn access__an_initiator_sees_no_unit_that_is_not_its_own() {
    let mut rig = Rig::new();
    add(&mut rig.target, 1);
    let access = Access {
        units: Some(vec![lun(1)]),
        read_only: false,
    };
    let name = Initiator::named(b"other").unwrap();
    let other = rig.target.attach(name, access).unwrap();
    assert_eq!(report(&mut rig, other, [0; 8], 0), [lun(1).encode()]);
    let cdb = read(extent(0, 1)).cdb().unwrap();
    let (response, data) = rig.raw(other, lun(0).encode(), cdb.as_bytes(), &[], BLOCK);
    assert_eq!(check(&response), illegal(Code::UNIT_NOT_SUPPORTED));
    assert_eq!(data, [0; BLOCK]);
}

#[test]
fn units__that_come_and_go_are_told_at_the_others() {
    let mut rig = Rig::new();
    add(&mut rig.target, 1);
    let sense = rig.fails(&Command::TestUnitReady, &[], 0);
    assert_eq!(sense.code, Code::LUNS_CHANGED);
    rig.good(&Command::TestUnitReady, &[], 0);
    assert!(rig.target.remove_unit(lun(1)));
    assert!(!rig.target.remove_unit(lun(1)));
    let nexus = rig.nexus;
    assert_eq!(report(&mut rig, nexus, [0; 8], 0), [lun(0).encode()]);
    rig.good(&Command::TestUnitReady, &[], 0);
}
