//! Releases a connection from its worker on behalf of a handle.

use super::handle::ConnectionHandle;
use super::pending::{Pending, gone};
use super::{ConnectionId, Slot, Worker};
use crate::connection::Connection;
use crate::error::{Error, Result};

impl ConnectionHandle {
    /// Takes the connection out of its worker, so that its caller can drive it or give it to another worker
    /// ([`WorkerHandle::adopt`](super::WorkerHandle::adopt)), as [`Worker::release`] does. Requests of all clones of
    /// this handle are refused from then on. If the answer is not waited for, the connection is closed.
    ///
    /// [`Error::InUse`] if requests of its handles are not over, or if received immediates or Transfers are kept:
    /// nothing is lost, and the connection stays. A connection that was just accepted has neither, unless its client
    /// already put an immediate.
    ///
    /// Example: several workers, one a core, behind one port. One accepts, and hands over.
    ///
    /// ```
    /// use zerolane::worker::Worker;
    /// use zerolane::{Connection, Options};
    /// let front = Worker::new()?.spawn()?;
    /// let others = [Worker::new()?.spawn()?, Worker::new()?.spawn()?];
    /// let endpoint = front.listen("127.0.0.1:0", Options::default()).wait()?;
    /// let address = endpoint.local_addr();
    /// let clients: Vec<_> = (0..4).map(|_| {
    ///     std::thread::spawn(move || -> zerolane::Result<()> {
    ///         let mut connection = Connection::connect(address, &Options::default())?;
    ///         connection.recv_into(&mut [0; 5])?;
    ///         connection.close()
    ///     })
    /// }).collect();
    /// for n in 0..clients.len() {
    ///     let connection = endpoint.accept().wait()?.release().wait()?;
    ///     let connection = others[n % others.len()].adopt(connection).wait()?;
    ///     connection.send(zerolane::Region::from_vec(b"hello".to_vec())).wait()?.result?;
    /// }
    /// for client in clients {
    ///     client.join().unwrap()?;
    /// }
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    pub fn release(&self) -> Pending<Connection> {
        let id = self.id();
        self.worker().call(move |worker| worker.release_idle(id))
    }
}

impl Worker {
    fn release_idle(&mut self, id: ConnectionId) -> Result<Connection> {
        if let Some(Slot::Connection(link)) = self.slots.get(id.0)
            && !link.claims.is_idle()
        {
            return Err(Error::InUse);
        }
        self.release(id).ok_or_else(gone)
    }
}
