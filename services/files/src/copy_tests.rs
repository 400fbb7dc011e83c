//! Tests that copies of real files are right, between both ends joined by a simulated wire.

#![allow(non_snake_case)]

use crate::digest::Digester;
use crate::error::{Cause, Error, Failure};
use crate::limits::{BUFFER_BYTES, CONTROL_BYTES, FEEDBACK_FAILURES, UNIT_BYTES};
use crate::links::SourceLinks;
use crate::message::{CopyOptions, Meta, Record, Totals};
use crate::observe::Observer;
use crate::pack::PackWriter;
use crate::part::Part;
use crate::port::{Buffer, Events, Filled, Port, PumpEnd, port};
use crate::reached::Reached;
use crate::receive::{FileReceiver, Role, TopLevel};
use crate::send::{FileSender, Start};
use crate::share::Share;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const UNIT: u64 = UNIT_BYTES as u64;
/// Default options.
pub(crate) const FRESH: CopyOptions = CopyOptions {
    recursive: false,
    resume: false,
    durable: false,
    replace_read_only: false,
    count_first: false,
    delta: false,
    in_place: false,
    copy_links: false,
    keep_links: false,
    attributes: crate::message::Attributes::NONE,
    allow_changing: false,
    no_permissions: false,
};
pub(crate) const RECURSIVE: CopyOptions = CopyOptions {
    recursive: true,
    ..FRESH
};
const RESUME: CopyOptions = CopyOptions {
    resume: true,
    ..RECURSIVE
};

/// Records failures, and runs a function once, when the first file has been opened.
#[derive(Default)]
struct Failures(
    Mutex<Vec<Failure>>,
    Mutex<Option<Interference>>,
    /// Skipped entries.
    Mutex<Vec<String>>,
);

type Interference = Box<dyn FnOnce() + Send>;

impl Observer for Failures {
    fn file_started(&self, _path: &[u8], _size: u64) {
        if let Some(interfere) = self.1.lock().unwrap().take() {
            interfere();
        }
    }

    fn skipped(&self, path: &[u8]) {
        self.2.lock().unwrap().push(crate::escape(path));
    }

    fn failed(&self, failure: &Failure) {
        self.0.lock().unwrap().push(failure.clone());
    }
}

impl Failures {
    fn sorted(self) -> Vec<(String, Cause)> {
        let mut list: Vec<_> = self
            .0
            .into_inner()
            .unwrap()
            .into_iter()
            .map(|f| (crate::escape(&f.path), f.cause))
            .collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list
    }
}

fn buffers(count: usize, bytes: usize) -> Vec<Buffer> {
    (0..count)
        .map(|_| Buffer::anonymous(bytes).unwrap())
        .collect()
}

pub(crate) fn sender_port() -> (Port, PumpEnd) {
    port(
        buffers(3, BUFFER_BYTES),
        buffers(2, CONTROL_BYTES),
        Arc::default(),
        || {},
    )
}

pub(crate) fn receiver_port() -> (Port, PumpEnd) {
    port(
        buffers(2, CONTROL_BYTES),
        buffers(3, BUFFER_BYTES),
        Arc::default(),
        || {},
    )
}

/// One direction of the wire: events from one end, buffers to the other.
struct Direction {
    outgoing: Receiver<Filled>,
    sent: Events,
    released: Receiver<Buffer>,
    arrived: Events,
}

impl Direction {
    /// Carries Transfers until either end has ended, `limit` were carried, or the other direction has ended.
    fn carry(self, limit: usize, cut: &AtomicBool) {
        for _ in 0..limit {
            let Some(filled) = next(&self.outgoing, cut) else {
                break;
            };
            let Some(mut buffer) = next(&self.released, cut) else {
                break;
            };
            buffer[..filled.len].copy_from_slice(filled.bytes());
            let len = filled.len;
            self.arrived.arrived(Filled { buffer, len });
            self.sent.sent(filled.buffer, len);
        }
        cut.store(true, Ordering::SeqCst);
    }
}

fn next<T>(queue: &Receiver<T>, cut: &AtomicBool) -> Option<T> {
    loop {
        match queue.recv_timeout(Duration::from_millis(2)) {
            Ok(item) => return Some(item),
            Err(RecvTimeoutError::Timeout) if !cut.load(Ordering::SeqCst) => {}
            Err(_) => return None,
        }
    }
}

/// Joins two ports by a wire that is cut after `limit` Transfers of data.
pub(crate) fn join<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    sender: PumpEnd,
    receiver: PumpEnd,
    limit: usize,
    cut: &'scope AtomicBool,
) {
    let (to_sender, to_receiver) = (sender.events.clone(), receiver.events.clone());
    let data = Direction {
        outgoing: sender.outgoing,
        sent: sender.events,
        released: receiver.released,
        arrived: to_receiver,
    };
    let feedback = Direction {
        outgoing: receiver.outgoing,
        sent: receiver.events,
        released: sender.released,
        arrived: to_sender,
    };
    scope.spawn(move || data.carry(limit, cut));
    scope.spawn(move || feedback.carry(usize::MAX, cut));
}

