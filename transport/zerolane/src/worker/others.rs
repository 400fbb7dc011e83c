//! Begins to connect to one address after another.

use crate::connection::Connection;
use std::io;
use std::net::SocketAddr;
use zerolane_lane::Options;

/// Addresses to try if the present one does not answer.
#[derive(Debug)]
pub(super) struct Others {
    addresses: std::vec::IntoIter<SocketAddr>,
    pub(super) options: Options,
}

impl Others {
    pub(super) fn new(addresses: Vec<SocketAddr>, options: Options) -> Others {
        Others {
            addresses: addresses.into_iter(),
            options,
        }
    }

    /// Begins to connect to the next address to which this is possible. `None` if none is left.
    ///
    /// # Errors
    /// That of the last address, if beginning to connect to each one failed.
    pub(super) fn begin(&mut self) -> io::Result<Option<Connection>> {
        let mut last = Ok(None);
        for address in self.addresses.by_ref() {
            match zerolane_lane::connect(address, &self.options) {
                Ok(driver) => return Ok(Some(Connection::accepted(driver, &self.options))),
                Err(error) => last = Err(error),
            }
        }
        last
    }
}
