//! Tests symbolic links at the target and at the source of a copy, and sources that are not files.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::lab::*;

#[test]
fn cp__to_a_link_writes_what_it_leads_to() {
    for size in [1000, 3 * MIB] {
        let lab = Lab::new(&[]);
        fs::write(lab.share("f"), content(1, size)).unwrap();
        fs::create_dir_all(lab.local("far/away")).unwrap();
        fs::write(lab.local("far/away/file"), b"old").unwrap();
        symlink("away/file", lab.local("far/second")).unwrap();
        symlink(lab.local("far/second"), lab.local("first")).unwrap();
        succeed(lab.get(&[], "f", "first"));
        assert!(fs::read(lab.local("far/away/file")).unwrap() == content(1, size));
        assert!(lab.local("first").is_symlink() && lab.local("far/second").is_symlink());
        assert_eq!(names(&lab.local("far/away")), ["file"]);
        // A file that is the same is not written again.
        let before = lab.local("far/away/file").metadata().unwrap().ino();
        if size > MIB {
            succeed(lab.get(&["--resume"], "f", "first"));
            let after = lab.local("far/away/file").metadata().unwrap().ino();
            assert_eq!(before, after);
        }
    }
}

#[test]
fn cp__to_a_link_to_a_directory_goes_into_it() {
    let lab = Lab::new(&[]);
    fs::write(lab.share("f"), b"new").unwrap();
    fs::create_dir(lab.local("directory")).unwrap();
    fs::write(lab.local("victim"), b"precious").unwrap();
    symlink("directory", lab.local("link")).unwrap();
    // Only the directory is named on the command line; a link in it is replaced, not followed.
    symlink("../victim", lab.local("directory/f")).unwrap();
    succeed(lab.get(&[], "f", "link"));
    assert!(
        lab.local("directory/f")
            .symlink_metadata()
            .unwrap()
            .is_file()
    );
    assert_eq!(fs::read(lab.local("directory/f")).unwrap(), b"new");
    assert_eq!(fs::read(lab.local("victim")).unwrap(), b"precious");
}

#[test]
fn cp__to_what_is_no_file_is_refused_and_it_stays() {
    let lab = Lab::new(&[]);
    fs::write(lab.share("f"), b"new").unwrap();
    mkfifo(&lab.local("fifo"), Mode::S_IRWXU).unwrap();
    symlink("fifo", lab.local("to-fifo")).unwrap();
    // Like /dev/stdout, this leads to a descriptor of this process, whatever it is.
    symlink("/proc/self/fd/1", lab.local("stdout")).unwrap();
    symlink("/dev/null", lab.local("null")).unwrap();
    for name in ["fifo", "to-fifo", "stdout", "null"] {
        let before = lab.local(name).symlink_metadata().unwrap();
        fail(
            lab.get(&[], "f", name),
            1,
            &format!(
                "{name}: is neither a file nor a directory: copy to a file, then write that there"
            ),
        );
        let after = lab.local(name).symlink_metadata().unwrap();
        assert_eq!(
            (before.ino(), before.mode()),
            (after.ino(), after.mode()),
            "{name}"
        );
    }
    // Standard output is a file.
    let out = fs::File::create(lab.local("out")).unwrap();
    let mut copy = lab.get(&[], "f", "stdout");
    let status = copy
        .stdout(out)
        .stderr(std::process::Stdio::null())
        .status();
    assert_eq!(status.unwrap().code(), Some(1));
    assert_eq!(fs::read(lab.local("out")).unwrap(), b"");
}

#[test]
fn cp__to_a_link_that_leads_nowhere_is_refused() {
    let lab = Lab::new(&[]);
    fs::write(lab.share("f"), b"new").unwrap();
    symlink("missing", lab.local("dangling")).unwrap();
    symlink("round", lab.local("round")).unwrap();
    for name in ["dangling", "round"] {
        fail(
            lab.get(&[], "f", name),
            1,
            &format!("{name}: is a symbolic link to nothing: remove it"),
        );
        assert!(lab.local(name).is_symlink());
    }
    assert_eq!(names(&lab.local("")), ["dangling", "round"]);
}

#[test]
fn cp__links_below_a_served_directory_are_never_followed() {
    let lab = Lab::new(&[]);
    fs::create_dir(lab.local("d")).unwrap();
    fs::write(lab.local("d/f"), b"new").unwrap();
    fs::write(lab.local("victim"), b"precious").unwrap();
    fs::write(lab.share("inside"), b"precious").unwrap();
    for (name, target) in [
        ("out", "../local/victim"),
        ("in", "inside"),
        ("none", "missing"),
    ] {
        symlink(target, lab.share(name)).unwrap();
        fail(lab.put(&[], "d/f", name), 1, "outside the served directory");
        assert!(lab.share(name).is_symlink());
    }
    // In a directory, a link is replaced.
    fs::create_dir(lab.share("d")).unwrap();
    symlink("../../local/victim", lab.share("d/f")).unwrap();
    succeed(lab.put(&["-r"], "d", ""));
    assert!(lab.share("d/f").symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read(lab.share("d/f")).unwrap(), b"new");
    for path in [lab.local("victim"), lab.share("inside")] {
        assert_eq!(fs::read(path).unwrap(), b"precious");
    }
    assert_eq!(names(&lab.share("")), ["d", "in", "inside", "none", "out"]);
}

/// Copies `name` up or down. Returns exit code and errors.
fn copied(lab: &Lab, put: bool, options: &[&str], name: &str) -> (i32, String) {
    let command = match put {
        true => lab.put(options, name, "to"),
        false => lab.get(options, name, "to"),
    };
    let (code, _, err) = run(command);
    (code, err)
}

