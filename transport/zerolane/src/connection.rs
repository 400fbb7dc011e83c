//! Opens, drives and closes a connection, and posts its sends and receives.

use crate::addresses::{ToAddresses, resolved};
use crate::completion::Completion;
use crate::error::{Error, Result};
use crate::id::{PathId, Poster, RequestId};
use crate::queue::CompletionQueue;
use crate::vectored::Vectored;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use zerolane_lane::AnyLane;
#[cfg(doc)]
use zerolane_lane::Region;
use zerolane_lane::{
    Account, CloseReason, Delivery, Driver, OnWake, Options, PathAddresses, PathState, PublicKey,
    Step, TransferError, TransferId, Waited, Waker, WorkRequest, limits,
};
use zerolane_wire::PrivateData;

/// How long [`Connection::close`] waits without progress of posted sends, in idle timeouts.
const LINGER_IDLE_TIMEOUTS: u32 = 1;

/// The field has 6 bits.
const MAX_DSCP: u8 = 63;

/// A connection to a peer. Its caller drives it: it makes progress only inside its methods, in the calling thread. A
/// peer that makes no call for the idle timeout while this end waits for it counts as dead.
///
/// After `fork` the connection belongs to the parent: calls in the child fail with [`Error::Forked`] or do nothing. The
/// child may drop its copy, which does not disconnect the peer, and open a new connection.
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
    datagram_lifetime: Duration,
    datagram_dscp: u8,
    /// Marks the identifiers of its requests.
    pub(crate) poster: Poster,
    /// Requests of several pieces.
    pub(crate) vectored: Vectored,
    /// The queue that receives the completions, and this connection's tag in it.
    queue: Option<(CompletionQueue, u64)>,
    /// Completions that the program took and has not processed: see [`Connection::set_unprocessed`].
    unread_external: usize,
    /// Completions that a worker keeps for handles.
    unread_of_handles: usize,
}

impl Connection {
    /// Connects to the first address of `to` that answers. Each has
    /// [`TimeOptions::connect`](crate::options::TimeOptions::connect) to do so.
    ///
    /// # Errors
    /// There is no address ([`Error::Address`], which says what is wrong with the text, or [`Error::NoAddress`]), no
    /// answer, or the peer rejected the connection. The error is that of the last address, and names the reason.
    pub fn connect(to: impl ToAddresses, options: &Options) -> Result<Connection> {
        let mut last = Error::NoAddress;
        for address in resolved(to, options.lane.choice)? {
            match Self::connect_one(address, options) {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn connect_one(address: SocketAddr, options: &Options) -> Result<Connection> {
        let mut driver = zerolane_lane::connect(address, options)?;
        driver.wait(None, OnWake::GoOn, Driver::is_connected)?;
        match driver.closed() {
            None => Ok(Connection::accepted(driver, options)),
            Some(CloseReason::ConnectTimeout) => Err(Error::ConnectTimeout(options.times.connect)),
            Some(reason) => Err(Error::Closed(reason)),
        }
    }

    pub(crate) fn accepted(driver: Driver<AnyLane>, options: &Options) -> Connection {
        Connection {
            driver,
            idle_timeout: options.times.idle,
            datagram_lifetime: options.times.datagram,
            datagram_dscp: 0,
            poster: Poster::next(),
            vectored: Vectored::default(),
            queue: None,
            unread_external: 0,
            unread_of_handles: 0,
        }
    }

    /// From now on completions go to `queue`, tagged with `tag`. [`Connection::poll`] and [`Connection::wait`] make
    /// progress but return no completions.
    pub fn set_completion_queue(&mut self, queue: &CompletionQueue, tag: u64) {
        self.queue = Some((queue.clone(), tag));
    }

    /// How long [`Connection::poll`] has nothing to do, unless the socket ([`AsFd`]) becomes readable, or writable if
    /// [`Connection::wants_write`]. For programs with an event loop of their own. `None`: no timer runs. Zero: the last
    /// call made progress, and there may be more to do. Ask again after every call.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.driver.next_timeout()
    }

    /// Whether [`Connection::poll`] must be called when the socket becomes writable, because its send buffer was full.
    pub fn wants_write(&self) -> bool {
        self.driver.wants_write()
    }

    /// Limits how long a blocking call may take: [`Connection::send`], [`Connection::recv_into`], [`Connection::put`]
    /// and all others that wait for a request to complete. There is no limit unless set. A request that takes longer is
    /// cancelled, and the call returns [`Error::TimedOut`].
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

    /// This end's current address; `None` while there is no route to the peer.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.driver.lane().local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.driver.lane().peer_addr()
    }

    /// The key that the peer proved it owns; `None` in plain mode.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.driver.lane().peer_key()
    }

