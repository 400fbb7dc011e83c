//! Tests `zerolane trace` on the captures of its library.

#![allow(non_snake_case)]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;

use netlab::netns::{self, Namespace, Offloads, Topology};
use netsim::Side;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use serde_json::Value;

fn capture(name: &str) -> PathBuf {
    let captures = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../lab/trace/tests/captures"
    );
    PathBuf::from(captures).join(name)
}

fn trace(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zerolane"));
    command.arg("trace").args(words);
    command
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&said(&command.output().unwrap())).unwrap()
}

#[test]
fn trace__says_what_hit_and_why_not() {
    let file = capture("nano-be.pcap");
    let output = trace(&[file.to_str().unwrap()]).output().unwrap();
    let text = said(&output);
    let words = |begin: &str| -> Vec<String> {
        let line = text.lines().find(|it| it.trim_start().starts_with(begin));
        let line = line.unwrap_or_else(|| panic!("{begin} in {text}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(words("pages, per stream")[3..7], ["2", "1", "50.0", "%"]);
    assert_eq!(words("pairs")[1..5], ["8", "3", "37.5", "%"]);
    assert_eq!(words("10.0.0.9")[..4], ["10.0.0.9", "11", "8", "3"]);
    // Sorted by bytes: the larger flow first.
    let (tcp, udp) = (
        text.find("tcp 10.0.0.1:4001 > 10.0.0.9:80"),
        text.find("udp 10.0.0.2"),
    );
    assert!(tcp.is_some() && tcp < udp, "{text}");
    assert_eq!(told(&output), "");
}

#[test]
fn trace__json_has_sum_hosts_and_flows() {
    let files = [capture("micro-le.pcap"), capture("nano.pcapng")];
    let files = files.each_ref().map(|it| it.to_str().unwrap());
    let all = json(&mut trace(&["--json", files[0], files[1]]));
    assert_eq!(all["inputs"][1]["format"], "pcapng");
    assert_eq!(all["sum"]["packets"], 22);
    assert_eq!(all["flows"].as_array().unwrap().len(), 2);
    assert_eq!(all["flows"][0]["flow"], "tcp 10.0.0.1:4001 > 10.0.0.9:80");
    for rule in ["pages", "pages_per_stream", "pairs", "trains"] {
        let tally = &all["sum"][rule];
        let misses: u64 = tally["misses"]
            .as_object()
            .unwrap()
            .values()
            .map(|it| it.as_u64().unwrap())
            .sum();
        let hits = tally["hits"].as_u64().unwrap();
        assert_eq!(
            tally["potential"].as_u64().unwrap(),
            hits + misses,
            "{rule}"
        );
    }
    let one = json(&mut trace(&["--json", "--flows", "1", files[0]]));
    assert_eq!(one["flows"].as_array().unwrap().len(), 1);
    assert_eq!(one["folded"], Value::Null);
    let folded = json(&mut trace(&["--json", "--follow", "1", files[0]]));
    assert_eq!(folded["folded"]["flows"], 1);
}

#[test]
fn trace__of_standard_input_is_that_of_the_file() {
    let file = capture("micro.pcapng");
    let mut expected = json(&mut trace(&["--json", file.to_str().unwrap()]));
    let mut child = trace(&["--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes = fs::read(&file).unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let piped: Value = serde_json::from_str(&said(&child.wait_with_output().unwrap())).unwrap();
    expected["inputs"][0]["name"] = "-".into();
    assert_eq!(piped, expected);
}

#[test]
fn trace__flows_that_are_not_shown_are_counted() {
    let file = capture("micro-le.pcap");
    let text = said(
        &trace(&["--flows", "1", file.to_str().unwrap()])
            .output()
            .unwrap(),
    );
    assert!(text.contains("and 1 more flow"), "{text}");
    assert!(!text.contains("udp 10.0.0.2"), "{text}");
    let none = said(
        &trace(&["--flows", "0", file.to_str().unwrap()])
            .output()
            .unwrap(),
    );
    assert!(none.contains("2 flows, which --flows shows"), "{none}");
}

#[test]
fn trace__cut_off_is_said_and_the_rest_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cut.pcap");
    let bytes = fs::read(capture("micro-le.pcap")).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let output = trace(&[file.to_str().unwrap()]).output().unwrap();
    assert!(said(&output).starts_with("10 packets"), "{output:?}");
    let words = told(&output);
    assert!(
        words.contains("cut.pcap: cut off in the packet that begins at byte"),
        "{words}"
    );
    assert!(words.contains("10 packets before it counted"), "{words}");
}

#[test]
fn trace__what_is_no_capture_is_named() {
    let refused = |words: &[&str], code: i32| {
        let output = trace(words).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(output.stdout, b"");
        told(&output)
    };
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert!(refused(&[text], 1).contains("Cargo.toml: not a capture: it is text"));
    assert!(refused(&["-"], 1).contains("-: not a capture: it is empty"));
    assert!(refused(&["/no/such/file"], 1).contains("/no/such/file: No such file"));
    let directory = refused(&[env!("CARGO_MANIFEST_DIR")], 1);
    assert!(directory.contains("Is a directory"), "{directory}");
    refused(&[], 2);
    refused(&["--follow", "0", text], 2);
}

/// Bytes that a recorded transfer sends.
const SENT: usize = 256 << 10;

/// Sends [`SENT`] bytes over TCP from the calling thread's host to `to`.
fn transfer(to: &Namespace) {
    let listener = to.enter_thread(|| TcpListener::bind((to.ipv4(), 0)).unwrap());
    let listener = listener.unwrap();
    let address = listener.local_addr().unwrap();
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let bytes: Vec<u8> = (0..SENT).map(|at| (at % 251) as u8).collect();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&bytes).unwrap();
    drop(stream);
    assert!(receiver.join().unwrap() == bytes, "the transfer itself");
}

/// Records the beginnings of frames at the host's devices while `during` runs. Returns a pcap file.
fn recorded(at: &Namespace, during: impl FnOnce()) -> Vec<u8> {
    let tap = at.enter_thread(|| {
        let all = SockProtocol::EthAll;
        let tap = socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), all).unwrap();
        setsockopt(&tap, sockopt::RcvBufForce, &(16 << 20)).unwrap();
        tap
    });
    let tap = tap.unwrap();
    during();
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 1 << 18, 1] {
        file.extend(word.to_le_bytes());
    }
    let mut frame = vec![0; 1 << 16];
    for count in 1.. {
        let len = match recv(tap.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT) {
            Ok(len) => len,
            Err(Errno::EAGAIN) => break,
            Err(error) => panic!("{error}"),
        };
        let taken = len.min(96);
        for word in [1, count, taken as u32, len as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(&frame[..taken]);
    }
    file
}

#[test]
fn trace__of_a_transfer_over_veth() {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let hosts = Topology::pair("trace", 1500).unwrap();
    let off = Offloads {
        tx: false,
        gro: false,
    };
    for side in [Side::A, Side::B] {
        hosts.set_offloads(side, off).unwrap();
    }
    let (a, b) = (hosts.a(), hosts.b());
    let file = recorded(b, || a.enter_thread(|| transfer(b)).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("transfer.pcap");
    fs::write(&path, file).unwrap();
    let all = json(&mut trace(&["--json", path.to_str().unwrap()]));
    let flow = &all["flows"][0];
    let name = flow["flow"].as_str().unwrap();
    let begin = format!("tcp {}:", a.ipv4());
    assert!(name.starts_with(&begin), "{name}");
    assert!(name.contains(&format!("> {}:", b.ipv4())), "{name}");
    assert_eq!(flow["pairs"]["misses"]["first"], 1);
    let sent = flow["payload_bytes"].as_u64().unwrap();
    assert!(sent >= SENT as u64, "{flow}");
    // On a busy machine, TCP may take a late acknowledgement for a loss.
    let once = sent == SENT as u64;
    for rule in ["pages_per_stream", "pairs", "trains"] {
        let misses = &flow[rule]["misses"];
        assert!(!once || misses["lost"] == 0, "{rule}: {misses}");
        assert_eq!(misses["reordered"], 0, "{rule}: {misses}");
    }
    assert!(flow["pages"]["potential"].as_u64().unwrap() > 30, "{flow}");
    assert_eq!(all["seen"]["merged"], 0, "{}", all["seen"]);
}