#[test]
fn cp__of_a_link_that_is_named_copies_what_it_leads_to() {
    let lab = Lab::new(&[]);
    for put in [true, false] {
        let (from, to) = match put {
            true => (lab.local(""), lab.share("to")),
            false => (lab.share(""), lab.local("to")),
        };
        fs::create_dir_all(from.join("tree")).unwrap();
        fs::write(from.join("tree/big"), b"content").unwrap();
        symlink("big", from.join("tree/link")).unwrap();
        symlink("tree/big", from.join("latest")).unwrap();
        symlink("tree", from.join("current")).unwrap();
        symlink("missing", from.join("nowhere")).unwrap();
        mkfifo(&from.join("fifo"), Mode::S_IRWXU).unwrap();

        let (code, err) = copied(&lab, put, &[], "latest");
        assert!(code == 0 && err.starts_with("1 file, 7 B"), "{err}");
        assert!(!to.is_symlink() && fs::read(&to).unwrap() == b"content");
        fs::remove_file(&to).unwrap();

        let (code, err) = copied(&lab, put, &[], "current");
        assert!(code == 1 && err.contains("use -r to include it"), "{err}");
        let (code, err) = copied(&lab, put, &["-r"], "current");
        assert!(code == 0 && err.contains("verified; 1 link"), "{err}");
        assert!(!to.is_symlink() && to.join("link").is_symlink());
        fs::remove_dir_all(&to).unwrap();

        let (code, err) = copied(&lab, put, &["-P"], "latest");
        assert!(code == 0 && err.contains("verified; 1 link"), "{err}");
        assert_eq!(fs::read_link(&to).unwrap().to_str(), Some("tree/big"));
        fs::remove_file(&to).unwrap();

        for (name, words) in [
            ("nowhere", "nowhere: is a symbolic link to nothing"),
            ("fifo", "fifo: is a device, socket or FIFO, not a file"),
        ] {
            let (code, err) = copied(&lab, put, &[], name);
            assert!(code == 1 && err.contains(words), "{err}");
            assert!(to.symlink_metadata().is_err());
        }
    }
    // To standard output, too.
    assert_eq!(succeed(lab_to_output(&lab, "latest")), "content");
    fail(lab_to_output(&lab, "fifo"), 1, "fifo: is a device");
}

fn lab_to_output(lab: &Lab, path: &str) -> std::process::Command {
    let mut command = zerolane();
    command.arg("cp").arg(lab.there(path)).arg("-");
    command
}

#[test]
fn cp__skips_and_counts_devices_sockets_and_fifos_of_a_tree() {
    let lab = Lab::new(&[]);
    for from in [lab.local("tree"), lab.share("tree")] {
        fs::create_dir(&from).unwrap();
        fs::write(from.join("file"), b"f").unwrap();
        mkfifo(&from.join("fifo"), Mode::S_IRWXU).unwrap();
        std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
    }
    for (copy, to) in [
        (lab.put(&["-r"], "tree", "to"), lab.share("to")),
        (lab.get(&["-r"], "tree", "to"), lab.local("to")),
    ] {
        let (code, _, err) = run(copy);
        assert_eq!(code, 0, "{err}");
        for name in ["fifo", "socket"] {
            let line = format!("{name}: skipped (device, socket or FIFO)");
            assert_eq!(err.matches(&line).count(), 1, "{err}");
        }
        let summary = err.lines().last().unwrap();
        assert!(summary.starts_with("1 file, "), "{err}");
        assert!(summary.contains("; 2 special files skipped"), "{err}");
        assert_eq!(names(&to), ["file"]);
    }
    let (_, out, _) = run(lab.put(&["-r", "--json"], "tree", "again"));
    assert_eq!(out.matches("\"event\":\"skipped\"").count(), 2, "{out}");
    assert!(out.contains("\"skipped\":2,\"failed\":0"), "{out}");
}

#[test]
fn cp__of_a_pipe_that_is_named_reads_it() {
    let lab = Lab::new(&[]);
    let there = lab.there("new");
    let own = env!("CARGO_BIN_EXE_zerolane");
    for script in [
        "printf content | \"$0\" cp /dev/stdin \"$1\"",
        "printf content | \"$0\" cp /proc/self/fd/0 \"$1\"",
        // Like `<(printf content)` in other shells.
        "printf content | { exec 7<&0 </dev/null; \"$0\" cp /dev/fd/7 \"$1\"; }",
        "printf content >\"$2\"; \"$0\" cp /dev/stdin \"$1\" <\"$2\"",
    ] {
        let mut shell = zerolane_by("sh");
        shell.args(["-c", script, own, &there]).arg(lab.local("x"));
        let (code, _, err) = run(shell);
        assert_eq!(code, 0, "{script}: {err}");
        assert!(
            fs::read(lab.share("new")).unwrap() == b"content",
            "{script}"
        );
        fs::remove_file(lab.share("new")).unwrap();
    }
    // With other sources, the pipe has no name to use.
    fs::write(lab.local("a"), b"a").unwrap();
    let mut shell = zerolane_by("sh");
    let script = "printf content | \"$0\" cp /dev/stdin \"$2\" \"$1\"";
    shell
        .args(["-c", script, own, &lab.there("")])
        .arg(lab.local("a"));
    let (code, _, err) = run(shell);
    let says = err.contains("/dev/stdin: is a device, socket or FIFO")
        || err.contains("stdin: is a device");
    assert!(code == 5 && says, "{err}");
}

/// Another program, with the settings of these tests.
fn zerolane_by(program: &str) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.env("ZEROLANE_HOME", HOME);
    command.env("ZEROLANE_CONFIG", "/dev/null");
    command
}
