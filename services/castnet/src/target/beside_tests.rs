//! Tests that only regular files of this user alone are accepted beside a target.
#![allow(non_snake_case)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;

use super::*;

/// A directory with a file of this user's elsewhere, and a name of a partial file.
struct Place {
    base: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("precious"), "precious").unwrap();
        Place { base }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.base.path().join(name)
    }

    fn open(&self) -> Result<File, Error> {
        open_partial(&self.path("part"), PRIVATE, &self.path("target"))
    }

    #[track_caller]
    fn refuses(self) {
        let error = self.open().unwrap_err();
        assert!(matches!(error, Error::InTheWay(_)), "{error}");
        let precious = fs::read(self.path("precious")).unwrap();
        assert_eq!(precious, b"precious");
        assert!(self.path("part").symlink_metadata().is_ok(), "it stays");
    }
}

#[test]
fn partial__of_this_user_alone_is_made_and_found_again() {
    let place = Place::new();
    let mut made = place.open().unwrap();
    made.write_all(b"a part").unwrap();
    assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(place.open(), Err(Error::Busy(_))), "it is locked");
    drop(made);
    let found = place.open().unwrap();
    assert_eq!(found.metadata().unwrap().len(), 6);
}

#[test]
fn partial__that_is_a_link_is_refused() {
    let place = Place::new();
    symlink(place.path("precious"), place.path("part")).unwrap();
    place.refuses();
    let place = Place::new();
    symlink(place.path("new"), place.path("part")).unwrap();
    place.refuses();
    let place = Place::new();
    symlink("part", place.path("part")).unwrap();
    place.refuses();
}

#[test]
fn partial__that_has_other_names_is_refused() {
    let place = Place::new();
    fs::hard_link(place.path("precious"), place.path("part")).unwrap();
    place.refuses();
}

#[test]
fn partial__that_is_no_file_is_refused_and_not_waited_for() {
    let place = Place::new();
    let made = Command::new("mkfifo").arg(place.path("part")).status();
    assert!(made.unwrap().success());
    place.refuses();
    let place = Place::new();
    fs::create_dir(place.path("part")).unwrap();
    place.refuses();
    let place = Place::new();
    let _socket = std::os::unix::net::UnixListener::bind(place.path("part")).unwrap();
    place.refuses();
}

#[test]
fn partial__of_another_user_is_refused() {
    let place = Place::new();
    fs::write(place.path("part"), "another's").unwrap();
    if chown(place.path("part"), Some(12345), None).is_err() {
        return eprintln!("skipped: this user gives no file away");
    }
    place.refuses();
}

/// As when the one that had it gives it its last name before this one has its lock.
#[test]
fn partial__that_went_meanwhile_is_not_the_one_at_the_name() {
    let place = Place::new();
    let (path, target) = (place.path("part"), place.path("target"));
    drop(place.open().unwrap());
    let completes = || {
        if !target.exists() {
            fs::write(&path, "complete").unwrap();
            fs::rename(&path, &target).unwrap();
        }
    };
    let mut another = open_and_lock(&path, PRIVATE, &target, completes).unwrap();
    another.write_all(b"a part").unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"complete");
    assert_eq!(fs::read(&path).unwrap(), b"a part");
    fs::remove_file(&path).unwrap();
    symlink("elsewhere", &path).unwrap();
    fs::rename(&target, place.path("elsewhere")).unwrap();
    let complete = fs::metadata(&path).unwrap();
    assert!(!stands_at(&path, &complete), "a link to it is another");
}

#[test]
fn replace__what_is_there_is_not_written_to() {
    let place = Place::new();
    let list = place.path("list");
    symlink(place.path("precious"), &list).unwrap();
    replace(&list, b"list").unwrap();
    assert_eq!(fs::read(place.path("precious")).unwrap(), b"precious");
    assert!(!list.is_symlink());
    assert_eq!(fs::read(&list).unwrap(), b"list");
    fs::remove_file(&list).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&list)
            .status()
            .unwrap()
            .success()
    );
    replace(&list, b"other").unwrap();
    assert_eq!(fs::read(&list).unwrap(), b"other");
    assert_eq!(fs::read_dir(place.base.path()).unwrap().count(), 2);
}

#[test]
fn directory__is_made_anew_and_what_is_no_directory_of_this_user_stays() {
    let place = Place::new();
    let path = place.path("tree");
    make_directory(&path).unwrap();
    fs::write(path.join("left"), "left").unwrap();
    make_directory(&path).unwrap();
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o700
    );
    fs::remove_dir(&path).unwrap();
    let elsewhere = place.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("precious"), "precious").unwrap();
    symlink(&elsewhere, &path).unwrap();
    let error = make_directory(&path).unwrap_err();
    assert!(matches!(error, Error::InTheWay(_)), "{error}");
    assert!(path.is_symlink() && elsewhere.join("precious").exists());
    if chown(&elsewhere, Some(12345), None).is_err() {
        return eprintln!("skipped: this user gives no file away");
    }
    let error = make_directory(&elsewhere).unwrap_err();
    assert!(matches!(error, Error::InTheWay(_)), "{error}");
    assert!(elsewhere.join("precious").exists());
}
