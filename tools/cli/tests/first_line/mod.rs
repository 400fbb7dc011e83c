//! Starts a command, and waits for its first line.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Starts `command`. Returns it and its first line, without the line end. Later output is ignored.
pub(crate) fn started(command: &mut Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    (child, line.trim().to_owned())
}
