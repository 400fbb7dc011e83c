//! Tests that either end of a login may be killed, interrupted, or unreachable for a while.

use std::fs;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::super::lab::*;
use super::script::Login;

/// Large enough to be interrupted in the middle.
const LARGE: usize = 192 * MIB;

/// Starts a copy of a large file to the other host, and waits until some has arrived. Its output is in `said`.
fn running(login: &Login, options: &[&str]) -> Running {
    fs::write(login.path("local/large"), content(1, LARGE)).unwrap();
    let all = [&["cp", "local/large", "me@localhost:"], options].concat();
    let mut command = login.zerolane(&all);
    command.args(UNHURRIED);
    let said = fs::File::create(login.path("said")).unwrap();
    command
        .stdout(Stdio::null())
        .stderr(said.try_clone().unwrap());
    if options.contains(&"--json") {
        command.stdout(said);
    }
    let mut copy = Running(command.spawn().unwrap());
    while part_bytes(&login.path("home"), "large") <= 8 * MIB as u64 {
        assert!(copy.0.try_wait().unwrap().is_none(), "{}", said_by(login));
    }
    copy
}

fn said_by(login: &Login) -> String {
    fs::read_to_string(login.path("said")).unwrap()
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

#[test]
fn client__killed_the_other_end_ends_by_itself() {
    let login = Login::new();
    let mut copy = running(&login, &["--timeout", "1"]);
    copy.0.kill().unwrap();
    copy.0.wait().unwrap();
    login.all_ended();
    assert!(!login.path("home/large").exists());
}

#[test]
fn client__interrupted_the_other_end_ends_at_once() {
    let login = Login::new();
    let mut copy = running(&login, &[]);
    signal(copy.0.id() as i32, Signal::SIGINT);
    assert_eq!(
        copy.0.wait().unwrap().code(),
        Some(130),
        "{}",
        said_by(&login)
    );
    // The client waited for the other end.
    login.all_ended();
}

#[test]
fn other_end__killed_is_told_and_not_waited_for() {
    let login = Login::new();
    let mut copy = running(&login, &["--timeout", "100000"]);
    signal(login.pids()[0], Signal::SIGKILL);
    let code = copy.0.wait().unwrap().code();
    let said = said_by(&login);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("started at me@localhost is gone"), "{said}");
    assert!(said.contains("--resume"), "{said}");
}

#[test]
fn other_end__takes_its_client_back_after_an_outage() {
    let login = Login::new();
    let mut copy = running(&login, &["--json"]);
    let pid = login.pids()[0];
    signal(pid, Signal::SIGSTOP);
    // Until the client detects that the connection is lost.
    eventually("interrupted", || {
        said_by(&login).contains("\"interrupted\"").then_some(())
    });
    signal(pid, Signal::SIGCONT);
    assert_eq!(
        copy.0.wait().unwrap().code(),
        Some(0),
        "{}",
        said_by(&login)
    );
    let said = said_by(&login);
    assert!(said.contains("\"reconnected\":1"), "{said}");
    assert!(fs::read(login.path("home/large")).unwrap() == content(1, LARGE));
    assert_eq!(login.pids().len(), 1);
    login.all_ended();
}
