//! Defines atomic operations on the peer's memory and on exported memory.

use crate::status::Failure;
use zerolane::request::Fetch;
use zerolane::{FetchOp, RegionKey};

/// An operation on a word of the peer's memory, done atomically and exactly once.
#[repr(u32)]
pub enum zl_fetch_op_kind {
    /// Adds `operand`, wrapping.
    ZL_FETCH_ADD = 0,
    /// Adds 1, wrapping.
    ZL_FETCH_INCREMENT = 1,
    /// Subtracts 1, wrapping.
    ZL_FETCH_DECREMENT = 2,
    /// Stores 0.
    ZL_FETCH_CLEAR = 3,
    /// Stores `operand`.
    ZL_FETCH_SWAP = 4,
    /// Stores `operand` if the word equals `expected`.
    ZL_FETCH_COMPARE_AND_SWAP = 5,
    /// Clears the bits that `operand` does not have.
    ZL_FETCH_AND = 6,
    /// Sets the bits of `operand`.
    ZL_FETCH_OR = 7,
    /// Flips the bits of `operand`.
    ZL_FETCH_XOR = 8,
    /// Stores `operand` if it is less, unsigned.
    ZL_FETCH_MIN = 9,
    /// Stores `operand` if it is greater, unsigned.
    ZL_FETCH_MAX = 10,
}

/// Joined by | to a zl_fetch_op_kind: the word has 4 bytes, and `operand` and `expected` are below
/// 2^32. The region must have the 8 aligned bytes that hold the word.
pub const ZL_FETCH_U32: u32 = 0x10000;

/// An operation on a word of either size.
pub(crate) enum AnyFetchOp {
    U64(FetchOp),
    U32(FetchOp<u32>),
}

impl AnyFetchOp {
    /// The request for the operation on a word of the peer's memory.
    pub(crate) fn on(self, key: &RegionKey, offset: u64) -> Fetch {
        match self {
            AnyFetchOp::U64(op) => Fetch::new(key, offset, op),
            AnyFetchOp::U32(op) => Fetch::new_u32(key, offset, op),
        }
    }
}

pub(crate) fn fetch_op(op: u32, operand: u64, expected: u64) -> Result<AnyFetchOp, Failure> {
    if op & ZL_FETCH_U32 == 0 {
        return Ok(AnyFetchOp::U64(kind(op, operand, expected)?));
    }
    let narrow = |value: u64, name| {
        u32::try_from(value).map_err(|_| Failure::argument(format!("{name} has more than 32 bits")))
    };
    let (operand, expected) = (narrow(operand, "operand")?, narrow(expected, "expected")?);
    Ok(AnyFetchOp::U32(kind(
        op & !ZL_FETCH_U32,
        operand,
        expected,
    )?))
}

fn kind<W>(op: u32, operand: W, expected: W) -> Result<FetchOp<W>, Failure> {
    Ok(match op {
        0 => FetchOp::Add(operand),
        1 => FetchOp::Increment,
        2 => FetchOp::Decrement,
        3 => FetchOp::Clear,
        4 => FetchOp::Swap(operand),
        5 => FetchOp::CompareAndSwap {
            expected,
            new: operand,
        },
        6 => FetchOp::And(operand),
        7 => FetchOp::Or(operand),
        8 => FetchOp::Xor(operand),
        9 => FetchOp::Min(operand),
        10 => FetchOp::Max(operand),
        _ => return Err(Failure::argument(format!("unknown fetch-op {op}"))),
    })
}
