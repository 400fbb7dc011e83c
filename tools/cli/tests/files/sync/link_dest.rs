//! Tests `--link-dest`, which links files of an earlier copy and leaves that copy unchanged.

use super::*;
use rustix::fs::{XattrFlags, fsetxattr};

/// Plants files to copy, which [`change`] changes before the next copy.
fn plant_more(a: &Path) {
    for directory in 0..3 {
        for file in 0..20 {
            let name = format!("d{directory}/e/f{file}");
            write(&a.join(name), &content(file, 100 + file as usize));
        }
    }
    write(&a.join("large"), &content(1, 3 * MIB));
    write(&a.join("mode"), b"mode");
    write(&a.join("touched"), &content(2, 3 * MIB));
    symlink("large", a.join("link")).unwrap();
}

fn change(a: &Path) {
    write(&a.join("d1/e/f3"), b"changed");
    write(&a.join("d1/e/new"), b"new");
    write(&a.join("a new directory/f"), b"new");
    fs::remove_file(a.join("d0/e/f0")).unwrap();
    fs::rename(a.join("d2/e"), a.join("d2/another")).unwrap();
    fs::set_permissions(a.join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
    let touched = File::options().write(true).open(a.join("touched")).unwrap();
    touched.set_modified(SystemTime::UNIX_EPOCH).unwrap();
}

/// Writes a file with a fixed time.
fn write_old(path: &Path, bytes: &[u8]) {
    write(path, bytes);
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
}

/// The files of `tree` that are the same inode in `other`.
fn shared(tree: &Path, other: &Path) -> Vec<String> {
    let inode = |base: &Path, path: &String| {
        let meta = base.join(path).symlink_metadata().ok()?;
        (meta.is_file()).then_some((meta.dev(), meta.ino()))
    };
    let same = |path: &String| {
        let this = inode(tree, path);
        this.is_some() && this == inode(other, path)
    };
    paths(tree).into_iter().filter(same).collect()
}

#[test]
fn sync__link_dest_links_what_is_the_same_and_leaves_it_as_it_is() {
    let lab = Lab::new(&[]);
    plant_more(&lab.local("a"));
    for base in [lab.share("s"), lab.local("s")] {
        fs::create_dir(base).unwrap();
    }
    numbers(push(&lab, &[], "a", "s/1"));
    numbers(pull(&lab, &[], "s/1", "s/1"));
    let before = [lab.share("s/1"), lab.local("s/1")].map(|it| tree(&it, true));
    change(&lab.local("a"));
    numbers(push(&lab, &[], "a", "now"));
    let option = ["--link-dest=../1"];
    let planned = numbers(push(&lab, &["-n", "--link-dest=../1"], "a", "s/2"));
    let out = succeed(push(&lab, &["-n", "--link-dest=../1"], "a", "s/2"));
    assert!(
        out.contains("new        d0/e/f1 (") && out.contains("linked     d0/e/f1 ("),
        "{out}"
    );
    assert!(
        !out.contains("linked     d1/e/f3") && !out.contains("linked     mode"),
        "{out}"
    );
    let pushed = numbers(push(&lab, &option, "a", "s/2"));
    let pulled = numbers(pull(&lab, &option, "now", "s/2"));
    for (done, base) in [(&pushed, lab.share("s")), (&pulled, lab.local("s"))] {
        assert_eq!(tree(&base.join("2"), false), tree(&lab.local("a"), false));
        let linked = shared(&base.join("2"), &base.join("1"));
        // 19 files in each of two directories, and the large one. Renamed files are not linked.
        assert_eq!(linked.len(), 39, "{linked:?}");
        assert_eq!(
            (&done["hard_links"], &planned["hard_links"]),
            (&39.into(), &39.into())
        );
        assert_eq!((&done["sent"], &planned["sent"]), (&25.into(), &25.into()));
        assert_eq!(
            (&done["bytes"], &done["failed"]),
            (&planned["bytes"], &0.into())
        );
    }
    let after = || [lab.share("s/1"), lab.local("s/1")].map(|it| tree(&it, true));
    assert_eq!(after(), before);
    // Nothing is left to do. Later changes in the second copy do not affect the first.
    assert_eq!(numbers(push(&lab, &option, "a", "s/2"))["sent"], 0);
    let a = lab.local("a");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
    for name in ["d0/e/f1", "large"] {
        let file = File::options().write(true).open(a.join(name)).unwrap();
        file.set_modified(time).unwrap();
        fs::set_permissions(a.join("d0/e/f2"), fs::Permissions::from_mode(0o640)).unwrap();
    }
    write(&a.join("d1/e/f5"), &content(77, 105));
    numbers(push(&lab, &["--delta", "--delete"], "a", "s/2"));
    numbers(push(&lab, &["--delta"], "a", "now"));
    numbers(pull(&lab, &["--resume"], "now", "s/2"));
    for base in [lab.share("s/2"), lab.local("s/2")] {
        assert_eq!(tree(&base, false), tree(&a, false));
    }
    assert_eq!(after(), before);
    // Only permissions and time differ, so the file is copied at the target, not sent.
    fs::set_permissions(a.join("d0/e/f4"), fs::Permissions::from_mode(0o604)).unwrap();
    let settled = numbers(push(&lab, &["--checksum"], "a", "s/2"));
    assert_eq!(
        (&settled["attributes"], &settled["sent"]),
        (&1.into(), &0.into())
    );
    assert_eq!(after(), before);
}

#[test]
fn sync__link_dest_of_several_directories_and_with_contents_compared() {
    let lab = Lab::new(&[]);
    let a = lab.local("a");
    for (name, bytes) in [
        ("one", b"1"),
        ("two", b"2"),
        ("other content", b"3"),
        ("both", b"4"),
    ] {
        write_old(&a.join(name), bytes);
    }
    let had = [
        ("1", "one", b"1"),
        ("2", "two", b"2"),
        ("1", "both", b"4"),
        ("2", "both", b"4"),
        ("2", "other content", b"x"),
    ];
    for base in [lab.share("s"), lab.local("s")] {
        for (directory, name, bytes) in had {
            write_old(&base.join(directory).join(name), bytes);
        }
    }
    numbers(push(&lab, &[], "a", "now"));
    // A missing directory contributes nothing.
    let all = [
        "--checksum",
        "--link-dest=../none",
        "--link-dest=../1",
        "--link-dest=../2",
    ];
    for (sync, base) in [
        (push(&lab, &all, "a", "s/3"), lab.share("s")),
        (pull(&lab, &all, "now", "s/3"), lab.local("s")),
    ] {
        let done = numbers(sync);
        assert_eq!(
            (&done["hard_links"], &done["sent"]),
            (&3.into(), &1.into()),
            "{done}"
        );
        assert_eq!(shared(&base.join("3"), &base.join("1")), ["both", "one"]);
        assert_eq!(shared(&base.join("3"), &base.join("2")), ["two"]);
        assert_eq!(tree(&base.join("3"), false), tree(&a, false));
    }
    // Attributes count, too, if they are kept.
    let all = [&["-X"][..], &all].concat();
    let mark = |path: &Path| {
        let file = File::open(path).unwrap();
        fsetxattr(file, "user.kept", b"x", XattrFlags::empty()).is_ok()
    };
    let marked = [a.join("one"), a.join("two"), lab.share("s/1/one")];
    match marked.iter().all(|path| mark(path)) {
        true => assert_eq!(numbers(push(&lab, &all, "a", "s/5"))["hard_links"], 2),
        false => println!("skipped: the file system has no extended attributes"),
    }
    // By size and time alone it looks the same.
    let quick = ["--link-dest=../2"];
    assert_eq!(numbers(push(&lab, &quick, "a", "s/4"))["hard_links"], 3);
}

#[test]
fn sync__link_dest_that_cannot_be_is_refused() {
    let lab = Lab::new(&[]);
    write(&lab.local("a/file"), b"x");
    symlink("/tmp", lab.share("out")).unwrap();
    write(&lab.share("file"), b"x");
    let outside = "leads outside the served directory";
    for (directory, words) in [
        ("../../x", outside),
        ("/tmp", outside),
        ("../out", outside),
        ("../out/x", outside),
        ("../file", "is not a directory"),
        (&"x".repeat(256), "not a valid name"),
    ] {
        let option = format!("--link-dest={directory}");
        let (code, out, err) = run(push(&lab, &[&option], "a", "t"));
        assert_eq!(code, 1, "{out}{err}");
        assert!(err.contains(words), "{err}");
        assert!(!lab.share("t").exists());
    }
    fail(
        push(&lab, &["--in-place", "--link-dest=../x"], "a", "t"),
        2,
        "--in-place",
    );
    fail(push(&lab, &["--link-dest=x"; 21], "a", "t"), 2, "20 times");
    assert_eq!(
        numbers(push(&lab, &["--link-dest=x"; 20], "a", "t"))["sent"],
        1
    );
}

/// Where a link is impossible, an equal file is copied at the target.
#[test]
fn sync__link_dest_on_another_file_system_copies_from_there() {
    let lab = Lab::new(&[]);
    let elsewhere = tempfile::tempdir().unwrap();
    let device = |path: &Path| path.metadata().unwrap().dev();
    if device(elsewhere.path()) == device(&lab.local("")) {
        println!("skipped: the directory for temporary files is on the same file system");
        return;
    }
    plant_more(&lab.share("a"));
    let sparse = File::create(lab.share("a/sparse")).unwrap();
    sparse.set_len(1 << 24).unwrap();
    sparse.write_all_at(b"middle", 1 << 23).unwrap();
    drop(sparse);
    let copy = elsewhere.path().join("1");
    let mut first = zerolane();
    first.args(["sync", "-q"]).arg(lab.there("a")).arg(&copy);
    succeed(first);
    let before = tree(&copy, true);
    let option = format!("--link-dest={}", copy.display());
    let done = numbers(pull(&lab, &[&option], "a", "b"));
    assert_eq!(
        (&done["hard_links"], &done["failed"]),
        (&0.into(), &0.into()),
        "{done}"
    );
    assert!(done["bytes_kept"].as_u64().unwrap() > 6 << 20, "{done}");
    assert_eq!(tree(&lab.local("b"), false), tree(&lab.share("a"), false));
    assert!(lab.local("b/sparse").metadata().unwrap().blocks() < 1 << 12);
    assert_eq!(tree(&copy, true), before);
}

#[test]
fn sync__link_dest_with_hard_links_and_backups() {
    let lab = Lab::new(&[]);
    let a = lab.local("a");
    for name in ["one", "only"] {
        write(&a.join(name), name.as_bytes());
    }
    fs::hard_link(a.join("one"), a.join("two")).unwrap();
    numbers(push(&lab, &["-H"], "a", "1"));
    write(&lab.share("2/only"), b"in the way");
    let options = ["-H", "--link-dest=../1", "--backup-dir=../old"];
    let done = numbers(push(&lab, &options, "a", "2"));
    assert_eq!(
        (&done["hard_links"], &done["sent"]),
        (&3.into(), &0.into()),
        "{done}"
    );
    assert_eq!(
        shared(&lab.share("2"), &lab.share("1")),
        ["one", "only", "two"]
    );
    assert_eq!(fs::read(lab.share("old/only")).unwrap(), b"in the way");
    assert_eq!(lab.share("2/one").metadata().unwrap().nlink(), 4);
}

/// Compares which files are linked with each other, here and by rsync.
#[test]
fn sync__link_dest_as_rsync_has_it() {
    if Command::new("rsync").arg("--version").output().is_err() {
        println!("skipped: there is no rsync");
        return;
    }
    let lab = Lab::new(&[]);
    let a = lab.local("a");
    plant_more(&a);
    for base in [lab.share("s"), lab.local("s")] {
        for number in ["1", "2"] {
            let mut rsync = Command::new("rsync");
            rsync.arg("-a").arg(a.join("")).arg(base.join(number));
            fs::create_dir_all(&base).unwrap();
            assert_eq!(run(rsync).0, 0);
        }
        fs::remove_file(base.join("1/large")).unwrap();
        fs::remove_dir_all(base.join("1/d0")).unwrap();
        write(&base.join("2/d1/e/f7"), b"another");
    }
    change(&a);
    for (at, options) in [
        &["--link-dest=../1"][..],
        &["--link-dest=../1", "--link-dest=../2"],
        &["--link-dest=../2", "--link-dest=../1", "--checksum"],
        &["--link-dest=../2", "--delete", "-H"],
    ]
    .into_iter()
    .enumerate()
    {
        let to = format!("s/to{at}");
        for base in [lab.share(&to), lab.local(&to)] {
            write(&base.join("d1/e/f9"), b"in the way");
        }
        succeed(push(&lab, options, "a", &to));
        let mut rsync = Command::new("rsync");
        rsync
            .arg("-a")
            .args(options)
            .arg(a.join(""))
            .arg(lab.local(&to));
        let (code, out, err) = run(rsync);
        assert_eq!(code, 0, "{out}{err}");
        for number in ["s/1", "s/2"] {
            let ours = shared(&lab.share(&to), &lab.share(number));
            let theirs = shared(&lab.local(&to), &lab.local(number));
            assert_eq!(ours, theirs, "{options:?} {number}");
        }
        assert_eq!(tree(&lab.share(&to), false), tree(&a, false));
    }
}
