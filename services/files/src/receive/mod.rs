//! Writes the files that a sender sends: takes packs and units apart, puts everything in its place.
//!
//! Straight-line code on a thread of its own. Messages of the peer are checked here against the only order that the
//! protocol allows; a violation ends the copy. An error of the file system fails one file, is reported, and the copy
//! continues. `feedback`, `hard_links`, `kept`, `open`, `records`, `replace`, `same`, `settle` and `tree` hold parts of
//! [`FileReceiver`]'s own code, so they and this file name each other.

mod expected;
mod feedback;
mod hard_links;
mod kept;
mod offered;
mod open;
mod open_file;
mod output;
mod records;
mod replace;
mod same;
mod settle;
mod stream;
mod top_level;
mod tree;

pub(crate) use hard_links::Written;
pub(crate) use offered::Offered;
pub(crate) use output::StreamReceiver;
pub(crate) use top_level::TopLevel;

use crate::backup::Backups;
use crate::digest::{Digest, Digester};
use crate::error::{Cause, Error, Failure};
use crate::extended::Extended;
use crate::links::identity;
use crate::message::{CopyOptions, Feedback, Meta, Totals};
use crate::modes::Modes;
use crate::observe::Observer;
use crate::part::Part;
use crate::port::Port;
use crate::position::{Position, Step};
use crate::reached::Reached;
use crate::share::Share;
use expected::Expected;
use open::NOT_OPEN;
use open_file::OpenFile;
use rustix::fd::OwnedFd;
use rustix::fs::fstat;
use std::sync::Arc;
use stream::OpenStream;
use tree::Level;

/// Receives files through a [`Port`].
pub(crate) struct FileReceiver<'a> {
    port: Port,
    observer: &'a dyn Observer,
    options: CopyOptions,
    digester: Digester,
    base: Arc<OwnedFd>,
    top: TopLevel,
    top_entries: u64,
    levels: Vec<Level>,
    open: Option<OpenFile>,
    stream: Option<OpenStream>,
    opened: u64,
    /// Announced units that have not arrived.
    run: u64,
    totals: Totals,
    failures: Vec<Failure>,
    /// Attributes that could not be kept: the first of each kind, and how many of these were reported to the sender.
    not_kept: Vec<Failure>,
    told_not_kept: usize,
    /// Extended attributes of the next entry, and of the current one.
    coming: Extended,
    extended: Extended,
    /// Whether to set only attributes that any user may have.
    common_only: bool,
    /// Whether the next entry, and the current one, has other names.
    coming_shared: bool,
    is_shared: bool,
    written: Written,
    /// Number of the last opened file that failed here.
    failed_open: Option<u64>,
    path: Vec<u8>,
    finished: bool,
    /// Whether existing entries may be replaced, and their metadata changed, as in a sync.
    may_replace: bool,
    /// The requested steps, if the copy follows a plan.
    expected: Option<Expected>,
    position: Position,
    /// The position from which the sender was asked to continue, if it was.
    asked: Option<Position>,
    /// Steps last reported to the sender as settled; `None`: it needs no reports.
    told: Option<u64>,
    /// Units copied from old files.
    units_copied: u64,
    /// Name of the open file, as at the sender.
    open_name: Vec<u8>,
    share: Share,
    modes: Modes,
    backups: Option<Arc<Backups>>,
    /// Link directories, with files that need not be sent; `None`: it does not exist.
    link_dest: Vec<Option<Arc<OwnedFd>>>,
    reached: &'a mut Reached,
}

/// The receiver's part in continuing a copy after a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It asked the sender to continue at a position.
    Asks,
    /// It reports to the sender, which continues after a break, what is settled.
    Tells,
}

impl<'a> FileReceiver<'a> {
    /// Receives into `base`, and keeps `reached` up to date.
    pub(crate) fn new(
        port: Port,
        observer: &'a dyn Observer,
        options: CopyOptions,
        digester: Digester,
        (base, top): (OwnedFd, TopLevel),
        (role, reached): (Role, &'a mut Reached),
    ) -> FileReceiver<'a> {
        FileReceiver {
            port,
            observer,
            options,
            digester,
            base: Arc::new(base),
            top,
            top_entries: 0,
            levels: Vec::new(),
            open: None,
            stream: None,
            opened: 0,
            run: 0,
            totals: Totals::default(),
            failures: Vec::new(),
            not_kept: Vec::new(),
            told_not_kept: 0,
            coming: Extended::default(),
            extended: Extended::default(),
            common_only: false,
            coming_shared: false,
            is_shared: false,
            written: Written::default(),
            failed_open: None,
            path: Vec::new(),
            finished: false,
            may_replace: false,
            expected: None,
            position: Position::default(),
            asked: (role == Role::Asks).then_some(reached.position),
            told: (role == Role::Tells).then_some(0),
            units_copied: 0,
            open_name: Vec::new(),
            share: Share::Whole,
            modes: Modes::default(),
            backups: None,
            link_dest: Vec::new(),
            reached,
        }
    }

