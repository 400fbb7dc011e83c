//! Tests what a sync deletes: extra files, and files in the way.

use super::*;

#[test]
fn sync__delete_removes_what_is_too_much() {
    let lab = Lab::new(&[]);
    plant(&lab);
    write(&lab.local("outside"), b"outside");
    numbers(push(&lab, &[], "a", "t"));
    // A link that points outside is deleted as a link, and its target stays.
    write(&lab.share("outside/file"), b"outside");
    symlink("../outside", lab.share("t/out")).unwrap();
    write(&lab.share("t/extra/deep/er"), b"x");
    write(&lab.share("t/sub/more"), b"x");
    let before = tree(&lab.share(""), true);
    let without = numbers(push(&lab, &[], "a", "t"));
    assert_eq!(
        (&without["sent"], &without["deleted"]),
        (&0.into(), &0.into())
    );
    assert!(lab.share("t/extra/deep/er").exists());
    let dry = numbers(push(&lab, &["-n", "--delete"], "a", "t"));
    assert_eq!(dry["deleted"], 5);
    let same = |(path, words): (&String, &String)| {
        let directory = words.starts_with("directory");
        directory || tree(&lab.share(""), true).get(path) == Some(words)
    };
    assert!(before.iter().all(same));
    let done = numbers(push(&lab, &["--delete"], "a", "t"));
    assert_eq!((&done["deleted"], &done["failed"]), (&5.into(), &0.into()));
    assert_eq!(tree(&lab.local("a"), false), tree(&lab.share("t"), false));
    assert_eq!(fs::read(lab.share("outside/file")).unwrap(), b"outside");
    // And in the other direction.
    numbers(pull(&lab, &[], "t", "b"));
    symlink(lab.local("outside"), lab.local("b/out")).unwrap();
    write(&lab.local("b/extra/deep/er"), b"x");
    let done = numbers(pull(&lab, &["--delete"], "t", "b"));
    assert_eq!((&done["deleted"], &done["failed"]), (&4.into(), &0.into()));
    assert_eq!(tree(&lab.local("a"), false), tree(&lab.local("b"), false));
    assert_eq!(fs::read(lab.local("outside")).unwrap(), b"outside");
}

#[test]
fn sync__delete_is_refused() {
    let lab = Lab::new(&[]);
    fs::create_dir(lab.local("empty")).unwrap();
    write(&lab.share("t/file"), b"x");
    let words = "nothing was deleted: the source is empty (--allow-empty-source";
    fail(push(&lab, &["--delete"], "empty", "t"), 1, words);
    fail(push(&lab, &["-n", "--delete"], "empty", "t"), 1, words);
    // Also if filters leave nothing of the source.
    write(&lab.local("filtered/a.o"), b"x");
    fail(
        push(&lab, &["--delete", "--exclude=*.o"], "filtered", "t"),
        1,
        words,
    );
    // A missing source is an error.
    fail(
        push(&lab, &["--delete"], "missing", "t"),
        1,
        "missing: no such file or directory",
    );
    fail(
        pull(&lab, &["--delete"], "missing", "empty"),
        1,
        "missing: no such file or directory",
    );
    // A file that fails to copy prevents all deletions.
    write(&lab.local("a/d"), b"a file");
    write(&lab.local("a/new"), b"new");
    write(&lab.share("t/d/stays.o"), b"x");
    let (code, out, err) = run(push(&lab, &["--delete", "--exclude=*.o"], "a", "t"));
    assert_eq!(code, 5, "{out}{err}");
    assert!(err.contains("d: a directory stands in the way"), "{err}");
    assert!(
        err.contains("1 failed, 1 sent, 0 unchanged; nothing was deleted"),
        "{err}"
    );
    assert_eq!(paths(&lab.share("t")), ["d", "d/stays.o", "file", "new"]);
    let done = numbers(push(
        &lab,
        &["--delete", "--allow-empty-source"],
        "empty",
        "t",
    ));
    assert_eq!(done["deleted"], 4);
    assert_eq!(names(&lab.share("t")), [""; 0]);
    fail(
        push(&lab, &["--allow-empty-source"], "empty", "t"),
        2,
        "--delete",
    );
}

