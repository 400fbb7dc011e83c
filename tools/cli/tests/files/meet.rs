//! Tests `zerolane send` and `receive` over loopback.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use zerolane::security::PreShared;
use zerolane::{Connection, Endpoint, Options, Security};
use zerolane_files::limits::DISCOVERY_PORT;

use super::lab::*;
use super::words::of_terminal;

/// Asks only on loopback.
const HERE: [&str; 2] = ["--interface", "lo"];

/// A directory with files to send and received files, and the sender.
pub(crate) struct Sender {
    base: tempfile::TempDir,
    child: Option<Running>,
    code: String,
    pub(crate) address: String,
    _said: BufReader<std::process::ChildStdout>,
}

pub(crate) fn places() -> tempfile::TempDir {
    let base = tempfile::tempdir_in("/dev/shm").unwrap();
    for name in ["from", "to"] {
        fs::create_dir(base.path().join(name)).unwrap();
    }
    base
}

impl Sender {
    pub(crate) fn new(base: tempfile::TempDir, options: &[&str], names: &[&str]) -> Sender {
        let mut command = zerolane();
        command
            .arg("send")
            .args(HERE)
            .args(["--listen", "127.0.0.1:0"])
            .args(options);
        command.args(names).current_dir(base.path().join("from"));
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child: Child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut word = |behind: &str| {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            let rest = line
                .split(behind)
                .nth(1)
                .unwrap_or_else(|| panic!("{line:?}"));
            rest.trim().to_owned()
        };
        word("To be sent: ");
        let code = word("zerolane receive ");
        let address = word("--from ");
        assert_eq!(code.len(), 14, "{code}");
        Sender {
            base,
            child: Some(Running(child)),
            code,
            address,
            _said: said,
        }
    }

    pub(crate) fn to(&self, name: &str) -> PathBuf {
        self.base.path().join("to").join(name)
    }

    fn from(&self, name: &str) -> PathBuf {
        self.base.path().join("from").join(name)
    }

    pub(crate) fn receive(&self, options: &[&str]) -> Command {
        self.receive_by(&self.code, options)
    }

    fn receive_by(&self, code: &str, options: &[&str]) -> Command {
        let mut command = zerolane();
        command.args(["receive", code]).arg(self.to(""));
        if !options.contains(&"--from") {
            command.args(HERE);
        }
        command.args(options);
        command
    }

    /// The code with another last digit. Its channel is right.
    fn wrong(&self) -> String {
        let (front, last) = self.code.split_at(self.code.len() - 1);
        format!("{front}{}", (last.parse::<u8>().unwrap() + 1) % 10)
    }

    /// Waits for the sender to end.
    pub(crate) fn ends(&mut self) -> (ExitStatus, String) {
        let mut child = self.child.take().unwrap();
        let mut words = String::new();
        let mut errors = child.0.stderr.take().unwrap();
        errors.read_to_string(&mut words).unwrap();
        (child.0.wait().unwrap(), words)
    }
}

/// Runs a receiver to its end. Restarts one that got no answer in time: each tries every sender once.
fn received(receiver: impl Fn() -> Command) -> (i32, String, String) {
    eventually("it is answered", || {
        let done = run(receiver());
        (done.0 != 3).then_some(done)
    })
}

fn same(a: &Path, b: &Path) {
    let mut differ = Command::new("diff");
    differ.arg("-r").args([a, b]);
    let (code, out, err) = run(differ);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn send__files_and_directories_to_the_one_with_the_code() {
    let base = places();
    let from = base.path().join("from");
    fs::create_dir_all(from.join("dir/deep")).unwrap();
    fs::write(from.join("dir/deep/large"), content(1, 5 * MIB)).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"a\n\xff b:c'\x1b[31m");
    fs::write(from.join("dir").join(odd), b"odd").unwrap();
    fs::write(from.join("empty"), b"").unwrap();
    fs::write(from.join("new\nline"), content(2, 300_000)).unwrap();
    fs::write(from.join("not named"), b"stays").unwrap();
    let mut sender = Sender::new(base, &[], &["dir", "empty", "new\nline"]);
    // The code as people say it.
    let spoken = sender.code.replace('-', " ");
    let (code, out, err) = received(|| sender.receive_by(&spoken, &[]));
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(
        err.contains("4 files, ") && err.contains("verified"),
        "{err}"
    );
    for name in ["dir", "empty", "new\nline"] {
        same(&sender.from(name), &sender.to(name));
    }
    assert!(!sender.to("not named").exists());
    let (status, words) = sender.ends();
    assert!(status.success(), "{words}");
    assert!(words.contains("4 files, "), "{words}");
    // The code is used up.
    fail(sender.receive(&["--from", &sender.address.clone()]), 3, "");
}

