//! Connects to the first address that answers.

use super::link::{Link, Stage};
use super::others::Others;
use super::{ConnectionId, Key, Slot, Worker};
use crate::error::{Error, Result};
use std::net::SocketAddr;
use zerolane_lane::Options;

impl Worker {
    pub(super) fn connect_to(
        &mut self,
        addresses: Vec<SocketAddr>,
        options: &Options,
    ) -> Result<ConnectionId> {
        let mut others = Others::new(addresses, self.shared(options.clone()));
        let connection = others.begin()?.ok_or(Error::NoAddress)?;
        self.own(Link::connecting(connection, others))
    }

    /// Goes on to the next address of a connection that is being made and failed. False if none is left.
    ///
    /// # Errors
    /// It could not be begun, or has no room for the worker's exports.
    pub(super) fn try_another(&mut self, key: Key) -> Result<bool> {
        let Some(Slot::Connection(link)) = self.slots.get_mut(key) else {
            return Ok(false);
        };
        let (Stage::Connecting(_), Some(others)) = (link.stage, &mut link.others) else {
            return Ok(false);
        };
        let Some(mut next) = others.begin()? else {
            return Ok(false);
        };
        self.numbered.export_to(&mut next)?;
        self.poller.remove_lane(&link.connection);
        link.connection = next;
        link.writable = false;
        self.poller.add_lane(&link.connection, key)?;
        self.join_pool(key);
        self.agenda.add_input(key);
        Ok(true)
    }
}
