//! Tests that `zerolane bench` and `zerolane demo` start `zerolane-bench`, which has tests of its own.

#![allow(non_snake_case)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Copies a program in a separate process. A copy that this process writes would stay open for writing in children that
/// other tests fork meanwhile, and could not be executed.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.unwrap().success(), "{}", to.display());
}

/// A directory with a copy of `zerolane`, and the path of the copy.
fn installed() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("zerolane");
    copy(Path::new(env!("CARGO_BIN_EXE_zerolane")), &program);
    (directory, program)
}

/// Installs a `zerolane-bench` that prints its name and arguments, and exits with 7.
fn install_bench(directory: &Path, name: &str) {
    fs::create_dir_all(directory).unwrap();
    let script = directory.join("script");
    let text = format!("#!/bin/sh\necho {name} \"$@\"\nexit 7\n");
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    copy(&script, &directory.join("zerolane-bench"));
}

fn run(program: &Path, path: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(words).env("PATH", path).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn bench__is_handed_on_as_it_is() {
    let (directory, program) = installed();
    install_bench(directory.path(), "beside");
    for (words, told) in [
        (&["bench"][..], "beside bench\n"),
        (&["bench", "--help"], "beside bench --help\n"),
        (
            &["bench", "bulk", "--reps", "1", "-n"],
            "beside bench bulk --reps 1 -n\n",
        ),
        (&["demo", "--size", "8MiB"], "beside demo --size 8MiB\n"),
        (&["report", "--quick"], "beside report --quick\n"),
    ] {
        let output = run(&program, Path::new("/nowhere"), words);
        assert_eq!(said(&output), told);
        assert_eq!(output.status.code(), Some(7), "{words:?}");
    }
}

#[test]
fn bench__beside_comes_before_PATH() {
    let (directory, program) = installed();
    let path = directory.path().join("path");
    install_bench(&path, "path");
    assert_eq!(
        said(&run(&program, &path, &["bench", "x"])),
        "path bench x\n"
    );
    install_bench(directory.path(), "beside");
    assert_eq!(
        said(&run(&program, &path, &["bench", "x"])),
        "beside bench x\n"
    );
}

#[test]
fn bench__that_is_not_installed_is_said_with_what_to_do() {
    let (_directory, program) = installed();
    for command in ["bench", "demo", "report"] {
        let output = run(&program, Path::new("/nowhere"), &[command]);
        assert_eq!(output.status.code(), Some(1));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            words.contains("cargo build --release -p zerolane-bench"),
            "{words}"
        );
    }
}

#[test]
fn help__lists_the_commands_of_both_programs() {
    let (_directory, program) = installed();
    let help = said(&run(&program, Path::new("/nowhere"), &["--help"]));
    for command in ["serve", "cp", "lab", "demo", "bench", "report"] {
        assert!(help.contains(&format!("\n  {command} ")), "{help}");
    }
}
