//! Tests `zerolane doctor` on this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::lab::*;

fn doctor(home: &Path, words: &[&str]) -> Command {
    let mut command = zerolane();
    command.env("ZEROLANE_HOME", home).arg("doctor").args(words);
    command
}

/// Runs `doctor`. Returns its exit code, and its findings by check.
fn findings(home: &Path, words: &[&str]) -> (i32, Vec<Value>) {
    let (code, out, _) = run(doctor(home, &[&["--json"], words].concat()));
    let findings = out.lines().map(|line| serde_json::from_str(line).unwrap());
    (code, findings.collect())
}

fn found<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    let of = findings
        .iter()
        .find(|it| it["check"].as_str().unwrap().starts_with(check));
    of.unwrap_or_else(|| panic!("no {check} in {findings:?}"))
}

#[test]
fn doctor__finds_nothing_wrong_here() {
    let home = tempfile::tempdir().unwrap();
    let (code, all) = findings(home.path(), &[]);
    assert_eq!(code, 0, "{all:?}");
    for check in [
        "receive buffer",
        "GSO",
        "GRO",
        "cipher",
        "clock",
        "own key",
        "clients' keys",
        "servers' keys",
    ] {
        assert_ne!(found(&all, check)["state"], "wrong");
    }
    assert_eq!(names(home.path()), [] as [&str; 0], "it makes no key");
    let out = succeed(doctor(home.path(), &[]));
    assert!(out.contains("  own key: none yet, in "), "{out}");
}

#[test]
fn doctor__finds_keys_that_are_not_used_and_says_what_mends_them() {
    let home = tempfile::tempdir().unwrap();
    let mut keygen = zerolane();
    keygen.env("ZEROLANE_HOME", home.path()).arg("keygen");
    assert_eq!(run(keygen).0, 0);
    let identity = home.path().join("identity");
    fs::set_permissions(&identity, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(home.path().join("allowed_keys"), "# mine\nnonsense\n").unwrap();
    let (code, all) = findings(home.path(), &[]);
    assert_eq!(code, 1);
    let fix = found(&all, "own key")["fix"].as_str().unwrap();
    assert!(
        fix.starts_with(&format!("chmod 600 {}", identity.display())),
        "{fix}"
    );
    let clients = found(&all, "clients' keys");
    assert!(
        clients["found"]
            .as_str()
            .unwrap()
            .contains("line 2: not a key"),
        "{clients}"
    );
    fail(doctor(home.path(), &[]), 1, "2 wrong");
}

#[test]
fn doctor__tells_a_host_that_answers_from_one_where_nothing_listens() {
    let home = tempfile::tempdir().unwrap();
    let (lab, _home) = server_of_another_user(&[]);
    let (code, all) = findings(home.path(), &[&lab.address]);
    assert_eq!(code, 0, "{all:?}");
    let udp = found(&all, "UDP to");
    assert!(
        udp["found"].as_str().unwrap().starts_with("answered ("),
        "{udp}"
    );
    let mtu = found(&all, "MTU to");
    assert_eq!(mtu["state"], "ok", "{mtu}");
    let silent = silent_port();
    let there = silent.local_addr().unwrap().to_string();
    let (code, all) = findings(home.path(), &[&there]);
    assert_eq!(
        (code, &found(&all, "UDP to")["state"]),
        (1, &"wrong".into())
    );
    let (code, all) = findings(home.path(), &["no-such-host.invalid"]);
    assert_eq!(
        (code, &found(&all, "address of")["state"]),
        (1, &"wrong".into())
    );
}
