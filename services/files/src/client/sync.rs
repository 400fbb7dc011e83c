//! Synchronizes two trees: compares them, copies differences, removes extra files.
//!
//! When a connection breaks, the next one begins with a new comparison: it finds what was done, whether or not that was
//! confirmed, and costs two listings.

use super::change::Carried;
use super::told::Told;
use super::{Accepted, Client, PATIENCE, close};
use crate::backup::Backups;
use crate::digest::Digester;
use crate::error::{Cause, Error, Failure};
use crate::limits::RESUMED_STEPS;
use crate::links::{Links, identity};
use crate::message::{CopyOptions, Request, Totals};
use crate::observe::Observer;
use crate::opening::send;
use crate::persist::Copying;
use crate::pump::{self, CONTROL, DATA};
use crate::reached::Reached;
use crate::receive::{FileReceiver, Role, TopLevel};
use crate::send::FileSender;
use crate::sync::link_dest::{self, LinkDest};
use crate::sync::merge::{Merge, Outcome};
use crate::sync::options::{NotDeleted, SyncObserver, SyncOptions, SyncPaths, SyncTotals};
use crate::sync::pages::Pages;
use crate::sync::plan::{BATCH_BYTES, Notes};
use crate::sync::remove::{Removed, remove};
use crate::sync::sight::Listing;
use crate::sync::walk::Walker;
use crate::target::{Sources, resolve_local};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use zerolane::Connection;

impl Client {
    /// Makes the content of one directory equal to that of another: copies missing and different files and, if
    /// requested, then removes extra ones. The directories themselves keep their permissions and times. When a
    /// connection breaks, it compares again and does the rest.
    ///
    /// # Errors
    /// Any error that ends the whole sync: nothing is removed then, except by an earlier connection after everything
    /// was copied. Single failures are reported to `observer` and counted in [`SyncTotals::failed`].
    pub fn sync(
        &self,
        paths: &SyncPaths,
        options: &SyncOptions,
        observer: &dyn SyncObserver,
    ) -> Result<SyncTotals, Error> {
        let mut progress = Progress {
            offer: Digester::offer()?,
            first: None,
            connections: 0,
            kept: Totals::default(),
            deleted: 0,
            deleted_to_backups: 0,
        };
        let observer = Told::new(observer, options.modify_window);
        self.copying(&observer).run(|copying| {
            observer.begin();
            let attempt = Attempt {
                client: self,
                paths,
                options,
                observer: &observer,
                copying,
                progress: &mut progress,
                started: 0,
            };
            attempt.run()
        })
    }
}

/// A sync over all of its connections.
struct Progress {
    /// By its key the server recognizes the previous connection, and ends it.
    offer: Digester,
    /// The result of the first comparison.
    first: Option<SyncTotals>,
    connections: u64,
    /// Directories copied and bytes not sent on broken connections.
    kept: Totals,
    /// Removals that were confirmed, and how many of them were moved to backups.
    deleted: u64,
    deleted_to_backups: u64,
}

/// One comparison and its steps, until they are done or the connection breaks.
struct Attempt<'s, 'c, 'o> {
    client: &'s Client,
    paths: &'s SyncPaths,
    options: &'s SyncOptions,
    observer: &'s Told<'o>,
    copying: &'s mut Copying<'c>,
    progress: &'s mut Progress,
    /// Steps that the previous connection may have begun.
    started: u64,
}

