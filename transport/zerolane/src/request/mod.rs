//! Describes what a program posts: requests as values, each with the options that mean something for it.

mod message;
mod pieces;
pub(crate) mod read;
mod remote;
mod transfer;

#[cfg(doc)]
use crate::completion::Completion;
use crate::connection::Connection;
use crate::error::{Error, Posted, Refused};
use crate::id::RequestId;
#[cfg(doc)]
use zerolane_lane::PostError;
use zerolane_lane::{Memory, Report, TransferId, WorkFlags, Writable};

pub use crate::completion::{Immediate, Output};
pub use crate::in_order::InOrder;
pub use message::{Message, MessageInline, ReceiveMessage};
pub use pieces::{GetPieces, PutPieces};
pub use remote::{Fetch, Get, OpenRegion, Put, PutInline};
pub use transfer::{Receive, Transfer};
pub use zerolane_lane::limits::MAX_INLINE;
pub use zerolane_lane::{MessageControl, WorkKind};

/// Longest control of a message, bytes.
pub const MAX_CONTROL: usize = zerolane_lane::limits::MAX_CONTROL as usize;

/// The options that most requests have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    report: Report,
    flags: WorkFlags,
}

impl How {
    fn report(self) -> Report {
        self.report
    }

    /// Success that is not reported is not waited for either.
    fn flags(self) -> WorkFlags {
        WorkFlags {
            signalled: self.report.signalled,
            awaited: self.report.signalled && self.flags.awaited,
            ..self.flags
        }
    }
}

mod sealed {
    use super::{Connection, Error, Memory, TransferId, WorkKind};

    /// What the library needs of a request.
    pub trait Post: Sized {
        /// The kind of the data that the request takes, so that it can get data kept for another.
        const TAKES: Option<WorkKind> = None;

        /// Posts the request, or returns it with the reason.
        fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)>;

        /// The request's memory in one type, whatever the request.
        fn give_back(self) -> Option<Memory>;

        /// The request, with its success reported.
        fn signal(self) -> Self;
    }
}

/// A request that can be posted: [`Connection::post`], [`ConnectionHandle::post`](crate::worker::ConnectionHandle::post).
///
/// Each request has only the options that mean something for it, so any other does not compile:
///
/// ```compile_fail
/// # fn post(key: &zerolane::RegionKey, into: zerolane::Region) {
/// // A get delivers no number to the peer.
/// let get = zerolane::request::Get::new(key, 0, into).immediate(7);
/// # }
/// ```
pub trait Request: sealed::Post {
    /// The memory that a refusal returns.
    type Memory;

    /// The request's memory, instead of posting it.
    fn into_memory(self) -> Self::Memory;
}

/// Gives a request its options.
macro_rules! options {
    ($request:ident: $($option:ident),+) => {
        impl $request {
            $(options!(@$option);)+
        }
    };
    ($request:ident<'_>: $($option:ident),+) => {
        impl $request<'_> {
            $(options!(@$option);)+
        }
    };
    ($request:ident<M>: $($option:ident),+) => {
        impl<M> $request<M> {
            $(options!(@$option);)+
        }
    };
    (@context) => {
        /// Sets a number of the program's own, which the completion returns; `wr_id` in verbs.
        #[must_use]
        pub fn context(mut self, context: u64) -> Self {
            self.how.report.context = context;
            self
        }
    };
    (@signalled) => {
        /// Whether success is reported with a [`Completion`](crate::Completion), which it is unless set. If not, owned
        /// memory is freed on success. A failure is always reported.
        #[must_use]
        pub fn signalled(mut self, signalled: bool) -> Self {
            self.how.report.signalled = signalled;
            self
        }
    };
    (@awaited) => {
        /// Whether the caller waits for completion, which it does unless set: the peer then confirms at once, in a
        /// separate datagram. If not, it confirms with its next packet, or after a short delay: for memory that is not
        /// needed back soon.
        #[must_use]
        pub fn awaited(mut self, awaited: bool) -> Self {
            self.how.flags.awaited = awaited;
            self
        }
    };
    (@fence) => {
        /// Whether the request starts only when all earlier operations on the peer's memory are complete.
        #[must_use]
        pub fn fence(mut self, fence: bool) -> Self {
            self.how.flags.fence = fence;
            self
        }
    };
    (@immediate) => {
        /// Delivers a number to the peer when this put, and every put before it, is placed.
        #[must_use]
        pub fn immediate(mut self, number: impl Into<Option<u32>>) -> Self {
            self.immediate = number.into();
            self
        }
    };
    (@delivery) => {
        /// Sets how the arrival is delivered to the receiver: whether it is an event there, and whether it wakes.
        #[must_use]
        pub fn delivery(mut self, delivery: Delivery) -> Self {
            self.delivery = delivery;
            self
        }
    };
}
use options;

