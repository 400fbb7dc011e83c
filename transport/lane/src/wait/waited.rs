//! Defines the outcome of a wait.

/// What ended a wait. The end of a connection is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited<T> {
    /// What was waited for.
    Got(T),
    /// It did not come in time.
    TimedOut,
    /// A [`Waker`](super::Waker) was used, or what drives the connection has something else to do.
    Woken,
}

impl<T> Waited<T> {
    /// What was waited for, if it came.
    pub fn got(self) -> Option<T> {
        match self {
            Waited::Got(it) => Some(it),
            Waited::TimedOut | Waited::Woken => None,
        }
    }

    /// The same end of another wait, which brought nothing.
    pub fn in_vain<U>(self) -> Waited<U> {
        match self {
            Waited::Woken => Waited::Woken,
            Waited::Got(_) | Waited::TimedOut => Waited::TimedOut,
        }
    }
}
