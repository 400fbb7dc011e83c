//! What names a Transfer, and how its arrival is delivered.

/// A Transfer posted on this connection, by either end of it. From 1 to 2^31 - 1, not reused for as
/// many posts.
pub type TransferId = u32;

/// Whether `id` was given before `other`, by at most 2^30 posts.
pub fn is_older(id: TransferId, other: TransferId) -> bool {
    // Identifiers count up and wrap at 2^31.
    id != other && other.wrapping_sub(id) << 1 < 1 << 31
}

/// How the sender asks for the arrival of a Transfer to be delivered (thesis, 4.1: Silent and Interrupt bits).
/// Completions come in order in all modes, and calls that wait for one request in particular return at its end
/// in all modes. These wake in all modes: failures, the end of the connection, a Transfer that finds no receive
/// posted (the memory for one may be in what was not delivered), and a Transfer of no bytes, which is a control
/// operation alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// No event and no wake-up of its own. The completion is held back, and delivered with the next of the
    /// connection that is not silent, or when the receiver asks for it by its number.
    Silent,
    /// Delivered to a receiver that polls. It wakes none that waits: to that one it comes with the next that
    /// does.
    Polled,
    /// Delivered, and wakes a receiver that waits.
    #[default]
    Interrupt,
}

/// Set in every handle and in no Transfer identifier.
pub(crate) const HANDLE: u32 = 1 << 31;
