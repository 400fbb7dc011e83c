//! A connection as its user sees it.

use crate::failure::Posted;
use crate::vectored::Vectored;
use crate::{Completion, CompletionQueue, Error, Result, Work};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use zerolane_lane::AnyLane;
use zerolane_lane::{
    Account, CloseReason, Delivery, Driver, FastAnswer, Memory, Options, PathAddresses, PathState,
    PublicKey, Region, TransferError, TransferId, Waker, WorkRequest, limits,
};

/// How long [`Connection::close`] waits while nothing of what was posted comes any further, in idle timeouts.
const LINGER_IDLE_TIMEOUTS: u32 = 1;

/// A virtual connection. Its caller drives it: progress is made inside its methods, in the calling
/// thread, and nowhere else. A peer that makes no call for the idle timeout while we
/// wait for it is taken for dead.
///
/// After `fork` it belongs to the parent: calls in the child fail with [`Error::Forked`], or do nothing. The child may drop its copy,
/// of which the peer is not told, and connect anew.
///
/// ```
/// use zerolane::{Connection, Endpoint, Options};
/// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
/// let address = endpoint.local_addr();
/// let receiver = std::thread::spawn(move || -> zerolane::Result<Vec<u8>> {
///     let mut connection = endpoint.accept(None)?.expect("no timeout");
///     let mut buffer = vec![0; 1 << 20];
///     let len = connection.recv_into(&mut buffer)?;
///     buffer.truncate(len);
///     connection.close()?;
///     Ok(buffer)
/// });
/// let mut connection = Connection::connect(address, &Options::default())?;
/// connection.send(b"one send is one receive")?;
/// connection.close()?;
/// assert_eq!(receiver.join().unwrap()?, b"one send is one receive");
/// # Ok::<(), zerolane::Error>(())
/// ```
#[derive(Debug)]
pub struct Connection {
    pub(crate) driver: Driver<AnyLane>,
    idle_timeout: Duration,
    /// Requests of several pieces.
    pub(crate) vectored: Vectored,
    /// The queue that gets the completions instead, and their tag.
    queue: Option<(CompletionQueue, u64)>,
    /// Completions that the program took for others, who have not looked at them.
    kept: usize,
    /// The same of a worker, for handles.
    unasked: usize,
}

impl Connection {
    /// Connects to the first address of `to` that answers. Of a link-local address such as `[fe80::1%2]:9181` the standard library
    /// reads the number of the interface alone; [`lanes::resolve`](crate::lanes::resolve) takes its name, too.
    ///
    /// # Errors
    /// No address, no answer, or a rejection, which says why.
    pub fn connect(to: impl ToSocketAddrs, options: &Options) -> Result<Connection> {
        let mut last = Error::NoAddress;
        for address in to.to_socket_addrs().map_err(Error::Address)? {
            match Self::connect_one(address, options) {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn connect_one(address: SocketAddr, options: &Options) -> Result<Connection> {
        let mut driver = zerolane_lane::connect(address, options)?;
        driver.wait_through(None, Driver::is_connected)?;
        match driver.closed() {
            None => Ok(Connection::accepted(driver, options)),
            Some(CloseReason::ConnectTimeout) => {
                Err(Error::ConnectTimeout(options.connect_timeout))
            }
            Some(reason) => Err(Error::Closed(reason)),
        }
    }

    pub(crate) fn accepted(driver: Driver<AnyLane>, options: &Options) -> Connection {
        Connection {
            driver,
            idle_timeout: options.idle_timeout,
            vectored: Vectored::default(),
            queue: None,
            kept: 0,
            unasked: 0,
        }
    }

    /// From here on completions go to `queue`, tagged with `tag`, instead of being returned by
    /// [`Connection::poll`] and [`Connection::wait`], which make progress all the same.
    pub fn set_completion_queue(&mut self, queue: &CompletionQueue, tag: u64) {
        self.queue = Some((queue.clone(), tag));
    }

    /// How long [`Connection::poll`] has nothing to do unless the socket
    /// ([`AsFd`]) becomes readable, or writable if [`Connection::wants_write`], for programs with an
    /// event loop of their own. `None`: no timer runs. Zero: the last call moved something, and there
    /// may be more. Ask again after every call.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.driver.next_timeout()
    }

    /// Whether [`Connection::poll`] has something to do once the socket is writable: its send buffer was
    /// full.
    pub fn wants_write(&self) -> bool {
        self.driver.wants_write()
    }

    /// Sets how long a blocking call may take ([`Connection::send`], [`Connection::recv_into`],
    /// [`Connection::put`] and all others that wait for the end of a request): without end unless set.
    /// What takes longer is cancelled, and the call returns [`Error::TimedOut`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use zerolane::{Connection, Endpoint, Error, Options};
    /// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
    /// let address = endpoint.local_addr();
    /// let silent = std::thread::spawn(move || endpoint.accept(None));
    /// let mut connection = Connection::connect(address, &Options::default())?;
    /// connection.set_timeout(Some(Duration::from_millis(10)));
    /// let received = connection.recv_into(&mut [0; 8]);
    /// assert!(matches!(received, Err(Error::TimedOut(_))));
    /// # silent.join().unwrap()?;
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.driver.set_request_timeout(timeout);
    }

    /// This end's address at present; `None` while there is no way to the peer.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.driver.lane().local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.driver.lane().peer_addr()
    }

