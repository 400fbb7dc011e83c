//! Tests temporary files: they are not confused with users' files, and survive a full disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::lab::*;

/// Large enough to interrupt a copy.
const BIG: usize = 192 * MIB;

/// The name of the temporary file for `big`, found by killing a copy.
fn name_of_temporary(lab: &Lab) -> String {
    let place = lab.base.path().join("other");
    fs::create_dir(&place).unwrap();
    fs::write(lab.share("big"), content(9, BIG)).unwrap();
    eventually("a copy that can be killed", || {
        let mut copy = zerolane();
        copy.arg("cp").arg(lab.there("big")).arg(&place);
        let killed = kill_when(copy, || part_bytes(&place, "big") >= 1 << 20);
        killed.then_some(())
    });
    let name = part(&place, "big").expect("left over");
    fs::remove_dir_all(&place).unwrap();
    fs::remove_file(lab.share("big")).unwrap();
    name.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn cp__a_file_that_is_called_like_a_temporary() {
    let lab = Lab::new(&[]);
    let name = name_of_temporary(&lab);
    fs::create_dir(lab.local("tree")).unwrap();
    // One file alone, and others whose names collide with temporary files.
    for (file, seed) in [("big", 1), (&*name, 2), ("small", 3), (".small.zlpart", 4)] {
        fs::write(lab.local("tree").join(file), content(seed, 2 * MIB)).unwrap();
    }
    for round in 0..2 {
        let out = succeed(lab.put(&["-r", "--json"], "tree", ""));
        let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        assert_eq!((&last["files"], &last["failed"]), (&4.into(), &0.into()));
        succeed(lab.get(&["-r", "--resume"], "tree", ""));
        for place in [lab.share("tree"), lab.local("tree")] {
            assert_eq!(names(&place).len(), 4, "round {round}");
            for (file, seed) in [("big", 1), (&*name, 2), ("small", 3), (".small.zlpart", 4)] {
                let there = fs::read(place.join(file)).unwrap();
                assert!(there == content(seed, 2 * MIB), "{file}, round {round}");
            }
        }
    }
}

/// A kind of file that a user may have, and how to make it.
type Kind = (&'static str, fn(&Path));

#[test]
fn cp__a_users_file_where_the_temporary_would_be() {
    let lab = Lab::new(&[]);
    let name = name_of_temporary(&lab);
    fs::write(lab.share("big"), content(1, 2 * MIB)).unwrap();
    let kinds: [Kind; 5] = [
        ("file", |path| fs::write(path, b"mine").unwrap()),
        ("empty", |path| fs::write(path, b"").unwrap()),
        ("directory", |path| fs::create_dir(path).unwrap()),
        ("link", |path| {
            std::os::unix::fs::symlink("victim", path).unwrap()
        }),
        ("FIFO", |path| {
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        }),
    ];
    for (kind, make) in kinds {
        let place = lab.local(kind);
        fs::create_dir(&place).unwrap();
        fs::write(place.join("victim"), b"precious").unwrap();
        make(&place.join(&name));
        let before = place.join(&name).symlink_metadata().unwrap();
        for options in [&[][..], &["--resume"]] {
            let _ = fs::remove_file(place.join("big"));
            succeed(lab.get(options, "big", kind));
            assert!(fs::read(place.join("big")).unwrap() == content(1, 2 * MIB));
        }
        let after = place.join(&name).symlink_metadata().unwrap();
        assert_eq!(
            (after.ino(), after.len()),
            (before.ino(), before.len()),
            "{kind}"
        );
        assert_eq!(fs::read(place.join("victim")).unwrap(), b"precious");
        assert_eq!(names(&place).len(), 3, "{kind}");
    }
    assert_eq!(fs::read(lab.local("file").join(&name)).unwrap(), b"mine");
}

/// A copy of `source` to `target`, stopped while it writes its temporary file.
fn stopped_copy(lab: &Lab, source: &str, target: &str) -> Running {
    for _ in 0..20 {
        let mut copy = lab.get(&[], source, target);
        let quiet = copy.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut copy = Running(quiet.spawn().unwrap());
        while part_bytes(&lab.local(""), target) < 1 << 20 && copy.0.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if copy.0.try_wait().unwrap().is_none() {
            signal(&copy, Signal::SIGSTOP);
            // One thread takes the signal; the others go on until it runs.
            let stopped = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            waitid(Id::Pid(pid(&copy)), stopped).unwrap();
            if part_bytes(&lab.local(""), target) > 0 {
                return copy;
            }
        }
        // On a busy machine the copy may be complete before it is examined, so try again.
        fs::remove_file(lab.local(target)).unwrap();
    }
    panic!("complete before it was stopped, each time");
}

fn signal(copy: &Running, signal: Signal) {
    kill(pid(copy), signal).unwrap();
}

fn pid(copy: &Running) -> Pid {
    Pid::from_raw(copy.0.id() as i32)
}

/// Resumes a stopped copy. Returns its exit code and output.
fn go_on(mut copy: Running) -> (Option<i32>, String) {
    signal(&copy, Signal::SIGCONT);
    let mut words = String::new();
    let err = copy.0.stderr.as_mut().unwrap();
    std::io::Read::read_to_string(err, &mut words).unwrap();
    (copy.0.wait().unwrap().code(), words)
}

#[test]
fn cp__temporary_removed_while_another_copy_writes_its_own() {
    let lab = Lab::new(&[]);
    fs::write(lab.share("one"), content(1, BIG)).unwrap();
    fs::write(lab.share("two"), content(2, BIG)).unwrap();
    let first = stopped_copy(&lab, "one", "big");
    fs::remove_file(part(&lab.local(""), "big").unwrap()).unwrap();
    let second = stopped_copy(&lab, "two", "big");
    let (code, words) = go_on(first);
    assert_eq!(code, Some(1), "{words}");
    assert!(
        words.contains("removed or replaced its temporary file"),
        "{words}"
    );
    assert!(!lab.local("big").exists(), "half of the other copy's");
    let (code, words) = go_on(second);
    assert_eq!(code, Some(0), "{words}");
    assert!(fs::read(lab.local("big")).unwrap() == content(2, BIG));
    assert_eq!(names(&lab.local("")), ["big"]);
}

#[test]
fn cp__temporary_replaced_by_another_program() {
    let lab = Lab::new(&[]);
    fs::write(lab.share("one"), content(1, BIG)).unwrap();
    let copy = stopped_copy(&lab, "one", "big");
    let temporary = part(&lab.local(""), "big").unwrap();
    fs::remove_file(&temporary).unwrap();
    fs::write(&temporary, b"theirs").unwrap();
    let (code, words) = go_on(copy);
    assert_eq!(code, Some(1), "{words}");
    assert!(
        words.contains("removed or replaced its temporary file"),
        "{words}"
    );
    assert!(!lab.local("big").exists(), "not what was copied");
    assert_eq!(fs::read(&temporary).unwrap(), b"theirs");
}

#[test]
fn cp__a_second_copy_to_a_target_that_is_being_written() {
    let lab = Lab::new(&[]);
    fs::write(lab.share("one"), content(1, BIG)).unwrap();
    fs::write(lab.share("two"), content(2, 3 * MIB)).unwrap();
    let first = stopped_copy(&lab, "one", "big");
    for options in [&[][..], &["--resume"]] {
        let words = "big: another copy is writing it";
        fail(lab.get(options, "two", "big"), 1, words);
    }
    let (code, words) = go_on(first);
    assert_eq!(code, Some(0), "{words}");
    assert!(fs::read(lab.local("big")).unwrap() == content(1, BIG));
    assert_eq!(names(&lab.local("")), ["big"]);
}

#[test]
fn cp__many_at_once_to_one_target() {
    let lab = Lab::new(&[]);
    for (round, size) in [1000, 3 * MIB].into_iter().cycle().take(8).enumerate() {
        let mut copies = Vec::new();
        for source in 0..4 {
            let name = format!("from{source}");
            fs::write(lab.local(&name), content(source, size)).unwrap();
            let mut copy = lab.put(&["-q"], &name, "to");
            let copy = copy.stdout(Stdio::null()).stderr(Stdio::piped());
            copies.push(copy.spawn().unwrap());
        }
        for copy in copies {
            let ended = copy.wait_with_output().unwrap();
            let words = String::from_utf8(ended.stderr).unwrap();
            match ended.status.code() {
                Some(0) => assert_eq!(words, ""),
                _ => assert!(words.contains("another copy is writing it"), "{words}"),
            }
        }
        let there = fs::read(lab.share("to")).unwrap();
        assert!((0..4).any(|it| there == content(it, size)), "round {round}");
        assert_eq!(names(&lab.share("")), ["to"], "round {round}");
    }
}

/// A server that sees another file system at its directory, mounted by `mount` in a namespace that ends with the
/// server. `None` without root.
fn lab_on(mount: &str) -> Option<Lab> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return None;
    }
    let script = format!("{mount} && exec \"$0\" \"$@\"");
    let program = || {
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "sh",
            "-c",
            &script,
            env!("CARGO_BIN_EXE_zerolane"),
        ]);
        command.stdin(Stdio::null()).env("ZEROLANE_HOME", HOME);
        command
    };
    Some(Lab::served_by(program, &[]))
}

