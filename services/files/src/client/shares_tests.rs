//! Tests that copies over several connections are complete, with client and server over loopback.

#![allow(non_snake_case)]

use super::*;
use crate::error::Refusal;
use crate::escape::escape;
use crate::limits::TREE_DEPTH;
use crate::message::CopyOptions;
use crate::service_tests::{Lab, RECURSIVE, StopsAtOnce, content, refusal, relay};
use crate::stop::Stop;
use nix::sys::stat::{Mode, utimes};
use nix::sys::time::{TimeVal, TimeValLike};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use zerolane::Connection;

/// Counts the events of a copy.
#[derive(Default)]
struct Heard {
    counted: Mutex<Vec<(u64, u64)>>,
    started: Mutex<BTreeMap<String, usize>>,
    advanced: Mutex<u64>,
    failed: Mutex<Vec<String>>,
    skipped: Mutex<Vec<String>>,
    reconnected: AtomicUsize,
}

impl Observer for Heard {
    fn counted(&self, files: u64, bytes: u64) {
        self.counted.lock().unwrap().push((files, bytes));
    }

    fn file_started(&self, path: &[u8], _size: u64) {
        *self
            .started
            .lock()
            .unwrap()
            .entry(escape(path))
            .or_default() += 1;
    }

    fn advanced(&self, bytes: u64) {
        *self.advanced.lock().unwrap() += bytes;
    }

    fn skipped(&self, path: &[u8]) {
        self.skipped.lock().unwrap().push(escape(path));
    }

    fn failed(&self, failure: &Failure) {
        self.failed.lock().unwrap().push(escape(&failure.path));
    }

    fn reconnected(&self, _outage: Duration, _bytes: u64) {
        self.reconnected.fetch_add(1, Relaxed);
    }
}

/// 90 files, some packed and some not, links, read-only directories, and a file that cannot be copied.
fn tree(at: &Path) {
    for (number, directory) in ["", "a", "a/b", "locked", "empty"].iter().enumerate() {
        let directory = at.join(directory);
        fs::create_dir_all(&directory).unwrap();
        if directory.ends_with("empty") {
            continue;
        }
        for file in 0..23 {
            let len = match file {
                0 => 700_000 + number,
                small => 1000 * small + number,
            };
            fs::write(directory.join(format!("f{file}")), content(len)).unwrap();
        }
        symlink("f1", directory.join("link")).unwrap();
    }
    nix::unistd::mkfifo(&at.join("a/fifo"), Mode::S_IRWXU).unwrap();
    fs::set_permissions(at.join("locked"), Permissions::from_mode(0o555)).unwrap();
    for (number, directory) in ["empty", "locked", "a/b", "a", ""].iter().enumerate() {
        let then = TimeVal::seconds(1_000_000_000 + number as i64);
        utimes(&at.join(directory), &then, &then).unwrap();
    }
}

/// Mode and content of each entry, and the time of directories.
fn seen(at: &Path) -> BTreeMap<String, (u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![at.to_owned()];
    while let Some(path) = todo.pop() {
        let meta = path.symlink_metadata().unwrap();
        let kind = meta.file_type();
        let mut content = Vec::new();
        if kind.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
        } else if kind.is_file() {
            content = fs::read(&path).unwrap();
        } else if !kind.is_symlink() {
            continue;
        }
        let name = path.strip_prefix(at).unwrap().display().to_string();
        let time = if kind.is_dir() { meta.mtime() } else { 0 };
        found.insert(name, (meta.mode(), time, content));
    }
    found
}

