//! Messages for the user. `println!` panics when standard output is closed, as in
//! `zerolane demo | head`; these do not.

use std::fmt::Display;
use std::io::{Write, stderr, stdout};

use anyhow::{Context, Result};

/// A line of the result, on standard output. It fails when the reader is gone:
/// then the command may end.
pub fn say(line: impl Display) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .context("standard output is closed")
}

/// A line about the progress of the command, on standard error.
pub fn note(line: impl Display) {
    let _ = writeln!(stderr().lock(), "{line}");
}