    /// For a client that is not this process's user: with `common_only`, it may set only the extended attributes that
    /// any user may have.
    pub(crate) fn for_client(mut self, common_only: bool) -> FileReceiver<'a> {
        self.common_only = common_only;
        self
    }

    /// Changes permissions by `modes`.
    pub(crate) fn with_modes(mut self, modes: &Modes) -> FileReceiver<'a> {
        self.modes = modes.clone();
        self
    }

    /// Makes backups of replaced files.
    pub(crate) fn backing_up(mut self, backups: Option<Backups>) -> FileReceiver<'a> {
        self.backups = backups.map(Arc::new);
        self
    }

    /// Links files that the sender declares to be in these directories.
    pub(crate) fn linking_from(mut self, link_dest: Vec<Option<OwnedFd>>) -> FileReceiver<'a> {
        let link_dest = link_dest.into_iter();
        self.link_dest = link_dest.map(|it| it.map(Arc::new)).collect();
        self
    }

    /// Receives a share of a copy over several connections.
    pub(crate) fn of_share(mut self, share: Share) -> FileReceiver<'a> {
        self.share = share;
        self
    }

    /// Adds files with several names to `written`, which all connections of the copy share.
    pub(crate) fn remembering(mut self, written: Written) -> FileReceiver<'a> {
        self.written = written;
        self
    }

    /// Lets new entries replace existing ones of any type, for a sync.
    pub(crate) fn replacing(mut self) -> FileReceiver<'a> {
        self.may_replace = true;
        self
    }

    /// Accepts only the steps of `plan`, for a sync that requested them.
    pub(crate) fn expecting(mut self, plan: Vec<u8>) -> FileReceiver<'a> {
        self.expected = Some(Expected::new(plan));
        self.replacing()
    }

    /// Receives until the sender has finished; returns the totals.
    pub(crate) fn receive_all(mut self) -> Result<Totals, Error> {
        while !self.finished {
            let filled = self.next_transfer()?;
            let taken = match self.run {
                0 => self.take_pack(filled.bytes()),
                _ => self.take_unit(filled.bytes()),
            };
            self.port.release(filled.buffer);
            taken?;
            self.tell_settled()?;
        }
        self.count_backups();
        self.report()?;
        self.say(&Feedback::Done(self.totals))?;
        Ok(self.totals)
    }

    fn next_transfer(&mut self) -> Result<crate::port::Filled, Error> {
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
        self.catch_up()?;
        let open = self.open.as_mut().ok_or(NOT_OPEN)?;
        let taken = open.take_unit(bytes)?;
        self.run -= 1;
        self.note_open(taken, bytes.len() as u64);
        Ok(())
    }

    /// Records the result of a segment of the open file.
    fn note_open(&mut self, outcome: Result<(), Cause>, bytes: u64) {
        self.observer.advanced(bytes);
        self.reached.units += 1;
        if let Err(cause) = outcome {
            self.fail_open(cause);
        }
    }

    fn file(
        &mut self,
        name: &[u8],
        meta: &Meta,
        contents: &[u8],
        digest: &Digest,
    ) -> Result<(), Error> {
        let called = name;
        let (directory, name) = self.place(called)?;
        let (named, wanted, shared) = (self.is_named(), self.wanted(), self.is_shared);
        let backups = self.backups_here();
        let written = directory.and_then(|directory| {
            if self.digester.digest(contents) != *digest {
                return Err(Cause::DigestMismatch);
            }
            let size = contents.len() as u64;
            let in_place = Part::in_place(&directory, &name, (size, *meta), named, &self.options)?;
            let mut part = match in_place {
                Some(part) => part,
                None => Part::brief(&directory, &name)?,
            };
            if let Err(cause) = part.write(contents, 0) {
                part.give_up(&cause);
                return Err(cause);
            }
            let file = shared.then(|| fstat(part.file())).transpose()?;
            let part = part.wanting(wanted).backing_up(backups);
            let not_kept = part.commit(size, meta, &self.options)?;
            Ok((not_kept, file.as_ref().map(identity)))
        });
        if let Ok((_, Some(file))) = written {
            self.written.add(file)?;
        }
        self.at(&name, |this| {
            this.observer
                .file_started(&this.path, contents.len() as u64);
            this.observer.advanced(contents.len() as u64);
            match written {
                Ok((not_kept, _)) => {
                    this.note_not_kept(not_kept);
                    this.count_file(contents.len() as u64);
                }
                Err(cause) => this.fail(cause),
            }
        });
        self.settle(Step::Entry, called);
        Ok(())
    }

    fn unreadable(&mut self, name: &[u8], cause: Cause) {
        self.at(name, |this| this.fail_there(cause));
        self.settle(Step::Entry, name);
    }

    fn skipped(&mut self, name: &[u8]) {
        self.totals.skipped += 1;
        self.at(name, |this| this.observer.skipped(&this.path));
        self.settle(Step::Entry, name);
    }

    /// Records that the entry at the current path failed at the sender.
    fn fail_there(&mut self, cause: Cause) {
        self.totals.failed += 1;
        self.totals.vanished += u64::from(cause == Cause::Vanished);
        self.observer
            .failed_remotely(&Failure::new(&self.path, cause));
    }
}
