//! Tests `--backup`, `--backup-dir` and `--suffix`: a sync keeps everything that it replaces or deletes.

use std::process::Stdio;

use super::*;

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

/// Plants `new` with new and changed files and files of another type, and `old` with their earlier versions and extra
/// files.
fn old_and_new(old: &Path, new: &Path) {
    for (name, content) in [
        ("same", "same"),
        ("d/small", "new small"),
        ("d/new", "new"),
        ("to directory/file", "new in it"),
        ("to file", "new file"),
    ] {
        write(&new.join(name), content.as_bytes());
    }
    write(&new.join("large"), &content(1, 2 * MIB));
    symlink("new", new.join("link")).unwrap();
    symlink("new", new.join("to link")).unwrap();
    for (name, content) in [
        ("d/small", "old"),
        ("to directory", "old file"),
        ("extra", "old extra"),
        ("gone/deep/er", "old deep"),
        ("to link", "old file at the link"),
    ] {
        write(&old.join(name), content.as_bytes());
    }
    write(&old.join("same"), b"same");
    for same in [old, new] {
        let same = File::options().write(true).open(same.join("same")).unwrap();
        same.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    write(&old.join("large"), &content(2, 2 * MIB - 1));
    symlink("old", old.join("link")).unwrap();
}

/// Asserts the content of the backups, below their directory or beside their replacements.
fn check_backups(backups: &Path, suffix: &str) {
    let at = |name: &str| backups.join(format!("{name}{suffix}"));
    assert_eq!(read(at("d/small")), "old");
    assert_eq!(read(at("to directory")), "old file");
    assert_eq!(read(at("extra")), "old extra");
    assert_eq!(read(at("gone/deep/er")), "old deep");
    assert_eq!(read(at("to link")), "old file at the link");
    assert!(fs::read(at("large")).unwrap() == content(2, 2 * MIB - 1));
    assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("old"));
}

#[test]
fn sync__backup_dir_keeps_what_was_replaced_and_deleted() {
    let lab = Lab::new(&[]);
    let (a, t, b) = (lab.local("a"), lab.share("t"), lab.local("b"));
    old_and_new(&t, &a);
    old_and_new(&b, &lab.share("s"));
    for base in [&t, &b] {
        write(&base.join("to file/was/a"), b"old below");
    }
    let options = ["--delete", "--backup-dir=../old/er"];
    let to_do = [&options[..], &["-n"]].concat();
    let planned = numbers(push(&lab, &to_do, "a", "t"));
    assert!(!lab.share("old").exists());
    let pushed = numbers(push(&lab, &options, "a", "t"));
    let pulled = numbers(pull(&lab, &options, "s", "b"));
    for done in [&planned, &pushed, &pulled] {
        // The directories gone, gone/deep, to file and to file/was contain no files themselves.
        assert_eq!(
            (&done["backed_up"], &done["deleted"]),
            (&8.into(), &7.into()),
            "{done}"
        );
        assert_eq!(done["failed"], 0);
    }
    for (base, backups, source) in [
        (&t, lab.share("old/er"), &a),
        (&b, lab.local("old/er"), &lab.share("s")),
    ] {
        assert_eq!(tree(base, false), tree(source, false));
        check_backups(&backups, "");
        // Under its original name, not the one it had while it was emptied.
        assert_eq!(read(backups.join("to file/was/a")), "old below");
        assert_eq!(names(&backups).len(), 8, "{:?}", names(&backups));
    }
    // The next backup of the same name replaces the first. Files that stay get no backup.
    write(&a.join("d/small"), b"newer than new");
    let again = numbers(push(&lab, &options, "a", "t"));
    assert_eq!(
        (&again["backed_up"], &again["sent"]),
        (&1.into(), &1.into())
    );
    assert_eq!(read(lab.share("old/er/d/small")), "new small");
    assert_eq!(
        names(&t).iter().filter(|it| it.starts_with(".zl")).count(),
        0
    );
}

