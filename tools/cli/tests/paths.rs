//! Tests `--path` and `--paths`: copies over two veth pairs between two hosts in namespaces.

#![allow(non_snake_case)]

mod content;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use content::content;
use netlab::netns::{self, Namespace, Topology};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zerolane");
const LEN: usize = 96 << 20;

/// Ends the process even if the test fails.
struct Running(
    Child,
    #[expect(dead_code, reason = "read from until it ends")] BufReader<ChildStdout>,
);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn on(host: &Namespace, base: &tempfile::TempDir, words: &[&str]) -> Command {
    let mut command = host.command(PROGRAM);
    command
        .env("ZEROLANE_HOME", base.path().join("home"))
        .env("ZEROLANE_CONFIG", "/dev/null")
        .stdin(Stdio::null())
        .args(words);
    command
}

fn succeed(mut command: Command) {
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {said}");
}

/// The first path: where the server listens, and its address as seen from the first host.
#[derive(Clone, Copy, PartialEq)]
enum First {
    Udp,
    Ethernet,
}

/// The path over UDP between the second interfaces.
fn second_by_udp(hosts: &Topology) -> String {
    let second = [hosts.a(), hosts.b()].map(|it| it.interface(1).ipv4());
    format!("{}={}", second[0], second[1])
}

/// The path over raw Ethernet between the second interfaces.
fn second_by_ethernet(hosts: &Topology) -> String {
    let device = hosts.a().interface(1).device();
    format!("ether:{device}=ether:{device}/{}", hardware(hosts.b(), 1))
}

fn hardware(host: &Namespace, index: usize) -> String {
    let kernel = host.rtnetlink().unwrap();
    let address = kernel.hardware_address(host.interface(index).device());
    address.unwrap().map(|it| format!("{it:02x}")).join(":")
}

#[test]
fn copies__go_by_both_of_two_veth_pairs() {
    copies_go_by_both(First::Udp, &[], second_by_udp);
}

#[test]
fn copies__go_by_udp_and_raw_ethernet() {
    copies_go_by_both(First::Udp, &["--ethernet-paths"], second_by_ethernet);
}

#[test]
fn copies__go_by_raw_ethernet_twice_and_by_it_and_udp() {
    copies_go_by_both(First::Ethernet, &[], second_by_ethernet);
    copies_go_by_both(First::Ethernet, &["--udp-paths"], second_by_udp);
}

#[test]
fn path__over_udp_beside_raw_ethernet_names_the_server_and_has_no_device() {
    let cp = |words: &[&str]| {
        let base = tempfile::tempdir().unwrap();
        let there = "ether:lo/02:00:00:00:00:01:b";
        let mut command = Command::new(PROGRAM);
        command
            .env("ZEROLANE_HOME", base.path().join("home"))
            .env("ZEROLANE_CONFIG", "/dev/null")
            .args([&["cp"], words, &["Cargo.toml", there]].concat());
        let done = command.output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{command:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    for (words, says) in [
        (&["--path", "="][..], "must name the peer's IP address"),
        (
            &["--path", "=127.0.0.1", "--bypass", "always"],
            "--bypass always is for connections of one path",
        ),
    ] {
        let said = cp(words);
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn path__over_raw_ethernet_that_cannot_be_says_why() {
    let base = tempfile::tempdir().unwrap();
    let source = base.path().join("a");
    fs::write(&source, "a").unwrap();
    let source = source.to_str().unwrap();
    for (path, says) in [
        (
            "=ether:no-such-one/02:00:00:00:00:01",
            "no interface no-such-one",
        ),
        ("=ether:lo/02:00:00:00:00:01", "lo is not Ethernet"),
        ("=ether:lo", "ether:IFACE=ether:IFACE/MAC"),
    ] {
        let mut command = Command::new(PROGRAM);
        command
            .env("ZEROLANE_HOME", base.path().join("home"))
            .env("ZEROLANE_CONFIG", "/dev/null")
            .args(["cp", "--path", path, source, "127.0.0.1:1:b"]);
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            !done.status.success() && said.contains(says),
            "{path}: {said}"
        );
    }
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let hosts = Topology::pairs("paths", 1500, 1).unwrap();
    let mut command = hosts.a().command("setpriv");
    let path = format!("=ether:{}/02:00:00:00:00:01", hosts.a().device());
    command
        .args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", PROGRAM])
        .env("ZEROLANE_HOME", base.path().join("home"))
        .env("ZEROLANE_CONFIG", "/dev/null")
        .args(["cp", "--path", &path, source, "127.0.0.1:1:b"]);
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    let told = said.contains("raw Ethernet needs CAP_NET_RAW");
    assert!(!done.status.success() && told, "{said}");
}

/// Asserts that copies in both directions, with the additional `words` for `serve`, use the first pair and the path of
/// `path`.
fn copies_go_by_both(first: First, words: &[&str], path: impl Fn(&Topology) -> String) {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let hosts = Topology::pairs("paths", 1500, 2).unwrap();
    let base = tempfile::tempdir().unwrap();
    let place = |name: &str| base.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(place("share")).unwrap();
    let content = content(1, LEN);
    fs::write(place("a"), &content).unwrap();

    let share = place("share");
    let listen = match first {
        First::Udp => "0.0.0.0:".to_owned(),
        First::Ethernet => format!("ether:{}", hosts.b().device()),
    };
    let any_port = format!("{}:0", listen.trim_end_matches(':'));
    let serve = ["serve", &share, "--listen", &any_port, "--paths", "2"];
    let words = [&serve, words].concat();
    let mut server = on(hosts.b(), &base, &words)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let _server = Running(server, out);
    let own = match first {
        First::Udp => listen,
        First::Ethernet => format!("{listen}/{}:", hardware(hosts.b(), 0)),
    };
    let port = line.split(&own).nth(1);
    let port = port.and_then(|it| it.split(|it: char| !it.is_ascii_digit()).next());
    let port = port.unwrap_or_else(|| panic!("{line:?}"));

    let host = match first {
        First::Udp => hosts.b().ipv4().to_string(),
        First::Ethernet => format!("ether:{}/{}", hosts.a().device(), hardware(hosts.b(), 0)),
    };
    let path = path(&hosts);
    // Both directions, so that each host sends.
    let mut carried = [[0; 2]; 2];
    // A fast copy is over before the second path carries its share.
    for number in 0..20 {
        let there = format!("{host}:{port}:b{number}");
        let back = place(&format!("c{number}"));
        let ways = [
            (hosts.a(), place("a"), there.clone()),
            (hosts.b(), there, back.clone()),
        ];
        for ((host, from, to), carried) in ways.into_iter().zip(&mut carried) {
            let before = host.counters().unwrap();
            succeed(on(hosts.a(), &base, &["cp", "--path", &path, &from, &to]));
            let after = host.counters().unwrap();
            for ((sum, it), was) in carried.iter_mut().zip(after).zip(before) {
                *sum += it.sent - was.sent;
            }
        }
        for (copy, way) in [
            (place(&format!("share/b{number}")), "there"),
            (back, "back"),
        ] {
            assert!(fs::read(&copy).unwrap() == content, "{way}");
            fs::remove_file(copy).unwrap();
        }
        println!("{carried:?} bytes by each, there and back");
        if carried.as_flattened().iter().all(|&it| it > 1 << 20) {
            return;
        }
    }
    panic!("{carried:?} bytes by each, there and back");
}
