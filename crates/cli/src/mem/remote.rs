//! A region of another host, opened by name.

use std::fmt;

use anyhow::{Context, Result, anyhow, ensure};
use zerolane::failure::{Reason, TransferError};
use zerolane::lanes::resolve_host;
use zerolane::{Completion, Connection, Error, Options, RegionKey, Rights};

use super::place::Place;
use crate::address::{parse_host, shown};
use crate::bypass::Bypass;
use crate::exit::Exit;
use crate::lane::LaneName;
use crate::security::{Caution, ClientArgs};

/// UDP port where the command line names none.
pub(super) const DEFAULT_PORT: u16 = 9182;

/// A host, and the port at which it exports memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    name: String,
    port: u16,
}

impl Host {
    /// From `HOST[:PORT]`.
    pub(crate) fn parse(text: &str) -> Result<Host, String> {
        parse_host(text, DEFAULT_PORT).map(|(name, port)| Host { name, port })
    }

    fn connect(&self, security: &ClientArgs) -> Result<Connection> {
        let Host { name, port } = self;
        let profiles = security.profile.into();
        let lane = LaneName::to(name, security.lane, None)?;
        let bypass = Bypass::of(lane, security.bypass, None);
        let device = bypass.device_to(lane, (name, *port))?;
        let links = security.paths.links(lane)?;
        let lane = lane.into();
        let (caution, security) = Caution::new(self.to_string(), security.clone(), None)?;
        let options = Options {
            security,
            profiles,
            lane,
            device,
            links,
            ..Options::default()
        };
        let connected = resolve_host(name, *port, lane)
            .map_err(Error::from)
            .and_then(|to| Connection::connect(&to[..], &options));
        caution.introduce();
        connected.map_err(|error| {
            let advise = caution.advise(Some(&error));
            let words = format!("cannot reach {name} at port {port}");
            let exit = Exit::of_connecting(&error);
            advise(anyhow!(error).context(words).context(exit))
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.name, self.port))
    }
}

/// An opened region.
pub(crate) struct Remote {
    pub(crate) connection: Connection,
    pub(crate) key: RegionKey,
    name: String,
}

/// What is copied at a time, bytes, and how many such pieces are in flight.
pub(crate) const PIECE: usize = 1 << 20;
pub(crate) const AHEAD: usize = 4;

impl Remote {
    /// Connects and opens the region of `place` with these rights.
    pub(crate) fn open(
        host: &Host,
        place: &Place,
        rights: Rights,
        security: &ClientArgs,
    ) -> Result<Remote> {
        let mut connection = host.connect(security)?;
        let key = connection
            .open_region(&place.name, rights)
            .map_err(|error| {
                let name = &place.name;
                match reason(&error) {
                    Some(Reason::Unknown) => {
                        anyhow!("{} exports nothing called {name:?}", host.name)
                    }
                    Some(Reason::Denied) => anyhow!(
                        "{} does not allow that with {name:?}: export it with other --rights",
                        host.name
                    ),
                    _ => anyhow!(error).context(format!("opening {name:?}")),
                }
            })?;
        Ok(Remote {
            connection,
            key,
            name: place.name.clone(),
        })
    }

    /// Bytes of the region.
    pub(crate) fn len(&self) -> u64 {
        self.key.len()
    }

    /// Fails unless `len` bytes from `offset` lie in the region.
    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<()> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len());
        ensure!(
            inside,
            "{len} bytes at {offset} are outside of {:?}, which has {} bytes",
            self.name,
            self.len()
        );
        Ok(())
    }

    /// The next completion, which must be a success.
    pub(crate) fn next(&mut self) -> Result<Completion> {
        let completion = self.connection.wait(None)?.context("woken for nothing")?;
        self.judge(completion)
    }

    /// Makes progress; a completion if one is there, which must be a success.
    pub(crate) fn poll(&mut self) -> Result<Option<Completion>> {
        let completion = self.connection.poll()?;
        completion.map(|it| self.judge(it)).transpose()
    }

    fn judge(&self, completion: Completion) -> Result<Completion> {
        match completion.result {
            Ok(_) => Ok(completion),
            Err(error) => Err(self.explain(Error::Transfer(error))),
        }
    }

    /// An error with the name of this region.
    pub(crate) fn explain(&self, error: Error) -> anyhow::Error {
        let name = &self.name;
        match reason(&error) {
            Some(Reason::Revoked) => anyhow!("{name:?} is not exported any more"),
            _ => anyhow!(error).context(format!("{name:?}")),
        }
    }

    /// Ends the connection when everything asked for is done.
    pub(crate) fn close(self) -> Result<()> {
        Ok(self.connection.close()?)
    }
}

fn reason(error: &Error) -> Option<Reason> {
    match error {
        Error::Transfer(TransferError::Refused(reason)) => Some(*reason),
        _ => None,
    }
}
