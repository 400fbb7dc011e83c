//! Sends and receives messages.

#[cfg(doc)]
use super::MAX_CONTROL;
use super::{How, Request, options, sealed};
use crate::connection::Connection;
use crate::error::Error;
use std::borrow::Cow;
use zerolane_lane::limits::MAX_INLINE;
use zerolane_lane::{Memory, NotPosted, Region, TransferId, WorkKind};

/// Sends a message: up to [`MAX_CONTROL`] bytes of control, which are copied, and a payload of any length, in one piece
/// or several. It goes to the peer's next [`ReceiveMessage`], and waits for one if necessary.
#[derive(Debug)]
pub struct Message<'a> {
    control: Cow<'a, [u8]>,
    payload: Option<Memory>,
    how: How,
}

impl<'a> Message<'a> {
    /// A message without payload.
    pub fn new(control: impl Into<Cow<'a, [u8]>>) -> Message<'a> {
        Message {
            control: control.into(),
            payload: None,
            how: How::default(),
        }
    }

    /// Sets the payload, which comes back with the completion.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Memory>) -> Message<'a> {
        self.payload = Some(payload.into());
        self
    }
}

options!(Message<'_>: context, signalled, awaited, fence);

impl Request for Message<'_> {
    type Memory = Option<Memory>;

    fn into_memory(self) -> Option<Memory> {
        self.payload
    }
}

impl sealed::Post for Message<'_> {
    fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)> {
        if let Err(reason) = connection.vectored.check_order() {
            return Err((reason.into(), self));
        }
        let (flags, report) = (self.how.flags(), self.how.report());
        let driver = &mut connection.driver;
        let posted = driver.post_message(&self.control, self.payload, flags, report);
        posted.map_err(|NotPosted { reason, memory }| {
            let payload = memory;
            (reason.into(), Message { payload, ..self })
        })
    }

    fn give_back(self) -> Option<Memory> {
        self.payload
    }

    fn signal(self) -> Self {
        self.signalled(true)
    }
}

/// Sends a message with a copy of at most [`MAX_INLINE`] bytes as its payload: the bytes may change as soon as the
/// request is posted. Without [`MessageInline::signalled`] it needs no completion, as libfabric's inject. Otherwise like
/// [`Message`].
///
/// ```
/// use zerolane::request::{MessageInline, ReceiveMessage};
/// use zerolane::{Connection, Endpoint, Options, Region};
/// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
/// let address = endpoint.local_addr();
/// let sender = std::thread::spawn(move || -> zerolane::Result<()> {
///     let mut connection = Connection::connect(address, &Options::default())?;
///     let mut payload = [0; 64];
///     for number in 0..3 {
///         payload.fill(number);
///         let message = MessageInline::new(b"part", &payload);
///         connection.post(message.signalled(false))?; // the array is free again
///     }
///     connection.close()
/// });
/// let mut connection = endpoint.accept(None)?.expect("no timeout");
/// for number in 0..3 {
///     let memory = Region::anonymous(64)?;
///     connection.post(ReceiveMessage::new().payload(memory))?;
///     let completion = connection.wait(None)?.got().expect("no timeout");
///     assert_eq!(completion.control(), Some(&b"part"[..]));
///     assert_eq!(completion.into_region()?[..], [number; 64]);
/// }
/// connection.close()?;
/// sender.join().unwrap()?;
/// # Ok::<(), zerolane::Error>(())
/// ```
#[derive(Debug)]
pub struct MessageInline<'a> {
    control: Cow<'a, [u8]>,
    payload: Cow<'a, [u8]>,
    how: How,
}

impl<'a> MessageInline<'a> {
    /// A message with a copy of `payload`. For a [`ConnectionHandle`](crate::worker::ConnectionHandle), which posts
    /// later, both are `Vec`s.
    pub fn new(
        control: impl Into<Cow<'a, [u8]>>,
        payload: impl Into<Cow<'a, [u8]>>,
    ) -> MessageInline<'a> {
        MessageInline {
            control: control.into(),
            payload: payload.into(),
            how: How::default(),
        }
    }
}

options!(MessageInline<'_>: context, signalled, awaited, fence);

impl Request for MessageInline<'_> {
    type Memory = ();

    fn into_memory(self) {}
}

impl sealed::Post for MessageInline<'_> {
    fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)> {
        if let Err(reason) = connection.vectored.check_order() {
            return Err((reason.into(), self));
        }
        let (flags, report) = (self.how.flags(), self.how.report());
        let len = self.payload.len();
        if len > MAX_INLINE {
            return Err((Error::NotInline { len }, self));
        }
        let driver = &mut connection.driver;
        let posted = driver.post_message_inline(&self.control, &self.payload, flags, report);
        posted.map_err(|reason| (reason.into(), self))
    }

    fn give_back(self) -> Option<Memory> {
        None
    }

    fn signal(self) -> Self {
        self.signalled(true)
    }
}

/// Receives a message: the n-th receive gets the n-th message. While it waits, keep-alives test whether a silent peer is
/// alive ([`TimeOptions::idle`](crate::options::TimeOptions::idle)).
#[derive(Debug, Default)]
pub struct ReceiveMessage {
    payload: Option<Region>,
    how: How,
}

impl ReceiveMessage {
    /// Receives a message without payload.
    pub fn new() -> ReceiveMessage {
        ReceiveMessage::default()
    }

    /// Sets the memory for the payload, which comes back with the completion. A message with payload needs a region with
    /// room for it.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Option<Region>>) -> ReceiveMessage {
        self.payload = payload.into();
        self
    }
}

options!(ReceiveMessage: context);

impl Request for ReceiveMessage {
    type Memory = Option<Region>;

    fn into_memory(self) -> Option<Region> {
        self.payload
    }
}

impl sealed::Post for ReceiveMessage {
    const TAKES: Option<WorkKind> = Some(WorkKind::MessageReceived);

    fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)> {
        let driver = &mut connection.driver;
        let posted = driver.post_message_receive(self.how.report(), self.payload);
        posted.map_err(|NotPosted { reason, memory }| {
            let payload = memory;
            (reason.into(), ReceiveMessage { payload, ..self })
        })
    }

    fn give_back(self) -> Option<Memory> {
        self.payload.map(Memory::from)
    }

    fn signal(self) -> Self {
        self
    }
}
