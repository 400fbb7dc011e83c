//! Requests in progress: what of them has arrived.

use crate::{Connection, Result};
use std::time::Duration;
use zerolane_lane::{SharedRegion, TransferId};

/// # Partial arrival
///
/// What a receive, a read, a get or the payload of a message brings is there from its start on, long before
/// all of it is. A reader may look at that, pass it on, or stop early: [`Connection::cancel`], and
/// [`Completion::arrived`](crate::Completion::arrived) says how many bytes are good. Bytes behind are undefined.
///
/// A relay forwards while it receives:
///
/// ```
/// # use zerolane::{Connection, Endpoint, Options, Region, Work};
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
/// while let Some(arrived) = connection.wait_arrived(id, passed_on, None)? {
///     let part = connection.share_arrived(id).expect("in progress");
///     let news = part.slice(passed_on as usize, part.len() - passed_on as usize);
///     // For example: to_the_next.post_put(&key, passed_on, news, Work::default())?;
/// #   assert!(news.iter().all(|&byte| byte == 7));
///     passed_on = arrived;
/// }
/// let done = connection.wait(None)?.expect("it is over");
/// assert_eq!(done.arrived(), 1 << 20);
/// # source.join().unwrap()?;
/// # Ok::<(), zerolane::Error>(())
/// ```
impl Connection {
    /// Bytes at the start of what request `id` receives or gets that are verified and in place. It
    /// never becomes less. `None` if no such request is in progress.
    pub fn arrived(&self, id: TransferId) -> Option<u64> {
        self.driver.arrived(id)
    }

    /// Waits until more than `beyond` bytes of request `id` have arrived; returns how many. `None` on
    /// timeout, when a [`Waker`](crate::Waker) was used, and when the request is over.
    ///
    /// # Errors
    /// The connection's.
    pub fn wait_arrived(
        &mut self,
        id: TransferId,
        beyond: u64,
        timeout: Option<Duration>,
    ) -> Result<Option<u64>> {
        let more = |arrived: Option<u64>| arrived.is_none_or(|arrived| arrived > beyond);
        self.driver
            .wait(timeout, |driver| more(driver.arrived(id)))?;
        Ok(self.arrived(id).filter(|arrived| *arrived > beyond))
    }

    /// Copies what has arrived of request `id`, from `offset` on. Returns how many bytes there were.
    pub fn read_arrived(&self, id: TransferId, offset: u64, into: &mut [u8]) -> usize {
        self.driver.read_arrived(id, offset, into)
    }

    /// What has arrived of request `id`, to be looked at and sent on, in any thread, while the rest is received.
    /// From here on the request's memory is shared, and comes back so with its completion;
    /// [`Completion::into_region`](crate::Completion::into_region) gives it back as a region when no part of it
    /// is left elsewhere. `None` if no such request is in progress.
    pub fn share_arrived(&mut self, id: TransferId) -> Option<SharedRegion> {
        self.driver.share_arrived(id)
    }
}
