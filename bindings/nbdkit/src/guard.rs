//! Keeps panics on this side: a panic that reached nbdkit's frames would end nbdkit, and all its clients with it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::failure::Failure;

/// What `call` returns; a panic is a failure.
pub(crate) fn caught<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // Nothing that a panic leaves half done is used again: the queue connects anew, or has failed, and parameters are set as a whole.
    let outcome = catch_unwind(AssertUnwindSafe(call));
    outcome.unwrap_or_else(|panic| Err(Failure::bug(words(&*panic))))
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without words")
}
