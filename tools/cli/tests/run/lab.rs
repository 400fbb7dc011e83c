//! Starts programs with and without `zerolane run`, and reads what they say.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// `zerolane`.
pub(crate) fn program() -> &'static str {
    env!("CARGO_BIN_EXE_zerolane")
}

/// Whether the library is built, as by `cargo test --workspace`; prints how to build it.
pub(crate) fn has_library() -> bool {
    let beside = |it: &str| Path::new(program()).with_file_name(it).is_file();
    let there = beside("libzerolane_sockets.so") || beside("deps/libzerolane_sockets.so");
    if !there {
        eprintln!("skipped: no library to load: cargo build -p zerolane-preload");
    }
    there
}

/// A process that ends with the test; its output is in a file.
pub(crate) struct Running {
    pub(crate) child: Child,
    out: PathBuf,
}

impl Running {
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.out).unwrap()).into_owned()
    }

    /// Waits for `words` in the output.
    pub(crate) fn says(&mut self, words: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.said().contains(words) {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() || self.said().contains(words),
                "it ended without {words:?}: {}",
                self.said()
            );
            assert!(Instant::now() < until, "no {words:?} in {:?}", self.said());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the end; its exit code.
    pub(crate) fn ends(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "it does not end: {}", self.said());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The group: what the program has started, too.
        let group = nix::unistd::Pid::from_raw(self.child.id() as i32);
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// A directory for a test.
pub(crate) struct Lab {
    base: tempfile::TempDir,
    number: std::cell::Cell<u32>,
}

impl Lab {
    pub(crate) fn new() -> Lab {
        let base = tempfile::tempdir().unwrap();
        let number = std::cell::Cell::new(0);
        Lab { base, number }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    /// Starts a command in the directory.
    pub(crate) fn start(&self, mut command: Command) -> Running {
        use std::os::unix::process::CommandExt;
        self.number.set(self.number.get() + 1);
        let out = self.path(&format!("out{}", self.number.get()));
        let file = File::create(&out).unwrap();
        command
            .current_dir(self.base.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file);
        let child = command.spawn().unwrap();
        Running { child, out }
    }

    /// Runs a command in the directory to its end.
    pub(crate) fn output(&self, mut command: Command) -> Output {
        command.current_dir(self.base.path());
        command.stdin(Stdio::null()).output().unwrap()
    }
}

/// `zerolane run -v OPTION... -- WORD...`.
pub(crate) fn run(options: &[&str], words: &[&str]) -> Command {
    under(Command::new("timeout"), options, words)
}

/// The same by `timeout`, which another program may have to start.
pub(crate) fn under(mut timeout: Command, options: &[&str], words: &[&str]) -> Command {
    timeout.args(["--signal=KILL", "300", program(), "run", "-v"]);
    // A busy machine answers late.
    timeout.args(["--answer-within", "10s"]);
    timeout
        .args(options)
        .arg("--")
        .args(words)
        .env("no_proxy", "*");
    timeout
}

/// A TCP port that is free.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Both streams of a finished command.
pub(crate) fn text(output: &Output) -> String {
    format!(
        "{}{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