#[test]
fn send__confines_itself_to_its_sources() {
    let base = places();
    let from = base.path().join("from");
    // An unlistable parent directory does not matter. A link named on the command line is followed; one below is sent
    // as a link.
    fs::create_dir_all(from.join("closed/tree/deep")).unwrap();
    fs::write(from.join("closed/tree/deep/a"), b"a").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", from.join("link")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", from.join("closed/tree/below")).unwrap();
    let closed = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(from.join("closed"), mode).unwrap();
    };
    closed(0o300);
    let mut sender = Sender::new(base, &[], &["closed/tree", "link"]);
    let pid = sender.child.as_ref().unwrap().0.id();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    // Landlock requires that the process cannot gain privileges.
    assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
    succeed(sender.receive(&["--from", &sender.address]));
    assert!(sender.ends().0.success());
    closed(0o700);
    same(&sender.from("closed/tree"), &sender.to("tree"));
    assert!(!sender.to("link").is_symlink());
    same(Path::new("/etc/passwd"), &sender.to("link"));
    let link = fs::read_link(sender.to("tree/below")).unwrap();
    assert_eq!(link, Path::new("/etc/passwd"));
}

#[test]
fn send__found_by_its_address_and_into_a_new_directory() {
    let base = places();
    fs::write(base.path().join("from/a"), b"a").unwrap();
    let mut sender = Sender::new(base, &["--limit", "10MiB/s"], &["a"]);
    let mut command = zerolane();
    command.args([
        "receive",
        &sender.code,
        "--from",
        &sender.address,
        "--limit",
        "80mbit",
    ]);
    command.arg(sender.to("new"));
    succeed(command);
    assert_eq!(fs::read(sender.to("new/a")).unwrap(), b"a");
    assert!(sender.ends().0.success());
}

#[test]
fn receive__replaces_nothing_unless_told() {
    let base = places();
    fs::write(base.path().join("from/a"), b"new").unwrap();
    fs::write(base.path().join("from/b"), b"b").unwrap();
    fs::write(base.path().join("to/a"), b"old").unwrap();
    let mut sender = Sender::new(base, &[], &["a", "b"]);
    let (code, _, err) = received(|| sender.receive(&[]));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("already exists: -f replaces it"), "{err}");
    assert_eq!(fs::read(sender.to("a")).unwrap(), b"old");
    assert!(!sender.to("b").exists());
    let (status, words) = sender.ends();
    assert_eq!(status.code(), Some(1));
    assert!(words.contains("the receiver declined"), "{words}");
    let mut sender = Sender::new(sender.base, &[], &["a", "b"]);
    let (code, _, err) = received(|| sender.receive(&["-f"]));
    assert_eq!(code, 0, "{err}");
    assert_eq!(fs::read(sender.to("a")).unwrap(), b"new");
    assert!(sender.ends().0.success());
}

#[test]
fn receive__asks_on_a_terminal_and_Ctrl_C_is_an_answer() {
    for (key, code) in [("\x03", 130), ("n\n", 1), ("y\n", 0)] {
        let base = places();
        fs::write(base.path().join("from/a"), b"a").unwrap();
        let mut sender = Sender::new(base, &[], &["a"]);
        let (mut child, mut shown, mut said) = eventually("it asks", || {
            let mut terminal = of_terminal(&sender.receive(&[]));
            let terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = Running(terminal.spawn().unwrap());
            let (mut shown, mut said) = (child.0.stdout.take().unwrap(), Vec::new());
            while !said.ends_with(b"[y/N] ") {
                let mut byte = [0];
                if shown.read(&mut byte).unwrap() == 0 {
                    // The receiver got no answer in time.
                    assert_eq!(child.0.wait().unwrap().code(), Some(3), "{key:?}");
                    return None;
                }
                said.extend(byte);
            }
            Some((child, shown, said))
        });
        let mut keyboard = child.0.stdin.take().unwrap();
        keyboard.write_all(key.as_bytes()).unwrap();
        shown.read_to_end(&mut said).unwrap();
        let status = child.0.wait().unwrap();
        assert_eq!(
            status.code(),
            Some(code),
            "{}",
            String::from_utf8_lossy(&said)
        );
        assert_eq!(sender.to("a").exists(), code == 0);
        let (_, words) = sender.ends();
        assert_eq!(
            words.contains("the receiver declined"),
            code != 0,
            "{words}"
        );
    }
}

