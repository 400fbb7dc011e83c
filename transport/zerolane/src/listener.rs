//! Listens on an address, and makes connections of what comes.

use crate::addresses::{ToAddresses, resolved};
use crate::connection::Connection;
use crate::error::{Error, Result};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use zerolane_lane::{
    Accept, AnyLane, Driver, GateCounters, ListenerCounters, NoSharedMemory, Options, Process,
    PublicKey, Untrusted,
};

/// An endpoint of a worker: see [`Worker::endpoint`](crate::worker::Worker::endpoint).
#[derive(Debug)]
pub struct Listener {
    lane: zerolane_lane::Listener,
    /// Those of its connections.
    options: Options,
}

impl Listener {
    /// Listens on the first free address of `on`.
    ///
    /// # Errors
    /// There is no address, or none of them can be listened on.
    pub(crate) fn bind(on: impl ToAddresses, options: Options) -> Result<Listener> {
        let mut last = Error::NoAddress;
        for address in resolved(on, options.lane.choice)? {
            match zerolane_lane::Listener::bind(address, options.clone()) {
                Ok(lane) => return Ok(Listener { lane, options }),
                Err(error) => last = Error::Io(error),
            }
        }
        Err(last)
    }

    /// Listens on a UDP socket that another program opened and bound.
    ///
    /// # Errors
    /// The socket is not a bound and unconnected UDP socket, or connections could not share its address.
    pub(crate) fn adopt(socket: OwnedFd, options: Options) -> Result<Listener> {
        let lane = zerolane_lane::Listener::adopt(socket, options.clone())?;
        Ok(Listener { lane, options })
    }

    /// The address listened on.
    pub fn local_addr(&self) -> SocketAddr {
        self.lane.local_addr()
    }

    /// See [`Endpoint::public_key`](crate::Endpoint::public_key).
    pub fn public_key(&self) -> Option<PublicKey> {
        self.lane.public_key()
    }

    /// See [`Endpoint::no_shared_memory`](crate::Endpoint::no_shared_memory).
    pub fn no_shared_memory(&self) -> Option<NoSharedMemory> {
        self.lane.no_shared_memory()
    }

    /// See [`Endpoint::gate_counters`](crate::Endpoint::gate_counters).
    pub fn gate_counters(&self) -> Option<GateCounters> {
        self.lane.gate_counters().copied()
    }

    /// See [`Endpoint::counters`](crate::Endpoint::counters).
    pub fn counters(&self) -> ListenerCounters {
        self.lane.counters()
    }

    /// See [`Endpoint::is_spent`](crate::Endpoint::is_spent).
    pub fn is_spent(&self) -> bool {
        self.lane.is_spent()
    }

    pub(crate) fn take_untrusted(&mut self) -> Untrusted {
        self.lane.take_untrusted()
    }

    pub(crate) fn give_to(&mut self, uid: u32) -> io::Result<()> {
        self.lane.give_to(uid)
    }

    pub(crate) fn process(&self) -> Process {
        self.lane.process()
    }

    /// How many connections its program lets a thread accept ahead.
    pub(crate) fn backlog(&self) -> u16 {
        self.options.listen.backlog
    }

    /// Whether its program decides about each request.
    pub(crate) fn asks(&self) -> bool {
        self.options.listen.asks
    }

    /// The keys of connections from whose peers datagrams came at new addresses.
    pub(crate) fn keys_at_new_addresses(&self) -> Vec<u32> {
        self.lane.keys_at_new_addresses()
    }

    /// Waits for the next connection; `None` on timeout.
    ///
    /// # Errors
    /// The socket failed.
    pub(crate) fn accept(&mut self, timeout: Option<Duration>) -> Result<Option<Connection>> {
        let driver = self.lane.accept(timeout)?;
        Ok(driver.map(|driver| self.connection(driver)))
    }

    /// Processes one datagram or one process of this host. A driver becomes a connection by [`Listener::connection`].
    ///
    /// # Errors
    /// The socket failed.
    pub(crate) fn try_accept(&mut self) -> io::Result<Accept> {
        self.lane.try_accept()
    }

    /// Makes a connection of a driver that this listener accepted.
    pub(crate) fn connection(&self, driver: Driver<AnyLane>) -> Connection {
        let mut connection = Connection::accepted(driver, &self.options);
        // Sends the answer now, so that the peer need not wait for the caller's next call. An error shows in that call.
        let _ = connection.poll();
        connection
    }
}

/// Readable when it has something to accept.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lane.as_fd()
    }
}
