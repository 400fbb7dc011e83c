//! Defines the pool of memory that the messages of many connections share.

use crate::completion::Completion;
use crate::connection::Connection;
use crate::error::{Error, Refused, Result};
use std::io;
use zerolane_lane::{CloseReason, Process, Region};

/// Memory for messages, shared by any number of connections (`ibv_srq`, a shared receive context of libfabric): a
/// server of a thousand clients needs memory for the messages of those that send, not for each that may.
///
/// A message takes the first piece when it arrives and no posted receive matches it
/// ([`ReceiveMessage`](crate::request::ReceiveMessage)), so an idle connection holds none. Its completion, of the kind
/// [`MessageReceived`](crate::request::Output::MessageReceived), has the memory and the context that was given with it.
/// [`Completion::recycle`] puts it back. A message longer than its piece fails as with a posted receive, at both ends,
/// and no other does.
///
/// While the pool is empty, peers wait as they do for a receive that is not posted yet; [`ReceivePool::add`] lets them
/// continue, from any thread, also while the connection's thread sleeps. It is fair: who holds none is served in the
/// order of waiting, and a connection holds at most as many pieces, of messages that are not complete, as are left. So a
/// peer that begins messages and never ends them cannot take all.
///
/// Memory that no message used returns to the pool when its connection ends. A peer that finishes sending
/// ([`Connection::finish`]) is not reported: nothing was posted that could fail.
///
/// ```
/// use zerolane::request::Message;
/// use zerolane::worker::{Event, Worker};
/// use zerolane::{Connection, Options, ReceivePool, Region};
/// let pool = ReceivePool::new();
/// for context in 0..16 {
///     pool.add(Region::anonymous(4096)?, context)?;
/// }
/// let mut worker = Worker::new()?;
/// worker.share_receives(&pool)?;
/// let endpoint = worker.listen("127.0.0.1:0", Options::default())?;
/// let address = worker.endpoint(endpoint).expect("it listens").local_addr();
/// let clients: Vec<_> = (0..3).map(|_| {
///     std::thread::spawn(move || -> zerolane::Result<()> {
///         let mut connection = Connection::connect(address, &Options::default())?;
///         connection.post(Message::new(b"hello").payload(Region::from_vec(vec![7; 1000])))?;
///         connection.close()
///     })
/// }).collect();
/// let mut received = 0;
/// while received < clients.len() {
///     worker.wait(None)?;
///     while let Some(event) = worker.next_event() {
///         if let Event::Completed { completion, .. } = event {
///             assert_eq!((completion.control(), completion.result), (Some(&b"hello"[..]), Ok(1000)));
///             received += 1;
///             completion.recycle();
///         }
///     }
/// }
/// # drop(worker);
/// # for client in clients {
/// #     let _ = client.join().unwrap();
/// # }
/// # Ok::<(), zerolane::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivePool {
    shared: zerolane_lane::ReceivePool,
    process: Process,
}

impl Default for ReceivePool {
    fn default() -> ReceivePool {
        ReceivePool::new()
    }
}

impl ReceivePool {
    /// An empty pool.
    pub fn new() -> ReceivePool {
        ReceivePool {
            shared: zerolane_lane::ReceivePool::default(),
            process: Process::current(),
        }
    }

    /// Adds memory for the payload of one message, or an empty region for one without payload. `context` returns with
    /// its completion.
    ///
    /// # Errors
    /// The pool is closed, or [`Error::Forked`]. The memory comes back.
    pub fn add(&self, memory: Region, context: u64) -> std::result::Result<(), Refused<Region>> {
        let added = self.shared.add(memory, context);
        added.map_err(|memory| Refused {
            error: match self.process.is_current() {
                true => Error::Closed(CloseReason::Local),
                false => Error::Forked,
            },
            memory,
        })
    }

    /// The number of pieces that no message has taken.
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether peers must wait.
    pub fn is_empty(&self) -> bool {
        self.shared.is_empty()
    }

    /// Takes out the first piece that no message has taken, with its context.
    pub fn remove(&self) -> Option<(Region, u64)> {
        self.shared.remove()
    }

    /// Ends the pool: no message takes memory of it any more, and nothing can be added. Messages that have memory
    /// continue. What no message has taken, and what returns from connections that end, stays for
    /// [`ReceivePool::remove`].
    pub fn close(&self) {
        self.shared.close();
    }

    /// Calls `notice` once when less than `limit` pieces are left, at once if that is so now
    /// (`IBV_EVENT_SRQ_LIMIT_REACHED`). It replaces an earlier notice, runs in the thread that drives a connection, and
    /// must not block.
    pub fn notify_below(&self, limit: usize, notice: impl FnOnce() + Send + 'static) {
        self.shared.notify_below(limit, notice);
    }
}

impl Connection {
    /// Takes memory of `pool` for messages that no posted receive matches, from now on and for the life of the
    /// connection.
    ///
    /// # Errors
    /// The connection shares another pool.
    pub fn set_receive_pool(&mut self, pool: &ReceivePool) -> Result<()> {
        match self.driver.share_receives(&pool.shared) {
            true => Ok(()),
            false => Err(taken().into()),
        }
    }

    /// Whether it shares a pool of its own.
    pub(crate) fn has_receive_pool(&self) -> bool {
        self.driver.receive_pool().is_some()
    }
}

impl Completion {
    /// Puts the memory of a message back into the pool that it came from, with its context. False if it came from none,
    /// or was taken out.
    pub fn recycle(mut self) -> bool {
        let Some(pool) = self.pool.take() else {
            return false;
        };
        let context = self.context;
        let Ok(region) = self.into_region() else {
            return false;
        };
        pool.give_back(region, context);
        true
    }
}

pub(crate) fn taken() -> io::Error {
    let text = "another receive pool is shared already, and stays";
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
