//! Tests that every form of READ and WRITE moves the same blocks.

use zerolane_block::cdb::{Command, Form};
use zerolane_block::sense::{Code, Key, Sense};
use zerolane_block::{Residual, Status};

use crate::support::{BLOCK, BLOCKS, Rig, check, extent, illegal, pattern, read, reader, write};

const FORMS: [Form; 4] = [Form::Six, Form::Ten, Form::Twelve, Form::Sixteen];

#[test]
fn read_write__every_form_moves_the_same_blocks() {
    let mut rig = Rig::new();
    for (index, form) in FORMS.into_iter().enumerate() {
        for (lba, blocks) in [
            (0, 1),
            (7, 3),
            (BLOCKS - 1, 1),
            (100, 256),
            (BLOCKS - 255, 255),
        ] {
            let bytes = pattern(blocks, lba + index as u64);
            let at = extent(lba, blocks);
            rig.good(
                &Command::Write {
                    form,
                    extent: at,
                    dpo: false,
                    fua: false,
                },
                &bytes,
                0,
            );
            let command = Command::Read {
                form,
                extent: at,
                dpo: false,
                fua: false,
            };
            assert_eq!(rig.good(&command, &[], bytes.len()), bytes, "{command:?}");
            assert_eq!(rig.read(at), bytes);
        }
    }
}

#[test]
fn read_write__FUA_and_DPO_are_taken() {
    let mut rig = Rig::new();
    for (form, dpo, fua) in [
        (Form::Ten, true, false),
        (Form::Twelve, false, true),
        (Form::Sixteen, true, true),
    ] {
        let bytes = pattern(2, 5);
        let at = extent(9, 2);
        rig.good(
            &Command::Write {
                form,
                extent: at,
                dpo,
                fua,
            },
            &bytes,
            0,
        );
        let got = rig.good(
            &Command::Read {
                form,
                extent: at,
                dpo,
                fua,
            },
            &[],
            bytes.len(),
        );
        assert_eq!(got, bytes);
    }
}

#[test]
fn read_write__beyond_the_end_is_out_of_range_and_moves_nothing() {
    let mut rig = Rig::new();
    let before = pattern(1, 1);
    rig.write(BLOCKS - 1, &before);
    for (lba, blocks) in [
        (BLOCKS, 1),
        (BLOCKS - 1, 2),
        (BLOCKS + 1, 0),
        (0, BLOCKS + 1),
        (1 << 31, 1),
        (u64::MAX, 1),
        (u64::MAX, 0),
    ] {
        let at = extent(lba, blocks);
        let out = vec![1; (blocks as usize * BLOCK).min(4 << 20)];
        assert_eq!(
            rig.fails(&read(at), &[], out.len()),
            illegal(Code::LBA_OUT_OF_RANGE)
        );
        assert_eq!(
            rig.fails(&write(at), &out, 0),
            illegal(Code::LBA_OUT_OF_RANGE),
            "{at:?}"
        );
    }
    assert_eq!(rig.read(extent(BLOCKS - 1, 1)), before);
}

#[test]
fn read_write__no_blocks_are_good() {
    let mut rig = Rig::new();
    for form in [Form::Ten, Form::Twelve, Form::Sixteen] {
        let at = extent(BLOCKS, 0);
        rig.good(
            &Command::Read {
                form,
                extent: at,
                dpo: false,
                fua: false,
            },
            &[],
            0,
        );
        rig.good(
            &Command::Write {
                form,
                extent: at,
                dpo: false,
                fua: false,
            },
            &[],
            0,
        );
    }
}

