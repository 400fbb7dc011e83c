//! Shares a pool of memory for messages among a worker's connections.

use super::agenda::Due;
use super::handle::{ConnectionHandle, WorkerHandle};
use super::pending::Pending;
use super::{Key, Slot, Worker};
use crate::completion::Completion;
use crate::error::Result;
use crate::receive_pool::{ReceivePool, taken};
use std::sync::Arc;

impl Worker {
    /// Takes memory of `pool` for messages that no posted receive matches, on all present connections and on all that
    /// this worker accepts, makes or adopts later. A connection that shares another pool keeps that. Memory that is
    /// added while a peer waits for it ends a [`Worker::wait`], as a handle does.
    ///
    /// # Errors
    /// The worker shares another pool; or [`Error::Forked`](crate::Error::Forked).
    pub fn share_receives(&mut self, pool: &ReceivePool) -> Result<()> {
        self.check_process()?;
        if self.pool.get_or_insert_with(|| pool.clone()) != pool {
            return Err(taken().into());
        }
        let keys: Vec<_> = self.slots.keys().collect();
        for key in keys {
            self.join_pool(key);
        }
        Ok(())
    }

    /// Lets a connection share the worker's pool, and has the worker advance it when its pool, or one that it is given
    /// later, has memory for it.
    pub(super) fn join_pool(&mut self, key: Key) {
        let handle = self.handle();
        let Some(Slot::Connection(link)) = self.slots.get_mut(key) else {
            return;
        };
        if let Some(pool) = &self.pool
            && !link.connection.has_receive_pool()
        {
            // It has none, so it takes this one.
            let _ = link.connection.set_receive_pool(pool);
        }
        let wake = move || handle.submit(move |worker| worker.on_memory(key));
        link.connection.driver.set_memory_wake(Some(Arc::new(wake)));
        // A peer may wait already.
        self.agenda.add(key, Due::Turn);
    }

    fn on_memory(&mut self, key: Key) {
        self.agenda.add(key, Due::Turn);
    }
}

impl WorkerHandle {
    /// See [`Worker::share_receives`]. [`ConnectionHandle::message`] returns the messages.
    pub fn share_receives(&self, pool: &ReceivePool) -> Pending<()> {
        let pool = pool.clone();
        self.call(move |worker| worker.share_receives(&pool))
    }
}

impl ConnectionHandle {
    /// See [`Connection::set_receive_pool`](crate::Connection::set_receive_pool).
    pub fn set_receive_pool(&self, pool: &ReceivePool) -> Pending<()> {
        let pool = pool.clone();
        self.with(move |connection| connection.set_receive_pool(&pool))
    }

    /// The next message that took memory of a [`ReceivePool`].
    pub fn message(&self) -> Pending<Completion> {
        let (id, worker) = (self.id(), self.worker());
        let (claim, pending) = Pending::new(
            worker.process(),
            Some(Box::new(move |unread| {
                worker.submit(move |worker| {
                    if let Some(claims) = worker.claims(id) {
                        claims.give_up_message(unread);
                    }
                });
            })),
        );
        self.worker().submit(move |worker| {
            if let Some(claims) = worker.claims(id) {
                claims.await_message(claim);
            }
            worker.note_asked(id);
        });
        pending
    }
}
