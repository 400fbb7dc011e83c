//! Serves a copy: receives a client's files, or sends files to it.

use super::Served;
use super::session::Session;
use super::turns::Turn;
use crate::digest::Digester;
use crate::error::{Cause, Error, Refusal};
use crate::expand::starts;
use crate::filter::Filter;
use crate::links::{Links, SourceLinks};
use crate::local::local_start;
use crate::message::{Attributes, CopyOptions, EntryKind, Landing, Meta, Totals};
use crate::name::RelativePath;
use crate::position::Position;
use crate::pump::{CONTROL, DATA};
use crate::reached::Reached;
use crate::receive::{FileReceiver, Role, TopLevel};
use crate::root::{READ_FILE, Root, kind_of};
use crate::send::{FileSender, Source};
use crate::share::Share;
use crate::target::{Sources, resolve_below, top_level};
use rustix::fd::OwnedFd;
use rustix::fs::{Stat, fstat};
use zerolane::Connection;

impl Session<'_> {
    pub(super) fn put(
        &self,
        connection: &mut Connection,
        (destination, landing, sources): (&[u8], Landing, Sources),
        (share, options): (Share, CopyOptions),
        (digester, turn): (Digester, &Turn<'_>),
    ) -> Result<Totals, Error> {
        self.check_writable(connection)?;
        let target = RelativePath::parse(destination)
            .and_then(|path| resolve_below(self.root()?, &path, sources, landing));
        let (base, new_name) = match target {
            Ok(target) => target,
            Err(cause) => {
                return self.refuse_path(connection, destination, cause);
            }
        };
        let landing = match new_name {
            Some(_) => Landing::Named,
            None => Landing::Into,
        };
        let replies = self.accept(connection, &digester, landing)?;
        let to = (base, top_level(new_name, TopLevel::Any));
        let common_only = self.common_only();
        let mut reached = Reached::default();
        self.pump(connection, replies, (CONTROL, DATA), turn.stop(), |port| {
            let role = (Role::Tells, &mut reached);
            FileReceiver::new(port, self, options, digester, to, role)
                .for_client(common_only)
                .of_share(share)
                .receive_all()
        })
    }

    pub(super) fn get(
        &self,
        connection: &mut Connection,
        (sources, rules): (&[Vec<u8>], &[Vec<u8>]),
        (share, options): (Share, CopyOptions),
        (digester, turn): (Digester, &Turn<'_>),
        mut reached: Reached,
    ) -> Result<Totals, Error> {
        let Ok(asked) = Filter::of_texts(rules) else {
            return self.refuse(connection, Refusal::Malformed);
        };
        let mut filter = &asked;
        let (starts, links): (Vec<_>, _) = match &self.served {
            Served::Below(root) => {
                let links = SourceLinks::of_root(&options, root);
                (starts(root, sources), links)
            }
            // An offer has regular content, and its symbolic links as links.
            Served::Offered(_)
                if options.copy_links
                    || options.attributes != Attributes::NONE
                    || !asked.is_empty() =>
            {
                return self.refuse(connection, Refusal::Malformed);
            }
            Served::Offered(offered) => {
                filter = &offered.filter;
                let starts = offered.sources.iter().map(|it| local_start(it, &options));
                (starts.collect(), SourceLinks::local(&options))
            }
        };
        let replies = self.accept(connection, &digester, Landing::Into)?;
        self.pump(connection, replies, (DATA, CONTROL), turn.stop(), |port| {
            FileSender::new(port, self, options, digester, &mut reached)
                .with_links(links, Vec::new())
                .filtered(filter)?
                .of_share(share)
                .send_all(&starts)
        })
    }

    /// Sends a file as a stream.
    pub(super) fn read(
        &self,
        connection: &mut Connection,
        (source, allow_changing): (&[u8], bool),
        (digester, turn): (Digester, &Turn<'_>),
        from: Position,
    ) -> Result<Totals, Error> {
        let (file, size) = match self.open_file(source) {
            Ok((file, stat)) => (file, stat.st_size as u64),
            Err(cause) => return self.refuse_path(connection, source, cause),
        };
        let replies = self.accept(connection, &digester, Landing::Into)?;
        let file = Source::File(file);
        let mut reached = Reached::default();
        self.pump(connection, replies, (DATA, CONTROL), turn.stop(), |port| {
            let options = CopyOptions {
                allow_changing,
                ..CopyOptions::default()
            };
            let sender = FileSender::new(port, self, options, digester, &mut reached);
            sender
                .counting(1, size)?
                .send_stream(b"-", Meta::default(), &file, from)
        })
    }

    /// Opens a file to read, also through a symbolic link.
    pub(super) fn open_file(&self, source: &[u8]) -> Result<(OwnedFd, Stat), Cause> {
        let path = RelativePath::parse(source)?;
        let found = self.root()?.open_parent(&path)?;
        let (directory, name) = found.ok_or(Cause::IsADirectory)?;
        let (links, at) = self.links_below(source, true)?;
        let file = links.open(&directory, name, || at, READ_FILE)?;
        let stat = fstat(&file)?;
        match kind_of(&stat) {
            EntryKind::File if path.must_be_directory() => Err(Cause::NotADirectory),
            EntryKind::File => Ok((file, stat)),
            EntryKind::Directory => Err(Cause::IsADirectory),
            _ => Err(Cause::SpecialSource),
        }
    }

    /// Whether clients may set only the extended attributes that any user may. False for a login, whose client is the
    /// user.
    pub(super) fn common_only(&self) -> bool {
        !self.root().is_ok_and(Root::is_of_login)
    }

    /// How links below the directory `path` are treated, and that path for the kernel.
    pub(super) fn links_below(&self, path: &[u8], follow: bool) -> Result<(Links, Vec<u8>), Cause> {
        let above = RelativePath::parse(path)?.as_bytes();
        match &self.served {
            Served::Below(root) => Ok((Links::below(follow, root), above)),
            Served::Offered(_) => Err(Cause::OutsideRoot),
        }
    }
}
