//! Tests that a copy whose wire is cut, at each place in turn, continues over another wire.

#![allow(non_snake_case)]

use crate::copy_tests::{RECURSIVE, join, receiver_port, sender_port, start};
use crate::digest::Digester;
use crate::error::Error;
use crate::limits::{INLINE_BYTES, UNIT_BYTES};
use crate::message::{CopyOptions, Totals};
use crate::observe::Observer;
use crate::reached::Reached;
use crate::receive::{FileReceiver, Role, TopLevel, Written};
use crate::send::FileSender;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::thread;

/// How often each file was read.
#[derive(Default)]
struct Reads(Mutex<BTreeMap<String, usize>>);

impl Observer for Reads {
    fn file_started(&self, path: &[u8], _size: u64) {
        let mut reads = self.0.lock().unwrap();
        *reads.entry(crate::escape(path)).or_default() += 1;
    }
}

/// The end that stays, while the other one is new for each connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Client {
    Sends,
    Receives,
}

struct Copy<'a> {
    source: &'a Path,
    target: &'a Path,
    top: TopLevel,
    client: Client,
    options: CopyOptions,
    reached: Reached,
    written: Written,
    reads: Reads,
}

impl<'a> Copy<'a> {
    fn new(source: &'a Path, target: &'a Path, top: TopLevel, client: Client) -> Copy<'a> {
        Copy {
            source,
            target,
            top,
            client,
            options: RECURSIVE,
            reached: Reached::default(),
            written: Written::default(),
            reads: Reads::default(),
        }
    }

    /// Continues over a wire that is cut after `limit` Transfers; returns the client's result.
    fn connect(&mut self, limit: usize) -> Result<Totals, Error> {
        let base = File::open(self.target).unwrap().into();
        let to = (base, self.top.clone());
        let (send_port, send_end) = sender_port();
        let (receive_port, receive_end) = receiver_port();
        let mut other = match self.client {
            Client::Sends => Reached::default(),
            Client::Receives => Reached {
                position: self.reached.position,
                started: self.reached.started,
                ..Reached::default()
            },
        };
        let (sends, receives, role) = match self.client {
            Client::Sends => (&mut self.reached, &mut other, Role::Tells),
            Client::Receives => (&mut other, &mut self.reached, Role::Asks),
        };
        let (reads, starts, options) = (&self.reads, [start(self.source)], self.options);
        let written = match self.client {
            Client::Sends => Written::default(),
            Client::Receives => self.written.clone(),
        };
        let cut = AtomicBool::new(false);
        let digester = Digester::fixed();
        let (sent, received) = thread::scope(|scope| {
            join(scope, send_end, receive_end, limit, &cut);
            let digests = digester.clone();
            let sending = scope.spawn(move || {
                FileSender::new(send_port, reads, options, digests, sends).send_all(&starts)
            });
            let role = (role, receives);
            let received = FileReceiver::new(receive_port, &(), options, digester, to, role)
                .remembering(written)
                .receive_all();
            (sending.join().unwrap(), received)
        });
        match self.client {
            Client::Sends => sent,
            Client::Receives => received,
        }
    }
}

fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut reader = blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof();
    reader.fill(&mut bytes);
    bytes
}

/// Files on both sides of every limit, in directories that are half done when the wire is cut.
fn tree(base: &Path) -> PathBuf {
    let source = base.join("tree");
    for (at, directory) in ["", "a/b/c", "d", "empty"].iter().enumerate() {
        let directory = source.join(directory);
        fs::create_dir_all(&directory).unwrap();
        let seed = 100 * at as u64;
        if directory.ends_with("empty") {
            continue;
        }
        fs::write(directory.join("one"), content(seed, 2 * UNIT_BYTES + 77)).unwrap();
        for small in 1..4 {
            let content = content(seed + small, INLINE_BYTES - small as usize);
            fs::write(directory.join(format!("small{small}")), content).unwrap();
        }
        symlink("one", directory.join("link")).unwrap();
    }
    // Not copied, which is reported once.
    nix::unistd::mkfifo(&source.join("a/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    source
}

fn files(path: &Path) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![path.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap().path();
            let kind = entry.symlink_metadata().unwrap().file_type();
            let name = entry.strip_prefix(path).unwrap().as_os_str().as_bytes();
            if kind.is_dir() {
                todo.push(entry.clone());
            }
            let content = match kind.is_file() {
                true => Some(fs::read(&entry).unwrap()),
                false => None,
            };
            if kind.is_file() || kind.is_dir() || kind.is_symlink() {
                found.insert(name.to_vec(), content);
            }
        }
    }
    found
}

#[test]
fn a_cut_copy_goes_on__and_reads_nothing_twice_that_is_done() {
    for client in [Client::Sends, Client::Receives] {
        let mut whole = None;
        for limit in (1..).take_while(|_| whole.is_none()) {
            let base = tempfile::tempdir().unwrap();
            let source = tree(base.path());
            let target = base.path().join("target");
            fs::create_dir(&target).unwrap();
            // A name that stands for a directory when the second connection comes.
            let top = TopLevel::One(b"new".to_vec());
            let mut copy = Copy::new(&source, &target, top, client);
            let first = copy.connect(limit);
            if let Ok(totals) = first {
                whole = Some(totals);
                break;
            }
            let settled = copy.reached.totals.files;
            let before: usize = copy.reads.0.lock().unwrap().len();
            let totals = copy.connect(usize::MAX).unwrap();
            let context = format!("{client:?}, cut after {limit}: {totals:?}");
            assert_eq!(files(&target.join("new")), files(&source), "{context}");
            assert_eq!(
                (
                    totals.files,
                    totals.links,
                    totals.directories,
                    totals.failed,
                    totals.skipped
                ),
                (12, 3, 6, 0, 1),
                "{context}"
            );
            assert_eq!(copy.reached.restarts, 0, "{context}");
            let reads = copy.reads.0.lock().unwrap();
            let twice = reads.values().filter(|&&reads| reads > 1).count();
            assert!(reads.values().all(|&reads| reads <= 2), "{context}");
            assert!(twice <= before - settled as usize, "{context}: {twice}");
        }
        assert_eq!(whole.unwrap().files, 12);
    }
}

