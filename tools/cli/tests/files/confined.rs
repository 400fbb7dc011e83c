//! Tests that a server gives up rights: root, capabilities, and files outside its directory.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use super::lab::*;

/// A line of the kernel's status of a process.
fn status(pid: u32, name: &str) -> String {
    let all = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = all.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

fn nobody() -> nix::unistd::User {
    nix::unistd::User::from_name("nobody").unwrap().unwrap()
}

/// Asserts that process `pid` runs as user nobody, with only the capabilities `kept`.
fn assert_nobodys(pid: u32, kept: u64) {
    let ids = status(pid, "Uid:");
    let nobody = nobody().uid.to_string();
    assert!(ids.split_whitespace().all(|id| id == nobody), "{ids}");
    for set in ["CapEff:", "CapPrm:"] {
        assert_eq!(status(pid, set), format!("{kept:016x}"), "{set}");
    }
    assert_eq!(status(pid, "CapInh:"), format!("{:016x}", 0));
}

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can become another user");
    }
    root
}

#[test]
fn serve__confines_itself() {
    let (lab, home) = server_of_another_user(&[]);
    fs::write(lab.share("a"), b"theirs").unwrap();
    let list = home.path().join("allowed_keys");
    fs::write(&list, format!("{} read\n", own_key())).unwrap();
    succeed(lab.get(&["--server-key", &key_of(home.path())], "a", ""));
    assert_eq!(fs::read(lab.local("a")).unwrap(), b"theirs");
    let pid = lab.server.as_ref().unwrap().0.id();
    // Landlock requires that the process cannot gain privileges.
    assert_eq!(status(pid, "NoNewPrivs:"), "1");
}

#[test]
fn serve__binds_then_gives_up_root_and_reads_its_list_again() {
    if !is_root() {
        return;
    }
    let (lab, home) = server_of_another_user(&["--user", "nobody"]);
    let pid = lab.server.as_ref().unwrap().0.id();
    assert_nobodys(pid, 0);
    fs::write(lab.share("a"), b"theirs").unwrap();
    // Replaces the file, as editors do.
    let list = home.path().join("allowed_keys");
    let new = home.path().join("new");
    fs::write(&new, format!("{} read\n", own_key())).unwrap();
    fs::rename(&new, &list).unwrap();
    succeed(lab.get(&["--server-key", &key_of(home.path())], "a", ""));
    assert_eq!(fs::read(lab.local("a")).unwrap(), b"theirs");
    // Only root could read this file.
    fs::write(lab.share("b"), b"root's").unwrap();
    fs::set_permissions(lab.share("b"), fs::Permissions::from_mode(0o600)).unwrap();
    fail(
        lab.get(&["--server-key", &key_of(home.path())], "b", ""),
        1,
        "permission denied",
    );
    assert_nobodys(pid, 0);
}

#[test]
fn serve__at_a_port_of_roots() {
    const NET_BIND_SERVICE: u64 = 1 << 10;
    if !is_root() {
        return;
    }
    let (mut lab, home) = server_of_another_user(&["--anyone"]);
    lab.server = None;
    fs::write(lab.share("a"), b"theirs").unwrap();
    let mut program = zerolane();
    program.env("ZEROLANE_HOME", home.path());
    // Concurrent runs of this test use different addresses.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let listen = format!("127.9.{high}.{low}:918");
    lab.start(program, &["--anyone", "--user", "nobody"], &listen);
    succeed(lab.get(&["--server-key", &key_of(home.path())], "a", ""));
    assert_eq!(fs::read(lab.local("a")).unwrap(), b"theirs");
    assert_nobodys(lab.server.as_ref().unwrap().0.id(), NET_BIND_SERVICE);
}

/// The key in `home`.
fn key_of(home: &Path) -> String {
    let mut id = zerolane();
    id.env("ZEROLANE_HOME", home).arg("id");
    succeed(id).trim().to_owned()
}

#[test]
fn serve__says_that_its_list_is_out_of_reach() {
    if !is_root() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let share = tempfile::tempdir().unwrap();
    fs::write(home.path().join("allowed_keys"), "").unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let mut program = zerolane();
    program
        .env("ZEROLANE_HOME", home.path())
        .args(["serve", "--user", "nobody", "--listen", "127.0.0.1:0"])
        .arg(share.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut server = Running(program.spawn().unwrap());
    let mut serving = String::new();
    let out = server.0.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut serving).unwrap();
    assert!(serving.contains("Serving"), "{serving:?}");
    // By now the server has printed what is wrong.
    let errors = server.0.stderr.take().unwrap();
    drop(server);
    let said = std::io::read_to_string(errors).unwrap();
    assert!(
        said.contains("the list of keys stays as it was"),
        "{said:?}"
    );
}

#[test]
fn serve__as_a_user_that_is_not_there() {
    let mut program = zerolane();
    program.args(["serve", "--user", "no-such-user", "."]);
    fail(program, 2, "no user \"no-such-user\"");
}
