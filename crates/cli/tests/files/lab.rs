//! A server and its clients, each a process, and what they are to do.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

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

    /// With a server that `program` starts.
    pub(crate) fn served_by(program: impl Fn() -> Command, options: &[&str]) -> Lab {
        let base = tempfile::tempdir_in("/dev/shm").unwrap();
        // A server may be of another user.
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["share", "local"] {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        let mut lab = Lab {
            base,
            server: None,
            address: String::new(),
        };
        lab.start(program(), options, "127.0.0.1:0");
        lab
    }

    pub(crate) fn start(&mut self, mut program: Command, options: &[&str], listen: &str) {
        let mut child = program
            .arg("serve")
            .arg(self.base.path().join("share"))
            .args(["--listen", listen])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        self.server = Some(Running(child));
        let address = line
            .split(" on ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        self.address = address.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        // Whose key, who may connect, and from where; the server goes on when all is read.
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

pub(crate) fn zerolane() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zerolane"));
    command.stdin(Stdio::null()).env("ZEROLANE_HOME", HOME);
    command
}

/// Keys of these tests' user, made by the first that needs one.
pub(crate) const HOME: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/zerolane-home");

/// Runs a command; its exit code, output and errors.
pub(crate) fn run(mut command: Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

pub(crate) fn succeed(command: Command) -> String {
    let (code, out, err) = run(command);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    out
}

/// Runs a command that must end with `code` and say `words`.
pub(crate) fn fail(command: Command, code: i32, words: &str) {
    let (actual, out, err) = run(command);
    assert_eq!(actual, code, "{out}{err}");
    assert!(err.contains(words), "{err:?} does not say {words:?}");
}

/// Bytes without repetition.
pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

pub(crate) fn names(path: &Path) -> Vec<String> {
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(path).unwrap().map(name).collect();
    names.sort();
    names
}
/// A lab whose server is somebody else's, with its own keys.
pub(crate) fn strangers(options: &[&str]) -> (Lab, tempfile::TempDir) {
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
    // The first use makes it.
    let _ = zerolane().arg("keygen").output().unwrap();
    let mut id = zerolane();
    id.arg("id");
    succeed(id).trim().to_owned()
}
