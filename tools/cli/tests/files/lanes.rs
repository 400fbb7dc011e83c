//! Tests `--lane` and `zerolane lanes`.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::lab::*;

/// The output of `zerolane lanes` for an address.
fn lanes(host: &str) -> Value {
    let mut command = zerolane();
    command.args(["lanes", "--json", host]);
    serde_json::from_str(succeed(command).trim()).unwrap()
}

fn in_words(host: &str) -> String {
    let mut command = zerolane();
    command.args(["lanes", host]);
    succeed(command)
}

/// Copies in both directions, and compares.
fn both_ways(lab: &Lab, options: &[&str], seed: u64) {
    let bytes = content(seed, 5 * MIB + 17);
    fs::write(lab.local("a"), &bytes).unwrap();
    succeed(lab.put(options, "a", "b"));
    assert!(fs::read(lab.share("b")).unwrap() == bytes, "there");
    succeed(lab.get(&[options, &["-f"]].concat(), "b", "c"));
    assert!(fs::read(lab.local("c")).unwrap() == bytes, "back");
}

#[test]
fn lane__shared_memory_unless_something_else_is_said() {
    let lab = Lab::new(&[]);
    both_ways(&lab, &[], 7);
    for (seed, lane) in ["shm", "auto", "udp"].iter().enumerate() {
        both_ways(&lab, &["--lane", lane], seed as u64);
    }
    let mut listed = zerolane();
    listed.args(["ls", "--lane", "shm", &lab.there("")]);
    assert_eq!(succeed(listed), "b\n");
    // A listener that does not answer within a second is found, but its abilities stay unknown.
    let found = eventually("the listener answers", || {
        let found = lanes(&lab.address);
        let answered = ["reads", "is_read"].map(|it| found["shm"][it].is_boolean());
        (answered == [true; 2]).then_some(found)
    });
    assert_eq!(found["used"], "shm");
    assert_eq!(found["shm"]["possible"], true);
    let words = eventually("the listener answers", || {
        let words = in_words(&lab.address);
        (words.matches("payload ").count() == 2).then_some(words)
    });
    assert!(
        words.contains("shm: taken by --lane auto, which is the default, and shm"),
        "{words}"
    );
}

#[test]
fn lane__nothing_but_shared_memory() {
    let lab = Lab::new(&["--lane", "shm"]);
    both_ways(&lab, &["--lane", "shm"], 1);
    let mut by_udp = zerolane();
    by_udp.args(["ls", "--lane", "udp", &lab.there("")]);
    fail(by_udp, 3, "no answer within");
}

#[test]
fn lane__a_server_that_was_told_not_to_is_reached_by_udp() {
    let lab = Lab::new(&["--lane", "udp"]);
    both_ways(&lab, &["--lane", "auto"], 2);
    let only = lab.put(&["--lane", "shm"], "a", "d");
    fail(
        only,
        3,
        "no listener of this user accepts it at the address",
    );
    let found = lanes(&lab.address);
    assert_eq!(found["used"], "udp");
    let why = found["shm"]["why_not"].as_str().unwrap();
    assert!(why.contains("no listener of this user"), "{why}");
    // An address of another host.
    let found = lanes("192.0.2.1:7411");
    let why = found["shm"]["why_not"].as_str().unwrap();
    assert!(
        why.contains("does not belong to this network namespace"),
        "{why}"
    );
    let words = in_words("192.0.2.1");
    assert!(words.starts_with("192.0.2.1:9181\n  shm: no: "), "{words}");
}

/// Uses the loopback interface, which carries any IP protocol.
#[test]
fn lane__ip118_where_this_process_may_and_words_where_not() {
    const NEEDS: &str = "IP protocol 118 needs CAP_NET_RAW";
    let found = lanes("127.0.0.1:7411");
    let without = |arguments: &[&str]| {
        // Root has the right, so drop it.
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw"]);
        let program = zerolane();
        command.arg(program.get_program()).args(arguments);
        for (name, value) in program.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command
    };
    if found["ip118"]["possible"] == false {
        let why = found["ip118"]["why_not"].as_str().unwrap();
        assert!(why.contains(NEEDS), "{why}");
        let mut ls = zerolane();
        ls.args(["ls", "--lane", "ip118", "127.0.0.1:7411:"]);
        return fail(ls, 3, NEEDS);
    }
    fail(
        without(&["ls", "--lane", "ip118", "127.0.0.1:7411:"]),
        3,
        NEEDS,
    );
    let said = succeed(without(&["lanes", "127.0.0.1"]));
    assert!(said.contains(&format!("ip118: no: {NEEDS}")), "{said}");
    let lab = Lab::new(&["--lane", "ip118"]);
    both_ways(&lab, &["--lane", "ip118"], 1);
    let words = in_words(&lab.address);
    assert!(words.contains("ip118: taken by --lane ip118"), "{words}");
    let mut by_udp = zerolane();
    by_udp.args(["ls", &lab.there("")]);
    fail(by_udp, 3, "no answer");
}

#[test]
fn lane__of_a_configuration() {
    let lab = Lab::new(&["--lane", "udp"]);
    let with = |config: &str, arguments: &[&str]| {
        let file = lab.base.path().join("config.toml");
        fs::write(&file, config).unwrap();
        let mut command: Command = zerolane();
        command.env("ZEROLANE_CONFIG", file).args(arguments);
        command
    };
    let there = lab.there("");
    let ls = ["ls", there.as_str()];
    fail(with("[client]\nlane = 'shm'\n", &ls), 3, "no shared memory");
    succeed(with("[client]\nlane = 'auto'\n", &ls));
    let wins = ["ls", "--lane", "udp", there.as_str()];
    succeed(with("[client]\nlane = 'shm'\n", &wins));
    fail(with("[client]\nlane = 'rdma'\n", &ls), 2, "udp, auto, shm");
    let share = lab.share("");
    let serve = ["serve", share.to_str().unwrap(), "--user", "root"];
    let refused = with("[serve]\nlane = 'shm'\n", &serve);
    if nix::unistd::geteuid().is_root() {
        fail(refused, 2, "--user is for UDP alone");
    } else {
        println!("skipped: only root may name a user");
    }
}
