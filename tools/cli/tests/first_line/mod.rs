//! A command that is waited for until it has said something.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Starts `command`; its first line, without its end. What it says later is not heard.
pub(crate) fn started(command: &mut Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    (child, line.trim().to_owned())
}
