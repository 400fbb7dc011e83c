//! Runs a worker as a tokio task.

use super::Worker;
use crate::error::Result;
use rustix::fd::OwnedFd;
use std::os::fd::AsFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Calls of [`Worker::progress`] before the task yields to others.
const ROUNDS: usize = 4;

impl Worker {
    /// Runs as a task until it is stopped ([`WorkerHandle::stop`](super::WorkerHandle::stop)): spawn it, and use its
    /// [`handle`](Worker::handle). It yields to other tasks of its thread; while one of them blocks, peers are not
    /// served. The future may be dropped at any moment, which drops the worker.
    ///
    /// Events of connections and endpoints without a handle are dropped.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap().block_on(async {
    /// use zerolane::worker::Worker;
    /// use zerolane::{Options, Region};
    /// let worker = Worker::new()?;
    /// let handle = worker.handle();
    /// let running = tokio::spawn(worker.run());
    /// let endpoint = handle.listen("127.0.0.1:0", Options::default()).await?;
    /// let server = tokio::spawn(async move {
    ///     let connection = endpoint.accept().await?;
    ///     let mut received = connection.recv(Region::anonymous(4096)?).await?;
    ///     let len = received.result?;
    ///     let mut bytes = received.into_region()?;
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
    /// A system call failed; or there is no tokio runtime with IO.
    ///
    /// # Panics
    /// Called outside a tokio runtime, or in one without IO.
    pub async fn run(mut self) -> Result<()> {
        let descriptor: OwnedFd = self.as_fd().try_clone_to_owned()?;
        // Its successor is unsafe, to exclude types that return a different descriptor each time. An OwnedFd does not.
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
            // Cleared before the check in `arm`: whatever arrives after it is a new edge.
            readable.readable().await?.clear_ready();
        }
    }
}