#[test]
fn sync__backup_beside_what_takes_its_place() {
    let lab = Lab::new(&[]);
    let (a, t, b) = (lab.local("a"), lab.share("t"), lab.local("b"));
    old_and_new(&t, &a);
    old_and_new(&b, &lab.share("s"));
    for base in [&t, &b] {
        write(&base.join("to file"), b"older");
        write(&base.join("earlier~"), b"a backup");
    }
    let out = succeed(push(&lab, &["--delete", "--backup", "-v"], "a", "t"));
    for line in [
        "changed    d/small",
        "backup     d/small (3 B)",
        "deleted    extra",
        "backup     extra",
    ] {
        assert!(out.contains(line), "{out}");
    }
    let pulled = numbers(pull(&lab, &["--delete", "-b", "--suffix=.old"], "s", "b"));
    // `gone/deep/er` leaves a backup, so both directories stay. `earlier~` has another suffix there.
    assert_eq!(
        (&pulled["backed_up"], &pulled["deleted"]),
        (&9.into(), &3.into()),
        "{pulled}"
    );
    check_backups(&t, "~");
    check_backups(&b, ".old");
    assert_eq!(
        (read(t.join("earlier~")), read(b.join("earlier~.old"))),
        ("a backup".into(), "a backup".into())
    );
    // Backups survive deletions, except by a rule or --delete-excluded.
    let again = numbers(push(&lab, &["--delete", "--backup"], "a", "t"));
    assert_eq!(
        (&again["deleted"], &again["backed_up"]),
        (&0.into(), &0.into())
    );
    let included = ["--delete", "--backup", "--include=extra~"];
    assert_eq!(numbers(push(&lab, &included, "a", "t"))["deleted"], 1);
    assert!(!t.join("extra~").exists() && t.join("earlier~").exists());
    let all = ["--delete-excluded", "--backup"];
    assert_eq!(numbers(push(&lab, &all, "a", "t"))["backed_up"], 0);
    assert_eq!(tree(&a, false), tree(&t, false));
    // A directory is not replaced by a file if it contains only files with backups beside them.
    write(&t.join("same was a directory/x"), b"old");
    write(&a.join("same was a directory"), b"a file");
    let (code, _, err) = run(push(&lab, &["--delete", "--backup"], "a", "t"));
    assert_eq!(code, 5, "{err}");
    assert!(err.contains("a directory stands in the way"), "{err}");
    assert_eq!(read(t.join("same was a directory/x")), "old");
}

#[test]
fn sync__a_directory_of_backups_below_the_destination_stays() {
    let lab = Lab::new(&[]);
    let (a, t) = (lab.local("a"), lab.share("t"));
    write(&a.join("file"), b"new");
    write(&t.join("file"), b"old 1");
    write(&t.join("extra"), b"extra");
    write(&t.join("old/other"), b"other");
    for (options, kept) in [
        (["--delete", "--backup-dir=old/1"], "old/1"),
        (["--delete", "--backup-dir=../t/old"], "old"),
    ] {
        assert_eq!(numbers(push(&lab, &options, "a", "t"))["failed"], 0);
        assert_eq!(read(t.join(kept).join("extra")), "extra");
        write(&t.join("extra"), b"extra");
    }
    assert_eq!(read(t.join("old/1/file")), "old 1");
    // Backups beside the directory move into it like other files; with another directory, all do.
    let all = ["--delete", "--backup-dir=../u"];
    assert_eq!(numbers(push(&lab, &all, "a", "t"))["failed"], 0);
    assert_eq!(paths(&t), ["file"]);
    assert_eq!(read(lab.share("u/old/1/old/other")), "other");
    assert_eq!(read(lab.share("u/old/1/file")), "old 1");
}

#[test]
fn sync__backups_that_cannot_be_are_refused() {
    let lab = Lab::new(&[]);
    write(&lab.local("a/file"), b"newer");
    write(&lab.share("t/file"), b"old");
    symlink("/tmp", lab.share("t/out")).unwrap();
    let outside = "leads outside the served directory";
    for (directory, words) in [
        ("../../x", outside),
        ("/tmp/x", outside),
        ("out/x", outside),
        ("file/x", "is not a directory"),
        (&"x".repeat(256), "not a valid name"),
        (&"x/".repeat(3000), "not a valid name"),
    ] {
        let option = format!("--backup-dir={directory}");
        let (code, out, err) = run(push(&lab, &[&option], "a", "t"));
        assert_eq!(code, 1, "{out}{err}");
        assert!(err.contains(words) && err.contains(directory), "{err}");
    }
    for suffix in ["a/b", ""] {
        let option = format!("--suffix={suffix}");
        fail(
            push(&lab, &["--backup", &option], "a", "t"),
            1,
            "not a valid name",
        );
    }
    fail(push(&lab, &["--suffix=x"], "a", "t"), 2, "--backup");
    fail(
        push(&lab, &["--backup", "--in-place"], "a", "t"),
        2,
        "--in-place",
    );
    // A backup that cannot be made fails only its file, which stays.
    write(&lab.local("a/new"), b"new");
    fs::create_dir_all(lab.share("old/file/full")).unwrap();
    let (code, _, err) = run(push(&lab, &["--backup-dir=../old"], "a", "t"));
    assert_eq!(code, 5, "{err}");
    assert!(
        err.contains("file: is unchanged, because no backup"),
        "{err}"
    );
    assert_eq!(
        (read(lab.share("t/file")), read(lab.share("t/new"))),
        ("old".into(), "new".into())
    );
    let (code, _, err) = run(push(&lab, &["--backup-dir=."], "a", "t"));
    assert_eq!(code, 5, "{err}");
    assert!(err.contains("its backup would have the same name"), "{err}");
    assert_eq!(read(lab.share("t/file")), "old");
}

