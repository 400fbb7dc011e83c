//! Measures memory that passes between cores, as slots of sealed data do.
//!
//! A slot is in the cache of the other core, which read its old contents, when this core seals into it. What this core reads
//! from a slot was just written by the other core.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use aegis::aegis128x2::Aegis128X2;
use anyhow::Result;
use zerolane::Region;
use zerolane_model::{HandedCosts, SLOTS, TRAIN};

use super::lockstep;
use super::memory::TAG;
use super::samples::{Effort, per_kib};

/// Slots that are sealed into in a turn, and then read: what is in flight.
const IN_TURN: usize = SLOTS / TRAIN;

/// The one core seals trains from memory in its cache into slots, then the other one copies them to memory in its own.
pub(super) fn measure(effort: Effort, cores: [usize; 2]) -> Result<HandedCosts> {
    let mut slots = Region::anonymous(IN_TURN * TRAIN)?;
    let (mut from, mut to) = (Region::anonymous(TRAIN)?, Region::anonymous(TRAIN)?);
    slots.fill(1);
    from.fill(2);
    to.fill(3);
    // Never contended: the two take turns.
    let slots = Mutex::new(slots);
    let in_sample = effort.bytes.div_ceil(IN_TURN * TRAIN);
    let seconds = lockstep::turns(
        cores,
        in_sample * (effort.samples + 1),
        |_| {
            let mut slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
            for slot in slots.chunks_exact_mut(TRAIN) {
                let mut sealing = Aegis128X2::<TAG>::new(&[1; 16], &[2; 16]).encryptor(&[0; 40]);
                sealing.update(&from, slot);
                black_box(sealing.finalize());
            }
            Ok(())
        },
        |_| {
            let slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
            for slot in slots.chunks_exact(TRAIN) {
                to.copy_from_slice(black_box(slot));
                black_box(&mut to);
            }
            Ok(())
        },
    )?;
    let bytes = (in_sample * IN_TURN * TRAIN) as f64;
    let [seal, read] = seconds.map(|seconds| {
        // In the first caches settle.
        let samples = seconds.chunks_exact(in_sample).skip(1);
        per_kib(samples.map(|it| it.iter().sum::<f64>() / bytes))
    });
    Ok(HandedCosts {
        seal: seal?,
        read: read?,
    })
}