#[test]
fn sync__another_type_takes_the_place() {
    let lab = Lab::new(&[]);
    let (a, t) = (lab.local("a"), lab.share("t"));
    write(&a.join("to directory/file"), b"in it");
    write(&a.join("to directory/sub/file"), b"in it");
    write(&a.join("to file"), b"a file");
    write(&a.join("to large"), &content(1, MIB));
    symlink("to file", a.join("to link")).unwrap();
    write(&a.join("link to file"), b"a file");
    write(&a.join("link out/file"), b"in it");
    write(&t.join("to directory"), b"was a file");
    write(&t.join("to file/was/a"), b"directory");
    fs::create_dir(t.join("to large")).unwrap();
    write(&t.join("to link/was/a"), b"directory");
    symlink("nowhere", t.join("link to file")).unwrap();
    // Nothing is written through the link.
    write(&lab.share("outside/file"), b"outside");
    symlink("../outside", t.join("link out")).unwrap();
    // Without --delete, directories that are not empty stay, and are reported.
    let (code, _, err) = run(push(&lab, &[], "a", "t"));
    assert_eq!(code, 5, "{err}");
    for path in ["to file", "to large", "to link"] {
        let words = format!("{path}: a directory stands in the way");
        assert!(err.contains(&words), "{err}");
    }
    assert_eq!(fs::read(t.join("to file/was/a")).unwrap(), b"directory");
    numbers(push(&lab, &["--delete"], "a", "t"));
    assert_eq!(tree(&a, false), tree(&t, false));
    assert_eq!(fs::read(lab.share("outside/file")).unwrap(), b"outside");
    // The same for a local target.
    let b = lab.local("b");
    write(&b.join("to directory"), b"was a file");
    write(&b.join("to file/was/a"), b"directory");
    numbers(pull(&lab, &["--delete"], "t", "b"));
    assert_eq!(tree(&a, false), tree(&b, false));
}

