//! TCP as a good user would have it: no Nagle, cubic (where this user may choose it), and in a stream the small messages that are
//! ready together are handed over together.
//!
//! A stream's socket blocks, however the job waits: with 4 MiB messages that was measured at 1.3 times
//! the bandwidth of reading and writing without blocking, which cuts the stream into smaller pieces.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use anyhow::{Result, ensure};
use socket2::SockRef;

use super::content::Content;
use super::job::{Job, RING_MAX_BYTES, Streamed, Wait};
use super::pipe::{DONE, GO, Pipe, await_word, insist};
use crate::protocol::TcpTuning;
use crate::tcp::{Connection, Listener};

/// Small messages of a stream are written together up to this many bytes.
const BATCH_BYTES: usize = 64 << 10;
/// Most bytes handed to one write or asked of one read of a stream: `bench bulk`'s best.
const CHUNK_BYTES: usize = 1 << 20;

/// A TCP connection of a run.
#[derive(Debug)]
pub(crate) struct Tcp {
    stream: TcpStream,
    wait: Wait,
}

/// Waits for the initiator that knows the token.
pub(crate) fn accept(listener: Listener, job: &Job) -> Result<Tcp> {
    Tcp::new(listener.accept(job.token, &TcpTuning::default())?, job)
}

/// Connects to the responder.
pub(crate) fn connect(to: SocketAddr, job: &Job) -> Result<Tcp> {
    Tcp::new(Connection::open(to, job.token, &TcpTuning::default())?, job)
}

impl Tcp {
    fn new(connection: Connection, job: &Job) -> Result<Tcp> {
        let stream = connection.into_stream();
        SockRef::from(&stream).set_tcp_nodelay(true)?;
        let wait = job.socket_wait();
        stream.set_nonblocking(wait == Wait::Poll)?;
        Ok(Tcp { stream, wait })
    }

    /// One read; how many bytes it brought, at least one.
    fn read_some(&mut self, space: &mut [u8]) -> Result<usize> {
        let bytes = insist(self.wait, || self.stream.read(space))?;
        ensure!(bytes > 0, "the peer closed the connection");
        Ok(bytes)
    }
}

impl Pipe for Tcp {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let mut sent = 0;
        while sent < message.len() {
            sent += insist(self.wait, || self.stream.write(&message[sent..]))?;
        }
        Ok(())
    }

    fn receive(&mut self, message: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < message.len() {
            filled += self.read_some(&mut message[filled..])?;
        }
        Ok(())
    }

    fn send_stream(&mut self, job: &Job, content: &Content) -> Result<()> {
        let mut ring = vec![0; job.depth * job.size];
        ring.chunks_mut(job.size)
            .for_each(|slot| content.fill(slot));
        let together = (BATCH_BYTES / job.size).clamp(1, job.depth) * job.size;
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
                self.send(chunk)?;
            }
            at = end % ring.len();
        }
        await_word(self, DONE)
    }

    fn receive_stream(&mut self, job: &Job, content: &Content) -> Result<Streamed> {
        let slots = job
            .depth
            .max(CHUNK_BYTES / job.size)
            .min(RING_MAX_BYTES / job.size);
        let mut ring = vec![0; slots * job.size];
        let (mut index, mut filled, mut left) = (0, 0, job.bytes());
        self.send(&[GO])?;
        let started = Instant::now();
        while left > 0 {
            let end = ring.len().min(filled + CHUNK_BYTES);
            let got = self.read_some(&mut ring[filled..end])?;
            let whole = filled / job.size..(filled + got) / job.size;
            for slot in whole {
                content.check(&ring[slot * job.size..][..job.size], index)?;
                index += 1;
            }
            left -= (got as u64).min(left);
            filled = (filled + got) % ring.len();
        }
        let seconds = started.elapsed().as_secs_f64();
        ensure!(index == job.rounds(), "more came than was sent");
        self.send(&[DONE])?;
        check_ring(&ring, job, content)?;
        Ok(Streamed {
            seconds,
            bytes: job.bytes(),
            lost: 0,
        })
    }
}

/// Checks every byte of the messages that are still in `ring`, in whose slots they took turns.
pub(crate) fn check_ring(ring: &[u8], job: &Job, content: &Content) -> Result<()> {
    let slots = (ring.len() / job.size) as u64;
    for index in job.rounds().saturating_sub(slots)..job.rounds() {
        // Less than the number of slots.
        let at = (index % slots) as usize * job.size;
        content.check_all(&ring[at..][..job.size], index)?;
    }
    Ok(())
}
