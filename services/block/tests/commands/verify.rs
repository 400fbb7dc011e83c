//! Tests that VERIFY, PRE-FETCH and SYNCHRONIZE CACHE behave as specified.

use zerolane_block::cdb::{Command, Form};
use zerolane_block::sense::{Code, Key, Sense};

use crate::support::{BLOCK, BLOCKS, Rig, extent, illegal, pattern};

const FORMS: [Form; 3] = [Form::Ten, Form::Twelve, Form::Sixteen];

fn verify(form: Form, lba: u64, blocks: u64, compare: bool) -> Command {
    Command::Verify {
        form,
        extent: extent(lba, blocks),
        dpo: false,
        compare,
    }
}

#[test]
fn verify__compares_and_says_where_it_differs() {
    let mut rig = Rig::new();
    let bytes = pattern(600, 4);
    rig.write(10, &bytes);
    for form in FORMS {
        rig.good(&verify(form, 10, 600, true), &bytes, 0);
        for at in [0, 511, 300 * BLOCK + 5, bytes.len() - 1] {
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            let sense = rig.fails(&verify(form, 10, 600, true), &other, 0);
            assert_eq!((sense.key, sense.code), (Key::Miscompare, Code::MISCOMPARE));
            assert_eq!(sense.information, Some(at as u64));
        }
    }
    assert_eq!(rig.read(extent(10, 600)), bytes, "nothing is written");
}

#[test]
fn verify__without_data_reads_the_medium() {
    let mut rig = Rig::new();
    for form in FORMS {
        rig.good(&verify(form, 0, BLOCKS, false), &[], 0);
        rig.good(&verify(form, BLOCKS, 0, false), &[], 0);
        let sense = rig.fails(&verify(form, 1, BLOCKS, false), &[], 0);
        assert_eq!(sense, illegal(Code::LBA_OUT_OF_RANGE));
    }
}

#[test]
fn verify__refuses_what_BYTCHK_may_not_be() {
    let mut rig = Rig::new();
    for check in [2, 3] {
        let response = rig
            .bytes(&[0x2f, check << 1, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512], 0)
            .0;
        assert_eq!(response.sense, Some(Sense::cdb_bit(1, 2)));
    }
}

#[test]
fn synchronize_and_prefetch__take_every_range_on_the_disk() {
    let mut rig = Rig::new();
    for form in [Form::Ten, Form::Sixteen] {
        for immediate in [false, true] {
            for (lba, blocks) in [
                (0, 0),
                (0, BLOCKS),
                (BLOCKS - 1, 1),
                (BLOCKS - 1, 0),
                (BLOCKS, 0),
            ] {
                let extent = extent(lba, blocks);
                rig.good(
                    &Command::SynchronizeCache {
                        form,
                        extent,
                        immediate,
                    },
                    &[],
                    0,
                );
                rig.good(
                    &Command::Prefetch {
                        form,
                        extent,
                        immediate,
                    },
                    &[],
                    0,
                );
            }
            for (lba, blocks) in [(BLOCKS, 1), (BLOCKS + 1, 0), (1, BLOCKS)] {
                let extent = extent(lba, blocks);
                let out_of_range = illegal(Code::LBA_OUT_OF_RANGE);
                let command = Command::SynchronizeCache {
                    form,
                    extent,
                    immediate,
                };
                assert_eq!(rig.fails(&command, &[], 0), out_of_range);
                let command = Command::Prefetch {
                    form,
                    extent,
                    immediate,
                };
                assert_eq!(rig.fails(&command, &[], 0), out_of_range);
            }
        }
    }
}
