//! Runs a server and its clients as processes, for the tests.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

pub(crate) use crate::content::content;

pub(crate) const MIB: usize = 1 << 20;

/// Ends the process even if the test fails.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory with `share`, which a server serves, and `local`.
pub(crate) struct Lab {
    pub(crate) base: tempfile::TempDir,
    pub(crate) server: Option<Running>,
    pub(crate) address: String,
}

impl Lab {
    pub(crate) fn new(options: &[&str]) -> Lab {
        Lab::served_by(zerolane, options)
    }

    /// Starts the server by `program`.
    pub(crate) fn served_by(program: impl Fn() -> Command, options: &[&str]) -> Lab {
        let base = tempfile::tempdir_in("/dev/shm").unwrap();
        // The server may run as another user.
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["share", "local"] {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        let mut lab = Lab {
            base,
            server: None,
            address: String::new(),
        };
        lab.start(program(), options, &own_address());
        lab
    }

    /// Starts `zerolane serve`, replacing a running server. Returns its output after the address.
    pub(crate) fn serve(
        &mut self,
        mut program: Command,
        options: &[&str],
    ) -> BufReader<ChildStdout> {
        self.server = None;
        let mut child = program
            .arg("serve")
            .arg(self.base.path().join("share"))
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        self.server = Some(Running(child));
        out.read_line(&mut line).unwrap();
        let address = line
            .split(" on ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        self.address = address.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        // The server of another test may have used this port with another key.
        let known = fs::read_to_string(Path::new(HOME).join("known_hosts"));
        if known.is_ok_and(|known| known.contains(&format!("{} ", self.address))) {
            let forget = zerolane().args(["keys", "forget", &self.address]).output();
            assert!(forget.unwrap().status.success());
        }
        out
    }

    pub(crate) fn start(&mut self, mut program: Command, options: &[&str], listen: &str) {
        program.stderr(Stdio::null());
        let mut out = self.serve(program, &[&["--listen", listen], options].concat());
        let mut line = String::new();
        // Reads the server's key, who may connect, and from where, so that the server's writes do not block.
        for said in ["Its key: zl:", " connect", "Only this machine can"] {
            line.clear();
            out.read_line(&mut line).unwrap();
            assert!(line.contains(said), "{line:?}");
        }
    }

    pub(crate) fn share(&self, name: &str) -> PathBuf {
        self.base.path().join("share").join(name)
    }

    pub(crate) fn local(&self, name: &str) -> PathBuf {
        self.base.path().join("local").join(name)
    }

    pub(crate) fn there(&self, path: &str) -> String {
        format!("{}:{path}", self.address)
    }

    pub(crate) fn put(&self, options: &[&str], source: &str, path: &str) -> Command {
        let mut command = zerolane();
        command
            .arg("cp")
            .args(options)
            .arg(self.local(source))
            .arg(self.there(path));
        command
    }

    pub(crate) fn get(&self, options: &[&str], path: &str, target: &str) -> Command {
        let mut command = zerolane();
        command
            .arg("cp")
            .args(options)
            .arg(self.there(path))
            .arg(self.local(target));
        command
    }
}

/// An address that no other lab has, so that no other program takes the port while the server restarts.
fn own_address() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let number = 128 + NEXT.fetch_add(1, Ordering::Relaxed) % 127;
    format!("127.{number}.{high}.{low}:0")
}

/// A socket that ignores clients, because it is connected to an unused port. While it is open, no other program gets
/// its port.
pub(crate) fn silent_port() -> UdpSocket {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.connect("127.0.0.1:9").unwrap();
    silent
}

pub(crate) fn zerolane() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zerolane"));
    command.stdin(Stdio::null()).env("ZEROLANE_HOME", HOME);
    // Ignores the configuration files of this machine.
    command.env("ZEROLANE_CONFIG", "/dev/null");
    command
}

/// Keys of the tests' user, made by the first test that needs one.
pub(crate) const HOME: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/zerolane-home");

/// Runs a command. Returns its exit code, output and errors.
pub(crate) fn run(mut command: Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// Runs a command that must succeed and print nothing on standard error but the summary of a copy or sync.
pub(crate) fn succeed(command: Command) -> String {
    let (code, out, err) = run(command);
    let is_summary = |line: &&str| {
        line.contains(" file") && line.contains("/s, verified")
            || line.contains(" listed, ") && line.contains(" failed; ")
    };
    let said: Vec<_> = err.lines().filter(|line| !is_summary(line)).collect();
    assert_eq!((code, &said[..]), (0, &[][..]), "{out}");
    out
}

/// Runs a command that must end with `code` and print `words`.
pub(crate) fn fail(command: Command, code: i32, words: &str) {
    let (actual, out, err) = run(command);
    assert_eq!(actual, code, "{out}{err}");
    assert!(err.contains(words), "{err:?} does not say {words:?}");
}

pub(crate) fn names(path: &Path) -> Vec<String> {
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(path).unwrap().map(name).collect();
    names.sort();
    names
}
/// A lab whose server belongs to another user, with its own keys.
pub(crate) fn server_of_another_user(options: &[&str]) -> (Lab, tempfile::TempDir) {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = || {
        let mut command = zerolane();
        command.env("ZEROLANE_HOME", home.path());
        command
    };
    (Lab::served_by(program, options), home)
}

pub(crate) fn own_key() -> String {
    // The first call makes the key.
    let _ = zerolane().arg("keygen").output().unwrap();
    let mut id = zerolane();
    id.arg("id");
    succeed(id).trim().to_owned()
}

/// Options for a copy that a test interrupts. Without them a large file arrives within a third of a second, too fast
/// for a test that is not scheduled for as long.
pub(crate) const UNHURRIED: [&str; 2] = ["--limit", "32MiB/s"];

/// Starts a copy, and kills it when `ready`. Returns whether it still ran.
pub(crate) fn kill_when(mut copy: Command, ready: impl Fn() -> bool) -> bool {
    copy.args(UNHURRIED);
    let quiet = copy.stdout(Stdio::null()).stderr(Stdio::null());
    let mut copy = Running(quiet.spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(60);
    while !ready() && copy.0.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    copy.0.kill().unwrap();
    copy.0.wait().unwrap().signal() == Some(Signal::SIGKILL as i32)
}

/// The temporary file for `name`.
pub(crate) fn part(directory: &Path, name: &str) -> Option<PathBuf> {
    let names = names(directory).into_iter();
    let (before, after) = (format!(".{name}."), "zlpart");
    let mut parts = names.filter(|it| it.starts_with(&before) && it.ends_with(after));
    parts.next().map(|name| directory.join(name))
}

/// Bytes on disk of the temporary file for `name`.
pub(crate) fn part_bytes(directory: &Path, name: &str) -> u64 {
    let part = part(directory, name).and_then(|part| part.metadata().ok());
    part.map_or(0, |meta| meta.blocks() * 512)
}

/// Runs a copy. Returns its output, or `None` while the copy before it holds the target.
pub(crate) fn when_free(command: Command) -> Option<String> {
    let (code, out, err) = run(command);
    if code == 0 {
        return Some(out);
    }
    assert!(
        (out.clone() + &err).contains("another copy is writing it"),
        "{out}{err}"
    );
    None
}

/// Retries for a minute until `attempt` returns something.
pub(crate) fn eventually<T>(what: &str, attempt: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
