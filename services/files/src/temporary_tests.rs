//! Tests that temporary files are claimed, found again and renamed without touching other files.

#![allow(non_snake_case)]
use super::*;
use crate::positioned::write_at;
use rustix::fs::inotify;
use std::fs::{File, read, read_dir, write};
use std::mem::MaybeUninit;
use std::os::unix::fs::symlink;
use std::path::Path;

fn open(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

fn count(path: &Path) -> usize {
    read_dir(path).unwrap().count()
}

fn text(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap()
}

#[test]
fn lasting_name__fits_and_differs() {
    let long = [b'x'; NAME_BYTES];
    let mut other = long;
    other[254] = b'y';
    let names = [
        lasting_name(b"a", 0),
        lasting_name(b"a", 1),
        lasting_name(&long, 0),
        lasting_name(&other, 0),
        random_name().unwrap(),
        random_name().unwrap(),
    ];
    assert!(names.iter().all(|name| name.len() <= NAME_BYTES));
    let different: std::collections::HashSet<_> = names.iter().collect();
    assert_eq!(different.len(), names.len());
    assert!(names[0].starts_with(b".a.") && names[0].ends_with(b".zlpart"));
}

/// A copy may be killed at any moment: a file that it leaves without a mark is never recognized again.
#[test]
fn claim__marks_before_the_name_is_there() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    if unnamed(dir.as_fd()).unwrap().is_none() {
        eprintln!("skipped: this system makes no files without names");
        return;
    }
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    let changes =
        inotify::WatchFlags::CREATE | inotify::WatchFlags::ATTRIB | inotify::WatchFlags::MODIFY;
    inotify::add_watch(&watch, base.path(), changes).unwrap();
    let made = claim(dir.as_fd(), b"a").unwrap();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    // Here an unnamed file has a name that only the system knows.
    let under_its_name: Vec<_> = std::iter::from_fn(|| {
        let event = events.next().ok()?;
        Some((event.events(), event.file_name()?.to_bytes().to_vec()))
    })
    .filter(|(_, name)| *name == made.name)
    .collect();
    // Neither an attribute nor content is written after the name exists.
    assert_eq!(under_its_name, [(inotify::ReadFlags::CREATE, made.name)]);
}

#[test]
fn claim__passes_by_what_is_anothers() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    let at = |number| base.path().join(text(&lasting_name(b"a", number)));
    write(base.path().join("victim"), b"precious").unwrap();
    write(at(0), b"mine").unwrap();
    symlink("victim", at(1)).unwrap();
    std::fs::hard_link(base.path().join("victim"), at(2)).unwrap();
    std::fs::create_dir(at(3)).unwrap();
    nix::unistd::mkfifo(&at(4), nix::sys::stat::Mode::S_IRWXU).unwrap();
    // A temporary file, but for another name.
    let others = claim(dir.as_fd(), b"b").unwrap();
    write_at(others.file.as_fd(), b"of b", 0).unwrap();
    std::fs::rename(base.path().join(text(&others.name)), at(5)).unwrap();
    let ours = claim(dir.as_fd(), b"a").unwrap();
    assert_eq!(ours.name, lasting_name(b"a", 6));
    assert_eq!(read(base.path().join("victim")).unwrap(), b"precious");
    assert_eq!(read(at(0)).unwrap(), b"mine");
    assert_eq!(read(at(5)).unwrap(), b"of b");

    // A later claim finds the content that was left.
    write_at(ours.file.as_fd(), b"left", 0).unwrap();
    let inode = fs::fstat(&ours.file).unwrap().st_ino;
    drop(ours);
    let again = claim(dir.as_fd(), b"a").unwrap();
    assert_eq!(fs::fstat(&again.file).unwrap().st_ino, inode);
    assert_eq!(claim(dir.as_fd(), b"a").unwrap_err(), Cause::Busy);
}

#[test]
fn claim__without_a_name_left_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    for number in 0..TEMPORARY_NAMES {
        write(base.path().join(text(&lasting_name(b"a", number))), b"").unwrap();
    }
    let refused = claim(dir.as_fd(), b"a").unwrap_err();
    assert_eq!(refused, Cause::TemporaryTaken);
    assert_eq!(count(base.path()), TEMPORARY_NAMES as usize);
}

#[test]
fn claim__of_another_user_is_passed_by() {
    if !geteuid().is_root() {
        eprintln!("skipped: needs root, to give a file away");
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    let left = claim(dir.as_fd(), b"a").unwrap();
    fs::fchown(&left.file, Some(rustix::fs::Uid::from_raw(65534)), None).unwrap();
    drop(left);
    let ours = claim(dir.as_fd(), b"a").unwrap();
    assert_eq!(ours.name, lasting_name(b"a", 1));
}

#[test]
fn set_aside__only_what_it_is() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    let path = |name: &[u8]| base.path().join(text(name));
    let ours = claim(dir.as_fd(), b"a").unwrap();
    let aside = set_aside(dir.as_fd(), &ours.name, ours.file.as_fd()).unwrap();
    assert!(path(&aside).exists() && !path(&ours.name).exists());
    put_back(dir.as_fd(), &aside, &ours.name);
    assert!(!path(&aside).exists() && path(&ours.name).exists());
    // Another file came there: neither is lost.
    let aside = set_aside(dir.as_fd(), &ours.name, ours.file.as_fd()).unwrap();
    write(path(&ours.name), b"theirs").unwrap();
    put_back(dir.as_fd(), &aside, &ours.name);
    assert_eq!(read(path(&ours.name)).unwrap(), b"theirs");
    let lost = set_aside(dir.as_fd(), &ours.name, ours.file.as_fd());
    assert_eq!(lost, Err(Cause::TemporaryLost));
    remove(dir.as_fd(), &ours.name, ours.file.as_fd());
    assert_eq!(read(path(&ours.name)).unwrap(), b"theirs");
    assert_eq!(count(base.path()), 2);
}

#[test]
fn set_aside__while_another_program_changes_what_stands_there() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let base = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = open(base.path());
    let name = lasting_name(b"a", 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            write(base.path().join("theirs"), b"theirs").unwrap();
            let exchange = RenameFlags::EXCHANGE;
            while !done.load(Ordering::Relaxed) {
                // The name is briefly absent now and then.
                let _ = fs::renameat_with(&dir, &*name, &dir, "theirs", exchange);
            }
        });
        for _ in 0..5000 {
            let Ok(ours) = claim(dir.as_fd(), b"a") else {
                continue;
            };
            if let Ok(aside) = set_aside(dir.as_fd(), &ours.name, ours.file.as_fd()) {
                assert!(stands_at(dir.as_fd(), &aside, ours.file.as_fd()));
                fs::unlinkat(&dir, &*aside, AtFlags::empty()).unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let theirs = read_dir(base.path())
        .unwrap()
        .map(|it| read(it.unwrap().path()).unwrap());
    assert!(
        theirs.into_iter().any(|bytes| bytes == b"theirs"),
        "never lost"
    );
}

#[test]
fn unnamed__gets_a_name_or_vanishes() {
    let base = tempfile::tempdir().unwrap();
    let dir = open(base.path());
    let Some(file) = unnamed(dir.as_fd()).unwrap() else {
        eprintln!("skipped: this system makes no files without names");
        return;
    };
    assert_eq!(count(base.path()), 0);
    write_at(file.as_fd(), b"content", 0).unwrap();
    assert!(link(dir.as_fd(), file.as_fd(), b"a").unwrap());
    assert!(!link(dir.as_fd(), file.as_fd(), b"a").unwrap());
    assert_eq!(read(base.path().join("a")).unwrap(), b"content");
}
