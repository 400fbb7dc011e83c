//! Tests which attributes of files a cast keeps, and which files it skips.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::content::content;
use crate::running::{Casting, Place, Waiting, addresses, said};

fn hosts(place: &Place, count: usize) -> Vec<Waiting> {
    let start = |it| Waiting::start(place.command(), "127.0.0.1:0", &[], &place.target(it));
    (0..count).map(start).collect()
}

/// Casts `source` to `count` hosts, and returns the summary of each.
fn cast(place: &Place, source: &Path, count: usize) -> Vec<serde_json::Value> {
    let hosts = hosts(place, count);
    let (code, summary) = Casting::start(place.command(), &[], source, &addresses(&hosts)).end();
    assert_eq!(code, Some(0), "{summary}");
    hosts.into_iter().map(Waiting::summary).collect()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// Modification time: seconds and nanoseconds.
fn time_of(path: &Path) -> (i64, i64) {
    let there = fs::symlink_metadata(path).unwrap();
    (there.mtime(), there.mtime_nsec())
}

fn set_time(path: &Path, time: SystemTime) {
    let file = File::open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
}

const LONG_AGO: Duration = Duration::new(1_000_000_000, 123_456_789);

/// Bytes allocated on disk.
fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// The receiver's user owns the files.
#[test]
fn tree__set_id_bits_are_not_kept() {
    let place = Place::new();
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("group")).unwrap();
    for (name, mode) in [("user", 0o4755), ("both", 0o6711), ("sticky", 0o1644)] {
        fs::write(tree.join(name), name).unwrap();
        set_mode(&tree.join(name), mode);
    }
    fs::write(tree.join("group/file"), "file").unwrap();
    set_mode(&tree.join("group/file"), 0o2750);
    set_mode(&tree.join("group"), 0o3770);
    assert_eq!(mode_of(&tree.join("user")), 0o4755);
    cast(&place, &tree, 1);
    let there = place.target(0);
    let mode = |name: &str| format!("{:o}", mode_of(&there.join(name)));
    assert_eq!(mode("user"), "755");
    assert_eq!(mode("both"), "711");
    assert_eq!(mode("sticky"), "644");
    assert_eq!(mode("group/file"), "750");
    assert_eq!(mode("group"), "770");
}

#[test]
fn tree__fifos_sockets_and_devices_are_skipped_and_named() {
    let place = Place::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "content").unwrap();
    let _socket = UnixListener::bind(tree.join("socket")).unwrap();
    let made = |command: &str, arguments: &[&str]| {
        let mut command = Command::new(command);
        let done = command.current_dir(&tree).args(arguments).output().unwrap();
        done.status.success()
    };
    assert!(made("mkfifo", &["fifo"]));
    let mut skipped = vec!["fifo", "socket"];
    // Only root can make a device.
    if made("mknod", &["device", "c", "1", "3"]) {
        skipped.push("device");
    }
    let hosts = hosts(&place, 1);
    let mut command = place.command();
    let output = command.arg(&tree).args(addresses(&hosts)).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    hosts.into_iter().for_each(|it| drop(it.summary()));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    for name in skipped {
        let line = format!(
            "{}: is a device, socket or FIFO: skipped",
            tree.join(name).display()
        );
        assert!(words.contains(&line), "{words}");
    }
    let there: Vec<_> = fs::read_dir(place.target(0)).unwrap().collect();
    assert_eq!(there.len(), 1, "{there:?}");
    assert_eq!(fs::read(place.target(0).join("file")).unwrap(), b"content");
}

