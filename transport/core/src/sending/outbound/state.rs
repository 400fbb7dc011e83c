//! Defines the states of an outgoing Transfer and their transitions.

/// State of an outgoing Transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OutboundState {
    /// Waits for a slot at the peer.
    Queued,
    /// Request_To_Send sent.
    Announced,
    /// The peer deferred it.
    Waiting,
    /// At least one Block was granted.
    Sending,
    /// Confirmed, refused, aborted or cancelled.
    Ended,
}

/// Events of an outgoing Transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OutboundEvent {
    SlotFree,
    AnsweredLater,
    Refused,
    Granted,
    Confirmed,
    EndedByPeer,
    Cancelled,
}

impl OutboundState {
    /// The next state, if `event` is valid in this one.
    pub(crate) fn step(self, event: OutboundEvent) -> Option<OutboundState> {
        use OutboundEvent as H;
        use OutboundState as S;
        match (self, event) {
            (S::Queued, H::SlotFree) => Some(S::Announced),
            (S::Queued, H::Cancelled) => Some(S::Ended),
            (S::Queued | S::Ended, _) | (_, H::SlotFree) => None,
            (S::Announced | S::Waiting, H::AnsweredLater) => Some(S::Waiting),
            (S::Sending, H::AnsweredLater) => None,
            (_, H::Granted) => Some(S::Sending),
            // A Transfer of no bytes is confirmed without a grant.
            (_, H::Confirmed | H::Refused | H::EndedByPeer | H::Cancelled) => Some(S::Ended),
        }
    }
}
