//! Lets handles read parts of requests in progress, and announcements.

use super::Slot;
use super::arrivals::{Arrivals, Standing};
use super::handle::ConnectionHandle;
use super::pending::{Claim, Pending, gone};
use crate::connection::Connection;
use crate::id::RequestId;
use zerolane_lane::SharedRegion;

/// # Partial arrival
///
/// Works as [for a `Connection`](Connection#partial-arrival): [`Pending::id`] identifies a request in progress. To stop
/// early, drop its [`Pending`].
///
/// ```
/// # use zerolane::worker::Worker;
/// # use zerolane::{Options, Region};
/// # let worker = Worker::new()?.spawn()?;
/// # let endpoint = worker.listen("127.0.0.1:0", Options::default()).wait()?;
/// # let client = worker.connect(endpoint.local_addr(), &Options::default()).wait()?;
/// # let server = endpoint.accept().wait()?;
/// let sending = client.send(Region::from_vec(vec![7; 1 << 20]));
/// let length = server.announced().wait()?;
/// let receiving = server.recv(Region::anonymous(length as usize)?);
/// let id = receiving.id();
/// let mut seen = 0;
/// while let Some(arrived) = server.wait_arrived(id, seen).wait()? {
///     if let Some(part) = server.share_arrived(id).wait()? {
///         assert!(part[seen as usize..].iter().all(|&byte| byte == 7));
///     }
///     seen = arrived;
/// }
/// assert_eq!(receiving.wait()?.result?, 1 << 20);
/// # sending.wait()?.result?;
/// # Ok::<(), zerolane::Error>(())
/// ```
impl ConnectionHandle {
    /// The length, in bytes, of the next announced Transfer that no receive matches: see [`Connection::announced`].
    pub fn announced(&self) -> Pending<u64> {
        self.await_arrival(Arrivals::await_announced)
    }

    /// Bytes at the start of request `id`'s memory that are verified and in place; 0 while it waits for room. `None` if
    /// no such receive or get is in progress.
    pub fn arrived(&self, id: RequestId) -> Pending<Option<u64>> {
        self.with_request(id, |connection, standing| match standing {
            Standing::Waits => Some(0),
            Standing::Posted(id) => connection.arrived(id),
            Standing::Over => None,
        })
    }

    /// Answers when more than `beyond` bytes of request `id` have arrived, with how many. `None` when the request is
    /// over, or receives nothing. Dropping the returned [`Pending`] does not affect the request.
    pub fn wait_arrived(&self, id: RequestId, beyond: u64) -> Pending<Option<u64>> {
        self.await_arrival(move |arrivals, claim| arrivals.await_part(id, beyond, claim))
    }

    /// Shares the part of request `id` that has arrived: see [`Connection::share_arrived`]. `None` if no such request
    /// is in progress, or it waits for room.
    pub fn share_arrived(&self, id: RequestId) -> Pending<Option<SharedRegion>> {
        self.with_request(id, |connection, standing| match standing {
            Standing::Posted(id) => connection.share_arrived(id),
            Standing::Waits | Standing::Over => None,
        })
    }

    /// Has the worker call `look` with the connection and the state of request `id`.
    fn with_request<T: Send + 'static>(
        &self,
        id: RequestId,
        look: impl FnOnce(&mut Connection, Standing) -> T + Send + 'static,
    ) -> Pending<T> {
        let connection = self.id();
        self.worker().call(move |worker| {
            let Some(Slot::Connection(link)) = worker.slots.get_mut(connection.0) else {
                return Err(gone());
            };
            let standing = link.claims.standing(id);
            Ok(look(&mut link.connection, standing))
        })
    }

    /// Adds a claim to the connection's waits for arrivals.
    fn await_arrival<T: Send + 'static>(
        &self,
        keep: impl FnOnce(&mut Arrivals, Claim<T>) + Send + 'static,
    ) -> Pending<T> {
        let (id, worker) = (self.id(), self.worker());
        let (claim, pending) = Pending::new(
            worker.process(),
            Some(Box::new(move |_| {
                worker.submit(move |worker| {
                    if let Some(Slot::Connection(link)) = worker.slots.get_mut(id.0)
                        && let Some(arrivals) = link.claims.arrivals()
                    {
                        arrivals.give_up();
                    }
                });
            })),
        );
        self.worker().submit(move |worker| {
            if let Some(Slot::Connection(link)) = worker.slots.get_mut(id.0)
                && let Some(arrivals) = link.claims.arrivals()
            {
                keep(arrivals, claim);
                link.claims.report_arrivals(&link.connection);
            }
        });
        pending
    }
}
