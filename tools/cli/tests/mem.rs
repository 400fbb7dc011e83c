//! Tests `zerolane mem` over loopback.

#![allow(non_snake_case)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use netlab::netns::{self, Topology};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_zerolane");

/// The program of a user whose keys are in `home`.
fn zerolane(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("ZEROLANE_HOME", home).args(words);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running `mem export`, ended even if the test fails.
struct Exporter {
    child: Child,
    /// Its address, HOST:PORT.
    host: String,
    /// Keys of the user, who also runs the clients.
    home: TempDir,
    /// Kept open, because closing its standard output would end the program.
    _said: BufReader<ChildStdout>,
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Exporter {
    /// Exports `what` as `m`.
    fn of(what: &str, options: &[&str]) -> Exporter {
        let fixed = [
            "mem",
            "export",
            what,
            "--name",
            "m",
            "--listen",
            "127.0.0.1:0",
        ];
        let home = tempfile::tempdir().unwrap();
        let command = zerolane(home.path(), &[&fixed, options].concat());
        Exporter::start(command, home)
    }

    fn start(mut command: Command, home: TempDir) -> Exporter {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let host = line
            .split(" on ")
            .nth(1)
            .and_then(|it| it.split(' ').next());
        let host = host.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Exporter {
            child,
            host,
            home,
            _said: said,
        }
    }

    /// Runs `mem VERB HOST WORDS..` with this standard input.
    fn run_with(&self, verb: &str, words: &[&str], input: &[u8]) -> Output {
        let words = [&["mem", verb, &self.host], words].concat();
        let mut child = zerolane(self.home.path(), &words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The command may fail before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    fn succeeds(&self, verb: &str, words: &[&str], input: &[u8]) -> Vec<u8> {
        let output = self.run_with(verb, words, input);
        assert!(
            output.status.success(),
            "{words:?}: {}",
            text(&output.stderr)
        );
        output.stdout
    }

    /// Asserts that the command fails with this code and message.
    fn fails(&self, verb: &str, words: &[&str], input: &[u8], code: i32, says: &str) {
        let output = self.run_with(verb, words, input);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
    }

    fn ends_with(mut self, signal: Signal) -> Option<i32> {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

/// Bytes that differ from place to place.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn file(directory: &Path, name: &str, content: &[u8]) -> String {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn put_and_get__bytes_arrive_where_they_were_put() {
    let directory = tempfile::tempdir().unwrap();
    let exporter = Exporter::of("5MiB", &[]);
    let mut expected = vec![0; 5 << 20];
    // Small, odd, across packets, across pieces, up to the very end.
    for (seed, (offset, len)) in [
        (0, 1),
        (3, 100),
        (4093, 5001),
        (1_000_001, 3_500_000),
        ((5 << 20) - 7, 7),
    ]
    .into_iter()
    .enumerate()
    {
        let content = noise(len, seed as u64);
        let path = file(directory.path(), "in", &content);
        exporter.succeeds("put", &[&format!("m@{offset}"), &path], b"");
        expected[offset..offset + len].copy_from_slice(&content);
        let range = format!("m@{offset}+{len}");
        assert!(
            exporter.succeeds("get", &[&range], b"") == content,
            "{range}"
        );
    }
    let out = directory.path().join("out");
    exporter.succeeds("get", &["m", out.to_str().unwrap()], b"");
    assert!(std::fs::read(&out).unwrap() == expected);
    assert_eq!(exporter.ends_with(Signal::SIGTERM), Some(130));
}

/// Classic is used only if both ends ask for it.
#[test]
fn profile__classic_has_to_be_asked_for_at_both_ends() {
    let classic = ["--profile", "classic"];
    let content = noise(100_000, 3);
    let refusal = "no profile in common";
    let exporter = Exporter::of("1MiB", &[]);
    let asked = [&["m", "-"][..], &classic].concat();
    exporter.fails("put", &asked, &content, 3, refusal);
    let exporter = Exporter::of("1MiB", &classic);
    exporter.fails("put", &["m", "-"], &content, 3, refusal);
    exporter.succeeds("put", &asked, &content);
    let part = [&["m@0+100000", "-"][..], &classic].concat();
    assert!(exporter.succeeds("get", &part, b"") == content);
}

#[test]
fn lane__shared_memory_where_both_ends_ask_for_it() {
    let shm = ["--lane", "shm"];
    let content = noise(300_000, 4);
    let exporter = Exporter::of("1MiB", &shm);
    exporter.succeeds("put", &[&["m", "-"][..], &shm].concat(), &content);
    let part = [&["m@0+300000", "-"][..], &shm].concat();
    assert!(exporter.succeeds("get", &part, b"") == content);
    let exporter = Exporter::of("1MiB", &["--lane", "udp"]);
    let asked = [&["m", "-"][..], &shm].concat();
    let why = "no listener of this user accepts it at the address";
    exporter.fails("put", &asked, &content, 3, why);
}

#[test]
fn put__of_standard_input() {
    let exporter = Exporter::of("2MiB", &[]);
    let content = noise((1 << 20) + 12_345, 1);
    exporter.succeeds("put", &["m@0x10"], &content);
    let range = format!("m@16+{}", content.len());
    assert!(exporter.succeeds("get", &[&range, "-"], b"") == content);
    // Empty input is not an error.
    exporter.succeeds("put", &["m", "-"], b"");
    assert!(exporter.succeeds("get", &["m@8+0"], b"").is_empty());
}

#[test]
fn export__a_file_is_read_and_written_in_place() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = noise(3 << 20, 7);
    let path = file(directory.path(), "memory", &expected);
    let exporter = Exporter::of(&path, &[]);
    assert!(exporter.succeeds("get", &["m"], b"") == expected);
    let content = noise(1_500_000, 8);
    exporter.succeeds("put", &["m@777"], &content);
    expected[777..777 + content.len()].copy_from_slice(&content);
    assert!(std::fs::read(&path).unwrap() == expected);
}

/// A memory control group, removed when this is dropped.
struct Group(PathBuf);

impl Group {
    /// A group of this many bytes. `None`: this process may not make one.
    fn new(bytes: u64) -> Option<Group> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let of_memory = mounts.lines().filter_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let mut words = kind.split([' ', ',']);
            let is_it = words.any(|it| it == "cgroup2" || it == "memory");
            place.split(' ').nth(4).filter(|_| is_it)
        });
        let name = format!("zerolane-mem-test-{}", std::process::id());
        of_memory.into_iter().find_map(|at| {
            let made = Path::new(at).join(&name);
            std::fs::create_dir(&made).ok()?;
            let group = Group(made);
            // Where the kernel does not limit memory, no file has such a name.
            let mut files = ["memory.max", "memory.limit_in_bytes"].into_iter();
            let limits = |it| std::fs::write(group.0.join(it), bytes.to_string()).is_ok();
            files.any(limits).then_some(group)
        })
    }

    /// Bytes that its processes have.
    fn used(&self) -> u64 {
        let files = ["memory.current", "memory.usage_in_bytes"];
        let used = files
            .iter()
            .find_map(|it| std::fs::read_to_string(self.0.join(it)).ok());
        used.unwrap().trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The export has a group of its own: a fault here would take all memory of the machine.
#[test]
fn export__of_more_than_there_is_takes_what_is_used() {
    const MIB: u64 = 1 << 20;
    let Some(group) = Group::new(256 * MIB) else {
        println!(
            "skipped: this kernel mounts none of the memory control groups for this process to write"
        );
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let export = [
        PROGRAM,
        "mem",
        "export",
        "1GiB",
        "--name",
        "m",
        "--listen",
        "127.0.0.1:0",
    ];
    let mut command = Command::new("sh");
    command.args(["-c", r#"echo $$ >"$0" && exec "$@""#]);
    command.arg(group.0.join("cgroup.procs")).args(export);
    command.env("ZEROLANE_HOME", home.path());
    let exporter = Exporter::start(command, home);
    assert!(group.used() < 128 * MIB, "{} bytes", group.used());
    // All of it is there nevertheless.
    let content = noise(100_000, 9);
    for at in [0, 512 * MIB, 1024 * MIB - content.len() as u64] {
        exporter.succeeds("put", &[&format!("m@{at}")], &content);
        let range = format!("m@{at}+{}", content.len());
        assert!(
            exporter.succeeds("get", &[&range], b"") == content,
            "{range}"
        );
    }
    assert!(group.used() < 128 * MIB, "{} bytes", group.used());
}

#[test]
fn export__rights_are_heeded() {
    let directory = tempfile::tempdir().unwrap();
    let content = noise(100_000, 7);
    let path = file(directory.path(), "memory", &content);
    let exporter = Exporter::of(&path, &["--read-only"]);
    assert!(exporter.succeeds("get", &["m"], b"") == content);
    exporter.fails("put", &["m"], b"x", 1, "does not allow");
    exporter.fails("fetch-add", &["m@0", "1"], b"", 1, "does not allow");
    assert!(std::fs::read(&path).unwrap() == content);

    let exporter = Exporter::of("4KiB", &["--rights", "wa"]);
    exporter.succeeds("put", &["m"], b"secret");
    exporter.fails("get", &["m"], b"", 1, "does not allow");
    exporter.succeeds("fetch-add", &["m@8", "1"], b"");
}

#[test]
fn fetch_add__prints_what_it_was_and_wraps_around() {
    let exporter = Exporter::of("64", &[]);
    let before = |words: &[&str]| text(&exporter.succeeds("fetch-add", words, b""));
    assert_eq!(before(&["m@8", "40"]), "0\n");
    assert_eq!(before(&["m@8", "-42"]), "40\n");
    assert_eq!(before(&["m@8", "2"]), format!("{}\n", u64::MAX - 1));
    assert_eq!(before(&["m@8", "5", "--times", "3"]), "0\n5\n10\n");
    // The number has the exporter's byte order, which is little-endian on supported machines.
    assert_eq!(
        exporter.succeeds("get", &["m@8+8"], b""),
        15_u64.to_ne_bytes()
    );
    assert_eq!(exporter.succeeds("get", &["m@0+8"], b""), [0; 8]);
}

#[test]
fn fetch_add__of_many_at_once_counts_exactly() {
    const ADDERS: usize = 6;
    const TIMES: u64 = 300;
    let exporter = Exporter::of("64", &[]);
    let host = exporter.host.as_str();
    let adders: Vec<Child> = (0..ADDERS)
        .map(|_| {
            let times = TIMES.to_string();
            let words = ["mem", "fetch-add", host, "m", "1", "--times", &times];
            zerolane(exporter.home.path(), &words)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut seen = BTreeSet::new();
    for adder in adders {
        let output = adder.wait_with_output().unwrap();
        assert!(output.status.success());
        let values: Vec<u64> = text(&output.stdout)
            .lines()
            .map(|line| line.parse().unwrap())
            .collect();
        assert!(values.is_sorted() && values.len() as u64 == TIMES);
        seen.extend(values);
    }
    // Each value was returned exactly once.
    let all = ADDERS as u64 * TIMES;
    assert_eq!(
        (seen.len() as u64, seen.first(), seen.last()),
        (all, Some(&0), Some(&(all - 1)))
    );
}

/// A one-time code as `serve --code` prints it, and the error of commands that take none.
const CODE: &str = "1234-5678";
const UNKNOWN: &str = "unexpected argument '--code'";

#[test]
fn bad_input__is_refused_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "in", &noise(100, 1));
    let exporter = Exporter::of("64", &[]);
    for (verb, words, code, says) in [
        ("get", &["n"][..], 1, "exports nothing called \"n\""),
        ("put", &["n", &path], 1, "exports nothing called \"n\""),
        (
            "fetch-add",
            &["n@0", "1"],
            1,
            "exports nothing called \"n\"",
        ),
        (
            "get",
            &["m@60+5"],
            1,
            "outside of \"m\", which has 64 bytes",
        ),
        ("get", &["m@65"], 1, "outside of"),
        ("get", &["m@18446744073709551615+2"], 1, "outside of"),
        ("put", &["m", &path], 1, "100 bytes at 0 are outside of"),
        ("put", &["m@8+2", &path], 2, "not NAME@OFFSET+LEN"),
        (
            "put",
            &["m", "/no/such/file"],
            1,
            "cannot read /no/such/file",
        ),
        ("fetch-add", &["m@4", "1"], 2, "not a multiple of 8"),
        ("fetch-add", &["m@64", "1"], 1, "outside of"),
        ("fetch-add", &["m@0+8", "1"], 2, "without +LEN"),
        ("fetch-add", &["m@0", "many"], 2, "many"),
        ("get", &["m@here"], 2, "no number of bytes"),
        ("get", &["@8"], 2, "no name"),
        // Codes are for files; memory requires keys.
        ("put", &["m", &path, "--code", CODE], 2, UNKNOWN),
        ("get", &["m", "--code", CODE], 2, UNKNOWN),
        ("fetch-add", &["m@0", "1", "--code", CODE], 2, UNKNOWN),
    ] {
        exporter.fails(verb, words, b"", code, says);
    }
    exporter.fails("put", &["m@60"], b"12345", 1, "outside of");
    // The export still works.
    assert_eq!(exporter.succeeds("get", &["m"], b""), [0; 64]);
}

#[test]
fn bad_exports__are_refused_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let empty = file(directory.path(), "empty", b"");
    let long = "n".repeat(33);
    for (words, code, says) in [
        (
            &["/no/such/file", "--name", "m"][..],
            2,
            "neither a file nor a size",
        ),
        (&["0", "--name", "m"], 2, "0 bytes"),
        (&[&empty, "--name", "m"], 1, "is empty"),
        (&["64", "--name", ""], 2, "1 to 32"),
        (&["64", "--name", &long], 2, "1 to 32"),
        (
            &["64", "--name", "m", "--rights", "rx"],
            2,
            "none of r, w and a",
        ),
        (
            &["64", "--name", "m", "--rights", "r", "--read-only"],
            2,
            "--read-only",
        ),
        (&["64", "--name", "m", "--code"], 2, UNKNOWN),
        (
            &["64", "--name", "m", "--listen", "nowhere.invalid"],
            1,
            "cannot find the address",
        ),
        (
            &["64", "--name", "m", "--listen", "192.0.2.99"],
            1,
            "cannot listen",
        ),
    ] {
        let output = zerolane(directory.path(), &[&["mem", "export"], words].concat())
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
    }
}

#[test]
fn get__from_where_nothing_listens_is_exit_3() {
    // No other program gets this port. The socket is connected to an unused one, so it ignores clients.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.connect("127.0.0.1:9").unwrap();
    let host = silent.local_addr().unwrap().to_string();
    let home = tempfile::tempdir().unwrap();
    let words = ["mem", "get", &host, "m"];
    let output = zerolane(home.path(), &words).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("cannot reach 127.0.0.1"), "{said}");
}

#[test]
fn put_and_get__between_two_namespaces() {
    if !netns::is_permitted() {
        eprintln!("skipped: needs root for network namespaces");
        return;
    }
    let hosts = Topology::pair("memtest", 1500).unwrap();
    let mut export = hosts.b().command(PROGRAM);
    let listen = format!("{}:0", hosts.b().ipv4());
    export.args(["mem", "export", "3MiB", "--name", "m", "--listen", &listen]);
    let home = tempfile::tempdir().unwrap();
    export.env("ZEROLANE_HOME", home.path());
    let exporter = Exporter::start(export, home);
    let content = noise(2_345_678, 4);
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "in", &content);
    let run = |words: &[&str]| {
        let mut command = hosts.a().command(PROGRAM);
        command.env("ZEROLANE_HOME", exporter.home.path());
        let output = command.args(words).output().unwrap();
        assert!(
            output.status.success(),
            "{words:?}: {}",
            text(&output.stderr)
        );
        output.stdout
    };
    run(&["mem", "put", &exporter.host, "m@99", &path]);
    let range = format!("m@99+{}", content.len());
    assert!(run(&["mem", "get", &exporter.host, &range]) == content);
    assert_eq!(
        run(&["mem", "fetch-add", &exporter.host, "m@0", "3"]),
        b"0\n"
    );
    drop(exporter);
}

#[test]
fn put_and_get__over_two_veth_pairs() {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let hosts = Topology::pairs("mempaths", 1500, 2).unwrap();
    let mut export = hosts.b().command(PROGRAM);
    let fixed = ["mem", "export", "64MiB", "--name", "m"];
    export
        .args(fixed)
        .args(["--listen", "0.0.0.0:9182", "--paths", "2"]);
    let home = tempfile::tempdir().unwrap();
    export.env("ZEROLANE_HOME", home.path());
    let exporter = Exporter::start(export, home);
    let content = noise(48 << 20, 4);
    let directory = tempfile::tempdir().unwrap();
    let file = file(directory.path(), "in", &content);
    let [host, local, peer] = [
        hosts.b().ipv4(),
        hosts.a().interface(1).ipv4(),
        hosts.b().interface(1).ipv4(),
    ]
    .map(|it| it.to_string());
    let sent = || hosts.a().counters().unwrap()[1].sent;
    let run = |path: &str, words: &[&str]| {
        let mut command = hosts.a().command(PROGRAM);
        command.env("ZEROLANE_HOME", exporter.home.path());
        command.args(words).args(["--path", path]).output().unwrap()
    };
    let path = format!("{local}={peer}");
    // A fast copy is over before the second path carries its share.
    let by_both = (0..20).any(|_| {
        let before = sent();
        let put = run(&path, &["mem", "put", &host, "m@8", &file]);
        assert!(put.status.success(), "{}", text(&put.stderr));
        sent() - before > 1 << 20
    });
    assert!(by_both, "{} bytes by the second path in all", sent());
    let range = format!("m@8+{}", content.len());
    let got = run(&path, &["mem", "get", &host, &range]);
    assert!(got.stdout == content, "{}", text(&got.stderr));
    // The error says what to do.
    for (path, says) in [
        ("10.77.0.1", "LOCAL=PEER"),
        ("eth0=10.78.0.2", "`ip address`"),
        ("192.0.2.77=", "is 192.0.2.77 an address of this host?"),
    ] {
        let refused = run(path, &["mem", "get", &host, "m@0+8"]);
        assert_eq!(refused.status.code(), Some(2), "{path}");
        assert!(
            text(&refused.stderr).contains(says),
            "{}",
            text(&refused.stderr)
        );
    }
}
