//! Offers files to a receiver that knows the code.

use super::discovery::Beacon;
use super::links::links;
use super::{LOOK, Offer, PATIENCE, TransferCode, draw, trusting};
use crate::confine::{Confinement, confine_to_sources};
use crate::error::{Cause, Error};
use crate::filter::{Filter, Scope, Side};
use crate::filter_files::{FilterText, enter};
use crate::limits::{ENTRY_OVERHEAD_BYTES, OFFER_NAMES_BYTES, REQUEST_SECONDS};
use crate::links::SourceLinks;
use crate::local::local_start;
use crate::message::{CopyOptions, EntryKind, OfferedEntry, Reply, Request};
use crate::opening::{hear, say};
use crate::root::{READ_FILE, kind_of, meta_of, open_in};
use crate::send::{Start, count};
use crate::server::{Offered, ServeOptions, Server};
use crate::stop::Stop;
use rustix::fd::OwnedFd;
use rustix::fs::{Dir, Mode};
use rustix::io::fcntl_dupfd_cloexec;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use zerolane::keys::Access;
use zerolane::security::{CODE_GUESSES, Identity};
use zerolane::{Connection, Endpoint, Options, Security};

/// Files that are offered to a receiver that knows a code.
#[derive(Debug)]
pub struct Invitation {
    code: TransferCode,
    offer: Offer,
    offered: Offered,
    endpoint: Endpoint,
    transport: Options,
    beacon: io::Result<Beacon>,
}

impl Invitation {
    /// Drops the rights that sending `sources` does not need, by Landlock, from the calling thread and from all threads
    /// that it starts from now on: other files, writing, starting programs, TCP, signals to other processes. Call it
    /// before [`Invitation::new`], which starts a thread that hears unauthenticated peers. It cannot be undone. A file
    /// that is replaced after that cannot be read.
    ///
    /// # Errors
    /// The kernel has Landlock and refused.
    pub fn confine(sources: &[PathBuf]) -> io::Result<Confinement> {
        confine_to_sources(sources)
    }

    /// Offers local files and directories, except those that the filter excludes. It listens on `address`, and can be
    /// found on the networks of the `interfaces` with these names (of all that are up, if none is named).
    ///
    /// # Errors
    /// [`Error::Local`] for a source that does not exist; [`Error::Listen`]; no random numbers.
    pub fn new(
        (sources, filter): (Vec<PathBuf>, Filter),
        address: SocketAddr,
        interfaces: &[String],
        transport: Options,
    ) -> Result<Invitation, Error> {
        let offered = Offered { sources, filter };
        let offer = offer(&offered)?;
        let code = TransferCode::from_random(draw()?, draw()?);
        let identity = Arc::new(Identity::from_secret(draw()?));
        let mut transport = transport;
        transport.security = Security {
            identity: Some(identity),
            ..Security::default()
        };
        let mut by_code = transport.clone();
        by_code.security.pre_shared = Some(code.secret().clone().into());
        // The code is spent by a client that was accepted.
        by_code.listen.backlog = 0;
        let endpoint = Endpoint::bind(address, by_code).map_err(|source| Error::Listen {
            address: address.to_string(),
            source,
        })?;
        let port = endpoint.local_addr().port();
        let beacon = links(interfaces).and_then(|links| Beacon::new(&links, code.channel(), port));
        Ok(Invitation {
            code,
            offer,
            offered,
            endpoint,
            transport,
            beacon,
        })
    }

    /// The code for the receiver.
    pub fn code(&self) -> &TransferCode {
        &self.code
    }

    /// The offer.
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    /// Why it cannot be found by broadcast, only by its address.
    pub fn hidden(&self) -> Option<&io::Error> {
        self.beacon.as_ref().err()
    }

    /// Waits for a receiver with the code, and returns the server of these files for the owner of that key alone.
    /// `wrong_code` is called for each wrong guess, with the number of guesses left.
    ///
    /// # Errors
    /// [`Error::CodeGuessed`]: too many wrong guesses invalidated the code. [`Error::ClientLost`]: the receiver with
    /// the code disconnected at once.
    pub fn wait(self, stop: &Stop, mut wrong_code: impl FnMut(u32)) -> Result<Server, Error> {
        let mut endpoint = self.endpoint;
        let mut told = 0;
        let mut connection = loop {
            stop.check()?;
            let accepted = endpoint.accept(Some(LOOK))?;
            let wrong = endpoint.gate_counters().map_or(0, |it| it.wrong_codes);
            while u64::from(told) < wrong {
                told += 1;
                wrong_code(CODE_GUESSES.saturating_sub(told));
            }
            match accepted {
                Some(connection) => break connection,
                None if endpoint.is_spent() => {
                    return Err(match endpoint.gate_counters() {
                        Some(gate) if gate.admitted > 0 => Error::ClientLost,
                        _ => Error::CodeGuessed,
                    });
                }
                None => {}
            }
        };
        let key = connection.peer_key().ok_or(Error::Internal)?;
        let address = endpoint.local_addr();
        drop((self.beacon, endpoint));
        let greet = |connection: &mut Connection| {
            match hear(connection, stop, Duration::from_secs(REQUEST_SECONDS))? {
                Request::AskOffer => {}
                _ => return Err(Error::Protocol("asks before it meets")),
            }
            // Made before the offer is sent, because the receiver may connect as soon as it has that.
            let server = Server::offering(
                self.offered,
                address,
                ServeOptions {
                    read_only: true,
                    access: Access::Anyone,
                    transport: trusting(self.transport, key),
                },
            )?;
            let offer = Reply::Offer {
                files: self.offer.files,
                bytes: self.offer.bytes,
                entries: self.offer.entries,
                more: self.offer.more,
            };
            say(connection, &offer, stop, PATIENCE)?;
            Ok(server)
        };
        let server = greet(&mut connection);
        let _ = connection.close();
        match server {
            Err(Error::Transport(_) | Error::Stalled) => Err(Error::ClientLost),
            server => server,
        }
    }
}

