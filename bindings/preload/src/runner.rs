//! Knows the runner of this program, and the C library's errors.

use crate::real;
use libc::c_int;
use std::sync::OnceLock;
use zerolane_streams::sockets::call::{Call, Runner, VARIABLE};
use zerolane_streams::sockets::program::Talk;

/// The runner, if the environment named one when the library was loaded.
static RUNNER: OnceLock<Runner> = OnceLock::new();

/// The runner.
pub(crate) fn runner() -> Option<&'static Runner> {
    RUNNER.get()
}

/// Reads the environment, before the program can change it, and tells the runner that the library is there.
extern "C" fn begin() {
    real::find_all();
    let Ok(name) = std::ffi::CString::new(VARIABLE) else {
        return;
    };
    // SAFETY: the name ends with a zero byte; no other thread runs yet.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return;
    }
    // SAFETY: an environment variable ends with a zero byte.
    let value = unsafe { std::ffi::CStr::from_ptr(value) };
    if let Some(runner) = Runner::parse(value.to_bytes())
        && RUNNER.set(runner).is_ok()
        && let Some(talk) = Talk::begin(&runner)
    {
        talk.ask(Call::Hello);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// The error of the last call that failed.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library's variable of this thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the error that the program reads.
pub(crate) fn set_errno(error: c_int) {
    // SAFETY: the C library's variable of this thread.
    unsafe { *libc::__errno_location() = error }
}
