//! Tests that random commands do the same to a disk as to a plain model: its bytes and its mapped blocks.
//!
//! Set `ZEROLANE_SEED` to repeat a failure.
#![allow(non_snake_case)]

#[path = "support/seeds.rs"]
mod seeds;
mod support;

use std::fs::File;
use std::sync::Arc;

use fastrand::Rng;
use support::{BLOCK, Rig, extent, pattern};
use zerolane_block::cdb::{Command, Extent, Form};
use zerolane_block::sense::{Code, Key};
use zerolane_block::store::{FileStore, MemoryStore, Store};
use zerolane_block::{Status, unmap_list};

const BLOCKS: u64 = 600;
const STEPS: usize = 400;

/// Blocks of a page of memory.
const PAGE: usize = 8;

struct Model {
    bytes: Vec<u8>,
    /// Whether each page has a place.
    mapped: Vec<bool>,
}

fn span(extent: &Extent) -> std::ops::Range<usize> {
    extent.lba as usize * BLOCK..(extent.lba + extent.blocks) as usize * BLOCK
}

impl Model {
    fn new() -> Model {
        Model {
            bytes: vec![0; BLOCKS as usize * BLOCK],
            mapped: vec![false; (BLOCKS as usize).div_ceil(PAGE)],
        }
    }

    fn write(&mut self, extent: &Extent, bytes: &[u8]) {
        self.bytes[span(extent)].copy_from_slice(bytes);
        for block in extent.lba..extent.lba + extent.blocks {
            self.mapped[block as usize / PAGE] = true;
        }
    }

    fn unmap(&mut self, extent: &Extent) {
        self.bytes[span(extent)].fill(0);
        for page in 0..self.mapped.len() {
            let blocks = page * PAGE..((page + 1) * PAGE).min(BLOCKS as usize);
            let is_whole = extent.lba <= blocks.start as u64
                && blocks.end as u64 <= extent.lba + extent.blocks;
            self.mapped[page] &= !is_whole;
        }
    }
}

fn form(random: &mut Rng) -> Form {
    random
        .choice([Form::Six, Form::Ten, Form::Twelve, Form::Sixteen])
        .unwrap()
}

fn some(random: &mut Rng) -> Extent {
    let lba = random.u64(..BLOCKS);
    let most = if random.bool() { 16 } else { 256 };
    extent(lba, random.u64(1..=most).min(BLOCKS - lba))
}

/// One command that is within the disk, or one that is not.
fn step(rig: &mut Rig, model: &mut Model, random: &mut Rng) {
    let at = some(random);
    let bytes = pattern(at.blocks, random.u64(..));
    match random.u8(..11) {
        0..=2 => {
            let command = Command::Write {
                form: form(random),
                extent: at,
                dpo: random.bool(),
                fua: false,
            };
            let command = match command {
                Command::Write {
                    form: Form::Six,
                    extent,
                    ..
                } => Command::Write {
                    form: Form::Six,
                    extent,
                    dpo: false,
                    fua: false,
                },
                other => other,
            };
            rig.good(&command, &bytes, 0);
            model.write(&at, &bytes);
        }
        3 => {
            let command = Command::Read {
                form: form(random),
                extent: at,
                dpo: false,
                fua: false,
            };
            let room = random.usize(..=bytes.len());
            let (response, data) = rig.run(&command, &[], room);
            assert_eq!(response.status, Status::Good);
            assert_eq!(data, model.bytes[span(&at)][..room]);
        }
        4 => {
            let ranges: Vec<_> = (0..random.usize(..6)).map(|_| some(random)).collect();
            let list = unmap_list(&ranges).unwrap();
            rig.good(
                &Command::Unmap {
                    parameter_bytes: list.len() as u16,
                },
                &list,
                0,
            );
            ranges.iter().for_each(|it| model.unmap(it));
        }
        5 => write_same(rig, model, random, at),
        6 => compare_and_write(rig, model, random, at),
        7 => {
            let mut expected = model.bytes[span(&at)].to_vec();
            let differs = random.bool().then(|| random.usize(..expected.len()));
            differs.into_iter().for_each(|it| expected[it] ^= 1);
            let form = random
                .choice([Form::Ten, Form::Twelve, Form::Sixteen])
                .unwrap();
            let command = Command::Verify {
                form,
                extent: at,
                dpo: false,
                compare: true,
            };
            let response = rig.run(&command, &expected, 0).0;
            let found = response.sense.map(|it| (it.code, it.information));
            assert_eq!(found, differs.map(|it| (Code::MISCOMPARE, Some(it as u64))));
        }
        8 => {
            let extent = extent(BLOCKS - random.u64(..4), random.u64(4..9));
            let command = Command::Write {
                form: Form::Sixteen,
                extent,
                dpo: false,
                fua: false,
            };
            let sense = rig.fails(&command, &[1; 8 * BLOCK], 0);
            assert_eq!(
                (sense.key, sense.code),
                (Key::IllegalRequest, Code::LBA_OUT_OF_RANGE)
            );
        }
        9 => {
            let command = Command::SynchronizeCache {
                form: Form::Sixteen,
                extent: at,
                immediate: random.bool(),
            };
            rig.good(&command, &[], 0);
        }
        _ => {
            let got = rig.read(at);
            assert_eq!(got, model.bytes[span(&at)], "{at:?}");
        }
    }
}

