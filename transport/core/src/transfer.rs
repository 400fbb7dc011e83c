//! Identifies Transfers, and defines how their arrival is delivered.

/// A Transfer posted on this connection, by either end of it. From 1 to 2^31 - 1. An identifier is reused only after as
/// many posts.
pub type TransferId = u32;

/// Whether `id` was assigned before `other`, by at most 2^30 posts.
pub(crate) fn is_older(id: TransferId, other: TransferId) -> bool {
    // Identifiers count up and wrap at 2^31.
    id != other && other.wrapping_sub(id) << 1 < 1 << 31
}

/// How the sender asks for the arrival of a Transfer to be delivered (thesis, 4.1: Silent and Interrupt bits).
///
/// A receiver honours it if it chose so; otherwise every completion wakes. Completions come in order in all modes, and a
/// call that waits for one particular request returns at its end in all modes. Four events wake the receiver in all
/// modes: a failure, the end of the connection, a Transfer that matches no posted receive (a held-back completion may
/// cover the memory for one), and a Transfer of no bytes, which is a control operation alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// No event and no wake-up of its own. The completion is held back until the connection's next completion that is
    /// not silent, or until the receiver asks for it by its number.
    Silent,
    /// Delivered to a receiver that polls. It does not wake a waiting receiver, which gets it with the next completion
    /// that does.
    Polled,
    /// Delivered, and wakes a waiting receiver.
    #[default]
    Interrupt,
}

/// Set in every handle and in no Transfer identifier.
pub(crate) const HANDLE: u32 = 1 << 31;

/// Set in the handles that programs make from numbers of their own, and in no handle that the core assigns.
pub(crate) const NUMBERED: u32 = HANDLE | 1 << 30;

/// The Mx of a region: the low bits of its handle.
pub(crate) const fn mx(handle: u32) -> u16 {
    handle as u16
}
