//! Tests that followed links stay below the served directory.

#![allow(non_snake_case)]

use super::*;
use crate::root::READ_FILE;
use std::fs as std_fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

/// root/{sub/file, and links}, outside/secret
fn tree() -> (tempfile::TempDir, Links) {
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().join(name);
    std_fs::create_dir_all(at("root/sub")).unwrap();
    std_fs::create_dir(at("outside")).unwrap();
    std_fs::write(at("root/sub/file"), b"inside").unwrap();
    std_fs::write(at("outside/secret"), b"secret").unwrap();
    for (name, target) in [
        ("within", "sub/file"),
        ("sub/up", "../sub/file"),
        ("directory", "sub"),
        ("twice", "within"),
        ("out", "../outside/secret"),
        ("through", "hidden/secret"),
        ("hidden", "../outside"),
        ("up", "sub/../../outside/secret"),
        ("none", "missing"),
        ("no-directory", "sub/file/x"),
        ("round", "round"),
    ] {
        symlink(target, at("root").join(name)).unwrap();
    }
    symlink(at("outside/secret"), at("root/absolute")).unwrap();
    // An absolute path to the inside cannot be told from other absolute paths.
    symlink(at("root/sub/file"), at("root/absolute-inside")).unwrap();
    let root = Arc::new(Root::open(&at("root")).unwrap());
    (base, Links::below(true, &root))
}

fn look(base: &tempfile::TempDir, links: &Links, name: &str) -> Result<EntryKind, Cause> {
    let (below, last) = name.rsplit_once('/').unwrap_or(("", name));
    let directory = std_fs::File::open(base.path().join("root").join(below)).unwrap();
    let path = || name.as_bytes().to_vec();
    let stat = links.stat(&directory, last.as_bytes(), path)?;
    let kind = kind_of(&stat);
    if kind == EntryKind::File {
        let file = links.open(&directory, last.as_bytes(), path, READ_FILE)?;
        assert_eq!(identity(&fs::fstat(&file)?), identity(&stat));
    }
    Ok(kind)
}

#[test]
fn stat_and_open__below_a_served_directory() {
    let (base, links) = tree();
    for inside in ["within", "sub/up", "twice", "sub/file"] {
        assert_eq!(look(&base, &links, inside), Ok(EntryKind::File), "{inside}");
    }
    let directory = look(&base, &links, "directory");
    assert_eq!(directory, Ok(EntryKind::Directory));
    for outside in [
        "out",
        "through",
        "up",
        "absolute",
        "absolute-inside",
        "hidden",
    ] {
        let looked = look(&base, &links, outside);
        assert_eq!(looked, Err(Cause::OutsideRoot), "{outside}");
    }
    for nowhere in ["none", "no-directory", "round"] {
        let looked = look(&base, &links, nowhere);
        assert_eq!(looked, Err(Cause::LinkToNothing), "{nowhere}");
    }
    // A file is not a dangling link.
    let root = std_fs::File::open(base.path().join("root/sub")).unwrap();
    let opened = links.open(
        &root,
        b"file",
        || b"sub/file".to_vec(),
        crate::root::DIRECTORY,
    );
    assert_eq!(opened.unwrap_err(), Cause::NotADirectory);
}

#[test]
fn stat_and_open__of_ones_own() {
    let (base, _) = tree();
    for (links, kind) in [
        (Links::local(true), EntryKind::File),
        (Links::local(false), EntryKind::Link),
    ] {
        for name in ["within", "out", "through", "absolute"] {
            assert_eq!(look(&base, &links, name), Ok(kind), "{name}");
        }
    }
    let nowhere = look(&base, &Links::local(true), "none");
    assert_eq!(nowhere, Err(Cause::LinkToNothing));
}

#[test]
fn open__while_links_change_places() {
    const TRIES: usize = 5000;
    let (base, links) = tree();
    let root = std_fs::File::open(base.path().join("root")).unwrap();
    let done = AtomicBool::new(false);
    let (mut opened, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let exchange = fs::RenameFlags::EXCHANGE;
                fs::renameat_with(&root, "within", &root, "out", exchange).unwrap();
            }
        });
        for tries in 0..100 * TRIES {
            if tries >= TRIES && opened > 0 && refused > 0 {
                break;
            }
            match links.open(&root, b"within", || b"within".to_vec(), READ_FILE) {
                Ok(file) => {
                    let content = std::io::read_to_string(std_fs::File::from(file)).unwrap();
                    assert_eq!(content, "inside");
                    opened += 1;
                }
                Err(_) => refused += 1,
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(opened > 0 && refused > 0, "{opened} and {refused}");
}
