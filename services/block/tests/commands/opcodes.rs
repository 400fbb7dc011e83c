//! Tests that REPORT SUPPORTED OPERATION CODES lists what the parser accepts.

use zerolane_block::cdb::opcode::{self, TABLE};
use zerolane_block::cdb::{Command, OpcodeQuery};
use zerolane_block::sense::Sense;

use crate::support::Rig;

fn report(timeouts: bool, query: OpcodeQuery) -> Command {
    Command::ReportOpcodes {
        timeouts,
        query,
        allocation: 4096,
    }
}

#[test]
fn opcodes__all_are_listed_with_their_lengths() {
    let mut rig = Rig::new();
    for (timeouts, each) in [(false, 8), (true, 20)] {
        let data = rig.good(&report(timeouts, OpcodeQuery::All), &[], 4096);
        let length = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
        assert_eq!((length, data.len()), (TABLE.len() * each, 4 + length));
        for (row, entry) in TABLE.iter().zip(data[4..].chunks(each)) {
            assert_eq!((entry[0], entry[3]), (row.opcode, row.action.unwrap_or(0)));
            assert_eq!(entry[5] & 1 == 1, row.action.is_some(), "SERVACTV");
            assert_eq!(entry[5] & 2 == 2, timeouts, "CTDP");
            assert_eq!(usize::from(entry[7]), row.usage.len());
        }
    }
}

#[test]
fn opcodes__one_by_one_say_which_bits_count() {
    let mut rig = Rig::new();
    for row in TABLE {
        let query = match row.action {
            Some(action) => OpcodeQuery::Action(row.opcode, action.into()),
            None => OpcodeQuery::Plain(row.opcode),
        };
        let action = row.action.unwrap_or(0).into();
        for query in [query, OpcodeQuery::Either(row.opcode, action)] {
            let data = rig.good(&report(false, query), &[], 4096);
            assert_eq!(
                (data[1], usize::from(data[3])),
                (3, row.usage.len()),
                "{}",
                row.name
            );
            assert_eq!(data[4..], *row.usage);
            let data = rig.good(&report(true, query), &[], 4096);
            assert_eq!((data[1], data.len()), (0x83, 4 + row.usage.len() + 12));
        }
        assert_eq!(
            opcode::cdb_bytes(row.opcode),
            Some(row.usage.len()),
            "{}",
            row.name
        );
    }
}

#[test]
fn opcodes__unknown_ones_are_not_supported_and_wrong_questions_refused() {
    let mut rig = Rig::new();
    for query in [
        OpcodeQuery::Plain(0xff),
        OpcodeQuery::Action(0x9e, 0x11),
        OpcodeQuery::Action(0xff, 1),
        OpcodeQuery::Either(0x00, 1),
        OpcodeQuery::Either(0x9e, 0x13),
    ] {
        let data = rig.good(&report(false, query), &[], 4096);
        assert_eq!(data[1] & 7, 1, "{query:?}");
    }
    for query in [OpcodeQuery::Plain(0x9e), OpcodeQuery::Action(0x00, 0)] {
        let sense = rig.fails(&report(false, query), &[], 4096);
        assert_eq!(sense, Sense::cdb_bit(2, 2));
    }
    let response = rig
        .bytes(&[0xa3, 0x0c, 4, 0, 0, 0, 0, 0, 0, 64, 0, 0], &[], 64)
        .0;
    assert_eq!(response.sense, Some(Sense::cdb_bit(2, 2)));
}
