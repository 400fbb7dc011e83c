//! Catches panics: a panic that reached nbdkit's frames would end nbdkit and all its clients.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::failure::Failure;

/// The result of `call`; a panic becomes a failure.
pub(crate) fn caught<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // State that a panic leaves inconsistent is not used again: the queue reconnects or has failed, and parameters are
    // set as a whole.
    let outcome = catch_unwind(AssertUnwindSafe(call));
    outcome.unwrap_or_else(|panic| Err(Failure::bug(words(&*panic))))
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without words")
}