#[test]
fn tree__modes_times_and_hard_links_are_kept() {
    let place = Place::new();
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/first"), content(1, 100_000)).unwrap();
    fs::hard_link(tree.join("a/first"), tree.join("a/b/second")).unwrap();
    fs::hard_link(tree.join("a/first"), tree.join("third")).unwrap();
    fs::write(tree.join("old"), "old").unwrap();
    symlink("a/first", tree.join("link")).unwrap();
    let long = "l".repeat(200);
    fs::write(tree.join("a/b").join(&long), "long").unwrap();
    symlink(&long, tree.join("a/b/long link")).unwrap();
    set_mode(&tree.join("a/first"), 0o640);
    set_mode(&tree.join("old"), 0o400);
    set_time(&tree.join("a/first"), UNIX_EPOCH + LONG_AGO);
    set_time(&tree.join("old"), UNIX_EPOCH - Duration::from_millis(1500));
    let touched = Command::new("touch")
        .args(["-h", "-d", "@86400.25"])
        .arg(tree.join("link"))
        .status();
    assert!(touched.unwrap().success());
    set_time(&tree.join("a"), UNIX_EPOCH + LONG_AGO * 2);
    set_mode(&tree.join("a"), 0o550);
    set_time(&tree, UNIX_EPOCH + LONG_AGO / 2);
    cast(&place, &tree, 1);
    let there = place.target(0);
    for name in ["", "a", "a/first", "old", "link", "a/b/second"] {
        let (here, there) = (tree.join(name), there.join(name));
        assert_eq!(time_of(&there), time_of(&here), "{name}");
        assert_eq!(mode_of(&there), mode_of(&here), "{name}");
    }
    assert_eq!(
        time_of(&there.join("a/first")),
        (1_000_000_000, 123_456_789)
    );
    assert_eq!(time_of(&there.join("old")), (-2, 500_000_000));
    let inode = |name: &str| fs::metadata(there.join(name)).unwrap().ino();
    assert_eq!(inode("a/first"), inode("a/b/second"));
    assert_eq!(inode("a/first"), inode("third"));
    assert_eq!(fs::read(there.join("third")).unwrap(), content(1, 100_000));
    assert_eq!(fs::read(there.join("a/b").join(&long)).unwrap(), b"long");
    let linked = fs::read_link(there.join("a/b/long link")).unwrap();
    assert_eq!(linked.to_str(), Some(&long[..]));
    // Restores permissions, so that the place can be removed.
    [&tree, &there]
        .iter()
        .for_each(|it| set_mode(&it.join("a"), 0o700));
}

#[test]
fn file__its_mode_and_time_are_kept() {
    let place = Place::new();
    let source = place.file("source", &content(2, 300_000));
    set_mode(&source, 0o4751);
    set_time(&source, UNIX_EPOCH + LONG_AGO);
    cast(&place, &source, 2);
    for index in 0..2 {
        assert_eq!(format!("{:o}", mode_of(&place.target(index))), "751");
        assert_eq!(time_of(&place.target(index)), (1_000_000_000, 123_456_789));
        assert!(place.has(index, &content(2, 300_000)));
    }
}

#[test]
fn file__its_holes_are_kept_and_not_sent() {
    let place = Place::new();
    let source = place.path("source");
    let file = File::create(&source).unwrap();
    let len = 96 << 20;
    file.set_len(len).unwrap();
    // An offset inside a chunk.
    file.write_all_at(&content(3, 100_000), (40 << 20) + 4096 * 3)
        .unwrap();
    file.write_all_at(&content(4, 5000), len - 5000).unwrap();
    assert!(allocated(&source) < 1 << 20, "holes are holes here");
    let said = cast(&place, &source, 2);
    for (index, said) in said.iter().enumerate() {
        let there = place.target(index);
        assert_eq!(fs::metadata(&there).unwrap().len(), len);
        let allocated = allocated(&there);
        assert!(allocated < 1 << 20, "{allocated} bytes");
        assert!(said["received_bytes"].as_u64().unwrap() < 2 << 20, "{said}");
        let same = Command::new("cmp").args([&source, &there]).status();
        assert!(same.unwrap().success());
    }
}

#[test]
fn tree__holes_of_its_files_are_kept() {
    let place = Place::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    let name = "n".repeat(180);
    for (name, at) in [
        ("middle", vec![8 << 20, 20 << 20]),
        (&name[..], vec![0]),
        ("none", vec![]),
    ] {
        let file = File::create(tree.join(name)).unwrap();
        file.set_len(32 << 20).unwrap();
        for at in at {
            file.write_all_at(&content(at, 10_000), at).unwrap();
        }
    }
    cast(&place, &tree, 1);
    for name in ["middle", &name, "none"] {
        let there = place.target(0).join(name);
        let allocated = allocated(&there);
        assert!(allocated < 1 << 20, "{name}: {allocated} bytes");
        let same = Command::new("cmp")
            .args([&tree.join(name), &there])
            .status();
        assert!(same.unwrap().success(), "{name}");
    }
}

#[test]
fn file__that_is_empty_is_cast() {
    let place = Place::new();
    let source = place.file("source", b"");
    set_mode(&source, 0o600);
    set_time(&source, UNIX_EPOCH + LONG_AGO);
    cast(&place, &source, 3);
    for index in 0..3 {
        assert!(place.has(index, b""));
        assert_eq!(mode_of(&place.target(index)), 0o600);
        assert_eq!(time_of(&place.target(index)), (1_000_000_000, 123_456_789));
    }
}
