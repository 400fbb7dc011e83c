//! Tests that packing gives the same archive each time, and reports a tree that changes meanwhile.
#![allow(non_snake_case)]

use std::cell::Cell;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use super::*;

/// Something that happens as soon as the archive begins.
struct Once<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Write for Once<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.take().into_iter().for_each(|it| it());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const GOES_ON: &dyn Fn() -> bool = &|| false;

#[test]
fn pack__a_tree_that_changes_meanwhile_is_an_error_that_names_what() {
    let changed = |change: fn(&Path)| {
        let tree = tempfile::tempdir().unwrap();
        let tree = tree.path();
        fs::create_dir(tree.join("a")).unwrap();
        fs::write(tree.join("a/file"), [1; 3000]).unwrap();
        symlink("nowhere", tree.join("link")).unwrap();
        // A clock of few ticks may have the same time for what comes now.
        let directory = File::open(tree.join("a")).unwrap();
        directory.set_modified(UNIX_EPOCH).unwrap();
        match pack(tree, Once(Some(|| change(tree))), GOES_ON) {
            Ok(_) => None,
            Err(Error::Changed(what)) => {
                let what = Path::new(&what).strip_prefix(tree).unwrap();
                Some(what.display().to_string())
            }
            Err(error) => panic!("{error}"),
        }
    };
    let named = |path: &str| Some(path.to_owned());
    assert_eq!(changed(|_| {}), None);
    fn set_len(tree: &Path, len: u64) {
        let file = File::options().write(true).open(tree.join("a/file"));
        file.unwrap().set_len(len).unwrap();
    }
    assert_eq!(changed(|it| set_len(it, 5000)), named("a/file"));
    assert_eq!(changed(|it| set_len(it, 1000)), named("a/file"));
    assert_eq!(
        changed(|it| fs::write(it.join("a/new"), []).unwrap()),
        named("a/new")
    );
    assert_eq!(
        changed(|it| fs::remove_file(it.join("a/file")).unwrap()),
        named("a")
    );
}

#[test]
fn pack__ends_when_its_user_stops_it() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("file"), vec![1; 1 << 20]).unwrap();
    for after in 0..5 {
        let asked = Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) >= after;
        let packed = pack(tree.path(), io::sink(), &stop);
        assert!(matches!(packed, Err(Error::Stopped)), "{packed:?}");
        assert!(asked.get() < after + 5, "{} times asked", asked.get());
    }
}

#[test]
fn pack__what_is_no_file_is_named_up_to_a_number() {
    let tree = tempfile::tempdir().unwrap();
    let names = MOST_NAMED + 5;
    let made = Command::new("mkfifo")
        .current_dir(tree.path())
        .args((0..names).map(|it| it.to_string()))
        .status();
    assert!(made.unwrap().success());
    let skipped = pack(tree.path(), io::sink(), GOES_ON).unwrap();
    assert_eq!(skipped.count, names as u64);
    assert_eq!(skipped.named.len(), MOST_NAMED);
    assert_eq!(skipped.named[0], tree.path().join("0"));
}

/// A restarted source has the same content for hosts that have a part of it.
#[test]
fn pack__a_tree_is_the_same_archive_each_time() {
    let tree = tempfile::tempdir().unwrap();
    for name in ["b", "a", "c"] {
        fs::create_dir(tree.path().join(name)).unwrap();
        fs::write(tree.path().join(name).join("file"), name).unwrap();
    }
    let packed = || {
        let mut bytes = Vec::new();
        pack(tree.path(), &mut bytes, GOES_ON).unwrap();
        bytes
    };
    assert!(packed() == packed());
}

/// A command or standard output receives an archive made by another user.
#[test]
fn pack__what_others_can_read() {
    let (tree, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (tree.path(), there.path());
    let directory = "d".repeat(120);
    fs::create_dir(from.join(&directory)).unwrap();
    let deep = format!("{directory}/{}", "f".repeat(200));
    fs::write(from.join(&deep), "deep").unwrap();
    symlink(&deep, from.join("link")).unwrap();
    fs::hard_link(from.join(&deep), from.join("other name")).unwrap();
    let sparse = File::create(from.join("holes")).unwrap();
    sparse.set_len(8 << 20).unwrap();
    sparse.write_all_at(b"data", 3 << 20).unwrap();
    let long_ago = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    sparse.set_modified(long_ago).unwrap();
    let archive = to.join("archive");
    pack(from, File::create(&archive).unwrap(), GOES_ON).unwrap();
    let mut tar = Command::new("tar");
    let Ok(done) = tar.arg("-xf").arg(&archive).current_dir(to).output() else {
        return eprintln!("skipped: there is no tar");
    };
    assert!(done.status.success(), "{done:?}");
    assert_eq!(fs::read(to.join(&deep)).unwrap(), b"deep");
    assert_eq!(fs::read(to.join("link")).unwrap(), b"deep");
    let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
    assert_eq!(inode(&deep), inode("other name"));
    let (here, there) = (from.join("holes"), to.join("holes"));
    assert!(fs::read(&here).unwrap() == fs::read(&there).unwrap());
    let there = fs::metadata(there).unwrap();
    assert_eq!(there.modified().unwrap(), long_ago);
    assert!(there.blocks() * 512 < 1 << 20, "{} blocks", there.blocks());
}

#[test]
fn stretches_of__a_file_and_its_map() {
    let file = tempfile::tempfile().unwrap();
    let stretches = || stretches_of(&file, &file.metadata().unwrap());
    assert_eq!(stretches(), [(0, 0)]);
    file.set_len(1 << 20).unwrap();
    assert_eq!(stretches(), [(1 << 20, 0)]);
    let map = map_of(&stretches());
    assert_eq!(
        (&map[..14], map.len()),
        (&b"1\n1048576\n0\n\0\0"[..], BLOCK)
    );
    file.write_all_at(&[1; 1 << 20], 0).unwrap();
    assert_eq!(stretches(), [(0, 1 << 20)]);
}
