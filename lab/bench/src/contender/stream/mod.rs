//! Carries buffers and files over a connection that keeps order: TCP, TLS or QUIC.

mod flows;

use std::fs::File;
use std::io::{Read, Write};
use std::ops::DerefMut;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use zerolane::Region;
use zerolane_cli::exit::Exit;

use super::contract::{DONE, GO, Part, expect_word};
use super::source_sink::{self, FromSource, ToSink};
use crate::content::stage::Stage;
use crate::cpu::{Core, Meter};
use crate::job::source_sink::SourceSink;
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
        bail!("this contender cannot run flows")
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
    /// The next piece to send, of at most `most` bytes; `None` at the end.
    fn next(&mut self, most: usize) -> Result<Option<&[u8]>>;

    /// Room for at most `most` bytes of what comes next; `None` when all is there.
    fn space(&mut self, most: usize) -> Option<&mut [u8]>;

    /// So much of the room was filled.
    fn filled(&mut self, bytes: usize) -> Result<()>;

    /// System calls until now beside those of the connection.
    fn syscalls(&self) -> u64;
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
        Work::SourceSink(job) => {
            let memory = part.memory.take(job.laps().buffer)?;
            let (measured, memory) = send_from_source(part, job, memory, connect)?;
            if job.source.is_memory() {
                part.memory.give_back(memory);
            }
            Ok(vec![measured])
        }
        Work::Operations(_) => bail!("a stream of bytes has no operations"),
    }
}

/// Sends from the source of a job, for which there is this memory; gives back what was sent from.
pub(super) fn send_from_source<S: Stream>(
    part: &Part<'_>,
    job: &SourceSink,
    memory: Region,
    connect: impl FnOnce() -> Result<S>,
) -> Result<(Measured, Region)> {
    let (stage, memory) = FromSource::new(job, memory)?;
    let mut source = Buffer::new(memory, &job.laps(), stage);
    let measured = send(connect()?, &mut source, part.core())?;
    Ok((measured, source.buffer))
}