#[test]
fn sync__special_files_are_told_and_kept() {
    let lab = Lab::new(&[]);
    write(&lab.local("a/file"), b"x");
    nix::unistd::mkfifo(&lab.local("a/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    write(&lab.share("t/fifo"), b"a file of that name");
    write(&lab.share("t/extra"), b"x");
    let out = succeed(push(&lab, &["--delete"], "a", "t"));
    assert!(
        out.contains("skipped    fifo (device, socket or FIFO)"),
        "{out}"
    );
    assert_eq!(paths(&lab.share("t")), ["fifo", "file"]);
    // A FIFO at the target is replaced like other files.
    nix::unistd::mkfifo(&lab.share("t/file2"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    write(&lab.local("a/file2"), b"x");
    succeed(push(&lab, &[], "a", "t"));
    assert_eq!(fs::read(lab.share("t/file2")).unwrap(), b"x");
}

#[test]
fn sync__directories_that_may_not_be_written_to() {
    let lab = Lab::new(&[]);
    let close = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    write(&lab.local("a/closed/file"), b"old");
    write(&lab.local("a/closed/extra"), b"x");
    write(&lab.local("a/closed/hidden"), b"x");
    close(&lab.local("a/closed/hidden"), 0o400);
    close(&lab.local("a/closed"), 0o555);
    numbers(push(&lab, &[], "a", "t"));
    close(&lab.local("a/closed"), 0o755);
    fs::remove_file(lab.local("a/closed/extra")).unwrap();
    write(&lab.local("a/closed/file"), b"another");
    close(&lab.local("a/closed"), 0o555);
    // The owner may always change these permissions, and the program does for the time it needs.
    close(&lab.share("t/closed/hidden"), 0);
    let done = numbers(push(&lab, &["--delete"], "a", "t"));
    assert_eq!((&done["sent"], &done["deleted"]), (&2.into(), &1.into()));
    assert_eq!(numbers(pull(&lab, &[], "t", "b"))["sent"], 2);
    assert_eq!(tree(&lab.local("a"), false), tree(&lab.local("b"), false));
    for closed in ["a/closed", "b/closed"] {
        close(&lab.local(closed), 0o755);
    }
    close(&lab.share("t/closed"), 0o755);
}

/// An unreadable directory might contain anything, so nothing is deleted.
#[test]
fn sync__delete_of_a_source_that_cannot_be_read_whole_deletes_nothing() {
    if nix::unistd::geteuid().is_root() {
        println!("skipped: this process has the rights to read everything");
        return;
    }
    let lab = Lab::new(&[]);
    let close = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (from, to) in [
        (lab.local("a"), lab.share("t")),
        (lab.share("b"), lab.local("u")),
    ] {
        write(&from.join("new"), b"new");
        write(&from.join("closed/kept"), b"x");
        write(&to.join("extra"), b"x");
        write(&to.join("closed/kept"), b"x");
        write(&to.join("closed/extra"), b"x");
        close(&from.join("closed"), 0);
    }
    for (sync, from, to) in [
        (
            push(&lab, &["--delete"], "a", "t"),
            lab.local("a"),
            lab.share("t"),
        ),
        (
            pull(&lab, &["--delete"], "b", "u"),
            lab.share("b"),
            lab.local("u"),
        ),
    ] {
        let (code, out, err) = run(sync);
        close(&from.join("closed"), 0o755);
        assert_eq!(code, 5, "{out}{err}");
        assert!(err.contains("closed: permission denied"), "{err}");
        assert!(err.contains("nothing was deleted"), "{err}");
        let left = ["closed", "closed/extra", "closed/kept", "extra", "new"];
        assert_eq!(paths(&to), left);
    }
}

/// Deletions stop at the limit, in the order of the report. rsync exits with the same code.
#[test]
fn sync__max_delete() {
    let lab = Lab::new(&[]);
    write(&lab.local("a/file"), b"x");
    for extra in ["d/one", "d/two", "e", "f"] {
        write(&lab.share("t").join(extra), b"x");
    }
    let limited = |options: &[&str]| {
        let all = [&["--delete", "--max-delete=2", "--json"], options].concat();
        run(push(&lab, &all, "a", "t"))
    };
    let (code, out, err) = limited(&["-n"]);
    assert_eq!(code, 25, "{out}{err}");
    assert_eq!(out.matches("\"deleted\",\"kind\"").count(), 2, "{out}");
    assert_eq!(names(&lab.share("t")), ["d", "e", "f"]);
    for (deleted, over, code, left) in [
        (2, 3, 25, &["d", "e", "f", "file"][..]),
        (2, 1, 25, &["f", "file"]),
        (1, 0, 0, &["file"]),
        (0, 0, 0, &["file"]),
    ] {
        let (ended, out, err) = limited(&[]);
        assert_eq!(ended, code, "{out}{err}");
        let done = last(&out);
        assert_eq!(
            (&done["deleted"], &done["over_limit"]),
            (&deleted.into(), &over.into())
        );
        assert_eq!(names(&lab.share("t")), left);
        let words = format!("{over} more should be deleted, and stay: --max-delete");
        assert_eq!(err.contains(&words), over > 0, "{err}");
    }
    // A failure takes precedence. The same for a local target.
    write(&lab.share("t/d/x"), b"x");
    fs::create_dir(lab.local("b")).unwrap();
    for extra in ["b/1", "b/2"] {
        write(&lab.local(extra), b"x");
    }
    let none = ["--delete", "--max-delete=0"];
    fail(pull(&lab, &none, "t", "b"), 25, "2 more should be deleted");
    assert_eq!(paths(&lab.local("b")), ["1", "2", "d", "d/x", "file"]);
    fail(push(&lab, &["--max-delete=1"], "a", "t"), 2, "--delete");
    if Command::new("rsync").arg("--version").output().is_err() {
        println!("skipped: there is no rsync");
        return;
    }
    let mut rsync = Command::new("rsync");
    rsync.args(["-a", "--delete", "--max-delete=1"]);
    rsync.arg(lab.share("t/")).arg(lab.local("b"));
    let (code, _, err) = run(rsync);
    assert_eq!((code, names(&lab.local("b")).len()), (25, 3), "{err}");
}
