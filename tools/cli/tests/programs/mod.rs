//! Checks whether the programs that a test needs are installed.

use std::process::{Command, Stdio};

/// Whether all `programs` are installed; prints a missing one.
pub(crate) fn are_there(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null());
        command.output().is_err()
    });
    if let Some(missing) = missing {
        eprintln!("skipped: {missing} is not installed");
    }
    missing.is_none()
}