/// The same trees, synced by rsync.
#[test]
fn sync__backups_as_rsync_makes_them() {
    if Command::new("rsync").arg("--version").output().is_err() {
        println!("skipped: there is no rsync");
        return;
    }
    let lab = Lab::new(&[]);
    for (at, options) in [
        &["--backup"][..],
        &["--delete", "--backup"],
        &["--delete", "--backup", "--suffix=.b"],
        &["--delete", "--backup-dir=../old"],
        &["--delete", "--backup-dir=../old", "--suffix=.b"],
        &["--delete-excluded", "--exclude=extra", "--backup"],
        &["--delete", "--backup", "--exclude=extra"],
    ]
    .into_iter()
    .enumerate()
    {
        let (here, there) = (format!("{at}/r"), format!("{at}/t"));
        let source = format!("{at}/a");
        for old in [lab.local(&here), lab.share(&there)] {
            fs::remove_dir_all(lab.local(&source)).ok();
            old_and_new(&old, &lab.local(&source));
            write(&old.join("earlier~"), b"a backup");
        }
        // Intended differences from rsync: without --delete, and for replaced directories.
        fs::remove_file(lab.local(&source).join("to file")).unwrap();
        succeed(push(&lab, options, &source, &there));
        let mut rsync = Command::new("rsync");
        rsync.args(["-a"]).args(options);
        rsync.arg(lab.local(&source).join(""));
        rsync.arg(lab.local(&here));
        let (code, out, err) = run(rsync);
        assert_eq!(code, 0, "{out}{err}");
        let files = |base: PathBuf| -> BTreeMap<_, _> {
            // Compares only content, because old files have the times at which they were made.
            let all = tree(&base, false).into_iter();
            all.map(|(path, words)| (path, words.rsplit(' ').next().unwrap().to_owned()))
                .filter(|(_, word)| !word.ends_with(')'))
                .collect()
        };
        assert_eq!(
            files(lab.share(&there)),
            files(lab.local(&here)),
            "{options:?}"
        );
        let old = format!("{at}/old");
        assert_eq!(
            lab.share(&old).exists(),
            lab.local(&old).exists(),
            "{options:?}"
        );
        if lab.share(&old).exists() {
            assert_eq!(
                files(lab.share(&old)),
                files(lab.local(&old)),
                "{options:?}"
            );
        }
    }
}

/// Whatever is killed, at any moment, each old file is in its place or in its backup.
#[test]
fn sync__backups_of_a_killed_sync() {
    let mut lab = Lab::new(&[]);
    let mut old = BTreeMap::new();
    for number in 0..200 {
        let path = format!("d{}/{number}", number % 7);
        let size = if number % 50 == 0 { 2 * MIB } else { 2000 };
        match number % 4 {
            // One in four exists only at the target.
            0 => {}
            // For one in four, a directory of the source takes its place.
            1 => write(
                &lab.local("a").join(&path).join("in it"),
                &content(number, 300),
            ),
            _ => write(&lab.local("a").join(&path), &content(number, size)),
        }
        let content = content(1000 + number, size - 1);
        write(&lab.share("t").join(&path), &content);
        old.insert(path, content);
    }
    let is_kept = |path: &str, content: &Vec<u8>| {
        let at = |base: &str| fs::read(lab.base.path().join("share").join(base).join(path)).ok();
        at("t").as_ref() == Some(content) || at("old").as_ref() == Some(content)
    };
    let mut killed = 0;
    let options = ["--delete", "--backup-dir=../old", "--timeout=0", "-q"];
    for round in 0..12_u64 {
        let mut sync = push(&lab, &options, "a", "t");
        let mut running = Running(sync.stderr(Stdio::null()).spawn().unwrap());
        let micros = u64::from(content(round, 1)[0]) * 300;
        std::thread::sleep(Duration::from_micros(micros));
        killed += u32::from(running.0.try_wait().unwrap().is_none());
        // Ends the client, and with it the sync.
        drop(running);
        for (path, content) in &old {
            assert!(is_kept(path, content), "round {round}: {path}");
        }
    }
    assert!(killed > 0, "none of them was killed");
    lab.server = None;
    lab.start(zerolane(), &[], "127.0.0.1:0");
    eventually("a sync that is not in the way of a killed one", || {
        when_free(push(&lab, &options, "a", "t"))
    });
    assert_eq!(tree(&lab.local("a"), false), tree(&lab.share("t"), false));
    for (path, content) in &old {
        assert!(
            fs::read(lab.share("old").join(path)).unwrap() == *content,
            "{path}"
        );
    }
}
