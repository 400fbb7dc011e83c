//! Sends and receives messages over TCP as a good user would: without Nagle, and in a stream with batches of small messages.
//!
//! A stream's socket blocks, however the job waits. With 4 MiB messages, blocking gave 1.3 times the bandwidth of
//! non-blocking reads and writes, which cut the stream into smaller pieces.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::super::contract::{DONE, GO};
use super::super::messages::{Pipe, await_word};
use super::super::stream::Stream;
use super::Connection;
use crate::content::message::Content;
use crate::cpu::{Core, CpuTime, Meter};
use crate::job::operations::{Operations, RING_MAX_BYTES};
use crate::measured::Measured;

/// Small messages of a stream are written together up to this many bytes.
const BATCH_BYTES: usize = 64 << 10;
/// Most bytes handed to one write or asked of one read of a stream: `bench bulk`'s best.
const CHUNK_BYTES: usize = 1 << 20;

impl Pipe for Connection {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        Stream::send(self, message)
    }

    fn receive(&mut self, message: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < message.len() {
            filled += Stream::receive(self, &mut message[filled..])?;
        }
        Ok(())
    }

    fn send_stream(
        &mut self,
        job: &Operations,
        content: &Content,
        core: Core<'_>,
    ) -> Result<CpuTime> {
        let mut ring = vec![0; job.depth * job.size];
        ring.chunks_mut(job.size)
            .for_each(|slot| content.fill(slot));
        let together = (BATCH_BYTES / job.size).clamp(1, job.depth) * job.size;
        let meter = Meter::start(core);
        await_word(self, GO)?;
        let (mut index, mut at) = (0, 0);
        while index < job.rounds() {
            let left = usize::try_from(job.rounds() - index).unwrap_or(usize::MAX);
            let end = ring.len().min(at + together);
            let len = (end - at).min(left.saturating_mul(job.size));
            let batch = &mut ring[at..at + len];
            for slot in batch.chunks_mut(job.size) {
                content.stamp(slot, index);
                index += 1;
            }
            for chunk in batch.chunks(CHUNK_BYTES) {
                Stream::send(self, chunk)?;
            }
            at = end % ring.len();
        }
        await_word(self, DONE)?;
        Ok(meter.stop().1)
    }

    fn receive_stream(
        &mut self,
        job: &Operations,
        content: &Content,
        core: Core<'_>,
    ) -> Result<Measured> {
        let slots = job
            .depth
            .max(CHUNK_BYTES / job.size)
            .min(RING_MAX_BYTES / job.size);
        // Every page is touched before the clock runs, as Zerolane's are.
        let mut ring = vec![1; slots * job.size];
        ring.fill(0);
        let (mut index, mut filled, mut left) = (0, 0, job.bytes());
        let meter = Meter::start(core);
        Stream::send(self, &[GO])?;
        let started = Instant::now();
        while left > 0 {
            let end = ring.len().min(filled + CHUNK_BYTES);
            let got = Stream::receive(self, &mut ring[filled..end])?;
            let whole = filled / job.size..(filled + got) / job.size;
            for slot in whole {
                content.check(&ring[slot * job.size..][..job.size], index)?;
                index += 1;
            }
            left -= (got as u64).min(left);
            filled = (filled + got) % ring.len();
        }
        let seconds = started.elapsed().as_secs_f64();
        let (_, cpu) = meter.stop();
        ensure!(index == job.rounds(), "received more than was sent");
        Stream::send(self, &[DONE])?;
        check_ring(&ring, job, content)?;
        Ok(Measured {
            cpu,
            ..Measured::stream(job.bytes(), seconds)
        })
    }
}

/// Checks every byte of the messages that are still in `ring`, in whose slots they took turns.
fn check_ring(ring: &[u8], job: &Operations, content: &Content) -> Result<()> {
    let slots = (ring.len() / job.size) as u64;
    for index in job.rounds().saturating_sub(slots)..job.rounds() {
        // Less than the number of slots.
        let at = (index % slots) as usize * job.size;
        content.check_all(&ring[at..][..job.size], index)?;
    }
    Ok(())
}
