//! Tests that removing a tree never leaves the tree.

#![allow(non_snake_case)]

use super::*;
use crate::root::{Root, stat_at};
use rustix::fs::{RenameFlags, renameat_with};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const ALL: RemoveOptions = RemoveOptions {
    recursive: true,
    force: true,
    empty: false,
};

fn open(path: &Path) -> OwnedFd {
    fs::File::open(path).unwrap().into()
}

/// Removes `base/d`; returns the number of removed entries, and the failures.
fn remove(base: &Path) -> (u64, Vec<Failure>) {
    let parent = open(base);
    let inode = stat_at(&parent, b"d").unwrap().st_ino;
    let (mut removed, mut failures) = (0, Vec::new());
    let tell = |outcome: Result<(), Failure>| {
        match outcome {
            Ok(()) => removed += 1,
            Err(failure) => failures.push(failure),
        }
        Ok(())
    };
    remove_tree(&parent, b"d", (b"d", inode), ALL, &Stop::default(), tell).unwrap();
    (removed, failures)
}

#[test]
fn remove_tree__all_of_it_and_nothing_else() {
    let base = tempfile::tempdir().unwrap();
    fs::create_dir_all(base.path().join("d/a/b/c")).unwrap();
    fs::create_dir(base.path().join("d/empty")).unwrap();
    for file in ["d/x", "d/a/y", "d/a/b/c/z", "d2"] {
        fs::write(base.path().join(file), b"x").unwrap();
    }
    symlink("../d2", base.path().join("d/link")).unwrap();
    assert_eq!(remove(base.path()), (9, vec![]));
    let left: Vec<_> = fs::read_dir(base.path()).unwrap().collect();
    assert_eq!(left.len(), 1);
    assert!(base.path().join("d2").exists());
}

#[test]
fn remove_tree__another_directory_under_that_name_stays() {
    let base = tempfile::tempdir().unwrap();
    fs::create_dir(base.path().join("d")).unwrap();
    fs::write(base.path().join("d/x"), b"x").unwrap();
    let parent = open(base.path());
    let mut failures = Vec::new();
    let tell = |outcome: Result<(), Failure>| {
        failures.extend(outcome.err());
        Ok(())
    };
    remove_tree(&parent, b"d", (b"d", 1), ALL, &Stop::default(), tell).unwrap();
    assert_eq!(failures, [Failure::new(b"d", Cause::ChangedSinceListed)]);
    assert!(base.path().join("d/x").exists());
}

/// Ends the other thread, also when a check fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A directory in the tree is exchanged with a link to one outside all the time: the outside stays.
#[test]
fn remove_tree__while_directories_and_links_change_places() {
    const ROUNDS: usize = 100;
    for _ in 0..ROUNDS {
        let base = tempfile::tempdir().unwrap();
        for directory in ["outside", "d/sub/below"] {
            fs::create_dir_all(base.path().join(directory)).unwrap();
            for file in 0..20 {
                fs::write(base.path().join(directory).join(file.to_string()), b"x").unwrap();
            }
        }
        symlink("outside", base.path().join("link")).unwrap();
        let root = Root::open(base.path()).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let finished = Done(&done);
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // There may be nothing left to exchange.
                    let _ = renameat_with(&root, "d/sub", &root, "link", RenameFlags::EXCHANGE);
                }
            });
            remove(base.path());
            drop(finished);
        });
        let left = fs::read_dir(base.path().join("outside")).unwrap().count();
        assert_eq!(left, 20);
    }
}