#[test]
fn send__wrong_codes_get_nothing_and_three_make_it_void() {
    let base = places();
    fs::write(base.path().join("from/a"), b"a").unwrap();
    let mut sender = Sender::new(base, &[], &["a"]);
    let wrong = sender.wrong();
    for left in (0..3).rev() {
        let from = sender.address.clone();
        let how: &[&str] = match left {
            2 => &[],
            _ => &["--from", &from],
        };
        let (code, _, err) = received(|| sender.receive_by(&wrong, how));
        assert_eq!(code, 6, "{err}");
        assert!(err.contains("does not know this code"), "{err}");
    }
    let (status, words) = sender.ends();
    assert_eq!(status.code(), Some(1), "{words}");
    assert!(
        words.contains("Someone tried a wrong code; 2 more"),
        "{words}"
    );
    assert!(words.contains("the code is void"), "{words}");
    assert!(names(&sender.to("")).is_empty());
    // No sender has this channel.
    fail(sender.receive_by("12", &[]), 2, "twelve digits");
}

#[test]
fn receive__false_answers_cost_the_right_sender_no_guess() {
    let base = places();
    fs::write(base.path().join("from/a"), content(1, 3 * MIB)).unwrap();
    let mut sender = Sender::new(base, &[], &["a"]);
    // Impostors that hear the question and answer at once: one then stays silent, one does not have the code, and one
    // is not what it claims.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let by_code = |code: &str| {
        Options::default().with(|it| {
            it.security = Security {
                pre_shared: Some(PreShared::Code(code.parse().unwrap())),
                ..Security::default()
            }
        })
    };
    let mut guessing = Endpoint::bind("127.0.0.1:0", by_code("0000-0000")).unwrap();
    let mut open = Endpoint::bind("127.0.0.1:0", Options::default()).unwrap();
    let ports = [
        silent.local_addr().unwrap().port(),
        guessing.local_addr().port(),
        open.local_addr().port(),
    ];
    let ear = eavesdropper();
    let channel = sender.code[..4].parse::<u16>().unwrap().to_le_bytes();
    let done = std::sync::atomic::AtomicBool::new(false);
    let done = &done;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut question = [0; 64];
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let Ok((len, from)) = ear.recv_from(&mut question) else {
                    continue;
                };
                // Other tests ask as well.
                if question[6..8] != channel {
                    continue;
                }
                let mouth = UdpSocket::bind("127.0.0.1:0").unwrap();
                for garbage in [&b"ZLrv"[..], &[0xff; 26], &question[..len]] {
                    mouth.send_to(garbage, from).unwrap();
                }
                for port in ports {
                    let mut answer = question;
                    answer[5] = 2;
                    answer[24..26].copy_from_slice(&port.to_le_bytes());
                    mouth.send_to(&answer[..len], from).unwrap();
                }
            }
        });
        for endpoint in [&mut guessing, &mut open] {
            scope.spawn(move || {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let accepted = endpoint.accept(Some(Duration::from_millis(20)));
                    assert!(accepted.unwrap().is_none(), "it let the receiver in");
                }
            });
        }
        let received = run(sender.receive(&[]));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(received.0, 0, "{received:?}");
    });
    assert!(fs::read(sender.to("a")).unwrap() == content(1, 3 * MIB));
    let (status, words) = sender.ends();
    assert!(status.success(), "{words}");
    assert!(!words.contains("wrong code"), "{words}");
}

/// A socket that hears the questions of receivers on this host.
fn eavesdropper() -> UdpSocket {
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt,
    };
    use std::os::fd::AsRawFd;
    let family = AddressFamily::Inet;
    let ear = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).unwrap();
    setsockopt(&ear, sockopt::ReuseAddr, &true).unwrap();
    let place = SockaddrIn::new(127, 255, 255, 255, DISCOVERY_PORT);
    bind(ear.as_raw_fd(), &place).unwrap();
    let ear = UdpSocket::from(ear);
    ear.set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    ear
}

