//! A worker inside tokio.

use super::Worker;
use crate::Result;
use rustix::fd::OwnedFd;
use std::os::fd::AsFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Calls of [`Worker::progress`] before other tasks get their turn.
const ROUNDS: usize = 4;

impl Worker {
    /// Runs as a task, until it is stopped ([`WorkerHandle::stop`](super::WorkerHandle::stop)): spawn it, and use its
    /// [`handle`](Worker::handle). Other tasks of its thread get their turn; while one of them blocks, peers are not
    /// served. The future may be dropped at any moment: the worker goes with it, as dropped.
    ///
    /// Events of connections and endpoints that have no handle are dropped.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap().block_on(async {
    /// use zerolane::worker::Worker;
    /// use zerolane::{Options, Region};
    /// let worker = Worker::new()?;
    /// let handle = worker.handle();
    /// let running = tokio::spawn(worker.run());
    /// let endpoint = handle.listen("127.0.0.1:0".parse().unwrap(), Options::default()).await?;
    /// let server = tokio::spawn(async move {
    ///     let connection = endpoint.accept().await?;
    ///     let mut received = connection.recv(Region::anonymous(4096)?).await?;
    ///     let len = received.result?;
    ///     let mut bytes = received.into_region();
    ///     bytes.split_off(len);
    ///     connection.send(bytes).await?;
    ///     connection.close().await?;
    ///     Ok::<(), zerolane::Error>(())
    /// });
    /// # let address = "127.0.0.1:0".parse().unwrap();
    /// # let _: std::net::SocketAddr = address;
    /// # server.abort();
    /// handle.stop();
    /// running.await.expect("no panic")?;
    /// # Ok::<(), zerolane::Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The system refuses something; or there is no tokio runtime with IO.
    ///
    /// # Panics
    /// Outside a tokio runtime, or in one without IO.
    pub async fn run(mut self) -> Result<()> {
        let descriptor: OwnedFd = self.as_fd().try_clone_to_owned()?;
        // Its successor is unsafe, for a type that gives out another descriptor each time. An OwnedFd does not.
        #[allow(deprecated)]
        let readable = AsyncFd::with_interest(descriptor, Interest::READABLE)?;
        loop {
            let mut more = true;
            for _ in 0..ROUNDS {
                more = self.progress()?;
                while self.next_event().is_some() {}
                if self.is_over() {
                    return Ok(());
                }
                if !more {
                    break;
                }
            }
            if more || !self.arm()? {
                tokio::task::yield_now().await;
                continue;
            }
            // Cleared first: what comes after the look in `arm` is a new edge.
            readable.readable().await?.clear_ready();
        }
    }
}
