//! Tests what a sync sends, and what it leaves unchanged.

use super::*;

#[test]
fn sync__there_and_back_and_nothing_the_second_time() {
    let lab = Lab::new(&[]);
    plant(&lab);
    let first = numbers(push(&lab, &[], "a", "copy"));
    assert_eq!(
        (&first["listed"], &first["sent"], &first["links"]),
        (&7.into(), &6.into(), &1.into())
    );
    assert_eq!(
        tree(&lab.local("a"), false),
        tree(&lab.share("copy"), false)
    );
    let blocks = |path: &Path| path.metadata().unwrap().blocks() * 512;
    assert_eq!(blocks(&lab.share("copy/sparse")), 4096);
    numbers(pull(&lab, &["--delete"], "copy", "b"));
    assert_eq!(tree(&lab.local("a"), false), tree(&lab.local("b"), false));
    // A trailing slash means nothing.
    let before = (tree(&lab.share(""), true), tree(&lab.local(""), true));
    for (source, target) in [("a", "copy"), ("a/", "copy/")] {
        for again in [
            push(&lab, &["--delete"], source, target),
            pull(&lab, &["--delete"], target, "b"),
        ] {
            let again = numbers(again);
            for (what, number) in [
                ("listed", 7),
                ("unchanged", 7),
                ("sent", 0),
                ("links", 0),
                ("directories", 0),
                ("bytes", 0),
                ("deleted", 0),
                ("failed", 0),
            ] {
                assert_eq!(again[what], number, "{what}: {again}");
            }
        }
    }
    assert_eq!(
        before,
        (tree(&lab.share(""), true), tree(&lab.local(""), true))
    );
}

#[test]
fn sync__only_what_differs() {
    let lab = Lab::new(&[]);
    plant(&lab);
    numbers(push(&lab, &[], "a", ""));
    let before = tree(&lab.share(""), true);
    // Changes of size, time and permissions, a new file, and a link with another target.
    write(&lab.local("a/sub/small"), b"SMALL");
    write(&lab.local("a/sub/none"), b"some");
    write(&lab.local("a/new"), b"new");
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(lab.local("a/large"), mode).unwrap();
    fs::remove_file(lab.local("a/sub/read only")).unwrap();
    write(&lab.local("a/sub/read only"), b"rr");
    fs::remove_file(lab.local("a/sub/link")).unwrap();
    symlink("small", lab.local("a/sub/link")).unwrap();
    let (code, out, err) = run(push(&lab, &["-v"], "a", ""));
    assert_eq!(code, 0, "{err}");
    for line in [
        "attributes large (3.00 MiB)",
        "new        new (3 B)",
        "changed    sub/link (link)",
        "changed    sub/none (4 B)",
        "changed    sub/read only (2 B)",
        "changed    sub/small (5 B)",
    ] {
        assert!(out.contains(line), "{line:?} is not in {out}");
    }
    assert!(
        err.contains("8 listed, 2 unchanged, 5 sent (14 B), 0 deleted, 0 failed"),
        "{err}"
    );
    assert_eq!(tree(&lab.local("a"), false), tree(&lab.share(""), false));
    let after = tree(&lab.share(""), true);
    assert_eq!(before["sparse"], after["sparse"]);
    // Permissions are changed without replacing the file.
    let inode = |words: &str| words.rsplit(' ').next().unwrap().to_owned();
    assert_eq!(inode(&before["large"]), inode(&after["large"]));
}

#[test]
fn sync__checksum_compares_contents() {
    let lab = Lab::new(&[]);
    for base in [lab.local("a"), lab.share("")] {
        write(&base.join("same"), &content(1, 2 * MIB));
        write(&base.join("other"), b"12345");
    }
    write(&lab.share("other"), b"67890");
    let time = lab.local("a/other").metadata().unwrap().modified().unwrap();
    let file = File::options().write(true).open(lab.share("other"));
    file.unwrap().set_modified(time).unwrap();
    // Files written within one tick of the kernel's clock have the same time.
    make_older(&lab.share("same"));
    let without = numbers(push(&lab, &["-n"], "a", ""));
    assert_eq!(
        (&without["sent"], &without["unchanged"]),
        (&1.into(), &1.into())
    );
    let with = numbers(push(&lab, &["--checksum"], "a", ""));
    assert_eq!((&with["sent"], &with["attributes"]), (&1.into(), &1.into()));
    assert_eq!(with["bytes"], 5);
    assert_eq!(tree(&lab.local("a"), false), tree(&lab.share(""), false));
    let again = numbers(pull(&lab, &["--checksum"], "", "a"));
    assert_eq!(again["unchanged"], 2);
}

