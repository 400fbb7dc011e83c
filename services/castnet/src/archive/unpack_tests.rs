//! Tests that unpacking refuses archives that no source packs.
#![allow(non_snake_case)]

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use tar::{Builder, Header};

use super::*;

/// A directory in which one is unpacked into, beside something of the receiver's.
struct Place {
    base: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("into")).unwrap();
        fs::create_dir(base.path().join("outside")).unwrap();
        fs::write(base.path().join("outside/precious"), "precious").unwrap();
        Place { base }
    }

    fn inside(&self) -> std::path::PathBuf {
        self.base.path().join("into")
    }

    fn unpack(&self, archive: Vec<u8>) -> io::Result<()> {
        let root = File::open(self.inside()).unwrap();
        unpack(root.as_fd(), &archive[..])
    }

    /// Nothing outside has changed.
    fn is_whole(&self) -> bool {
        let outside = self.base.path().join("outside");
        let names = |path: &Path| fs::read_dir(path).unwrap().count();
        let precious = fs::read(outside.join("precious")).unwrap();
        precious == b"precious" && names(&outside) == 1 && names(self.base.path()) == 2
    }
}

/// An archive that is made by hand.
struct Made(Builder<Vec<u8>>);

impl Made {
    fn new() -> Made {
        Made(Builder::new(Vec::new()))
    }

    fn header(kind: EntryType, path: &str) -> Header {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_size(0);
        header
    }

    fn put(mut self, mut header: Header, data: &[u8]) -> Made {
        header.set_size(data.len() as u64);
        header.set_cksum();
        self.0.append(&header, data).unwrap();
        self
    }

    fn file(self, path: &str) -> Made {
        self.put(Made::header(EntryType::Regular, path), b"evil")
    }

    fn directory(self, path: &str) -> Made {
        let mut header = Made::header(EntryType::Directory, path);
        header.set_mode(0o755);
        self.put(header, b"")
    }

    fn link(self, kind: EntryType, path: &str, to: &str) -> Made {
        let mut header = Made::header(kind, path);
        header.as_old_mut().linkname[..to.len()].copy_from_slice(to.as_bytes());
        self.put(header, b"")
    }

    fn records(mut self, records: &[(&str, &[u8])]) -> Made {
        let records = records.iter().copied();
        self.0.append_pax_extensions(records).unwrap();
        self
    }

