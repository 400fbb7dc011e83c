//! The end that writes files: takes packs and units apart, puts everything in its place.
//!
//! Straight-line code on a thread of its own. What the peer sends is checked here against the one
//! order the protocol allows; a violation ends the copy. What the file system refuses fails one
//! file, is reported, and the rest goes on.

use super::error::{Cause, Error, Failure};
use super::limits::{
    CONTROL_BYTES, FEEDBACK_FAILURES, FILE_BYTES, INLINE_BYTES, PATH_BYTES, RUN_UNITS, TREE_DEPTH,
};
use super::message::{CopyOptions, Feedback, Meta, Piece, Record, Totals, encode_feedback};
use super::name::check_name;
use super::observe::Observer;
use super::pack::PackReader;
use super::part::{Part, Replace, make_link, set_meta};
use super::port::{Buffer, Port};
use super::receive_file::{OpenFile, hash_left_over};
use super::root::{DIRECTORY, open_in};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Mode};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

/// What may arrive at the top of a copy, and under which name it is put there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopLevel {
    /// Anything, under its own name.
    Any,
    /// These names only: what a client asked for. A server cannot slip in another.
    Only(HashSet<Vec<u8>>),
    /// One entry, under this name.
    One(Vec<u8>),
}

/// A directory being filled.
struct Level {
    /// `None` if it could not be made: what belongs in it fails too.
    directory: Option<Arc<OwnedFd>>,
    meta: Meta,
    /// Length of the path before it.
    outer: usize,
}

/// A directory, `None` if it could not be made, and a name in it.
type Place<'n> = (Option<Arc<OwnedFd>>, Cow<'n, [u8]>);

/// Receives files through a [`Port`].
pub(crate) struct FileReceiver<'a> {
    port: Port,
    observer: &'a dyn Observer,
    options: CopyOptions,
    base: Arc<OwnedFd>,
    top: TopLevel,
    top_entries: u64,
    levels: Vec<Level>,
    open: Option<OpenFile>,
    opened: u64,
    /// Units announced that have not arrived.
    run: u64,
    totals: Totals,
    failures: Vec<Failure>,
    /// Number of the last opened file that failed here.
    failed_open: Option<u64>,
    path: Vec<u8>,
    finished: bool,
}