fn write_same(rig: &mut Rig, model: &mut Model, random: &mut Rng, at: Extent) {
    let block = if random.bool() {
        vec![0; BLOCK]
    } else {
        pattern(1, random.u64(..))
    };
    let (unmap, no_data) = (random.bool(), random.u8(..4) == 0);
    let form = if no_data || random.bool() {
        Form::Sixteen
    } else {
        Form::Ten
    };
    let command = Command::WriteSame {
        form,
        extent: at,
        unmap,
        no_data,
    };
    rig.good(&command, if no_data { &[] } else { &block }, 0);
    let block = if no_data { vec![0; BLOCK] } else { block };
    if unmap && block.iter().all(|&it| it == 0) {
        model.unmap(&at);
    } else {
        model.write(&at, &block.repeat(at.blocks as usize));
    }
}

fn compare_and_write(rig: &mut Rig, model: &mut Model, random: &mut Rng, at: Extent) {
    let at = extent(at.lba, at.blocks.min(128));
    let mut expected = model.bytes[span(&at)].to_vec();
    let new = pattern(at.blocks, random.u64(..));
    let differs = random.bool();
    if differs {
        let byte = random.usize(..expected.len());
        expected[byte] ^= 0x80;
    }
    let command = Command::CompareAndWrite {
        extent: at,
        dpo: false,
        fua: false,
    };
    let response = rig.run(&command, &[expected, new.clone()].concat(), 0).0;
    if differs {
        assert_eq!(response.sense.unwrap().key, Key::Miscompare);
    } else {
        assert_eq!(response.status, Status::Good);
        model.write(&at, &new);
    }
}

/// All blocks, and whether they have a place.
fn mapped(rig: &mut Rig) -> Vec<bool> {
    let mut blocks = Vec::new();
    while (blocks.len() as u64) < BLOCKS {
        let command = Command::GetLbaStatus {
            lba: blocks.len() as u64,
            allocation: 8 + 16 * 3,
        };
        let data = rig.good(&command, &[], 8 + 16 * 3);
        for run in data[8..].chunks(16) {
            assert_eq!(run[..8], (blocks.len() as u64).to_be_bytes());
            let count = u32::from_be_bytes(run[8..12].try_into().unwrap());
            blocks.extend(vec![run[12] == 0; count as usize]);
        }
    }
    blocks
}

fn run(store: Arc<dyn Store>, random: &mut Rng, has_pages: bool) {
    let mut rig = Rig::of(store);
    let mut model = Model::new();
    for _ in 0..STEPS {
        step(&mut rig, &mut model, random);
    }
    for lba in (0..BLOCKS).step_by(200) {
        let at = extent(lba, 200);
        assert_eq!(rig.read(at), model.bytes[span(&at)]);
    }
    if has_pages {
        let pages = model.mapped.iter().flat_map(|&it| [it; PAGE]);
        let expected: Vec<_> = pages.take(BLOCKS as usize).collect();
        assert_eq!(mapped(&mut rig), expected);
    }
}

#[test]
fn commands__in_memory_do_what_the_model_does() {
    seeds::each(60, |mut random| {
        run(
            Arc::new(MemoryStore::new(BLOCKS * BLOCK as u64)),
            &mut random,
            true,
        );
    });
}

#[test]
fn commands__on_a_sparse_file_do_what_the_model_does() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    seeds::each(15, |mut random| {
        let file = File::create(&path).unwrap();
        file.set_len(BLOCKS * BLOCK as u64).unwrap();
        drop(file);
        run(
            Arc::new(FileStore::open(&path, false).unwrap()),
            &mut random,
            false,
        );
    });
}
