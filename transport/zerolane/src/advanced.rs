//! Exposes what few programs need: sequences and shares of the thesis, its names, and counters of a network card.

pub mod st;

use crate::connection::Connection;
use crate::key::RegionKey;
#[cfg(doc)]
use crate::options::Scheduler;
use zerolane_wire::Rights;

pub use crate::request::read::{Offer, Read};
pub use zerolane_lane::{FastAnswer, XdpCounters};

/// # Advanced
impl Connection {
    /// Asks for fast mode: this connection receives at full speed, and the other connections of its [`Scheduler`] at a
    /// trickle. Granted for the payload announced so far, for a tenth of a second at most, if no other connection has
    /// it; ask again for more. Always granted to a connection without a scheduler, or in shared memory, which competes
    /// with no other.
    ///
    /// ```
    /// use zerolane::advanced::FastAnswer;
    /// use zerolane::{Connection, Endpoint, Options};
    /// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
    /// let address = endpoint.local_addr();
    /// let sender = std::thread::spawn(move || -> zerolane::Result<()> {
    ///     let mut connection = Connection::connect(address, &Options::default())?;
    ///     connection.send(&[7; 1 << 20])?;
    ///     connection.close()
    /// });
    /// let mut connection = endpoint.accept(None)?.expect("no timeout");
    /// let length = connection.announced(None)?.got().expect("no timeout");
    /// if length > 64 << 10 {
    ///     assert_eq!(connection.request_fast(), FastAnswer::Granted);
    /// }
    /// let mut buffer = vec![0; length as usize];
    /// assert_eq!(connection.recv_into(&mut buffer)?, 1 << 20);
    /// connection.close()?;
    /// sender.join().unwrap()?;
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    pub fn request_fast(&mut self) -> FastAnswer {
        self.driver.request_fast()
    }

    /// Sets this connection's share of the link while other connections of its scheduler receive too, relative to
    /// theirs. 1 unless set; 0 counts as 1. No effect on a connection without a scheduler, or in shared memory.
    pub fn set_weight(&mut self, weight: u32) {
        self.driver.set_weight(weight);
    }

    /// Whether a put of `bytes` to `offset` would be sent at once. Otherwise it waits, or is announced, which takes
    /// another round trip, and messages posted after it wait until it completes.
    pub fn puts_at_once(&mut self, to: &RegionKey, offset: u64, bytes: u64) -> bool {
        let place = to.place(offset, bytes, Rights::WRITE);
        place.is_ok_and(|place| self.driver.puts_at_once(place, bytes))
    }
}
