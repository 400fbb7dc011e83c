//! One connection of a server: what the client asks for, and whether it may.

use super::listing::Listing;
use crate::digest::Digester;
use crate::error::{Cause, Error, Refusal};
use crate::escape::escape;
use crate::limits::{REPLY_SECONDS, REQUEST_SECONDS};
use crate::message::{CopyOptions, Reply, Request, Totals};
use crate::name::RelativePath;
use crate::observe::ServerObserver;
use crate::opening::{hear, say};
use crate::pump::{self, CONTROL, DATA};
use crate::receive::{FileReceiver, TopLevel};
use crate::root::Root;
use crate::send::{FileSender, Start};
use crate::stop::Stop;
use crate::target::{Sources, resolve_below, top_level};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use zerolane::Connection;

/// One connection and what it may do.
pub(super) struct Session<'a> {
    pub(super) root: Arc<Root>,
    pub(super) read_only: bool,
    pub(super) stop: &'a Stop,
    pub(super) observer: &'a dyn ServerObserver,
    pub(super) peer: SocketAddr,
}

impl Session<'_> {
    pub(super) fn serve(&self, mut connection: Connection) {
        let outcome = self.answer(&mut connection);
        self.observer.ended(self.peer, &outcome);
        let _ = connection.close();
    }

    fn answer(&self, connection: &mut Connection) -> Result<Option<Totals>, Error> {
        let request = match hear(connection, self.stop, Duration::from_secs(REQUEST_SECONDS)) {
            Ok(request) => request,
            Err(error @ (Error::NotFileService | Error::Version { .. } | Error::Protocol(_))) => {
                // The reply carries our version, so that another one's client can tell.
                let _ = self.say(connection, &Reply::Refused(Refusal::Malformed));
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        self.observer.asked(self.peer, &describe(&request));
        match request {
            Request::Put {
                destination,
                sources,
                contents,
                options,
                digester,
            } => self
                .put(
                    connection,
                    &destination,
                    Sources {
                        count: sources,
                        contents,
                    },
                    options,
                    digester.accept(),
                )
                .map(Some),
            Request::Get {
                sources,
                options,
                digester,
            } => self
                .get(connection, &sources, options, digester.accept())
                .map(Some),
            Request::List { path } => self.list(connection, &path).map(|()| None),
        }
    }

    fn put(
        &self,
        connection: &mut Connection,
        destination: &[u8],
        sources: Sources,
        options: CopyOptions,
        digester: Digester,
    ) -> Result<Totals, Error> {
        if self.read_only {
            return self.refuse(connection, Refusal::ReadOnly);
        }
        let target = RelativePath::parse(destination)
            .and_then(|path| resolve_below(&self.root, &path, sources));
        let (base, new_name) = match target {
            Ok(target) => target,
            Err(cause) => {
                return self.refuse(
                    connection,
                    Refusal::Path {
                        path: destination.to_vec(),
                        cause,
                    },
                );
            }
        };
        self.say(connection, &Reply::Accepted(digester.algorithm()))?;
        let top = top_level(new_name, TopLevel::Any);
        pump::run(connection, CONTROL, DATA, self.stop, |port| {
            FileReceiver::new(port, &(), options, digester, base, top).receive_all()
        })
    }

    fn get(
        &self,
        connection: &mut Connection,
        sources: &[Vec<u8>],
        options: CopyOptions,
        digester: Digester,
    ) -> Result<Totals, Error> {
        let starts = sources
            .iter()
            .map(|source| self.start(source, &options))
            .collect();
        self.say(connection, &Reply::Accepted(digester.algorithm()))?;
        pump::run(connection, DATA, CONTROL, self.stop, |port| {
            FileSender::new(port, &(), options, digester).send_all(starts)
        })
    }

    fn start(&self, source: &[u8], options: &CopyOptions) -> Start {
        let missing = |cause| Start::Missing {
            path: source.to_vec(),
            cause,
        };
        let found =
            RelativePath::parse(source).and_then(|path| match self.root.open_parent(&path)? {
                Some((directory, name)) => Ok(Start::Named {
                    directory,
                    name: name.to_vec(),
                }),
                None if options.recursive => Ok(Start::Contents(self.root.open_directory(&path)?)),
                None => Err(Cause::IsADirectory),
            });
        found.unwrap_or_else(missing)
    }

    fn list(&self, connection: &mut Connection, path: &[u8]) -> Result<(), Error> {
        let listing = RelativePath::parse(path).and_then(|path| Listing::open(&self.root, &path));
        let mut listing = match listing {
            Ok(listing) => listing,
            Err(cause) => {
                return self.refuse(
                    connection,
                    Refusal::Path {
                        path: path.to_vec(),
                        cause,
                    },
                );
            }
        };
        loop {
            let (entries, last) = listing.next_entries();
            self.say(connection, &Reply::Entries { entries, last })?;
            if last {
                return Ok(());
            }
        }
    }

    fn say(&self, connection: &mut Connection, reply: &Reply) -> Result<(), Error> {
        let patience = Duration::from_secs(REPLY_SECONDS);
        say(connection, reply, self.stop, patience)
    }

    fn refuse<T>(&self, connection: &mut Connection, refusal: Refusal) -> Result<T, Error> {
        self.say(connection, &Reply::Refused(refusal.clone()))?;
        Err(refusal.into())
    }
}

/// A request in words.
fn describe(request: &Request) -> String {
    let list = |paths: &[Vec<u8>]| {
        paths
            .iter()
            .map(|path| escape(path))
            .collect::<Vec<_>>()
            .join(" ")
    };
    match request {
        Request::Put { destination, .. } => {
            format!("write to {:?}", escape(destination))
        }
        Request::Get { sources, .. } => format!("read {:?}", list(sources)),
        Request::List { path } => format!("list {:?}", escape(path)),
    }
}
