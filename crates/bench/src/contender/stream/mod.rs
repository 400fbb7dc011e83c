//! Buffers and files over a connection that carries bytes in order: TCP, TLS, QUIC; `flows`: over several, for a time.

mod flows;

use std::fs::File;
use std::io::{Read, Write};
use std::ops::DerefMut;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use zerolane::Region;
use zerolane_cli::exit::Exit;

use super::contract::{DONE, GO, Part, expect_word};
use crate::content::pattern::{Check, Pattern, WORD};
use crate::cpu::Meter;
use crate::job::{FileCopy, Laps, Role, Work};
use crate::measured::Measured;

/// A connection that carries bytes in order.
pub(super) trait Stream: Send + Sized {
    /// Most bytes that are handed over at once.
    fn send_bytes(&self) -> usize;

    /// Most bytes that are asked for at once.
    fn receive_bytes(&self) -> usize;

    /// Sends all of `bytes`.
    fn send(&mut self, bytes: &[u8]) -> Result<()>;

    /// Receives into the front of `space`; how many bytes, at least one.
    fn receive(&mut self, space: &mut [u8]) -> Result<usize>;

    /// The same, but 0 if nothing comes within `time`; for those that carry flows.
    fn receive_within(&mut self, _space: &mut [u8], _time: Duration) -> Result<usize> {
        bail!("this carries no flows")
    }

    /// System calls for data until now.
    fn syscalls(&self) -> u64;

    /// Ends it, when both ends have what they wanted.
    fn finish(self) -> Result<()> {
        Ok(())
    }
}

/// What is sent or received, a piece at a time.
trait Content {
    /// System calls for each piece beside those of the connection.
    const SYSCALLS: u64;

    /// The next piece to send, of at most `most` bytes; `None` at the end.
    fn next(&mut self, most: usize) -> Result<Option<&[u8]>>;

    /// Room for at most `most` bytes of what comes next; `None` when all is there.
    fn space(&mut self, most: usize) -> Option<&mut [u8]>;

    /// So much of the room was filled.
    fn filled(&mut self, bytes: usize) -> Result<()>;
}

/// Does the initiator's part over what `connect` connects, when all is ready.
pub(super) fn initiate<S: Stream>(
    part: &mut Part<'_>,
    mut connect: impl FnMut() -> Result<S>,
) -> Result<Vec<Measured>> {
    match &part.job.work {
        Work::Laps(laps) => {
            let buffer = part.filled(laps)?;
            let (measured, buffer) = send_laps(part, buffer, laps, connect)?;
            part.memory.give_back(buffer);
            Ok(vec![measured])
        }
        Work::Flows(flows) => flows::flow(Role::Initiator, part, flows, connect),
        Work::File(file) => {
            let mut source = Chunks::of(File::open(part.path(file)?)?, file);
            Ok(vec![send(connect()?, &mut source, part.core())?])
        }
        Work::Operations(_) => bail!("a stream of bytes has no operations"),
    }
}

/// Sends the laps of a buffer that is filled; gives it back.
pub(super) fn send_laps<S: Stream>(
    part: &Part<'_>,
    buffer: Region,
    laps: &Laps,
    connect: impl FnOnce() -> Result<S>,
) -> Result<(Measured, Region)> {
    let mut source = Buffer::new(buffer, laps, part.job.pattern(laps), Check::Stamps);
    let measured = send(connect()?, &mut source, part.core())?;
    Ok((measured, source.buffer))
}

/// Does the responder's part over what `accept` accepts.
pub(super) fn respond<S: Stream>(
    part: &mut Part<'_>,
    mut accept: impl FnMut() -> Result<S>,
) -> Result<Vec<Measured>> {
    match &part.job.work {
        Work::Laps(laps) => {
            let mut buffer = part.memory.take(laps.buffer)?;
            let pattern = part.job.pattern(laps);
            let mut sink = Buffer::new(&mut buffer[..], laps, pattern, Check::Stamps);
            let measured = receive(accept()?, &mut sink, part.core())?;
            let whole = pattern.check_all(&buffer, laps.laps - 1);
            whole.context(Exit::Corrupt)?;
            part.memory.give_back(buffer);
            Ok(vec![measured])
        }
        Work::Flows(flows) => flows::flow(Role::Responder, part, flows, accept),
        Work::File(file) => {
            let mut sink = Chunks::of(File::create_new(part.path(file)?)?, file);
            Ok(vec![receive(accept()?, &mut sink, part.core())?])
        }
        Work::Operations(_) => bail!("a stream of bytes has no operations"),
    }
}

/// Receives the one byte `word`.
fn await_word(stream: &mut impl Stream, word: u8) -> Result<()> {
    let mut heard = [0];
    stream.receive(&mut heard)?;
    expect_word(heard[0], word)
}

