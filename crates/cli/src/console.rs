//! Words for the user. `println!` panics when nobody reads any more, as in
//! `zerolane demo | head`; these do not.

use std::fmt::Display;
use std::io::{Write, stderr, stdout};

use anyhow::{Context, Result};

/// A line of the result, on standard output. An error when nobody reads it:
/// then the command may as well end.
pub fn say(line: impl Display) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .context("nobody reads standard output")
}

/// A line about what is going on, on standard error, for whoever reads it.
pub fn note(line: impl Display) {
    let _ = writeln!(stderr().lock(), "{line}");
}
