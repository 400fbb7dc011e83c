//! Defines the protocol violations that end a session.

/// The protocol violation for which an initiator was disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Offence {
    /// Bytes that are no PDU, or whose digest is wrong.
    #[error("bytes that are not a PDU")]
    Frame,
    /// A PDU before or after its time.
    #[error("a PDU that is not allowed here: only outside a login, or only during one")]
    Login,
    /// Commands are missing.
    #[error("a command number out of order")]
    Order,
    /// Data that was not asked for, or not in its order.
    #[error("data that was not requested, or is out of order")]
    Data,
    /// It did nothing for too long.
    #[error("data or a login did not arrive in time")]
    Silence,
}