impl Attempt<'_, '_, '_> {
    fn run(mut self) -> Result<SyncTotals, Error> {
        if let Some(backup) = &self.options.backup {
            backup.check().map_err(local)?;
        }
        for path in &self.options.link_dest {
            link_dest::from(self.destination(), path).map_err(|cause| local((path, cause)))?;
        }
        let Outcome {
            copy,
            remove,
            totals: found,
            source_is_empty,
            ..
        } = self.compare()?;
        self.observer.compared();
        let connections = self.progress.connections;
        self.progress.connections += 1;
        self.started = connections.min(1) * RESUMED_STEPS;
        let first = *self.progress.first.get_or_insert(found);
        let done = first.done_by(&found);
        let most_deleted = self.options.most_deleted();
        let mut totals = SyncTotals {
            failed: found.failed,
            deleted: first.deleted.min(most_deleted),
            over_limit: first.deleted.saturating_sub(most_deleted),
            ..first
        };
        if !self.options.dry_run {
            let files = done.copied.files + found.copied.files;
            let bytes = done.copied.bytes + found.copied.bytes;
            self.observer.counted(files, bytes);
            self.copying.reached.totals = done.copied;
            totals.copied = self.copy_planned(copy)?.plus(done.copied);
            totals.copied.vanished = totals.copied.vanished.min(totals.copied.failed);
            totals.failed += totals.copied.failed;
            // The results of previous, broken connections.
            totals.copied = totals.copied.plus(self.progress.kept);
            (totals.deleted, totals.deleted_to_backups) = (0, 0);
        }
        totals.not_deleted = match totals.failed - totals.copied.vanished {
            _ if remove.is_empty() => None,
            _ if source_is_empty && !self.options.allow_empty_source => {
                Some(NotDeleted::EmptySource)
            }
            0 => None,
            _ => Some(NotDeleted::Failures),
        };
        match totals.not_deleted {
            Some(_) => {
                (totals.deleted, totals.over_limit) = (0, 0);
                totals.deleted_to_backups = 0;
            }
            None if self.options.dry_run => {}
            None => {
                totals.deleted = done.deleted.max(self.progress.deleted);
                totals.deleted_to_backups =
                    (done.deleted_to_backups).max(self.progress.deleted_to_backups);
                self.remove_planned(remove, &mut totals)?;
            }
        }
        Ok(totals)
    }

    /// Requests a part of the sync, and agrees on the algorithm of its digests.
    fn ask(
        &mut self,
        request: impl FnOnce(Digester) -> Request,
    ) -> Result<(Connection, Digester), Error> {
        let request = request(self.progress.offer.clone());
        let copying = &mut *self.copying;
        let options = CopyOptions {
            durable: self.options.durable || matches!(self.paths, SyncPaths::Pull { .. }),
            ..CopyOptions::default()
        };
        let (connection, accepted): (_, Accepted) = self.client.ask(&request, copying, &options)?;
        let digester = self.progress.offer.settle(accepted.algorithm)?;
        Ok((connection, digester))
    }

    /// Ends a part of the sync. The next part has a key of its own, because it is not a repetition of this one.
    fn over<T>(&mut self, connection: Connection, outcome: Result<T, Error>) -> Result<T, Error> {
        close(connection);
        let outcome = outcome?;
        self.progress.offer = Digester::offer()?;
        Ok(outcome)
    }

    fn compare(&mut self) -> Result<Outcome, Error> {
        let (path, push) = match self.paths {
            SyncPaths::Push { destination, .. } => (destination, true),
            SyncPaths::Pull { source, .. } => (source, false),
        };
        let local = match self.paths {
            SyncPaths::Push { source, .. } => Some(open(source)?),
            SyncPaths::Pull { destination, .. } => match open(destination) {
                Err(Error::Local {
                    cause: Cause::NotFound,
                    ..
                }) => None,
                opened => Some(opened?),
            },
        };
        let (options, observer, stop) = (self.options, self.observer, &self.client.stop);
        let filter_files = options.filter.files();
        let (mut connection, digester) = self.ask(|digester| Request::Walk {
            path: path.clone(),
            may_be_missing: push,
            digests: options.checksum,
            copy_links: options.copy_links && !push,
            attributes: options.attributes,
            filter_files: filter_files.clone(),
            digester,
        })?;
        let backups_at = self.backups_at();
        let key = digester.clone();
        let target = match (self.paths, &local) {
            (SyncPaths::Push { source, .. }, Some(local)) => {
                let target = self.client.directory_within(path);
                let this = fstat(local).ok().as_ref().map(identity);
                if target.is_some() && target == this {
                    return self.over(connection, Err(Error::local(source, Cause::SameFile)));
                }
                target
            }
            _ => None,
        };
        let compared = pump::run(&mut connection, CONTROL, DATA, stop, |port| {
            // The server may have sent everything and closed while this end still compares.
            let heard = stop.clone();
            let mut there = Pages::new(port).with_filter_files(filter_files.len());
            let links = Links::local(options.copy_links && push);
            let mut here = Walker::new(local, digester)
                .with_links(links, Vec::new())
                .with_target(target)
                .with_attributes(options.attributes)
                .with_filter_files(filter_files)
                .heeding(Box::new(move || heard.check()));
            match push {
                true => Merge::new(&mut here, &mut there, options, observer, stop)?,
                false => Merge::new(&mut there, &mut here, options, observer, stop)?,
            }
            .with_backups_at(backups_at)
            .run()
        });
        close(connection);
        // Files to be linked are compared under the same key.
        let outcome = self.link(compared?, &key)?;
        self.progress.offer = Digester::offer()?;
        Ok(outcome)
    }

    /// The path of the backups below the destination, if they are there.
    fn backups_at(&self) -> Option<Vec<u8>> {
        self.options.backup.as_ref()?.below(self.destination())
    }

    fn destination(&self) -> &[u8] {
        match self.paths {
            SyncPaths::Push { destination, .. } => destination,
            SyncPaths::Pull { destination, .. } => destination.as_os_str().as_bytes(),
        }
    }

    /// The directories on this machine with files that need not be sent.
    fn link_directories(&self) -> Result<Vec<Option<OwnedFd>>, Error> {
        let paths = self.options.link_dest.iter();
        paths.map(|path| self.link_directory(path)).collect()
    }

    fn link_directory(&self, path: &[u8]) -> Result<Option<OwnedFd>, Error> {
        let named = |cause| local((path, cause));
        let from = link_dest::from(self.destination(), path).map_err(named)?;
        match open(Path::new(OsStr::from_bytes(&from.as_bytes()))) {
            Err(Error::Local {
                cause: Cause::NotFound,
                ..
            }) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Searches the link directories for files that would be copied.
    fn link(&mut self, mut outcome: Outcome, digester: &Digester) -> Result<Outcome, Error> {
        let (options, observer, stop) = (self.options, self.observer, &self.client.stop);
        let directories = options.link_dest.len();
        if outcome.wanted == 0 {
            return Ok(outcome);
        }
        for (index, path) in options.link_dest.iter().enumerate() {
            let apply = |listing: &mut dyn Listing, outcome: &mut Outcome| {
                let plan = std::mem::replace(&mut outcome.copy, Notes::new());
                let link_dest = LinkDest {
                    listing,
                    index: index as u8,
                    last: index + 1 == directories,
                    options,
                    observer,
                    stop,
                    totals: &mut outcome.totals,
                };
                outcome.copy = link_dest.applied(plan)?;
                Ok(())
            };
            if let SyncPaths::Pull { .. } = self.paths {
                let heard = stop.clone();
                let directory = self.link_directory(path)?;
                let mut listing = Walker::new(directory, digester.clone())
                    .with_attributes(options.attributes)
                    .heeding(Box::new(move || heard.check()));
                apply(&mut listing, &mut outcome)?;
                continue;
            }
            let from = link_dest::from(self.destination(), path);
            let from = from.map_err(|cause| local((path, cause)))?;
            let (mut connection, _) = self.ask(|digester| Request::Walk {
                path: from.as_bytes(),
                may_be_missing: true,
                digests: options.checksum,
                copy_links: false,
                attributes: options.attributes,
                filter_files: Vec::new(),
                digester,
            })?;
            let applied = pump::run(&mut connection, CONTROL, DATA, stop, |port| {
                apply(&mut Pages::new(port), &mut outcome)
            });
            close(connection);
            applied?;
        }
        Ok(outcome)
    }

    /// Makes backups of files in `base` on this machine.
    fn backups(&self, base: &OwnedFd) -> Result<Option<Backups>, Error> {
        let backup = self.options.backup.as_ref();
        // As durable as the files that replace them.
        let backups = backup.map(|it| Backups::local(base, (it, self.options.durable)));
        backups.transpose().map_err(local)
    }

    /// Copies the plan, batch by batch.
    fn copy_planned(&mut self, plan: Notes) -> Result<Totals, Error> {
        let options = CopyOptions {
            recursive: true,
            resume: self.options.resume,
            durable: self.options.durable,
            replace_read_only: true,
            count_first: false,
            delta: self.options.delta,
            in_place: self.options.in_place
                && self.options.backup.is_none()
                && self.options.link_dest.is_empty(),
            copy_links: self.options.copy_links,
            keep_links: true,
            attributes: self.options.attributes,
            allow_changing: self.options.allow_changing,
            no_permissions: self.options.no_permissions,
        };
        let mut totals = Totals::default();
        let mut batches = plan.batches()?;
        while let Some(batch) = batches.next(BATCH_BYTES)? {
            let mut reached = Reached {
                started: std::mem::take(&mut self.started),
                ..Reached::default()
            };
            let done = match self.paths {
                SyncPaths::Push {
                    source,
                    destination,
                } => self.push(source, destination, &options, &batch, &mut reached),
                SyncPaths::Pull {
                    source,
                    destination,
                } => self.pull(source, destination, &options, batch, &mut reached),
            };
            self.note(&reached, &totals, done.is_err());
            totals = totals.plus(done?);
        }
        Ok(totals)
    }

    /// Records a batch's progress. `broken`: the next comparison finds the files and links of this attempt, whose
    /// totals were `totals` before the batch, so only the rest is kept.
    fn note(&mut self, reached: &Reached, totals: &Totals, broken: bool) {
        let all = &mut self.copying.reached;
        all.position.steps += reached.position.steps;
        all.units = reached.units;
        if broken {
            let copied = totals.plus(reached.totals);
            self.progress.kept = self.progress.kept.plus(Totals {
                directories: copied.directories,
                bytes_kept: copied.bytes_kept,
                bytes_in_holes: copied.bytes_in_holes,
                ..Totals::default()
            });
        }
    }

    fn push(
        &mut self,
        source: &Path,
        destination: &[u8],
        options: &CopyOptions,
        batch: &[u8],
        reached: &mut Reached,
    ) -> Result<Totals, Error> {
        let base = open(source)?;
        let (observer, stop) = (self.observer, &self.client.stop);
        let (mut connection, digester) = self.ask(|digester| Request::Update {
            destination: destination.to_vec(),
            options: *options,
            backup: self.options.backup.clone(),
            link_dest: self.options.link_dest.clone(),
            digester,
        })?;
        let copied = pump::run(&mut connection, DATA, CONTROL, stop, |port| {
            FileSender::new(port, observer, *options, digester, reached)
                .with_links(Links::local(options.copy_links), Vec::new())
                .with_modes(&self.options.modes)
                .send_planned(base, batch)
        });
        self.over(connection, copied)
    }

    fn pull(
        &mut self,
        source: &[u8],
        destination: &Path,
        options: &CopyOptions,
        batch: Vec<u8>,
        reached: &mut Reached,
    ) -> Result<Totals, Error> {
        let contents = Sources {
            count: 1,
            contents: true,
            device: false,
        };
        let (base, _) = resolve_local(destination, contents)
            .map_err(|cause| Error::local(destination, cause))?;
        let backups = self.backups(&base)?;
        let link_dest = self.link_directories()?;
        let (observer, stop) = (self.observer, &self.client.stop);
        let started = reached.started;
        let (mut connection, digester) = self.ask(|digester| Request::Fetch {
            source: source.to_vec(),
            options: *options,
            digester,
            started,
        })?;
        send(&mut connection, batch.clone(), stop, PATIENCE)?;
        let copied = pump::run(&mut connection, CONTROL, DATA, stop, |port| {
            let to = (base, TopLevel::Any);
            let role = (Role::Asks, reached);
            FileReceiver::new(port, observer, *options, digester, to, role)
                .expecting(batch)
                .with_modes(&self.options.modes)
                .backing_up(backups)
                .linking_from(link_dest)
                .receive_all()
        });
        self.over(connection, copied)
    }

    fn remove_planned(&mut self, plan: Notes, totals: &mut SyncTotals) -> Result<(), Error> {
        let observer = self.observer;
        let mut removed_so_far = totals.deleted;
        let mut backed_up_so_far = totals.deleted_to_backups;
        let mut note = |carried: Carried, failures: &[Failure]| {
            removed_so_far += carried.done;
            backed_up_so_far += carried.backed_up;
            totals.failed += failures.len() as u64;
            failures.iter().for_each(|failure| observer.failed(failure));
        };
        let mut outcome = Ok(());
        let left = self.options.most_deleted().saturating_sub(totals.deleted);
        let mut batches = plan.batches()?.with_most_removals(left);
        while let (Ok(()), Some(batch)) = (&outcome, batches.next(BATCH_BYTES)?) {
            outcome = match self.paths {
                SyncPaths::Push { destination, .. } => {
                    self.remove_there(destination, batch, &mut note)
                }
                SyncPaths::Pull { destination, .. } => {
                    let base = open(destination)?;
                    let backups = self.backups(&base)?;
                    remove(base, &batch, backups, &self.client.stop, |outcome| {
                        let (done, backed_up, failure) = match outcome {
                            Ok(Removed::Gone) => (1, 0, None),
                            Ok(Removed::BackedUp) => (1, 1, None),
                            Err(failure) => (0, 0, Some(failure)),
                        };
                        note(Carried { done, backed_up }, failure.as_slice());
                        Ok(())
                    })
                }
            };
        }
        totals.deleted = removed_so_far;
        totals.deleted_to_backups = backed_up_so_far;
        self.progress.deleted = removed_so_far;
        self.progress.deleted_to_backups = backed_up_so_far;
        self.copying.reached.position.steps += removed_so_far;
        outcome
    }

    fn remove_there(
        &mut self,
        path: &[u8],
        batch: Vec<u8>,
        note: &mut dyn FnMut(Carried, &[Failure]),
    ) -> Result<(), Error> {
        let request = Request::Remove {
            path: path.to_vec(),
            backup: self.options.backup.clone(),
            digester: self.progress.offer.clone(),
        };
        let timeout = self
            .copying
            .connect_timeout(self.client.transport.times.connect);
        self.client
            .carry_out(&request, timeout, Some(batch), note)
            .map_err(|error| match error {
                // The next comparison finds what was done.
                Error::Unanswered { source } => *source,
                error => error,
            })?;
        self.progress.offer = Digester::offer()?;
        Ok(())
    }
}

/// An error about a path that the user named.
fn local((path, cause): (&[u8], Cause)) -> Error {
    let path = path.to_vec();
    Error::Local { path, cause }
}

/// Opens a directory that the user named, following all links.
fn open(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).map_err(|errno| Error::local(path, errno))
}
