//! The nbdkit plugin that was built, and programs that may be missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The plugin; says so if it is not built.
pub(crate) fn plugin() -> Option<PathBuf> {
    // Beside the command by `cargo build`, and where its libraries are by `cargo test --workspace`.
    let built = ["libzerolane_nbdkit.so", "deps/libzerolane_nbdkit.so"];
    let built = built.map(|it| Path::new(env!("CARGO_BIN_EXE_zerolane")).with_file_name(it));
    let found = built.into_iter().find(|it| it.exists());
    if found.is_none() {
        eprintln!("skipped: the plugin is not built: cargo build -p zerolane-nbdkit");
    }
    found
}

/// Whether all of `programs` are installed; says which is not.
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