    fn done(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

#[track_caller]
fn refused(made: Made, why: &str) {
    let place = Place::new();
    let error = place.unpack(made.done()).unwrap_err();
    assert!(error.to_string().contains(why), "{error}");
    assert!(place.is_whole());
}

#[test]
fn path__that_leaves_the_directory_is_refused() {
    let place = Place::new();
    let absolute = place.base.path().join("outside/new");
    for path in [
        "../outside/new",
        "a/../../outside/new",
        "..",
        "a/..",
        absolute.to_str().unwrap(),
        "/",
        "a//b",
        "./a",
        "a/./b",
        "",
    ] {
        refused(Made::new().directory("a/").file(path), "not a path below");
        let records: [(&str, &[u8]); 1] = [("path", path.as_bytes())];
        let made = Made::new().directory("a/").records(&records);
        refused(made.file("name"), "not a path below");
    }
    let records: [(&str, &[u8]); 1] = [("path", b"a\0b")];
    refused(
        Made::new().records(&records).file("name"),
        "not a path below",
    );
}

/// However it comes there.
#[test]
fn link__is_not_followed_on_the_way_to_what_is_unpacked() {
    let place = Place::new();
    let outside = place.base.path().join("outside");
    for to in [outside.to_str().unwrap(), "../outside"] {
        let made = || Made::new().link(EntryType::Symlink, "link", to);
        refused(made().file("link/new"), "before or after");
        refused(made().file("link"), "exists");
        refused(made().directory("link/"), "exists");
        let precious = format!("{to}/precious");
        let made = || Made::new().link(EntryType::Symlink, "link", &precious);
        refused(made().file("link"), "exists");
        refused(made().link(EntryType::Link, "other", "link"), "not a file");
    }
    // One that leads outside is content, as any other link.
    let made = Made::new().link(EntryType::Symlink, "link", "../outside/precious");
    place.unpack(made.done()).unwrap();
    let link = fs::read_link(place.inside().join("link")).unwrap();
    assert_eq!(link.to_str(), Some("../outside/precious"));
    assert!(place.is_whole());
}

#[test]
fn hard_link__to_what_is_outside_or_no_file_is_refused() {
    let place = Place::new();
    let outside = place.base.path().join("outside/precious");
    for to in ["../outside/precious", outside.to_str().unwrap(), "", "./"] {
        let made = Made::new().link(EntryType::Link, "name", to);
        let place = Place::new();
        assert!(place.unpack(made.done()).is_err(), "{to}");
        assert!(place.is_whole() && !place.inside().join("name").exists());
    }
    let through = Made::new()
        .link(EntryType::Symlink, "link", "../outside")
        .link(EntryType::Link, "name", "link/precious");
    let place = Place::new();
    let error = place.unpack(through.done()).unwrap_err();
    assert!(error.to_string().contains("name"), "{error}");
    assert!(place.is_whole() && !place.inside().join("name").exists());
    let directory = Made::new().directory("a").link(EntryType::Link, "b", "a");
    refused(directory, "not a file in the archive");
    refused(
        Made::new().link(EntryType::Link, "b", "none"),
        "No such file",
    );
}

#[test]
fn kind__that_no_source_casts_is_refused() {
    for kind in [
        EntryType::Fifo,
        EntryType::Char,
        EntryType::Block,
        EntryType::Continuous,
        EntryType::GNUSparse,
        EntryType::GNULongName,
        EntryType::XGlobalHeader,
        EntryType::new(b'?'),
    ] {
        let place = Place::new();
        let header = Made::header(kind, "name");
        let error = place.unpack(Made::new().put(header, b"").done());
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("name") && error.contains("is neither"),
            "{error}"
        );
        assert!(!place.inside().join("name").exists());
    }
}

#[test]
fn order__other_than_that_of_a_walk_is_refused() {
    refused(Made::new().file("a/file"), "before or after");
    let left = Made::new().directory("a").directory("b").file("a/file");
    refused(left, "before or after");
    refused(Made::new().file("a").file("a"), "exists");
    refused(Made::new().file("a").file("a/b"), "before or after");
    refused(Made::new().directory("./").directory("./"), "twice");
    refused(Made::new().file("./"), "not a directory");
}

#[test]
fn modes__none_gives_more_rights_than_its_owner_has() {
    let place = Place::new();
    let mut made = Made::new();
    for (name, mode) in [
        ("4755", 0o4755),
        ("2755", 0o2755),
        ("1777", 0o1777),
        ("7777", 0o7777),
    ] {
        let mut header = Made::header(EntryType::Regular, name);
        header.set_mode(mode);
        made = made.put(header, b"#!/bin/sh");
        let mut header = Made::header(EntryType::Directory, &format!("d{name}"));
        header.set_mode(mode);
        made = made.put(header, b"");
    }
    let mut root = Made::header(EntryType::Directory, "./");
    root.set_mode(0o7750);
    place.unpack(made.put(root, b"").done()).unwrap();
    let mode = |name: &str| fs::metadata(place.inside().join(name)).unwrap().mode() & 0o7777;
    for (name, mode_there) in [
        ("4755", 0o755),
        ("2755", 0o755),
        ("1777", 0o777),
        ("7777", 0o777),
    ] {
        assert_eq!(mode(name), mode_there, "{name}");
        assert_eq!(mode(&format!("d{name}")), mode_there, "{name}");
    }
    assert_eq!(mode("."), 0o750);
}

#[test]
fn records__that_are_too_long_or_of_nothing_are_refused() {
    let long = vec![b'a'; 70_000];
    let too_long: [(&str, &[u8]); 1] = [("comment", &long)];
    refused(Made::new().records(&too_long).file("a"), "too long");
    let short: [(&str, &[u8]); 1] = [("comment", b"a")];
    refused(Made::new().records(&short), "belong to no file");
    refused(
        Made::new().records(&short).records(&short).file("a"),
        "nested records",
    );
}

/// A file with holes, whose archive has this as the list of its data, and behind it.
fn with_map(len: u64, map: &[u8], data: &[u8]) -> Made {
    let len = len.to_string();
    let records: [(&str, &[u8]); 4] = [
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.name", b"holes"),
        ("GNU.sparse.realsize", len.as_bytes()),
    ];
    let mut all = map.to_vec();
    all.resize(map.len().next_multiple_of(BLOCK), 0);
    all.extend(data);
    let header = Made::header(EntryType::Regular, "other");
    Made::new().records(&records).put(header, &all)
}

#[test]
fn holes__are_where_the_list_says() {
    let place = Place::new();
    let made = with_map(1 << 20, b"2\n4096\n3\n1048574\n2\n", b"abcde");
    place.unpack(made.done()).unwrap();
    let there = fs::read(place.inside().join("holes")).unwrap();
    let mut wanted = vec![0; 1 << 20];
    wanted[4096..4099].copy_from_slice(b"abc");
    wanted[1_048_574..].copy_from_slice(b"de");
    assert!(there == wanted);
}

#[test]
fn holes__of_a_list_that_cannot_be_are_refused() {
    refused(with_map(10, b"1\n8\n3\n", b"abc"), "invalid offsets");
    refused(with_map(10, b"2\n5\n2\n4\n1\n", b"abc"), "invalid offsets");
    refused(
        with_map(10, b"1\n18446744073709551615\n2\n", b"ab"),
        "invalid offsets",
    );
    refused(with_map(10, b"1\n0\n5\n", b"ab"), "unexpected end");
    refused(with_map(10, b"9999999\n", b""), "malformed");
    refused(with_map(10, b"1\n0\n", b""), "malformed");
    refused(with_map(10, b"x\n", b""), "malformed");
    refused(with_map(10, &[b'1'; 600], b""), "malformed");
    // No file system has as much.
    let place = Place::new();
    let made = with_map(u64::MAX, b"1\n0\n0\n", b"");
    assert!(place.unpack(made.done()).is_err());
}

/// Whatever bytes come: an error or a tree, and nothing outside.
#[test]
fn archive__that_is_cut_or_damaged_harms_nothing() {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("a")).unwrap();
    fs::write(tree.path().join("a/file"), vec![7; 700]).unwrap();
    fs::hard_link(tree.path().join("a/file"), tree.path().join("b")).unwrap();
    symlink("a", tree.path().join("l".repeat(150))).unwrap();
    let mut archive = Vec::new();
    super::super::pack(tree.path(), &mut archive, &|| false).unwrap();
    let place = Place::new();
    place.unpack(archive.clone()).unwrap();
    for at in (0..archive.len()).step_by(97) {
        let place = Place::new();
        let _ = place.unpack(archive[..at].to_vec());
        let mut damaged = archive.clone();
        damaged[at] ^= 0x41;
        let other = Place::new();
        let _ = other.unpack(damaged);
        assert!(place.is_whole() && other.is_whole(), "{at}");
    }
}
