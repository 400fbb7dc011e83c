//! Tests that backups keep the old content of replaced and removed files.

#![allow(non_snake_case)]

use super::*;
use std::fs::{self as std_fs, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn backup(directory: Option<&[u8]>, suffix: &str) -> Backup {
    Backup {
        directory: directory.map(<[u8]>::to_vec),
        suffix: suffix.into(),
    }
}

fn opened(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

/// Backups of the files in `t` below `base`, made as by a server of `base`.
fn below(base: &Path, backup: &Backup) -> Result<Arc<Backups>, (Vec<u8>, Cause)> {
    let root = Root::open(base).unwrap();
    let destination = RelativePath::parse(b"t").unwrap();
    let made = Backups::below(
        &root,
        &destination,
        &opened(&base.join("t")),
        (backup, true),
    );
    made.map(Arc::new)
        .map_err(|(path, cause)| (path.to_vec(), cause))
}

fn read(path: impl AsRef<Path>) -> String {
    std_fs::read_to_string(path).unwrap()
}

/// Two syncs of one source overlap: the second finds the new file of the first, after it has listed the old one.
#[test]
fn keep__is_needless_for_the_version_that_replaces_it() {
    let base = tempfile::tempdir().unwrap();
    let t = base.path().join("t");
    std_fs::create_dir(&t).unwrap();
    let backups = below(base.path(), &backup(Some(b"../old"), "")).unwrap();
    let here = opened(&t);
    std_fs::write(t.join("a"), "old").unwrap();
    let write = |name: &str| {
        let file = File::create(t.join(name)).unwrap();
        std_fs::write(t.join(name), "of the source").unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        fstat(&file).unwrap()
    };
    let first = write("first");
    backups.of(b"").keep(&here, b"a", Some(&first)).unwrap();
    std_fs::rename(t.join("first"), t.join("a")).unwrap();
    let second = write("second");
    backups.of(b"").keep(&here, b"a", Some(&second)).unwrap();
    assert_eq!(read(base.path().join("old/a")), "old");
    assert_eq!(backups.take_made(), 1);
    assert_eq!(
        std_fs::read_dir(base.path().join("old")).unwrap().count(),
        1
    );
    // Another version gets its backup.
    std_fs::write(t.join("a"), "newer").unwrap();
    backups.of(b"").keep(&here, b"a", Some(&second)).unwrap();
    assert_eq!(read(base.path().join("old/a")), "newer");
}

#[test]
fn keep__beside_it_and_the_last_one_stays() {
    let base = tempfile::tempdir().unwrap();
    let t = base.path().join("t");
    std_fs::create_dir(&t).unwrap();
    let backups = below(base.path(), &backup(None, "~")).unwrap();
    let here = opened(&t);
    for content in ["one", "two"] {
        std_fs::remove_file(t.join("a")).ok();
        std_fs::write(t.join("a"), content).unwrap();
        backups.of(b"").keep(&here, b"a", None).unwrap();
        // Until a new file replaces it, the old one has both names.
        assert_eq!(
            (read(t.join("a")), read(t.join("a~"))),
            (content.into(), content.into())
        );
        // Once more, when the backup is already the same file.
        backups.of(b"").keep(&here, b"a", None).unwrap();
        assert_eq!(std_fs::metadata(t.join("a")).unwrap().nlink(), 2);
    }
    backups.of(b"").take(&here, b"a").unwrap();
    assert_eq!(read(t.join("a~")), "two");
    assert_eq!(std_fs::read_dir(&t).unwrap().count(), 1);
    assert_eq!((backups.take_made(), backups.take_made()), (5, 0));
    // A missing entry, and one without content.
    std_fs::create_dir(t.join("d")).unwrap();
    nix_fifo(&t.join("fifo"));
    for name in ["none", "d", "fifo"] {
        backups.of(b"").keep(&here, name.as_bytes(), None).unwrap();
    }
    assert_eq!(backups.take_made(), 0);
    // Links are kept as links.
    symlink("nowhere", t.join("link")).unwrap();
    backups.of(b"").keep(&here, b"link", None).unwrap();
    assert_eq!(
        std_fs::read_link(t.join("link~")).unwrap(),
        Path::new("nowhere")
    );
}

fn nix_fifo(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
}

#[test]
fn take__into_a_directory_that_is_made_when_needed() {
    let base = tempfile::tempdir().unwrap();
    let t = base.path().join("t");
    std_fs::create_dir_all(t.join("d/e")).unwrap();
    std_fs::set_permissions(t.join("d"), std_fs::Permissions::from_mode(0o750)).unwrap();
    std_fs::set_permissions(t.join("d/e"), std_fs::Permissions::from_mode(0o500)).unwrap();
    for (directory, path) in [
        ("old/new", "t/old/new"),
        ("../u/v", "u/v"),
        ("../t/w", "t/w"),
    ] {
        let made = base.path().join(path);
        let backups = below(base.path(), &backup(Some(directory.as_bytes()), "")).unwrap();
        assert!(!made.exists(), "{path}");
        std_fs::set_permissions(t.join("d/e"), std_fs::Permissions::from_mode(0o700)).unwrap();
        for name in ["a", "d/b", "d/e/c"] {
            std_fs::write(t.join(name), name).unwrap();
        }
        backups.of(b"").take(opened(&t), b"a").unwrap();
        backups.of(b"d").take(opened(&t.join("d")), b"b").unwrap();
        backups
            .of(b"d/e")
            .take(opened(&t.join("d/e")), b"c")
            .unwrap();
        for name in ["a", "d/b", "d/e/c"] {
            assert_eq!(read(made.join(name)), name);
            assert!(!t.join(name).exists());
        }
        // No more users may read it than before.
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!(
            (mode(&made.join("d")), mode(&made.join("d/e"))),
            (0o750, 0o700)
        );
    }
}

#[test]
fn below__what_leads_out_and_what_cannot_be_is_refused_by_its_name() {
    let base = tempfile::tempdir().unwrap();
    std_fs::create_dir(base.path().join("t")).unwrap();
    std_fs::create_dir(base.path().join("real")).unwrap();
    std_fs::write(base.path().join("t/file"), b"x").unwrap();
    symlink("/tmp", base.path().join("t/out")).unwrap();
    symlink("../real", base.path().join("t/in")).unwrap();
    let long = [&b"x/".repeat(3000)[..], b"y"].concat();
    for (directory, cause) in [
        (&b"../../x"[..], Cause::OutsideRoot),
        (b"x/../../../y", Cause::OutsideRoot),
        (b"/tmp/x", Cause::OutsideRoot),
        (b"out/x", Cause::OutsideRoot),
        (b"in", Cause::OutsideRoot),
        (b"in/x/y", Cause::OutsideRoot),
        (b"file/x", Cause::NotADirectory),
        (b"a\0b", Cause::InvalidName),
        (&[b'x'; 256], Cause::InvalidName),
        (&long, Cause::InvalidName),
    ] {
        let refused = below(base.path(), &backup(Some(directory), "")).unwrap_err();
        assert_eq!(refused, (directory.to_vec(), cause));
    }
    for suffix in ["", "a/b", "a\0b", &"x".repeat(255)] {
        let refused = below(base.path(), &backup(None, suffix)).unwrap_err();
        assert_eq!(refused, (suffix.into(), Cause::InvalidName));
    }
    let names = |path: &Path| std_fs::read_dir(path).unwrap().count();
    assert_eq!(
        (names(base.path()), names(&base.path().join("real"))),
        (2, 0)
    );
}

/// The directory changes after the request was accepted.
#[test]
fn take__never_through_a_link_nor_over_a_directory() {
    let base = tempfile::tempdir().unwrap();
    let t = base.path().join("t");
    std_fs::create_dir_all(t.join("d")).unwrap();
    std_fs::create_dir(base.path().join("real")).unwrap();
    std_fs::write(t.join("d/a"), b"a").unwrap();
    let no_backup = |errno: Errno| Err(Cause::NoBackup(errno.raw_os_error()));
    let backups = below(base.path(), &backup(Some(b"../old/er"), "")).unwrap();
    let (of, here) = (backups.of(b"d"), opened(&t.join("d")));
    symlink("real", base.path().join("old")).unwrap();
    assert_eq!(of.take(&here, b"a"), no_backup(Errno::NOTDIR));
    std_fs::remove_file(base.path().join("old")).unwrap();
    std_fs::create_dir_all(base.path().join("old/er")).unwrap();
    symlink("../../real", base.path().join("old/er/d")).unwrap();
    assert_eq!(of.keep(&here, b"a", None), no_backup(Errno::NOTDIR));
    std_fs::remove_file(base.path().join("old/er/d")).unwrap();
    std_fs::create_dir_all(base.path().join("old/er/d/a/full")).unwrap();
    assert_eq!(of.take(&here, b"a"), no_backup(Errno::ISDIR));
    assert_eq!(of.keep(&here, b"a", None), no_backup(Errno::ISDIR));
    assert_eq!(
        std_fs::read_dir(base.path().join("real")).unwrap().count(),
        0
    );
    // A backup that would be the file itself, and a name too long with the suffix.
    let same = below(base.path(), &backup(Some(b"../t"), "")).unwrap();
    assert_eq!(same.of(b"d").take(&here, b"a"), Err(Cause::BackupIsItself));
    assert_eq!(
        same.of(b"d").keep(&here, b"a", None),
        Err(Cause::BackupIsItself)
    );
    let longer = below(base.path(), &backup(None, &"~".repeat(250))).unwrap();
    std_fs::write(t.join("d/longer"), b"x").unwrap();
    assert_eq!(
        longer.of(b"d").take(&here, b"longer"),
        no_backup(Errno::NAMETOOLONG)
    );
    assert_eq!(
        (read(t.join("d/a")), read(t.join("d/longer"))),
        ("a".into(), "x".into())
    );
    assert_eq!(std_fs::read_dir(t.join("d")).unwrap().count(), 2);
}

#[test]
fn take__another_file_system_is_told() {
    let shared = Path::new("/dev/shm");
    let base = tempfile::tempdir().unwrap();
    let device = |path: &Path| path.metadata().map(|meta| meta.dev()).ok();
    if device(shared).is_none_or(|it| Some(it) == device(base.path())) {
        println!("skipped: there is no other file system at /dev/shm");
        return;
    }
    let there = tempfile::tempdir_in(shared).unwrap();
    std_fs::write(base.path().join("a"), b"a").unwrap();
    let asked = backup(Some(there.path().as_os_str().as_encoded_bytes()), "");
    let here = opened(base.path());
    let backups = Arc::new(Backups::local(&here, (&asked, false)).unwrap());
    let elsewhere = Cause::NoBackup(Errno::XDEV.raw_os_error());
    assert_eq!(
        backups.of(b"").keep(&here, b"a", None),
        Err(elsewhere.clone())
    );
    assert_eq!(backups.of(b"").take(&here, b"a"), Err(elsewhere.clone()));
    assert!(elsewhere.to_string().contains("on another file system"));
    assert_eq!(read(base.path().join("a")), "a");
}

#[test]
fn Backup__below_by_its_name() {
    for (directory, destination, path) in [
        (&b"old"[..], &b"t"[..], Some(&b"old"[..])),
        (b"old/./er/", b"t/u", Some(b"old/er")),
        (b"../u/old", b"t/u", Some(b"old")),
        (b"../u", b"t/u", None),
        (b".", b"t", None),
        (b"../old", b"t", None),
        (b"../../old", b"t", None),
        (b"/srv/t/old", b"t", None),
        (b"/srv/t/old", b"/srv/t", Some(b"old")),
        (b"old", b"", Some(b"old")),
    ] {
        let below = backup(Some(directory), "").below(destination);
        assert_eq!(below.as_deref(), path, "{}", directory.escape_ascii());
    }
    assert_eq!(backup(None, "~").below(b"t"), None);
}
