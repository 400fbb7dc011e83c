//! Defines the exit codes of the process, and prints an error with its causes.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus, Termination};

use zerolane::failure::{CloseReason, Reason};

use crate::console;

/// The exit codes of every subcommand. `--help` prints [`Exit::HELP`].
///
/// Attach one to an error with `.context(Exit::Corrupt)`; an error without one
/// ends the process with [`Exit::Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything asked for was done.
    Success,
    /// Something failed; the message says what.
    Failure,
    /// The command line was wrong. clap itself exits with this number too.
    Usage,
    /// The other host does not answer, or is not Zerolane.
    Unreachable,
    /// The data that arrived is not the data that was sent.
    Corrupt,
    /// Part of the work was done, such as some files copied or removed; the messages say what failed.
    Partial,
    /// The other host does not let this key in, or does not accept this code.
    Refused,
    /// The other host's key is not the one it had before, or not the one named.
    Changed,
    /// The other host has reached one of its limits.
    Busy,
    /// Everything was copied except files that vanished from the source before they were read. rsync uses the same
    /// number.
    Vanished,
    /// Everything was copied, and `--max-delete` kept some files from being deleted. rsync uses the same number.
    DeleteLimit,
    /// `explain` or `run` cannot execute the command. Shells exit with this number too.
    NotExecutable,
    /// `lab`, `explain` or `run` cannot find the command. Shells exit with this number too.
    CommandNotFound,
    /// Ended by Ctrl-C or SIGTERM, after cleaning up.
    Interrupted,
    /// The command that `lab`, `explain` or `run` ran ended with this code.
    Command(u8),
}

impl Exit {
    /// The table printed at the end of `--help`.
    pub const HELP: &'static str = "\
Exit codes:
  0    everything was done
  1    something failed; the message says what
  2    the command line was wrong
  3    the other host does not answer, is not Zerolane, or speaks another version
  4    data arrived corrupted
  5    some files were copied (listed, removed) and others failed; the messages say which
  6    the other host refused this key or code
  7    the other host's key has changed, or is not the one you named
  8    the other host has too many connections: try again later
  24   some files vanished from the source before they were read; everything else was copied
  25   sync: everything was copied; --max-delete kept some files that --delete would have removed
  126  explain, run: the command cannot be executed
  127  lab, explain, run: command not found; otherwise the exit code is the command's
  130  stopped by Ctrl-C or SIGTERM, after cleaning up";

    /// The exit code for a connection that failed because of `why`.
    pub(crate) fn of_connecting(why: &zerolane::Error) -> Exit {
        let zerolane::Error::Closed(reason) = why else {
            return Exit::Unreachable;
        };
        match reason {
            CloseReason::Untrusted(_) => Exit::Changed,
            CloseReason::Rejected { reason, .. } | CloseReason::ExchangeRefused(reason) => {
                match reason {
                    Reason::Denied => Exit::Refused,
                    Reason::Busy => Exit::Busy,
                    _ => Exit::Unreachable,
                }
            }
            _ => Exit::Unreachable,
        }
    }

    /// The number that the parent process sees.
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Unreachable => 3,
            Exit::Corrupt => 4,
            Exit::Partial => 5,
            Exit::Refused => 6,
            Exit::Changed => 7,
            Exit::Busy => 8,
            Exit::Vanished => 24,
            Exit::DeleteLimit => 25,
            Exit::NotExecutable => 126,
            Exit::CommandNotFound => 127,
            Exit::Interrupted => 130,
            Exit::Command(code) => code,
        }
    }

    /// The exit code of a shell after a command: the command's code, or 128 plus the signal that killed it.
    pub(crate) fn of_command(status: ExitStatus) -> Exit {
        const SIGNALLED: i32 = 128;
        let code = status
            .code()
            .unwrap_or_else(|| SIGNALLED + status.signal().unwrap_or_default());
        Exit::Command(u8::try_from(code).unwrap_or(u8::MAX))
    }

    /// The exit of a finished command; prints its error on standard error.
    pub(crate) fn after(done: anyhow::Result<Exit>) -> Exit {
        done.unwrap_or_else(|error| {
            console::note(format_args!("zerolane: {}", words(&error)));
            Exit::of(&error)
        })
    }

    /// The code attached to an error, or [`Exit::Failure`].
    pub fn of(error: &anyhow::Error) -> Exit {
        error.downcast_ref().copied().unwrap_or(Exit::Failure)
    }
}

/// An error and its causes in one line. Leaves out a cause that already ends the text before it: many errors include
/// their cause, for programs that print only the error.
fn words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.ends_with(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    match error.chain().any(is_of_descriptors) {
        true => format!("{words}. This process may not have more: raise the limit (ulimit -n)"),
        false => words,
    }
}

/// Whether the process has no file descriptors left.
fn is_of_descriptors(cause: &(dyn std::error::Error + 'static)) -> bool {
    let error = cause.downcast_ref::<io::Error>();
    error.and_then(io::Error::raw_os_error) == Some(nix::libc::EMFILE)
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Exit::Success => "done",
            Exit::Failure => "failed",
            Exit::Usage => "wrong usage",
            Exit::Unreachable => "no answer",
            Exit::Corrupt => "data arrived corrupted",
            Exit::Partial => "not all was done",
            Exit::Refused => "refused",
            Exit::Changed => "not the host that is trusted",
            Exit::Busy => "busy",
            Exit::Vanished => "files vanished",
            Exit::DeleteLimit => "not all was deleted",
            Exit::NotExecutable | Exit::CommandNotFound => "nothing was run",
            Exit::Interrupted => "interrupted",
            Exit::Command(code) => return write!(f, "the command ended with {code}"),
        })
    }
}

impl std::error::Error for Exit {}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self.code())
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
    fn words__of_too_few_descriptors_say_what_to_do() {
        let error = |code| anyhow::Error::new(io::Error::from_raw_os_error(code)).context("x");
        let words = |code| words(&error(code));
        assert!(words(nix::libc::EMFILE).ends_with("raise the limit (ulimit -n)"));
        assert!(!words(nix::libc::ENOENT).contains("ulimit"));
    }

    #[test]
    fn of_command__is_what_a_shell_would_say() {
        let code = |raw| Exit::of_command(ExitStatus::from_raw(raw)).code();
        assert_eq!((code(3 << 8), code(9)), (3, 137));
    }

    /// The guide's table has the same words as the help.
    #[test]
    fn HELP__is_the_table_of_the_guide() {
        let guide = include_str!("../../../docs/guide/exit-codes.md").replace('`', "");
        let (_, table) = guide.split_once("| exit code | means |\n").unwrap();
        let rows = table.lines().skip(1).take_while(|it| it.starts_with('|'));
        let rows: Vec<_> = rows
            .map(|row| row.trim_matches(['|', ' ']).replace(" | ", " "))
            .collect();
        let lines = Exit::HELP.lines().skip(1);
        let lines: Vec<_> = lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(rows, lines);
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
            Exit::Refused,
            Exit::Changed,
            Exit::Busy,
            Exit::Vanished,
            Exit::DeleteLimit,
            Exit::NotExecutable,
            Exit::CommandNotFound,
            Exit::Interrupted,
        ] {
            let number = format!("\n  {} ", exit.code());
            assert!(Exit::HELP.contains(&number), "{exit:?}");
        }
    }
}