/// Further names for some of the files of [`tree`], in directories of their own and of the others.
fn link(source: &Path) -> Vec<(&'static str, &'static str)> {
    let pairs = [
        ("one", "z/one"),
        ("one", "a/b/c/also one"),
        ("small1", "d/small4"),
        ("a/b/c/small2", "d/small5"),
        ("a/b/c/one", "small4"),
        ("d/small3", "a/small6"),
    ];
    fs::create_dir(source.join("z")).unwrap();
    for (first, other) in pairs {
        fs::hard_link(source.join(first), source.join(other)).unwrap();
    }
    pairs.to_vec()
}

#[test]
fn a_cut_copy_goes_on__with_files_that_have_several_names() {
    let inode = |path: PathBuf| path.metadata().unwrap().ino();
    for client in [Client::Sends, Client::Receives] {
        let mut whole = false;
        for limit in 1.. {
            if whole {
                break;
            }
            let base = tempfile::tempdir().unwrap();
            let source = tree(base.path());
            let pairs = link(&source);
            let target = base.path().join("target");
            fs::create_dir(&target).unwrap();
            let top = TopLevel::One(b"new".to_vec());
            let mut copy = Copy::new(&source, &target, top, client);
            copy.options.attributes.hard_links = true;
            let first = copy.connect(limit);
            whole = first.is_ok();
            let totals = first.unwrap_or_else(|_| copy.connect(usize::MAX).unwrap());
            let context = format!("{client:?}, cut after {limit}: {totals:?}");
            let new = target.join("new");
            assert_eq!(files(&new), files(&source), "{context}");
            assert_eq!(
                (totals.files, totals.hard_links, totals.failed),
                (18, 6, 0),
                "{context}"
            );
            for (first, other) in pairs {
                let same = inode(new.join(first)) == inode(new.join(other));
                assert!(same, "{context}: {first} and {other}");
            }
            let bytes = files(&source)
                .values()
                .flatten()
                .map(Vec::len)
                .sum::<usize>();
            let twice = 4 * UNIT_BYTES as u64;
            assert!(totals.bytes + twice < bytes as u64, "{context}");
        }
    }
}

#[test]
fn a_large_file_goes_on_from_its_units() {
    for client in [Client::Sends, Client::Receives] {
        let base = tempfile::tempdir().unwrap();
        let source = base.path().join("large");
        fs::write(&source, content(1, 20 * UNIT_BYTES)).unwrap();
        let target = base.path().join("target");
        fs::create_dir(&target).unwrap();
        let mut copy = Copy::new(&source, &target, TopLevel::Any, client);
        // Announcements and about 12 units.
        assert!(copy.connect(14).is_err());
        let totals = copy.connect(usize::MAX).unwrap();
        assert!(totals.bytes_kept >= 8 * UNIT_BYTES as u64, "{totals:?}");
        assert_eq!((totals.files, totals.bytes), (1, 20 * UNIT_BYTES as u64));
        assert_eq!(files(&target).len(), 1);
        assert_eq!(
            fs::read(target.join("large")).unwrap(),
            fs::read(&source).unwrap()
        );
    }
}

/// A tree of four files in `base` and a target beside it.
fn four_files(base: &Path) -> (PathBuf, PathBuf) {
    let (source, target) = (base.join("tree"), base.join("target"));
    for directory in [&source, &target] {
        fs::create_dir(directory).unwrap();
    }
    for name in ["f", "g", "h", "i"] {
        fs::write(source.join(name), content(1, 2 * UNIT_BYTES)).unwrap();
    }
    (source, target)
}

#[test]
fn a_tree_that_changed_meanwhile_is_copied_anew() {
    for client in [Client::Sends, Client::Receives] {
        // The cut also loses answers in flight, sometimes all of them.
        let mut settled = 0;
        for _ in 0..10 {
            let base = tempfile::tempdir().unwrap();
            let (source, target) = four_files(base.path());
            let mut copy = Copy::new(&source, &target, TopLevel::Any, client);
            assert!(copy.connect(9).is_err());
            let passed = copy.reached.position.steps;
            settled = settled.max(passed);
            // None of the existing files has its name any more.
            for name in ["f", "g", "h", "i"] {
                fs::rename(source.join(name), source.join(format!("{name}2"))).unwrap();
            }
            let totals = copy.connect(usize::MAX).unwrap();
            assert_eq!(copy.reached.restarts, u64::from(passed > 1), "{client:?}");
            assert_eq!((totals.files, totals.directories, totals.failed), (4, 1, 0));
            let copied = files(&target.join("tree"));
            for (name, content) in files(&source) {
                assert_eq!(copied.get(&name), Some(&content));
            }
        }
        assert!(settled > 1, "{client:?}");
    }
}
