//! Defines atomic operations.

use zerolane_lane::Atomic;
use zerolane_wire::{FetchOpKind, Word};

/// An atomic operation on an aligned word of 64 bits, or of 32 (`FetchOp<u32>`): an unsigned integer in the byte order of
/// the memory's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FetchOp<W = u64> {
    /// Adds, wrapping.
    Add(W),
    /// Adds one, wrapping.
    Increment,
    /// Subtracts one, wrapping.
    Decrement,
    /// Stores zero.
    Clear,
    /// Stores this value.
    Swap(W),
    /// Stores `new` if the word is `expected`.
    CompareAndSwap {
        /// The expected value.
        expected: W,
        /// The value to store.
        new: W,
    },
    /// Clears the bits that this value does not have.
    And(W),
    /// Sets the bits of this value.
    Or(W),
    /// Flips the bits of this value.
    Xor(W),
    /// Stores this value if it is less.
    Min(W),
    /// Stores this value if it is greater.
    Max(W),
}

impl From<FetchOp> for Atomic {
    fn from(op: FetchOp) -> Atomic {
        atomic(op, Word::U64)
    }
}

impl From<FetchOp<u32>> for Atomic {
    fn from(op: FetchOp<u32>) -> Atomic {
        atomic(op, Word::U32)
    }
}

fn atomic<W: Into<u64>>(op: FetchOp<W>, word: Word) -> Atomic {
    let mut comparand = 0;
    let (kind, operand) = match op {
        FetchOp::Add(n) => (FetchOpKind::Add, n.into()),
        FetchOp::Increment => (FetchOpKind::Increment, 0),
        FetchOp::Decrement => (FetchOpKind::Decrement, 0),
        FetchOp::Clear => (FetchOpKind::Clear, 0),
        FetchOp::Swap(new) => (FetchOpKind::Swap, new.into()),
        FetchOp::CompareAndSwap { expected, new } => {
            comparand = expected.into();
            (FetchOpKind::CompareAndSwap, new.into())
        }
        FetchOp::And(bits) => (FetchOpKind::And, bits.into()),
        FetchOp::Or(bits) => (FetchOpKind::Or, bits.into()),
        FetchOp::Xor(bits) => (FetchOpKind::Xor, bits.into()),
        FetchOp::Min(n) => (FetchOpKind::Min, n.into()),
        FetchOp::Max(n) => (FetchOpKind::Max, n.into()),
    };
    Atomic {
        kind,
        word,
        operand,
        comparand,
    }
}
