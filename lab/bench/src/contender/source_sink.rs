//! Prepares content at a source, and checks it at a sink.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use zerolane::Region;
use zerolane_cli::exit::Exit;

use crate::content::pattern::{Pattern, WORD};
use crate::content::stage::Stage;
use crate::job::source_sink::{LINE, Sink, Source, SourceSink};

/// The pattern of such a job: the same in every lap, because it may be in a file.
pub(crate) fn pattern(job: &SourceSink) -> Pattern {
    job.laps().pattern().fixed()
}

/// A file that exists only in memory.
pub(crate) fn file_in_memory(bytes: usize) -> Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = memfd_create("content", flags).context("no file in memory")?;
    let file = File::from(file);
    file.set_len(bytes as u64)?;
    Ok(file)
}

/// Fills `buffer` with the content of every lap.
fn write(pattern: &Pattern, buffer: &mut [u8]) {
    pattern.fill(buffer);
    pattern.stamp(buffer, 0, 0);
}

/// Such a file, filled with a pattern and sealed, and its mapping.
pub(crate) fn filled_file(pattern: &Pattern, bytes: usize) -> Result<(File, Region)> {
    let file = file_in_memory(bytes)?;
    let mut content = vec![0; bytes];
    write(pattern, &mut content);
    file.write_all_at(&content, 0)?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    let mapping = Region::map_sealed(&file, 0, bytes)?;
    Ok((file, mapping))
}

/// The sender's side.
pub(crate) struct FromSource {
    /// The file to read, if that is the source.
    file: Option<File>,
    reads: u64,
}

impl FromSource {
    /// The side, and the memory to send from: `memory`, or instead a file's mapping. That of `sendfile`
    /// is filled.
    pub(crate) fn new(job: &SourceSink, mut memory: Region) -> Result<(FromSource, Region)> {
        let (pattern, bytes) = (pattern(job), memory.len());
        let mut file = None;
        match job.source {
            Source::Buffer | Source::Splice => write(&pattern, &mut memory),
            Source::Read => file = Some(filled_file(&pattern, bytes)?.0),
            Source::Mmap => memory = filled_file(&pattern, bytes)?.1,
            // It is the mapping of the file that is sent.
            Source::Sendfile => {}
        }
        Ok((FromSource { file, reads: 0 }, memory))
    }
}

impl Stage for FromSource {
    const GRAIN: usize = LINE;

    fn fill(&mut self, piece: &mut [u8], base: usize, _lap: u64) -> Result<()> {
        if let Some(file) = &self.file {
            self.reads += 1;
            let read = file.read_exact_at(piece, base as u64);
            read.context("the file was truncated")?;
        }
        Ok(())
    }

    fn take(&mut self, _: &[u8], _: usize, _: u64) -> Result<()> {
        Ok(())
    }

    fn syscalls(&self) -> u64 {
        self.reads
    }
}

/// The receiver's side.
pub(crate) struct ToSink {
    job: SourceSink,
    /// The sum of the words that were read.
    sum: u64,
    file: Option<File>,
    writes: u64,
    /// The destination of the copy.
    copy: Vec<u8>,
}

impl ToSink {
    pub(crate) fn new(job: &SourceSink) -> Result<ToSink> {
        let file = match job.sink {
            Sink::File => Some(file_in_memory(job.laps().buffer)?),
            _ => None,
        };
        let copied = if job.sink == Sink::Copy {
            job.laps().buffer
        } else {
            0
        };
        Ok(ToSink {
            job: *job,
            sum: 0,
            file,
            writes: 0,
            copy: vec![0; copied],
        })
    }

