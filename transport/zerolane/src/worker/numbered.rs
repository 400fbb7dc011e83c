//! Exports regions on all connections of a worker, under numbers of the program's own.

use super::agenda::Due;
use super::handle::WorkerHandle;
use super::pending::Pending;
use super::{Slot, Worker};
use crate::connection::Connection;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use zerolane_lane::{ExportAs, ExportedRegion, Exporting, PostError, RegionNumber};
use zerolane_wire::Rights;

/// The regions that a worker exports by number.
#[derive(Debug, Default)]
pub(super) struct Numbered {
    regions: BTreeMap<RegionNumber, (Exporting, Rights)>,
    /// Length of `regions` that triggers the next removal of revoked ones.
    prune_at: usize,
}

impl Numbered {
    fn is_taken(&self, number: RegionNumber) -> bool {
        let region = self.regions.get(&number);
        region.is_some_and(|(memory, _)| !memory.is_revoked())
    }

    /// Adds an export. A program that exports and revokes repeatedly keeps at most twice as many entries as are live.
    fn insert(&mut self, number: RegionNumber, memory: Exporting, rights: Rights) {
        if self.regions.len() >= self.prune_at {
            self.prune();
        }
        self.regions.insert(number, (memory, rights));
    }

    fn remove(&mut self, number: RegionNumber) -> bool {
        let is_taken = self.is_taken(number);
        self.regions.remove(&number);
        is_taken
    }

    fn prune(&mut self) {
        self.regions.retain(|_, (memory, _)| !memory.is_revoked());
        self.prune_at = 2 * self.regions.len();
    }

    /// Exports all of them on a connection that the worker takes in. What had one of these numbers there, for example
    /// for an earlier worker, ends.
    pub(super) fn export_to(&mut self, connection: &mut Connection) -> Result<()> {
        self.prune();
        for (&number, (memory, rights)) in &self.regions {
            connection.driver.revoke(number.place(0).handle);
            export(connection, number, memory, *rights)?;
        }
        Ok(())
    }
}

/// A connection that is over needs no export: its end is reported by other means.
fn export(
    connection: &mut Connection,
    number: RegionNumber,
    memory: &Exporting,
    rights: Rights,
) -> Result<()> {
    let named = ExportAs::Number(number);
    match connection.driver.export(memory.clone(), rights, named) {
        Ok(_) | Err(PostError::Closed) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Worker {
    /// Lets every peer of this worker use `region` with `rights`, under a number of the program's own: on all present
    /// connections, and on all that it accepts, makes or adopts later, before their first operation. The peers make the
    /// key from the number ([`RegionKey::numbered`](crate::RegionKey::numbered)) and need not ask. Rights for some peers
    /// alone: [`Connection::export_numbered`].
    ///
    /// Each connection counts it among its 65,536 exports, and needs half a KiB for it. It ends for all peers by
    /// [`Worker::revoke_number`] or [`ExportedRegion::revoke`], for one by [`Connection::revoke_region`]. A connection
    /// that the worker releases keeps it until [`ExportedRegion::revoke`]; a worker that adopts such a connection
    /// replaces what has one of its own numbers. [`Connection::export_numbered`] says when to use a number again.
    ///
    /// # Errors
    /// The number is taken, by this worker or on one of its connections, or one of them has no room for more exports:
    /// then no connection has the new export. A later connection without room ends.
    pub fn export_numbered(
        &mut self,
        number: RegionNumber,
        region: &ExportedRegion,
        rights: Rights,
    ) -> Result<()> {
        self.check_process()?;
        if !region.is_of_this_process() {
            return Err(Error::Forked);
        }
        if self.numbered.is_taken(number) {
            return Err(PostError::NumberTaken.into());
        }
        let memory = region.exporting();
        let mut exported = Vec::new();
        for (key, slot) in &mut self.slots {
            let Slot::Connection(link) = slot else {
                continue;
            };
            if let Err(error) = export(&mut link.connection, number, &memory, rights) {
                self.revoke_on(&exported, number);
                return Err(error);
            }
            exported.push(key);
            // A peer in shared memory learns of it with the next turn.
            self.agenda.add(key, Due::Turn);
        }
        self.numbered.insert(number, memory, rights);
        Ok(())
    }

    /// Ends [`Worker::export_numbered`] on all connections of this worker. On return no late packet writes to the
    /// region, nothing of it is sent, and the number is free. False if this worker exports nothing under `number`.
    pub fn revoke_number(&mut self, number: RegionNumber) -> bool {
        if self.check_process().is_err() || !self.numbered.remove(number) {
            return false;
        }
        let all: Vec<_> = self.slots.keys().collect();
        self.revoke_on(&all, number);
        true
    }

    fn revoke_on(&mut self, keys: &[super::Key], number: RegionNumber) {
        for &key in keys {
            if let Some(Slot::Connection(link)) = self.slots.get_mut(key) {
                link.connection.driver.revoke(number.place(0).handle);
                // The peer may have to be told.
                self.agenda.add(key, Due::Turn);
            }
        }
    }
}

impl WorkerHandle {
    /// See [`Worker::export_numbered`].
    pub fn export_numbered(
        &self,
        number: RegionNumber,
        region: &ExportedRegion,
        rights: Rights,
    ) -> Pending<()> {
        let region = region.clone();
        self.call(move |worker| worker.export_numbered(number, &region, rights))
    }

    /// See [`Worker::revoke_number`].
    pub fn revoke_number(&self, number: RegionNumber) -> Pending<bool> {
        self.call(move |worker| Ok(worker.revoke_number(number)))
    }
}

#[cfg(test)]
#[path = "numbered_tests.rs"]
mod tests;