impl<'a> FileReceiver<'a> {
    /// Receives into `base`.
    pub(crate) fn new(
        port: Port,
        observer: &'a dyn Observer,
        options: CopyOptions,
        base: OwnedFd,
        top: TopLevel,
    ) -> FileReceiver<'a> {
        FileReceiver {
            port,
            observer,
            options,
            base: Arc::new(base),
            top,
            top_entries: 0,
            levels: Vec::new(),
            open: None,
            opened: 0,
            run: 0,
            totals: Totals::default(),
            failures: Vec::new(),
            failed_open: None,
            path: Vec::new(),
            finished: false,
        }
    }

    /// Receives until the sender has finished; what came of it.
    pub(crate) fn receive_all(mut self) -> Result<Totals, Error> {
        while !self.finished {
            let filled = self.next_transfer()?;
            let taken = match self.run {
                0 => self.take_pack(filled.bytes()),
                _ => self.take_unit(filled.bytes()),
            };
            self.port.release(filled.buffer);
            taken?;
        }
        self.report()?;
        self.say(&Feedback::Done(self.totals))?;
        Ok(self.totals)
    }

    fn next_transfer(&mut self) -> Result<super::port::Filled, Error> {
        loop {
            if let Some(filled) = self.port.take_arrived() {
                return Ok(filled);
            }
            self.report()?;
            self.port.wait()?;
        }
    }

    // Units and packs.

    fn take_unit(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let open = self.open.as_mut().ok_or(NOT_OPEN)?;
        let taken = open.take_unit(bytes)?;
        self.run -= 1;
        self.note_open(taken, bytes.len() as u64);
        Ok(())
    }

    /// Notes what came of a segment of the open file.
    fn note_open(&mut self, outcome: Result<(), Cause>, bytes: u64) {
        self.observer.advanced(bytes);
        if let Err(cause) = outcome {
            self.fail_open(cause);
        }
    }

    fn take_pack(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut pack = PackReader::parse(bytes)?;
        while let Some(record) = pack.next_record()? {
            if self.finished || self.run > 0 {
                return Err(Error::Protocol("a record after the last one"));
            }
            self.take_record(record, &mut pack)?;
        }
        match pack.is_exhausted() {
            true => Ok(()),
            false => Err(Error::Protocol("contents that belong to no record")),
        }
    }

    fn take_record(&mut self, record: Record<'_>, pack: &mut PackReader<'_>) -> Result<(), Error> {
        let of_open_file = matches!(
            record,
            Record::Run { .. }
                | Record::Hole { .. }
                | Record::Keep { .. }
                | Record::Patch { .. }
                | Record::Close { .. }
                | Record::Abandon { .. }
        );
        if of_open_file != self.open.is_some() {
            return Err(NOT_OPEN);
        }
        match record {
            Record::Total { files, bytes } => self.observer.counted(files, bytes),
            Record::Enter { name, meta } => return self.enter(name, meta),
            Record::Leave => return self.leave(),
            Record::Link { name, target, meta } => return self.link(name, target, &meta),
            Record::File {
                name,
                meta,
                size,
                digest,
            } => {
                if size as usize > INLINE_BYTES {
                    return Err(Error::Protocol("too large a file in a pack"));
                }
                let contents = pack.take_contents(size as usize)?;
                return self.file(name, &meta, contents, &digest);
            }
            Record::Open {
                name,
                meta,
                size,
                number,
            } => return self.open(name, meta, size, number),
            Record::Unreadable { name, cause } => self.unreadable(name, cause),
            Record::Run { units } => return self.announce(units),
            Record::Hole { units } => return self.holes(units),
            Record::Keep { units } => return self.keep(units),
            Record::Patch { pieces } => return self.patch(&pieces, pack),
            Record::Close { digest } => return self.close(&digest),
            Record::Abandon { cause } => self.abandon(cause),
            Record::Finish => return self.finish(),
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.finished = self.levels.is_empty();
        match self.finished {
            true => Ok(()),
            false => Err(Error::Protocol("finished inside a directory")),
        }
    }

    // Entries.

    /// The directory that the next entry goes into, and the name it gets there.
    fn place<'n>(&mut self, name: &'n [u8]) -> Result<Place<'n>, Error> {
        let name =
            check_name(name).map_err(|_| Error::Protocol("a name that is not one component"))?;
        if let Some(level) = self.levels.last() {
            return Ok((level.directory.clone(), name.into()));
        }
        self.top_entries += 1;
        let name = match &self.top {
            TopLevel::Any => name.into(),
            TopLevel::Only(names) if names.contains(name) => name.into(),
            TopLevel::One(renamed) if self.top_entries == 1 => renamed.clone().into(),
            _ => return Err(Error::Protocol("something that was not asked for")),
        };
        Ok((Some(self.base.clone()), name))
    }

    /// Runs `work` with the path of `name` as the current one.
    fn at<T>(&mut self, name: &[u8], work: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.push_path(name);
        let result = work(self);
        self.path.truncate(outer);
        result
    }

    fn push_path(&mut self, name: &[u8]) -> usize {
        let outer = self.path.len();
        if outer > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        outer
    }

    fn enter(&mut self, name: &[u8], meta: Meta) -> Result<(), Error> {
        if self.levels.len() >= TREE_DEPTH {
            return Err(Error::Protocol("directories nest too deeply"));
        }
        if !self.options.recursive {
            return Err(Error::Protocol(
                "a directory in a copy that is not recursive",
            ));
        }
        let (parent, name) = self.place(name)?;
        let outer = self.push_path(&name);
        let made = parent
            .ok_or(Cause::NoDirectory)
            .and_then(|parent| make_directory(&parent, &name));
        let directory = match made {
            Ok(directory) => {
                self.totals.directories += 1;
                Some(Arc::new(directory))
            }
            Err(cause) => {
                self.fail(cause);
                None
            }
        };
        self.levels.push(Level {
            directory,
            meta,
            outer,
        });
        Ok(())
    }

    /// A directory is complete: only now its permissions and time, which filling it would change
    /// or might forbid.
    fn leave(&mut self) -> Result<(), Error> {
        let level = self
            .levels
            .pop()
            .ok_or(Error::Protocol("left more directories than entered"))?;
        let settle = |directory: Arc<OwnedFd>| set_meta(directory.as_fd(), &level.meta);
        if let Some(Err(cause)) = level.directory.map(settle) {
            self.fail(cause);
        }
        self.path.truncate(level.outer);
        Ok(())
    }

    fn link(&mut self, name: &[u8], target: &[u8], meta: &Meta) -> Result<(), Error> {
        if target.is_empty() || target.len() > PATH_BYTES || target.contains(&0) {
            return Err(Error::Protocol("a link's target that cannot be"));
        }
        let (directory, name) = self.place(name)?;
        let force = self.options.replace_read_only;
        let made = directory
            .ok_or(Cause::NoDirectory)
            .and_then(|directory| make_link(directory.as_fd(), &name, target, meta, force));
        match made {
            Ok(()) => self.totals.links += 1,
            Err(cause) => self.at(&name, |this| this.fail(cause)),
        }
        Ok(())
    }

    fn file(
        &mut self,
        name: &[u8],
        meta: &Meta,
        contents: &[u8],
        digest: &[u8; 32],
    ) -> Result<(), Error> {
        let (directory, name) = self.place(name)?;
        let written = directory.ok_or(Cause::NoDirectory).and_then(|directory| {
            if blake3::hash(contents) != *digest {
                return Err(Cause::DigestMismatch);
            }
            let part = Part::create(
                &directory,
                &name,
                Replace {
                    resume: false,
                    read_only: self.options.replace_read_only,
                },
            )?;
            write_whole(part, contents, meta, self.options.durable)
        });
        self.at(&name, |this| {
            this.observer
                .file_started(&this.path, contents.len() as u64);
            this.observer.advanced(contents.len() as u64);
            match written {
                Ok(()) => this.count_file(contents.len() as u64),
                Err(cause) => this.fail(cause),
            }
        });
        Ok(())
    }

    fn unreadable(&mut self, name: &[u8], cause: Cause) {
        self.at(name, |this| {
            this.totals.failed += 1;
            this.observer.failed(&Failure::new(&this.path, cause));
        });
    }

    // The open file.

    fn open(&mut self, name: &[u8], meta: Meta, size: u64, number: u64) -> Result<(), Error> {
        if number != self.opened || size > FILE_BYTES {
            return Err(Error::Protocol("a file opened out of order or too large"));
        }
        self.opened += 1;
        let (directory, name) = self.place(name)?;
        let outer = self.push_path(&name);
        self.observer.file_started(&self.path, size);
        let created = directory
            .ok_or(Cause::NoDirectory)
            .and_then(|directory| OpenFile::create(&directory, &name, meta, size, &self.options));
        let (mut open, failed) = match created {
            Ok(open) => (open, None),
            Err(cause) => (OpenFile::failed(meta, size), Some(cause)),
        };
        open.number = number;
        open.outer_path = outer;
        if self.options.resume {
            self.offer(&mut open)?;
        }
        self.open = Some(open);
        if let Some(cause) = failed {
            self.fail_open(cause);
        }
        Ok(())
    }

    /// Tells the sender the digests of what is here already.
    fn offer(&mut self, open: &mut OpenFile) -> Result<(), Error> {
        loop {
            let (digests, last) = hash_left_over(open);
            self.say(&Feedback::Have { digests, last })?;
            if last {
                return Ok(());
            }
        }
    }

    fn opened_file(&mut self) -> Result<&mut OpenFile, Error> {
        self.open.as_mut().ok_or(NOT_OPEN)
    }

    fn announce(&mut self, units: u64) -> Result<(), Error> {
        let open = self.opened_file()?;
        if units == 0 || units > RUN_UNITS || units > open.units_left() {
            return Err(TOO_MANY_UNITS);
        }
        self.run = units;
        Ok(())
    }

    fn holes(&mut self, units: u64) -> Result<(), Error> {
        if units > self.opened_file()?.units_left() {
            return Err(TOO_MANY_UNITS);
        }
        for _ in 0..units {
            let open = self.opened_file()?;
            let len = open.next_unit_len() as u64;
            let outcome = open.take_hole();
            self.note_open(outcome, len);
            // Hashing zeros for a long time: notice if nobody waits for it any more.
            self.port.poll()?;
        }
        Ok(())
    }

    fn keep(&mut self, units: u64) -> Result<(), Error> {
        for _ in 0..units {
            let open = self.opened_file()?;
            let len = open.next_unit_len() as u64;
            let outcome = open.take_kept()?;
            self.note_open(outcome, len);
            self.port.poll()?;
        }
        Ok(())
    }

    fn patch(&mut self, pieces: &[Piece], pack: &mut PackReader<'_>) -> Result<(), Error> {
        let open = self.opened_file()?;
        let len = open.next_unit_len();
        check_pieces(pieces, len)?;
        let contents = pack.take_contents(pieces.iter().map(|piece| piece.len as usize).sum())?;
        let outcome = open.take_patch(pieces, contents);
        self.note_open(outcome, len as u64);
        Ok(())
    }

    fn close(&mut self, digest: &[u8; 32]) -> Result<(), Error> {
        let open = self.open.take().ok_or(NOT_OPEN)?;
        if open.units_left() > 0 {
            return Err(Error::Protocol("a file closed before its end"));
        }
        let outer = open.outer_path;
        let number = open.number;
        if !open.has_failed() {
            let (size, kept, holes) = (open.size, open.bytes_kept, open.bytes_in_holes);
            match open.close(digest, &self.options) {
                Ok(()) => {
                    self.count_file(size);
                    self.totals.bytes_kept += kept;
                    self.totals.bytes_in_holes += holes;
                }
                Err(cause) => {
                    self.fail(cause);
                    self.failed_open = Some(number);
                }
            }
        }
        self.path.truncate(outer);
        Ok(())
    }

    fn abandon(&mut self, cause: Cause) {
        if let Some(open) = self.open.take() {
            let outer = open.outer_path;
            if !open.has_failed() {
                open.discard();
                self.totals.failed += 1;
                self.observer.failed(&Failure::new(&self.path, cause));
            }
            self.path.truncate(outer);
        }
    }

    fn fail_open(&mut self, cause: Cause) {
        if let Some(open) = self.open.as_mut() {
            open.give_up();
            self.failed_open = Some(open.number);
        }
        self.fail(cause);
    }

    // Accounts and feedback.

    fn count_file(&mut self, bytes: u64) {
        self.totals.files += 1;
        self.totals.bytes += bytes;
    }

    /// Notes that what is at the current path failed here.
    fn fail(&mut self, cause: Cause) {
        let failure = Failure::new(&self.path, cause);
        self.totals.failed += 1;
        self.observer.failed(&failure);
        self.failures.push(failure);
    }

    /// Tells the sender of failures.
    fn report(&mut self) -> Result<(), Error> {
        let mut failures = std::mem::take(&mut self.failures);
        while !failures.is_empty() {
            let rest = failures.split_off(failures.len().min(FEEDBACK_FAILURES));
            self.say(&Feedback::Failed {
                failures,
                open: self.failed_open,
            })?;
            failures = rest;
        }
        Ok(())
    }

    fn say(&mut self, feedback: &Feedback) -> Result<(), Error> {
        let mut buffer = self.acquire()?;
        let room = CONTROL_BYTES.min(buffer.len());
        let len = encode_feedback(feedback, &mut buffer[..room])
            .ok_or(Error::Protocol("feedback longer than its limit"))?;
        self.port.submit(buffer, len)
    }

    fn acquire(&mut self) -> Result<Buffer, Error> {
        loop {
            if let Some(buffer) = self.port.take_free() {
                return Ok(buffer);
            }
            self.port.wait()?;
        }
    }
}

