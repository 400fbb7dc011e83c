//! Tests that flushed data survives a crash.
//!
//! The store has a write-back cache, of which a crash keeps any part that was not flushed. Set `ZEROLANE_SEED` to repeat a
//! failure.
#![allow(non_snake_case)]

#[path = "support/seeds.rs"]
mod seeds;
mod support;

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use support::{BLOCK, Rig, disk, extent, pattern};
use zerolane_block::cdb::{Command, Form};
use zerolane_block::store::{Run, Store};
use zerolane_block::{Disk, unmap_list};

const BLOCKS: u64 = 64;
const CRASHES: usize = 200;
const STEPS: usize = 25;

/// What a crash leaves, what is seen until then, and what came since the last flush, sector by sector.
#[derive(Debug, Default)]
struct Cache {
    medium: Vec<u8>,
    seen: Vec<u8>,
    dirty: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug)]
struct Cached(Mutex<Cache>);

impl Cached {
    fn new() -> Cached {
        let zeros = vec![0; BLOCKS as usize * BLOCK];
        Cached(Mutex::new(Cache {
            medium: zeros.clone(),
            seen: zeros,
            dirty: Vec::new(),
        }))
    }

    /// Some sectors of what was not flushed have arrived, in any order.
    fn crash(&self, random: &mut Rng) {
        let mut cache = self.0.lock().unwrap();
        let mut dirty = std::mem::take(&mut cache.dirty);
        random.shuffle(&mut dirty);
        let chance = random.u8(..=4);
        for (at, sector) in dirty {
            if random.u8(..4) < chance {
                cache.medium[at..at + BLOCK].copy_from_slice(&sector);
            }
        }
        cache.seen = cache.medium.clone();
    }
}

impl Store for Cached {
    fn bytes(&self) -> u64 {
        BLOCKS * BLOCK as u64
    }
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let cache = self.0.lock().unwrap();
        into.copy_from_slice(&cache.seen[at as usize..at as usize + into.len()]);
        Ok(())
    }
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let mut cache = self.0.lock().unwrap();
        let at = at as usize;
        cache.seen[at..at + from.len()].copy_from_slice(from);
        let sectors = from.chunks(BLOCK).enumerate();
        cache
            .dirty
            .extend(sectors.map(|(index, it)| (at + index * BLOCK, it.to_vec())));
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        let mut cache = self.0.lock().unwrap();
        cache.medium = cache.seen.clone();
        cache.dirty.clear();
        Ok(())
    }
    fn unmap(&self, at: u64, bytes: u64) -> io::Result<bool> {
        self.write(at, &vec![0; bytes as usize])?;
        Ok(true)
    }
    fn run(&self, at: u64) -> io::Result<Run> {
        Ok(Run {
            mapped: true,
            bytes: self.bytes() - at,
        })
    }
}

/// What each block may be after a crash.
struct Expected(Vec<HashSet<Vec<u8>>>);

impl Expected {
    fn write(&mut self, lba: u64, bytes: &[u8]) {
        for (index, block) in bytes.chunks(BLOCK).enumerate() {
            self.0[lba as usize + index].insert(block.to_vec());
        }
    }

    /// All that is seen is what is left.
    fn settle(&mut self, rig: &mut Rig) {
        let seen = rig.read(extent(0, BLOCKS));
        for (allowed, block) in self.0.iter_mut().zip(seen.chunks(BLOCK)) {
            *allowed = HashSet::from([block.to_vec()]);
        }
    }

    fn check(&self, rig: &mut Rig) {
        let seen = rig.read(extent(0, BLOCKS));
        for (lba, (allowed, block)) in self.0.iter().zip(seen.chunks(BLOCK)).enumerate() {
            assert!(
                allowed.contains(block),
                "block {lba} is none of {} it may be",
                allowed.len()
            );
        }
    }
}

/// One command. True: all that was written is on the medium now.
fn step(rig: &mut Rig, expected: &mut Expected, random: &mut Rng) -> bool {
    let lba = random.u64(..BLOCKS);
    let blocks = random.u64(1..=8).min(BLOCKS - lba);
    let (at, bytes) = (extent(lba, blocks), pattern(blocks, random.u64(..)));
    let fua = random.u8(..6) == 0;
    match random.u8(..10) {
        0..5 => {
            let command = Command::Write {
                form: Form::Ten,
                extent: at,
                dpo: false,
                fua,
            };
            rig.good(&command, &bytes, 0);
            expected.write(lba, &bytes);
            fua
        }
        5 => {
            let command = Command::WriteSame {
                form: Form::Ten,
                extent: at,
                unmap: fua,
                no_data: false,
            };
            rig.good(&command, &bytes[..BLOCK], 0);
            expected.write(lba, &bytes[..BLOCK].repeat(blocks as usize));
            false
        }
        6 => {
            let list = unmap_list(&[at]).unwrap();
            rig.good(
                &Command::Unmap {
                    parameter_bytes: list.len() as u16,
                },
                &list,
                0,
            );
            expected.write(lba, &vec![0; bytes.len()]);
            false
        }
        7 => {
            let old = rig.read(at);
            let command = Command::CompareAndWrite {
                extent: at,
                dpo: false,
                fua,
            };
            rig.good(&command, &[old, bytes.clone()].concat(), 0);
            expected.write(lba, &bytes);
            fua
        }
        8 => {
            let extent = extent(0, 0);
            let immediate = random.bool();
            rig.good(
                &Command::SynchronizeCache {
                    form: Form::Ten,
                    extent,
                    immediate,
                },
                &[],
                0,
            );
            true
        }
        _ => {
            // Read with FUA: what is read is on the medium.
            let command = Command::Read {
                form: Form::Ten,
                extent: at,
                dpo: false,
                fua,
            };
            rig.good(&command, &[], bytes.len());
            fua
        }
    }
}

fn run(write_cache: bool, random: &mut Rng) {
    let store = Arc::new(Cached::new());
    let disk = Disk {
        write_cache,
        ..disk(&*store)
    };
    let mut rig = Rig::with(disk, store.clone());
    let mut expected = Expected(vec![HashSet::from([vec![0; BLOCK]]); BLOCKS as usize]);
    for _ in 0..CRASHES {
        for _ in 0..random.usize(..STEPS) {
            let is_durable = step(&mut rig, &mut expected, random);
            if is_durable || !write_cache {
                expected.settle(&mut rig);
            }
        }
        store.crash(random);
        expected.check(&mut rig);
        expected.settle(&mut rig);
    }
}

#[test]
fn crash__what_was_flushed_is_there() {
    seeds::each(10, |mut random| run(true, &mut random));
}

#[test]
fn crash__without_a_write_cache_all_is_there() {
    seeds::each(10, |mut random| run(false, &mut random));
}
