//! Tests the plugin in nbdkit, with programs that were not written for it.

#![allow(non_snake_case)]

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use zerolane::Options;
use zerolane_block::store::FileStore;
use zerolane_block::{Disk, Identity, Lun};
use zerolane_disk::target::{Server, Settings};

const DISK: usize = 16 << 20;

/// A target of an image, in a thread.
struct Served {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn new(image: &Path, read_only: bool) -> Served {
        let store = FileStore::open(image, read_only).unwrap();
        let disk = Disk::of(&store, 512, Identity::named("test")).unwrap();
        let mut server = Server::new(Settings::default()).unwrap();
        let lun = Lun::new(0).unwrap();
        server
            .add_unit(lun, "disk0", disk, Arc::new(store))
            .unwrap();
        let loopback = "127.0.0.1:0".parse().unwrap();
        let endpoint = server.listen(loopback, Options::default()).unwrap();
        let (address, _) = server.endpoint(endpoint).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let stop_asked = move || stopping.load(Ordering::Relaxed);
        let thread = std::thread::spawn(move || server.serve(stop_asked, drop).unwrap());
        Served {
            address,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// nbdkit with the plugin.
struct Door {
    child: Child,
    uri: String,
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output();
    let there = there.is_ok_and(|it| it.status.success());
    if !there {
        eprintln!("skipped: {program} is not installed");
    }
    there
}

/// What cargo has built beside this program.
fn plugin() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let directories = own.ancestors().skip(1).take(2);
    let mut built = directories.map(|it| it.join("libzerolane_nbdkit.so"));
    built.find(|it| it.exists()).expect("the plugin is built")
}

fn open(directory: &Path, address: SocketAddr) -> Door {
    let socket = directory.join("socket");
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--unix"]).arg(&socket);
    command.arg(plugin()).arg(format!("host={address}"));
    command.env("ZEROLANE_HOME", directory).stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    // Its own end is what ends this loop, if it does not start.
    while UnixStream::connect(&socket).is_err() {
        assert!(child.try_wait().unwrap().is_none(), "nbdkit ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    Door { child, uri }
}

fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Content of which a part is holes.
fn content(seed: u64) -> Vec<u8> {
    let mut next = seed;
    let mut bytes = vec![0; DISK];
    for (number, piece) in bytes.chunks_mut(64 << 10).enumerate() {
        for byte in piece.iter_mut().filter(|_| number % 3 != 1) {
            next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (next >> 56) as u8;
        }
    }
    bytes
}

fn image(directory: &Path) -> PathBuf {
    let path = directory.join("image");
    File::create(&path).unwrap().set_len(DISK as u64).unwrap();
    path
}

#[test]
fn nbdkit__nbdcopy_copies_in_and_out() {
    if !is_there("nbdkit") || !is_there("nbdcopy") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let image = image(directory.path());
    let served = Served::new(&image, false);
    let door = open(directory.path(), served.address);
    let (source, back) = (
        directory.path().join("source"),
        directory.path().join("back"),
    );
    for seed in [1, 2] {
        fs::write(&source, content(seed)).unwrap();
        run("nbdcopy", &["--flush", source.to_str().unwrap(), &door.uri]);
        assert!(fs::read(&image).unwrap() == content(seed), "the image");
        run("nbdcopy", &[&door.uri, back.to_str().unwrap()]);
        assert!(fs::read(&back).unwrap() == content(seed), "the copy");
    }
    drop((door, served));
}

#[test]
fn nbdkit__qemu_img_converts_and_compares() {
    if !is_there("nbdkit") || !is_there("qemu-img") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let image = image(directory.path());
    let served = Served::new(&image, false);
    let door = open(directory.path(), served.address);
    let (raw, qcow) = (directory.path().join("raw"), directory.path().join("qcow"));
    fs::write(&raw, content(3)).unwrap();
    let (raw, qcow) = (raw.to_str().unwrap(), qcow.to_str().unwrap());
    let said = run("qemu-img", &["info", "--output=json", &door.uri]);
    assert!(
        said.contains(&format!("\"virtual-size\": {DISK}")),
        "{said}"
    );
    let to = ["convert", "-n", "-f", "raw", "-O", "raw", raw, &door.uri];
    run("qemu-img", &to);
    assert!(fs::read(&image).unwrap() == content(3), "the image");
    run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", raw, &door.uri],
    );
    let from = ["convert", "-f", "raw", "-O", "qcow2", &door.uri, qcow];
    run("qemu-img", &from);
    run(
        "qemu-img",
        &["compare", "-f", "qcow2", "-F", "raw", qcow, raw],
    );
    drop((door, served));
}

#[test]
fn nbdkit__a_read_only_disk_says_so() {
    if !is_there("nbdkit") || !is_there("nbdinfo") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let image = image(directory.path());
    let served = Served::new(&image, true);
    let door = open(directory.path(), served.address);
    let said = run("nbdinfo", &[&door.uri]);
    assert!(said.contains("is_read_only: true"), "{said}");
    assert!(said.contains(&format!("export-size: {DISK}")), "{said}");
    assert!(said.contains("block_size_minimum: 512"), "{said}");
    drop((door, served));
}

/// What `nbdinfo --map` says: where, how many bytes, and how they are.
fn map(uri: &str) -> Vec<(u64, u64, u64)> {
    let said = run("nbdinfo", &["--map", uri]);
    let number = |text: &str| text.parse().unwrap();
    let of = |line: &str| {
        let mut words = line.split_whitespace().map(number).take(3);
        let mut next = || -> u64 { words.next().unwrap() };
        (next(), next(), next())
    };
    let line = |it: &str| of(it.rsplit_once(' ').map_or(it, |(before, _)| before));
    said.lines().map(line).collect()
}

/// Holes of the image are holes for NBD clients, and of their copies.
#[test]
fn nbdkit__extents_are_the_disks_and_a_sparse_copy_is_sparse() {
    if !is_there("nbdkit") || !is_there("nbdinfo") || !is_there("nbdcopy") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let image = image(directory.path());
    let file = File::options().write(true).open(&image).unwrap();
    let piece = vec![7; 128 << 10];
    for at in [1 << 20, 5 << 20, DISK as u64 - (128 << 10)] {
        file.write_all_at(&piece, at).unwrap();
    }
    let served = Served::new(&image, false);
    let door = open(directory.path(), served.address);
    let (mut next, mut mapped) = (0, 0);
    for (at, bytes, kind) in map(&door.uri) {
        assert_eq!(at, next, "without a gap");
        assert!(kind == 0 || kind == 3, "data, or a hole of zeros: {kind}");
        mapped += if kind == 0 { bytes } else { 0 };
        next += bytes;
    }
    assert_eq!((next, mapped), (DISK as u64, 3 * piece.len() as u64));
    let copy = directory.path().join("copy");
    run("nbdcopy", &[&door.uri, copy.to_str().unwrap()]);
    assert!(fs::read(&copy).unwrap() == fs::read(&image).unwrap());
    let taken = fs::metadata(&copy).unwrap().blocks() * 512;
    assert!(taken < 1 << 20, "{taken} bytes of the copy have a place");
    drop((door, served));
}

#[test]
fn nbdkit__lanes_and_paths_that_cannot_be_are_refused_with_words() {
    if !is_there("nbdkit") {
        return;
    }
    for (words, says) in [
        (&["lane=carrier-pigeon"][..], "lane=carrier-pigeon: use udp"),
        (&["bypass=always"], "raw Ethernet only"),
        (&["path=x=y"], "path=x=y"),
        (&["lane=shm", "path=="], "path= works with lane=udp"),
        (&["path=="; 8], "at most 7 times"),
    ] {
        let mut command = Command::new("nbdkit");
        command
            .arg("-f")
            .arg(plugin())
            .arg("host=127.0.0.1:1")
            .args(words);
        // Were it taken, this is what would run.
        command.args(["--run", "true"]).stdin(Stdio::null());
        let refused = command.output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && said.contains(says),
            "{words:?}: {said}"
        );
    }
}
