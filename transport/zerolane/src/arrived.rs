//! Reports how much of a request in progress has arrived, and shares that part.

use crate::connection::Connection;
use crate::error::Result;
use crate::id::RequestId;
use std::time::Duration;
use zerolane_lane::{OnWake, SharedRegion, Waited};

/// # Partial arrival
///
/// The bytes of a receive, a read, a get or a message's payload arrive from the start of the memory on. A reader may
/// read the part that has arrived, pass it on, or stop early with [`Connection::cancel`];
/// [`Completion::arrived`](crate::Completion::arrived) then says how many bytes are valid. The bytes after them are
/// undefined.
///
/// A relay forwards while it receives:
///
/// ```
/// # use zerolane::{Connection, Endpoint, Options, Region, Waited};
/// # let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
/// # let address = endpoint.local_addr();
/// # let source = std::thread::spawn(move || -> zerolane::Result<()> {
/// #     let mut connection = Connection::connect(address, &Options::default())?;
/// #     connection.send(&[7; 1 << 20])?;
/// #     connection.close()
/// # });
/// # let mut connection = endpoint.accept(None)?.expect("no timeout");
/// let id = connection.post_recv(Region::anonymous(1 << 20)?)?;
/// let mut passed_on = 0;
/// while let Waited::Got(Some(arrived)) = connection.wait_arrived(id, passed_on, None)? {
///     let part = connection.share_arrived(id).expect("in progress");
///     let news = part.slice(passed_on as usize, part.len() - passed_on as usize);
///     // For example: to_the_next.post(Put::new(&key, passed_on, news))?;
/// #   assert!(news.iter().all(|&byte| byte == 7));
///     passed_on = arrived;
/// }
/// let done = connection.wait(None)?.got().expect("it is over");
/// assert_eq!(done.arrived(), Some(1 << 20));
/// # source.join().unwrap()?;
/// # Ok::<(), zerolane::Error>(())
/// ```
impl Connection {
    /// Bytes at the start of request `id`'s memory that are verified and in place. The number never decreases. `None`
    /// if no such receive or get is in progress.
    pub fn arrived(&self, id: RequestId) -> Option<u64> {
        self.driver.arrived(self.poster.number_of(id)?)
    }

    /// Waits until more than `beyond` bytes of request `id` have arrived; returns how many, or `None` when the request
    /// is over.
    ///
    /// # Errors
    /// The connection ended.
    pub fn wait_arrived(
        &mut self,
        id: RequestId,
        beyond: u64,
        timeout: Option<Duration>,
    ) -> Result<Waited<Option<u64>>> {
        let more = |arrived: Option<u64>| arrived.is_none_or(|arrived| arrived > beyond);
        let own = self.poster.number_of(id);
        let waited = self.driver.wait(timeout, OnWake::Return, |driver| {
            more(own.and_then(|id| driver.arrived(id)))
        })?;
        let arrived = self.arrived(id);
        Ok(match more(arrived) {
            true => Waited::Got(arrived),
            false => waited.in_vain(),
        })
    }

    /// Copies the bytes of request `id` that have arrived, from `offset` on. Returns how many it copied.
    pub fn read_arrived(&self, id: RequestId, offset: u64, into: &mut [u8]) -> usize {
        let own = self.poster.number_of(id);
        own.map_or(0, |id| self.driver.read_arrived(id, offset, into))
    }

    /// Shares the part of request `id` that has arrived: any thread can read it or send it on while the rest is
    /// received. From here on the request's memory is shared, also in its completion;
    /// [`Completion::into_region`](crate::Completion::into_region) turns it back into a region once no other reference
    /// is left. `None` if no such request is in progress.
    pub fn share_arrived(&mut self, id: RequestId) -> Option<SharedRegion> {
        self.driver.share_arrived(self.poster.number_of(id)?)
    }
}
