//! Tests `zerolane` between two hosts in namespaces while the network changes.

#![allow(non_snake_case)]

mod content;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use content::content;
use netlab::netns::{self, Namespace, Offloads, Topology};
use netsim::Side;

const BYTES: usize = 256 << 20;
/// Bytes that have arrived when the network changes.
const AMID: u64 = 16 << 20;

/// Ends the process even if the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn hosts() -> Option<Topology> {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return None;
    }
    Some(Topology::pair("cli", 1500).unwrap())
}

fn zerolane(host: &Namespace) -> Command {
    let mut command = host.command(env!("CARGO_BIN_EXE_zerolane"));
    command.stdin(Stdio::null());
    command
}

/// A server, and its output, which must stay open while it runs.
type Server = (Running, BufReader<ChildStdout>);

/// Starts a server. Returns it and its first line.
fn start(mut command: Command) -> (Server, String) {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    ((Running(child), out), line)
}

/// The text between `before` and `end`.
fn word<'a>(line: &'a str, before: &str, end: char) -> &'a str {
    let rest = line.split(before).nth(1);
    let word = rest.and_then(|rest| rest.split(end).next());
    word.unwrap_or_else(|| panic!("{line:?}"))
}

/// Bytes on disk of the temporary file for `name`.
fn part_bytes(directory: &Path, name: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let before = format!(".{name}.");
    let entries = fs::read_dir(directory).unwrap().flatten();
    let parts = entries.filter(|it| it.file_name().to_string_lossy().starts_with(&before));
    let blocks = |part: fs::DirEntry| part.metadata().map_or(0, |meta| meta.blocks());
    parts.map(blocks).sum::<u64>() * 512
}

/// Copies a file from a to b, and changes the network in the middle. Returns how often the copy continued over a new
/// connection; `None` without namespaces.
fn cp_while(change: impl FnOnce(&Topology)) -> Option<u64> {
    cp_of_client_while(|hosts, _| change(hosts))
}

/// As [`cp_while`], and passes the client's process ID to `change`.
fn cp_of_client_while(change: impl FnOnce(&Topology, Pid)) -> Option<u64> {
    let hosts = hosts()?;
    let base = tempfile::tempdir_in("/dev/shm").unwrap();
    let place = |name: &str| -> PathBuf { base.path().join(name) };
    fs::create_dir(place("share")).unwrap();
    fs::write(place("big"), content(1, BYTES)).unwrap();
    let mut serve = zerolane(hosts.b());
    serve.env("ZEROLANE_HOME", place("keys"));
    serve.arg("serve").arg(place("share"));
    serve.args(["--listen", &format!("{}:0", hosts.b().ipv4())]);
    let (_server, line) = start(serve);
    let address = word(&line, " on ", ' ').trim();

    let mut copy = zerolane(hosts.a());
    copy.env("ZEROLANE_HOME", place("keys"));
    // Slow enough for the network to change in progress, on a busy machine.
    copy.args(["cp", "--json", "--limit", "64MiB/s"]);
    copy.arg(place("big"));
    copy.arg(format!("{address}:"));
    copy.stdout(fs::File::create(place("said")).unwrap());
    let mut copy = Running(copy.spawn().unwrap());
    while part_bytes(&place("share"), "big") < AMID {
        assert!(copy.0.try_wait().unwrap().is_none(), "over too early");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!place("share/big").exists(), "complete before the change");
    change(&hosts, Pid::from_raw(copy.0.id() as i32));
    let status = copy.0.wait().unwrap();
    let said = fs::read_to_string(place("said")).unwrap();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(
        fs::read(place("share/big")).unwrap() == content(1, BYTES),
        "content"
    );
    assert_eq!(fs::read_dir(place("share")).unwrap().count(), 1);
    let summary: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    Some(summary["reconnected"].as_u64().unwrap())
}

/// Longer than the idle timeout of 15 s plus the delay of its checks.
const LONGER_THAN_A_CONNECTION: Duration = Duration::from_secs(20);

#[test]
fn cp__interface_down_for_5_s() {
    cp_while(|hosts| {
        hosts.set_link_up(Side::A, false).unwrap();
        std::thread::sleep(Duration::from_secs(5));
        hosts.set_link_up(Side::A, true).unwrap();
    });
}

#[test]
fn cp__offloads_switched_off() {
    cp_while(|hosts| {
        for (tx, gro) in [(true, false), (false, false)] {
            for side in Side::BOTH {
                hosts.set_offloads(side, Offloads { tx, gro }).unwrap();
            }
        }
    });
}

#[test]
fn cp__mtu_shrunk_below_the_stu() {
    cp_while(|hosts| hosts.set_mtu(1300).unwrap());
}

/// Packets to the old address are lost. The connection follows the client, or a new one continues the copy.
#[test]
fn cp__address_of_the_client_changed() {
    cp_while(|hosts| {
        let a = hosts.a();
        let [x, y, z, _] = a.ipv4().octets();
        let kernel = a.rtnetlink().unwrap();
        let removed = kernel.remove_address(a.device(), a.ipv4().into(), 24);
        removed.unwrap();
        let new = Ipv4Addr::new(x, y, z, 99).into();
        kernel.assign_address(a.device(), new, 24).unwrap();
    });
}

/// Like a laptop with a closed lid: the clock runs on, and the client answers nothing.
#[test]
#[ignore = "it takes half a minute: .ci/run runs it"]
fn cp__client_asleep_for_longer_than_a_connection_lives() {
    let reconnected = cp_of_client_while(|_, client| {
        kill(client, Signal::SIGSTOP).unwrap();
        std::thread::sleep(LONGER_THAN_A_CONNECTION);
        kill(client, Signal::SIGCONT).unwrap();
    });
    assert!(reconnected.is_none_or(|times| times > 0), "{reconnected:?}");
}

#[test]
#[ignore = "it takes half a minute: .ci/run runs it"]
fn cp__an_outage_for_longer_than_a_connection_lives() {
    let reconnected = cp_while(|hosts| {
        let set = |up| {
            for side in Side::BOTH {
                hosts.set_link_up(side, up).unwrap();
            }
        };
        set(false);
        std::thread::sleep(LONGER_THAN_A_CONNECTION);
        set(true);
    });
    assert!(reconnected.is_none_or(|times| times > 0), "{reconnected:?}");
}