/// The offer of these sources.
fn offer(offered: &Offered) -> Result<Offer, Error> {
    let Offered { sources, filter } = offered;
    let options = CopyOptions {
        recursive: true,
        ..CopyOptions::default()
    };
    let starts: Vec<_> = sources
        .iter()
        .map(|source| local_start(source, &options))
        .collect();
    let links = SourceLinks::local(&options);
    let (files, bytes) = count(&starts, &options, (&links, Some(filter)), || Ok(()))?;
    let mut offering = Offering {
        scope: Scope::new(filter, Side::Source)?,
        offer: Offer {
            files,
            bytes,
            entries: Vec::new(),
            more: 0,
        },
        room: OFFER_NAMES_BYTES,
        names: HashSet::new(),
    };
    for (start, source) in starts.iter().zip(sources) {
        match start {
            Start::Named { name, .. } if offering.names.contains(name) => {
                return Err(Error::local(source, Cause::SameName));
            }
            Start::Named { directory, name } => offering.add(source, (directory, name), true)?,
            Start::Contents(directory) => offering.add_contents(source, directory)?,
            Start::Below { .. } => {}
            Start::Missing { cause, .. } => return Err(Error::local(source, cause.clone())),
        }
    }
    Ok(offering.offer)
}

/// An offer under construction.
struct Offering<'f> {
    scope: Scope<'f>,
    offer: Offer,
    /// Bytes left for names.
    room: usize,
    names: HashSet<Vec<u8>>,
}

impl Offering<'_> {
    /// Adds an entry of the directory: this source, or part of its contents.
    fn add(
        &mut self,
        source: &Path,
        (directory, name): (&OwnedFd, &[u8]),
        named: bool,
    ) -> Result<(), Error> {
        let local = |cause| Error::local(source, cause);
        let options = CopyOptions {
            recursive: true,
            keep_links: !named,
            ..CopyOptions::default()
        };
        let links = SourceLinks::local(&options);
        let stat = links.inside(&[]).stat(directory, name, Vec::new);
        let stat = stat.map_err(local)?;
        let is_directory = kind_of(&stat) == EntryKind::Directory;
        let excluded = self.scope.excludes(name, is_directory, false);
        if excluded || !self.names.insert(name.to_vec()) {
            return Ok(());
        }
        let Some(left) = self.room.checked_sub(name.len() + ENTRY_OVERHEAD_BYTES) else {
            self.offer.more += 1;
            return Ok(());
        };
        self.room = left;
        if named && kind_of(&stat) == EntryKind::Special {
            return Err(local(Cause::SpecialSource));
        }
        let start = Start::Named {
            directory: fcntl_dupfd_cloexec(directory, 0).map_err(|errno| local(errno.into()))?,
            name: name.to_vec(),
        };
        let what = (&links, Some(self.scope.filter()));
        let (_, size) = count(&[start], &options, what, || Ok(()))?;
        self.offer.entries.push(OfferedEntry {
            name: name.to_vec(),
            kind: kind_of(&stat),
            size,
            meta: meta_of(&stat),
        });
        Ok(())
    }

    /// Adds the contents of a directory.
    fn add_contents(&mut self, source: &Path, directory: &OwnedFd) -> Result<(), Error> {
        let texts = self.scope.files().map(|name| {
            FilterText::read(|| Ok(open_in(directory, name, READ_FILE, Mode::empty())?))
        });
        let texts: Vec<_> = texts.collect();
        enter(&mut self.scope, b"", &texts).map_err(|it| Error::local(source, it.cause))?;
        let added = self.add_entries(source, directory);
        self.scope.leave();
        added
    }

    fn add_entries(&mut self, source: &Path, directory: &OwnedFd) -> Result<(), Error> {
        let local = |errno| Error::local(source, errno);
        for entry in Dir::read_from(directory).map_err(local)? {
            let entry = entry.map_err(local)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                self.add(source, (directory, name), false)?;
            }
        }
        Ok(())
    }
}
