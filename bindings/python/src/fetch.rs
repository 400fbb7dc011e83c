//! Defines atomic operations on the peer's memory.

use crate::exported::Word;
use pyo3::prelude::*;

/// An atomic operation on a word of 8 bytes, for `fetch_op` and `post_fetch_op`.
#[pyclass(frozen, eq, hash, weakref, module = "zerolane")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FetchOp(pub(crate) zerolane::FetchOp);

#[pymethods]
impl FetchOp {
    /// Adds `value`, wrapping; it may be negative.
    #[staticmethod]
    fn add(value: Word) -> FetchOp {
        FetchOp(zerolane::FetchOp::Add(value.0))
    }

    /// Adds 1, wrapping.
    #[staticmethod]
    fn increment() -> FetchOp {
        FetchOp(zerolane::FetchOp::Increment)
    }

    /// Subtracts 1, wrapping.
    #[staticmethod]
    fn decrement() -> FetchOp {
        FetchOp(zerolane::FetchOp::Decrement)
    }

    /// Stores 0.
    #[staticmethod]
    fn clear() -> FetchOp {
        FetchOp(zerolane::FetchOp::Clear)
    }

    /// Stores `value`.
    #[staticmethod]
    fn swap(value: Word) -> FetchOp {
        FetchOp(zerolane::FetchOp::Swap(value.0))
    }

    /// Stores `value` if the word equals `expected`.
    #[staticmethod]
    fn compare_and_swap(expected: Word, value: Word) -> FetchOp {
        FetchOp(zerolane::FetchOp::CompareAndSwap {
            expected: expected.0,
            new: value.0,
        })
    }

    fn __repr__(&self) -> String {
        format!("FetchOp.{:?}", self.0)
    }
}
