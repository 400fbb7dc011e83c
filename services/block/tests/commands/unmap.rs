//! Tests that UNMAP frees the named blocks only, and GET LBA STATUS reports them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use zerolane_block::cdb::{Command, Extent, Form};
use zerolane_block::limits::{MAX_UNMAP_BYTES, MAX_UNMAP_RANGES};
use zerolane_block::sense::{Code, Sense};
use zerolane_block::store::{MemoryStore, Run, Store};
use zerolane_block::unmap_list;

use crate::support::{BLOCK, BLOCKS, Rig, extent, illegal, pattern};

fn unmap(rig: &mut Rig, extents: &[Extent]) {
    let list = unmap_list(extents).unwrap();
    rig.good(
        &Command::Unmap {
            parameter_bytes: list.len() as u16,
        },
        &list,
        0,
    );
}

fn unmap_fails(rig: &mut Rig, list: &[u8]) -> Sense {
    rig.fails(
        &Command::Unmap {
            parameter_bytes: list.len() as u16,
        },
        list,
        0,
    )
}

/// Runs from `lba` on: blocks, and whether they are mapped.
fn status(rig: &mut Rig, lba: u64, allocation: u32) -> Vec<(Extent, bool)> {
    let command = Command::GetLbaStatus { lba, allocation };
    let data = rig.good(&command, &[], allocation as usize);
    let length = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
    assert_eq!(length + 4, data.len());
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, &it| sum << 8 | u64::from(it));
    let run = |it: &[u8]| (extent(number(&it[..8]), number(&it[8..12])), it[12] == 0);
    data[8..].chunks(16).map(run).collect()
}

#[test]
fn unmap__blocks_read_as_zeros_and_others_stay() {
    let mut rig = Rig::new();
    let bytes = pattern(64, 2);
    rig.write(0, &bytes);
    unmap(
        &mut rig,
        &[extent(8, 8), extent(17, 3), extent(63, 1), extent(40, 0)],
    );
    let mut expected = bytes;
    for blocks in [8..16, 17..20, 63..64] {
        expected[blocks.start * BLOCK..blocks.end * BLOCK].fill(0);
    }
    assert_eq!(rig.read(extent(0, 64)), expected);
}

#[test]
fn unmap__no_list_and_no_ranges_are_good() {
    let mut rig = Rig::new();
    rig.good(&Command::Unmap { parameter_bytes: 0 }, &[], 0);
    unmap(&mut rig, &[]);
}

#[test]
fn unmap__one_wrong_range_unmaps_nothing() {
    let mut rig = Rig::new();
    let bytes = pattern(16, 3);
    rig.write(0, &bytes);
    for wrong in [
        extent(BLOCKS, 1),
        extent(BLOCKS - 1, 2),
        extent(u64::MAX, 1),
        extent(0, 1 << 31),
    ] {
        let list = unmap_list(&[extent(0, 16), wrong]).unwrap();
        assert_eq!(
            unmap_fails(&mut rig, &list),
            illegal(Code::LBA_OUT_OF_RANGE)
        );
    }
    assert_eq!(rig.read(extent(0, 16)), bytes);
}

#[test]
fn unmap__lists_of_wrong_length_are_refused() {
    let mut rig = Rig::new();
    let bytes = pattern(1, 3);
    rig.write(0, &bytes);
    let whole = unmap_list(&[extent(0, 1)]).unwrap();
    for length in 1..8 {
        let sense = unmap_fails(&mut rig, &whole[..length]);
        assert_eq!(sense, illegal(Code::PARAMETER_LIST_LENGTH));
    }
    for length in 8..24 {
        let sense = unmap_fails(&mut rig, &whole[..length]);
        assert_eq!(sense, illegal(Code::PARAMETER_LIST_LENGTH), "{length}");
    }
    let mut list = whole.clone();
    list[1] = 5;
    assert_eq!(unmap_fails(&mut rig, &list), Sense::parameter_byte(0));
    assert_eq!(rig.read(extent(0, 1)), bytes);
    // A range that is cut off by its own length is not looked at.
    let mut list = whole;
    list[3] = 15;
    rig.good(
        &Command::Unmap {
            parameter_bytes: 24,
        },
        &list,
        0,
    );
    assert_eq!(rig.read(extent(0, 1)), bytes);
}

