//! Describes how a request is done: signalled, fenced, with an immediate or a context.

use zerolane_lane::{Delivery, Report, WorkFlags};

/// The options of a posted request.
///
/// ```
/// use zerolane::Work;
/// let work = Work::default().unsignalled().fenced().with_immediate(7);
/// assert_eq!((work.signalled, work.fence, work.immediate), (false, true, Some(7)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Work {
    /// Whether success is reported with a [`Completion`](crate::Completion). If not, owned memory is freed on success.
    pub signalled: bool,
    /// Whether the caller waits for completion: the peer then confirms a put or a message at once, in a separate
    /// datagram. If not, it confirms with its next packet, or after a short delay.
    pub awaited: bool,
    /// Starts only when all earlier operations on the peer's memory are complete.
    pub fence: bool,
    /// Delivered to the peer when this put, and every put before it, is placed.
    pub immediate: Option<u32>,
    /// How the arrival of a Transfer is delivered to its receiver: whether it is an event there, and whether it wakes
    /// (sends and offers).
    pub delivery: Delivery,
    /// A number of the user's own, returned in [`Completion::context`](crate::Completion::context); `wr_id` in verbs.
    pub context: u64,
}

impl Default for Work {
    fn default() -> Work {
        Work {
            signalled: true,
            awaited: true,
            fence: false,
            immediate: None,
            delivery: Delivery::Interrupt,
            context: 0,
        }
    }
}

impl Work {
    /// Reports only a failure.
    #[must_use]
    pub fn unsignalled(self) -> Work {
        Work {
            signalled: false,
            ..self
        }
    }

    /// Lets the peer confirm with its next packet: for memory that is not needed back soon.
    #[must_use]
    pub fn unawaited(self) -> Work {
        Work {
            awaited: false,
            ..self
        }
    }

    /// Starts when all earlier operations are complete.
    #[must_use]
    pub fn fenced(self) -> Work {
        Work {
            fence: true,
            ..self
        }
    }

    /// Delivers `number` to the peer.
    #[must_use]
    pub fn with_immediate(self, number: u32) -> Work {
        Work {
            immediate: Some(number),
            ..self
        }
    }

    /// Sets how the receiver is notified.
    #[must_use]
    pub fn delivered(self, delivery: Delivery) -> Work {
        Work { delivery, ..self }
    }

    /// Sets the context that the completion returns.
    #[must_use]
    pub fn with_context(self, context: u64) -> Work {
        Work { context, ..self }
    }

    pub(crate) fn report(self) -> Report {
        Report {
            signalled: self.signalled,
            context: self.context,
        }
    }

    pub(crate) fn flags(self) -> WorkFlags {
        WorkFlags {
            signalled: self.signalled,
            fence: self.fence,
            awaited: self.signalled && self.awaited,
        }
    }
}

/// The default options with this delivery.
impl From<Delivery> for Work {
    fn from(delivery: Delivery) -> Work {
        Work::default().delivered(delivery)
    }
}

/// The default options with this context.
impl From<u64> for Work {
    fn from(context: u64) -> Work {
        Work::default().with_context(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn work__unawaited_is_told_of_and_the_peer_not_asked() {
        let flags = |work: Work| (work.flags().signalled, work.flags().awaited);
        assert_eq!(flags(Work::default()), (true, true));
        assert_eq!(flags(Work::default().unawaited()), (true, false));
        assert_eq!(flags(Work::default().unsignalled()), (false, false));
        assert!(Work::default().unawaited().report().signalled);
    }
}
