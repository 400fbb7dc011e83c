//! Tests the metrics that a server publishes for Prometheus.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{ChildStdout, Stdio};

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::lab::*;

struct Measured {
    lab: Lab,
    metrics: String,
    /// Kept open, because closing its standard output would end the program.
    _said: BufReader<ChildStdout>,
}

impl Measured {
    fn new() -> Measured {
        let mut lab = Lab::new(&[]);
        let mut serve = zerolane();
        let loopback = "127.0.0.1:0";
        serve.stderr(Stdio::null());
        let mut said = lab.serve(serve, &["--listen", loopback, "--metrics", loopback]);
        let mut line = String::new();
        while !line.starts_with("Metrics: ") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0);
        }
        let metrics = line.trim().strip_prefix("Metrics: http://").unwrap();
        let metrics = metrics.strip_suffix("/metrics").unwrap().to_owned();
        Measured {
            lab,
            metrics,
            _said: said,
        }
    }

    /// Sends a request. Returns the first line and the body of the answer.
    fn ask(&self, request: &[u8]) -> (String, String) {
        let mut client = TcpStream::connect(&self.metrics).unwrap();
        // The server may answer before it has read everything.
        let _ = client.write_all(request);
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        (
            head.lines().next().unwrap_or_default().to_owned(),
            body.to_owned(),
        )
    }

    fn numbers(&self) -> HashMap<String, f64> {
        let (status, body) = self.ask(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
        assert_eq!(status, "HTTP/1.1 200 OK");
        parse(&body)
    }
}

/// Parses Prometheus' text format, asserting that each metric has a type and a help first, and occurs once.
fn parse(text: &str) -> HashMap<String, f64> {
    let mut numbers = HashMap::new();
    let (mut helped, mut typed) = ("", "");
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            helped = help.split_once(' ').unwrap().0;
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(
                name == helped && ["counter", "gauge"].contains(&kind),
                "{line}"
            );
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            typed = name;
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert_eq!(name.split('{').next(), Some(typed), "{line}");
            assert!(
                typed.chars().all(|it| it.is_ascii_lowercase() || it == '_'),
                "{line}"
            );
            let before = numbers.insert(name.to_owned(), value.parse().unwrap());
            assert_eq!(before, None, "{line}");
        }
    }
    numbers
}

#[test]
fn metrics__count_what_was_done() {
    let measured = Measured::new();
    let lab = &measured.lab;
    assert_eq!(measured.numbers()["zerolane_connections"], 0.0);
    fs::write(lab.share("a"), content(1, 3_000_000)).unwrap();
    fs::write(lab.local("b"), content(2, 1000)).unwrap();
    succeed(lab.get(&[], "a", "a"));
    succeed(lab.put(&[], "b", "b"));
    fail(lab.get(&[], "none", "none"), 1, "no such file");
    fail(lab.put(&[], "b", "../b"), 1, "outside");
    let numbers = eventually("the last connection is over", || {
        let numbers = measured.numbers();
        let done = numbers.get("zerolane_connections_ended_total{how=\"done\"}") == Some(&3.0);
        (done && numbers.contains_key("zerolane_refused_total{reason=\"path\"}")).then_some(numbers)
    });
    for (name, expected) in [
        ("requests_total{verb=\"read\"}", 2.0),
        ("requests_total{verb=\"write\"}", 2.0),
        ("refused_total{reason=\"path\"}", 1.0),
        ("connections_ended_total{how=\"refused\"}", 1.0),
        ("files_total{verb=\"read\"}", 1.0),
        ("files_total{verb=\"write\"}", 1.0),
        ("file_bytes_total{verb=\"read\"}", 3_000_000.0),
        ("file_bytes_total{verb=\"write\"}", 1000.0),
        ("files_failed_total", 1.0),
        ("connections", 0.0),
    ] {
        assert_eq!(
            numbers[&format!("zerolane_{name}")],
            expected,
            "{name}: {numbers:?}"
        );
    }
    let seconds =
        |state| numbers[&format!("zerolane_connection_seconds_total{{state=\"{state}\"}}")];
    for state in ["request", "turn", "network", "files"] {
        assert!(seconds(state) > 0.0, "{state}: {numbers:?}");
    }
    assert!(
        numbers["zerolane_payload_sent_bytes_total"] >= 3_000_000.0,
        "{numbers:?}"
    );
    assert!(
        numbers["zerolane_handshakes_completed_total"] >= 4.0,
        "{numbers:?}"
    );
    assert!(numbers.contains_key("zerolane_payload_resent_bytes_total"));
    assert!(numbers.contains_key("zerolane_payload_moved_bytes_total{cause=\"mispredicted\"}"));
}