/// Sends the laps of a buffer that is filled; gives it back.
pub(super) fn send_laps<S: Stream>(
    part: &Part<'_>,
    buffer: Region,
    laps: &Laps,
    connect: impl FnOnce() -> Result<S>,
) -> Result<(Measured, Region)> {
    let stage = part.job.stamps(laps);
    let mut source = Buffer::new(buffer, laps, stage);
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
            let stage = part.job.stamps(laps);
            let mut sink = Buffer::new(&mut buffer[..], laps, stage);
            let measured = receive(accept()?, &mut sink, part.core())?;
            let whole = stage.pattern.check_all(&buffer, laps.laps - 1);
            whole.context(Exit::Corrupt)?;
            part.memory.give_back(buffer);
            Ok(vec![measured])
        }
        Work::Flows(flows) => flows::flow(Role::Responder, part, flows, accept),
        Work::File(file) => {
            let mut sink = Chunks::of(File::create_new(part.path(file)?)?, file);
            Ok(vec![receive(accept()?, &mut sink, part.core())?])
        }
        Work::SourceSink(job) => {
            let (laps, mut buffer) = (job.laps(), part.memory.take(job.laps().buffer)?);
            let mut sink = Buffer::new(&mut buffer[..], &laps, ToSink::new(job)?);
            let measured = receive(accept()?, &mut sink, part.core())?;
            sink.stage.check()?;
            let whole = source_sink::pattern(job).check_all(&buffer, laps.laps - 1);
            whole.context(Exit::Corrupt)?;
            part.memory.give_back(buffer);
            Ok(vec![measured])
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

fn send(mut stream: impl Stream, source: &mut impl Content, core: Core<'_>) -> Result<Measured> {
    await_word(&mut stream, GO)?;
    let (most, before) = (stream.send_bytes(), stream.syscalls());
    let meter = Meter::start(core);
    let mut bytes = 0;
    while let Some(piece) = source.next(most)? {
        stream.send(piece)?;
        bytes += piece.len() as u64;
    }
    // What is still in flight costs this core too: wait until it is there.
    await_word(&mut stream, DONE)?;
    let (seconds, cpu) = meter.stop();
    let syscalls = stream.syscalls() - before + source.syscalls();
    stream.finish()?;
    Ok(Measured {
        cpu,
        syscalls,
        ..Measured::stream(bytes, seconds)
    })
}

fn receive(mut stream: impl Stream, sink: &mut impl Content, core: Core<'_>) -> Result<Measured> {
    stream.send(&[GO])?;
    let (most, before) = (stream.receive_bytes(), stream.syscalls());
    let meter = Meter::start(core);
    let mut bytes = 0;
    while let Some(space) = sink.space(most) {
        let got = stream.receive(space)?;
        sink.filled(got)?;
        bytes += got as u64;
    }
    let (seconds, cpu) = meter.stop();
    let syscalls = stream.syscalls() - before + sink.syscalls();
    stream.send(&[DONE])?;
    stream.finish()?;
    Ok(Measured {
        cpu,
        syscalls,
        ..Measured::stream(bytes, seconds)
    })
}

/// A buffer that is sent from, or received into, over and over.
struct Buffer<B, S> {
    buffer: B,
    stage: S,
    laps: u64,
    lap: u64,
    /// Within the lap: bytes that went or came, and bytes taken by the stage.
    at: usize,
    taken: usize,
}

impl<B: DerefMut<Target = [u8]>, S: Stage> Buffer<B, S> {
    /// If it is sent from, it is as the stage has it before its first lap.
    fn new(buffer: B, laps: &Laps, stage: S) -> Buffer<B, S> {
        Buffer {
            buffer,
            stage,
            laps: laps.laps,
            lap: 0,
            at: 0,
            taken: 0,
        }
    }

    /// Where the next piece ends, in the next lap if this one is over; `None` at the end of all.
    fn end(&mut self, most: usize) -> Option<usize> {
        if self.at == self.buffer.len() {
            (self.at, self.taken, self.lap) = (0, 0, self.lap + 1);
        }
        let end = self.buffer.len().min(self.at.saturating_add(most));
        (self.lap < self.laps).then_some(end)
    }
}

impl<B: DerefMut<Target = [u8]>, S: Stage> Content for Buffer<B, S> {
    fn next(&mut self, most: usize) -> Result<Option<&[u8]>> {
        let Some(end) = self.end(most) else {
            return Ok(None);
        };
        let base = std::mem::replace(&mut self.at, end);
        let piece = &mut self.buffer[base..end];
        self.stage.fill(piece, base, self.lap)?;
        Ok(Some(piece))
    }

    fn space(&mut self, most: usize) -> Option<&mut [u8]> {
        let end = self.end(most)?;
        Some(&mut self.buffer[self.at..end])
    }

    fn filled(&mut self, bytes: usize) -> Result<()> {
        self.at += bytes;
        let whole = match self.at == self.buffer.len() {
            true => self.at,
            false => self.at / S::GRAIN * S::GRAIN,
        };
        let base = std::mem::replace(&mut self.taken, whole);
        match base == whole {
            true => Ok(()),
            false => self.stage.take(&self.buffer[base..whole], base, self.lap),
        }
    }

    fn syscalls(&self) -> u64 {
        self.stage.syscalls()
    }
}

/// Most of a file that is received before it is written.
const CHUNK_BYTES: usize = 1 << 20;

/// A file, by the read/write loop that a careful programmer writes first.
struct Chunks {
    file: File,
    chunk: Vec<u8>,
    left: u64,
    syscalls: u64,
}

impl Chunks {
    fn of(file: File, job: &FileCopy) -> Chunks {
        Chunks {
            file,
            chunk: Vec::new(),
            left: job.bytes,
            syscalls: 0,
        }
    }
}

impl Content for Chunks {
    fn next(&mut self, most: usize) -> Result<Option<&[u8]>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.chunk.resize(most, 0);
        self.syscalls += 1;
        let got = self.file.read(&mut self.chunk);
        let (got, left) = (got.context("reading the file")?, self.left);
        ensure!(got > 0, "the file was truncated by {left} bytes");
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
        self.syscalls += 1;
        let written = self.file.write_all(&self.chunk[..bytes]);
        written.context("writing the copy")?;
        self.left -= bytes as u64;
        Ok(())
    }

    fn syscalls(&self) -> u64 {
        self.syscalls
    }
}