    /// The data of the program that came with the peer's request, or with its answer; empty if there was none. See
    /// [`Options::private_data`].
    pub fn peer_data(&self) -> &[u8] {
        let data = self.driver.peer_data();
        data.map_or(&[], |it| it.as_slice())
    }

    /// Accepts the peer's request, and sends the answer.
    pub(crate) fn answer(&mut self, data: Option<PrivateData>) {
        self.driver.accept(data);
        // An error shows in the next call.
        let _ = self.driver.turn(Step::BeforeSleep);
    }

    /// Sends `data` as one Transfer; returns when the peer has received all of it.
    ///
    /// `data` must stay readable. If it is a mapping of a file that is truncated meanwhile, the process may get SIGBUS
    /// when payload is read in user space (checksums). [`Region::map_file`] is safe against this.
    ///
    /// # Errors
    /// [`TransferError::MessageTooLarge`] if the matching receive was smaller; or the connection ended.
    pub fn send(&mut self, data: &[u8]) -> Result<()> {
        let send = WorkRequest::Send {
            delivery: Delivery::Interrupt,
        };
        self.driver.lend_source(send, data)?.result?;
        Ok(())
    }

    /// Receives the next Transfer into `buffer`; returns its length in bytes.
    ///
    /// If `buffer` is a mapping of a file that is truncated meanwhile, the process may get SIGBUS when a misplaced
    /// datagram is moved. [`Region::map_file`] is safe against this.
    ///
    /// # Errors
    /// [`TransferError::MessageTooLarge`] if the Transfer is larger than `buffer`: the sender gets the same error,
    /// nothing is written, and the next Transfer can be received. Or the connection ended.
    pub fn recv_into(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let received = self.driver.lend_target(WorkRequest::Receive, buffer)?;
        Ok(received.result? as usize)
    }

    /// Like [`Connection::recv_into`], into memory that need not be initialised. The returned number of bytes is
    /// initialised.
    ///
    /// # Errors
    /// As for [`Connection::recv_into`].
    pub fn recv_into_uninit(&mut self, buffer: &mut [MaybeUninit<u8>]) -> Result<usize> {
        let receive = WorkRequest::Receive;
        let received = self.driver.lend_target_uninit(receive, buffer)?;
        Ok(received.result? as usize)
    }