/// Makes everything removable.
fn unlock(at: &Path) {
    fs::set_permissions(at.join("locked"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn with_connections__copies_what_one_connection_copies_both_ways() {
    let lab = Lab::new(false);
    tree(&lab.local("tree"));
    let source = [lab.local("tree")];
    let alone = lab
        .client()
        .put(&source, b"alone", &RECURSIVE, &())
        .unwrap();
    assert_eq!((alone.failed, alone.skipped), (0, 1), "the FIFO");
    for connections in [2, 5] {
        let client = lab.client().with_connections(connections);
        let check = |totals: Totals, heard: &Heard, target: &Path| {
            assert_eq!(totals, alone, "over {connections}");
            assert_eq!(seen(target), seen(&source[0]), "over {connections}");
            let counted = heard.counted.lock().unwrap();
            assert_eq!(counted[..], [(alone.files, alone.bytes)]);
            assert_eq!(heard.failed.lock().unwrap()[..], [""; 0]);
            let skipped = heard.skipped.lock().unwrap();
            assert_eq!(skipped.len(), 1, "{skipped:?}");
            assert!(skipped[0].ends_with("a/fifo"), "{skipped:?}");
            let started = heard.started.lock().unwrap();
            assert_eq!(started.len() as u64, alone.files);
            assert!(started.values().all(|&times| times == 1), "{started:?}");
            assert_eq!(*heard.advanced.lock().unwrap(), alone.bytes);
        };
        let (there, heard) = (format!("put{connections}"), Heard::default());
        let totals = client.put(&source, there.as_bytes(), &RECURSIVE, &heard);
        check(totals.unwrap(), &heard, &lab.share(&there));

        let (here, heard) = (lab.local(&format!("got{connections}")), Heard::default());
        tree(&lab.share("tree"));
        let totals = client.get(&[b"tree".to_vec()], &here, &RECURSIVE, &heard);
        check(totals.unwrap(), &heard, &here);
        unlock(&lab.share("tree"));
        fs::remove_dir_all(lab.share("tree")).unwrap();
        unlock(&lab.share(&there));
        unlock(&here);
    }
    unlock(&source[0]);
    unlock(&lab.share("alone"));
}

#[test]
fn with_connections__what_none_of_them_can_enter_is_told_once() {
    let lab = Lab::new(false);
    let deep = |top: &Path| {
        let deepest = (0..=TREE_DEPTH).fold(top.to_owned(), |at, _| at.join("d"));
        fs::create_dir_all(&deepest).unwrap();
        for file in 0..8 {
            fs::write(top.join(format!("{file}")), content(10)).unwrap();
        }
    };
    let source = [lab.local("tree")];
    deep(&source[0]);
    deep(&lab.share("tree"));
    let alone = lab
        .client()
        .put(&source, b"alone", &RECURSIVE, &())
        .unwrap();
    assert_eq!((alone.files, alone.failed), (8, 1));
    let client = lab.client().with_connections(3);
    let heard = Heard::default();
    let totals = client.put(&source, b"new", &RECURSIVE, &heard).unwrap();
    assert_eq!(totals, alone);
    assert_eq!(heard.failed.lock().unwrap().len(), 1);
    let heard = Heard::default();
    let totals = client.get(&[b"tree".to_vec()], &lab.local("got"), &RECURSIVE, &heard);
    assert_eq!(totals.unwrap(), alone);
    assert_eq!(heard.failed.lock().unwrap().len(), 1);
}

/// A client that counts its connections; from the second on, each passes `limit` bytes and then nothing.
fn counting(lab: &Lab, limit: Option<usize>) -> (Client, Arc<AtomicUsize>) {
    let connected = Arc::new(AtomicUsize::new(0));
    let number = Arc::clone(&connected);
    let (direct, cut) = (
        lab.address,
        limit.map(|limit| relay(lab.address, limit, Duration::ZERO)),
    );
    let client =
        lab.client()
            .with_connector(move |options| match (number.fetch_add(1, Relaxed), cut) {
                (1, Some(cut)) => {
                    // Lost soon, and before there is a spare connection.
                    let cut_options = options
                        .clone()
                        .with(|it| it.times.idle = Duration::from_millis(2500));
                    Connection::connect(cut, &cut_options)
                }
                _ => Connection::connect(direct, options),
            });
    (client, connected)
}

#[test]
fn with_connections__one_that_breaks_reconnects_alone() {
    let lab = Lab::new(false);
    let at = lab.local("tree");
    fs::create_dir(&at).unwrap();
    for file in 0..40 {
        fs::write(at.join(format!("{file}")), content(600_000 + file)).unwrap();
    }
    let (client, connected) = counting(&lab, Some(300_000));
    let heard = Heard::default();
    let totals = client
        .with_connections(3)
        .put(std::slice::from_ref(&at), b"new", &RECURSIVE, &heard)
        .unwrap();
    assert_eq!((totals.files, totals.failed), (40, 0));
    assert_eq!(seen(&lab.share("new")), seen(&at));
    // On a busy machine another connection may break, too.
    assert!(heard.reconnected.load(Relaxed) >= 1);
    // One for each share, one that continues, one for the directory.
    assert!(connected.load(Relaxed) >= 5);
}

#[test]
fn with_connections__are_no_more_than_there_are_files_to_share_out() {
    let lab = Lab::new(false);
    for name in ["one", "two"] {
        fs::write(lab.local(name), content(300_000)).unwrap();
    }
    let put = |names: &[&str]| {
        let (client, connected) = counting(&lab, None);
        let sources: Vec<_> = names.iter().map(|name| lab.local(name)).collect();
        let client = client.with_connections(8);
        let totals = client.put(&sources, b"", &CopyOptions::default(), &());
        assert_eq!(totals.unwrap().files, names.len() as u64);
        connected.load(Relaxed)
    };
    assert_eq!(put(&["one"]), 1);
    assert_eq!(put(&["one", "two"]), 2);
    assert!(fs::read(lab.share("two")).unwrap() == content(300_000));
}

#[test]
fn with_connections__are_no_more_than_the_rate_is_for() {
    let lab = Lab::new(false);
    let sources: Vec<_> = (0..8).map(|it| lab.local(&it.to_string())).collect();
    for source in &sources {
        fs::write(source, b"small").unwrap();
    }
    for (rate, connections) in [(3 * LEAST_RATE - 1, 2), (LEAST_RATE, 1)] {
        let (client, connected) = counting(&lab, None);
        let client = client.with_connections(8).with_max_rate(Some(rate));
        let totals = client.put(&sources, b"", &CopyOptions::default(), &());
        assert_eq!(totals.unwrap().files, 8);
        assert_eq!(connected.load(Relaxed), connections, "{rate}");
    }
}

#[test]
fn with_connections__a_refusal_is_told_once_and_nothing_else_is_tried() {
    let lab = Lab::new(true);
    tree(&lab.local("tree"));
    let (client, connected) = counting(&lab, None);
    let client = client.with_connections(4);
    let put = client.put(&[lab.local("tree")], b"", &RECURSIVE, &());
    assert_eq!(refusal(put), Refusal::ReadOnly);
    assert_eq!(connected.load(Relaxed), 1);
    unlock(&lab.local("tree"));
}

#[test]
fn with_connections__a_stop_ends_all() {
    let lab = Lab::new(false);
    let at = lab.local("tree");
    fs::create_dir(&at).unwrap();
    for file in 0..8 {
        fs::write(at.join(format!("{file}")), content(20 << 20)).unwrap();
    }
    let stop = Stop::default();
    let client = lab.client().with_connections(3).with_stop(stop.clone());
    let ended = client.put(&[at], b"", &RECURSIVE, &StopsAtOnce(stop));
    assert!(matches!(ended, Err(Error::Stopped)), "{ended:?}");
}

#[test]
fn sum__is_the_error_that_stopped_the_others() {
    let files = |files| {
        Ok(Totals {
            files,
            ..Totals::default()
        })
    };
    assert_eq!(sum([files(1), files(2)].into_iter()).unwrap().files, 3);
    let stopped = || Err(Error::Stopped);
    for ended in [
        [stopped(), Err(Error::PeerGone), files(1)],
        [files(1), Err(Error::PeerGone), stopped()],
        [Err(Error::PeerGone), stopped(), stopped()],
    ] {
        let told = sum(ended.into_iter());
        assert!(matches!(told, Err(Error::PeerGone)), "{told:?}");
    }
    let all = sum([stopped(), files(1), stopped()].into_iter());
    assert!(matches!(all, Err(Error::Stopped)), "{all:?}");
}

#[test]
fn Together__tells_of_each_kind_once_and_of_bytes_in_all() {
    struct Told(Mutex<Vec<String>>);
    impl Observer for Told {
        fn not_kept(&self, failure: &Failure, there: bool) {
            let mut told = self.0.lock().unwrap();
            told.push(format!("{} {there}", escape(&failure.path)));
        }

        fn reconnected(&self, _outage: Duration, bytes: u64) {
            self.0.lock().unwrap().push(format!("from {bytes}"));
        }
    }
    let told = Told(Mutex::default());
    let together = Together::new(&told, 2);
    let [one, two] = [0, 1].map(|index| together.share(index));
    let failure = |path: &str| Failure::new(path.as_bytes(), Cause::NotFound);
    one.not_kept(&failure("a"), false);
    two.not_kept(&failure("b"), false);
    two.not_kept(&failure("c"), true);
    one.advanced(10);
    two.advanced(7);
    one.reconnected(Duration::ZERO, 4);
    assert_eq!(told.0.lock().unwrap()[..], ["a false", "c true", "from 11"]);
}
