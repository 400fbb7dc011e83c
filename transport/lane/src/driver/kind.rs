//! Names the kinds of requests that completions report.

use zerolane_core::WorkRequest;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkKind {
    /// A Transfer sent.
    Send,
    /// A Transfer received.
    Receive,
    /// A Transfer offered for the peer's Read.
    Offer,
    /// A Transfer read.
    Read,
    /// A put.
    Put,
    /// A get.
    Get,
    /// An atomic operation.
    FetchOp,
    /// A message sent.
    Message,
    /// A message received.
    MessageReceived,
    /// A put of the peer with an immediate number. Nothing was posted for it.
    Immediate,
    /// A region opened by name.
    Open,
    /// A datagram sent. Its end is not reported.
    Datagram,
}

impl WorkKind {
    /// The kind of completion that ends `request`.
    pub(super) fn of(request: &WorkRequest<'_>) -> WorkKind {
        match request {
            WorkRequest::Send { .. } => WorkKind::Send,
            WorkRequest::Receive => WorkKind::Receive,
            WorkRequest::Offer { .. } => WorkKind::Offer,
            WorkRequest::Read => WorkKind::Read,
            WorkRequest::Put { .. } => WorkKind::Put,
            WorkRequest::Get { .. } => WorkKind::Get,
            WorkRequest::FetchOp { .. } => WorkKind::FetchOp,
            WorkRequest::Message { .. } => WorkKind::Message,
            WorkRequest::ReceiveMessage { .. } => WorkKind::MessageReceived,
            WorkRequest::OpenRegion { .. } => WorkKind::Open,
            WorkRequest::Datagram { .. } => WorkKind::Datagram,
        }
    }

    /// Whether it fills memory of this end.
    pub(super) fn is_incoming(self) -> bool {
        matches!(
            self,
            WorkKind::Receive | WorkKind::Read | WorkKind::Get | WorkKind::MessageReceived
        )
    }

    /// Whether it delivers something to the peer: closing waits for it.
    pub fn is_outgoing(self) -> bool {
        matches!(
            self,
            WorkKind::Send
                | WorkKind::Offer
                | WorkKind::Put
                | WorkKind::FetchOp
                | WorkKind::Message
        )
    }
}
