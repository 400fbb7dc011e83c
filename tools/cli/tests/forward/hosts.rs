//! Tests forwards between two hosts with programs that exist.

use std::fs;
use std::process::{Command, Output};

use netlab::netns::{self, Topology};

use crate::content::content;
use crate::lab::{Lab, Running};
use crate::programs;

/// Two hosts, and a forward of `port` from the first to the second. `None`, after printing the reason, where namespaces
/// are not allowed.
struct Hosts {
    lab: Lab,
    hosts: Topology,
    running: Vec<Running>,
}

impl Hosts {
    fn new() -> Option<Hosts> {
        if !netns::is_permitted() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        Some(Hosts {
            lab: Lab::new(),
            hosts: Topology::pair("fwd", 1500).unwrap(),
            running: Vec::new(),
        })
    }

    /// Runs `words` on the second host, until the process is dropped.
    fn there(&self, words: &[&str]) -> Running {
        let mut command = self.hosts.b().command(words[0]);
        command.args(&words[1..]);
        self.lab.start(command)
    }

    fn here(&self, words: &[&str]) -> Output {
        let mut command = self.hosts.a().command("timeout");
        command.arg("120").args(words).env("no_proxy", "*");
        command.output().unwrap()
    }

    /// Forwards port `port` of the first host to `port` of the second.
    fn forward(&mut self, port: &str) {
        let address = format!("{}:9185", self.hosts.b().ipv4());
        let place = format!("127.0.0.1:{port}");
        let serve = [
            "forward",
            "serve",
            "--listen",
            &address,
            "--connect",
            &place,
        ];
        let serve = self.lab.with_program(
            self.hosts.b().command(crate::lab::program()),
            "home",
            &serve,
        );
        let mut server = self.lab.start(serve);
        server.says("Its key");
        let near = ["forward", port, &place, "--to", &address];
        let near =
            self.lab
                .with_program(self.hosts.a().command(crate::lab::program()), "home", &near);
        let mut near = self.lab.start(near);
        near.says("Forwarding ");
        self.running.extend([server, near]);
    }

    /// Waits until something listens on the second host's `port`.
    fn wait_for(&self, port: &str) {
        let until = std::time::Instant::now() + crate::lab::PATIENCE;
        let port: u16 = port.parse().unwrap();
        while !self.hosts.b().is_listening(port).unwrap() {
            assert!(
                std::time::Instant::now() < until,
                "nothing listens on {port}"
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

#[test]
fn forward__http_between_hosts() {
    if !programs::are_there(&["curl", "python3"]) {
        return;
    }
    let Some(mut hosts) = Hosts::new() else {
        return;
    };
    let page = content(1, 20 << 20);
    let share = hosts.lab.path("share");
    fs::create_dir(&share).unwrap();
    fs::write(share.join("page"), &page).unwrap();
    let _server = hosts.there(&[
        "python3",
        "-m",
        "http.server",
        "8000",
        "--bind",
        "127.0.0.1",
        "--directory",
        share.to_str().unwrap(),
    ]);
    hosts.wait_for("8000");
    hosts.forward("8000");
    let got = hosts.here(&["curl", "-sS", "http://127.0.0.1:8000/page"]);
    assert!(
        got.status.success() && got.stdout == page,
        "{}",
        String::from_utf8_lossy(&got.stderr)
    );
}

#[test]
fn forward__rsync_between_hosts() {
    if !programs::are_there(&["rsync"]) {
        return;
    }
    let Some(mut hosts) = Hosts::new() else {
        return;
    };
    let (share, copy) = (hosts.lab.path("share"), hosts.lab.path("copy"));
    fs::create_dir(&share).unwrap();
    for number in 0..50 {
        fs::write(share.join(number.to_string()), content(1, number * 20_000)).unwrap();
    }
    let config = hosts.lab.path("rsyncd.conf");
    let text = format!(
        "uid = 0\ngid = 0\nuse chroot = no\n[share]\npath = {}\n",
        share.display()
    );
    fs::write(&config, text).unwrap();
    let _server = hosts.there(&[
        "rsync",
        "--daemon",
        "--no-detach",
        "--address=127.0.0.1",
        "--port=8730",
        "--config",
        config.to_str().unwrap(),
    ]);
    hosts.wait_for("8730");
    hosts.forward("8730");
    let got = hosts.here(&[
        "rsync",
        "-a",
        "rsync://127.0.0.1:8730/share/",
        copy.to_str().unwrap(),
    ]);
    assert!(got.status.success(), "{got:?}");
    let equal = Command::new("diff")
        .arg("-r")
        .args([&share, &copy])
        .status()
        .unwrap();
    assert!(equal.success());
}

#[test]
fn forward__iperf3_between_hosts() {
    if !programs::are_there(&["iperf3"]) {
        return;
    }
    let Some(mut hosts) = Hosts::new() else {
        return;
    };
    hosts.forward("5201");
    for options in [&[][..], &["-R"], &["-P", "4"], &["-Z"]] {
        // A server for each: between two tests, iperf3 closes its listener and resets who waits there.
        let mut server = hosts.there(&["iperf3", "-s", "-1", "-B", "127.0.0.1"]);
        hosts.wait_for("5201");
        let words = [&["iperf3", "-c", "127.0.0.1", "-n", "30M"], options].concat();
        let got = hosts.here(&words);
        assert!(got.status.success(), "{options:?}: {got:?}");
        assert_eq!(server.ends(), Some(0), "{}", server.said());
    }
}