/// The server has sent its whole listing, and closes, long before the local tree is scanned.
#[test]
fn sync__goes_on_when_the_server_has_told_all_that_it_has() {
    const FILES: u32 = 20_000;
    let lab = Lab::new(&[]);
    fs::create_dir(lab.local("a")).unwrap();
    for number in 0..FILES {
        File::create(lab.local("a").join(number.to_string())).unwrap();
    }
    let dry = numbers(push(&lab, &["-n", "--timeout", "0"], "a", "none"));
    assert_eq!(dry["sent"], FILES);
}

#[test]
fn sync__a_server_that_is_read_only() {
    let lab = Lab::new(&["--read-only"]);
    write(&lab.share("t/file"), b"x");
    write(&lab.local("a/file"), b"new");
    let dry = numbers(push(&lab, &["-n"], "a", "t"));
    assert_eq!(dry["sent"], 1);
    fail(push(&lab, &[], "a", "t"), 1, "the server is read-only");
    fs::create_dir(lab.local("empty")).unwrap();
    let options = ["--delete", "--allow-empty-source"];
    fail(
        push(&lab, &options, "empty", "t"),
        1,
        "the server is read-only",
    );
    assert_eq!(fs::read(lab.share("t/file")).unwrap(), b"x");
    assert_eq!(numbers(pull(&lab, &[], "t", "a"))["sent"], 1);
}

#[test]
fn sync__paths_that_lead_outside_are_refused() {
    let lab = Lab::new(&[]);
    write(&lab.local("a/file"), b"new");
    symlink("/tmp", lab.share("out")).unwrap();
    for path in ["..", "/tmp", "out", "x/../.."] {
        fail(
            push(&lab, &["--delete"], "a", path),
            1,
            "outside the served",
        );
        fail(
            pull(&lab, &["--delete"], path, "a"),
            1,
            "outside the served",
        );
    }
    fail(push(&lab, &[], "a/file", ""), 1, "file: is not a directory");
    fail(
        push(&lab, &[], "a", "none/t"),
        1,
        "no such file or directory",
    );
    let mut code = push(&lab, &["--code", "7-guitarist-revenge"], "a", "t");
    code.env("ZEROLANE_HOME", "/nonexistent");
    assert_eq!(run(code).0, 2);
}

#[test]
fn sync__dry_run_changes_nothing() {
    let lab = Lab::new(&[]);
    plant(&lab);
    write(&lab.share("t/sub/small"), b"other");
    write(&lab.share("t/large/was a"), b"directory");
    write(&lab.share("t/extra"), b"x");
    let times = |base: &Path| {
        let mut times = tree(base, true);
        times.insert(
            String::new(),
            format!("{:?}", base.metadata().unwrap().mtime_nsec()),
        );
        times
    };
    let before = (times(&lab.local("")), times(&lab.share("")));
    let (code, out, err) = run(push(&lab, &["-n", "--delete"], "a", "t"));
    assert_eq!(code, 0, "{err}");
    for line in [
        "deleted    extra (1 B)",
        "replaced   large (3.00 MiB)",
        "changed    sub/small (5 B)",
        "new        sub/empty/deeper/",
    ] {
        assert!(out.contains(line), "{line:?} is not in {out}");
    }
    assert!(err.contains("7 to be sent"), "{err}");
    succeed(push(&lab, &["--dry-run"], "a", "not there"));
    succeed(pull(&lab, &["-n", "--delete"], "t", "b"));
    assert_eq!(before, (times(&lab.local("")), times(&lab.share(""))));
}

#[test]
fn sync__a_key_that_may_only_read_changes_nothing_there() {
    let (lab, home) = server_of_another_user(&[]);
    for (place, name) in [(lab.share("t"), "kept"), (lab.local("a"), "new")] {
        fs::create_dir(&place).unwrap();
        fs::write(place.join(name), name).unwrap();
    }
    fs::create_dir(lab.local("back")).unwrap();
    let list = home.path().join("allowed_keys");
    fs::write(&list, format!("{} read\n", own_key())).unwrap();
    let before = tree(&lab.share("t"), true);
    for options in [&[][..], &["--delete"]] {
        fail(
            push(&lab, options, "a", "t"),
            1,
            "this key may only read there",
        );
    }
    // Nothing to send, and something to remove.
    fs::remove_file(lab.local("a").join("new")).unwrap();
    let options = ["--delete", "--allow-empty-source"];
    fail(
        push(&lab, &options, "a", "t"),
        1,
        "this key may only read there",
    );
    assert_eq!(tree(&lab.share("t"), true), before);
    succeed(pull(&lab, &["-q"], "t", "back"));
    assert_eq!(names(&lab.local("back")), ["kept"]);
}
