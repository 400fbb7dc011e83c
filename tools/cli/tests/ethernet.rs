//! Tests `--lane ethernet` and raw Ethernet addresses between two hosts in namespaces.

#![allow(non_snake_case)]

mod content;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use content::content;
use netlab::netns::{self, Namespace, Topology};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zerolane");

/// Ends the process even if the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two hosts, and the server on the second.
struct Lab {
    hosts: Topology,
    base: tempfile::TempDir,
    server: Option<(Running, BufReader<ChildStdout>)>,
}

impl Lab {
    /// `None`, after printing the reason, where namespaces are not allowed.
    fn new() -> Option<Lab> {
        if !netns::is_permitted() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        Some(Lab {
            hosts: Topology::pair("ether", 1500).unwrap(),
            base: tempfile::tempdir().unwrap(),
            server: None,
        })
    }

    fn program(&self, mut command: Command, words: &[&str]) -> Command {
        command
            .env("ZEROLANE_HOME", self.base.path().join("home"))
            .env("ZEROLANE_CONFIG", "/dev/null")
            .stdin(Stdio::null())
            .args(words);
        command
    }

    fn on(&self, host: &Namespace, words: &[&str]) -> Command {
        self.program(host.command(PROGRAM), words)
    }

    /// Starts a server on the second host. Returns its address as seen from the first.
    fn start(&mut self, words: &[&str]) -> String {
        self.server = None;
        let mut command = self.on(self.hosts.b(), words);
        // A server of another user, so it lets in all clients.
        let command = command.arg("--anyone");
        let command = command.env("ZEROLANE_HOME", self.base.path().join("there"));
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        self.server = Some((Running(child), out));
        let own = line
            .split(" on ")
            .nth(1)
            .and_then(|it| it.split(' ').next());
        let own = own.unwrap_or_else(|| panic!("{line:?}"));
        let there = format!("ether:{}/", self.hosts.b().device());
        let rest = own.strip_prefix(&there);
        let rest = rest.unwrap_or_else(|| panic!("{own} is not of {there}"));
        format!("ether:{}/{rest}", self.hosts.a().device())
    }

    /// The address where the second host listens.
    fn listen(&self) -> String {
        format!("ether:{}:0", self.hosts.b().device())
    }

    fn path(&self, name: &str) -> String {
        self.base.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs a command on the first host that must succeed. Returns its output.
    fn run(&self, words: &[&str]) -> String {
        succeed(self.on(self.hosts.a(), words))
    }
}

fn succeed(mut command: Command) -> String {
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {said}");
    String::from_utf8(done.stdout).unwrap()
}

/// Runs a command that must end with `code` and print `words`.
fn fail(mut command: Command, code: i32, words: &str) {
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(code), "{command:?}: {said}");
    assert!(said.contains(words), "{said:?} does not say {words:?}");
}

/// The files of the tree and their lengths: for short frames, one full frame, none.
const FILES: [(&str, usize); 4] = [
    ("short", 3),
    ("one", 1400),
    ("sub/long", (5 << 20) + 17),
    ("sub/empty", 0),
];

fn assert_tree(root: &Path) {
    for (seed, (name, len)) in FILES.iter().enumerate() {
        let found = fs::read(root.join(name)).unwrap();
        assert!(found == content(seed as u64, *len), "{name}");
    }
}

#[test]
fn ethernet__a_tree_there_and_back() {
    let Some(mut lab) = Lab::new() else { return };
    let [here, share, back] = ["here", "share", "back"].map(|it| lab.base.path().join(it));
    fs::create_dir_all(here.join("sub")).unwrap();
    fs::create_dir(&share).unwrap();
    for (seed, (name, len)) in FILES.iter().enumerate() {
        fs::write(here.join(name), content(seed as u64, *len)).unwrap();
    }
    let (listen, share_name) = (lab.listen(), lab.path("share"));
    let there = lab.start(&["serve", &share_name, "--listen", &listen]);
    let at = |path: &str| format!("{there}:{path}");

    // The address selects the lane.
    lab.run(&["cp", "-r", &lab.path("here"), &at("tree")]);
    assert_tree(&share.join("tree"));
    let lane = ["--lane", "ethernet"];
    lab.run(&[&["cp", "-r"], &lane[..], &[&at("tree"), &lab.path("back")]].concat());
    assert_tree(&back);
    assert_eq!(lab.run(&["ls", &at("tree/sub")]), "empty\nlong\n");

    lab.run(&["mkdir", &at("new")]);
    lab.run(&["mv", &at("tree/sub/long"), &at("new/long")]);
    lab.run(&["rm", "-r", &at("tree")]);
    assert!(fs::read(share.join("new/long")).unwrap() == content(2, FILES[2].1));
    assert!(!share.join("tree").exists());
    lab.run(&["sync", &lab.path("here"), &at("new"), "--delete"]);
    assert_tree(&share.join("new"));

    // The server is remembered under that address, and forgotten by it.
    lab.run(&["keys", "forget", &there]);
    let udp = lab.on(lab.hosts.a(), &["ls", "--lane", "udp", &at("")]);
    fail(udp, 2, "which is an address of raw Ethernet");
}

