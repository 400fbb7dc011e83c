//! The life of a connection, as a table.

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    /// Initiator: Request_Connection sent.
    Connecting,
    /// Responder: Connection_Answer sent, the Initiator's address not proven yet.
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

/// What can happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Happening {
    /// Connection_Answer: accepted.
    Accepted,
    /// Connection_Answer: rejected.
    Rejected,
    /// Request_Connection again, from the same Initiator.
    RequestRepeated,
    /// Any other operation with our key.
    Operation,
    /// The user closes.
    Close,
    /// Request_Disconnect.
    RequestDisconnect,
    /// Disconnect_Answer.
    DisconnectAnswer,
    /// Disconnect_Complete.
    DisconnectComplete,
    /// Waited long enough for the handshake or the disconnect handshake.
    GaveUp,
    /// The peer is dead, unreachable, or broke the protocol.
    Lost,
}

impl Happening {
    #[cfg(test)]
    pub(crate) const ALL: [Happening; 10] = [
        Happening::Accepted,
        Happening::Rejected,
        Happening::RequestRepeated,
        Happening::Operation,
        Happening::Close,
        Happening::RequestDisconnect,
        Happening::DisconnectAnswer,
        Happening::DisconnectComplete,
        Happening::GaveUp,
        Happening::Lost,
    ];
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Then {
    /// Nothing: ignore it, or let the Transfers deal with it.
    Nothing,
    /// Tell the user that the connection stands.
    Open,
    /// Send Connection_Answer again.
    AnswerAgain,
    /// Send Request_Disconnect.
    AskToDisconnect,
    /// Send Disconnect_Answer, and fail what is left.
    AgreeToDisconnect,
    /// Send Disconnect_Complete and end.
    Complete,
    /// End, telling the user why.
    End,
}

/// The next state and what follows.
pub(crate) fn step(life: Life, happening: Happening) -> (Life, Then) {
    use Happening as H;
    use Life as L;
    match (life, happening) {
        (L::Closed, H::RequestDisconnect) => (L::Closed, Then::AgreeToDisconnect),
        (L::Closed, H::DisconnectAnswer) => (L::Closed, Then::Complete),
        (L::Closed, _) => (L::Closed, Then::Nothing),
        (_, H::Lost) => (L::Closed, Then::End),

        (L::Connecting, H::Accepted) => (L::Established, Then::Open),
        (L::Connecting, H::Rejected | H::Close | H::GaveUp) => (L::Closed, Then::End),
        (L::Connecting, _) => (L::Connecting, Then::Nothing),

        (L::Answered, H::RequestRepeated) => (L::Answered, Then::AnswerAgain),
        (L::Answered, H::Operation) => (L::Established, Then::Open),
        (L::Answered, H::RequestDisconnect) => (L::Answering, Then::AgreeToDisconnect),
        (L::Answered, H::Close | H::GaveUp) => (L::Closed, Then::End),
        (L::Answered, _) => (L::Answered, Then::Nothing),

        // The Initiator missed our answer but somebody used our key: answer once more.
        (L::Established, H::RequestRepeated) => (L::Established, Then::AnswerAgain),
        (L::Established, H::Close) => (L::Disconnecting, Then::AskToDisconnect),
        (L::Established, H::RequestDisconnect) => (L::Answering, Then::AgreeToDisconnect),
        (L::Established, _) => (L::Established, Then::Nothing),

        (L::Disconnecting, H::DisconnectAnswer) => (L::Closed, Then::Complete),
        // Both asked at once. The peer may be gone by now and answer nothing: its word is enough.
        (L::Disconnecting, H::RequestDisconnect) => (L::Answering, Then::AgreeToDisconnect),
        (L::Disconnecting, H::DisconnectComplete | H::GaveUp) => (L::Closed, Then::End),
        (L::Disconnecting, _) => (L::Disconnecting, Then::Nothing),

        (L::Answering, H::RequestDisconnect) => (L::Answering, Then::AgreeToDisconnect),
        // An answer, if this end asked as well.
        (L::Answering, H::DisconnectAnswer) => (L::Closed, Then::Complete),
        (L::Answering, H::DisconnectComplete | H::GaveUp) => (L::Closed, Then::End),
        (L::Answering, _) => (L::Answering, Then::Nothing),
    }
}

#[cfg(test)]
#[path = "life_tests.rs"]
mod tests;
