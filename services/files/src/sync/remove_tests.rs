//! Tests that a sync removes listed entries alone.

#![allow(non_snake_case)]

use super::*;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

fn removing(path: &Path, name: &str) -> Step {
    let meta = path.join(name).symlink_metadata().unwrap();
    let kind = match meta.file_type() {
        it if it.is_dir() => EntryKind::Directory,
        it if it.is_symlink() => EntryKind::Link,
        _ => EntryKind::File,
    };
    Step::Remove {
        name: name.into(),
        kind,
        inode: meta.ino(),
    }
}

fn enter(name: &str) -> Step {
    Step::Enter {
        name: name.into(),
        instead: None,
    }
}

/// How many entries were removed, and the failures.
fn carry_out(base: &Path, steps: &[Step]) -> Result<(u64, Vec<(String, Cause)>), Error> {
    let encode = |plan, step| postcard::to_extend(step, plan).unwrap();
    let plan = steps.iter().fold(Vec::new(), encode);
    let (mut removed, mut failures) = (0, Vec::new());
    let base = File::open(base).unwrap().into();
    remove(base, &plan, None, &Stop::default(), |outcome| {
        match outcome {
            Ok(_) => removed += 1,
            Err(failure) => failures.push((crate::escape(&failure.path), failure.cause)),
        }
        Ok(())
    })?;
    Ok((removed, failures))
}

#[test]
fn remove__what_was_listed_and_the_time_stays() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path();
    fs::create_dir_all(path.join("d/e")).unwrap();
    fs::write(path.join("d/e/f"), b"x").unwrap();
    fs::write(path.join("stays"), b"x").unwrap();
    symlink("../stays", path.join("d/link")).unwrap();
    let steps = [
        enter("d"),
        enter("e"),
        removing(&path.join("d/e"), "f"),
        Step::Leave,
        removing(&path.join("d"), "e"),
        removing(&path.join("d"), "link"),
        Step::Leave,
    ];
    let before = path.join("d").metadata().unwrap();
    assert_eq!(carry_out(path, &steps).unwrap(), (3, vec![]));
    let after = path.join("d").metadata().unwrap();
    assert_eq!(
        (before.mtime(), before.mtime_nsec(), before.mode()),
        (after.mtime(), after.mtime_nsec(), after.mode())
    );
    assert_eq!(fs::read(path.join("stays")).unwrap(), b"x");
    // An entry that vanished is not a failure.
    assert_eq!(carry_out(path, &steps).unwrap(), (0, vec![]));
}

#[test]
fn remove__nothing_but_what_was_listed() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path();
    fs::create_dir_all(path.join("outside")).unwrap();
    fs::create_dir_all(path.join("full")).unwrap();
    for file in ["file", "other", "outside/file", "full/new"] {
        fs::write(path.join(file), b"x").unwrap();
    }
    let steps = [removing(path, "file"), removing(path, "full")];
    let below = removing(&path.join("outside"), "file");
    // Another file came in its place, and a link in that of a directory.
    fs::rename(path.join("other"), path.join("file")).unwrap();
    symlink("outside", path.join("link")).unwrap();
    let changed = Cause::ChangedSinceListed;
    let (removed, failures) = carry_out(path, &steps).unwrap();
    assert_eq!(removed, 0);
    assert_eq!(failures[0], ("file".to_owned(), changed.clone()));
    assert_eq!(failures[1].0, "full");
    let through = [enter("link"), below, Step::Leave];
    assert_eq!(
        carry_out(path, &through).unwrap(),
        (0, vec![("link".to_owned(), changed)])
    );
    for file in ["file", "outside/file", "full/new"] {
        assert!(path.join(file).exists(), "{file}");
    }
}

#[test]
fn remove__plans_that_cannot_be() {
    let base = tempfile::tempdir().unwrap();
    let copy = Step::Copy {
        name: b"a".to_vec(),
        instead: None,
        old: false,
    };
    let up = enter("..");
    let deep: Vec<_> = (0..=TREE_DEPTH).map(|_| enter("d")).collect();
    for plan in [&[Step::Leave][..], &[copy], &[up], &deep] {
        let carried = carry_out(base.path(), plan);
        assert!(matches!(carried, Err(Error::Protocol(_))), "{carried:?}");
    }
}
