//! Runs commands in the background of a test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The command, with the keys in `home`.
pub(crate) fn zerolane(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zerolane"));
    command.env("ZEROLANE_HOME", home).args(words);
    command
}

/// A command that runs until it is dropped, and its output.
pub(crate) struct Running(Child, BufReader<ChildStdout>);

impl Running {
    pub(crate) fn new(mut command: Command) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Running(child, said)
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Like Ctrl-C, so that the command also ends its children.
        let id = nix::unistd::Pid::from_raw(self.0.id() as i32);
        let _ = nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM);
        let _ = self.0.wait();
    }
}
