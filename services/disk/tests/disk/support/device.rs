//! Makes block devices for tests: loop devices on files, and full file systems. Needs root.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs `program`; `None` if it cannot, or fails.
fn run(program: &str, words: &[&str], path: &Path) -> Option<String> {
    let mut command = Command::new(program);
    let output: Output = command
        .args(words)
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let succeeded = output.status.success();
    succeeded.then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A file system, mounted until it is dropped.
pub struct Mounted(tempfile::TempDir);

impl Mounted {
    /// A tmpfs of 1 MiB. `None`, and words, where mounting is not allowed.
    pub fn new() -> Option<Mounted> {
        Mounted::of("tmpfs", "size=1m")
    }

    /// One of another kind, with options.
    pub fn of(kind: &str, options: &str) -> Option<Mounted> {
        let directory = tempfile::tempdir().unwrap();
        let words = ["-t", kind, "-o", options, "zerolane-test"];
        match run("mount", &words, directory.path()) {
            Some(_) => Some(Mounted(directory)),
            None => {
                eprintln!("skipped: mounting needs root");
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &[], self.0.path());
    }
}

/// A block device of a sparse file, until it is dropped.
pub struct Loop {
    pub path: PathBuf,
    /// What it is of.
    pub file: PathBuf,
}

impl Loop {
    /// One of so many bytes, in blocks of `block_bytes`, of a new file in `directory`. `None`, and words, where there are no
    /// loop devices.
    pub fn new(directory: &Path, bytes: u64, block_bytes: u32) -> Option<Loop> {
        let file = directory.join("image");
        File::create(&file).unwrap().set_len(bytes).unwrap();
        let block = block_bytes.to_string();
        let words = ["--find", "--show", "--sector-size", &block];
        match run("losetup", &words, &file) {
            Some(path) => {
                let path = path.into();
                Some(Loop { path, file })
            }
            None => {
                eprintln!("skipped: a loop device needs root, losetup and a kernel that has them");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["-d"], &self.path);
    }
}
