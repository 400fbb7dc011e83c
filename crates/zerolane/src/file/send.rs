//! The end that reads files: walks the sources, packs small files, streams large ones.
//!
//! Straight-line code on a thread of its own; it blocks on its [`Port`] when everything it may
//! send is in flight.

use super::digest::{Digest, TreeHash, unit_count, unit_digest, unit_len, zero_digest};
use super::error::{Cause, Error, Failure};
use super::extents::{Extents, UnitMap};
use super::limits::{
    BUFFER_BYTES, FILE_BYTES, INLINE_BYTES, PATH_BYTES, QUIET_UNITS, RESUME_UNITS, RUN_UNITS,
    TREE_DEPTH, UNIT_BYTES,
};
use super::message::{CopyOptions, EntryKind, Feedback, Piece, Record, Totals, decode_feedback};
use super::observe::Observer;
use super::pack::PackWriter;
use super::port::{Buffer, Port};
use super::root::{DIRECTORY, READ_FILE, entry_kind, kind_of, meta_of, stat_at};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Dir, FileType, Mode, Stat, fstat, openat, readlinkat};
use rustix::io::{Errno, pread};

/// Where sending starts.
#[derive(Debug)]
pub(crate) enum Start {
    /// An entry of a directory, under its own name.
    Named {
        /// Where it is.
        directory: OwnedFd,
        /// What it is called, there and at the target.
        name: Vec<u8>,
    },
    /// The entries of a directory, without a directory around them.
    Contents(OwnedFd),
    /// Something that was asked for and cannot be had.
    Missing {
        /// As asked for.
        path: Vec<u8>,
        /// Why not.
        cause: Cause,
    },
}

/// What interrupts the sending of one file.
#[derive(Debug)]
enum Trouble {
    /// The whole copy ends.
    Copy(Error),
    /// This file fails; the next one is sent.
    File(Cause),
    /// The receiver has reported this file already.
    Refused,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Copy(error)
    }
}

impl From<Cause> for Trouble {
    fn from(cause: Cause) -> Trouble {
        Trouble::File(cause)
    }
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Trouble {
        Trouble::File(errno.into())
    }
}

/// Sends files through a [`Port`].
pub(crate) struct FileSender<'a> {
    port: Port,
    observer: &'a dyn Observer,
    options: CopyOptions,
    pack: PackWriter,
    /// The pack's buffer, taken when its first record is added.
    pack_buffer: Option<Buffer>,
    /// Hole or Keep units not yet recorded.
    pending: Option<Pending>,
    /// Files opened so far.
    opened: u64,
    /// The last opened file that the receiver gave up.
    refused: Option<u64>,
    /// Digests that the receiver says it has of the open file, and whether it said all.
    have: Vec<Digest>,
    have_all: bool,
    done: Option<Totals>,
    /// Path of what is being sent, for reports.
    path: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Hole(u64),
    Keep(u64),
}

/// A file while its segments are sent.
struct Source<'f> {
    file: BorrowedFd<'f>,
    size: u64,
    extents: Extents<'f>,
    tree: TreeHash,
}

