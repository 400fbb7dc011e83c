//! Measures the time per byte of copy, read, sum, seal, open and file access, by the amount of memory.

use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::thread;

use aegis::aegis128x2::Aegis128X2;
use anyhow::{Context, Result, anyhow, bail};
use twox_hash::XxHash3_64;
use zerolane::Region;
use zerolane_model::{Cost, MemoryCosts, TRAIN};

use super::samples::{Effort, over_memory, timed};
use crate::contender::source_sink::file_in_memory;
use crate::cpu;

/// The size of the pieces of files, bytes: those of `bench stream`.
const PIECE: usize = 1 << 20;
/// Bytes of a seal.
pub(super) const TAG: usize = 16;

/// Of memory of so many bytes.
pub(super) fn measure(effort: Effort, bytes: usize) -> Result<MemoryCosts> {
    let (mut far, mut other) = (Region::anonymous(bytes)?, Region::anonymous(bytes)?);
    let mut near = Region::anonymous(TRAIN)?;
    far.fill(1);
    other.fill(2);
    near.fill(3);
    let cipher = || Aegis128X2::<TAG>::new(&[1; 16], &[2; 16]);
    let digest = over_memory(effort, bytes, TRAIN, |at, len| {
        black_box(XxHash3_64::oneshot_with_seed(7, &far[at..at + len]));
        Ok(())
    })?;
    let sum = over_memory(effort, bytes, PIECE, |at, len| {
        black_box(words(&far[at..at + len], 8));
        Ok(())
    })?;
    let touch = over_memory(effort, bytes, PIECE, |at, len| {
        black_box(words(&far[at..at + len], 64));
        Ok(())
    })?;
    let copy_from = over_memory(effort, bytes, TRAIN, |at, len| {
        near[..len].copy_from_slice(black_box(&far[at..at + len]));
        Ok(())
    })?;
    let seal = over_memory(effort, bytes, TRAIN, |at, len| {
        let mut sealing = cipher().encryptor(&[0; 40]);
        sealing.update(&far[at..at + len], &mut near[..len]);
        black_box(sealing.finalize());
        Ok(())
    })?;
    let copy_to = over_memory(effort, bytes, TRAIN, |at, len| {
        far[at..at + len].copy_from_slice(black_box(&near[..len]));
        Ok(())
    })?;
    let copy = over_memory(effort, bytes, TRAIN, |at, len| {
        other[at..at + len].copy_from_slice(black_box(&far[at..at + len]));
        Ok(())
    })?;
    let open = measure_open(effort, &mut far)?;
    let file = file_in_memory(bytes)?;
    file.write_all_at(&far, 0)?;
    let read_file = over_memory(effort, bytes, PIECE, |at, len| {
        Ok(file.read_exact_at(&mut far[at..at + len], at as u64)?)
    })?;
    let write_file = over_memory(effort, bytes, PIECE, |at, len| {
        Ok(file.write_all_at(&far[at..at + len], at as u64)?)
    })?;
    Ok(MemoryCosts {
        bytes,
        digest,
        sum,
        touch,
        copy_from,
        copy_to,
        copy,
        seal,
        open,
        read_file,
        write_file,
    })
}

/// Opened from one buffer, the same over and over, into one train of `far` after the other.
fn measure_open(effort: Effort, far: &mut Region) -> Result<Cost> {
    let cipher = || Aegis128X2::<TAG>::new(&[1; 16], &[2; 16]);
    let sealed = |len: usize| {
        let mut bytes = vec![5; len];
        let tag = cipher().encrypt_in_place(&mut bytes, &[0; 40]);
        (bytes, tag)
    };
    let (whole, rest) = (sealed(TRAIN), sealed(far.len() % TRAIN));
    over_memory(effort, far.len(), TRAIN, |at, len| {
        let (bytes, tag) = if len == TRAIN { &whole } else { &rest };
        let cipher = cipher();
        let mut opening = cipher.decryptor(&[0; 40], &mut far[at..at + len]);
        let opened = opening
            .update(bytes)
            .and_then(|()| opening.finalize(tag).map(|it| black_box(it).len()));
        opened.map_err(|error| anyhow!("sealed data does not open: {error:?}"))?;
        Ok(())
    })
}

/// How much longer a copy of so many bytes, which fit no cache, takes while the other core does the same.
pub(super) fn contention(effort: Effort, cores: [usize; 2], bytes: usize) -> Result<Cost> {
    let copy = |core: usize, both: Option<&Barrier>| -> Result<Vec<f64>> {
        cpu::pin(core)?;
        let (mut from, mut to) = (Region::anonymous(bytes)?, Region::anonymous(bytes)?);
        from.fill(1);
        to.fill(2);
        timed(effort, 1.0, || {
            both.map(Barrier::wait);
            to.copy_from_slice(black_box(&from));
            Ok(())
        })
    };
    let (copy, both) = (&copy, &Barrier::new(2));
    let joined = |it: thread::Result<Result<Vec<f64>>>| {
        it.unwrap_or_else(|_| bail!("a thread of an experiment panicked"))
    };
    thread::scope(|scope| {
        let alone = joined(scope.spawn(move || copy(cores[0], None)).join())?;
        let [one, other] = cores.map(|core| scope.spawn(move || copy(core, Some(both))));
        let (one, _) = (joined(one.join())?, joined(other.join())?);
        let alone = Cost::of(alone).context("no samples")?.median;
        Cost::of(one.into_iter().map(|it| (it / alone).max(1.0))).context("no samples")
    })
}

/// As the sinks of `bench stream` look through what came.
fn words(bytes: &[u8], every: usize) -> u64 {
    let words = bytes.chunks_exact(every);
    let words = words.filter_map(|line| line.first_chunk().map(|it| u64::from_le_bytes(*it)));
    words.fold(0, u64::wrapping_add)
}