    /// Fails unless the sum is that of all laps, and the file or the copy equals the last lap.
    pub(crate) fn check(&self) -> Result<()> {
        let (pattern, buffer) = (pattern(&self.job), self.job.laps().buffer);
        let all_of = |bytes: &[u8]| {
            let checked = pattern.check_all(bytes, self.job.laps - 1);
            checked.context(Exit::Corrupt)
        };
        let mut sent = vec![0; buffer];
        if let Some(file) = &self.file {
            file.read_exact_at(&mut sent, 0)?;
            return all_of(&sent);
        }
        if self.job.sink == Sink::Copy {
            return all_of(&self.copy);
        }
        write(&pattern, &mut sent);
        let expected = self.sum_of(&sent).wrapping_mul(self.job.laps);
        let is_right = self.sum == expected;
        let checked = is_right
            .then_some(())
            .context("the checksum of the received data is wrong");
        checked.context(Exit::Corrupt)
    }

    /// The sum of those words of `bytes`, whole lines, that this sink reads.
    fn sum_of(&self, bytes: &[u8]) -> u64 {
        let every = match self.job.sink {
            Sink::None | Sink::Copy | Sink::File => return 0,
            Sink::Touch => LINE,
            Sink::Checksum => WORD,
        };
        let words = bytes.chunks_exact(every);
        let words = words.filter_map(|line| line.first_chunk().map(|it| u64::from_le_bytes(*it)));
        words.fold(0, u64::wrapping_add)
    }
}

impl Stage for ToSink {
    const GRAIN: usize = LINE;

    fn fill(&mut self, _: &mut [u8], _: usize, _: u64) -> Result<()> {
        Ok(())
    }

    fn take(&mut self, piece: &[u8], base: usize, _lap: u64) -> Result<()> {
        if let Some(file) = &self.file {
            self.writes += 1;
            let written = file.write_all_at(piece, base as u64);
            return written.context("writing received data");
        }
        if !self.copy.is_empty() {
            self.copy[base..base + piece.len()].copy_from_slice(piece);
            return Ok(());
        }
        ensure!(
            piece.len().is_multiple_of(LINE),
            "a piece of {} bytes",
            piece.len()
        );
        self.sum = self.sum.wrapping_add(self.sum_of(piece));
        Ok(())
    }

    fn syscalls(&self) -> u64 {
        self.writes
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::job::source_sink::tests::JOB;
    use clap::ValueEnum;

    /// The verdict of `sink` on laps from `source` that only `spoil` changed.
    fn came(source: Source, sink: Sink, spoil: impl Fn(&mut [u8])) -> Result<()> {
        let job = SourceSink {
            source,
            sink,
            ..JOB
        };
        let memory = Region::anonymous(job.laps().buffer).unwrap();
        let (mut from, mut memory) = FromSource::new(&job, memory).unwrap();
        let mut to = ToSink::new(&job).unwrap();
        for lap in 0..job.laps {
            for base in (0..memory.len()).step_by(job.piece) {
                let piece = &mut memory[base..base + job.piece];
                from.fill(piece, base, lap)?;
                let mut piece = piece.to_vec();
                if (lap, base) == (job.laps - 1, job.piece) {
                    spoil(&mut piece);
                }
                to.take(&piece, base, lap)?;
            }
        }
        to.check()
    }

    #[test]
    fn check__every_sink_of_every_source() {
        for source in [Source::Buffer, Source::Splice, Source::Read, Source::Mmap] {
            for &sink in Sink::value_variants() {
                came(source, sink, |_| {}).unwrap();
            }
        }
    }

    #[test]
    fn check__a_wrong_byte_is_corrupt_where_the_sink_looks() {
        let at = |sink, place: usize| {
            let came = came(Source::Buffer, sink, |piece| piece[place] ^= 1);
            came.map_err(|error| Exit::of(&error))
        };
        for sink in [Sink::Touch, Sink::Copy, Sink::Checksum, Sink::File] {
            assert_eq!(at(sink, LINE), Err(Exit::Corrupt), "{sink:?}");
        }
        for sink in [Sink::Copy, Sink::Checksum, Sink::File] {
            assert_eq!(at(sink, LINE + 20), Err(Exit::Corrupt), "{sink:?}");
        }
        assert_eq!(at(Sink::Touch, LINE + 20), Ok(()));
    }
}
