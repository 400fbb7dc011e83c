//! Tests `zerolane send` and `receive` between hosts in namespaces, over all their networks.

#![allow(non_snake_case)]

mod content;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use content::content;
use netlab::netns::{self, Namespace, Star, Topology};
use netsim::Side;
use zerolane_files::limits::DISCOVERY_PORT;

/// Ends the process even if the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn zerolane(host: &Namespace) -> Command {
    let mut command = host.command(env!("CARGO_BIN_EXE_zerolane"));
    command.stdin(Stdio::null());
    command
}

fn is_permitted() -> bool {
    let permitted = netns::is_permitted();
    if !permitted {
        println!("skipped: network namespaces need root");
    }
    permitted
}

/// A sender, its code, and its output, which must stay open while it runs.
type Sender = (Running, String, BufReader<ChildStdout>);

fn send(host: &Namespace, file: &Path, options: &[&str]) -> Sender {
    let mut command = zerolane(host);
    command.arg("send").args(options).arg(file);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    for _ in 0..2 {
        line.clear();
        out.read_line(&mut line).unwrap();
    }
    let code = line.split("zerolane receive ").nth(1);
    let code = code.unwrap_or_else(|| panic!("{line:?}")).trim().to_owned();
    (Running(child), code, out)
}

fn receive(host: &Namespace, code: &str, to: &Path) -> Command {
    let mut command = zerolane(host);
    command.args(["receive", "--json", code]).arg(to);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The last event of a receiver that must succeed.
fn summary(child: Child) -> serde_json::Value {
    let done = child.wait_with_output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    assert!(done.status.success(), "{out}{err}");
    serde_json::from_str(out.lines().last().unwrap()).unwrap()
}

/// A directory with a file, and a directory to receive into.
fn places(len: usize) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let base = tempfile::tempdir_in("/dev/shm").unwrap();
    let (file, to) = (base.path().join("file"), base.path().join("to"));
    fs::write(&file, content(1, len)).unwrap();
    (base, file, to)
}

#[test]
fn send__two_hosts_and_an_outage_in_the_middle() {
    if !is_permitted() {
        return;
    }
    let hosts = Topology::pair("snd", 1500).unwrap();
    let (_base, file, to) = places(64 << 20);
    let (mut sender, code, _out) = send(hosts.a(), &file, &["--limit", "16MiB/s"]);
    let mut child = receive(hosts.b(), &code, &to).spawn().unwrap();
    let amid = || fs::read_dir(&to).is_ok_and(|mut entries| entries.next().is_some());
    while !amid() {
        assert!(child.try_wait().unwrap().is_none(), "over too early");
        std::thread::sleep(Duration::from_millis(1));
    }
    hosts.set_link_up(Side::A, false).unwrap();
    // Longer than the sender needs to detect that the receiver is gone.
    std::thread::sleep(Duration::from_secs(20));
    assert!(child.try_wait().unwrap().is_none(), "over too early");
    hosts.set_link_up(Side::A, true).unwrap();
    let summary = summary(child);
    assert_eq!(summary["reconnected"], 1, "{summary}");
    assert!(fs::read(to.join("file")).unwrap() == content(1, 64 << 20));
    assert!(sender.0.wait().unwrap().success());
}

/// Connects the hosts of a star by a bridge. Returns whether this machine supports bridges.
fn bridge(star: &Star) -> bool {
    let kernel = star.hub().rtnetlink().unwrap();
    if kernel.add_bridge("bridge").is_err() {
        return false;
    }
    for index in 0..star.hosts().len() {
        // The interface is up already.
        kernel.set_bridge(&star.port(index), "bridge").unwrap();
    }
    kernel.set_up("bridge", true).unwrap();
    true
}

#[test]
fn send__three_hosts_one_of_which_lies() {
    if !is_permitted() {
        return;
    }
    let star = Star::new("snd", 3, 1500).unwrap();
    if !bridge(&star) {
        println!("skipped: this kernel has no bridges");
        return;
    }
    let (base, file, to) = places(3 << 20);
    let liar = star.host(1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ended = Ended(&done);
        scope.spawn(|| {
            liar.enter_thread(|| answer_falsely(liar.ipv4(), &done))
                .unwrap()
        });
        let (mut sender, code, _out) = send(star.host(0), &file, &[]);
        let other = base.path().join("other");
        fs::write(&other, b"other").unwrap();
        let (_other, its_code, _its_out) = send(star.host(0), &other, &[]);
        let child = receive(star.host(2), &code, &to).spawn().unwrap();
        let summary = summary(child);
        drop(ended);
        assert_eq!(summary["files"], 1, "{summary}");
        assert!(fs::read(to.join("file")).unwrap() == content(1, 3 << 20));
        assert!(sender.0.wait().unwrap().success());
        let child = receive(star.host(2), &its_code, &to).spawn().unwrap();
        assert!(child.wait_with_output().unwrap().status.success());
        assert_eq!(fs::read(to.join("other")).unwrap(), b"other");
    });
}

/// Ends the liar, also if the test fails.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Answers every question, as fast as it can, with addresses where nothing listens.
fn answer_falsely(own: Ipv4Addr, done: &AtomicBool) {
    let [a, b, c, _] = own.octets();
    let ear = SocketAddrV4::new(Ipv4Addr::new(a, b, c, 255), DISCOVERY_PORT);
    let ear = UdpSocket::bind(ear).unwrap();
    ear.set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mouth = UdpSocket::bind((own, 0)).unwrap();
    let mut question = [0; 64];
    while !done.load(Ordering::Relaxed) {
        let Ok((len, from)) = ear.recv_from(&mut question) else {
            continue;
        };
        for port in 1..=200_u16 {
            let mut answer = question;
            answer[5] = 2;
            answer[24..26].copy_from_slice(&port.to_le_bytes());
            let _ = mouth.send_to(&answer[..len], from);
        }
    }
}
