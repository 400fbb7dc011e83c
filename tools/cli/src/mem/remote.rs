//! Connects to a host, and opens a region of its memory by name.

use anyhow::{Context, Result, anyhow, ensure};
use zerolane::failure::{Reason, TransferError};
use zerolane::{Completion, Connection, Error, RegionKey, Rights};

use super::place::Place;
use crate::host::Host;
use crate::security::ClientArgs;

/// The default UDP port.
pub(super) const DEFAULT_PORT: u16 = 9182;

/// Parses `HOST[:PORT]`.
pub(super) fn parse_host(text: &str) -> Result<Host, String> {
    Host::parse(text, DEFAULT_PORT)
}

/// An opened region.
pub(crate) struct Remote {
    pub(crate) connection: Connection,
    pub(crate) key: RegionKey,
    name: String,
}

/// The length of a piece, bytes, and the most pieces in flight.
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
        let dialer = host.dialer(security)?;
        let connected = dialer.connect();
        dialer.introduce();
        let mut connection = connected.map_err(|error| {
            let text = anyhow!(error.to_string());
            dialer.explain(&error, text)
        })?;
        let key = connection
            .open_region(&place.name, rights)
            .map_err(|error| {
                let name = &place.name;
                match reason(&error) {
                    Some(Reason::Unknown) => {
                        anyhow!("{} exports nothing called {name:?}", host.name())
                    }
                    Some(Reason::Denied) => anyhow!(
                        "{} does not allow that with {name:?}: export it with other --rights",
                        host.name()
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

    /// The region's length, bytes.
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
        let completion = self
            .connection
            .wait(None)?
            .got()
            .context("woken for nothing")?;
        self.expect_success(completion)
    }

    /// Makes progress. Returns a completion if there is one, which must be a success.
    pub(crate) fn poll(&mut self) -> Result<Option<Completion>> {
        let completion = self.connection.poll()?;
        completion.map(|it| self.expect_success(it)).transpose()
    }

    fn expect_success(&self, completion: Completion) -> Result<Completion> {
        match completion.result {
            Ok(_) => Ok(completion),
            Err(error) => Err(self.explain(Error::Transfer(error))),
        }
    }

    /// Adds the name of the region to an error.
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
