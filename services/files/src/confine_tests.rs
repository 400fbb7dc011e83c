//! Tests that a confined server reaches nothing outside of its directory.

#![allow(non_snake_case)]
use super::*;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;

/// Runs `body` in a thread that is confined first; other threads stay free. False if the kernel has no Landlock.
fn confined(directory: &Path, write: bool, readable: &[&Path], body: impl FnOnce() + Send) -> bool {
    std::thread::scope(|scope| {
        let run = || {
            let outcome = confine(open(directory).as_fd(), write, readable).expect("confined");
            if outcome != Confinement::Full {
                eprintln!("skipped: this kernel confines {outcome:?}");
                return false;
            }
            body();
            true
        };
        scope.spawn(run).join().expect("no panic")
    })
}

fn open(directory: &Path) -> fs::File {
    fs::File::open(directory).expect("opened")
}

fn denied<T: std::fmt::Debug>(outcome: io::Result<T>) {
    let kind = outcome.map_err(|error| error.kind());
    assert_eq!(kind.expect_err("denied"), ErrorKind::PermissionDenied);
}

#[test]
fn confine__nothing_but_the_directory_and_what_is_readable() {
    let base = tempfile::tempdir().expect("made");
    let at = |name: &str| base.path().join(name);
    for name in ["served", "keys", "other"] {
        fs::create_dir(at(name)).expect("made");
        fs::write(at(name).join("file"), name).expect("written");
    }
    confined(&at("served"), true, &[&at("keys"), &at("missing")], || {
        // Below the directory: everything that the service does.
        fs::write(at("served/part"), b"new").expect("written");
        fs::create_dir(at("served/below")).expect("made");
        fs::rename(at("served/part"), at("served/below/new")).expect("renamed");
        std::os::unix::fs::symlink("file", at("served/link")).expect("linked");
        assert_eq!(
            fs::read_dir(at("served")).expect("listed").count(),
            3,
            "file, below, link"
        );
        fs::remove_file(at("served/below/new")).expect("removed");
        fs::remove_dir(at("served/below")).expect("removed");
        // The keys: reading alone.
        assert_eq!(fs::read(at("keys/file")).expect("read"), b"keys");
        denied(fs::write(at("keys/file"), b"changed"));
        denied(fs::write(at("keys/new"), b"new"));
        // Elsewhere: nothing, not even by a link or a move from inside.
        denied(fs::read(at("other/file")));
        denied(fs::read_dir(at("other")));
        denied(fs::write(at("other/new"), b"new"));
        std::os::unix::fs::symlink(at("other/file"), at("served/out")).expect("linked");
        denied(fs::read(at("served/out")));
        let moved = fs::rename(at("served/file"), at("other/moved"));
        assert!(moved.is_err(), "moved out");
        denied(fs::read("/etc/passwd"));
        // No programs, no TCP; UDP is unrestricted.
        denied(Command::new("/bin/true").status());
        denied(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        // Threads started from here are confined, too.
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| denied(fs::read(at("other/file"))));
            reads.join().expect("no panic");
        });
    });
    assert_eq!(fs::read(at("other/file")).expect("free"), b"other");
}

#[test]
fn confine__to_reading() {
    let base = tempfile::tempdir().expect("made");
    fs::write(base.path().join("file"), b"content").expect("written");
    confined(base.path(), false, &[], || {
        let file = base.path().join("file");
        assert_eq!(fs::read(&file).expect("read"), b"content");
        denied(fs::write(&file, b"changed"));
        denied(fs::write(base.path().join("new"), b"new"));
        denied(fs::remove_file(&file));
    });
}

#[test]
fn confine_to_sources__reads_them_and_nothing_else() {
    let base = tempfile::tempdir().expect("made");
    let at = |name: &str| base.path().join(name);
    fs::create_dir_all(at("tree/deep")).expect("made");
    for name in ["other", "apart"] {
        fs::create_dir(at(name)).expect("made");
    }
    for name in [
        "tree/deep/file",
        "single",
        "beside",
        "other/file",
        "apart/file",
    ] {
        fs::write(at(name), name).expect("written");
    }
    std::os::unix::fs::symlink("other", at("link")).expect("linked");
    std::os::unix::fs::symlink("../apart", at("tree/below")).expect("linked");
    let sources = ["tree", "single", "link", "missing"].map(at);
    std::thread::scope(|scope| {
        let body = || {
            if confine_to_sources(&sources).expect("confined") != Confinement::Full {
                eprintln!("skipped: this kernel confines in part, or not");
                return;
            }
            assert_eq!(fs::read_dir(at("tree")).expect("listed").count(), 2);
            for name in ["tree/deep/file", "single", "other/file"] {
                assert_eq!(fs::read(at(name)).expect("read"), name.as_bytes());
                denied(fs::write(at(name), b"changed"));
            }
            fs::read(BOOT_ID).expect("read");
            // For a named link the target is sent; a link below is sent as a link.
            assert_eq!(fs::read(at("link/file")).expect("read"), b"other/file");
            fs::read_link(at("tree/below")).expect("read");
            for name in ["beside", "apart/file", "tree/below/file"] {
                denied(fs::read(at(name)));
            }
            denied(fs::read_dir(base.path()));
            denied(fs::write(at("tree/new"), b"new"));
            denied(fs::remove_file(at("tree/deep/file")));
            denied(Command::new("/bin/true").status());
            denied(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
            UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        };
        scope.spawn(body).join().expect("no panic");
    });
}
