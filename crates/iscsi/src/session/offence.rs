//! What no initiator does.

/// Why an initiator was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Offence {
    /// Bytes that are no PDU, or whose digest is wrong.
    #[error("bytes that are no PDU")]
    Frame,
    /// A PDU before or after its time.
    #[error("a PDU that has no place in a login, or only there")]
    Login,
    /// Commands are missing.
    #[error("a command whose number is not the next")]
    Order,
    /// Data that was not asked for, or not in its order.
    #[error("data that was not asked for, or that is not the next")]
    Data,
    /// It did nothing for too long.
    #[error("it owes data, or a login, and is silent")]
    Silence,
}
