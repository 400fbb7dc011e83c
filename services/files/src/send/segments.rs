//! Sends a file in segments: runs of units, holes, patches, and units that the receiver keeps.

use super::FileSender;
use super::packing::Pending;
use super::trouble::Trouble;
use crate::digest::{Digest, Digester, Hasher, unit_count, unit_len};
use crate::error::{Cause, Error, Failure};
use crate::extents::{Extents, UnitMap};
use crate::limits::{DELTA_BYTES, FILE_BYTES, INLINE_BYTES, RESUME_UNITS, RUN_UNITS, UNIT_BYTES};
use crate::message::{Piece, Record};
use crate::positioned::read_full;
use rustix::fd::BorrowedFd;
use rustix::fs::{Stat, fstat};

/// A file while its segments are sent.
struct Source<'f> {
    file: BorrowedFd<'f>,
    size: u64,
    extents: Extents<'f>,
    digester: Digester,
    /// Digest of its units' digests.
    units: Hasher,
}

impl FileSender<'_> {
    /// Sends a file in segments.
    pub(super) fn open_file(
        &mut self,
        file: BorrowedFd<'_>,
        name: &[u8],
        stat: &Stat,
    ) -> Result<(), Trouble> {
        let size = stat.st_size as u64;
        if size > FILE_BYTES {
            return Err(Cause::TooLarge.into());
        }
        let number = self.opened;
        self.opened += 1;
        let delta = self.options.delta && self.may_be_there && size >= DELTA_BYTES;
        let resume = self.options.resume || delta || self.position.steps < self.started;
        self.reached.units = 0;
        self.note_begun();
        self.add(
            &Record::Open {
                name,
                meta: self.meta(stat),
                size,
                number,
                resume,
            },
            0,
        )?;
        let source = Source {
            file,
            size,
            extents: Extents::of(file, stat),
            units: self.digester.hasher(),
            digester: self.digester.clone(),
        };
        match self.segments(source, stat, number, resume) {
            Ok(digest) => Ok(self.add(&Record::Close { digest }, 0)?),
            Err(Trouble::Copy(error)) => Err(Trouble::Copy(error)),
            Err(Trouble::Refused) => Ok(self.abandon(Cause::SourceChanged)?),
            Err(Trouble::File(cause)) => {
                self.observer
                    .failed(&Failure::new(&self.path, cause.clone()));
                Ok(self.abandon(cause)?)
            }
        }
    }

    fn abandon(&mut self, cause: Cause) -> Result<(), Error> {
        self.pending = None;
        self.add(&Record::Abandon { cause }, 0)
    }

    fn segments(
        &mut self,
        mut source: Source<'_>,
        stat: &Stat,
        number: u64,
        resume: bool,
    ) -> Result<Digest, Trouble> {
        self.have.clear();
        if resume {
            self.wait_for_have(unit_count(source.size))?;
        }
        let units = unit_count(source.size);
        let mut next = 0;
        while next < units {
            if self.refused == Some(number) {
                return Err(Trouble::Refused);
            }
            next += self.segment(&mut source, next)?;
            self.reached.units = next;
        }
        if !self.options.allow_changing && changed(source.file, stat)? {
            return Err(Cause::SourceChanged.into());
        }
        Ok(source.units.finish())
    }

    /// Sends the segment that begins with unit `index`; returns its number of units.
    fn segment(&mut self, source: &mut Source<'_>, index: u64) -> Result<u64, Trouble> {
        let len = unit_len(source.size, index);
        match source.extents.unit(index) {
            UnitMap::Hole => {
                self.hole(source, index)?;
                Ok(1)
            }
            UnitMap::Data if self.has(index) => {
                self.compare(source, index)?;
                Ok(1)
            }
            UnitMap::Data if source.size <= INLINE_BYTES as u64 => {
                self.patch(
                    source,
                    index,
                    vec![Piece {
                        offset: 0,
                        len: len as u32,
                    }],
                )?;
                Ok(1)
            }
            UnitMap::Data => {
                let units = source.extents.known_data_units(index, RUN_UNITS).max(1);
                self.run(source, index, units)?;
                Ok(units)
            }
            UnitMap::Mixed(pieces) => {
                self.patch(source, index, pieces)?;
                Ok(1)
            }
        }
    }

    fn has(&self, index: u64) -> bool {
        index < self.have.len() as u64
    }

    fn hole(&mut self, source: &mut Source<'_>, index: u64) -> Result<(), Trouble> {
        let digest = source
            .digester
            .digest_of_zeros(unit_len(source.size, index));
        source.units.update(&digest);
        let kept = self.has(index) && self.have[index as usize] == digest;
        self.observer.advanced(unit_len(source.size, index) as u64);
        Ok(self.pend(if kept {
            Pending::Keep(1)
        } else {
            Pending::Hole(1)
        })?)
    }

    /// Handles a unit of which the receiver has a version: keeps it if it is the same, else sends it.
    fn compare(&mut self, source: &mut Source<'_>, index: u64) -> Result<(), Trouble> {
        let mut buffer = self.acquire()?;
        let read = source.read_unit(index, &mut buffer);
        let digest = match read {
            Ok(digest) => digest,
            Err(cause) => {
                self.port.put_back(buffer);
                return Err(cause.into());
            }
        };
        source.units.update(&digest);
        let len = unit_len(source.size, index);
        self.observer.advanced(len as u64);
        if self.have[index as usize] == digest {
            self.port.put_back(buffer);
            return Ok(self.pend(Pending::Keep(1))?);
        }
        // The announcement goes first, and needs a buffer of its own.
        self.add(&Record::Run { units: 1 }, 0)?;
        self.flush()?;
        Ok(self.port.submit(buffer, len)?)
    }

    /// Announces and sends `units` units of data. Every announced unit is sent, even if reading fails.
    fn run(&mut self, source: &mut Source<'_>, first: u64, units: u64) -> Result<(), Trouble> {
        self.add(&Record::Run { units }, 0)?;
        self.flush()?;
        let mut outcome = Ok(());
        for index in first..first + units {
            let len = unit_len(source.size, index);
            let mut buffer = self.acquire()?;
            match outcome
                .is_ok()
                .then(|| source.read_unit(index, &mut buffer))
            {
                Some(Ok(digest)) => {
                    source.units.update(&digest);
                    self.observer.advanced(len as u64);
                }
                Some(Err(cause)) => {
                    buffer[..len].fill(0);
                    outcome = Err(cause.into());
                }
                None => buffer[..len].fill(0),
            }
            self.port.submit(buffer, len)?;
        }
        outcome
    }

    /// Puts a unit into the pack of which only `pieces` are data.
    fn patch(
        &mut self,
        source: &mut Source<'_>,
        index: u64,
        pieces: Vec<Piece>,
    ) -> Result<(), Trouble> {
        let len = unit_len(source.size, index);
        let contents = pieces.iter().map(|piece| piece.len as usize).sum();
        self.make_room(contents)?;
        let mut unit = self.acquire()?;
        let read = source.read_unit(index, &mut unit);
        if let Ok(digest) = read {
            let kept = self.has(index) && self.have[index as usize] == digest;
            source.units.update(&digest);
            self.observer.advanced(len as u64);
            if kept {
                self.port.put_back(unit);
                return Ok(self.pend(Pending::Keep(1))?);
            }
            self.copy_pieces(&unit, &pieces)?;
        }
        self.port.put_back(unit);
        read?;
        Ok(self.add_fitting(&Record::Patch { pieces }, contents)?)
    }

    fn copy_pieces(&mut self, unit: &[u8], pieces: &[Piece]) -> Result<(), Error> {
        let (pack, buffer) = self.pack_buffer()?;
        let mut at = pack.contents_at();
        for piece in pieces {
            let (from, len) = (piece.offset as usize, piece.len as usize);
            buffer[at..at + len].copy_from_slice(&unit[from..from + len]);
            at += len;
        }
        Ok(())
    }

    fn wait_for_have(&mut self, units: u64) -> Result<(), Error> {
        self.have_all = false;
        self.flush()?;
        loop {
            self.take_feedback()?;
            if self.have.len() as u64 > units.min(RESUME_UNITS) {
                return Err(Error::Protocol("more digests than units"));
            }
            if self.have_all {
                return Ok(());
            }
            self.port.wait()?;
        }
    }
}

impl Source<'_> {
    /// Reads unit `index` to the front of `buffer`, holes as zeros; returns its digest.
    fn read_unit(&self, index: u64, buffer: &mut [u8]) -> Result<Digest, Cause> {
        let unit = &mut buffer[..unit_len(self.size, index)];
        if read_full(self.file, unit, index * UNIT_BYTES as u64)? < unit.len() {
            return Err(Cause::SourceChanged);
        }
        Ok(self.digester.digest(unit))
    }
}

/// Whether the file was written to since `before`.
pub(super) fn changed(file: BorrowedFd<'_>, before: &Stat) -> Result<bool, Cause> {
    let now = fstat(file)?;
    let state = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
    Ok(state(&now) != state(before))
}
