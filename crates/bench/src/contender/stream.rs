//! Buffers and files over a connection that carries bytes in order: TCP, TLS, QUIC.

use std::fs::File;
use std::io::{Read, Write};
use std::ops::DerefMut;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use zerolane_cli::exit::Exit;

use super::{DONE, GO, Part, at_once, expect_word};
use crate::content::pattern::{Pattern, WORD};
use crate::cpu::Meter;
use crate::job::{FileCopy, Flows, Laps, Work};
use crate::limits::FLOW_GRACE;
use crate::measured::Measured;
use crate::measured::progress::Progress;

/// A connection that carries bytes in order.
pub(super) trait Stream: Send {
    /// Most bytes that are handed over at once.
    fn send_bytes(&self) -> usize;

    /// Most bytes that are asked for at once.
    fn receive_bytes(&self) -> usize;

    /// Sends all of `bytes`.
    fn send(&mut self, bytes: &[u8]) -> Result<()>;

    /// Receives into the front of `space`; how many bytes, at least one.
    fn receive(&mut self, space: &mut [u8]) -> Result<usize>;

    /// The same, but 0 if nothing comes within `time`.
    fn receive_within(&mut self, space: &mut [u8], time: Duration) -> Result<usize>;

    /// System calls for data until now.
    fn syscalls(&self) -> u64;

    /// Ends it, when both ends have what they wanted.
    fn finish(self) -> Result<()>;
}

/// What is sent.
trait Source {
    /// The next piece, of at most `most` bytes, and how many system calls it took; `None` at the end.
    fn next(&mut self, most: usize) -> Result<Option<(&[u8], u64)>>;
}

/// Where it goes.
trait Sink {
    /// Room for at most `most` bytes of what comes next; `None` when all is there.
    fn space(&mut self, most: usize) -> Option<&mut [u8]>;

    /// So much of the room was filled; how many system calls that took.
    fn filled(&mut self, bytes: usize) -> Result<u64>;
}

/// Does the initiator's part over what `connect` connects, when all is ready.
pub(super) fn initiate<S: Stream>(
    part: &mut Part<'_>,
    connect: impl FnOnce() -> Result<S>,
) -> Result<Measured> {
    match &part.job.work {
        Work::Laps(laps) => {
            let mut source = Outgoing::new(part.filled(laps)?, *laps);
            let measured = send(connect()?, &mut source, part.core)?;
            part.memory.give_back(source.buffer);
            Ok(measured)
        }
        Work::Flows(flows) => {
            let laps = flows.laps();
            let mut source = Outgoing::new(part.filled(&laps)?, laps);
            send_for(connect()?, &mut source, flows)?;
            Ok(Measured::default())
        }
        Work::File(file) => {
            let mut source = OutgoingFile::open(&part.path(file)?, file)?;
            send(connect()?, &mut source, part.core)
        }
        Work::Operations(_) => bail!("a stream of bytes has no operations"),
    }
}

