//! Tests that file systems can be made, filled and checked on a remote disk that `nbdfuse` shows as a file.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::content::content;
use crate::fuse;
use crate::lab::{Between, Lab, put, run};
use crate::programs;

/// The number of small files, and the length of large ones.
const SMALL: usize = 200;
const LARGE: usize = 12 << 20;
/// mkfs.xfs requires at least 300 MiB.
const DISK: u64 = 320 << 20;

/// The disk as a file.
struct Fuse {
    child: Child,
    file: PathBuf,
}

impl Fuse {
    /// `None`, after printing the reason, if the disk cannot be shown.
    fn new(lab: &Lab) -> Option<Fuse> {
        if !fuse::is_there() {
            return None;
        }
        let file = lab.base.path().join("disk");
        put(&file, &[]);
        let mut command = Command::new("nbdfuse");
        command.arg(&file).arg(&lab.uri);
        let mut child = command.stdin(Stdio::null()).spawn().unwrap();
        let patience = Instant::now() + Duration::from_secs(60);
        while fs::metadata(&file).map_or(0, |it| it.len()) != DISK {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "nbdfuse ended: {ended:?}");
            assert!(Instant::now() < patience, "nbdfuse shows no disk");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Fuse { child, file })
    }

    fn path(&self) -> &str {
        self.file.to_str().unwrap()
    }
}

