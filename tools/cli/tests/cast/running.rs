//! Runs sources and hosts of a cast as processes, for the tests.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longer than any cast of a test takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A directory with all files of a test, and the keys of its processes.
pub(crate) struct Place(pub(crate) tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        let there = Path::new("/dev/shm").is_dir();
        let base = if there {
            PathBuf::from("/dev/shm")
        } else {
            std::env::temp_dir()
        };
        Place(tempfile::tempdir_in(base).unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    pub(crate) fn target(&self, index: usize) -> PathBuf {
        self.path(&format!("target-{index}"))
    }

    pub(crate) fn has(&self, index: usize, bytes: &[u8]) -> bool {
        fs::read(self.target(index)).is_ok_and(|it| it == bytes)
    }

    /// The command, with keys of this place, which all its processes share.
    pub(crate) fn command(&self) -> Command {
        self.prepare(Command::new(env!("CARGO_BIN_EXE_zerolane")))
    }

    pub(crate) fn prepare(&self, mut command: Command) -> Command {
        command.env("ZEROLANE_HOME", self.path("keys"));
        command.env_remove("SLURM_JOB_NODELIST");
        command.stdin(Stdio::null()).arg("cast");
        command
    }

    /// How much of the target has arrived: allocated blocks of its partial file.
    pub(crate) fn partly(&self, index: usize) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let partial = self.path(&format!(".target-{index}.zerolane-part"));
        partial.metadata().map_or(0, |it| it.blocks() * 512)
    }

    pub(crate) fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let started = Instant::now();
        while !is_so() {
            assert!(started.elapsed() < PATIENCE, "never: {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A receiver that waits or receives.
pub(crate) struct Waiting {
    child: Child,
    out: BufReader<ChildStdout>,
    pub(crate) address: String,
}

impl Waiting {
    /// Starts a receiver. `command` comes from [`Place::command`].
    pub(crate) fn start(
        mut command: Command,
        listen: &str,
        options: &[&str],
        target: &Path,
    ) -> Waiting {
        command.args(["receive", "--to"]).arg(target);
        Waiting::begin(command, listen, options)
    }

    /// As [`Waiting::start`], for a command that already names the target.
    fn begin(mut command: Command, listen: &str, options: &[&str]) -> Waiting {
        command.args(["--json", "--listen", listen]).args(options);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let address = line
            .trim()
            .strip_prefix("Waiting for a cast on ")
            .and_then(|it| it.strip_suffix('.'));
        let Some(address) = address.map(str::to_owned) else {
            let mut why = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut why)
                .unwrap();
            panic!("{line:?} {why}");
        };
        Waiting {
            child,
            out,
            address,
        }
    }

    /// Starts a receiver that pipes into a shell command.
    pub(crate) fn start_exec(mut command: Command, listen: &str, reads: &str) -> Waiting {
        command.args(["receive", "--exec", reads]);
        Waiting::begin(command, listen, &[])
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end: exit code, last line, and standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        let mut why = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut why)
            .unwrap();
        let code = self.child.wait().unwrap().code();
        (
            code,
            text.lines().last().unwrap_or_default().to_owned(),
            why,
        )
    }

    /// As [`Waiting::end`], but kills a receiver that has not ended by then.
    pub(crate) fn end_within(mut self, time: Duration) -> (Option<i32>, String, String) {
        let until = Instant::now() + time;
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > until {
                self.child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.end()
    }

    /// The summary of a receiver that succeeded.
    pub(crate) fn summary(self) -> Value {
        let (code, last, why) = self.end();
        assert_eq!(code, Some(0), "{last} {why}");
        serde_json::from_str(&last).unwrap()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cast in progress.
pub(crate) struct Casting(pub(crate) Child);

impl Casting {
    pub(crate) fn start(
        mut command: Command,
        options: &[&str],
        source: &Path,
        hosts: &[String],
    ) -> Casting {
        command
            .args(["--json"])
            .args(options)
            .arg(source)
            .args(hosts);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Casting(command.spawn().unwrap())
    }

    /// Waits for the end: exit code and summary.
    pub(crate) fn end(mut self) -> (Option<i32>, Value) {
        let (mut out, mut why) = (String::new(), String::new());
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        self.0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut why)
            .unwrap();
        let code = self.0.wait().unwrap().code();
        let summary = serde_json::from_str(out.lines().last().unwrap_or_default());
        (
            code,
            summary.unwrap_or_else(|_| panic!("{code:?} {out:?} {why:?}")),
        )
    }
}

impl Drop for Casting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn addresses(hosts: &[Waiting]) -> Vec<String> {
    hosts.iter().map(|it| it.address.clone()).collect()
}

pub(crate) fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