const NOT_OPEN: Error = Error::Protocol("a segment without an open file, or a file inside another");
const TOO_MANY_UNITS: Error = Error::Protocol("more units than the file has");

fn write_whole(part: Part, contents: &[u8], meta: &Meta, durable: bool) -> Result<(), Cause> {
    if let Err(cause) = part.write(contents, 0) {
        part.discard();
        return Err(cause);
    }
    let size = contents.len() as u64;
    part.commit(size, size, meta, durable)
}

/// Makes a directory, or takes the one that is there. Open to its owner only until it is complete.
fn make_directory(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Cause> {
    match fs::mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    match open_in(parent, name, DIRECTORY, Mode::empty()) {
        Ok(directory) => Ok(directory),
        // A link stands there: it is not followed.
        Err(Errno::LOOP | Errno::NOTDIR) => Err(Cause::NotADirectory),
        Err(errno) => Err(errno.into()),
    }
}

/// Pieces must lie in their unit, in order, without overlap.
fn check_pieces(pieces: &[Piece], unit_len: usize) -> Result<(), Error> {
    let mut end = 0;
    for piece in pieces {
        let (from, len) = (piece.offset as usize, piece.len as usize);
        if len == 0 || from < end || from + len > unit_len {
            return Err(Error::Protocol("pieces that do not fit their unit"));
        }
        end = from + len;
    }
    match pieces.is_empty() || unit_len == 0 {
        true => Err(Error::Protocol("a patch without pieces or unit")),
        false => Ok(()),
    }
}