    /// Sends `datagram`, 1 to [`Connection::max_datagram`] bytes: sealed as everything else and under congestion control,
    /// but it may be lost, come late or before an earlier one, and is never sent again (as the datagrams of QUIC, RFC
    /// 9221). One longer than a packet is lost if any packet of it is. It leaves with the next progress; one that has not
    /// left after [`TimeOptions::datagram`](crate::options::TimeOptions::datagram) is dropped, and so are those that
    /// have not left when the connection ends. The counters `unreliable_*` of
    /// [`Counters`](crate::counters::Counters) and [`Account`] count what was dropped, and why.
    ///
    /// ```
    /// use zerolane::{Connection, Endpoint, Options};
    /// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
    /// let address = endpoint.local_addr();
    /// let receiver = std::thread::spawn(move || -> zerolane::Result<Vec<u8>> {
    ///     let mut connection = endpoint.accept(None)?.expect("no timeout");
    ///     Ok(connection.recv_datagram(None)?.got().expect("no timeout"))
    /// });
    /// let mut connection = Connection::connect(address, &Options::default())?;
    /// connection.send_datagram(b"21.5 degrees")?;
    /// assert_eq!(receiver.join().unwrap()?, b"21.5 degrees");
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`PostError::DatagramLength`]; [`PostError::NoDatagrams`]; [`PostError::Full`] if many wait to leave; or the
    /// connection ended.
    ///
    /// [`PostError::DatagramLength`]: crate::failure::PostError::DatagramLength
    /// [`PostError::NoDatagrams`]: crate::failure::PostError::NoDatagrams
    /// [`PostError::Full`]: crate::failure::PostError::Full
    pub fn send_datagram(&mut self, datagram: impl Into<Vec<u8>>) -> Result<()> {
        let (lifetime, dscp) = (self.datagram_lifetime, self.datagram_dscp);
        self.driver.post_datagram(datagram.into(), lifetime, dscp)?;
        self.driver.turn(Step::Send)?;
        Ok(())
    }

    /// Gives the packets of datagrams sent from now on this DSCP, 0 to 63, by which routers choose a queue (RFC 2474). 0
    /// unless set, as of everything else that is sent. No effect on Ethernet lanes, and in shared memory.
    ///
    /// # Errors
    /// [`Error::Io`] (`InvalidInput`): it is larger.
    pub fn set_dscp(&mut self, dscp: u8) -> Result<()> {
        if dscp > MAX_DSCP {
            let why = format!("a DSCP is at most {MAX_DSCP}, and not {dscp}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why).into());
        }
        self.datagram_dscp = dscp;
        Ok(())
    }

    /// Waits for a datagram of the peer, and returns it. A [`Waker`] ends the wait.
    ///
    /// # Errors
    /// The connection ended and all datagrams were taken.
    pub fn recv_datagram(&mut self, timeout: Option<Duration>) -> Result<Waited<Vec<u8>>> {
        let has = Driver::has_datagram;
        let waited = self.driver.wait(timeout, OnWake::Return, has)?;
        match (self.driver.take_datagram(), self.driver.closed()) {
            (Some(datagram), _) => Ok(Waited::Got(datagram)),
            (None, Some(reason)) => Err(Error::Closed(reason)),
            (None, None) => Ok(waited.in_vain()),
        }
    }

    /// The next datagram of the peer, if one has arrived already.
    pub fn next_datagram(&mut self) -> Option<Vec<u8>> {
        self.driver.take_datagram()
    }

    /// Longest datagram that the peer takes, in bytes; 0: it takes none.
    pub fn max_datagram(&self) -> usize {
        self.driver.max_datagram()
    }

    /// Bytes of datagrams that wait to leave.
    pub fn datagram_bytes(&self) -> u64 {
        self.driver.datagram_bytes()
    }

    /// Waits until the peer announces a Transfer that no posted receive matches. Returns its length in bytes, so that
    /// the caller can allocate a buffer of that size.
    ///
    /// # Errors
    /// The connection ended.
    pub fn announced(&mut self, timeout: Option<Duration>) -> Result<Waited<u64>> {
        let waited = self
            .driver
            .wait(timeout, OnWake::Return, |it| it.announced().is_some())?;
        match (self.driver.announced(), self.driver.closed()) {
            (Some(length), _) => Ok(Waited::Got(length)),
            (None, Some(reason)) => Err(Error::Closed(reason)),
            (None, None) => Ok(waited.in_vain()),
        }
    }

    /// Whether the delivery that a sender asks for counts ([`Delivery`]): if so, a [`Connection::wait`] does not return
    /// for a Transfer sent to be polled for, and one sent silently is held back. Unless set, everything that completes
    /// ends a wait, whoever chose its delivery.
    pub fn honour_delivery(&mut self, honours: bool) {
        self.driver.honour_delivery(honours);
    }

    /// Makes the completion of request `id` end a [`Connection::wait`], whatever delivery mode its sender chose, also
    /// if the request has already completed without a wake-up. False if there is no such request, or its completion was
    /// taken. For programs that wait for one particular request; blocking calls do this by themselves.
    pub fn notify(&mut self, id: RequestId) -> bool {
        let own = self.poster.number_of(id);
        // Pieces of a request wake in any case.
        own.is_some_and(|id| self.vectored.has(id) || self.driver.notify(id))
    }

    /// Returns a completion if there is one. Otherwise makes progress without sleeping, and checks again. It returns
    /// [`Delivery::Polled`] completions too.
    ///
    /// # Errors
    /// The connection ended and all completions were taken.
    pub fn poll(&mut self) -> Result<Option<Completion>> {
        self.progress()?;
        self.take()
    }

    /// Like [`Connection::poll`], for up to `max` completions, which are appended to `into` after one round of
    /// progress. Returns how many.
    ///
    /// # Errors
    /// As for [`Connection::poll`].
    pub fn poll_batch(&mut self, into: &mut Vec<Completion>, max: usize) -> Result<usize> {
        self.progress()?;
        let before = into.len();
        while into.len() - before < max {
            match self.take() {
                Ok(Some(completion)) => into.push(completion),
                Ok(None) => break,
                // Completions already taken are returned before the error.
                Err(error) if into.len() == before => return Err(error),
                Err(_) => break,
            }
        }
        Ok(into.len() - before)
    }

    /// Makes progress, unless a completion is ready.
    fn progress(&mut self) -> Result<()> {
        self.check_process()?;
        if self.driver.closed().is_none() && !self.driver.has_completion() {
            self.driver.turn(Step::Whole)?;
        }
        Ok(())
    }

    /// Waits for the next completion. With [`Connection::honour_delivery`] it waits for one that wakes
    /// ([`Delivery::Interrupt`], and every failure), and earlier ones are returned first. A [`Waker`] ends it even on a
    /// busy connection. A timeout of zero makes progress once and polls, as [`Connection::poll`] does.
    ///
    /// Completions that go to a queue ([`Connection::set_completion_queue`]) end it as a [`Waker`] does.
    ///
    /// # Errors
    /// The connection ended and all completions were taken.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Waited<Completion>> {
        self.check_process()?;
        // A deadline that overflows the clock counts as no limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let looks = timeout == Some(Duration::ZERO);
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if let Some((queue, tag)) = self.queue.clone() {
                if let Some(ended) = self.wait_to_hand_over(&queue, tag, left)? {
                    return self.end().map_or(Ok(ended), Err);
                }
                continue;
            }
            let mut waited = Waited::TimedOut;
            if !self.driver.has_notice() {
                waited = self.driver.wait(left, OnWake::Return, Driver::has_notice)?;
            }
            let told = self.driver.has_notice();
            if told || looks {
                match self.take()? {
                    Some(completion) => return Ok(Waited::Got(completion)),
                    // The end of one piece of a request is not reported.
                    None if told => continue,
                    None => {}
                }
            }
            return self.end().map_or(Ok(waited.in_vain()), Err);
        }
    }

    /// Waits for request `id` and takes its completion; others stay. A [`Waker`] ends it. `Got(None)`: there is no such
    /// request, or its completion was taken.
    ///
    /// ```
    /// use zerolane::{Connection, Endpoint, Options, Region};
    /// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
    /// let address = endpoint.local_addr();
    /// let client = std::thread::spawn(move || -> zerolane::Result<()> {
    ///     let mut connection = Connection::connect(address, &Options::default())?;
    ///     connection.send(b"one")?;
    ///     connection.send(b"two")?;
    ///     connection.close()
    /// });
    /// let mut connection = endpoint.accept(None)?.expect("no timeout");
    /// let first = connection.post_recv(Region::anonymous(8)?)?;
    /// let second = connection.post_recv(Region::anonymous(8)?)?;
    /// let two = connection.wait_for(second, None)?.got().flatten().expect("in flight");
    /// assert_eq!(two.id, second);
    /// assert_eq!(connection.wait(None)?.got().expect("no timeout").id, first);
    /// # client.join().unwrap()?;
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    ///
    /// # Errors
    /// The connection ended, and the completion is not there.
    pub fn wait_for(
        &mut self,
        id: RequestId,
        timeout: Option<Duration>,
    ) -> Result<Waited<Option<Completion>>> {
        self.check_process()?;
        let Some(own) = self.poster.number_of(id) else {
            return Ok(Waited::Got(None));
        };
        // A deadline that overflows the clock counts as no limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let of_pieces = self.vectored.has(own);
            let awaited = match of_pieces {
                true => self.vectored.outstanding(own),
                false => vec![own],
            };
            let (waited, over) = self.wait_for_any(&awaited, deadline, OnWake::Return)?;
            if !over {
                return self.end().map_or(Ok(waited.in_vain()), Err);
            }
            if !of_pieces {
                let taken = self.driver.take_completion(own);
                return Ok(Waited::Got(taken.map(|it| self.completed(it))));
            }
            if let Some(whole) = self.vectored.take(&mut self.driver, &awaited) {
                return Ok(Waited::Got(Some(self.completed(whole))));
            }
        }
    }

    /// Waits until there is room for an operation, behind all pieces of requests posted before. Completions stay for the
    /// program.
    pub(crate) fn make_room(&mut self) -> Result<()> {
        let timeout = self.driver.request_timeout();
        let mut deadline = None;
        loop {
            let request = self.vectored.unposted();
            if request.is_none() && self.driver.room_for_operations() > 0 {
                return Ok(());
            }
            let pieces = request.map_or_else(Vec::new, |it| self.vectored.outstanding(it));
            // The clock is read only if it must wait.
            let by = *deadline
                .get_or_insert_with(|| timeout.and_then(|it| Instant::now().checked_add(it)));
            if !self.wait_for_any(&pieces, by, OnWake::GoOn)?.1 {
                let reason = self.driver.closed().map(Error::Closed);
                return Err(reason.unwrap_or(Error::TimedOut(timeout.unwrap_or_default())));
            }
            if let Some(whole) = self.vectored.take(&mut self.driver, &pieces) {
                self.driver.add_completion(whole);
            }
        }
    }

    /// Waits until one of `ids` is over, or, if there are none, until there is room for an operation. Returns how the
    /// wait ended, and whether that is so.
    fn wait_for_any(
        &mut self,
        ids: &[TransferId],
        deadline: Option<Instant>,
        on_wake: OnWake,
    ) -> Result<(Waited<()>, bool)> {
        let is_so = |it: &Driver<AnyLane>| match ids {
            [] => it.room_for_operations() > 0,
            ids => ids.iter().any(|&id| it.is_over(id)),
        };
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let waited = self.driver.wait(left, on_wake, is_so)?;
        Ok((waited, is_so(&self.driver)))
    }

    /// Waits for completions and for room in `queue`, and moves them there. Returns how the wait ended; `None` if it
    /// continues, because none of them wakes.
    fn wait_to_hand_over(
        &mut self,
        queue: &CompletionQueue,
        tag: u64,
        left: Option<Duration>,
    ) -> Result<Option<Waited<Completion>>> {
        let waited = if self.driver.has_completion() {
            // The connection makes progress while the queue is full, so that the peer does not take this end for dead.
            let waker = self.driver.waker();
            self.driver
                .wait(left, OnWake::Return, |_| queue.has_room_or_wakes(&waker))?
        } else {
            let has = Driver::has_completion;
            self.driver.wait(left, OnWake::Return, has)?
        };
        let (count, told) = self.hand_over(queue, tag);
        if told || waited == Waited::Woken || self.driver.take_wake() {
            return Ok(Some(Waited::Woken));
        }
        // The end of one piece of a request is not reported.
        let timed_out = count == 0 && waited == Waited::TimedOut;
        let over = timed_out || left == Some(Duration::ZERO) || self.driver.closed().is_some();
        Ok(over.then_some(Waited::TimedOut))
    }

    /// Moves as many completions to `queue` as fit. Returns how many, and whether one of them wakes.
    fn hand_over(&mut self, queue: &CompletionQueue, tag: u64) -> (usize, bool) {
        queue.fill(tag, || {
            let told = self.driver.has_notice();
            Some((self.next_whole()?, told))
        })
    }

    /// # Errors
    /// [`Error::Forked`]: the connection or its queue belongs to the parent process.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.driver.check_process()?;
        match &self.queue {
            Some((queue, _)) => queue.check_process(),
            None => Ok(()),
        }
    }

    fn take(&mut self) -> Result<Option<Completion>> {
        // A `Completion` is large, and most calls find none.
        if self.driver.has_completion() {
            if let Some((queue, tag)) = self.queue.clone() {
                self.hand_over(&queue, tag);
            } else if let Some(completion) = self.next_whole() {
                return Ok(Some(completion));
            }
        }
        self.end().map_or(Ok(None), Err)
    }

    /// The reason why the connection ended, if all completions were taken.
    fn end(&self) -> Option<Error> {
        let reason = self.driver.closed()?;
        (!self.driver.has_completion()).then_some(Error::Closed(reason))
    }

    /// The next completion of a whole request, not of a piece.
    pub(crate) fn next_whole(&mut self) -> Option<Completion> {
        while let Some(completion) = self.driver.next_completion() {
            let whole = self.vectored.absorb(completion);
            self.vectored.post_unposted(&mut self.driver);
            if let Some(whole) = whole {
                return Some(self.completed(whole));
            }
        }
        None
    }

    fn completed(&self, whole: zerolane_lane::Completion) -> Completion {
        let pool = whole.pooled.then(|| self.driver.receive_pool()).flatten();
        Completion::new(whole, self.poster, pool.cloned())
    }

    /// Sets how many completions the program took but has not processed yet, such as immediates kept for a later
    /// reader. They count as unread: from 1024 on the peer holds messages and immediates back, but nothing else, until
    /// there are fewer than 512. The number is 0 unless set.
    ///
    /// The peer learns of it during the next call that makes progress.
    ///
    /// ```
    /// use std::collections::VecDeque;
    /// use zerolane::request::{Output, Put};
    /// use zerolane::{Connection, Endpoint, ExportedRegion, Options, Region, Rights};
    /// let memory = ExportedRegion::new(Region::anonymous(4096)?).expect("page-aligned");
    /// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
    /// let address = endpoint.local_addr();
    /// let client = std::thread::spawn(move || -> zerolane::Result<()> {
    ///     let mut connection = Connection::connect(address, &Options::default())?;
    ///     connection.recv_into(&mut [0; 8])?;
    ///     let key = connection.open_region("board", Rights::ALL)?;
    ///     for number in 0..3 {
    ///         connection.post(Put::new(&key, 0, Region::anonymous(8)?).immediate(number))?;
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
    ///     let completion = connection.wait(None)?.got().expect("no timeout");
    ///     let Output::Immediate(it) = completion.output else {
    ///         break; // the receive
    ///     };
    ///     kept.push_back(it.number);
    ///     connection.set_unprocessed(kept.len());
    /// }
    /// while let Some(number) = kept.pop_front() {
    ///     connection.set_unprocessed(kept.len());
    ///     assert!(number < 3);
    /// }
    /// connection.close()?;
    /// client.join().unwrap()?;
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    pub fn set_unprocessed(&mut self, unprocessed: usize) {
        self.unread_external = unprocessed;
        self.report_unread();
    }

    /// Sets how many completions a worker keeps for handles, in addition to [`Connection::set_unprocessed`].
    pub(crate) fn set_unread_of_handles(&mut self, unread: usize) {
        self.unread_of_handles = unread;
        self.report_unread();
    }

    fn report_unread(&mut self) {
        // The core needs no larger count.
        let unread = self.unread_external.saturating_add(self.unread_of_handles);
        self.driver
            .set_unread_external(unread.min(limits::MAX_UNREAD));
    }

    /// Cancels a posted Transfer: it completes with [`TransferError::Cancelled`], and its memory is no longer accessed.
    /// The part of a receive that had arrived is valid ([`Completion::arrived`]). Of a request of several pieces, those
    /// that are not over are cancelled. False if the request is already over, or belongs to the parent process.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let own = self.poster.number_of(id);
        own.is_some_and(|id| match self.vectored.has(id) {
            true => self.vectored.cancel(&mut self.driver, id),
            false => self.driver.cancel(id),
        })
    }

    /// Closes the sending direction, as TCP's half-close does. Requests posted before are delivered; later sends and
    /// messages are refused with [`PostError::Finished`]. Receives at the peer that no Transfer or message matches fail
    /// with [`TransferError::Finished`], those posted already and those posted later. The other direction stays open,
    /// and so do operations on remote memory: puts, gets, fetch-ops. Returns at once; a second call does nothing.
    ///
    /// The peer learns of it after the requests posted before. While messages wait for receives that the peer does not
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
    /// The connection is closed; or [`PostError::Full`], while pieces of a request posted before wait for room.
    ///
    /// [`PostError::Finished`]: crate::failure::PostError::Finished
    /// [`PostError::Full`]: crate::failure::PostError::Full
    pub fn finish(&mut self) -> Result<()> {
        self.vectored.check_order()?;
        Ok(self.driver.finish()?)
    }

    /// Limits the payload rate at which this end sends from now on, in bytes per second, instead of
    /// [`RateOptions::max`](crate::options::RateOptions::max). `None`: no limit.
    pub fn set_max_rate(&mut self, max_rate: Option<u64>) {
        self.driver.set_max_rate(max_rate);
    }

    /// Adds a path once the connection is open. Payload is spread over all paths, by how fast each one is. False if the
    /// connection cannot have more paths: its lane is neither UDP nor raw Ethernet, or
    /// [`PathOptions::most`](crate::options::PathOptions::most) did not ask for several. A path that cannot be opened
    /// is counted in [`Account::paths_refused`](crate::counters::Account::paths_refused).
    pub fn add_path(&mut self, addresses: PathAddresses) -> bool {
        self.driver.check_process().is_ok() && self.driver.lane_mut().add_path(addresses)
    }

    /// Stops using path `path`, which must not be the first. Its payload in flight is sent again over other paths.
    pub fn remove_path(&mut self, path: PathId) {
        self.driver.remove_path(path.get().into());
    }

    /// The current paths, and the state of each.
    pub fn paths(&self) -> Vec<(PathId, PathState)> {
        let paths = self.driver.paths().into_iter();
        paths
            .filter_map(|(index, state)| Some((PathId::of_index(index)?, state)))
            .collect()
    }

    /// A handle with which another thread ends a [`Connection::wait`] or [`Connection::announced`], or the next one if
    /// none is in progress. It ends no request: calls that wait for a particular request continue, and the wake-up is
    /// kept for the next wait.
    pub fn waker(&self) -> Waker {
        self.driver.waker()
    }

    /// The counters so far.
    pub fn account(&self) -> Account {
        self.driver.account()
    }

    /// Requests that are not over, apart from inline ones, which hold none of the caller's memory. Each piece of a request
    /// counts.
    pub fn in_flight(&self) -> usize {
        self.driver.in_flight() + self.vectored.waiting()
    }

    /// Whether posted sends or puts are in progress.
    pub(crate) fn is_sending(&self) -> bool {
        self.driver.is_sending() || self.vectored.has_puts()
    }

    /// Whether no request is in flight, apart from inline ones, and no completion waits to be taken.
    pub fn is_idle(&self) -> bool {
        self.driver.is_idle() && self.vectored.waiting() == 0
    }

    /// How long closing waits without progress of posted sends.
    pub(crate) fn linger(&self) -> Duration {
        self.idle_timeout * LINGER_IDLE_TIMEOUTS
    }

    /// Waits for posted sends, as long as they make progress.
    fn flush(&mut self) -> Result<()> {
        let linger = self.linger();
        loop {
            let before = self.driver.sending_mark();
            // Room for the pieces that wait is made by the completions of others.
            let feeds = self.vectored.has_puts();
            let ends = |it: &Driver<AnyLane>| !it.is_sending() || feeds && it.has_completion();
            let waited = self.driver.wait(Some(linger), OnWake::GoOn, ends)?;
            if self.driver.closed().is_some() {
                return Ok(());
            }
            while self.vectored.has_puts() && self.next_whole().is_some() {}
            let stands = waited == Waited::TimedOut && self.driver.sending_mark() == before;
            if stands || !self.is_sending() {
                return Ok(());
            }
        }
    }

    /// Waits for posted sends, then disconnects. Receives without a Transfer fail; their memory is freed, and so is the
    /// memory of completions that were not taken.
    ///
    /// Waits as long as the peer accepts payload, and gives up after the idle timeout without progress.
    ///
    /// # Errors
    /// The connection ended before the peer had everything.
    pub fn close(mut self) -> Result<()> {
        self.flush()?;
        self.driver.close();
        self.driver
            .wait(Some(self.idle_timeout), OnWake::GoOn, |_| false)?;
        while let Some(completion) = self.driver.next_completion() {
            if let (true, Err(TransferError::Closed(reason))) =
                (completion.kind.is_outgoing(), completion.result)
            {
                return Err(Error::Closed(reason));
            }
            self.driver.recycle(completion);
        }
        match self.driver.closed() {
            None | Some(CloseReason::Local | CloseReason::Peer(_)) => Ok(()),
            Some(reason) => Err(Error::Closed(reason)),
        }
    }
}

/// The socket: call poll when it is readable, or writable if [`Connection::wants_write`], or after
/// [`Connection::next_timeout`].
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.driver.lane().socket()
    }
}