/// Whether an XDP program is attached to the interface of `host`.
fn has_program(host: &Namespace) -> bool {
    let kernel = host.rtnetlink().unwrap();
    kernel.xdp_program(host.device()).unwrap().is_some()
}

#[test]
fn bypass__always_is_by_af_xdp_at_both_ends() {
    let Some(mut lab) = Lab::new() else { return };
    let (listen, share) = (lab.listen(), lab.path("share"));
    fs::create_dir(&share).unwrap();
    let bytes = content(1, (5 << 20) + 17);
    fs::write(lab.path("a"), &bytes).unwrap();
    let always = ["--bypass", "always"];
    let serve = ["serve", &share, "--listen", &listen];
    let there = lab.start(&[&serve[..], &always].concat());
    assert!(has_program(lab.hosts.b()) && !has_program(lab.hosts.a()));
    let at = |path: &str| format!("{there}:{path}");
    lab.run(&[&["cp"], &always[..], &[&lab.path("a"), &at("b")]].concat());
    assert!(fs::read(Path::new(&share).join("b")).unwrap() == bytes);
    // A server with packet sockets works, too. No program is left behind.
    lab.run(&["cp", "--bypass", "never", &at("b"), &lab.path("c")]);
    assert!(fs::read(lab.path("c")).unwrap() == bytes);
    assert!(!has_program(lab.hosts.a()));
    lab.server = None;
    assert!(!has_program(lab.hosts.b()));

    let export = ["mem", "export", "6MiB", "--name", "m", "--listen", &listen];
    let there = lab.start(&[&export[..], &always].concat());
    assert!(has_program(lab.hosts.b()));
    lab.run(&[
        "mem",
        "put",
        "--bypass",
        "always",
        &there,
        "m@5",
        &lab.path("a"),
    ]);
    let part = format!("m@5+{}", bytes.len());
    let mut get = lab.on(lab.hosts.a(), &["mem", "get", &there, &part]);
    assert!(get.output().unwrap().stdout == bytes);
}

#[test]
fn bypass__auto_is_by_packet_sockets_where_the_kernel_would_copy() {
    let Some(mut lab) = Lab::new() else { return };
    let (listen, share) = (lab.listen(), lab.path("share"));
    fs::create_dir(&share).unwrap();
    fs::write(lab.path("a"), content(1, 100_000)).unwrap();
    let there = lab.start(&["serve", &share, "--listen", &listen, "--bypass", "auto"]);
    assert!(!has_program(lab.hosts.b()));
    lab.run(&["cp", &lab.path("a"), &format!("{there}:b")]);
    assert!(fs::read(Path::new(&share).join("b")).unwrap() == content(1, 100_000));
}

#[test]
fn bypass__that_cannot_be_is_an_error_that_says_why() {
    let Some(mut lab) = Lab::new() else { return };
    let (listen, share) = (lab.listen(), lab.path("share"));
    fs::create_dir(&share).unwrap();
    let always = ["serve", &share, "--bypass", "always", "--listen", &listen];
    let there = lab.start(&always);
    let b = lab.hosts.b();
    fail(
        lab.on(b, &always),
        1,
        "the interface has an XDP program already",
    );
    let port = there.rsplit(':').next().unwrap();
    let its = format!("ether:{}/02:00:00:00:00:01:{port}", b.device());
    let ls = ["ls", "--bypass", "always", &format!("{its}:")];
    fail(
        lab.on(b, &ls),
        3,
        "the interface has an XDP program already",
    );
    let said = lab.run(&["ls", &format!("{there}:")]);
    assert_eq!(said, "");

    let a = lab.hosts.a();
    let perhaps = lab.on(a, &["ls", "--bypass", "perhaps", &format!("{there}:")]);
    fail(perhaps, 2, "auto, always, never");
    let udp = lab.on(a, &["ls", "--bypass", "always", "127.0.0.1:"]);
    fail(udp, 2, "--bypass always is for raw Ethernet alone");
    let mut without = a.command("setpriv");
    let dropped = "-bpf,-sys_admin";
    without.args(["--bounding-set", dropped, "--inh-caps", dropped, PROGRAM]);
    let ls = ["ls", "--bypass", "always", &format!("{there}:")];
    fail(lab.program(without, &ls), 3, "needs CAP_BPF");
}