#[test]
fn unmap__limits_are_held() {
    use std::sync::Arc;
    use zerolane_block::store::MemoryStore;
    let mut rig = Rig::of(Arc::new(MemoryStore::new(1 << 50)));
    let most = MAX_UNMAP_BYTES / BLOCK as u64;
    unmap(&mut rig, &[extent(0, most / 2), extent(most, most / 2)]);
    let list = unmap_list(&[extent(0, most / 2), extent(most, most / 2 + 1)]).unwrap();
    assert_eq!(unmap_fails(&mut rig, &list), Sense::parameter_byte(32));
    unmap(&mut rig, &vec![extent(1, 1); MAX_UNMAP_RANGES]);
    assert_eq!(unmap_list(&vec![extent(1, 1); MAX_UNMAP_RANGES + 1]), None);
    let bytes = 8 + 16 * (MAX_UNMAP_RANGES as u16 + 1);
    let sense = rig.fails(
        &Command::Unmap {
            parameter_bytes: bytes,
        },
        &vec![0; bytes.into()],
        0,
    );
    assert_eq!(sense, Sense::cdb_byte(7));
}

#[test]
fn unmap__anchored_blocks_are_refused() {
    let mut rig = Rig::new();
    let response = rig.bytes(&[0x42, 1, 0, 0, 0, 0, 0, 0, 0, 0], &[], 0).0;
    assert_eq!(response.sense, Some(Sense::cdb_bit(1, 0)));
}

#[test]
fn get_lba_status__tells_mapped_from_unmapped() {
    let mut rig = Rig::new();
    assert_eq!(status(&mut rig, 0, 255), [(extent(0, BLOCKS), false)]);
    rig.write(16, &pattern(16, 1));
    let middle = (extent(16, 16), true);
    let rest = (extent(32, BLOCKS - 32), false);
    assert_eq!(
        status(&mut rig, 0, 255),
        [(extent(0, 16), false), middle, rest]
    );
    assert_eq!(status(&mut rig, 20, 255), [(extent(20, 12), true), rest]);
    unmap(&mut rig, &[extent(16, 16)]);
    assert_eq!(status(&mut rig, 3, 255), [(extent(3, BLOCKS - 3), false)]);
}

#[test]
fn get_lba_status__is_cut_to_the_allocation_length() {
    let mut rig = Rig::new();
    rig.write(16, &pattern(16, 1));
    assert_eq!(status(&mut rig, 0, 24), [(extent(0, 16), false)]);
    for allocation in [0, 4, 8, 23] {
        let command = Command::GetLbaStatus { lba: 0, allocation };
        assert_eq!(
            rig.run(&command, &[], 255).0.data.len(),
            allocation as usize
        );
    }
    for lba in [BLOCKS, u64::MAX] {
        let sense = rig.fails(
            &Command::GetLbaStatus {
                lba,
                allocation: 24,
            },
            &[],
            24,
        );
        assert_eq!(sense, illegal(Code::LBA_OUT_OF_RANGE));
    }
}

/// A store that takes no space back, and tells of it when it is asked.
#[derive(Debug)]
struct Thick {
    memory: MemoryStore,
    writes: AtomicUsize,
}

impl Store for Thick {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.memory.read(at, into)
    }
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.memory.write(at, from)
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn unmap(&self, _: u64, _: u64) -> io::Result<bool> {
        Ok(false)
    }
    fn run(&self, at: u64) -> io::Result<Run> {
        let bytes = self.bytes() - at;
        Ok(Run {
            mapped: true,
            bytes,
        })
    }
}

/// `mkfs` unmaps all of a disk: zeros would be written in place of each block.
#[test]
fn unmap__where_no_space_is_given_back_writes_nothing() {
    let memory = MemoryStore::new(BLOCKS * BLOCK as u64);
    let store = Arc::new(Thick {
        memory,
        writes: AtomicUsize::new(0),
    });
    let mut rig = Rig::of(store.clone());
    let bytes = pattern(64, 2);
    rig.write(0, &bytes);
    let before = store.writes.load(Ordering::Relaxed);
    unmap(&mut rig, &[extent(8, 8), extent(17, 3)]);
    assert_eq!(store.writes.load(Ordering::Relaxed), before);
    assert_eq!(rig.read(extent(0, 64)), bytes);
    // Who writes zeros gets zeros, with space if there is no other way.
    let zeros = Command::WriteSame {
        form: Form::Sixteen,
        extent: extent(8, 8),
        unmap: true,
        no_data: true,
    };
    rig.good(&zeros, &[], 0);
    assert_eq!(rig.read(extent(8, 8)), [0; 8 * BLOCK]);
    assert_eq!(rig.read(extent(16, 48)), bytes[16 * BLOCK..]);
}
