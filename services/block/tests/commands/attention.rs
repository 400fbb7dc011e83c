//! Tests that unit attentions are reported once, before other errors.

use zerolane_block::Function;
use zerolane_block::cdb::Command;
use zerolane_block::sense::{Code, Key, Sense};

use crate::support::{Rig, attach, check, extent, lun, read};

#[test]
fn attention__a_newcomer_is_told_once_at_each_unit() {
    let mut rig = Rig::new();
    let nexus = attach(&mut rig.target, "second");
    let (response, _) = rig.by(nexus, &read(extent(0, 1)), &[], 512);
    assert_eq!(
        check(&response),
        Sense::new(Key::UnitAttention, Code::POWER_ON)
    );
    let (response, _) = rig.by(nexus, &read(extent(0, 1)), &[], 512);
    assert_eq!(response.sense, None);
}

#[test]
fn attention__INQUIRY_and_REPORT_LUNS_leave_it_REQUEST_SENSE_takes_it() {
    let mut rig = Rig::new();
    let nexus = attach(&mut rig.target, "second");
    rig.by(
        nexus,
        &Command::Inquiry {
            page: None,
            allocation: 96,
        },
        &[],
        96,
    );
    rig.by(
        nexus,
        &Command::ReportLuns {
            select: 0,
            allocation: 96,
        },
        &[],
        96,
    );
    let command = Command::RequestSense {
        descriptor: false,
        allocation: 18,
    };
    let (response, _) = rig.by(nexus, &command, &[], 18);
    let told = Sense::parse(&response.data).unwrap();
    assert_eq!(told, Sense::new(Key::UnitAttention, Code::POWER_ON));
    let (response, _) = rig.by(nexus, &Command::TestUnitReady, &[], 0);
    assert_eq!(response.sense, None);
}

#[test]
fn attention__comes_before_a_wrong_cdb() {
    let mut rig = Rig::new();
    let nexus = attach(&mut rig.target, "second");
    let (response, _) = rig.raw(nexus, [0; 8], &[0xff; 16], &[], 0);
    assert_eq!(check(&response).key, Key::UnitAttention);
    let (response, _) = rig.raw(nexus, [0; 8], &[0xff; 16], &[], 0);
    assert_eq!(check(&response).code, Code::INVALID_OPCODE);
}

#[test]
fn attention__a_reset_covers_what_was_before() {
    let mut rig = Rig::new();
    let nexus = attach(&mut rig.target, "second");
    rig.target
        .manage(rig.nexus, 1, lun(0).encode(), Function::ResetUnit)
        .unwrap();
    let (response, _) = rig.by(nexus, &Command::TestUnitReady, &[], 0);
    assert_eq!(check(&response).code, Code::UNIT_RESET);
    let (response, _) = rig.by(nexus, &Command::TestUnitReady, &[], 0);
    assert_eq!(response.sense, None, "power on is covered");
    let sense = rig.fails(&Command::TestUnitReady, &[], 0);
    assert_eq!(
        sense.code,
        Code::UNIT_RESET,
        "the one that asked is told, too"
    );
}