#[test]
fn ethernet__memory_of_another_host() {
    let Some(mut lab) = Lab::new() else { return };
    let listen = lab.listen();
    let export = ["mem", "export", "1MiB", "--name", "m"];
    let listen = ["--lane", "ethernet", "--listen", &listen];
    let there = lab.start(&[&export[..], &listen[..]].concat());
    let bytes = content(9, 100_003);
    let from = lab.path("from");
    fs::write(&from, &bytes).unwrap();
    lab.run(&["mem", "put", &there, "m@5", &from]);
    let mut get = lab.on(lab.hosts.a(), &["mem", "get", &there, "m@5+100003"]);
    assert!(get.output().unwrap().stdout == bytes);
    assert_eq!(
        lab.run(&["mem", "fetch-add", &there, "m@524288", "7"])
            .trim(),
        "0"
    );
    assert_eq!(
        lab.run(&["mem", "fetch-add", &there, "m@524288", "1"])
            .trim(),
        "7"
    );
}

#[test]
fn ethernet__by_the_name_of_a_host() {
    let Some(mut lab) = Lab::new() else { return };
    let (listen, share) = (lab.listen(), lab.path("share"));
    fs::create_dir(&share).unwrap();
    fs::write(lab.path("a"), content(1, 100_000)).unwrap();
    let device = lab.hosts.a().device().to_owned();
    let serve = ["serve", &share, "--listen", &listen, "--ether-name"];
    let address = lab.start(&[&serve[..], &["Box-1"]].concat());
    let port = address.rsplit(':').next().unwrap();
    let there = format!("ether:{device}/box-1:{port}");
    // The name is looked up for a second. Retried, in case this machine kept the server from running that long.
    let asking = |words: &[&str]| {
        let mut tries = (0..20).map(|_| lab.on(lab.hosts.a(), words));
        let done = tries.find_map(|mut command| {
            let done = command.output().unwrap();
            (done.status.code() != Some(3)).then_some(done)
        });
        let done = done.expect("an answer");
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    asking(&["cp", &lab.path("a"), &format!("{there}:b")]);
    assert!(fs::read(Path::new(&share).join("b")).unwrap() == content(1, 100_000));
    let listed = asking(&["lanes", "--discover", &device]);
    assert_eq!(listed, format!("Box-1  {address}\n"));
    let json = asking(&["lanes", "--discover", &device, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["name"], "Box-1");
    assert_eq!(json["address"], address.as_str());
    let other = format!("ether:{device}/box-2:{port}:");
    let nobody = lab.on(lab.hosts.a(), &["ls", &other]);
    fail(nobody, 3, "no listener on the segment is called box-2");

    lab.start(&[&serve[..], &[""]].concat());
    let silent = lab.on(lab.hosts.a(), &["lanes", "--discover", &device]);
    fail(silent, 3, "nothing that listens");
    let odd = lab.on(lab.hosts.a(), &[&serve[..], &["a b"]].concat());
    fail(odd, 2, "letters, digits");
}

#[test]
fn lanes__of_an_address_of_raw_ethernet() {
    let Some(lab) = Lab::new() else { return };
    let there = format!("ether:{}/02:00:00:00:00:01", lab.hosts.a().device());
    let said = lab.run(&["lanes", "--json", &there]);
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(found["address"], format!("{there}:9181"));
    assert_eq!(found["used"], "ethernet");
    assert_eq!(found["ethernet"]["possible"], true);
    assert_eq!(found["ethernet"]["datagram"], 1500);
    let said = lab.run(&["lanes", &there]);
    assert!(
        said.contains("  ethernet: taken, in frames of up to 1500 bytes"),
        "{said}"
    );
    let copies = "  af_xdp: taken by --bypass always: the kernel copies each frame once more";
    assert!(said.contains(copies), "{said}");
    assert_eq!(found["ethernet"]["af_xdp"]["possible"], true);
    assert_eq!(found["ethernet"]["af_xdp"]["mode"], "copy");
    assert!(!has_program(lab.hosts.a()), "it was there for a moment");
    let no_such = lab.on(lab.hosts.a(), &["lanes", "ether:none/02:00:00:00:00:01"]);
    fail(no_such, 3, "there is no interface none");
    let loopback = lab.on(lab.hosts.a(), &["lanes", "ether:lo/02:00:00:00:00:01"]);
    fail(loopback, 3, "lo is not Ethernet");
}

#[test]
fn ethernet__errors_in_words() {
    let base = tempfile::tempdir().unwrap();
    let zerolane = |words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command
            .env("ZEROLANE_HOME", base.path())
            .env("ZEROLANE_CONFIG", "/dev/null")
            .stdin(Stdio::null())
            .args(words);
        command
    };
    const HOST: &str = "ether:none/02:00:00:00:00:01";
    let there = format!("{HOST}:");
    let share = base.path().to_str().unwrap();
    for lane in ["udp", "auto", "shm"] {
        let ls = zerolane(&["ls", "--lane", lane, &there]);
        fail(ls, 2, "which is an address of raw Ethernet");
        let get = zerolane(&["mem", "get", "--lane", lane, HOST, "m"]);
        fail(get, 2, "which is an address of raw Ethernet");
        let serve = zerolane(&["serve", share, "--lane", lane, "--listen", "ether:none"]);
        fail(serve, 2, "which is an address of raw Ethernet");
    }
    fail(zerolane(&["ls", &there]), 3, "there is no interface none");
    fail(
        zerolane(&["mem", "get", HOST, "m"]),
        3,
        "there is no interface none",
    );
    let serve = zerolane(&["serve", share, "--listen", "ether:none"]);
    fail(serve, 1, "there is no interface none");
    let loopback = zerolane(&["serve", share, "--listen", "ether:lo"]);
    fail(loopback, 1, "lo is not Ethernet");
    let by_name = zerolane(&["ls", "--lane", "ethernet", "127.0.0.1:"]);
    fail(
        by_name,
        3,
        "raw Ethernet needs an address with an interface",
    );
    let no_address = zerolane(&["serve", share, "--lane", "ethernet"]);
    fail(no_address, 1, "ether:IFACE:PORT to listen on");
    fail(zerolane(&["ls", HOST]), 2, "a path must follow");
    fail(zerolane(&["doctor", HOST]), 2, "zerolane lanes");
    let login = zerolane(&["ls", "-e", "false", &there]);
    fail(login, 2, "no login leads to");
    if nix::unistd::geteuid().is_root() {
        let user = zerolane(&["serve", share, "--user", "root", "--listen", "ether:lo"]);
        fail(user, 2, "--user is for UDP alone");
    } else {
        println!("skipped: only root may name a user");
    }
}

#[test]
fn ethernet__without_the_capability_is_told_so() {
    let Some(lab) = Lab::new() else { return };
    let without = |words: &[&str]| {
        let mut command = lab.hosts.a().command("setpriv");
        command.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", PROGRAM]);
        lab.program(command, words)
    };
    let device = lab.hosts.a().device();
    const WORDS: &str = "raw Ethernet needs CAP_NET_RAW";
    let there = format!("ether:{device}/02:00:00:00:00:01");
    fail(without(&["ls", &format!("{there}:")]), 3, WORDS);
    let listen = format!("ether:{device}");
    let share = lab.path("");
    fail(without(&["serve", &share, "--listen", &listen]), 1, WORDS);
    let said = succeed(without(&["lanes", &there]));
    assert!(said.contains(WORDS), "{said}");
}

#[test]
fn lanes__says_why_there_is_no_af_xdp() {
    let Some(lab) = Lab::new() else { return };
    let there = format!("ether:{}/02:00:00:00:00:01", lab.hosts.a().device());
    let dropped = "-bpf,-sys_admin";
    let mut command = lab.hosts.a().command("setpriv");
    command.args(["--bounding-set", dropped, "--inh-caps", dropped, PROGRAM]);
    let said = succeed(lab.program(command, &["lanes", "--json", &there]));
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(found["ethernet"]["possible"], true);
    let af_xdp = &found["ethernet"]["af_xdp"];
    assert_eq!(af_xdp["possible"], false);
    let why = af_xdp["why_not"].as_str().unwrap();
    assert!(why.contains("needs CAP_BPF"), "{why}");
}
