//! Turns C's pointers into references, in this file alone: refuses null, and relies on C's promise for the rest.

use crate::status::{Failure, zl_status};
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::slice;
use std::time::Duration;

/// Passes a value to C.
pub(crate) fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Frees what [`give`] gave. Null does nothing.
///
/// # Safety
/// `handle` is null, or from [`give`] and not taken yet, and no other thread uses it.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: from give, and taken once, as the caller promises.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// A reference to a handle for the duration of a call.
///
/// # Safety
/// `handle` is null, or from [`give`] and not freed during `'a`.
pub(crate) unsafe fn handle<'a, T>(handle: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::null(name))
}

/// The place for a result. Checked before the call starts, so that no call loses its result.
pub(crate) struct Output<T>(*mut T);

impl<T> Output<T> {
    /// # Safety
    /// `place` is null, or aligned and writable until the call returns.
    pub(crate) unsafe fn new(place: *mut T, name: &str) -> Result<Output<T>, Failure> {
        if place.is_null() {
            return Err(Failure::null(name));
        }
        Ok(Output(place))
    }

    /// A place that C may leave out, with null.
    ///
    /// # Safety
    /// As for [`Output::new`].
    pub(crate) unsafe fn optional(place: *mut T) -> Option<Output<T>> {
        (!place.is_null()).then_some(Output(place))
    }

    pub(crate) fn set(self, value: T) {
        // SAFETY: promised to new. The old value is C's, and is not dropped.
        unsafe { self.0.write(value) }
    }
}

/// The places for up to `capacity` results and for their number.
pub(crate) struct Outputs<T> {
    places: *mut T,
    capacity: usize,
    count: Output<usize>,
}

impl<T> Outputs<T> {
    /// # Safety
    /// `capacity` values at `places`, and one at `count`, are as for [`Output::new`].
    pub(crate) unsafe fn new(
        places: *mut T,
        capacity: usize,
        name: &str,
        count: *mut usize,
    ) -> Result<Outputs<T>, Failure> {
        check_extent(places, capacity, name)?;
        if capacity == 0 {
            return Err(Failure::argument("capacity is 0"));
        }
        Ok(Outputs {
            places,
            capacity,
            // SAFETY: the caller's promise.
            count: unsafe { Output::new(count, "count") }?,
        })
    }

    /// Writes as many of `values` as there are places; `ZL_TIMEOUT` if there were none.
    pub(crate) fn set(self, values: impl Iterator<Item = T>) -> zl_status {
        let mut count = 0;
        for value in values.take(self.capacity) {
            // SAFETY: promised to new, and count < capacity. The old value is C's, and is not dropped.
            unsafe { self.places.add(count).write(value) };
            count += 1;
        }
        self.count.set(count);
        match count {
            0 => zl_status::ZL_TIMEOUT,
            _ => zl_status::ZL_OK,
        }
    }
}

/// A text.
///
/// # Safety
/// `text` is null, or ends with a zero byte and does not change during `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| Failure::argument(format!("{name} is not UTF-8")))
}

fn check_extent<T>(start: *const T, len: usize, name: &str) -> Result<(), Failure> {
    if start.is_null() && len > 0 {
        return Err(Failure::null(name));
    }
    let bytes = len.checked_mul(size_of::<T>());
    if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(Failure::argument(format!("{name} is longer than memory")));
    }
    Ok(())
}

/// Values to read; null is allowed if there are none.
///
/// # Safety
/// `len` values at `start` are aligned and readable, and are not written during `'a`.
pub(crate) unsafe fn slice<'a, T>(
    start: *const T,
    len: usize,
    name: &str,
) -> Result<&'a [T], Failure> {
    check_extent(start, len, name)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: not null, of a possible length, and the caller's promise.
    Ok(unsafe { slice::from_raw_parts(start, len) })
}

/// Bytes to read; null is allowed if there are none.
///
/// # Safety
/// As for [`slice`].
pub(crate) unsafe fn bytes<'a>(
    start: *const u8,
    len: usize,
    name: &str,
) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller's promise.
    unsafe { slice(start, len, name) }
}

/// Bytes to write, which C may not have initialised; null is allowed if there are none.
///
/// # Safety
/// `len` bytes at `start` are writable, and nothing else touches them during `'a`.
pub(crate) unsafe fn bytes_mut<'a>(
    start: *mut u8,
    len: usize,
    name: &str,
) -> Result<&'a mut [MaybeUninit<u8>], Failure> {
    check_extent(start, len, name)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as in slice; uninitialised bytes need no alignment and no value.
    Ok(unsafe { slice::from_raw_parts_mut(start.cast(), len) })
}

/// Milliseconds for C, rounded up so that no timer expires early; -1 for none.
pub(crate) fn milliseconds(time: Option<Duration>) -> i64 {
    let rounded = time.map(|it| it.as_micros().div_ceil(1000));
    rounded.map_or(-1, |it| i64::try_from(it).unwrap_or(i64::MAX))
}

/// A timeout from C; negative means no limit.
pub(crate) fn timeout(milliseconds: i64) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}
