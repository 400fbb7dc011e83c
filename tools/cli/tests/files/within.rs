//! Tests `zerolane cp` and `sync` within one machine.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::lab::*;

/// A working directory, with separate keys, configuration and rendezvous.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let base = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::create_dir(base.path().join("run")).unwrap();
        Place(base)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    fn zerolane(&self, arguments: &[&str]) -> Command {
        let mut command = zerolane();
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env("ZEROLANE_HOME", self.path("keys"))
            .env("XDG_RUNTIME_DIR", self.path("run"));
        command
    }

    /// Plants `a`: small and large files, one with holes, one with two names, directories and links.
    fn tree(&self) {
        self.write("a/large", &content(1, 3 * MIB + 7));
        self.write("a/deep/er/small", b"small");
        self.write("a/empty", b"");
        fs::create_dir(self.path("a/nothing")).unwrap();
        let sparse = fs::File::create(self.path("a/holes")).unwrap();
        sparse.set_len(64 << 20).unwrap();
        fs::hard_link(self.path("a/large"), self.path("a/deep/again")).unwrap();
        symlink("../large", self.path("a/deep/link")).unwrap();
        fs::set_permissions(self.path("a/empty"), fs::Permissions::from_mode(0o640)).unwrap();
    }

    fn same(&self, a: &str, b: &str) {
        let mut diff = Command::new("diff");
        diff.args(["-r", "--no-dereference"])
            .args([self.path(a), self.path(b)]);
        let (code, out, err) = run(diff);
        assert_eq!(code, 0, "{out}{err}");
    }

    /// Asserts that nothing but the copy is left: no keys, no socket.
    fn clean(&self) {
        assert!(!self.path("keys").exists());
        assert_eq!(names(&self.path("run/zerolane")), [""; 0]);
    }
}

