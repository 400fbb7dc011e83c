//! Reads and sends files: walks the sources, packs small files, streams large ones.
//!
//! Straight-line code on a thread of its own; it blocks on its [`Port`] when everything it may send is in flight.
//! `extended`, `filtered`, `hard_links`, `packing`, `planned`, `segments` and `skipping` hold parts of [`FileSender`]'s own
//! code, so they and this file name each other.

mod count;
mod extended;
mod filtered;
mod hard_links;
mod lengthless;
mod packing;
mod planned;
mod segments;
mod skipping;
mod start;
mod stream;
mod target;
mod trouble;

pub(crate) use count::count;
pub(crate) use start::Start;
pub(crate) use stream::Source;
pub(crate) use target::Target;

use crate::digest::{Digest, Digester};
use crate::error::{Cause, Error, Failure};
use crate::extended::Extended;
use crate::filter::Scope;
use crate::hard_links::FirstNames;
use crate::in_place::is_unfinished;
use crate::limits::{INLINE_BYTES, PATH_BYTES, TREE_DEPTH};
use crate::links::{Identity, Links, SourceLinks, identity, joined};
use crate::message::{CopyOptions, EntryKind, Meta, Record, Totals};
use crate::modes::Modes;
use crate::observe::Observer;
use crate::pack::PackWriter;
use crate::port::{Buffer, Port};
use crate::position::{Position, Step};
use crate::positioned::read_full;
use crate::reached::Reached;
use crate::root::{DIRECTORY, READ_FILE, entry_kind, kind_of, meta_with, stat_at};
use crate::share::Share;
use packing::Pending;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat, fstat, readlinkat, statat};
use segments::changed;
use skipping::Way;
use trouble::Trouble;

/// Sends files through a [`Port`].
pub(crate) struct FileSender<'a> {
    port: Port,
    observer: &'a dyn Observer,
    options: CopyOptions,
    digester: Digester,
    pack: PackWriter,
    /// The pack's buffer, taken when its first record is added.
    pack_buffer: Option<Buffer>,
    /// Hole or Keep units not yet recorded.
    pending: Option<Pending>,
    /// Whether the receiver may have an old version of the next file.
    may_be_there: bool,
    /// Files opened so far.
    opened: u64,
    /// The last opened file that the receiver refused.
    refused: Option<u64>,
    /// Digests of the open file's units at the receiver, and whether it has sent all of them.
    have: Vec<Digest>,
    have_all: bool,
    done: Option<Totals>,
    /// The position of the walk.
    position: Position,
    way: Way,
    /// Steps that an earlier connection may have done: for their files the receiver sends digests of its content.
    started: u64,
    /// Totals of earlier connections.
    before: Totals,
    reached: &'a mut Reached,
    /// Path of the current entry, for reports.
    path: Vec<u8>,
    share: Share,
    filter: Option<Scope<'a>>,
    modes: Modes,
    links: SourceLinks,
    /// The path of the source, from the served directory.
    above: Vec<u8>,
    /// The open directories.
    inside: Vec<Identity>,
    /// The target, if it is on this machine.
    target: Option<Target>,
    /// Files with several names, if hard links are kept, and whether they were sent on an earlier connection.
    first_names: FirstNames<bool>,
}

