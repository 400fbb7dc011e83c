//! What the process tells its parent when it ends.

use std::fmt;
use std::process::{ExitCode, Termination};

/// The exit codes of every subcommand. `--help` prints [`Exit::HELP`].
///
/// Attach one to an error with `.context(Exit::Corrupt)`; an error without one
/// ends the process with [`Exit::Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Everything asked for was done.
    Success = 0,
    /// Something failed; the message says what.
    Failure = 1,
    /// The command line was wrong. clap itself exits with this number too.
    Usage = 2,
    /// The other host does not answer, or is not Zerolane.
    Unreachable = 3,
    /// Data arrived, and it was not the data that was sent.
    Corrupt = 4,
    /// Some of the files were copied, others were not; the messages say which.
    Partial = 5,
    /// Ended by Ctrl-C or SIGTERM, after cleaning up.
    Interrupted = 130,
}

impl Exit {
    /// The table printed at the end of `--help`.
    pub(crate) const HELP: &'static str = "\
Exit codes:
  0    everything asked for was done
  1    something failed; the message says what
  2    the command line was wrong
  3    the other host does not answer, is not Zerolane, or speaks another version
  4    data arrived wrong
  5    some files were copied, others not; the messages say which
  130  ended by Ctrl-C or SIGTERM, after cleaning up";

    /// The code an error carries, [`Exit::Failure`] if none was attached.
    pub(crate) fn of(error: &anyhow::Error) -> Exit {
        error.downcast_ref().copied().unwrap_or(Exit::Failure)
    }
}

/// An error and its causes in one line. A cause that the words before it end with already is left out:
/// many errors name their cause themselves, for programs that print only the error.
pub(crate) fn words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.ends_with(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Exit::Success => "done",
            Exit::Failure => "failed",
            Exit::Usage => "wrong usage",
            Exit::Unreachable => "no answer",
            Exit::Corrupt => "data arrived wrong",
            Exit::Partial => "some files were not copied",
            Exit::Interrupted => "interrupted",
        })
    }
}

impl std::error::Error for Exit {}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn of__finds_the_code_under_further_context() {
        let error = Err::<(), _>(anyhow!("word 3"))
            .context(Exit::Corrupt)
            .context("copying a")
            .unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Corrupt);
        assert_eq!(Exit::of(&anyhow!("plain")), Exit::Failure);
    }

    #[test]
    fn words__say_every_cause_once() {
        let inner = || anyhow!("refused");
        let error = inner().context("connecting: refused").context("listing");
        assert_eq!(words(&error), "listing: connecting: refused");
        assert_eq!(words(&inner().context("listing")), "listing: refused");
    }

    #[test]
    fn HELP__names_every_code() {
        for exit in [
            Exit::Success,
            Exit::Failure,
            Exit::Usage,
            Exit::Unreachable,
            Exit::Corrupt,
            Exit::Partial,
            Exit::Interrupted,
        ] {
            let number = format!("\n  {} ", exit as u8);
            assert!(Exit::HELP.contains(&number), "{exit:?}");
        }
    }
}