#[test]
fn receive__nothing_of_the_secret_is_said_in_the_open() {
    let base = places();
    fs::write(base.path().join("from/a"), b"a").unwrap();
    let ear = eavesdropper();
    let mut sender = Sender::new(base, &[], &["a"]);
    let channel: u16 = sender.code[..4].parse().unwrap();
    let (code, _, err) = received(|| sender.receive(&[]));
    assert_eq!(code, 0, "{err}");
    let mut question = [0; 64];
    // Other tests ask as well.
    let mut nonces = Vec::new();
    while let Ok((len, _)) = ear.recv_from(&mut question) {
        assert_eq!(len, 26);
        if question[6..8] == channel.to_le_bytes() {
            // Only the nonce and the channel vary.
            assert_eq!(&question[..6], b"ZLrv\x01\x01");
            assert_eq!(&question[24..26], &[0, 0]);
            nonces.push(question[8..24].to_vec());
        }
    }
    assert!(!nonces.is_empty());
    assert!(sender.ends().0.success());
}

#[test]
fn receive__who_knows_the_code_and_breaks_the_protocol_gets_nothing() {
    let base = places();
    fs::write(base.path().join("from/a"), b"a").unwrap();
    let mut sender = Sender::new(base, &[], &["a"]);
    let code: zerolane::security::Code = sender.code[5..].parse().unwrap();
    let options = Options::default().with(|it| {
        it.security = Security {
            pre_shared: Some(code.into()),
            ..Security::default()
        }
    });
    let mut connection = Connection::connect(sender.address.as_str(), &options).unwrap();
    connection.send(b"garbage").unwrap();
    let (status, words) = sender.ends();
    assert_eq!(status.code(), Some(3), "{words}");
    assert!(words.contains("not a Zerolane file service"), "{words}");
}

#[test]
fn receive__killed_and_sent_again_goes_on() {
    let base = places();
    fs::write(base.path().join("from/large"), content(1, 192 * MIB)).unwrap();
    // Longer than either end may be delayed.
    let mut sender = Sender::new(base, &["--timeout", "5"], &["large"]);
    let to = sender.to("");
    let midway = || part_bytes(&to, "large") > 24 * MIB as u64;
    eventually("a copy that can be killed", || {
        kill_when(sender.receive(&[]), midway).then_some(())
    });
    let (status, words) = sender.ends();
    assert_eq!(status.code(), Some(1), "{words}");
    assert!(
        words.contains("disconnected before it had everything"),
        "{words}"
    );
    let mut sender = Sender::new(sender.base, &[], &["large"]);
    let (code, out, err) = received(|| sender.receive(&["--resume", "--json"]));
    assert_eq!(code, 0, "{err}");
    let last = out.lines().last().unwrap();
    let summary: serde_json::Value = serde_json::from_str(last).unwrap();
    assert!(
        summary["bytes_kept"].as_u64().unwrap() > 16 * MIB as u64,
        "{out}"
    );
    assert!(fs::read(sender.to("large")).unwrap() == content(1, 192 * MIB));
    assert!(sender.ends().0.success());
}

#[test]
fn receive__nobody_there() {
    let base = places();
    let mut receive = zerolane();
    let started = Instant::now();
    receive
        .args(["receive", "9876-5432-1098"])
        .args(HERE)
        .arg(base.path().join("to"));
    fail(receive, 3, "no sender on this network has this code");
    assert!(started.elapsed() < Duration::from_secs(120));
    let mut receive = zerolane();
    receive.args(["receive", "9876-5432-1098", "--interface", "none"]);
    fail(receive, 3, "no interface none");
}

#[test]
fn send__what_cannot_be_sent_is_said_first() {
    let base = places();
    fs::create_dir(base.path().join("from/d")).unwrap();
    for name in ["a", "d/a"] {
        fs::write(base.path().join("from").join(name), name).unwrap();
    }
    for (sources, words) in [
        (&["none"][..], "no such file or directory"),
        (&["a", "d/a"], "another source has the same name"),
    ] {
        let mut command = zerolane();
        command
            .arg("send")
            .args(HERE)
            .args(sources)
            .current_dir(base.path().join("from"));
        fail(command, 1, words);
    }
}

#[test]
fn send__leaves_out_what_is_excluded_and_special_files() {
    let base = places();
    let tree = base.path().join("from/tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), content(3, 100_000)).unwrap();
    fs::write(tree.join("scratch.tmp"), b"excluded").unwrap();
    nix::unistd::mkfifo(&tree.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut sender = Sender::new(base, &["--exclude", "*.tmp"], &["tree"]);
    let (code, _, err) = received(|| sender.receive(&[]));
    assert_eq!(code, 0, "{err}");
    assert_eq!(names(&sender.to("tree")), ["file"]);
    assert!(fs::read(sender.to("tree/file")).unwrap() == content(3, 100_000));
    let (status, words) = sender.ends();
    assert!(status.success(), "{words}");
}
