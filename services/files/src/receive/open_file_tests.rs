//! Tests that a receiver uses existing content of a file, and verifies it.

#![allow(non_snake_case)]

use super::*;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// A new file `f` with an old version of that many bytes, and the digests of the old content.
fn left_over(
    directory: &Arc<OwnedFd>,
    bytes: usize,
    options: &CopyOptions,
) -> (OpenFile, Vec<Digest>, Digester) {
    let digester = Digester::fixed();
    let meta = Meta {
        mode: 0o644,
        ..Meta::default()
    };
    let name = (&b"f"[..], false);
    let open = OpenFile::create(directory, name, meta, bytes as u64, options, &digester);
    let mut open = open.unwrap();
    let (digests, last) = hash_left_over(&mut open);
    assert!(last);
    (open, digests, digester)
}

#[test]
fn take_kept__of_an_old_file_that_changed_since_it_was_offered() {
    let bytes = vec![1; 3 * UNIT_BYTES];
    let options = CopyOptions {
        resume: true,
        delta: true,
        ..CopyOptions::default()
    };
    for changed in [false, true] {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("f");
        std::fs::write(&path, &bytes).unwrap();
        let directory = Arc::new(OwnedFd::from(std::fs::File::open(base.path()).unwrap()));
        let (mut open, digests, _) = left_over(&directory, bytes.len(), &options);
        assert_eq!(digests.len(), 3);
        if changed {
            let mut other = bytes.clone();
            other[UNIT_BYTES + 7] = 2;
            std::fs::write(&path, other).unwrap();
        }
        for _ in 0..2 {
            open.take_kept().unwrap().unwrap();
        }
        open.take_unit(&bytes[..UNIT_BYTES]).unwrap().unwrap();
        assert!(open.is_behind());
        let first = open.copy_next();
        let outcome = first.and_then(|()| open.copy_next());
        assert!(!open.is_behind());
        match changed {
            true => assert_eq!(outcome, Err(Cause::TargetChanged)),
            false => outcome.unwrap(),
        }
    }
}

/// Bytes that the file occupies.
fn occupied(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

#[test]
fn take_kept__of_a_sparse_old_file_copies_its_data_alone() {
    const UNIT: u64 = UNIT_BYTES as u64;
    // Four units and a part of one. Each but the third has a page of data, the last one at its start.
    let size = 4 * UNIT + 300_000;
    let pages = [0, UNIT + 512 * 1024, 3 * UNIT + 8192, 4 * UNIT];
    for grown in [0, 5 * UNIT] {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("f");
        let old = File::create(&path).unwrap();
        old.set_len(size + grown).unwrap();
        for at in pages {
            old.write_all_at(&[7; 4096], at).unwrap();
        }
        let mut expected = std::fs::read(&path).unwrap();
        expected.truncate(size as usize);
        assert!(occupied(&path) < 128 << 10, "the file system has no holes");
        let options = CopyOptions {
            resume: true,
            delta: true,
            ..CopyOptions::default()
        };
        let directory = Arc::new(OwnedFd::from(File::open(base.path()).unwrap()));
        let (mut open, digests, digester) = left_over(&directory, size as usize, &options);
        assert_eq!(digests.len(), 5);
        let new = vec![9; UNIT_BYTES];
        expected[UNIT_BYTES..][..UNIT_BYTES].fill(9);
        let mut whole = digester.hasher();
        for (index, digest) in digests.iter().enumerate() {
            if index == 1 {
                open.take_unit(&new).unwrap().unwrap();
                whole.update(&digester.digest(&new));
                while open.is_behind() {
                    open.copy_next().unwrap();
                }
            } else {
                open.take_kept().unwrap().unwrap();
                whole.update(digest);
            }
        }
        open.close(&whole.finish(), &options).unwrap();
        assert!(std::fs::read(&path).unwrap() == expected, "{grown}");
        let occupied = occupied(&path);
        assert!(occupied < UNIT + (128 << 10), "{grown}: {occupied}");
    }
}

#[test]
fn close__of_an_old_file_that_was_kept_as_a_whole_and_changed_meanwhile() {
    /// A change of the old file while it is compared.
    #[derive(Debug, PartialEq)]
    enum Meanwhile {
        Nothing,
        Chmod,
        Write,
        WriteAndSetTime,
    }
    use Meanwhile::{Chmod, Nothing, Write, WriteAndSetTime};
    let bytes = vec![1; 3 * UNIT_BYTES];
    let options = CopyOptions {
        resume: true,
        ..CopyOptions::default()
    };
    for meanwhile in [Nothing, Chmod, Write, WriteAndSetTime] {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("f");
        std::fs::write(&path, &bytes).unwrap();
        let before = path.metadata().unwrap();
        let directory = Arc::new(OwnedFd::from(File::open(base.path()).unwrap()));
        let (mut open, digests, digester) = left_over(&directory, bytes.len(), &options);
        assert_eq!(digests.len(), 3);
        let mut whole = digester.hasher();
        digests.iter().for_each(|digest| whole.update(digest));
        // The system's times are granular.
        std::thread::sleep(std::time::Duration::from_millis(20));
        if meanwhile == Chmod {
            std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        }
        if matches!(meanwhile, Write | WriteAndSetTime) {
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(b"2", UNIT_BYTES as u64 + 7).unwrap();
            if meanwhile == WriteAndSetTime {
                file.set_modified(before.modified().unwrap()).unwrap();
            }
        }
        for _ in 0..3 {
            open.take_kept().unwrap().unwrap();
        }
        let closed = open.close(&whole.finish(), &options);
        let same = path.metadata().unwrap().ino() == before.ino();
        match meanwhile {
            Nothing => assert!(closed.is_ok() && same, "{closed:?}"),
            // Its content is as offered, so a copy of it takes its place.
            Chmod => assert!(closed.is_ok() && !same, "{closed:?}"),
            Write | WriteAndSetTime => {
                assert_eq!(closed.unwrap_err(), Cause::TargetChanged, "{meanwhile:?}");
            }
        }
    }
}

#[test]
fn close__has_an_old_file_that_was_kept_as_a_whole_on_the_disk() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("f");
    let bytes = vec![1; UNIT_BYTES];
    std::fs::write(&path, &bytes).unwrap();
    let open_as = |path: &Path, flags| rustix::fs::open(path, flags, Mode::empty()).unwrap();
    // A descriptor that cannot be synced shows that a sync was tried.
    let [no_file, no_directory] = [&path, base.path()].map(|it| open_as(it, OFlags::PATH));
    let [file, directory] = [&path, base.path()].map(|it| open_as(it, OFlags::RDONLY));
    let not_synced = Err(Cause::from(Errno::BADF));
    assert_eq!(sync(no_file.as_fd(), directory.as_fd()), not_synced);
    assert_eq!(sync(file.as_fd(), no_directory.as_fd()), not_synced);
    assert_eq!(sync(file.as_fd(), directory.as_fd()), Ok(()));

    let no_directory = Arc::new(no_directory);
    for durable in [false, true] {
        let options = CopyOptions {
            resume: true,
            durable,
            ..CopyOptions::default()
        };
        let (mut open, digests, digester) = left_over(&no_directory, bytes.len(), &options);
        let mut whole = digester.hasher();
        whole.update(&digests[0]);
        open.take_kept().unwrap().unwrap();
        let closed = open.close(&whole.finish(), &options);
        assert_eq!(closed.is_err(), durable, "{closed:?}");
    }
}
