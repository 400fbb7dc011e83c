//! Prints messages for the user. `println!` panics when standard output is closed, as in `zerolane demo | head`; these
//! functions do not.

use std::fmt::Display;
use std::io::{Write, stderr, stdout};

use anyhow::{Context, Result};

/// Prints a line of the result on standard output. An error means that the reader is gone, and the command may end.
pub fn say(line: impl Display) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .context("standard output is closed")
}

/// A number and its noun: "1 file", "2 files".
pub(crate) fn counted<N: Display + From<u8> + PartialEq>(number: N, noun: &str) -> String {
    match number == N::from(1) {
        true => format!("1 {noun}"),
        false => format!("{number} {noun}s"),
    }
}

/// How often something happened: "once", "2 times".
pub(crate) fn times(number: u64) -> String {
    match number {
        1 => "once".into(),
        _ => format!("{number} times"),
    }
}

/// Prints a line about the progress of the command on standard error.
pub fn note(line: impl Display) {
    let _ = writeln!(stderr().lock(), "{line}");
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn counted__has_a_plural_unless_there_is_one() {
        let words = [0_u64, 1, 2].map(|it| counted(it, "file"));
        assert_eq!(words, ["0 files", "1 file", "2 files"]);
        assert_eq!(counted(1_usize, "other key"), "1 other key");
        assert_eq!([1, 2].map(times), ["once", "2 times"]);
    }
}
