//! Sends from a source to a sink in datagrams without retransmission. Each names its position, and lost ones stay lost.

use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, sendmsg};
use zerolane_cli::exit::Exit;

use super::super::contract::{GO, Part};
use super::super::messages::{Pipe, await_word, insist};
use super::super::source_sink::{self, FromSource, ToSink};
use super::Connection;
use crate::content::pattern::{Pattern, WORD};
use crate::content::stage::Stage;
use crate::cpu::Meter;
use crate::job::Laps;
use crate::job::operations::DATAGRAM_MAX;
use crate::job::source_sink::{LINE, Sink, Source, SourceSink};
use crate::measured::Measured;

/// Whether raw UDP can do this job; if not, why.
pub(super) fn able(job: &SourceSink) -> Result<(), String> {
    match (job.source, job.sink) {
        (Source::Sendfile | Source::Splice, _) => {
            Err("sendfile and splice leave no room for a datagram's number".into())
        }
        (_, Sink::File | Sink::Copy) => Err("lost datagrams would leave holes in it".into()),
        _ => Ok(()),
    }
}

/// Bytes before the payload of a datagram: how many bytes were sent before it.
const HEADER: usize = 8;

/// Bytes of each datagram but the last of a piece.
pub(super) fn segment(job: &SourceSink) -> usize {
    HEADER + payload(job)
}

/// Payload of those.
fn payload(job: &SourceSink) -> usize {
    (job.datagram - HEADER) / LINE * LINE
}

/// Sends it as fast as it goes.
pub(super) fn send(
    mut connection: Connection,
    part: &mut Part<'_>,
    job: &SourceSink,
) -> Result<Measured> {
    let laps = job.laps();
    let (mut stage, mut memory) = FromSource::new(job, part.memory.take(laps.buffer)?)?;
    let bursts = connection.burst() / connection.segment * payload(job);
    await_word(&mut connection, GO)?;
    let meter = Meter::start(part.core());
    let mut syscalls = 0;
    for lap in 0..laps.laps {
        for base in (0..memory.len()).step_by(job.piece) {
            let piece = &mut memory[base..base + job.piece];
            stage.fill(piece, base, lap)?;
            let mut at = lap * laps.buffer as u64 + base as u64;
            for burst in piece.chunks(bursts) {
                syscalls += connection.send_numbered(burst, at, payload(job))?;
                at += burst.len() as u64;
            }
        }
    }
    connection.end_stream()?;
    let (seconds, cpu) = meter.stop();
    if job.source.is_memory() {
        part.memory.give_back(memory);
    }
    Ok(Measured {
        cpu,
        syscalls: syscalls + stage.syscalls(),
        ..Measured::stream(laps.bytes(), seconds)
    })
}

/// Takes what comes, until the sender has said that this was all.
pub(super) fn receive(
    mut connection: Connection,
    part: &mut Part<'_>,
    job: &SourceSink,
) -> Result<Measured> {
    let mut incoming = Incoming {
        stage: ToSink::new(job)?,
        pattern: source_sink::pattern(job),
        laps: job.laps(),
        payload: payload(job),
        bytes: 0,
    };
    let mut space = vec![0; DATAGRAM_MAX];
    connection.send(&[GO])?;
    let meter = Meter::start(part.core());
    let (started, mut last, mut syscalls) = (Instant::now(), Duration::ZERO, 0);
    loop {
        syscalls += 1;
        let got = connection.receive_some(&mut space)?;
        if got == 0 {
            break;
        }
        incoming.take(&space[..got])?;
        last = started.elapsed();
    }
    let (_, cpu) = meter.stop();
    connection.socket.send(&[])?;
    if incoming.bytes == incoming.laps.bytes() {
        incoming.stage.check()?;
    }
    Ok(Measured {
        cpu,
        syscalls: syscalls + incoming.stage.syscalls(),
        lost_bytes: incoming.laps.bytes() - incoming.bytes,
        ..Measured::stream(incoming.bytes, last.as_secs_f64())
    })
}

impl Connection {
    /// Sends a burst of datagrams, of which each begins with how many bytes were sent before it; how many calls it took.
    fn send_numbered(&mut self, burst: &[u8], at: u64, payload: usize) -> Result<u64> {
        let numbers: Vec<[u8; HEADER]> = (at..)
            .step_by(payload)
            .take(burst.len().div_ceil(payload))
            .map(u64::to_le_bytes)
            .collect();
        let pieces = numbers.iter().zip(burst.chunks(payload));
        let slices: Vec<_> = pieces
            .flat_map(|(number, piece)| [IoSlice::new(number), IoSlice::new(piece)])
            .collect();
        let together = if self.gso { slices.len() } else { 2 };
        let mut calls = 0;
        for message in slices.chunks(together) {
            calls += 1;
            let socket = self.socket.as_raw_fd();
            let send = || sendmsg::<()>(socket, message, &[], MsgFlags::empty(), None);
            let sent = insist(self.wait, || send().map_err(io::Error::from));
            match sent {
                Ok(_) => {}
                // The queue of the interface is full: these datagrams are lost, as others may be.
                Err(error) if is_full(&error) => {}
                Err(error) => {
                    self.lose_gso(error)?;
                    return self.send_numbered(burst, at, payload);
                }
            }
        }
        Ok(calls)
    }
}

fn is_full(error: &anyhow::Error) -> bool {
    let raw = error.downcast_ref().and_then(io::Error::raw_os_error);
    raw == Some(Errno::ENOBUFS as i32)
}

/// What has come.
struct Incoming {
    stage: ToSink,
    pattern: Pattern,
    laps: Laps,
    payload: usize,
    bytes: u64,
}

impl Incoming {
    /// Takes datagrams that the kernel merged.
    fn take(&mut self, merged: &[u8]) -> Result<()> {
        for datagram in merged.chunks(HEADER + self.payload) {
            let (number, payload) = datagram
                .split_first_chunk()
                .context("a datagram without its number")?;
            let at = u64::from_le_bytes(*number);
            let (lap, base) = (
                at / self.laps.buffer as u64,
                (at % self.laps.buffer as u64) as usize,
            );
            ensure!(
                lap < self.laps.laps
                    && base + payload.len() <= self.laps.buffer
                    && !payload.is_empty()
                    && payload.len().is_multiple_of(LINE)
                    && base.is_multiple_of(LINE),
                "{} bytes at {at} were never sent",
                payload.len()
            );
            let first = self.pattern.check(&payload[..WORD], base, lap);
            first.context(Exit::Corrupt)?;
            self.stage.take(payload, base, lap)?;
            self.bytes += payload.len() as u64;
        }
        ensure!(
            self.bytes <= self.laps.bytes(),
            "received more than was sent"
        );
        Ok(())
    }
}
