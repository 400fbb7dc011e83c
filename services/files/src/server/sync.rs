//! Serves the parts of a sync: lists, receives, sends and removes as the client chooses.

use super::session::Session;
use super::tally::Tally;
use super::turns::Turn;
use crate::backup::Backups;
use crate::digest::Digester;
use crate::error::{Cause, Error, Refusal};
use crate::limits::{FILTER_FILES, LINK_DIRECTORIES, PLAN_BYTES, REQUEST_SECONDS};
use crate::message::{Attributes, Backup, CopyOptions, Landing, Totals};
use crate::name::{RelativePath, check_name};
use crate::opening::receive;
use crate::pump::{CONTROL, DATA};
use crate::reached::Reached;
use crate::receive::{FileReceiver, Role, TopLevel};
use crate::send::FileSender;
use crate::sync::pages;
use crate::sync::remove::remove;
use crate::sync::walk::Walker;
use crate::target::{Sources, resolve_below};
use rustix::fd::OwnedFd;
use std::time::Duration;
use zerolane::Connection;

/// The sources of an update: the contents of one directory, which is made if necessary.
const CONTENTS: Sources = Sources {
    count: 1,
    contents: true,
    device: false,
};

impl Session<'_> {
    /// Sends the listing of a tree.
    pub(super) fn walk(
        &self,
        connection: &mut Connection,
        path: &[u8],
        (what, filter_files): ((bool, bool, bool, Attributes), Vec<Vec<u8>>),
        (digester, turn): (Digester, &Turn<'_>),
    ) -> Result<(), Error> {
        let (may_be_missing, digests, copy_links, attributes) = what;
        let can_be = filter_files.iter().all(|name| check_name(name).is_ok());
        if !can_be || filter_files.len() > FILTER_FILES {
            return self.refuse(connection, Refusal::Malformed);
        }
        let directory = match self.directory(path) {
            Ok(directory) => Some(directory),
            Err(Cause::NotFound) if may_be_missing => None,
            Err(cause) => return self.refuse_path(connection, path, cause),
        };
        let (links, above) = match self.links_below(path, copy_links) {
            Ok(links) => links,
            Err(cause) => return self.refuse_path(connection, path, cause),
        };
        let replies = self.accept(connection, &digester, Landing::Into)?;
        let walker = Walker::new(directory, digester)
            .with_digests(digests)
            .with_links(links, above)
            .with_attributes(attributes)
            .with_filter_files(filter_files);
        self.pump(connection, replies, (DATA, CONTROL), turn.stop(), |port| {
            let walker = walker.heeding(port.check());
            pages::send(port, walker, turn.stop())
        })
    }

    /// Receives the files that the client chose to send.
    pub(super) fn update(
        &self,
        connection: &mut Connection,
        (destination, backup, link_dest): (&[u8], Option<&Backup>, &[Vec<u8>]),
        options: CopyOptions,
        (digester, turn): (Digester, &Turn<'_>),
    ) -> Result<Totals, Error> {
        self.check_writable(connection)?;
        let of_old_files = backup.is_some() || !link_dest.is_empty();
        if options.in_place && of_old_files || link_dest.len() > LINK_DIRECTORIES {
            return self.refuse(connection, Refusal::Malformed);
        }
        let target = RelativePath::parse(destination)
            .and_then(|path| resolve_below(self.root()?, &path, CONTENTS, Landing::AsCp));
        let base = match target {
            Ok((base, _)) => base,
            Err(cause) => return self.refuse_path(connection, destination, cause),
        };
        let backups = match self.backups(destination, &base, (backup, options.durable)) {
            Ok(backups) => backups,
            Err((path, cause)) => return self.refuse_path(connection, path, cause),
        };
        let mut directories = Vec::new();
        for path in link_dest {
            match self.link_directory(destination, path) {
                Ok(directory) => directories.push(Some(directory)),
                Err(Cause::NotFound) => directories.push(None),
                Err(cause) => return self.refuse_path(connection, path, cause),
            }
        }
        let replies = self.accept(connection, &digester, Landing::Into)?;
        let mut reached = Reached::default();
        self.pump(connection, replies, (CONTROL, DATA), turn.stop(), |port| {
            let to = (base, TopLevel::Any);
            let role = (Role::Tells, &mut reached);
            FileReceiver::new(port, self, options, digester, to, role)
                .for_client(self.common_only())
                .backing_up(backups)
                .linking_from(directories)
                .replacing()
                .receive_all()
        })
    }

    /// Sends the files that the client chose.
    pub(super) fn fetch(
        &self,
        connection: &mut Connection,
        source: &[u8],
        options: CopyOptions,
        (digester, turn): (Digester, &Turn<'_>),
        started: u64,
    ) -> Result<Totals, Error> {
        let opened = self.directory(source);
        let links = self.links_below(source, options.copy_links);
        let (base, (links, above)) = match opened.and_then(|base| Ok((base, links?))) {
            Ok(opened) => opened,
            Err(cause) => return self.refuse_path(connection, source, cause),
        };
        let replies = self.accept(connection, &digester, Landing::Into)?;
        self.sent(connection, &replies)?;
        let plan = self.hear_plan(connection)?;
        let mut reached = Reached {
            started,
            ..Reached::default()
        };
        self.pump(
            connection,
            Vec::new(),
            (DATA, CONTROL),
            turn.stop(),
            |port| {
                FileSender::new(port, self, options, digester, &mut reached)
                    .with_links(links, above)
                    .send_planned(base, &plan)
            },
        )
    }

    /// Removes the files that the client chose.
    pub(super) fn remove(
        &self,
        connection: &mut Connection,
        (path, backup): (&[u8], Option<&Backup>),
        turn: &Turn<'_>,
    ) -> Result<(), Error> {
        self.check_writable(connection)?;
        let base = match self.directory(path) {
            Ok(base) => base,
            Err(cause) => return self.refuse_path(connection, path, cause),
        };
        let backups = match self.backups(path, &base, (backup, false)) {
            Ok(backups) => backups,
            Err((path, cause)) => return self.refuse_path(connection, path, cause),
        };
        self.begin(connection)?;
        let plan = self.hear_plan(connection)?;
        let mut tally = Tally::new(self, connection);
        remove(base, &plan, backups, turn.stop(), |outcome| {
            tally.tell_removed(outcome)
        })?;
        tally.finish()
    }

    fn directory(&self, path: &[u8]) -> Result<OwnedFd, Cause> {
        self.root()?.open_directory(&RelativePath::parse(path)?)
    }

    fn link_directory(&self, destination: &[u8], path: &[u8]) -> Result<OwnedFd, Cause> {
        let (destination, path) = (
            RelativePath::parse(destination)?,
            RelativePath::parse(path)?,
        );
        self.root()?.open_from(&destination, &path)
    }

    /// Makes the backups of files in `base`, at `path`, that a client requested.
    fn backups<'b>(
        &self,
        path: &'b [u8],
        base: &OwnedFd,
        (backup, durable): (Option<&'b Backup>, bool),
    ) -> Result<Option<Backups>, (&'b [u8], Cause)> {
        let Some(backup) = backup else {
            return Ok(None);
        };
        let of_path = |cause| (path, cause);
        let root = self.root().map_err(of_path)?;
        let destination = RelativePath::parse(path).map_err(of_path)?;
        Backups::below(root, &destination, base, (backup, durable)).map(Some)
    }

    fn hear_plan(&self, connection: &mut Connection) -> Result<Vec<u8>, Error> {
        let patience = Duration::from_secs(REQUEST_SECONDS);
        receive(connection, PLAN_BYTES, &self.stop, patience, |plan| {
            Ok(plan.to_vec())
        })
    }
}