#[test]
fn metrics__what_waits_for_a_slow_client_is_queued_until_it_has_gone() {
    let measured = Measured::new();
    let lab = &measured.lab;
    fs::write(lab.share("a"), content(1, 8_000_000)).unwrap();
    let network = || measured.numbers()["zerolane_queue_bytes{queue=\"network\"}"];
    assert_eq!(network(), 0.0);
    let mut slow = lab.get(&["--limit", "100KiB/s"], "a", "a");
    let mut client = slow.stderr(Stdio::null()).spawn().unwrap();
    eventually("the client is waited for", || {
        (network() >= 100_000.0).then_some(())
    });
    client.kill().unwrap();
    client.wait().unwrap();
    eventually("the client has gone", || (network() == 0.0).then_some(()));
    assert_eq!(
        measured.numbers()["zerolane_queue_bytes{queue=\"files\"}"],
        0.0
    );
}

/// A stopped thread of a server, which dropping this resumes.
struct Frozen(Pid);

impl Frozen {
    /// The thread that writes the files of the only connection.
    fn files_of(server: &Running) -> Frozen {
        let threads = format!("/proc/{}/task", server.0.id());
        let is_files = |thread: &String| {
            let name = fs::read_to_string(format!("{threads}/{thread}/comm"));
            name.is_ok_and(|name| name == "files\n")
        };
        let thread = eventually("there is a thread for files", || {
            names(Path::new(&threads)).into_iter().find(is_files)
        });
        let thread = Pid::from_raw(thread.parse().unwrap());
        ptrace::seize(thread, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(thread).unwrap();
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        Frozen(thread)
    }

    fn thaw(self) {
        ptrace::detach(self.0, None).unwrap();
    }
}

#[test]
fn metrics__what_waits_for_slow_files_is_queued_until_it_is_taken() {
    let measured = Measured::new();
    let lab = &measured.lab;
    let bytes = content(1, 64 * MIB);
    fs::write(lab.local("a"), &bytes).unwrap();
    let files = || measured.numbers()["zerolane_queue_bytes{queue=\"files\"}"];
    // The copy takes a minute, and is examined in the middle.
    let mut put = lab.put(&["--limit", "1MiB/s"], "a", "a");
    let quiet = put.stdout(Stdio::null()).stderr(Stdio::null());
    let client = Running(quiet.spawn().unwrap());
    eventually("it writes", || {
        (part_bytes(&lab.share(""), "a") > 0).then_some(())
    });
    let frozen = Frozen::files_of(lab.server.as_ref().unwrap());
    eventually("it is queued for the files", || {
        (files() >= 1_000_000.0).then_some(())
    });
    frozen.thaw();
    eventually("the files take it", || (files() == 0.0).then_some(()));
    drop(client);
}

#[test]
fn metrics__are_for_this_machine_only() {
    let mut serve = zerolane();
    serve.args(["serve", "--metrics", "0.0.0.0:0", "."]);
    fail(serve, 2, "name a loopback address");
}

#[test]
fn metrics__whatever_is_asked_is_bounded_and_answered_or_dropped() {
    let measured = Measured::new();
    for (request, status) in [
        (
            &b"GET /other HTTP/1.1\r\n\r\n"[..],
            "HTTP/1.1 404 Not Found",
        ),
        (
            b"POST /metrics HTTP/1.1\r\n\r\n",
            "HTTP/1.1 405 Method Not Allowed",
        ),
        (b"\xff\xfe\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (&[b'x'; 4096], "HTTP/1.1 400 Bad Request"),
    ] {
        assert_eq!(measured.ask(request).0, status);
    }
    // Other clients are answered although one stays silent and one disconnects.
    let silent = TcpStream::connect(&measured.metrics).unwrap();
    drop(TcpStream::connect(&measured.metrics).unwrap());
    measured.numbers();
    drop(silent);
    measured.ask(&[b'x'; 100_000]);
    measured.numbers();
}
