//! Running `ip` and `ethtool`.

use super::error::{Error, Result};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

/// An outside program and where to get it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tool {
    command: &'static str,
    package: &'static str,
}

pub(super) const IP: Tool = Tool {
    command: "ip",
    package: "iproute2",
};

pub(super) const ETHTOOL: Tool = Tool {
    command: "ethtool",
    package: "ethtool",
};

impl Tool {
    /// Runs the tool with `input` on its standard input; returns what it
    /// printed, or an error if it failed.
    pub(super) fn run_with<A: AsRef<OsStr>>(self, arguments: &[A], input: &str) -> Result<String> {
        let mut command = Command::new(self.command);
        // Messages are matched below, so they must be in English.
        command.args(arguments).env("LC_ALL", "C");
        let output = output_of(&mut command, input).map_err(|error| self.not_started(error))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(self.failed(arguments, message))
    }

    /// Runs the tool without input.
    pub(super) fn run<A: AsRef<OsStr>>(self, arguments: &[A]) -> Result<String> {
        self.run_with(arguments, "")
    }

    fn not_started(self, error: io::Error) -> Error {
        // Also where a directory of PATH may not be searched: then that is what the system says of a
        // program that none of the others has.
        use io::ErrorKind::{NotFound, PermissionDenied};
        if matches!(error.kind(), NotFound | PermissionDenied) {
            return Error::CommandMissing {
                command: self.command,
                package: self.package,
            };
        }
        Error::io(format!("run {}", self.command), error)
    }

    fn failed<A: AsRef<OsStr>>(self, arguments: &[A], message: String) -> Error {
        const NO_RIGHTS: [&str; 2] = ["Operation not permitted", "Permission denied"];
        if NO_RIGHTS.iter().any(|words| message.contains(words)) {
            return Error::NotPermitted(message);
        }
        let words: Vec<_> = std::iter::once(self.command.into())
            .chain(arguments.iter().map(|a| a.as_ref().to_string_lossy()))
            .collect();
        Error::CommandFailed {
            command: words.join(" "),
            message,
        }
    }
}

/// Feeds a child and collects what it prints. The input here is a few lines,
/// less than a pipe holds, so writing it first cannot dead-lock.
fn output_of(command: &mut Command, input: &str) -> io::Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A child that ends without reading shows its reason by its status.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]

    use super::*;

    #[test]
    fn run__missing_tool_names_the_package() {
        let tool = Tool {
            command: "no-such-tool-of-netlab",
            package: "netlab-tools",
        };
        let error = tool.run(&["x"]).expect_err("does not exist");
        assert_eq!(
            error.to_string(),
            "`no-such-tool-of-netlab` not found in PATH: install the package `netlab-tools`"
        );
    }

    #[test]
    fn run__failure_names_the_command_line() {
        let tool = Tool {
            command: "ls",
            package: "coreutils",
        };
        let error = tool.run(&["--no-such-option"]).expect_err("no such option");
        assert!(
            matches!(&error, Error::CommandFailed { command, message }
                if command == "ls --no-such-option" && !message.is_empty()),
            "{error:?}"
        );
    }
}
