//! Tests that content is digested correctly, and that files of unsupported types are refused without blocking.
#![allow(non_snake_case)]

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::*;

const GOES_ON: &dyn Fn() -> bool = &|| false;

/// A content of a file that is held by it alone.
fn of_file(change: impl FnOnce(&File)) -> Content {
    let file = tempfile::tempfile().unwrap();
    change(&file);
    let len = file.metadata().unwrap().len();
    Content::new("file".into(), Form::Bytes, Store::File(Arc::new(file)), len)
}

#[test]
fn manifest__of_holes_is_that_of_zeros() {
    let chunk = LEAST_CHUNK as u32;
    let len = LEAST_CHUNK * 9 + 100;
    let sparse = of_file(|it| {
        it.set_len(len).unwrap();
        it.write_all_at(b"data", LEAST_CHUNK * 4 + 9).unwrap();
    });
    let full = of_file(|it| {
        it.write_all_at(&vec![0; len as usize], 0).unwrap();
        it.write_all_at(b"data", LEAST_CHUNK * 4 + 9).unwrap();
    });
    let manifest = |it: &Content| it.manifest(chunk, 1, GOES_ON).unwrap();
    assert_eq!(manifest(&sparse), manifest(&full));
    let zeros = manifest(&sparse).zeros();
    assert_eq!((zeros.count(), zeros.contains(4)), (9, false));
}

#[test]
fn manifest__of_a_file_that_became_shorter_is_an_error() {
    let content = of_file(|it| it.set_len(LEAST_CHUNK * 4).unwrap());
    let Store::File(file) = content.store() else {
        panic!("it is a file");
    };
    file.set_len(LEAST_CHUNK * 3).unwrap();
    let error = content.manifest(LEAST_CHUNK as u32, 1, GOES_ON);
    assert!(matches!(error, Err(Error::Changed(_))), "{error:?}");
}

#[test]
fn manifest__ends_when_its_user_stops_it() {
    // All of it would take minutes.
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 40).unwrap();
    let device = Store::Device(Arc::new(file));
    let content = Content::new("device".into(), Form::Bytes, device, 1 << 40);
    for after in 0..2 {
        let asked = std::cell::Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) >= after;
        let error = content.manifest(content.chunk_bytes(), 1, &stop);
        assert!(matches!(error, Err(Error::Stopped)), "{error:?}");
    }
}

#[test]
fn open__what_is_no_file_is_told_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let socket = directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, what) in [(&fifo, "is a stream"), (&socket, "is a socket")] {
        let error = Content::open(path, GOES_ON).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    let error = Content::open(Path::new("/dev/zero"), GOES_ON).unwrap_err();
    assert!(error.to_string().contains("is a stream"), "{error}");
}