/// The served directory as its server sees it.
fn share_of(lab: &Lab) -> PathBuf {
    let server = lab.server.as_ref().unwrap().0.id();
    let below = lab.share("");
    Path::new(&format!("/proc/{server}/root")).join(below.strip_prefix("/").unwrap())
}

fn kept(out: &str) -> u64 {
    let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    last["bytes_kept"].as_u64().unwrap()
}

#[test]
fn cp__disk_full_then_room_made_then_resumed() {
    let Some(lab) = lab_on("mount -t tmpfs -o size=64m zerolane-test \"$2\"") else {
        return;
    };
    let share = share_of(&lab);
    fs::write(share.join("filler"), content(1, 40 * MIB)).unwrap();
    fs::write(lab.local("big"), content(2, 40 * MIB)).unwrap();
    fail(
        lab.put(&[], "big", ""),
        1,
        "big: no space left on the target's disk",
    );
    assert!(part_bytes(&share, "big") >= 20 << 20);
    fs::remove_file(share.join("filler")).unwrap();
    let out = succeed(lab.put(&["--resume", "--json"], "big", ""));
    assert!(kept(&out) >= 20 << 20, "{out}");
    assert!(fs::read(share.join("big")).unwrap() == content(2, 40 * MIB));
    assert_eq!(names(&share), ["big"]);
}