#[test]
fn cp__within_this_machine_keeps_what_it_does_between_hosts() {
    let place = Place::new();
    place.tree();
    succeed(place.zerolane(&["cp", "-r", "-H", "-X", "a", "b"]));
    place.same("a", "b");
    let (old, new) = (["a/holes", "a/empty"], ["b/holes", "b/empty"]);
    for (old, new) in old.into_iter().zip(new) {
        let (old, new) = (place.path(old), place.path(new));
        let (old, new) = (old.metadata().unwrap(), new.metadata().unwrap());
        assert_eq!(
            (old.mode(), old.mtime(), old.mtime_nsec()),
            (new.mode(), new.mtime(), new.mtime_nsec())
        );
        assert!(new.blocks() * 512 < MIB as u64);
    }
    let inode = |name| place.path(name).metadata().unwrap().ino();
    assert_eq!(inode("b/large"), inode("b/deep/again"));
    // Into an existing directory, over several connections, with filters and events.
    fs::create_dir(place.path("c")).unwrap();
    let words = [
        "cp",
        "-r",
        "--connections",
        "3",
        "--exclude",
        "holes",
        "--json",
        "a",
        "c",
    ];
    let events = succeed(place.zerolane(&words));
    let last = events.lines().last().unwrap();
    assert!(last.contains(r#""event":"summary","files":4,"#), "{last}");
    assert!(!place.path("c/a/holes").exists());
    place.clean();
}

#[test]
fn cp__within_this_machine_takes_paths_and_links_as_those_of_the_user() {
    let place = Place::new();
    for name in ["one", "two", "sub/three"] {
        place.write(name, name.as_bytes());
    }
    symlink("sub", place.path("link")).unwrap();
    symlink("sub/three", place.path("to-three")).unwrap();
    symlink("nowhere", place.path("to-nothing")).unwrap();
    let absolute = place.path("absolute").display().to_string();
    for (sources, target, at) in [
        (&["one"][..], "link/one", "sub/one"),
        (&["one", "two"], "link", "sub/two"),
        (&["one"], "sub/../up", "up"),
        (&["one"], "to-three", "sub/three"),
        (&["one"], &absolute, "absolute"),
        (&["to-three"], "content", "content"),
    ] {
        succeed(place.zerolane(&[&["cp"], sources, &[target]].concat()));
        let from = sources.last().unwrap();
        assert_eq!(place.read(at), place.read(from), "{target}");
    }
    assert!(place.path("to-three").is_symlink());
    for (words, code, says) in [
        (["cp", "one", "to-nothing"], 1, "symbolic link to nothing"),
        (
            ["cp", "one", "/dev/null"],
            1,
            "neither a file nor a directory",
        ),
        (["cp", "sub", "new"], 1, "use -r to include it"),
        (["cp", "none", "new"], 1, "none: no such file or directory"),
        (
            ["cp", "one", "none/new"],
            1,
            "none/new: no such file or directory\n",
        ),
        (["cp", "one", ""], 2, "is no path"),
    ] {
        fail(place.zerolane(&words), code, says);
    }
    fail(
        place.zerolane(&["cp", "none", "one", "sub"]),
        5,
        "1 failed, 1 copied",
    );
    if nix::unistd::geteuid().is_root() {
        println!("skipped: this process has the rights");
        return;
    }
    fs::set_permissions(place.path("sub"), fs::Permissions::from_mode(0o555)).unwrap();
    fail(
        place.zerolane(&["cp", "one", "sub/new"]),
        1,
        "permission denied, at the target",
    );
    fs::set_permissions(place.path("sub"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn cp__of_a_file_to_itself_is_refused() {
    let place = Place::new();
    let large = content(5, 3 * MIB);
    place.write("d/f", &large);
    place.write("d/b/inner", b"inner");
    fs::hard_link(place.path("d/f"), place.path("hard")).unwrap();
    symlink("d/f", place.path("link")).unwrap();
    symlink("d", place.path("to-d")).unwrap();
    for words in [
        &["d/f", "d/f"][..],
        &["d/f", "d"],
        &["d/f", "d/"],
        &["d/f", "to-d"],
        &["d/f", "link"],
        &["link", "d/f"],
        &["link", "link"],
        &["-P", "link", "d/f"],
        &["-P", "link", "."],
        &["d/f", "hard"],
        &["--in-place", "hard", "d/f"],
        &["--in-place", "--delta", "hard", "d/f"],
        &["-r", "d/.", "d"],
        &["-r", "to-d/.", "d"],
        &["-r", "d", "."],
        &["-r", "--connections", "2", "d", "."],
    ] {
        let words = [&["cp"], words].concat();
        fail(
            place.zerolane(&words),
            1,
            "source and target are the same file",
        );
        assert_eq!(place.read("d/f"), large, "{words:?}");
        assert!(place.path("link").is_symlink());
    }
    // The other sources are copied.
    place.write("e", b"e");
    fail(place.zerolane(&["cp", "d/f", "e", "d"]), 5, "same file");
    assert_eq!(place.read("d/e"), b"e");
    // Also inside a tree, where it would do harm.
    fs::create_dir(place.path("linked")).unwrap();
    fs::hard_link(place.path("d/f"), place.path("linked/f")).unwrap();
    fail(
        place.zerolane(&["cp", "-r", "--in-place", "d/.", "linked"]),
        5,
        "f: source and target are the same file",
    );
    assert_eq!(place.read("linked/b/inner"), b"inner");
    assert_eq!(place.read("d/f"), large);
    place.clean();
}

#[test]
fn cp__of_a_directory_into_itself_is_refused() {
    let place = Place::new();
    place.write("d/f", b"f");
    place.write("d/sub/g", b"g");
    for target in ["d/new", "d", "d/."] {
        fail(
            place.zerolane(&["cp", "-r", "d", target]),
            1,
            "d: cannot be moved or copied into itself",
        );
        assert_eq!(names(&place.path("d")), ["f", "sub"]);
    }
    // Other sources are copied.
    symlink("d/sub", place.path("link")).unwrap();
    fail(
        place.zerolane(&["cp", "-r", "d", "link"]),
        5,
        "d/sub: cannot be moved or copied into itself",
    );
    assert_eq!(names(&place.path("d/sub/d")), ["f"]);
    fail(
        place.zerolane(&["cp", "-r", "d/.", "d/made"]),
        5,
        "made: cannot be moved or copied into itself",
    );
    assert_eq!(names(&place.path("d/made")), ["f", "sub"]);
    succeed(place.zerolane(&["cp", "-r", "--exclude", "/made2", "d/.", "d/made2"]));
    assert_eq!(names(&place.path("d/made2")), ["f", "made", "sub"]);
    // In the reverse direction there is no cycle.
    succeed(place.zerolane(&["cp", "-r", "d/made/.", "d"]));
}

#[test]
fn sync__within_this_machine() {
    let place = Place::new();
    place.tree();
    place.write("b/extra", b"x");
    let (code, out, _) = run(place.zerolane(&["sync", "-n", "--delete", "-H", "a", "b"]));
    assert!(code == 0 && out.contains("extra"), "{out}");
    assert_eq!(names(&place.path("b")), ["extra"]);
    succeed(place.zerolane(&["sync", "--delete", "-H", "a/", "b/"]));
    place.same("a", "b");
    let (code, _, err) = run(place.zerolane(&["sync", "--checksum", "-H", "a", "b"]));
    assert!(
        code == 0 && err.contains(" 0 sent (0 B), 0 deleted"),
        "{err}"
    );
    place.clean();
}

#[test]
fn sync__within_this_machine_neither_enters_nor_deletes_itself() {
    let place = Place::new();
    place.write("d/f", b"f");
    place.write("d/sub/g", b"g");
    symlink("d", place.path("link")).unwrap();
    for target in ["d", "d/", "link", "d/sub/.."] {
        fail(
            place.zerolane(&["sync", "--delete", "d", target]),
            1,
            "same file",
        );
    }
    fail(
        place.zerolane(&["sync", "--delete", "d/sub", "d"]),
        2,
        "d/sub is inside of the target, and --delete",
    );
    assert_eq!(names(&place.path("d")), ["f", "sub"]);
    fail(
        place.zerolane(&["sync", "d", "d/sub"]),
        5,
        "sub: cannot be moved or copied into itself",
    );
    assert_eq!(names(&place.path("d/sub")), ["f", "g"]);
    succeed(place.zerolane(&["sync", "--exclude", "/sub", "--delete", "d", "d/sub"]));
    assert_eq!(names(&place.path("d/sub")), ["f"]);
    succeed(place.zerolane(&["sync", "d/sub", "d"]));
}

#[test]
fn options__for_other_hosts_are_refused_within_this_machine() {
    let place = Place::new();
    place.write("a", b"a");
    for option in [
        &["--lane", "udp"][..],
        &["--plain"],
        &["--server-key", "zl:none"],
        &["--identity", "x"],
        &["--code", "1234-5678-9012"],
        &["--rsh", "ssh"],
        &["--remote-listen", ":1"],
        &["--path", "="],
    ] {
        let (code, _, err) = run(place.zerolane(&[&["cp", "a", "b"], option].concat()));
        assert_eq!(code, 2, "{option:?}: {err}");
        assert!(!place.path("b").exists());
    }
    fail(
        place.zerolane(&["cp", "--rsh", "ssh", "a", "b"]),
        2,
        "--rsh is for a side at another host",
    );
}

#[test]
fn streams__within_this_machine() {
    let place = Place::new();
    let large = content(3, 2 * MIB);
    place.write("a", &large);
    let mut put = place.zerolane(&["cp", "-", "b"]);
    put.stdin(fs::File::open(place.path("a")).unwrap());
    succeed(put);
    assert_eq!(place.read("b"), large);
    let got = place.zerolane(&["cp", "b", "-"]).output().unwrap();
    assert!(got.status.success() && got.stdout == large);
    place.clean();
}

#[test]
fn cp__within_this_machine_that_is_killed_goes_on() {
    let place = Place::new();
    let large = content(7, 24 * MIB);
    place.write("large", &large);
    place.write("out/large", b"old");
    let out = place.path("out");
    let copy = place.zerolane(&["cp", "large", "out"]);
    assert!(kill_when(copy, || part_bytes(&out, "large") > 2 * MIB as u64));
    assert_eq!(place.read("out/large"), b"old");
    let events = succeed(place.zerolane(&["cp", "--resume", "--json", "large", "out"]));
    let kept = events.rsplit_once(r#""bytes_kept":"#).unwrap().1;
    assert!(!kept.starts_with("0,"), "{kept}");
    assert_eq!(place.read("out/large"), large);
    assert_eq!(names(&out), ["large"]);
    // A signal ends the copy in order.
    let mut copy = place.zerolane(&["cp", "large", "again", "--limit", "1MiB/s"]);
    let mut copy = Running(copy.stderr(Stdio::null()).spawn().unwrap());
    eventually("it writes", || part(&place.path(""), "again"));
    let pid = nix::unistd::Pid::from_raw(copy.0.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(copy.0.wait().unwrap().code(), Some(130));
    assert!(!place.path("again").exists());
    // The killed copy left its rendezvous socket, as every killed listener does.
    assert!(names(&place.path("run/zerolane")).len() <= 1);
}

/// The UDP port of a process.
fn port_of(pid: u32) -> Option<u16> {
    let sockets: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .ok()?
        .filter_map(|it| fs::read_link(it.ok()?.path()).ok())
        .filter_map(|it| {
            Some(
                it.to_str()?
                    .strip_prefix("socket:[")?
                    .trim_end_matches(']')
                    .to_owned(),
            )
        })
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/udp")).ok()?;
    table.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let inode = words.get(9)?;
        let port = words[1].split(':').nth(1)?;
        sockets
            .iter()
            .any(|it| it == inode)
            .then(|| u16::from_str_radix(port, 16).unwrap())
    })
}

#[test]
fn cp__within_this_machine_lets_nobody_else_in() {
    let place = Place::new();
    place.write("large", &content(7, 8 * MIB));
    let mut copy = place.zerolane(&["cp", "large", "copy", "--limit", "1MiB/s"]);
    let mut copy = Running(copy.stderr(Stdio::null()).spawn().unwrap());
    eventually("it writes", || part(&place.path(""), "copy"));
    let port = port_of(copy.0.id()).unwrap();
    for lane in ["udp", "auto"] {
        let there = format!("127.0.0.1:{port}:");
        let mut other = zerolane();
        other
            .args(["ls", "--lane", lane, &there])
            .env("XDG_RUNTIME_DIR", place.path("run"))
            .env("ZEROLANE_HOME", place.path("other"));
        let (code, out, err) = run(other);
        assert!(matches!(code, 3 | 6) && out.is_empty(), "{code} {out}{err}");
    }
    assert!(copy.0.wait().unwrap().success());
    place.same("large", "copy");
}