/// # Requests
///
/// Many requests may be in flight. Each is a value of [`request`](crate::request), with its options, and gives its
/// memory back with a [`Completion`](crate::Completion), whose [`Output`] has what else its kind gives back.
impl Connection {
    /// Posts a request; returns at once.
    ///
    /// ```
    /// use zerolane::request::{Fetch, Put};
    /// use zerolane::{Connection, Endpoint, ExportedRegion, FetchOp, Options, Region, Rights};
    /// # let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
    /// # let address = endpoint.local_addr();
    /// # let owner = std::thread::spawn(move || -> zerolane::Result<u64> {
    /// #     let mut connection = endpoint.accept(None)?.expect("no timeout");
    /// #     let table = ExportedRegion::new(Region::anonymous(4096)?).expect("page-aligned");
    /// #     connection.export_named("table", &table, Rights::ALL)?;
    /// #     while connection.wait(None).is_ok() {}
    /// #     Ok(table.word(0).load(std::sync::atomic::Ordering::Acquire))
    /// # });
    /// # let mut connection = Connection::connect(address, &Options::default())?;
    /// # let table = connection.open_region("table", Rights::ALL)?;
    /// // The data, then a count, which starts when the data is placed.
    /// connection.post(Put::new(&table, 64, Region::from_vec(vec![7; 64])).signalled(false))?;
    /// let counted = connection.post(Fetch::new(&table, 0, FetchOp::Add(1)).fence(true))?;
    /// let completion = connection.wait(None)?.got().expect("no timeout");
    /// assert_eq!(completion.id, counted);
    /// # connection.close()?;
    /// # assert_eq!(owner.join().unwrap()?, 1);
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    ///
    /// # Errors
    /// The connection is closed, or too many requests are posted or pieces of an earlier one wait for room, or the request
    /// asks for what the peer did not grant: see [`PostError`]. The memory comes back.
    pub fn post<R: Request>(&mut self, request: R) -> Posted<R::Memory> {
        let posted = self.try_post(request);
        posted.map_err(|(error, request)| Refused {
            error,
            memory: request.into_memory(),
        })
    }

    /// Posts a [`Transfer`] without options; many may be in flight. Its memory comes back with the [`Completion`].
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
    ///         let completion = connection.wait(None)?.got().expect("no timeout");
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
    /// As for [`Connection::post`].
    pub fn post_send(&mut self, memory: impl Into<Memory>) -> Posted<Memory> {
        self.post(Transfer::new(memory))
    }

    /// Posts a [`Receive`].
    ///
    /// # Errors
    /// As for [`Connection::post`].
    pub fn post_recv<M: Writable>(&mut self, memory: M) -> Posted<M> {
        self.post(Receive::new(memory))
    }

    /// Posts a request, or returns it.
    pub(crate) fn try_post<R: Request>(&mut self, request: R) -> Result<RequestId, (Error, R)> {
        let posted = request.post_to(self);
        posted.map(|id| self.poster.request(id))
    }
}

#[cfg(test)]
mod tests;