#[test]
fn cp__getting_to_a_full_disk_then_room_made_then_resumed() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    let lab = Lab::new(&["--read-only"]);
    fs::write(lab.share("big"), content(2, 40 * MIB)).unwrap();
    let script = r#"
        mount -t tmpfs -o size=64m zerolane-test "$1" && cd "$1" || exit 9
        head -c 40m /dev/zero > filler
        "$0" cp -q "$2" big && exit 8
        rm filler
        "$0" cp --resume --json "$2" big || exit 7
        cp big "$3"
    "#;
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "sh",
            "-c",
            script,
            env!("CARGO_BIN_EXE_zerolane"),
        ])
        .arg(lab.local(""))
        .arg(lab.there("big"))
        .arg(lab.base.path().join("copied"))
        .env("ZEROLANE_HOME", HOME);
    let (code, out, err) = run(command);
    assert_eq!(code, 0, "{out}{err}");
    assert!(
        err.contains("big: no space left on the target's disk"),
        "{err}"
    );
    assert!(kept(&out) >= 20 << 20, "{out}");
    assert!(fs::read(lab.base.path().join("copied")).unwrap() == content(2, 40 * MIB));
}

#[test]
fn cp__full_disk_is_told_once_for_all_that_follows() {
    let Some(lab) = lab_on("mount -t tmpfs -o size=8m zerolane-test \"$2\"") else {
        return;
    };
    fs::create_dir(lab.local("tree")).unwrap();
    for number in 0..100 {
        let bytes = content(number, 200 << 10);
        fs::write(lab.local("tree").join(number.to_string()), bytes).unwrap();
    }
    let (code, _, err) = run(lab.put(&["-rq"], "tree", ""));
    assert_eq!(code, 5, "{err}");
    let lines: Vec<_> = err.lines().collect();
    assert!(
        lines[0].ends_with(": no space left on the target's disk, at the server"),
        "{err}"
    );
    assert!(
        lines[1].ends_with("more files: no space left on the target's disk"),
        "{err}"
    );
    assert_eq!(lines.len(), 3, "{err}");
}

#[test]
fn cp__where_there_are_no_extended_attributes() {
    let Some(lab) = lab_on("mount -t ramfs zerolane-test \"$2\"") else {
        return;
    };
    killed_resumed_and_clean(&lab);
}

#[test]
fn cp__where_nothing_can_be_made_without_a_name() {
    let Some(lab) = lab_on("mount -t tmpfs zerolane-test \"$2\" && mount -t tmpfs hidden /proc")
    else {
        return;
    };
    killed_resumed_and_clean(&lab);
}

/// Copies small and large files. The large one is killed once and resumed, while a user's file has the name of its
/// temporary file.
fn killed_resumed_and_clean(lab: &Lab) {
    let share = share_of(lab);
    fs::create_dir(lab.local("tree")).unwrap();
    for (name, len) in [("none", 0), ("small", 1000), ("large", 3 * MIB + 1)] {
        fs::write(lab.local("tree").join(name), content(len as u64, len)).unwrap();
    }
    for _ in 0..2 {
        succeed(lab.put(&["-r"], "tree", ""));
        assert_eq!(names(&share.join("tree")), ["large", "none", "small"]);
    }
    for (name, len) in [("none", 0), ("small", 1000), ("large", 3 * MIB + 1)] {
        assert!(fs::read(share.join("tree").join(name)).unwrap() == content(len as u64, len));
    }
    let bytes = content(1, BIG);
    fs::write(lab.local("big"), &bytes).unwrap();
    let enough = || part_bytes(&share, "big") >= 70 << 20;
    eventually("a copy that can be killed", || {
        // An earlier copy was complete; with its file there, no temporary file is made.
        let _ = fs::remove_file(share.join("big"));
        kill_when(lab.put(&["--resume"], "big", ""), enough).then_some(())
    });
    let left_over = part(&share, "big").expect("left over");
    let out = eventually("a copy", || {
        when_free(lab.put(&["--resume", "--json"], "big", ""))
    });
    assert!(kept(&out) >= 60 << 20, "{out}");
    assert!(fs::read(share.join("big")).unwrap() == bytes);
    assert_eq!(names(&share), ["big", "tree"]);

    fs::write(&left_over, b"mine").unwrap();
    fs::write(lab.local("big"), content(2, 3 * MIB)).unwrap();
    succeed(lab.put(&["--resume"], "big", ""));
    assert!(fs::read(share.join("big")).unwrap() == content(2, 3 * MIB));
    assert_eq!(fs::read(&left_over).unwrap(), b"mine");
    assert_eq!(names(&share).len(), 3);
}
