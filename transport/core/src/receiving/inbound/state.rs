//! Defines the states of an incoming Transfer and their transitions.

/// State of an incoming Transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum InboundState {
    /// Not yet announced, as far as this end heard.
    Unheard,
    /// Announced; waits for a receive.
    Announced,
    /// Matched; Blocks are granted.
    Receiving,
    /// All of it arrived.
    Complete,
    /// Refused, aborted or cancelled.
    Ended,
}

/// Events of an incoming Transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum InboundEvent {
    Announced,
    Matched,
    TooLarge,
    AllArrived,
    EndedByPeer,
    Cancelled,
}

impl InboundState {
    /// The next state, if `event` is valid in this one.
    pub(crate) fn step(self, event: InboundEvent) -> Option<InboundState> {
        use InboundEvent as H;
        use InboundState as S;
        match (self, event) {
            (S::Unheard, H::Announced) => Some(S::Announced),
            (S::Announced, H::Matched) => Some(S::Receiving),
            (S::Announced, H::TooLarge) => Some(S::Ended),
            (S::Receiving, H::AllArrived) => Some(S::Complete),
            (S::Unheard | S::Announced | S::Receiving, H::EndedByPeer) => Some(S::Ended),
            (S::Receiving, H::Cancelled) => Some(S::Ended),
            _ => None,
        }
    }
}
