//! Tests that WRITE SAME fills or unmaps the named blocks only.

use zerolane_block::cdb::{Command, Form};
use zerolane_block::sense::{Code, Sense};

use crate::support::{BLOCK, BLOCKS, Rig, extent, illegal, pattern};

fn same(form: Form, lba: u64, blocks: u64, unmap: bool) -> Command {
    Command::WriteSame {
        form,
        extent: extent(lba, blocks),
        unmap,
        no_data: false,
    }
}

/// Whether the block is mapped.
fn is_mapped(rig: &mut Rig, lba: u64) -> bool {
    let status = rig.good(
        &Command::GetLbaStatus {
            lba,
            allocation: 24,
        },
        &[],
        24,
    );
    status[20] == 0
}

#[test]
fn write_same__fills_blocks_and_no_others() {
    let mut rig = Rig::new();
    for form in [Form::Ten, Form::Sixteen] {
        let block = pattern(1, 7);
        let around = pattern(1200, 8);
        rig.write(0, &around);
        rig.good(&same(form, 100, 1000, false), &block, 0);
        assert_eq!(rig.read(extent(0, 100)), around[..100 * BLOCK]);
        assert_eq!(rig.read(extent(100, 1000)), block.repeat(1000));
        assert_eq!(rig.read(extent(1100, 100)), around[1100 * BLOCK..]);
    }
}

#[test]
fn write_same__unmaps_only_if_the_block_is_zero() {
    let mut rig = Rig::new();
    for form in [Form::Ten, Form::Sixteen] {
        rig.write(0, &pattern(32, 1));
        rig.good(&same(form, 8, 8, true), &[0; BLOCK], 0);
        assert!(!is_mapped(&mut rig, 8));
        assert_eq!(rig.read(extent(8, 8)), vec![0; 8 * BLOCK]);
        rig.good(&same(form, 8, 8, true), &[1; BLOCK], 0);
        assert!(is_mapped(&mut rig, 8));
        assert_eq!(rig.read(extent(8, 8)), vec![1; 8 * BLOCK]);
        rig.good(&same(form, 16, 8, false), &[0; BLOCK], 0);
        assert!(is_mapped(&mut rig, 16), "without UNMAP zeros have a place");
    }
}

#[test]
fn write_same__without_data_writes_zeros() {
    let mut rig = Rig::new();
    rig.write(0, &pattern(32, 1));
    for (lba, unmap) in [(0, false), (8, true)] {
        let form = Form::Sixteen;
        let command = Command::WriteSame {
            form,
            extent: extent(lba, 8),
            unmap,
            no_data: true,
        };
        rig.good(&command, &[], 0);
        assert_eq!(is_mapped(&mut rig, lba), !unmap);
    }
    assert_eq!(rig.read(extent(0, 16)), vec![0; 16 * BLOCK]);
}

#[test]
fn write_same__ranges_and_limits_are_held() {
    let mut rig = Rig::new();
    for (form, byte) in [(Form::Ten, 7), (Form::Sixteen, 10)] {
        let sense = rig.fails(&same(form, 0, 0, false), &[0; BLOCK], 0);
        assert_eq!(sense, Sense::cdb_byte(byte), "WSNZ");
        for (lba, blocks) in [(BLOCKS, 1), (1, BLOCKS), (BLOCKS + 1, 0)] {
            let sense = rig.fails(&same(form, lba, blocks, true), &[0; BLOCK], 0);
            assert_eq!(sense, illegal(Code::LBA_OUT_OF_RANGE));
        }
    }
    use std::sync::Arc;
    use zerolane_block::limits::MAX_WRITE_SAME_BYTES;
    use zerolane_block::store::MemoryStore;
    let mut rig = Rig::of(Arc::new(MemoryStore::new(1 << 40)));
    let most = MAX_WRITE_SAME_BYTES / BLOCK as u64;
    rig.good(&same(Form::Sixteen, 3, most, true), &[0; BLOCK], 0);
    let sense = rig.fails(&same(Form::Sixteen, 3, most + 1, true), &[0; BLOCK], 0);
    assert_eq!(sense, Sense::cdb_byte(10));
}

#[test]
fn write_same__refuses_anchors_and_addresses_in_the_data() {
    let mut rig = Rig::new();
    for bit in [4, 2, 1] {
        let response = rig
            .bytes(&[0x41, 1 << bit, 0, 0, 0, 0, 0, 0, 1, 0], &[0; BLOCK], 0)
            .0;
        assert_eq!(response.sense, Some(Sense::cdb_bit(1, bit)));
    }
    let sense = rig.fails(&same(Form::Ten, 0, 1, false), &[0; BLOCK - 1], 0);
    assert_eq!(sense, illegal(Code::INVALID_FIELD_IN_IU));
    for (form, byte) in [(Form::Ten, 7), (Form::Sixteen, 10)] {
        let sense = rig.fails(&same(form, 0, 1, false), &[0; 2 * BLOCK], 0);
        assert_eq!(sense, Sense::cdb_byte(byte), "more than a block");
    }
}
