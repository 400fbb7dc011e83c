//! Symbolic links where a copy goes to.

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
        // What is the same already is not written again.
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
    // Named on the command line is the directory; what is in it is replaced, not followed.
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
    // As /dev/stdout is: what it leads to is this process's, whatever it is.
    symlink("/proc/self/fd/1", lab.local("stdout")).unwrap();
    symlink("/dev/null", lab.local("null")).unwrap();
    for name in ["fifo", "to-fifo", "stdout", "null"] {
        let before = lab.local(name).symlink_metadata().unwrap();
        fail(
            lab.get(&[], "f", name),
            1,
            &format!("{name}: is no file or directory: copy to a file, then write that there"),
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
            &format!("{name}: is a symbolic link that leads nowhere: remove it"),
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