    /// The key that the peer proved to own; `None` in plain mode.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.driver.lane().peer_key()
    }

    /// Sends `data` as one Transfer; returns when the peer has all of it.
    ///
    /// `data` must stay readable, as any slice: if it is a mapping of a file that is truncated
    /// meanwhile, the process may get SIGBUS where payload is touched in user space (checksums).
    /// [`Region::map_file`] has no such hole.
    ///
    /// # Errors
    /// [`TransferError::MessageTooLarge`] if the receive it met was smaller; or the connection's.
    pub fn send(&mut self, data: &[u8]) -> Result<()> {
        let send = WorkRequest::Send {
            delivery: Delivery::Interrupt,
        };
        self.driver.lend_source(send, data)?.result?;
        Ok(())
    }

    /// Receives the next Transfer into `buffer`; returns its length in bytes.
    ///
    /// As with [`Connection::send`], a mapping whose file is truncated meanwhile may end in SIGBUS
    /// (where a misplaced datagram is moved); [`Region::map_file`] does not.
    ///
    /// # Errors
    /// [`TransferError::MessageTooLarge`] if the Transfer is larger than `buffer`: the sender fails
    /// with the same, nothing was written, and the next Transfer can be received. Or the
    /// connection's.
    pub fn recv_into(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let received = self.driver.lend_target(WorkRequest::Receive, buffer)?;
        Ok(received.result? as usize)
    }

    /// The same into memory that need not be initialised. The bytes that came, as many as are returned, are.
    ///
    /// # Errors
    /// As of [`Connection::recv_into`].
    pub fn recv_into_uninit(&mut self, buffer: &mut [MaybeUninit<u8>]) -> Result<usize> {
        let receive = WorkRequest::Receive;
        let received = self.driver.lend_target_uninit(receive, buffer)?;
        Ok(received.result? as usize)
    }

    /// Waits until the peer announces a Transfer that no posted receive takes, and returns its
    /// length in bytes, so that a buffer can be made to measure. `None` on timeout, or when a [`Waker`]
    /// was used.
    ///
    /// # Errors
    /// The connection's.
    pub fn announced(&mut self, timeout: Option<Duration>) -> Result<Option<u64>> {
        self.driver
            .wait(timeout, |driver| driver.announced().is_some())?;
        match (self.driver.announced(), self.driver.closed()) {
            (None, Some(reason)) => Err(Error::Closed(reason)),
            (length, _) => Ok(length),
        }
    }

    /// Posts a send; many may be in flight. Its memory comes back with the [`Completion`]. Several pieces, as
    /// a `Vec` of [`Memory`], are one Transfer, gathered where they lie.
    ///
    /// ```
    /// use zerolane::{Connection, Endpoint, Options, Region};
    /// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
    /// let address = endpoint.local_addr();
    /// let receiver = std::thread::spawn(move || -> zerolane::Result<u64> {
    ///     let mut connection = endpoint.accept(None)?.expect("no timeout");
    ///     for _ in 0..4 {
    ///         connection.post_recv(Region::anonymous(1 << 20)?)?;
    ///     }
    ///     let mut total = 0;
    ///     for _ in 0..4 {
    ///         let completion = connection.wait(None)?.expect("no timeout");
    ///         total += completion.result? as u64;
    ///     }
    ///     connection.close()?;
    ///     Ok(total)
    /// });
    /// let mut connection = Connection::connect(address, &Options::default())?;
    /// let shared = Region::anonymous(1 << 20)?.share();
    /// for _ in 0..4 {
    ///     connection.post_send(shared.clone())?;
    /// }
    /// connection.close()?; // flushes
    /// assert_eq!(receiver.join().unwrap()?, 4 << 20);
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    ///
    /// # Errors
    /// The connection is closed, or too many are posted. The memory comes back.
    pub fn post_send(&mut self, memory: impl Into<Memory>) -> Posted<Memory> {
        self.post_send_with(memory, Work::default())
    }

    /// Posts a send that is done as `work` says: how it is delivered to the receiver, whether it is
    /// signalled, its context. A [`Delivery`] or a context alone will do.
    ///
    /// # Errors
    /// The connection is closed, or too many are posted. The memory comes back.
    pub fn post_send_with(
        &mut self,
        memory: impl Into<Memory>,
        work: impl Into<Work>,
    ) -> Posted<Memory> {
        let work = work.into();
        let send = WorkRequest::Send {
            delivery: work.delivery,
        };
        self.driver.post_source(send, work.report(), memory.into())
    }

    /// Posts a receive: the n-th posted gets the n-th Transfer sent, if it fits. Receives complete as their
    /// Transfers do: where a datagram was lost, a later one may be complete first. (Those of verbs complete in order;
    /// [`InOrder`](crate::request::InOrder) takes them so.)
    ///
    /// # Errors
    /// The connection is closed, or too many are posted. The region comes back.
    pub fn post_recv(&mut self, region: Region) -> Posted<Region> {
        self.post_recv_with(region, Work::default())
    }

    /// The same, with a context, or unsignalled (then the region is freed on success). Nothing else of
    /// `work` has a meaning here.
    ///
    /// # Errors
    /// As of [`Connection::post_recv`].
    pub fn post_recv_with(&mut self, region: Region, work: impl Into<Work>) -> Posted<Region> {
        let report = work.into().report();
        self.driver
            .post_target(WorkRequest::Receive, report, region)
    }

    /// Offers memory to the peer's next [`Connection::post_read`].
    ///
    /// # Errors
    /// The connection is closed, or too many are posted. The memory comes back.
    pub fn post_offer(&mut self, memory: impl Into<Memory>) -> Posted<Memory> {
        self.post_offer_with(memory, Work::default())
    }

    /// The same, done as `work` says: as [`Connection::post_send_with`].
    ///
    /// # Errors
    /// As of [`Connection::post_offer`].
    pub fn post_offer_with(
        &mut self,
        memory: impl Into<Memory>,
        work: impl Into<Work>,
    ) -> Posted<Memory> {
        let work = work.into();
        let offer = WorkRequest::Offer {
            delivery: work.delivery,
        };
        self.driver.post_source(offer, work.report(), memory.into())
    }

    /// Reads what the peer offers, when it does (the Read sequence).
    ///
    /// # Errors
    /// The connection is closed, or too many are posted. The region comes back.
    pub fn post_read(&mut self, region: Region) -> Posted<Region> {
        self.post_read_with(region, Work::default())
    }

    /// The same, with a context: as [`Connection::post_recv_with`].
    ///
    /// # Errors
    /// As of [`Connection::post_read`].
    pub fn post_read_with(&mut self, region: Region, work: impl Into<Work>) -> Posted<Region> {
        let report = work.into().report();
        self.driver.post_target(WorkRequest::Read, report, region)
    }

    /// Asks to be told of the end of request `id`, however its sender wants it delivered: it ends a
    /// [`Connection::wait`], also if it is over and held back. False if there is no such request, or its
    /// completion was taken. For programs that wait for one request in particular; blocking calls do so
    /// by themselves.
    pub fn notify(&mut self, id: TransferId) -> bool {
        self.driver.notify(id)
    }

    /// Returns a completion that is there. If there is none, makes progress without sleeping, and looks
    /// again. It finds [`Delivery::Polled`] completions, too.
    ///
    /// # Errors
    /// The connection ended and all completions were taken.
    pub fn poll(&mut self) -> Result<Option<Completion>> {
        self.progress()?;
        self.take()
    }

    /// As [`Connection::poll`], for up to `max` completions, which go to the end of `into`: one turn for all of
    /// them. Returns how many.
    ///
    /// # Errors
    /// As of [`Connection::poll`].
    pub fn poll_batch(&mut self, into: &mut Vec<Completion>, max: usize) -> Result<usize> {
        self.progress()?;
        let before = into.len();
        while into.len() - before < max {
            match self.take() {
                Ok(Some(completion)) => into.push(completion),
                Ok(None) => break,
                // What was taken is returned first.
                Err(error) if into.len() == before => return Err(error),
                Err(_) => break,
            }
        }
        Ok(into.len() - before)
    }

    /// A turn, unless completions are there to be taken.
    fn progress(&mut self) -> Result<()> {
        self.check_process()?;
        if self.driver.closed().is_none() && !self.driver.has_completion() {
            self.driver.turn()?;
        }
        Ok(())
    }

    /// Waits for the next completion that wakes ([`Delivery::Interrupt`], and every failure); those that came
    /// before it are returned first. `None` on timeout, or when a [`Waker`] was used, however busy the
    /// connection is. A timeout of zero makes one turn and polls, as [`Connection::poll`] does.
    ///
    /// # Errors
    /// The connection ended and all completions were taken.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Completion>> {
        self.check_process()?;
        // A time beyond what the clock counts to is no limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let looks = timeout == Some(Duration::ZERO);
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if let Some((queue, tag)) = self.queue.clone() {
                if self.wait_to_hand_over(&queue, tag, left)? {
                    return self.end().map_or(Ok(None), Err);
                }
                continue;
            }
            if !self.driver.has_notice() {
                self.driver.wait(left, Driver::has_notice)?;
            }
            let told = self.driver.has_notice();
            if !told && !looks {
                return self.end().map_or(Ok(None), Err);
            }
            match self.take()? {
                // A piece of a request of several pieces is not reported.
                None if told => {}
                completion => return Ok(completion),
            }
        }
    }

    /// Waits until there are completions, and room for them in `queue`, and hands them over. Returns whether
    /// the wait is over: one of them wakes, or none came in time.
    fn wait_to_hand_over(
        &mut self,
        queue: &CompletionQueue,
        tag: u64,
        left: Option<Duration>,
    ) -> Result<bool> {
        if self.driver.has_completion() {
            // A queue that the program does not empty must not make the peer take us for dead.
            let waker = self.driver.waker();
            self.driver
                .wait(left, |_| queue.has_room_or_wakes(&waker))?;
        } else {
            self.driver.wait(left, Driver::has_completion)?;
        }
        let (count, told) = self.hand_over(queue, tag);
        let over = count == 0 || told || left == Some(Duration::ZERO);
        Ok(over || self.driver.closed().is_some() || self.driver.take_wake())
    }

    /// Hands as many completions to `queue` as fit. Returns how many, and whether one of them wakes.
    fn hand_over(&mut self, queue: &CompletionQueue, tag: u64) -> (usize, bool) {
        queue.fill(tag, || {
            let told = self.driver.has_notice();
            Some((self.next_whole()?, told))
        })
    }

    /// # Errors
    /// [`Error::Forked`]: it is of the parent process, or its queue is.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.driver.check_process()?;
        match &self.queue {
            Some((queue, _)) => queue.check_process(),
            None => Ok(()),
        }
    }

    fn take(&mut self) -> Result<Option<Completion>> {
        // What is taken is large, and most looks find nothing.
        if self.driver.has_completion() {
            if let Some((queue, tag)) = self.queue.clone() {
                self.hand_over(&queue, tag);
            } else if let Some(completion) = self.next_whole() {
                return Ok(Some(completion));
            }
        }
        self.end().map_or(Ok(None), Err)
    }

    /// The reason of the end, if all completions were taken.
    fn end(&self) -> Option<Error> {
        let reason = self.driver.closed()?;
        (!self.driver.has_completion()).then_some(Error::Closed(reason))
    }

    /// The next completion of a whole request.
    pub(crate) fn next_whole(&mut self) -> Option<Completion> {
        while let Some(completion) = self.driver.next_completion() {
            let whole = self.vectored.absorb(completion.into());
            if whole.is_some() {
                return whole;
            }
        }
        None
    }

    /// Tells how many completions the program took and keeps for parts of it that have not looked at them: immediates for
    /// whoever asks next, say. They count as completions that were not taken do: while there are 1024 of both the peer
    /// waits with messages and immediates, and with nothing else, until there are less than 512. None are kept unless told.
    ///
    /// The peer learns of it with the next call that makes progress.
    ///
    /// ```
    /// use std::collections::VecDeque;
    /// use zerolane::request::WorkKind;
    /// use zerolane::{Connection, Endpoint, ExportedRegion, Options, Region, Rights, Work};
    /// let memory = ExportedRegion::new(Region::anonymous(4096)?).expect("page-aligned");
    /// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
    /// let address = endpoint.local_addr();
    /// let client = std::thread::spawn(move || -> zerolane::Result<()> {
    ///     let mut connection = Connection::connect(address, &Options::default())?;
    ///     connection.recv_into(&mut [0; 8])?;
    ///     let key = connection.open_region("board", Rights::ALL)?;
    ///     for number in 0..3 {
    ///         let work = Work::default().with_immediate(number);
    ///         connection.post_put(&key, 0, Region::anonymous(8)?, work)?;
    ///     }
    ///     connection.send(b"put")?;
    ///     connection.close()
    /// });
    /// let mut connection = endpoint.accept(None)?.expect("no timeout");
    /// connection.export_named("board", &memory, Rights::ALL)?;
    /// connection.send(b"exported")?;
    /// connection.post_recv(Region::anonymous(8)?)?;
    /// let mut kept = VecDeque::new();
    /// loop {
    ///     let completion = connection.wait(None)?.expect("no timeout");
    ///     if completion.kind == WorkKind::Receive {
    ///         break;
    ///     }
    ///     kept.push_back(completion.value);
    ///     connection.set_kept(kept.len());
    /// }
    /// while let Some(number) = kept.pop_front() {
    ///     connection.set_kept(kept.len());
    ///     assert!(number < 3);
    /// }
    /// connection.close()?;
    /// client.join().unwrap()?;
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    pub fn set_kept(&mut self, kept: usize) {
        self.kept = kept;
        self.tell_kept();
    }

    /// The same of what a worker keeps for handles, beside what the program does.
    pub(crate) fn set_unasked(&mut self, unasked: usize) {
        self.unasked = unasked;
        self.tell_kept();
    }

    fn tell_kept(&mut self) {
        // More of them make no difference.
        let kept = self.kept.saturating_add(self.unasked);
        self.driver.set_kept(kept.min(limits::MAX_UNREAD));
    }

    /// Cancels a posted Transfer; it completes with [`TransferError::Cancelled`] and its memory is
    /// not touched any more. What had arrived of a receive is good ([`Completion::arrived`]). False if it is
    /// over already, or of the parent process.
    pub fn cancel(&mut self, id: TransferId) -> bool {
        self.driver.cancel(id)
    }

    /// Finishes sending, as TCP's half-close does: what was posted is delivered; sends and messages posted from
    /// here on are refused with [`PostError::Finished`]; and the peer's receives that none of it meets fail with
    /// [`TransferError::Finished`], those that it has posted and those that it posts later. The other direction
    /// goes on, and so does all that names memory: puts, gets, fetch-ops. Returns at once, and twice is once.
    ///
    /// The peer learns of it behind what was posted before: while messages wait for receives that it does not
    /// post, it may not learn of it.
    ///
    /// ```
    /// use zerolane::failure::TransferError;
    /// use zerolane::{Connection, Endpoint, Error, Options};
    /// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
    /// let address = endpoint.local_addr();
    /// let client = std::thread::spawn(move || -> zerolane::Result<[u8; 8]> {
    ///     let mut connection = Connection::connect(address, &Options::default())?;
    ///     for part in [[1; 100], [2; 100]] {
    ///         connection.send(&part)?;
    ///     }
    ///     connection.finish()?;
    ///     let mut sum = [0; 8];
    ///     connection.recv_into(&mut sum)?;
    ///     Ok(sum)
    /// });
    /// let mut connection = endpoint.accept(None)?.expect("no timeout");
    /// let (mut sum, mut part) = (0, [0; 100]);
    /// loop {
    ///     match connection.recv_into(&mut part) {
    ///         Ok(_) => sum += part.iter().map(|&byte| u64::from(byte)).sum::<u64>(),
    ///         Err(Error::Transfer(TransferError::Finished)) => break,
    ///         Err(error) => return Err(error),
    ///     }
    /// }
    /// connection.send(&sum.to_le_bytes())?;
    /// connection.close()?;
    /// assert_eq!(client.join().unwrap()?, 300u64.to_le_bytes());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The connection is closed.
    ///
    /// [`PostError::Finished`]: crate::failure::PostError::Finished
    pub fn finish(&mut self) -> Result<()> {
        Ok(self.driver.finish()?)
    }

    /// Asks for fast mode: this connection receives at full speed, and the others of its [`Scheduler`]
    /// at a trickle. Granted for what is announced at present, a
    /// tenth of a second at most, if no other connection has it; ask again for more. A connection
    /// without a scheduler, or in shared memory, has no others to hold back: always granted.
    ///
    /// ```
    /// use zerolane::options::FastAnswer;
    /// use zerolane::{Connection, Endpoint, Options};
    /// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
    /// let address = endpoint.local_addr();
    /// let sender = std::thread::spawn(move || -> zerolane::Result<()> {
    ///     let mut connection = Connection::connect(address, &Options::default())?;
    ///     connection.send(&[7; 1 << 20])?;
    ///     connection.close()
    /// });
    /// let mut connection = endpoint.accept(None)?.expect("no timeout");
    /// let length = connection.announced(None)?.expect("no timeout");
    /// if length > 64 << 10 {
    ///     assert_eq!(connection.request_fast(), FastAnswer::Granted);
    /// }
    /// let mut buffer = vec![0; length as usize];
    /// assert_eq!(connection.recv_into(&mut buffer)?, 1 << 20);
    /// connection.close()?;
    /// sender.join().unwrap()?;
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    ///
    /// [`Scheduler`]: crate::options::Scheduler
    pub fn request_fast(&mut self) -> FastAnswer {
        self.driver.request_fast()
    }

    /// Sets how much of the link this connection's receives get while others of its scheduler
    /// receive too, relative to theirs: 1 unless set, and 0 counts as 1. Without effect on a
    /// connection without a scheduler, or in shared memory.
    pub fn set_weight(&mut self, weight: u32) {
        self.driver.set_weight(weight);
    }

    /// Sets the most payload that this end sends from now on, bytes per second, in place of
    /// [`Options::max_rate`]; `None`: no limit.
    pub fn set_max_rate(&mut self, max_rate: Option<u64>) {
        self.driver.set_max_rate(max_rate);
    }

    /// Adds a path, as soon as the connection is open: payload goes by all, each as fast as it carries. False if it can have
    /// none: neither UDP nor raw Ethernet carries it, or [`Options::paths`] did not ask for several. A path that cannot be opened is
    /// counted in [`Account::paths_refused`](crate::counters::Account::paths_refused).
    pub fn add_path(&mut self, addresses: PathAddresses) -> bool {
        self.driver.check_process().is_ok() && self.driver.lane_mut().add_path(addresses)
    }

    /// Uses path `path`, which is not the first, no more: what it had in flight goes by others.
    pub fn remove_path(&mut self, path: usize) {
        self.driver.remove_path(path);
    }

    /// The paths that there are, by their indexes, and what is known of each. The first is 0.
    pub fn paths(&self) -> Vec<(usize, PathState)> {
        self.driver.paths()
    }

    /// A handle with which another thread ends a [`Connection::wait`] or [`Connection::announced`], or the
    /// next one if none is in progress. It ends no request: calls that wait for the end of one go on, and
    /// the wake is kept for the next wait.
    pub fn waker(&self) -> Waker {
        self.driver.waker()
    }

    /// What was counted so far.
    pub fn account(&self) -> Account {
        self.driver.account()
    }

    /// Requests that are not over, without those posted inline, which hold no memory of the caller's.
    pub fn in_flight(&self) -> usize {
        self.driver.in_flight()
    }

    /// How long closing waits while nothing of what was posted comes any further.
    pub(crate) fn linger(&self) -> Duration {
        self.idle_timeout * LINGER_IDLE_TIMEOUTS
    }

    /// Waits for posted sends, as long as any of them comes further.
    fn flush(&mut self) -> Result<()> {
        let linger = self.linger();
        loop {
            let before = self.driver.sending_mark();
            self.driver
                .wait_through(Some(linger), |driver| !driver.is_sending())?;
            let stands = self.driver.sending_mark() == before;
            if stands || !self.driver.is_sending() || self.driver.closed().is_some() {
                return Ok(());
            }
        }
    }

    /// Waits for posted sends, then disconnects. Receives that got nothing fail; their memory is
    /// freed, and so is that of completions not taken.
    ///
    /// It waits as long as it takes while the peer takes any of it, and for the idle timeout when it takes nothing.
    ///
    /// # Errors
    /// The connection ended before the peer had everything.
    pub fn close(mut self) -> Result<()> {
        self.flush()?;
        self.driver.close();
        self.driver
            .wait_through(Some(self.idle_timeout), |_| false)?;
        while let Some(completion) = self.driver.next_completion() {
            if let (true, Err(TransferError::Closed(reason))) =
                (completion.kind.is_outgoing(), completion.result)
            {
                return Err(Error::Closed(reason));
            }
        }
        match self.driver.closed() {
            None | Some(CloseReason::Local | CloseReason::Peer(_)) => Ok(()),
            Some(reason) => Err(Error::Closed(reason)),
        }
    }
}

/// The socket: when it is readable, or writable if [`Connection::wants_write`], or
/// [`Connection::next_timeout`] has passed, poll.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.driver.lane().socket()
    }
}