impl<'a> FileSender<'a> {
    /// Continues at `reached`, and keeps it up to date.
    pub(crate) fn new(
        port: Port,
        observer: &'a dyn Observer,
        options: CopyOptions,
        digester: Digester,
        reached: &'a mut Reached,
    ) -> FileSender<'a> {
        FileSender {
            port,
            observer,
            options,
            digester,
            pack: PackWriter::default(),
            pack_buffer: None,
            pending: None,
            may_be_there: true,
            opened: 0,
            refused: None,
            have: Vec::new(),
            have_all: false,
            done: None,
            position: Position::default(),
            way: Way::to(reached.position),
            started: reached.started,
            before: reached.totals,
            reached,
            path: Vec::new(),
            share: Share::Whole,
            filter: None,
            modes: Modes::default(),
            links: SourceLinks::default(),
            above: Vec::new(),
            inside: Vec::new(),
            target: None,
            first_names: FirstNames::default(),
        }
    }

    /// Treats links this way. `above`: the path of the source, from the served directory.
    pub(crate) fn with_links(
        mut self,
        links: impl Into<SourceLinks>,
        above: Vec<u8>,
    ) -> FileSender<'a> {
        self.links = links.into();
        self.above = above;
        self
    }

    /// For a target on this machine: sends no file to itself, and no directory into itself.
    pub(crate) fn with_target(mut self, target: Option<Target>) -> FileSender<'a> {
        self.target = target;
        self
    }

    /// Changes permissions by `modes`.
    pub(crate) fn with_modes(mut self, modes: &Modes) -> FileSender<'a> {
        self.modes = modes.clone();
        self
    }

    /// Sends only this share.
    pub(crate) fn of_share(mut self, share: Share) -> FileSender<'a> {
        self.share = share;
        self
    }

    /// Sends everything and waits until the receiver has written it.
    pub(crate) fn send_all(mut self, starts: &[Start]) -> Result<Totals, Error> {
        if self.options.count_first {
            let check = || self.port.poll();
            let filter = self.filter.as_ref().map(Scope::filter);
            let (files, bytes) = count(starts, &self.options, (&self.links, filter), check)?;
            self.observer.counted(files, bytes);
            self.add(&Record::Total { files, bytes }, 0)?;
        }
        self.walk(starts)?;
        self.finish()
    }

    /// Sends the number of files and bytes to come.
    pub(crate) fn counting(mut self, files: u64, bytes: u64) -> Result<FileSender<'a>, Error> {
        self.add(&Record::Total { files, bytes }, 0)?;
        Ok(self)
    }

    /// Declares the end of the copy, and waits for the receiver's results.
    fn finish(mut self) -> Result<Totals, Error> {
        self.add(&Record::Finish, 0)?;
        self.flush()?;
        loop {
            self.take_feedback()?;
            if let Some(totals) = self.done {
                return Ok(self.before.plus(totals));
            }
            self.port.wait()?;
        }
    }

    fn start(&mut self, start: &Start) -> Result<(), Error> {
        match start {
            Start::Named { directory, name } => {
                self.entry(directory.as_fd(), name, None, (TREE_DEPTH, Cause::NotFound))
            }
            Start::Contents(directory) => {
                let top = fstat(directory).ok();
                if let (Some(target), Some(top)) = (&self.target, &top)
                    && target.is_in(top)
                {
                    return self.unreadable_at(b".", b".", Cause::SameFile);
                }
                self.inside.extend(top.as_ref().map(identity));
                self.contents(directory, TREE_DEPTH)?;
                self.inside.clear();
                Ok(())
            }
            Start::Below { root, path } => {
                let start = Start::open(root, path, self.options.recursive);
                self.above = start.above(path);
                self.start(&start)
            }
            Start::Missing { path, cause } => {
                let name = path.rsplit(|&b| b == b'/').next().unwrap_or(b"");
                self.unreadable_at(&name[..name.len().min(PATH_BYTES)], path, cause.clone())
            }
        }
    }

    /// Sends one entry of `directory`, of a kind that may be unknown. `missing`: the cause to report if it does not
    /// exist.
    fn entry(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        kind: Option<EntryKind>,
        (depth, missing): (usize, Cause),
    ) -> Result<(), Error> {
        if self.way == Way::Astray {
            return Ok(());
        }
        let outer = self.path.len();
        if outer > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        let sent = match self.send_entry(directory, name, kind, depth) {
            Err(Trouble::Copy(error)) => Err(error),
            Err(Trouble::File(Cause::SpecialSource)) => self.special(name),
            Err(Trouble::File(Cause::NotFound)) => self.unreadable(name, missing),
            Err(Trouble::File(cause)) => self.unreadable(name, cause),
            Err(Trouble::Refused) | Ok(()) => Ok(()),
        };
        self.path.truncate(outer);
        sent
    }

    /// A device, socket or FIFO: a failure if it was named, otherwise skipped.
    fn special(&mut self, name: &[u8]) -> Result<(), Error> {
        if self.inside.is_empty() {
            return self.unreadable(name, Cause::SpecialSource);
        }
        self.observer.skipped(&self.path);
        self.add(&Record::Skipped { name }, 0)?;
        self.pass(Step::Entry, name)
    }

    fn unreadable(&mut self, name: &[u8], cause: Cause) -> Result<(), Error> {
        let path = std::mem::take(&mut self.path);
        let told = self.unreadable_at(name, &path, cause);
        self.path = path;
        told
    }

    /// Reports it in every share: an entry that cannot be examined or opened may be a directory with files of this
    /// share, and one share may meet it while others do not.
    fn unreadable_at(&mut self, name: &[u8], path: &[u8], cause: Cause) -> Result<(), Error> {
        if self.way == Way::Sending {
            self.observer.failed(&Failure::new(path, cause.clone()));
            self.add(&Record::Unreadable { name, cause }, 0)?;
        }
        self.pass(Step::Entry, name)
    }

    fn send_entry(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        kind: Option<EntryKind>,
        depth: usize,
    ) -> Result<(), Trouble> {
        let kind = match kind {
            Some(kind) if kind != EntryKind::Link || !self.links().are_followed() => kind,
            _ => match self.look(directory, name) {
                Ok(stat) => kind_of(&stat),
                Err(_) if self.is_excluded(None) => return Ok(()),
                Err(cause) => return Err(cause.into()),
            },
        };
        if self.is_excluded(Some(kind == EntryKind::Directory)) {
            return Ok(());
        }
        if self.is_target(directory, name, kind) {
            return Err(Cause::SameFile.into());
        }
        match kind {
            EntryKind::Directory => return self.directory(directory, name, depth),
            _ if !self.share.has(&self.path) => return Ok(()),
            EntryKind::File if self.way != Way::Sending => self.pass_file(directory, name),
            _ if self.way != Way::Sending => {}
            EntryKind::File => self.file(directory, name, name)?,
            EntryKind::Link => self.link(directory, name, name)?,
            EntryKind::Special => return Err(Cause::SpecialSource.into()),
        }
        Ok(self.pass(Step::Entry, name)?)
    }

    fn directory(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        depth: usize,
    ) -> Result<(), Trouble> {
        if !self.options.recursive {
            return Err(Cause::NotRecursive.into());
        }
        let depth = depth.checked_sub(1).ok_or(Cause::TooDeep)?;
        let directory = self.open_source(parent, name, DIRECTORY)?;
        let stat = fstat(&directory)?;
        let this = identity(&stat);
        if self.links().are_followed() && self.inside.contains(&this) {
            return Err(Cause::LinkLoop.into());
        }
        if self.target.as_ref().is_some_and(|it| it.is_in(&stat)) {
            return Err(Cause::IntoItself.into());
        }
        let extended = match self.share.settles_directories() {
            true => self.extended(directory.as_fd())?,
            false => Extended::default(),
        };
        self.enter(name, self.meta(&stat), extended)?;
        self.inside.push(this);
        self.contents(&directory, depth)?;
        self.inside.pop();
        Ok(self.leave()?)
    }

    /// Whether the entry at the current path would replace itself, or its own target. A file inside a tree may: the new
    /// file replaces one of its hard links, unless it is written in place.
    fn is_target(&self, directory: BorrowedFd<'_>, name: &[u8], kind: EntryKind) -> bool {
        let Some(target) = &self.target else {
            return false;
        };
        if !self.inside.is_empty() && !self.options.in_place && kind != EntryKind::Link {
            return false;
        }
        let Some(there) = target.at(&self.path) else {
            return false;
        };
        [AtFlags::SYMLINK_NOFOLLOW, AtFlags::empty()]
            .into_iter()
            .any(|flags| statat(directory, name, flags).is_ok_and(|it| identity(&it) == there))
    }

    /// The treatment of a link at the current path.
    fn links(&self) -> &Links {
        self.links.inside(&self.inside)
    }

    /// The status of the entry at the current path, called `name` in `directory`; of its target, if links are followed.
    fn look(&self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<Stat, Cause> {
        let path = || joined(&self.above, &self.path);
        self.links().stat(directory, name, path)
    }

    /// The metadata to send.
    fn meta(&self, stat: &Stat) -> Meta {
        let directory = kind_of(stat) == EntryKind::Directory;
        let meta = meta_with(stat, self.options.attributes);
        Meta {
            mode: self.modes.applied(meta.mode, directory),
            ..meta
        }
    }

    /// Opens the entry, or its target if links are followed.
    fn open_source(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        flags: OFlags,
    ) -> Result<OwnedFd, Cause> {
        let path = || joined(&self.above, &self.path);
        self.links().open(directory, name, path, flags)
    }

    fn contents(&mut self, directory: &OwnedFd, depth: usize) -> Result<(), Error> {
        let known = self.enter_filters(directory)?;
        let sent = match known {
            true => self.entries(directory, depth),
            false => Ok(()),
        };
        self.leave_filters();
        sent
    }

    fn entries(&mut self, directory: &OwnedFd, depth: usize) -> Result<(), Error> {
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
            self.entry(directory.as_fd(), name, kind, (depth, Cause::Vanished))?;
        }
        Ok(())
    }

    /// Sends a symbolic link, named `sent_as` at the receiver.
    fn link(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        sent_as: &[u8],
    ) -> Result<(), Trouble> {
        let meta = self.meta(&stat_at(directory, name)?);
        let target = readlinkat(directory, name, Vec::new())?;
        Ok(self.add(
            &Record::Link {
                name: sent_as,
                target: target.as_bytes(),
                meta,
            },
            0,
        )?)
    }

    /// Sends a file, named `sent_as` at the receiver.
    fn file(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        sent_as: &[u8],
    ) -> Result<(), Trouble> {
        let file = self.open_source(directory, name, READ_FILE)?;
        let stat = fstat(&file)?;
        if kind_of(&stat) != EntryKind::File {
            return Err(Cause::SpecialSource.into());
        }
        if is_unfinished(file.as_fd()) {
            return Err(Cause::Unfinished.into());
        }
        if self.as_another_name(sent_as, &stat)? {
            return Ok(());
        }
        let extended = self.extended(file.as_fd())?;
        let (file, stat) = lengthless::read_to_end(file.as_fd(), &stat)?.unwrap_or((file, stat));
        self.add_extended(&extended)?;
        let size = stat.st_size as u64;
        self.observer.file_started(&self.path, size);
        let sparse = (stat.st_blocks as u64) * 512 < size;
        if size <= INLINE_BYTES as u64 && !sparse {
            self.inline_file(file.as_fd(), sent_as, &stat)
        } else {
            self.open_file(file.as_fd(), sent_as, &stat)
        }
    }

    /// Puts a whole file into the pack.
    fn inline_file(
        &mut self,
        file: BorrowedFd<'_>,
        name: &[u8],
        stat: &Stat,
    ) -> Result<(), Trouble> {
        let size = stat.st_size as usize;
        // Reading one byte more than the file's length shows whether it grew.
        self.make_room(size + 1)?;
        let at = self.pack.contents_at();
        let mut hasher = self.digester.hasher();
        let allowed = self.options.allow_changing;
        let (_, buffer) = self.pack_buffer()?;
        let room = &mut buffer[at..at + size + 1];
        let read = read_full(file, room, 0)?;
        if !allowed && (read != size || changed(file, stat)?) {
            return Err(Cause::SourceChanged.into());
        }
        // The next copy takes the bytes by which it grew.
        let size = read.min(size);
        hasher.update(&room[..size]);
        let digest = hasher.finish();
        self.add_fitting(
            &Record::File {
                name,
                meta: self.meta(stat),
                size: size as u32,
                digest,
            },
            size,
        )?;
        self.observer.advanced(size as u64);
        Ok(())
    }
}
