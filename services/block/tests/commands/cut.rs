//! Tests that truncated, unknown and unsupported CDBs are refused.

use zerolane_block::cdb::opcode::{self, TABLE};
use zerolane_block::sense::{Code, Sense};

use crate::support::{Rig, check, illegal};

#[test]
fn cdb__that_is_cut_off_names_the_missing_byte() {
    let mut rig = Rig::new();
    for row in TABLE {
        for length in 1..row.usage.len() {
            let cdb = [&[row.opcode][..], &vec![0; length - 1]].concat();
            let response = rig.bytes(&cdb, &[], 0).0;
            assert_eq!(
                check(&response),
                Sense::cdb_byte(length as u16),
                "{}",
                row.name
            );
        }
    }
    let response = rig.bytes(&[], &[], 0).0;
    assert_eq!(check(&response), illegal(Code::INVALID_OPCODE));
}

#[test]
fn cdb__with_NACA_is_refused() {
    let mut rig = Rig::new();
    for row in TABLE {
        let mut cdb = vec![0; row.usage.len()];
        (cdb[0], cdb[1]) = (row.opcode, row.action.unwrap_or(0));
        let last = cdb.len() - 1;
        cdb[last] = 4;
        let response = rig.bytes(&cdb, &[], 0).0;
        assert_eq!(
            check(&response),
            Sense::cdb_bit(last as u16, 2),
            "{}",
            row.name
        );
    }
}

#[test]
fn cdb__of_every_other_code_is_unknown() {
    let mut rig = Rig::new();
    for code in (0..=255).filter(|&code| TABLE.iter().all(|row| row.opcode != code)) {
        let mut cdb = [0; 16];
        cdb[0] = code;
        let response = rig.bytes(&cdb, &[], 0).0;
        assert_eq!(
            check(&response),
            illegal(Code::INVALID_OPCODE),
            "{code:02x}h"
        );
    }
}

#[test]
fn cdb__of_other_service_actions_is_an_invalid_field() {
    let mut rig = Rig::new();
    for code in [
        opcode::SERVICE_ACTION_IN_16,
        opcode::MAINTENANCE_IN,
        opcode::PERSISTENT_RESERVE_IN,
        opcode::PERSISTENT_RESERVE_OUT,
    ] {
        let known = |action| {
            TABLE
                .iter()
                .any(|row| row.opcode == code && row.action == Some(action))
        };
        for action in (0..32).filter(|&it| !known(it)) {
            let mut cdb = [0; 16];
            (cdb[0], cdb[1]) = (code, action);
            let response = rig.bytes(&cdb, &[], 0).0;
            assert_eq!(
                check(&response),
                Sense::cdb_bit(1, 4),
                "{code:02x}h {action:02x}h"
            );
        }
    }
}
