//! Operates on the peer's memory through handles.

use super::handle::ConnectionHandle;
use super::pending::Pending;
#[cfg(doc)]
use crate::connection::Connection;
use crate::key::RegionKey;
use crate::request::Immediate;
use zerolane_lane::{ExportedRegion, RegionNumber};
use zerolane_wire::Rights;

impl ConnectionHandle {
    /// Lets the peer use `region` with `rights`: see [`Connection::export`].
    pub fn export(&self, region: &ExportedRegion, rights: Rights) -> Pending<RegionKey> {
        let region = region.clone();
        self.with(move |connection| connection.export(&region, rights))
    }

    /// Like [`ConnectionHandle::export`], by `name`: see [`Connection::export_named`].
    pub fn export_named(
        &self,
        name: &str,
        region: &ExportedRegion,
        rights: Rights,
    ) -> Pending<RegionKey> {
        let (name, region) = (name.to_owned(), region.clone());
        self.with(move |connection| connection.export_named(&name, &region, rights))
    }

    /// Like [`ConnectionHandle::export`], under `number`: see [`Connection::export_numbered`].
    pub fn export_numbered(
        &self,
        number: RegionNumber,
        region: &ExportedRegion,
        rights: Rights,
    ) -> Pending<RegionKey> {
        let region = region.clone();
        self.with(move |connection| connection.export_numbered(number, &region, rights))
    }

    /// Ends an export on this connection: see [`Connection::revoke`].
    pub fn revoke(&self, key: &RegionKey) -> Pending<bool> {
        let key = *key;
        self.with(move |connection| Ok(connection.revoke(&key)))
    }

    /// Ends all exports of `region` on this connection, including the endpoint's, for this peer alone: see
    /// [`Connection::revoke_region`].
    pub fn revoke_region(&self, region: &ExportedRegion) -> Pending<bool> {
        let region = region.clone();
        self.with(move |connection| Ok(connection.revoke_region(&region)))
    }

    /// The next immediate that the peer put: see [`Connection::put_with_immediate`].
    pub fn immediate(&self) -> Pending<Immediate> {
        let (id, worker) = (self.id(), self.worker());
        let (claim, pending) = Pending::new(
            worker.process(),
            Some(Box::new(move |unread| {
                worker.submit(move |worker| {
                    if let Some(claims) = worker.claims(id) {
                        claims.give_up_immediate(unread);
                    }
                });
            })),
        );
        self.worker().submit(move |worker| {
            if let Some(claims) = worker.claims(id) {
                claims.await_immediate(claim);
            }
            worker.note_asked(id);
        });
        pending
    }
}