struct Outcome {
    sent: Result<Totals, Error>,
    received: Result<Totals, Error>,
    at_sender: Vec<(String, Cause)>,
    at_receiver: Vec<(String, Cause)>,
    /// Entries that either end skipped.
    skipped: Vec<String>,
}

fn copy_until(
    starts: Vec<Start>,
    target: &Path,
    top: TopLevel,
    options: CopyOptions,
    limit: usize,
) -> Outcome {
    copy_with(starts, target, top, options, limit, None)
}

fn copy_with(
    starts: Vec<Start>,
    target: &Path,
    top: TopLevel,
    options: CopyOptions,
    limit: usize,
    interfere: Option<Interference>,
) -> Outcome {
    copy_share(starts, target, top, options, limit, interfere, Share::Whole)
}

fn copy_share(
    starts: Vec<Start>,
    target: &Path,
    top: TopLevel,
    options: CopyOptions,
    limit: usize,
    interfere: Option<Interference>,
    share: Share,
) -> Outcome {
    let base: OwnedFd = File::open(target).unwrap().into();
    let (send_port, send_end) = sender_port();
    let (receive_port, receive_end) = receiver_port();
    let at_sender = Failures(Mutex::default(), Mutex::new(interfere), Mutex::default());
    let at_receiver = Failures::default();
    let cut = AtomicBool::new(false);
    let (sent, received) = thread::scope(|scope| {
        join(scope, send_end, receive_end, limit, &cut);
        let observer = &at_sender;
        let sending = scope.spawn(move || {
            let mut reached = Reached::default();
            FileSender::new(
                send_port,
                observer,
                options,
                Digester::fixed(),
                &mut reached,
            )
            .with_links(SourceLinks::local(&options), Vec::new())
            .of_share(share)
            .send_all(&starts)
        });
        let mut reached = Reached::default();
        let received = FileReceiver::new(
            receive_port,
            &at_receiver,
            options,
            Digester::fixed(),
            (base, top),
            (Role::Tells, &mut reached),
        )
        .of_share(share)
        .receive_all();
        (sending.join().unwrap(), received)
    });
    let skipped = [&at_sender, &at_receiver].map(|it| it.2.lock().unwrap().clone());
    Outcome {
        sent,
        received,
        skipped: skipped.concat(),
        at_sender: at_sender.sorted(),
        at_receiver: at_receiver.sorted(),
    }
}

pub(crate) fn start(path: &Path) -> Start {
    let directory = File::open(path.parent().unwrap()).unwrap().into();
    Start::Named {
        directory,
        name: path.file_name().unwrap().as_bytes().to_vec(),
    }
}

fn copy(source: &Path, target: &Path, options: CopyOptions) -> Outcome {
    copy_until(
        vec![start(source)],
        target,
        TopLevel::Any,
        options,
        usize::MAX,
    )
}

impl Outcome {
    fn complete(&self) -> Totals {
        let sent = *self.sent.as_ref().expect("sent");
        assert_eq!(&sent, self.received.as_ref().expect("received"));
        sent
    }

    fn clean(&self) -> Totals {
        let totals = self.complete();
        assert_eq!(
            (&self.at_sender[..], &self.at_receiver[..]),
            (&[][..], &[][..])
        );
        assert_eq!(totals.failed, 0);
        totals
    }
}

/// A temporary directory with `source` and `target`; on tmpfs, whose holes have page granularity.
fn places() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let base = tempfile::tempdir_in("/dev/shm").unwrap();
    let (source, target) = (base.path().join("source"), base.path().join("target"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&target).unwrap();
    (base, source, target)
}

/// Bytes without repetition.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|e| crate::escape(e.unwrap().file_name().as_bytes()))
        .collect();
    names.sort();
    names
}

/// Path, mode, modification time, content.
type Kept = (String, u32, (i64, i64), Vec<u8>);

/// Everything of a tree that a copy must keep.
fn snapshot(path: &Path) -> Vec<Kept> {
    let mut list = Vec::new();
    let mut open = vec![path.to_path_buf()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let entry = entry.unwrap().path();
            let meta = entry.symlink_metadata().unwrap();
            let bytes = if meta.is_symlink() {
                fs::read_link(&entry)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else if meta.is_dir() {
                open.push(entry.clone());
                Vec::new()
            } else {
                fs::read(&entry).unwrap()
            };
            let name = crate::escape(entry.strip_prefix(path).unwrap().as_os_str().as_bytes());
            list.push((name, meta.mode(), (meta.mtime(), meta.mtime_nsec()), bytes));
        }
    }
    list.sort();
    list
}

#[test]
fn copy__sizes_around_every_boundary() {
    let (_base, source, target) = places();
    let inline = crate::limits::INLINE_BYTES;
    for (seed, len) in [
        0,
        1,
        4096,
        inline - 1,
        inline,
        inline + 1,
        UNIT_BYTES - 1,
        UNIT_BYTES,
        UNIT_BYTES + 1,
        3 * UNIT_BYTES,
        17 * UNIT_BYTES + 5,
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(source.join(format!("f{len}")), content(seed as u64, len)).unwrap();
    }
    let totals = copy(&source, &target, RECURSIVE).clean();
    assert_eq!(
        (totals.files, totals.directories, totals.bytes_kept),
        (11, 1, 0)
    );
    assert_eq!(snapshot(&source), snapshot(&target.join("source")));
}

