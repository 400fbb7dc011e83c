//! Tests that COMPARE AND WRITE writes only if all blocks match.

use zerolane_block::cdb::Command;
use zerolane_block::sense::{Code, Key, Sense};

use crate::support::{BLOCK, BLOCKS, Rig, extent, illegal, pattern};

fn command(lba: u64, blocks: u64) -> Command {
    Command::CompareAndWrite {
        extent: extent(lba, blocks),
        dpo: false,
        fua: true,
    }
}

#[test]
fn compare_and_write__writes_if_all_is_as_expected() {
    let mut rig = Rig::new();
    for blocks in [1, 2, 128] {
        let (old, new) = (pattern(blocks, 1), pattern(blocks, 2));
        rig.write(5, &old);
        rig.good(&command(5, blocks), &[old, new.clone()].concat(), 0);
        assert_eq!(rig.read(extent(5, blocks)), new);
    }
}

#[test]
fn compare_and_write__else_writes_nothing_and_says_where() {
    let mut rig = Rig::new();
    let (old, new) = (pattern(4, 1), pattern(4, 2));
    rig.write(5, &old);
    for at in [0, 700, 4 * BLOCK - 1] {
        let mut wrong = old.clone();
        wrong[at] ^= 1;
        let sense = rig.fails(&command(5, 4), &[wrong, new.clone()].concat(), 0);
        let miscompare = Sense::new(Key::Miscompare, Code::MISCOMPARE);
        assert_eq!(sense, miscompare.with_information(at as u64));
    }
    assert_eq!(rig.read(extent(5, 4)), old);
}

#[test]
fn compare_and_write__ranges_and_limits_are_held() {
    let mut rig = Rig::new();
    rig.good(&command(0, 0), &[], 0);
    assert_eq!(
        rig.fails(&command(0, 129), &[0; 258 * BLOCK], 0),
        Sense::cdb_byte(13)
    );
    for (lba, blocks) in [(BLOCKS, 1), (BLOCKS - 1, 2), (u64::MAX, 1)] {
        let sense = rig.fails(&command(lba, blocks), &[0; 4 * BLOCK], 0);
        assert_eq!(sense, illegal(Code::LBA_OUT_OF_RANGE));
    }
    let sense = rig.fails(&command(0, 1), &[0; 2 * BLOCK - 1], 0);
    assert_eq!(sense, illegal(Code::INVALID_FIELD_IN_IU));
    // Data of other blocks than the CDB names, as of 256 that its byte cannot say.
    for blocks in [0, 1] {
        let sense = rig.fails(&command(0, blocks), &[0; 4 * BLOCK], 0);
        assert_eq!(sense, Sense::cdb_byte(13));
    }
}
