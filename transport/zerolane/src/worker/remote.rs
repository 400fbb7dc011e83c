//! Operates on the peer's memory through handles.

use super::claims::{Direction, attempt};
use super::handle::{ConnectionHandle, posted, refused, signalled};
use super::pending::{Pending, Refused};
use crate::completion::Completion;
use crate::connection::Connection;
use crate::error::{Error, Posted, Result};
use crate::key::RegionKey;
use crate::remote::FetchOp;
use crate::work::Work;
use zerolane_lane::{ExportedRegion, Memory, Region, RegionNumber, TransferId, Writable};
use zerolane_wire::Rights;

impl ConnectionHandle {
    /// Puts `memory` into the peer's memory: see [`Connection::post_put`].
    pub fn put(
        &self,
        to: &RegionKey,
        offset: u64,
        memory: impl Into<Memory>,
        work: impl Into<Work>,
    ) -> Pending<Completion> {
        let (to, work) = (*to, signalled(work.into()));
        let post = attempt(memory.into(), refused, move |connection, memory| {
            posted(connection.post_put(&to, offset, memory, work))
        });
        self.request(Direction::Outgoing, post)
    }

    /// Puts several pieces, each to its own offset: see [`Connection::post_put_vectored`]. With more than 4096, none is
    /// posted.
    pub fn put_vectored(
        &self,
        to: &RegionKey,
        pieces: Vec<(u64, Memory)>,
        work: impl Into<Work>,
    ) -> Pending<Completion> {
        let (to, work) = (*to, signalled(work.into()));
        self.request_pieces(pieces, move |connection, pieces| {
            connection.post_put_vectored(&to, pieces, work)
        })
    }

    /// Gets bytes of the peer's memory into `into`: see [`Connection::post_get`].
    pub fn get(
        &self,
        from: &RegionKey,
        offset: u64,
        into: impl Writable,
        work: impl Into<Work>,
    ) -> Pending<Completion> {
        let (from, work) = (*from, signalled(work.into()));
        let post = attempt(into, refused, move |connection, into| {
            posted(connection.post_get(&from, offset, into, work))
        });
        self.request(Direction::Outgoing, post)
    }

    /// Gets several pieces, each from its own offset: see [`Connection::post_get_vectored`]. With more than 4096, none
    /// is posted.
    pub fn get_vectored(
        &self,
        from: &RegionKey,
        pieces: Vec<(u64, Region)>,
        work: impl Into<Work>,
    ) -> Pending<Completion> {
        let (from, work) = (*from, signalled(work.into()));
        self.request_pieces(pieces, move |connection, pieces| {
            connection.post_get_vectored(&from, pieces, work)
        })
    }

    fn request_pieces<M: Into<Memory> + Send + 'static>(
        &self,
        pieces: Vec<(u64, M)>,
        mut post: impl FnMut(&mut Connection, Vec<(u64, M)>) -> Posted<Vec<(u64, M)>> + Send + 'static,
    ) -> Pending<Completion> {
        let post = attempt(pieces, refused_pieces, move |connection, pieces| {
            posted(post(connection, pieces))
        });
        self.request(Direction::Outgoing, post)
    }

    /// Does an atomic operation on a word of the peer's memory; the completion's `value` is the word's previous value.
    pub fn fetch_op(&self, on: &RegionKey, offset: u64, op: FetchOp) -> Pending<Completion> {
        self.fetch(on, offset, move |connection, on, offset, work| {
            connection.post_fetch_op(on, offset, op, work)
        })
    }

    /// Like [`ConnectionHandle::fetch_op`], on a word of 32 bits: see [`Connection::fetch_op_u32`].
    pub fn fetch_op_u32(
        &self,
        on: &RegionKey,
        offset: u64,
        op: FetchOp<u32>,
    ) -> Pending<Completion> {
        self.fetch(on, offset, move |connection, on, offset, work| {
            connection.post_fetch_op_u32(on, offset, op, work)
        })
    }

    fn fetch(
        &self,
        on: &RegionKey,
        offset: u64,
        post: impl Fn(&mut Connection, &RegionKey, u64, Work) -> Result<TransferId> + Send + 'static,
    ) -> Pending<Completion> {
        let on = *on;
        let post = attempt(
            (),
            |error, ()| Refused::because(error),
            move |connection, ()| {
                let posted = post(connection, &on, offset, Work::default());
                posted.map_err(|error| (error, ()))
            },
        );
        self.request(Direction::Outgoing, post)
    }

    /// Asks for a region of the peer by name; the completion's `region` is the key.
    pub fn open_region(&self, name: &str, rights: Rights) -> Pending<Completion> {
        let name = name.to_owned();
        let post = attempt(
            (),
            |error, ()| Refused::because(error),
            move |connection, ()| {
                let posted = connection.post_open_region(&name, rights, Work::default());
                posted.map_err(|error| (error, ()))
            },
        );
        self.request(Direction::Outgoing, post)
    }

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
    pub fn immediate(&self) -> Pending<u32> {
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

fn refused_pieces<M: Into<Memory>>(error: Error, pieces: Vec<(u64, M)>) -> Refused {
    Refused {
        pieces: pieces.into_iter().map(|it| it.1.into()).collect(),
        ..Refused::because(error)
    }
}