/// Unmounts the file, after everything is written.
impl Drop for Fuse {
    fn drop(&mut self) {
        let mut unmount = Command::new("fusermount3");
        unmount.arg("-u").arg(&self.file);
        if !unmount.status().is_ok_and(|it| it.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Names and contents of the files for a file system.
fn files() -> Vec<(String, Vec<u8>)> {
    let small = (0..SMALL).map(|it| (format!("small{it}"), content(it as u64, 1 + it * 97)));
    let large = (0..3).map(|it| {
        (
            format!("large{it}"),
            content(1000 + it, LARGE + it as usize),
        )
    });
    small.chain(large).collect()
}

fn fill(directory: &Path) {
    fs::create_dir(directory).unwrap();
    for (name, bytes) in files() {
        put(&directory.join(name), &bytes);
    }
}

/// Reads the disk back through the door; zeros become holes.
fn read_back(lab: &Lab) -> String {
    let copy = lab.path("copy");
    run("nbdcopy", &[&lab.uri, &copy]);
    assert!(fs::read(&lab.image).unwrap() == fs::read(&copy).unwrap());
    copy
}

fn are_there(programs: &[&str]) -> bool {
    let all = [&["nbdfuse", "nbdcopy", "fusermount3"], programs].concat();
    programs::are_there(&all)
}

#[test]
fn ext4__made_filled_and_checked_on_a_disk_of_another_host() {
    if !are_there(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let lab = Lab::new(DISK, Between::Nothing, &[], &[]);
    let Some(fuse) = Fuse::new(&lab) else {
        return;
    };
    let source = lab.base.path().join("source");
    fill(&source);
    let from = source.to_str().unwrap();
    run(
        "mke2fs",
        &["-q", "-F", "-t", "ext4", "-d", from, fuse.path()],
    );
    // Written later than the others, like a file system in use.
    put(&source.join("later"), &content(7, 3_000_001));
    let command = format!("write {from}/later later");
    run("debugfs", &["-w", "-R", &command, fuse.path()]);
    run("e2fsck", &["-fn", fuse.path()]);
    drop(fuse);
    let copy = read_back(&lab);
    run("e2fsck", &["-fn", &copy]);
    let there = lab.base.path().join("there");
    fs::create_dir(&there).unwrap();
    let command = format!("rdump / {}", there.to_str().unwrap());
    run("debugfs", &["-R", &command, &copy]);
    let later = ("later".to_owned(), content(7, 3_000_001));
    for (name, bytes) in files().into_iter().chain([later]) {
        assert!(fs::read(there.join(&name)).unwrap() == bytes, "{name}");
    }
}

/// A prototype file for mkfs.xfs that puts the files of `directory` in the root.
fn protofile(directory: &Path) -> String {
    let of = |(name, _): (String, Vec<u8>)| {
        format!("{name} ---644 0 0 {}\n", directory.join(&name).display())
    };
    let lines: String = files().into_iter().map(of).collect();
    format!("/none\n0 0\nd--755 0 0\n{lines}$\n")
}

/// The output of xfs_db for `commands`.
fn xfs_db(image: &str, commands: &[&str]) -> String {
    let words = commands.iter().flat_map(|&it| ["-c", it]);
    let words: Vec<&str> = ["-r", "-f"]
        .into_iter()
        .chain(words)
        .chain([image])
        .collect();
    run("xfs_db", &words)
}

/// The number after `name = ` in the output of xfs_db.
fn number(said: &str, name: &str) -> u64 {
    let mut lines = said.lines().filter_map(|it| it.strip_prefix(name));
    let value = lines.find_map(|it| it.strip_prefix(" = ")).unwrap();
    value.trim().parse().unwrap()
}

/// The content of a file on XFS, by the extents that xfs_db lists.
fn content_of(image: &str, inode: &str, (block, blocks): (u64, u64)) -> Vec<u8> {
    let inode = format!("inode {inode}");
    let length = number(&xfs_db(image, &[&inode, "print core.size"]), "core.size");
    let mut bytes = vec![0; length.next_multiple_of(block) as usize];
    let file = fs::File::open(image).unwrap();
    for line in xfs_db(image, &[&inode, "bmap"]).lines() {
        // data offset 0 startblock 24 (0/24) count 256 flag 0
        let words: Vec<&str> = line.split(' ').collect();
        let after = |name: &str| {
            let at = words.iter().position(|&it| it == name).unwrap();
            words[at + 1..].iter().copied()
        };
        let first = |name: &str| -> u64 { after(name).next().unwrap().parse().unwrap() };
        let (offset, count) = (first("offset"), first("count"));
        let place = after("startblock").nth(1).unwrap().trim_matches(['(', ')']);
        let (group, within) = place.split_once('/').unwrap();
        let [group, within]: [u64; 2] = [group, within].map(|it| it.parse().unwrap());
        let from = (group * blocks + within) * block;
        let into = &mut bytes[(offset * block) as usize..][..(count * block) as usize];
        file.read_exact_at(into, from).unwrap();
    }
    bytes.truncate(length as usize);
    bytes
}

#[test]
fn xfs__made_filled_and_checked_on_a_disk_of_another_host() {
    // xfs_repair exits with an error for --version.
    if !are_there(&["mkfs.xfs", "xfs_repair", "xfs_db"]) {
        return;
    }
    let lab = Lab::new(DISK, Between::Nothing, &[], &[]);
    let Some(fuse) = Fuse::new(&lab) else {
        return;
    };
    let source = lab.base.path().join("source");
    fill(&source);
    let description = lab.path("description");
    put(Path::new(&description), protofile(&source).as_bytes());
    run("mkfs.xfs", &["-q", "-f", "-p", &description, fuse.path()]);
    run("xfs_repair", &["-n", "-f", fuse.path()]);
    drop(fuse);
    let copy = read_back(&lab);
    run("xfs_repair", &["-n", "-f", &copy]);
    let superblock = xfs_db(&copy, &["sb 0", "print blocksize agblocks"]);
    let geometry = ["blocksize", "agblocks"].map(|it| number(&superblock, it));
    let names = xfs_db(&copy, &["blockget -n", "ncheck"]);
    for (name, bytes) in files() {
        let mut lines = names.lines().filter_map(|it| it.trim().split_once(' '));
        let inode = lines.find(|(_, it)| it.trim() == name);
        let (inode, _) = inode.unwrap_or_else(|| panic!("{name} is not in {names}"));
        // A short file may be stored in the inode, without an extent; these files are long enough.
        let found = content_of(&copy, inode, (geometry[0], geometry[1]));
        assert!(found == bytes, "{name}");
    }
}