fn send<C: Content>(mut stream: impl Stream, source: &mut C, core: usize) -> Result<Measured> {
    await_word(&mut stream, GO)?;
    let (most, before) = (stream.send_bytes(), stream.syscalls());
    let meter = Meter::start(core);
    let (mut bytes, mut pieces) = (0, 0);
    while let Some(piece) = source.next(most)? {
        stream.send(piece)?;
        bytes += piece.len() as u64;
        pieces += 1;
    }
    // What is still in flight costs this core too: wait until it is there.
    await_word(&mut stream, DONE)?;
    let (seconds, cpu) = meter.stop();
    let syscalls = stream.syscalls() - before + pieces * C::SYSCALLS;
    stream.finish()?;
    Ok(Measured {
        cpu,
        syscalls,
        ..Measured::stream(bytes, seconds)
    })
}

fn receive<C: Content>(mut stream: impl Stream, sink: &mut C, core: usize) -> Result<Measured> {
    stream.send(&[GO])?;
    let (most, before) = (stream.receive_bytes(), stream.syscalls());
    let meter = Meter::start(core);
    let (mut bytes, mut pieces) = (0, 0);
    while let Some(space) = sink.space(most) {
        let got = stream.receive(space)?;
        sink.filled(got)?;
        bytes += got as u64;
        pieces += 1;
    }
    let (seconds, cpu) = meter.stop();
    let syscalls = stream.syscalls() - before + pieces * C::SYSCALLS;
    stream.send(&[DONE])?;
    stream.finish()?;
    Ok(Measured {
        cpu,
        syscalls,
        ..Measured::stream(bytes, seconds)
    })
}

/// A buffer that is sent from, or received into, over and over.
struct Buffer<B> {
    buffer: B,
    pattern: Pattern,
    check: Check,
    laps: u64,
    lap: u64,
    /// Within the lap: bytes that went or came, and bytes checked.
    at: usize,
    checked: usize,
}

impl<B: DerefMut<Target = [u8]>> Buffer<B> {
    /// If it is sent from, it is as the pattern has it before its first lap.
    fn new(buffer: B, laps: &Laps, pattern: Pattern, check: Check) -> Buffer<B> {
        Buffer {
            buffer,
            pattern,
            check,
            laps: laps.laps,
            lap: 0,
            at: 0,
            checked: 0,
        }
    }

    /// Where the next piece ends, in the next lap if this one is over; `None` at the end of all.
    fn end(&mut self, most: usize) -> Option<usize> {
        if self.at == self.buffer.len() {
            (self.at, self.checked, self.lap) = (0, 0, self.lap + 1);
        }
        let end = self.buffer.len().min(self.at.saturating_add(most));
        (self.lap < self.laps).then_some(end)
    }
}

impl<B: DerefMut<Target = [u8]>> Content for Buffer<B> {
    const SYSCALLS: u64 = 0;

    fn next(&mut self, most: usize) -> Result<Option<&[u8]>> {
        let Some(end) = self.end(most) else {
            return Ok(None);
        };
        let base = std::mem::replace(&mut self.at, end);
        let piece = &mut self.buffer[base..end];
        self.pattern.stamp(piece, base, self.lap);
        Ok(Some(piece))
    }

    fn space(&mut self, most: usize) -> Option<&mut [u8]> {
        let end = self.end(most)?;
        Some(&mut self.buffer[self.at..end])
    }

    fn filled(&mut self, bytes: usize) -> Result<()> {
        self.at += bytes;
        let whole = self.at / WORD * WORD;
        let base = std::mem::replace(&mut self.checked, whole);
        let fresh = &self.buffer[base..whole];
        let checked = self.pattern.check_by(self.check, fresh, base, self.lap);
        checked.context(Exit::Corrupt)
    }
}

/// Most of a file that is received before it is written.
const CHUNK_BYTES: usize = 1 << 20;

/// A file, by the read/write loop that a careful programmer writes first.
struct Chunks {
    file: File,
    chunk: Vec<u8>,
    left: u64,
}

impl Chunks {
    fn of(file: File, job: &FileCopy) -> Chunks {
        Chunks {
            file,
            chunk: Vec::new(),
            left: job.bytes,
        }
    }
}

impl Content for Chunks {
    const SYSCALLS: u64 = 1;

    fn next(&mut self, most: usize) -> Result<Option<&[u8]>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.chunk.resize(most, 0);
        let got = self.file.read(&mut self.chunk);
        let (got, left) = (got.context("reading the file")?, self.left);
        ensure!(got > 0, "the file is {left} bytes shorter than it was");
        self.left = left.saturating_sub(got as u64);
        Ok(Some(&self.chunk[..got]))
    }

    fn space(&mut self, most: usize) -> Option<&mut [u8]> {
        let most = most.min(CHUNK_BYTES);
        self.chunk.resize(most, 0);
        let want = usize::try_from(self.left).map_or(most, |left| left.min(most));
        (want > 0).then(|| &mut self.chunk[..want])
    }

    fn filled(&mut self, bytes: usize) -> Result<()> {
        let written = self.file.write_all(&self.chunk[..bytes]);
        written.context("writing the copy")?;
        self.left -= bytes as u64;
        Ok(())
    }
}
