//! Defines the life of a connection as a state table.

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    /// Initiator: Request_Connection sent.
    Connecting,
    /// Responder: Connection_Answer sent, the Initiator's address not yet proven.
    Answered,
    /// Open both ways.
    Established,
    /// Request_Disconnect sent.
    Disconnecting,
    /// Disconnect_Answer sent.
    Answering,
    /// Over.
    Closed,
}

impl Life {
    /// All states.
    pub const ALL: [Life; 6] = [
        Life::Connecting,
        Life::Answered,
        Life::Established,
        Life::Disconnecting,
        Life::Answering,
        Life::Closed,
    ];
}

/// Events of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LifeEvent {
    /// Connection_Answer: accepted.
    Accepted,
    /// Connection_Answer: rejected.
    Rejected,
    /// Request_Connection again, from the same Initiator.
    RequestRepeated,
    /// Any other operation with our key.
    Operation,
    /// The user closes the connection.
    Close,
    /// Request_Disconnect.
    RequestDisconnect,
    /// Disconnect_Answer.
    DisconnectAnswer,
    /// Disconnect_Complete.
    DisconnectComplete,
    /// The handshake or the disconnect handshake took too long.
    GaveUp,
    /// The peer is dead, unreachable, or broke the protocol.
    Lost,
}

impl LifeEvent {
    #[cfg(test)]
    pub(crate) const ALL: [LifeEvent; 10] = [
        LifeEvent::Accepted,
        LifeEvent::Rejected,
        LifeEvent::RequestRepeated,
        LifeEvent::Operation,
        LifeEvent::Close,
        LifeEvent::RequestDisconnect,
        LifeEvent::DisconnectAnswer,
        LifeEvent::DisconnectComplete,
        LifeEvent::GaveUp,
        LifeEvent::Lost,
    ];
}

/// Action that follows a state change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transition {
    /// Nothing: ignore the event, or let the Transfers handle it.
    Nothing,
    /// Tell the user that the connection is established.
    Open,
    /// Send Connection_Answer again.
    AnswerAgain,
    /// Send Request_Disconnect.
    AskToDisconnect,
    /// Send Disconnect_Answer, and fail everything pending.
    AgreeToDisconnect,
    /// Send Disconnect_Complete and end.
    Complete,
    /// End, telling the user why.
    End,
}

/// The next state, and the action.
pub(crate) fn step(life: Life, event: LifeEvent) -> (Life, Transition) {
    use Life as L;
    use LifeEvent as H;
    match (life, event) {
        (L::Closed, H::RequestDisconnect) => (L::Closed, Transition::AgreeToDisconnect),
        (L::Closed, H::DisconnectAnswer) => (L::Closed, Transition::Complete),
        (L::Closed, _) => (L::Closed, Transition::Nothing),
        (_, H::Lost) => (L::Closed, Transition::End),

        (L::Connecting, H::Accepted) => (L::Established, Transition::Open),
        (L::Connecting, H::Rejected | H::Close | H::GaveUp) => (L::Closed, Transition::End),
        (L::Connecting, _) => (L::Connecting, Transition::Nothing),

        (L::Answered, H::RequestRepeated) => (L::Answered, Transition::AnswerAgain),
        (L::Answered, H::Operation) => (L::Established, Transition::Open),
        (L::Answered, H::RequestDisconnect) => (L::Answering, Transition::AgreeToDisconnect),
        (L::Answered, H::Close | H::GaveUp) => (L::Closed, Transition::End),
        (L::Answered, _) => (L::Answered, Transition::Nothing),

        // The Initiator missed our answer, yet our key was used: answer once more.
        (L::Established, H::RequestRepeated) => (L::Established, Transition::AnswerAgain),
        (L::Established, H::Close) => (L::Disconnecting, Transition::AskToDisconnect),
        (L::Established, H::RequestDisconnect) => (L::Answering, Transition::AgreeToDisconnect),
        (L::Established, _) => (L::Established, Transition::Nothing),

        (L::Disconnecting, H::DisconnectAnswer) => (L::Closed, Transition::Complete),
        // Both asked at once. The peer may be gone by now and never answer: its request is enough.
        (L::Disconnecting, H::RequestDisconnect) => (L::Answering, Transition::AgreeToDisconnect),
        (L::Disconnecting, H::DisconnectComplete | H::GaveUp) => (L::Closed, Transition::End),
        (L::Disconnecting, _) => (L::Disconnecting, Transition::Nothing),

        (L::Answering, H::RequestDisconnect) => (L::Answering, Transition::AgreeToDisconnect),
        // The answer to this end's own request.
        (L::Answering, H::DisconnectAnswer) => (L::Closed, Transition::Complete),
        (L::Answering, H::DisconnectComplete | H::GaveUp) => (L::Closed, Transition::End),
        (L::Answering, _) => (L::Answering, Transition::Nothing),
    }
}

#[cfg(test)]
#[path = "life_tests.rs"]
mod tests;