impl<'a> FileSender<'a> {
    pub(crate) fn new(
        port: Port,
        observer: &'a dyn Observer,
        options: CopyOptions,
    ) -> FileSender<'a> {
        FileSender {
            port,
            observer,
            options,
            pack: PackWriter::default(),
            pack_buffer: None,
            pending: None,
            opened: 0,
            refused: None,
            have: Vec::new(),
            have_all: false,
            done: None,
            path: Vec::new(),
        }
    }

    /// Sends everything and waits until the receiver has put it in its place.
    pub(crate) fn send_all(mut self, starts: Vec<Start>) -> Result<Totals, Error> {
        if self.options.count_first {
            let (files, bytes) = count(&starts, self.options.recursive);
            self.observer.counted(files, bytes);
            self.add(&Record::Total { files, bytes }, 0)?;
        }
        for start in starts {
            self.start(start)?;
        }
        self.add(&Record::Finish, 0)?;
        self.flush()?;
        loop {
            self.take_feedback()?;
            if let Some(totals) = self.done {
                return Ok(totals);
            }
            self.port.wait()?;
        }
    }

    fn start(&mut self, start: Start) -> Result<(), Error> {
        match start {
            Start::Named { directory, name } => {
                self.entry(directory.as_fd(), &name, None, TREE_DEPTH)
            }
            Start::Contents(directory) => self.contents(&directory, TREE_DEPTH),
            Start::Missing { path, cause } => {
                let name = path.rsplit(|&b| b == b'/').next().unwrap_or(b"");
                let record = Record::Unreadable {
                    name: &name[..name.len().min(PATH_BYTES)],
                    cause: cause.clone(),
                };
                self.observer.failed(&Failure::new(&path, cause));
                self.add(&record, 0)
            }
        }
    }

    /// Sends one entry of `directory`, of a kind known or not yet known.
    fn entry(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        kind: Option<EntryKind>,
        depth: usize,
    ) -> Result<(), Error> {
        let outer = self.path.len();
        if outer > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        let sent = match self.send_entry(directory, name, kind, depth) {
            Err(Trouble::Copy(error)) => Err(error),
            Err(Trouble::File(cause)) => self.unreadable(name, cause),
            Err(Trouble::Refused) | Ok(()) => Ok(()),
        };
        self.path.truncate(outer);
        sent
    }

    fn unreadable(&mut self, name: &[u8], cause: Cause) -> Result<(), Error> {
        self.observer
            .failed(&Failure::new(&self.path, cause.clone()));
        self.add(&Record::Unreadable { name, cause }, 0)
    }

    fn send_entry(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        kind: Option<EntryKind>,
        depth: usize,
    ) -> Result<(), Trouble> {
        let kind = match kind {
            Some(kind) => kind,
            None => kind_of(&stat_at(directory, name)?),
        };
        match kind {
            EntryKind::File => self.file(directory, name),
            EntryKind::Directory => self.directory(directory, name, depth),
            EntryKind::Link => self.link(directory, name),
            EntryKind::Special => Err(Cause::Special.into()),
        }
    }

    fn directory(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        depth: usize,
    ) -> Result<(), Trouble> {
        if !self.options.recursive {
            return Err(Cause::IsADirectory.into());
        }
        let depth = depth.checked_sub(1).ok_or(Cause::TooDeep)?;
        let directory = openat(parent, name, DIRECTORY, Mode::empty())?;
        let meta = meta_of(&fstat(&directory)?);
        self.add(&Record::Enter { name, meta }, 0)?;
        self.contents(&directory, depth)?;
        Ok(self.add(&Record::Leave, 0)?)
    }

    fn contents(&mut self, directory: &OwnedFd, depth: usize) -> Result<(), Error> {
        let entries = match Dir::read_from(directory) {
            Ok(entries) => entries,
            Err(errno) => return self.unreadable(b".", errno.into()),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => return self.unreadable(b".", errno.into()),
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => None,
                known => Some(entry_kind(known)),
            };
            self.entry(directory.as_fd(), name, kind, depth)?;
        }
        Ok(())
    }

    fn link(&mut self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<(), Trouble> {
        let meta = meta_of(&stat_at(directory, name)?);
        let target = readlinkat(directory, name, Vec::new())?;
        Ok(self.add(
            &Record::Link {
                name,
                target: target.as_bytes(),
                meta,
            },
            0,
        )?)
    }

    fn file(&mut self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<(), Trouble> {
        let file = openat(directory, name, READ_FILE, Mode::empty())?;
        let stat = fstat(&file)?;
        if kind_of(&stat) != EntryKind::File {
            return Err(Cause::Special.into());
        }
        let size = stat.st_size as u64;
        self.observer.file_started(&self.path, size);
        let sparse = (stat.st_blocks as u64) * 512 < size;
        if size <= INLINE_BYTES as u64 && !sparse {
            self.inline_file(file.as_fd(), name, &stat)
        } else {
            self.open_file(file.as_fd(), name, &stat)
        }
    }

    /// A whole file into the pack.
    fn inline_file(
        &mut self,
        file: BorrowedFd<'_>,
        name: &[u8],
        stat: &Stat,
    ) -> Result<(), Trouble> {
        let size = stat.st_size as usize;
        // One byte more than the file should have shows that it grew.
        self.make_room(size + 1)?;
        let at = self.pack.contents_at();
        let (_, buffer) = self.pack_buffer()?;
        let room = &mut buffer[at..at + size + 1];
        if read_full(file, room, 0)? != size || changed(file, stat)? {
            return Err(Cause::SourceChanged.into());
        }
        let digest = *blake3::hash(&room[..size]).as_bytes();
        self.add_fitting(
            &Record::File {
                name,
                meta: meta_of(stat),
                size: size as u32,
                digest,
            },
            size,
        )?;
        self.observer.advanced(size as u64);
        Ok(())
    }

    /// A file in segments.
    fn open_file(&mut self, file: BorrowedFd<'_>, name: &[u8], stat: &Stat) -> Result<(), Trouble> {
        let size = stat.st_size as u64;
        if size > FILE_BYTES {
            return Err(Cause::Os(Errno::FBIG.raw_os_error()).into());
        }
        let number = self.opened;
        self.opened += 1;
        self.add(
            &Record::Open {
                name,
                meta: meta_of(stat),
                size,
                number,
            },
            0,
        )?;
        let source = Source {
            file,
            size,
            extents: Extents::of(file, stat),
            tree: TreeHash::default(),
        };
        match self.segments(source, stat, number) {
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
    ) -> Result<Digest, Trouble> {
        self.have.clear();
        if self.options.resume {
            self.wait_for_have(unit_count(source.size))?;
        }
        let units = unit_count(source.size);
        let mut next = 0;
        while next < units {
            if self.refused == Some(number) {
                return Err(Trouble::Refused);
            }
            next += self.segment(&mut source, next)?;
        }
        if changed(source.file, stat)? {
            return Err(Cause::SourceChanged.into());
        }
        Ok(source.tree.finish())
    }

    /// Sends the segment that begins with unit `index`; how many units it has.
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
        let digest = zero_digest(source.size, index);
        source.tree.push(digest);
        let kept = self.has(index) && self.have[index as usize] == digest;
        self.observer.advanced(unit_len(source.size, index) as u64);
        Ok(self.pend(if kept {
            Pending::Keep(1)
        } else {
            Pending::Hole(1)
        })?)
    }

    /// A unit of which the receiver has something: keep it if it is the same, else send it.
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
        source.tree.push(digest);
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

    /// Announces and sends `units` units of data. What was announced is sent, come what may.
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
                    source.tree.push(digest);
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

    /// A unit of which only `pieces` are data, into the pack.
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
            source.tree.push(digest);
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

    // Packing.

    /// Counts one more unit of a kind that needs no content, and tells what was counted before it
    /// is too much to be taken at once.
    fn pend(&mut self, one: Pending) -> Result<(), Error> {
        let units = match (self.pending, one) {
            (Some(Pending::Hole(units)), Pending::Hole(_))
            | (Some(Pending::Keep(units)), Pending::Keep(_)) => units + 1,
            _ => {
                self.settle_pending()?;
                1
            }
        };
        self.pending = Some(match one {
            Pending::Hole(_) => Pending::Hole(units),
            Pending::Keep(_) => Pending::Keep(units),
        });
        match units >= QUIET_UNITS {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn settle_pending(&mut self) -> Result<(), Error> {
        match self.pending.take() {
            None => Ok(()),
            Some(Pending::Hole(units)) => self.add(&Record::Hole { units }, 0),
            Some(Pending::Keep(units)) => self.add(&Record::Keep { units }, 0),
        }
    }

    /// Adds a record, in a new pack if this one is full.
    fn add(&mut self, record: &Record<'_>, contents: usize) -> Result<(), Error> {
        self.make_room(contents)?;
        self.add_fitting(record, contents)
    }

    /// Sees to it that a record and `contents` bytes fit the pack, and that what is pending
    /// stands before them.
    fn make_room(&mut self, contents: usize) -> Result<(), Error> {
        self.settle_pending()?;
        if !self.pack.fits(contents, BUFFER_BYTES) {
            self.flush()?;
        }
        Ok(())
    }

    fn add_fitting(&mut self, record: &Record<'_>, contents: usize) -> Result<(), Error> {
        self.pack_buffer()?;
        self.pack.add(record, contents)
    }

    /// The pack and its buffer.
    fn pack_buffer(&mut self) -> Result<(&PackWriter, &mut Buffer), Error> {
        if self.pack_buffer.is_none() {
            let buffer = self.acquire()?;
            self.pack_buffer = Some(buffer);
        }
        let buffer = self.pack_buffer.as_mut().ok_or(Error::PeerGone)?;
        Ok((&self.pack, buffer))
    }

    /// Sends the pack, if there is anything in it.
    fn flush(&mut self) -> Result<(), Error> {
        self.settle_pending()?;
        if let Some(mut buffer) = self.pack_buffer.take() {
            if self.pack.is_empty() {
                self.pack_buffer = Some(buffer);
                return Ok(());
            }
            let len = self.pack.finish(&mut buffer);
            self.port.submit(buffer, len)?;
        }
        Ok(())
    }

    /// A buffer to fill. Takes feedback while it waits: a receiver that cannot get rid of its
    /// feedback would stop taking data.
    fn acquire(&mut self) -> Result<Buffer, Error> {
        self.port.poll()?;
        loop {
            self.take_feedback()?;
            if let Some(buffer) = self.port.take_free() {
                return Ok(buffer);
            }
            self.port.wait()?;
        }
    }

    fn take_feedback(&mut self) -> Result<(), Error> {
        while let Some(filled) = self.port.take_arrived() {
            let feedback = decode_feedback(filled.bytes())?;
            self.port.release(filled.buffer);
            match feedback {
                Feedback::Have { digests, last } => {
                    if self.have.len() as u64 > RESUME_UNITS {
                        return Err(Error::Protocol("more digests than may be"));
                    }
                    self.have.extend(digests);
                    self.have_all |= last;
                }
                Feedback::Failed { failures, open } => {
                    self.refused = open.or(self.refused);
                    failures
                        .iter()
                        .for_each(|failure| self.observer.failed(failure));
                }
                Feedback::Done(totals) => self.done = Some(totals),
            }
        }
        Ok(())
    }
}

impl Source<'_> {
    /// Reads unit `index` to the front of `buffer`, holes as zeros; its digest.
    fn read_unit(&self, index: u64, buffer: &mut [u8]) -> Result<Digest, Cause> {
        let unit = &mut buffer[..unit_len(self.size, index)];
        if read_full(self.file, unit, index * UNIT_BYTES as u64)? < unit.len() {
            return Err(Cause::SourceChanged);
        }
        Ok(unit_digest(self.size, index, unit))
    }
}

/// Reads until `buffer` is full or the file ends; how much it was.
pub(crate) fn read_full(
    file: BorrowedFd<'_>,
    buffer: &mut [u8],
    offset: u64,
) -> Result<usize, Cause> {
    let mut done = 0;
    while done < buffer.len() {
        match pread(file, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(done)
}

/// Whether the file was written to since `before`.
fn changed(file: BorrowedFd<'_>, before: &Stat) -> Result<bool, Cause> {
    let now = fstat(file)?;
    let state = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
    Ok(state(&now) != state(before))
}

/// Files and bytes below `starts`. What cannot be read counts nothing: it is reported later.
fn count(starts: &[Start], recursive: bool) -> (u64, u64) {
    let mut sum = (0, 0);
    for start in starts {
        match start {
            Start::Named { directory, name } => count_entry(
                directory.as_fd(),
                name,
                None,
                recursive,
                TREE_DEPTH,
                &mut sum,
            ),
            Start::Contents(directory) => count_contents(directory, TREE_DEPTH, &mut sum),
            Start::Missing { .. } => {}
        }
    }
    sum
}

fn count_entry(
    directory: BorrowedFd<'_>,
    name: &[u8],
    kind: Option<EntryKind>,
    recursive: bool,
    depth: usize,
    sum: &mut (u64, u64),
) {
    let stat = match kind {
        Some(EntryKind::Directory | EntryKind::Link | EntryKind::Special) => None,
        _ => stat_at(directory, name).ok(),
    };
    match kind.or(stat.as_ref().map(kind_of)) {
        Some(EntryKind::File) => {
            sum.0 += 1;
            sum.1 += stat.map_or(0, |stat| stat.st_size as u64);
        }
        Some(EntryKind::Directory) if recursive && depth > 0 => {
            if let Ok(directory) = openat(directory, name, DIRECTORY, Mode::empty()) {
                count_contents(&directory, depth - 1, sum);
            }
        }
        _ => {}
    }
}

fn count_contents(directory: &OwnedFd, depth: usize, sum: &mut (u64, u64)) {
    let Ok(entries) = Dir::read_from(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            let kind = match entry.file_type() {
                FileType::Unknown => None,
                known => Some(entry_kind(known)),
            };
            count_entry(directory.as_fd(), name, kind, true, depth, sum);
        }
    }
}
