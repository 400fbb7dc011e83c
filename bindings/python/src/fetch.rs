//! Defines atomic operations on the peer's memory.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use zerolane::RegionKey;
use zerolane::request::Fetch;

/// An atomic operation, by the size of its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AnyFetchOp {
    U64(zerolane::FetchOp),
    U32(zerolane::FetchOp<u32>),
}

impl AnyFetchOp {
    /// The request for the operation on a word of the peer's memory.
    pub(crate) fn on(self, key: &RegionKey, offset: u64) -> Fetch {
        match self {
            AnyFetchOp::U64(op) => Fetch::new(key, offset, op),
            AnyFetchOp::U32(op) => Fetch::new_u32(key, offset, op),
        }
    }

    /// Bytes of its word.
    pub(crate) fn bytes(self) -> usize {
        match self {
            AnyFetchOp::U64(_) => 8,
            AnyFetchOp::U32(_) => 4,
        }
    }
}

/// A number for a word of 8 or 4 bytes, signed or unsigned.
pub(crate) struct Word(pub(crate) i128);

impl<'py> FromPyObject<'_, 'py> for Word {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Word> {
        Ok(Word(object.extract()?))
    }
}

impl Word {
    /// In two's complement, as the addition of a negative number needs.
    ///
    /// # Errors
    /// OverflowError if it does not fit.
    pub(crate) fn u64(&self) -> PyResult<u64> {
        match i128::from(i64::MIN) <= self.0 && self.0 <= i128::from(u64::MAX) {
            true => Ok(self.0 as u64),
            false => Err(too_long(64)),
        }
    }

    fn u32(&self) -> PyResult<u32> {
        match i128::from(i32::MIN) <= self.0 && self.0 <= i128::from(u32::MAX) {
            true => Ok(self.0 as u32),
            false => Err(too_long(32)),
        }
    }
}

fn too_long(bits: u8) -> PyErr {
    PyOverflowError::new_err(format!("the number does not fit in {bits} bits"))
}

fn of_bits(
    bits: u8,
    wide: impl FnOnce() -> PyResult<zerolane::FetchOp>,
    narrow: impl FnOnce() -> PyResult<zerolane::FetchOp<u32>>,
) -> PyResult<FetchOp> {
    Ok(FetchOp(match bits {
        64 => AnyFetchOp::U64(wide()?),
        32 => AnyFetchOp::U32(narrow()?),
        _ => return Err(PyValueError::new_err("bits must be 64 or 32")),
    }))
}

fn with_value(
    bits: u8,
    value: &Word,
    wide: fn(u64) -> zerolane::FetchOp,
    narrow: fn(u32) -> zerolane::FetchOp<u32>,
) -> PyResult<FetchOp> {
    of_bits(bits, || Ok(wide(value.u64()?)), || Ok(narrow(value.u32()?)))
}

/// An atomic operation on a word of 8 bytes, or of 4 with `bits=32`, for `fetch_op` and `post_fetch_op`. The word is an
/// unsigned integer. The memory must have the 8 aligned bytes that hold a word of 4.
#[pyclass(frozen, eq, hash, weakref, module = "zerolane")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FetchOp(pub(crate) AnyFetchOp);

#[pymethods]
impl FetchOp {
    /// Adds `value`, wrapping; it may be negative.
    #[staticmethod]
    #[pyo3(signature = (value, *, bits=64))]
    fn add(value: Word, bits: u8) -> PyResult<FetchOp> {
        with_value(bits, &value, zerolane::FetchOp::Add, zerolane::FetchOp::Add)
    }

    /// Adds 1, wrapping.
    #[staticmethod]
    #[pyo3(signature = (*, bits=64))]
    fn increment(bits: u8) -> PyResult<FetchOp> {
        of_bits(
            bits,
            || Ok(zerolane::FetchOp::Increment),
            || Ok(zerolane::FetchOp::Increment),
        )
    }

    /// Subtracts 1, wrapping.
    #[staticmethod]
    #[pyo3(signature = (*, bits=64))]
    fn decrement(bits: u8) -> PyResult<FetchOp> {
        of_bits(
            bits,
            || Ok(zerolane::FetchOp::Decrement),
            || Ok(zerolane::FetchOp::Decrement),
        )
    }

    /// Stores 0.
    #[staticmethod]
    #[pyo3(signature = (*, bits=64))]
    fn clear(bits: u8) -> PyResult<FetchOp> {
        of_bits(
            bits,
            || Ok(zerolane::FetchOp::Clear),
            || Ok(zerolane::FetchOp::Clear),
        )
    }

    /// Stores `value`.
    #[staticmethod]
    #[pyo3(signature = (value, *, bits=64))]
    fn swap(value: Word, bits: u8) -> PyResult<FetchOp> {
        with_value(
            bits,
            &value,
            zerolane::FetchOp::Swap,
            zerolane::FetchOp::Swap,
        )
    }

    /// Stores `value` if the word equals `expected`.
    #[staticmethod]
    #[pyo3(signature = (expected, value, *, bits=64))]
    fn compare_and_swap(expected: Word, value: Word, bits: u8) -> PyResult<FetchOp> {
        of_bits(
            bits,
            || {
                Ok(zerolane::FetchOp::CompareAndSwap {
                    expected: expected.u64()?,
                    new: value.u64()?,
                })
            },
            || {
                Ok(zerolane::FetchOp::CompareAndSwap {
                    expected: expected.u32()?,
                    new: value.u32()?,
                })
            },
        )
    }

    /// Clears the bits that `value` does not have.
    #[staticmethod]
    #[pyo3(name = "and_", signature = (value, *, bits=64))]
    fn and(value: Word, bits: u8) -> PyResult<FetchOp> {
        with_value(bits, &value, zerolane::FetchOp::And, zerolane::FetchOp::And)
    }

    /// Sets the bits of `value`.
    #[staticmethod]
    #[pyo3(name = "or_", signature = (value, *, bits=64))]
    fn or(value: Word, bits: u8) -> PyResult<FetchOp> {
        with_value(bits, &value, zerolane::FetchOp::Or, zerolane::FetchOp::Or)
    }

    /// Flips the bits of `value`.
    #[staticmethod]
    #[pyo3(signature = (value, *, bits=64))]
    fn xor(value: Word, bits: u8) -> PyResult<FetchOp> {
        with_value(bits, &value, zerolane::FetchOp::Xor, zerolane::FetchOp::Xor)
    }

    /// Stores `value` if it is less, unsigned.
    #[staticmethod]
    #[pyo3(signature = (value, *, bits=64))]
    fn min(value: Word, bits: u8) -> PyResult<FetchOp> {
        with_value(bits, &value, zerolane::FetchOp::Min, zerolane::FetchOp::Min)
    }

    /// Stores `value` if it is greater, unsigned.
    #[staticmethod]
    #[pyo3(signature = (value, *, bits=64))]
    fn max(value: Word, bits: u8) -> PyResult<FetchOp> {
        with_value(bits, &value, zerolane::FetchOp::Max, zerolane::FetchOp::Max)
    }

    fn __repr__(&self) -> String {
        match self.0 {
            AnyFetchOp::U64(op) => format!("FetchOp.{op:?}"),
            AnyFetchOp::U32(op) => format!("FetchOp.{op:?} of 32 bits"),
        }
    }
}