#[test]
fn copy__tree_with_odd_names_links_modes_and_times() {
    let (_base, source, target) = places();
    fs::create_dir_all(source.join("a/b/empty")).unwrap();
    fs::write(
        source
            .join("a")
            .join(OsStr::from_bytes(b"not\xffutf8\nline")),
        b"x",
    )
    .unwrap();
    fs::write(source.join("a/b/secret"), b"y").unwrap();
    fs::set_permissions(source.join("a/b/secret"), fs::Permissions::from_mode(0o400)).unwrap();
    fs::set_permissions(source.join("a/b/empty"), fs::Permissions::from_mode(0o555)).unwrap();
    symlink("/etc/passwd", source.join("a/absolute")).unwrap();
    symlink("nowhere", source.join("dangling")).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 987_654_321);
    File::open(source.join("a/b"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    let totals = copy(&source, &target, RECURSIVE).clean();
    assert_eq!((totals.files, totals.directories, totals.links), (2, 4, 2));
    assert_eq!(snapshot(&source), snapshot(&target.join("source")));
}

#[test]
fn copy__many_small_files_share_transfers() {
    let (_base, source, target) = places();
    for i in 0..1000 {
        fs::write(source.join(format!("{i}")), content(i, 4096)).unwrap();
    }
    // 4 MiB of content and its manifest fit in six Transfers.
    let outcome = copy_until(vec![start(&source)], &target, TopLevel::Any, RECURSIVE, 6);
    assert_eq!(outcome.clean().files, 1000);
    assert_eq!(snapshot(&source), snapshot(&target.join("source")));
}

#[test]
fn copy__holes_are_kept_and_not_sent() {
    let (_base, source, target) = places();
    let file = File::create(source.join("sparse")).unwrap();
    file.set_len(40 * UNIT + 12345).unwrap();
    file.write_all_at(&content(1, 4096), 4096).unwrap();
    file.write_all_at(&content(2, 2 * UNIT_BYTES + 4096), 7 * UNIT)
        .unwrap();
    file.write_all_at(&content(3, 8192), 20 * UNIT - 4096)
        .unwrap();
    fs::write(source.join("tiny"), b"").unwrap();
    File::create(source.join("small-hole"))
        .unwrap()
        .set_len(100_000)
        .unwrap();
    let totals = copy(&source, &target, RECURSIVE).clean();
    let copied = target.join("source");
    assert_eq!(snapshot(&source), snapshot(&copied));
    for name in ["sparse", "small-hole"] {
        let blocks = |dir: &Path| dir.join(name).metadata().unwrap().blocks();
        assert_eq!(blocks(&source), blocks(&copied), "{name}");
    }
    let data = (4096 + 2 * UNIT_BYTES + 4096 + 8192) as u64;
    assert_eq!(totals.bytes - totals.bytes_in_holes, data);
}

#[test]
fn copy__under_another_name() {
    let (_base, source, target) = places();
    fs::write(source.join("a"), b"x").unwrap();
    let top = TopLevel::One(b"b".to_vec());
    copy_until(
        vec![start(&source.join("a"))],
        &target,
        top,
        CopyOptions::default(),
        usize::MAX,
    )
    .clean();
    assert_eq!(names(&target), ["b"]);
}

#[test]
fn copy__directory_without_recursive_is_refused() {
    let (_base, source, target) = places();
    let outcome = copy(&source, &target, CopyOptions::default());
    assert_eq!(outcome.complete().failed, 1);
    assert_eq!(outcome.at_sender, [("source".into(), Cause::NotRecursive)]);
    assert_eq!(names(&target), [""; 0]);
}

#[test]
fn copy__what_cannot_be_entered_fails_in_every_share() {
    let (_base, source, target) = places();
    fs::create_dir(source.join("d")).unwrap();
    let shares = (0..3).map(|index| Share::Files { index, of: 3 });
    for share in shares.chain([Share::Directories]) {
        let starts = vec![start(&source.join("d"))];
        let top = TopLevel::Any;
        let outcome = copy_share(starts, &target, top, FRESH, usize::MAX, None, share);
        assert_eq!(outcome.complete().failed, 1, "{share:?}");
        let failed = [("d".into(), Cause::NotRecursive)];
        assert_eq!(outcome.at_sender, failed, "{share:?}");
        assert_eq!(outcome.at_receiver, failed, "{share:?}");
    }
}

#[test]
fn copy__failures_are_reported_at_both_ends_and_the_rest_goes_on() {
    let (_base, source, target) = places();
    fs::create_dir(source.join("blocked")).unwrap();
    fs::write(source.join("blocked/inside"), b"i").unwrap();
    fs::write(source.join("good"), b"g").unwrap();
    fs::write(source.join("over-directory"), content(1, 5 * UNIT_BYTES)).unwrap();
    fs::write(source.join("read-only"), b"new").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        source.join("pipe"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let there = target.join("source");
    fs::create_dir_all(there.join("over-directory")).unwrap();
    fs::write(there.join("blocked"), b"a file where a directory is needed").unwrap();
    fs::write(there.join("read-only"), b"old").unwrap();
    fs::set_permissions(there.join("read-only"), fs::Permissions::from_mode(0o444)).unwrap();

    let outcome = copy(&source, &target, RECURSIVE);
    let totals = outcome.complete();
    let expected = [
        ("source/blocked".to_owned(), Cause::NotADirectory),
        ("source/blocked/inside".into(), Cause::NoDirectory),
        ("source/over-directory".into(), Cause::IsADirectory),
        ("source/read-only".into(), Cause::ReadOnly),
    ];
    assert_eq!(outcome.at_sender, expected);
    assert_eq!(outcome.at_receiver, expected);
    assert_eq!((totals.files, totals.failed, totals.skipped), (1, 4, 1));
    assert_eq!(outcome.skipped, ["source/pipe"; 2]);
    assert_eq!(fs::read(there.join("read-only")).unwrap(), b"old");
    assert_eq!(
        names(&there),
        ["blocked", "good", "over-directory", "read-only"]
    );

    let force = CopyOptions {
        replace_read_only: true,
        ..RECURSIVE
    };
    copy(&source, &target, force);
    assert_eq!(fs::read(there.join("read-only")).unwrap(), b"new");
}

#[test]
fn copy__a_link_that_is_named_is_followed_and_one_below_is_kept() {
    let (_base, source, target) = places();
    let source = source.parent().unwrap();
    fs::create_dir(source.join("tree")).unwrap();
    fs::write(source.join("tree/file"), b"content").unwrap();
    symlink("file", source.join("tree/link")).unwrap();
    nix::unistd::mkfifo(&source.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (name, leads_to) in [
        ("to-file", "tree/file"),
        ("to-link", "tree/link"),
        ("to-tree", "tree"),
        ("to-pipe", "pipe"),
        ("nowhere", "missing"),
        ("round", "round"),
    ] {
        symlink(leads_to, source.join(name)).unwrap();
    }
    let kept = CopyOptions {
        keep_links: true,
        ..RECURSIVE
    };
    for (name, cause) in [
        ("to-file", None),
        ("to-link", None),
        ("to-tree", None),
        ("pipe", Some(Cause::SpecialSource)),
        ("to-pipe", Some(Cause::SpecialSource)),
        ("nowhere", Some(Cause::LinkToNothing)),
        ("round", Some(Cause::LinkToNothing)),
    ] {
        let outcome = copy(&source.join(name), &target, RECURSIVE);
        let totals = outcome.complete();
        let came = target.join(name);
        match cause {
            Some(cause) => {
                let failed = [(name.to_owned(), cause)];
                assert_eq!(outcome.at_sender, failed);
                assert_eq!(outcome.at_receiver, failed);
                assert_eq!(totals.failed, 1, "{name}");
                assert!(came.symlink_metadata().is_err(), "{name}");
            }
            None if name == "to-tree" => {
                assert_eq!((totals.files, totals.links, totals.directories), (1, 1, 1));
                assert!(!came.is_symlink() && came.join("link").is_symlink());
                fs::remove_dir_all(came).unwrap();
            }
            None => {
                assert_eq!((totals.files, totals.links, totals.failed), (1, 0, 0));
                assert!(!came.is_symlink() && fs::read(came).unwrap() == b"content");
            }
        }
        if name != "pipe" {
            let totals = copy(&source.join(name), &target, kept).clean();
            assert_eq!((totals.files, totals.links), (0, 1), "{name}");
            assert!(target.join(name).is_symlink(), "{name}");
        }
    }
}

#[test]
fn copy__a_file_whose_length_is_not_said_is_read_to_its_end() {
    let (_base, _, target) = places();
    for path in [
        "/proc/version",
        "/proc/filesystems",
        "/sys/class/net/lo/mtu",
    ] {
        let Ok(content) = fs::read(path) else {
            println!("skipped: there is no {path}");
            continue;
        };
        let path = Path::new(path);
        assert_ne!(path.metadata().unwrap().len(), content.len() as u64);
        let totals = copy(path, &target, FRESH).clean();
        assert_eq!(totals.bytes, content.len() as u64, "{path:?}");
        assert_eq!(
            fs::read(target.join(path.file_name().unwrap())).unwrap(),
            content
        );
    }
}

#[test]
fn copy__killed_then_resumed_sends_only_what_is_missing() {
    let (_base, source, target) = places();
    let bytes = content(1, 40 * UNIT_BYTES + 777);
    fs::write(source.join("big"), &bytes).unwrap();
    let cut = copy_until(
        vec![start(&source.join("big"))],
        &target,
        TopLevel::Any,
        CopyOptions::default(),
        20,
    );
    assert!(
        matches!(cut.sent, Err(Error::PeerGone)) && matches!(cut.received, Err(Error::PeerGone))
    );
    let [left_over] = &names(&target)[..] else {
        panic!("{:?}", names(&target));
    };

    // The effect of a crash: a hole in place of data, and a wrong length.
    let part = File::options()
        .write(true)
        .open(target.join(left_over))
        .unwrap();
    part.write_all_at(&[0; 4096], 3 * UNIT + 4096).unwrap();
    part.set_len(30 * UNIT).unwrap();

    let totals = copy(&source.join("big"), &target, RESUME).clean();
    assert_eq!(fs::read(target.join("big")).unwrap(), bytes);
    assert_eq!(names(&target), ["big"]);
    let kept = totals.bytes_kept / UNIT;
    assert!((15..19).contains(&kept), "{kept} units kept");
}

/// Leaves what a killed copy of `bytes` to `name` in `target` leaves.
fn leave(target: &Path, name: &str, bytes: &[u8]) {
    let target = Arc::new(File::open(target).unwrap().into());
    let mut part = Part::lasting(&target, name.as_bytes(), &RECURSIVE).unwrap();
    part.write(bytes, 0).unwrap();
}

#[test]
fn copy__resume_over_anothers_leftover() {
    let (_base, source, target) = places();
    fs::write(source.join("big"), content(1, 3 * UNIT_BYTES)).unwrap();
    leave(&target, "big", &content(2, 9 * UNIT_BYTES));
    assert_eq!(
        copy(&source.join("big"), &target, RESUME)
            .clean()
            .bytes_kept,
        0
    );
    assert_eq!(
        fs::read(target.join("big")).unwrap(),
        content(1, 3 * UNIT_BYTES)
    );
}

#[test]
fn copy__resume_makes_holes_where_the_leftover_has_data() {
    let (_base, source, target) = places();
    let file = File::create(source.join("sparse")).unwrap();
    file.set_len(4 * UNIT).unwrap();
    file.write_all_at(&content(1, 4096), UNIT + 8192).unwrap();
    leave(&target, "sparse", &content(2, 4 * UNIT_BYTES));
    copy(&source.join("sparse"), &target, RESUME).clean();
    assert_eq!(snapshot(&source), snapshot(&target));
    assert_eq!(
        target.join("sparse").metadata().unwrap().blocks() * 512,
        4096
    );
}

#[test]
fn copy__resume_of_a_complete_file_sends_nothing_and_writes_nothing() {
    let (_base, source, target) = places();
    fs::write(source.join("big"), content(1, 5 * UNIT_BYTES + 1)).unwrap();
    copy(&source.join("big"), &target, RECURSIVE).clean();
    let before = target.join("big").metadata().unwrap().ino();
    fs::set_permissions(target.join("big"), fs::Permissions::from_mode(0o444)).unwrap();
    let totals = copy(&source.join("big"), &target, RESUME).clean();
    assert_eq!(totals.bytes_kept, totals.bytes);
    assert_eq!(target.join("big").metadata().unwrap().ino(), before);
    assert_eq!(snapshot(&source), snapshot(&target));
}

#[test]
fn copy__resume_of_a_changed_file_sends_only_the_change() {
    let (_base, source, target) = places();
    let mut bytes = content(1, 6 * UNIT_BYTES);
    fs::write(target.join("big"), &bytes).unwrap();
    bytes[3 * UNIT_BYTES + 9] ^= 1;
    fs::write(source.join("big"), &bytes).unwrap();
    let totals = copy(&source.join("big"), &target, RESUME).clean();
    assert_eq!(totals.bytes_kept, 5 * UNIT);
    assert_eq!(fs::read(target.join("big")).unwrap(), bytes);
}

/// An entry that disappears between reading its directory and its turn has vanished; a named source that does not exist
/// has not.
#[test]
fn copy__what_vanishes_is_counted_apart() {
    let (_base, source, target) = places();
    for name in ["a", "b", "c"] {
        fs::write(source.join(name), content(1, 2 * UNIT_BYTES)).unwrap();
    }
    fs::create_dir(source.join("d")).unwrap();
    let from = source.clone();
    let all_but_one = move || {
        fs::remove_dir(from.join("d")).unwrap();
        let files = fs::read_dir(&from).unwrap().map(|it| it.unwrap().path());
        files.for_each(|it| fs::remove_file(it).unwrap());
    };
    let starts = vec![start(&source), start(&source.join("missing"))];
    let all = usize::MAX;
    let interfere: Interference = Box::new(all_but_one);
    let outcome = copy_with(
        starts,
        &target,
        TopLevel::Any,
        RECURSIVE,
        all,
        Some(interfere),
    );
    let totals = outcome.complete();
    // The opened file is complete. A directory may have had its turn before.
    assert_eq!(totals.files, 1, "{:?}", outcome.at_sender);
    let vanished = outcome
        .at_sender
        .iter()
        .filter(|it| it.1 == Cause::Vanished);
    assert_eq!(vanished.count() as u64, totals.vanished);
    assert!((2..=3).contains(&totals.vanished));
    assert_eq!(totals.failed, totals.vanished + 1);
    assert!(
        outcome
            .at_sender
            .contains(&("missing".into(), Cause::NotFound))
    );
}

/// Copies a file of `len` bytes to which `change` is applied just after it was opened.
fn copy_changing(len: usize, change: impl FnOnce(&File) + Send + 'static) {
    let (_base, source, target) = places();
    fs::write(source.join("a"), content(1, len)).unwrap();
    fs::write(target.join("a"), b"old").unwrap();
    let file = File::options().write(true).open(source.join("a")).unwrap();
    let outcome = copy_with(
        vec![start(&source.join("a"))],
        &target,
        TopLevel::Any,
        RECURSIVE,
        usize::MAX,
        Some(Box::new(move || change(&file))),
    );
    assert_eq!(
        outcome.at_sender,
        [("a".into(), Cause::SourceChanged)],
        "{len} bytes"
    );
    assert_eq!(outcome.at_receiver, outcome.at_sender);
    assert_eq!(outcome.complete().failed, 1);
    assert_eq!(fs::read(target.join("a")).unwrap(), b"old");
    assert_eq!(names(&target), ["a"]);
}

/// The result for a file of `len` bytes to which `change` is applied just after it was opened, if that is allowed.
fn copied_while(len: usize, change: impl FnOnce(&File) + Send + 'static) -> (Totals, Vec<u8>) {
    let (_base, source, target) = places();
    fs::write(source.join("a"), content(1, len)).unwrap();
    fs::write(target.join("a"), b"old").unwrap();
    let file = File::options().write(true).open(source.join("a")).unwrap();
    let options = CopyOptions {
        allow_changing: true,
        ..RECURSIVE
    };
    let outcome = copy_with(
        vec![start(&source.join("a"))],
        &target,
        TopLevel::Any,
        options,
        usize::MAX,
        Some(Box::new(move || change(&file))),
    );
    (outcome.complete(), fs::read(target.join("a")).unwrap())
}

#[test]
fn copy__a_source_may_change_if_that_is_allowed() {
    for len in [0, 1000, 5 * UNIT_BYTES] {
        // Bytes appended after it was opened are for the next copy.
        let (totals, came) = copied_while(len, move |file| {
            file.write_all_at(b"more", len as u64).unwrap();
        });
        assert_eq!(
            (totals.files, totals.failed, totals.bytes),
            (1, 0, len as u64)
        );
        assert!(came == content(1, len), "{len}");
    }
    for len in [1000, 5 * UNIT_BYTES] {
        let (totals, came) = copied_while(len, |file| {
            thread::sleep(Duration::from_millis(20));
            file.write_all_at(b"other", 3).unwrap();
        });
        assert_eq!((totals.files, totals.failed), (1, 0));
        assert!(came.len() == len && came[3..8] == *b"other");
    }
    let (totals, came) = copied_while(1000, |file| file.set_len(400).unwrap());
    assert_eq!((totals.files, totals.bytes), (1, 400));
    assert!(came == content(1, 1000)[..400]);
    // The length of a large file was announced.
    let len = 40 * UNIT_BYTES;
    let (totals, came) = copied_while(len, |file| file.set_len(0).unwrap());
    assert_eq!(
        (totals.files, totals.failed, &came[..]),
        (0, 1, &b"old"[..])
    );
}

#[test]
fn copy__source_truncated_while_read() {
    for len in [1000, 5 * UNIT_BYTES, 40 * UNIT_BYTES] {
        copy_changing(len, move |file| file.set_len(len as u64 / 2).unwrap());
    }
    copy_changing(40 * UNIT_BYTES, |file| file.set_len(0).unwrap());
}

#[test]
fn copy__source_growing_while_read() {
    for len in [0, 1000, 5 * UNIT_BYTES] {
        copy_changing(len, move |file| {
            file.write_all_at(b"more", len as u64).unwrap()
        });
    }
}

#[test]
fn copy__source_written_to_while_read() {
    for len in [1000, 5 * UNIT_BYTES] {
        copy_changing(len, |file| {
            // Longer than the granularity of time stamps.
            thread::sleep(Duration::from_millis(20));
            file.write_all_at(b"other", 3).unwrap();
        });
    }
}

#[test]
fn copy__target_being_written_is_refused() {
    let (_base, source, target) = places();
    fs::write(source.join("a"), content(1, 2 * UNIT_BYTES)).unwrap();
    let base = Arc::new(File::open(&target).unwrap().into());
    let part = Part::lasting(&base, b"a", &RECURSIVE).unwrap();
    let before = names(&target);
    let outcome = copy(&source.join("a"), &target, RECURSIVE);
    assert_eq!(outcome.at_sender, [("a".into(), Cause::Busy)]);
    assert_eq!(names(&target), before);
    drop(part);
    copy(&source.join("a"), &target, RECURSIVE).clean();
    assert_eq!(names(&target), ["a"]);
}

/// The result of `receive` at a port at which these packs arrived before the connection ended.
pub(crate) fn fed<R>(packs: Vec<Vec<u8>>, receive: impl FnOnce(Port) -> R) -> R {
    let (port, end) = port(buffers(4, CONTROL_BYTES), vec![], Arc::default(), || {});
    for pack in packs {
        let mut buffer = Buffer::anonymous(BUFFER_BYTES).unwrap();
        buffer[..pack.len()].copy_from_slice(&pack);
        let len = pack.len();
        end.events.arrived(Filled { buffer, len });
    }
    // Messages of the receiver are accepted and dropped.
    let _outgoing = end.outgoing;
    drop((end.events, end.released));
    receive(port)
}

/// Sends hand-made packs to a receiver; returns its messages.
pub(crate) fn receive_raw(
    target: &Path,
    top: TopLevel,
    options: CopyOptions,
    packs: Vec<Vec<u8>>,
) -> Result<Totals, Error> {
    let to = (File::open(target).unwrap().into(), top);
    let mut reached = Reached::default();
    let role = (Role::Asks, &mut reached);
    fed(packs, |port| {
        FileReceiver::new(port, &(), options, Digester::fixed(), to, role).receive_all()
    })
}

pub(crate) fn pack(records: &[Record<'_>], contents: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; BUFFER_BYTES];
    buffer[..contents.len()].copy_from_slice(contents);
    let mut writer = PackWriter::default();
    for (i, record) in records.iter().enumerate() {
        writer
            .add(record, if i == 0 { contents.len() } else { 0 })
            .unwrap();
    }
    let len = writer.finish(&mut buffer);
    buffer.truncate(len);
    buffer
}

fn refused(result: Result<Totals, Error>) {
    assert!(matches!(result, Err(Error::Protocol(_))), "{result:?}");
}

#[test]
fn receive__names_that_leave_the_directory_are_refused() {
    let (base, _, target) = places();
    let digest = Digester::fixed().digest(b"x");
    for name in [
        &b".."[..],
        b"../evil",
        b"/tmp/evil",
        b"",
        b".",
        b"a/b",
        b"a\0b",
    ] {
        let file = Record::File {
            name,
            meta: Meta::default(),
            size: 1,
            digest,
        };
        refused(receive_raw(
            &target,
            TopLevel::Any,
            RECURSIVE,
            vec![pack(&[file], b"x")],
        ));
        let enter = Record::Enter {
            name,
            meta: Meta::default(),
        };
        refused(receive_raw(
            &target,
            TopLevel::Any,
            RECURSIVE,
            vec![pack(&[enter], b"")],
        ));
    }
    assert_eq!(names(base.path()), ["source", "target"]);
    assert_eq!(names(&target), [""; 0]);
}

#[test]
fn receive__a_link_cannot_be_used_to_leave() {
    let (base, _, target) = places();
    let digest = Digester::fixed().digest(b"x");
    let meta = Meta {
        mode: 0o755,
        ..Meta::default()
    };
    let transfer = pack(
        &[
            Record::Link {
                name: b"out",
                target: b"../source",
                meta,
            },
            Record::Enter { name: b"out", meta },
        ],
        b"",
    );
    let inside = pack(
        &[
            Record::File {
                name: b"evil",
                meta,
                size: 1,
                digest,
            },
            Record::Leave,
            Record::Finish,
        ],
        b"x",
    );
    let totals = receive_raw(&target, TopLevel::Any, RECURSIVE, vec![transfer, inside]).unwrap();
    assert_eq!(totals.failed, 2);
    assert_eq!(names(&base.path().join("source")), [""; 0]);
}

#[test]
fn receive__failures_wait_for_a_sender_that_does_not_hear_of_them() {
    let (_base, _, target) = places();
    fs::write(target.join("d"), b"no directory").unwrap();
    let meta = Meta::default();
    let mut records = vec![Record::Enter { name: b"d", meta }];
    let link = Record::Link {
        name: b"l",
        target: b"t",
        meta,
    };
    records.resize(2000, link);
    let failures = Failures::default();
    let to = (File::open(&target).unwrap().into(), TopLevel::Any);
    let mut reached = Reached::default();
    let role = (Role::Asks, &mut reached);
    let outcome = fed(vec![pack(&records, b"")], |port| {
        FileReceiver::new(port, &failures, RECURSIVE, Digester::fixed(), to, role).receive_all()
    });
    assert!(matches!(outcome, Err(Error::PeerGone)), "{outcome:?}");
    // All of the feedback buffers are full, and none is returned.
    assert_eq!(failures.sorted().len(), (4 + 1) * FEEDBACK_FAILURES);
}

#[test]
fn receive__only_what_was_asked_for() {
    let (_base, _, target) = places();
    let digest = Digester::fixed().digest(b"x");
    let file = Record::File {
        name: b".bashrc",
        meta: Meta::default(),
        size: 1,
        digest,
    };
    let asked = TopLevel::of(&[b"wanted".to_vec(), b"*.gz".to_vec()]);
    refused(receive_raw(
        &target,
        asked,
        RECURSIVE,
        vec![pack(std::slice::from_ref(&file), b"x")],
    ));
    let one = TopLevel::One(b"wanted".to_vec());
    let twice = vec![pack(std::slice::from_ref(&file), b"x"), pack(&[file], b"x")];
    refused(receive_raw(&target, one, RECURSIVE, twice));
    assert_eq!(names(&target), ["wanted"]);
}

#[test]
fn receive__wrong_digest_keeps_the_old_file() {
    let (_base, _, target) = places();
    fs::write(target.join("a"), b"old").unwrap();
    fs::write(target.join("b"), b"old").unwrap();
    let meta = Meta {
        mode: 0o644,
        ..Meta::default()
    };
    let small = pack(
        &[Record::File {
            name: b"a",
            meta,
            size: 1,
            digest: [0; 32],
        }],
        b"x",
    );
    let size = 2 * UNIT;
    let open = pack(
        &[
            Record::Open {
                name: b"b",
                meta,
                size,
                number: 0,
                resume: false,
            },
            Record::Run { units: 2 },
        ],
        b"",
    );
    let close = pack(&[Record::Close { digest: [0; 32] }, Record::Finish], b"");
    let unit = vec![1; UNIT_BYTES];
    let totals = receive_raw(
        &target,
        TopLevel::Any,
        RECURSIVE,
        vec![small, open, unit.clone(), unit, close],
    )
    .unwrap();
    assert_eq!((totals.files, totals.failed), (0, 2));
    for name in ["a", "b"] {
        assert_eq!(fs::read(target.join(name)).unwrap(), b"old");
    }
    assert_eq!(names(&target), ["a", "b"]);
}

#[test]
fn receive__records_out_of_order_are_refused() {
    let (_base, _, target) = places();
    let meta = Meta::default();
    let open = |size| Record::Open {
        name: b"a",
        meta,
        size,
        number: 0,
        resume: false,
    };
    let piece = |offset, len| crate::message::Piece { offset, len };
    let bad: Vec<Vec<Record<'_>>> = vec![
        vec![Record::Leave],
        vec![Record::Enter { name: b"d", meta }, Record::Finish],
        vec![Record::Finish, Record::Finish],
        vec![Record::Run { units: 1 }],
        vec![Record::Hole { units: 1 }],
        vec![Record::Keep { units: 1 }],
        vec![Record::Close { digest: [0; 32] }],
        vec![Record::Abandon { cause: Cause::Busy }],
        vec![open(UNIT), open(UNIT)],
        vec![open(UNIT), Record::Finish],
        vec![open(UNIT), Record::Close { digest: [0; 32] }],
        vec![open(UNIT), Record::Run { units: 0 }],
        vec![open(UNIT), Record::Run { units: 2 }],
        vec![open(UNIT), Record::Hole { units: 2 }],
        vec![open(UNIT), Record::Hole { units: u64::MAX }],
        vec![open(UNIT), Record::Keep { units: 1 }],
        vec![open(u64::MAX)],
        vec![Record::Open {
            name: b"a",
            meta,
            size: 1,
            number: 7,
            resume: false,
        }],
        vec![
            open(UNIT),
            Record::Run { units: 1 },
            Record::Close { digest: [0; 32] },
        ],
        vec![open(UNIT), Record::Patch { pieces: vec![] }],
        vec![
            open(UNIT),
            Record::Patch {
                pieces: vec![piece(0, 0)],
            },
        ],
        vec![
            open(UNIT),
            Record::Patch {
                pieces: vec![piece(UNIT as u32, 1)],
            },
        ],
        vec![
            open(UNIT),
            Record::Patch {
                pieces: vec![piece(u32::MAX, u32::MAX)],
            },
        ],
        vec![
            open(UNIT),
            Record::Patch {
                pieces: vec![piece(8, 8), piece(0, 8)],
            },
        ],
        vec![
            open(UNIT),
            Record::Patch {
                pieces: vec![piece(0, 8)],
            },
        ],
        vec![Record::File {
            name: b"f",
            meta,
            size: 5,
            digest: [0; 32],
        }],
        vec![Record::File {
            name: b"f",
            meta,
            size: u32::MAX,
            digest: [0; 32],
        }],
        vec![Record::Link {
            name: b"l",
            target: b"",
            meta,
        }],
    ];
    for records in bad {
        let result = receive_raw(&target, TopLevel::Any, RECURSIVE, vec![pack(&records, b"")]);
        assert!(
            matches!(result, Err(Error::Protocol(_))),
            "{records:?}: {result:?}"
        );
    }
    refused(receive_raw(
        &target,
        TopLevel::Any,
        RECURSIVE,
        vec![pack(&[Record::Finish], b"surplus")],
    ));
    let short = vec![
        pack(&[open(UNIT), Record::Run { units: 1 }], b""),
        vec![1; 100],
    ];
    refused(receive_raw(&target, TopLevel::Any, RECURSIVE, short));
}

#[test]
fn receive__directories_too_deep_are_refused() {
    let (_base, _, target) = places();
    let enter = Record::Enter {
        name: b"d",
        meta: Meta::default(),
    };
    refused(receive_raw(
        &target,
        TopLevel::Any,
        RECURSIVE,
        vec![pack(&vec![enter; 129], b"")],
    ));
}
