//! How requests are to be done.

use zerolane_lane::{Delivery, Report, WorkFlags};

/// How a posted request is to be done.
///
/// ```
/// use zerolane::Work;
/// let work = Work::default().unsignalled().fenced().with_immediate(7);
/// assert_eq!((work.signalled, work.fence, work.immediate), (false, true, Some(7)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Work {
    /// Completes with a [`Completion`](crate::Completion) also when it succeeds. If not, owned
    /// memory is freed on success.
    pub signalled: bool,
    /// The caller waits for its completion: the peer is asked to confirm a put or a message at once, by a datagram of its
    /// own. If not, it confirms with what it sends next, or soon.
    pub awaited: bool,
    /// Begins only when everything asked of the peer's memory before is complete.
    pub fence: bool,
    /// A put shows the peer this number when it, and every put before it, is placed.
    pub immediate: Option<u32>,
    /// How the arrival of a Transfer is delivered to its receiver: whether it is an event there, and wakes
    /// (sends and offers).
    pub delivery: Delivery,
    /// A number of the user's own, which comes back in [`Completion::context`](crate::Completion::context); `wr_id` of
    /// verbs.
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

    /// Completes when the peer has confirmed it by the way: for memory that is wanted back, and not soon.
    #[must_use]
    pub fn unawaited(self) -> Work {
        Work {
            awaited: false,
            ..self
        }
    }

    /// Begins when all before is complete.
    #[must_use]
    pub fn fenced(self) -> Work {
        Work {
            fence: true,
            ..self
        }
    }

    /// Shows the peer `number`.
    #[must_use]
    pub fn with_immediate(self, number: u32) -> Work {
        Work {
            immediate: Some(number),
            ..self
        }
    }

    /// Is delivered to the receiver so.
    #[must_use]
    pub fn delivered(self, delivery: Delivery) -> Work {
        Work { delivery, ..self }
    }

    /// Completes with `context`.
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

/// Delivered so.
impl From<Delivery> for Work {
    fn from(delivery: Delivery) -> Work {
        Work::default().delivered(delivery)
    }
}

/// With this context.
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