#[test]
fn read_write__more_than_the_limit_is_an_invalid_field() {
    use std::sync::Arc;
    use zerolane_block::limits::MAX_TRANSFER_BYTES;
    use zerolane_block::store::MemoryStore;
    let mut rig = Rig::of(Arc::new(MemoryStore::new(1 << 42)));
    let most = MAX_TRANSFER_BYTES / BLOCK as u64;
    assert_eq!(
        rig.fails(&read(extent(5, most + 1)), &[], 0),
        Sense::cdb_byte(10)
    );
    let sense = rig.fails(&read(extent(5, u32::MAX.into())), &[], 0);
    assert_eq!(sense, Sense::cdb_byte(10));
    let twelve = Command::Write {
        form: Form::Twelve,
        extent: extent(5, most + 1),
        dpo: false,
        fua: false,
    };
    assert_eq!(rig.fails(&twelve, &[], 0), Sense::cdb_byte(6));
    let last = (1 << 42) / BLOCK as u64 - 1;
    let bytes = pattern(1, 3);
    rig.write(last, &bytes);
    assert_eq!(rig.read(extent(last, 1)), bytes);
}

#[test]
fn read_write__protection_information_is_refused() {
    let mut rig = Rig::new();
    for code in [
        0x28, 0x2a, 0x2f, 0xa8, 0xaa, 0xaf, 0x88, 0x8a, 0x8f, 0x89, 0x41, 0x93,
    ] {
        for protect in 1..8 {
            let mut cdb = [0; 16];
            (cdb[0], cdb[1]) = (code, protect << 5);
            let response = rig.bytes(&cdb, &[0; 1024], 0).0;
            assert_eq!(response.sense, Some(Sense::cdb_bit(1, 7)), "{code:02x}h");
        }
    }
}

#[test]
fn read__says_what_was_not_moved() {
    let mut rig = Rig::new();
    let bytes = pattern(4, 8);
    rig.write(0, &bytes);
    let at = read(extent(0, 4));
    let (response, data) = rig.run(&at, &[], 5 * BLOCK);
    assert_eq!(response.residual, Residual::Under(BLOCK as u64));
    assert_eq!(data[..4 * BLOCK], bytes);
    let (response, data) = rig.run(&at, &[], 3 * BLOCK - 7);
    assert_eq!(response.residual, Residual::Over(BLOCK as u64 + 7));
    assert_eq!(data, bytes[..3 * BLOCK - 7]);
    let (response, _) = rig.run(&at, &[], 0);
    assert_eq!(
        (response.status, response.residual),
        (Status::Good, Residual::Over(2048))
    );
}

#[test]
fn write__with_too_few_bytes_writes_the_blocks_that_are_whole() {
    let mut rig = Rig::new();
    let before = pattern(4, 9);
    for bytes in [0, 7, 3 * BLOCK - 1, 3 * BLOCK] {
        rig.write(0, &before);
        let (response, _) = rig.run(&write(extent(0, 4)), &vec![7; bytes], 0);
        let left = (4 * BLOCK - bytes) as u64;
        assert_eq!(
            (response.status, response.residual),
            (Status::Good, Residual::Over(left))
        );
        let whole = bytes / BLOCK * BLOCK;
        assert_eq!(
            rig.read(extent(0, 4)),
            [&vec![7; whole], &before[whole..]].concat()
        );
    }
    rig.write(0, &before);
    let (response, _) = rig.run(&write(extent(0, 1)), &[7; 3 * BLOCK], 0);
    assert_eq!(response.residual, Residual::Under(2 * BLOCK as u64));
    assert_eq!(
        rig.read(extent(0, 2)),
        [&[7; BLOCK], &before[BLOCK..2 * BLOCK]].concat()
    );
}

#[test]
fn write__to_what_may_not_be_written_is_protected() {
    let mut rig = Rig::new();
    let reader = reader(&mut rig);
    let protected = Sense::new(Key::DataProtect, Code::WRITE_PROTECTED);
    let at = extent(0, 1);
    let commands = [
        write(at),
        Command::WriteSame {
            form: Form::Ten,
            extent: at,
            unmap: true,
            no_data: false,
        },
        Command::Unmap {
            parameter_bytes: 24,
        },
        Command::CompareAndWrite {
            extent: at,
            dpo: false,
            fua: false,
        },
    ];
    for command in commands {
        let (response, _) = rig.by(reader, &command, &[0; 2 * BLOCK], 0);
        assert_eq!(check(&response), protected, "{command:?}");
    }
    let (response, _) = rig.by(reader, &read(at), &[], BLOCK);
    assert_eq!(response.status, Status::Good);
}