/// Does the responder's part over what `accept` accepts.
pub(super) fn respond<S: Stream>(
    part: &mut Part<'_>,
    mut accept: impl FnMut() -> Result<S>,
) -> Result<Vec<Measured>> {
    match &part.job.work {
        Work::Laps(laps) => {
            let mut buffer = part.memory.take(laps.buffer)?;
            let mut sink = Incoming::new(&mut buffer[..], *laps, Check::Stamps);
            let measured = receive(accept()?, &mut sink, part.core)?;
            let pattern = sink.pattern;
            let whole = pattern.check_all(&buffer, laps.laps - 1);
            whole.context(Exit::Corrupt)?;
            part.memory.give_back(buffer);
            Ok(vec![measured])
        }
        Work::Flows(flows) => {
            let (job, endless) = (*flows, flows.laps());
            let mut connections = Vec::new();
            for _ in 0..job.flows {
                let buffer = part.memory.take(job.buffer)?;
                let sink = Incoming::new(buffer, endless, Check::EveryWord);
                connections.push((accept()?, sink));
            }
            at_once(connections, |(stream, mut sink), ready| {
                receive_for(stream, &mut sink, &job, ready)
            })
        }
        Work::File(file) => {
            let mut sink = IncomingFile::create(&part.path(file)?, file)?;
            Ok(vec![receive(accept()?, &mut sink, part.core)?])
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

fn send<S: Stream>(mut stream: S, source: &mut impl Source, core: usize) -> Result<Measured> {
    await_word(&mut stream, GO)?;
    let (most, before) = (stream.send_bytes(), stream.syscalls());
    let meter = Meter::start(core);
    let (mut bytes, mut others) = (0, 0);
    while let Some((piece, syscalls)) = source.next(most)? {
        stream.send(piece)?;
        bytes += piece.len() as u64;
        others += syscalls;
    }
    // What is still under way costs this core too: wait until it is there.
    await_word(&mut stream, DONE)?;
    let (seconds, cpu) = meter.stop();
    let syscalls = stream.syscalls() - before + others;
    stream.finish()?;
    Ok(Measured {
        cpu,
        syscalls,
        ..Measured::stream(bytes, seconds)
    })
}

fn receive<S: Stream>(mut stream: S, sink: &mut impl Sink, core: usize) -> Result<Measured> {
    stream.send(&[GO])?;
    let (most, before) = (stream.receive_bytes(), stream.syscalls());
    let meter = Meter::start(core);
    let (mut bytes, mut others) = (0, 0);
    while let Some(space) = sink.space(most) {
        let got = stream.receive(space)?;
        bytes += got as u64;
        others += sink.filled(got)?;
    }
    let (seconds, cpu) = meter.stop();
    let syscalls = stream.syscalls() - before + others;
    stream.send(&[DONE])?;
    stream.finish()?;
    Ok(Measured {
        cpu,
        syscalls,
        ..Measured::stream(bytes, seconds)
    })
}

/// Sends until the receiver ends the connection. Whether that was right, the receiver says.
fn send_for<S: Stream>(mut stream: S, source: &mut impl Source, flows: &Flows) -> Result<()> {
    await_word(&mut stream, GO).context("the receiver does not start")?;
    let most = stream.send_bytes();
    let deadline = Instant::now() + flows.time() + FLOW_GRACE;
    while Instant::now() < deadline
        && let Some((piece, _)) = source.next(most)?
        && stream.send(piece).is_ok()
    {}
    Ok(())
}

fn receive_for<S: Stream>(
    mut stream: S,
    sink: &mut impl Sink,
    flows: &Flows,
    ready: &Barrier,
) -> Result<Measured> {
    let most = stream.receive_bytes();
    ready.wait();
    stream.send(&[GO])?;
    let mut progress = Progress::start(flows.time(), flows.sample());
    let mut bytes = 0;
    while let Some(left) = progress.left()
        && let Some(space) = sink.space(most)
    {
        let got = stream.receive_within(space, left)?;
        bytes += got as u64;
        progress.reached(bytes);
        sink.filled(got)?;
    }
    Ok(progress.measured(bytes))
}

/// A buffer that is sent over and over.
struct Outgoing<B> {
    buffer: B,
    pattern: Pattern,
    laps: u64,
    lap: u64,
    at: usize,
}

impl<B> Outgoing<B> {
    /// `buffer` is as the pattern has it before its first lap.
    fn new(buffer: B, laps: Laps) -> Outgoing<B> {
        Outgoing {
            buffer,
            pattern: laps.pattern(),
            laps: laps.laps,
            lap: 0,
            at: 0,
        }
    }
}

impl<B: DerefMut<Target = [u8]>> Source for Outgoing<B> {
    fn next(&mut self, most: usize) -> Result<Option<(&[u8], u64)>> {
        if self.at == self.buffer.len() {
            (self.at, self.lap) = (0, self.lap + 1);
        }
        if self.lap == self.laps {
            return Ok(None);
        }
        let base = self.at;
        self.at = self.buffer.len().min(base.saturating_add(most));
        let piece = &mut self.buffer[base..self.at];
        self.pattern.stamp(piece, base, self.lap);
        Ok(Some((piece, 0)))
    }
}

/// What is checked while the clock runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Stamps,
    EveryWord,
}

/// A buffer that is received into over and over.
struct Incoming<B> {
    buffer: B,
    pattern: Pattern,
    check: Check,
    laps: u64,
    lap: u64,
    /// Within the lap: bytes there, and bytes checked.
    filled: usize,
    checked: usize,
}

impl<B: DerefMut<Target = [u8]>> Incoming<B> {
    fn new(buffer: B, laps: Laps, check: Check) -> Incoming<B> {
        Incoming {
            buffer,
            pattern: laps.pattern(),
            check,
            laps: laps.laps,
            lap: 0,
            filled: 0,
            checked: 0,
        }
    }
}

impl<B: DerefMut<Target = [u8]>> Sink for Incoming<B> {
    fn space(&mut self, most: usize) -> Option<&mut [u8]> {
        if self.filled == self.buffer.len() {
            (self.filled, self.checked, self.lap) = (0, 0, self.lap + 1);
        }
        let end = self.buffer.len().min(self.filled.saturating_add(most));
        (self.lap < self.laps).then(|| &mut self.buffer[self.filled..end])
    }

    fn filled(&mut self, bytes: usize) -> Result<u64> {
        self.filled += bytes;
        let whole = self.filled / WORD * WORD;
        let (fresh, base) = (&self.buffer[self.checked..whole], self.checked);
        let checked = match self.check {
            Check::Stamps => self.pattern.check_stamps(fresh, base, self.lap),
            Check::EveryWord => self.pattern.check(fresh, base, self.lap),
        };
        checked.context(Exit::Corrupt)?;
        self.checked = whole;
        Ok(0)
    }
}

/// A file, by the read/write loop that a careful programmer writes first.
struct OutgoingFile {
    file: File,
    chunk: Vec<u8>,
    left: u64,
}

impl OutgoingFile {
    fn open(path: &Path, job: &FileCopy) -> Result<OutgoingFile> {
        Ok(OutgoingFile {
            file: File::open(path)?,
            chunk: Vec::new(),
            left: job.bytes,
        })
    }
}

impl Source for OutgoingFile {
    fn next(&mut self, most: usize) -> Result<Option<(&[u8], u64)>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.chunk.resize(most, 0);
        let got = self
            .file
            .read(&mut self.chunk)
            .context("reading the file")?;
        let left = self.left;
        ensure!(got > 0, "the file is {left} bytes shorter than it was");
        self.left = left.saturating_sub(got as u64);
        Ok(Some((&self.chunk[..got], 1)))
    }
}

/// Most of a file that is received before it is written.
const CHUNK_BYTES: usize = 1 << 20;

/// A copy of a file, which must not exist yet.
struct IncomingFile {
    file: File,
    chunk: Vec<u8>,
    left: u64,
}

impl IncomingFile {
    fn create(path: &Path, job: &FileCopy) -> Result<IncomingFile> {
        Ok(IncomingFile {
            file: File::create_new(path)?,
            chunk: Vec::new(),
            left: job.bytes,
        })
    }
}

impl Sink for IncomingFile {
    fn space(&mut self, most: usize) -> Option<&mut [u8]> {
        let most = most.min(CHUNK_BYTES);
        self.chunk.resize(most, 0);
        let want = usize::try_from(self.left).map_or(most, |left| left.min(most));
        (want > 0).then(|| &mut self.chunk[..want])
    }

    fn filled(&mut self, bytes: usize) -> Result<u64> {
        self.file
            .write_all(&self.chunk[..bytes])
            .context("writing the copy")?;
        self.left -= bytes as u64;
        Ok(1)
    }
}
