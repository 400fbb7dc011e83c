//! Tests `--limit`: no more arrives than the rate allows. Also tests limits of the process.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::lab::*;
use super::login::Login;

/// Bytes a second, as in the options below.
const RATE: u64 = 4 * MIB as u64;
const SLOW: [&str; 2] = ["--limit", "4MiB/s"];
/// The burst at the start, far less than an unlimited copy transfers until the test looks.
const SLACK: u64 = MIB as u64 / 4;
const LEN: usize = 3 * MIB;

/// Runs a copy of [`LEN`] bytes, and checks `arrived` against the limit. A slow machine does not matter: more time
/// allows more bytes.
fn keeps_to_the_limit(mut command: Command, arrived: impl Fn() -> u64) {
    let started = Instant::now();
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut copy = Running(quiet.spawn().unwrap());
    loop {
        let ended = copy.0.try_wait().unwrap();
        let arrived = arrived();
        let passed = started.elapsed();
        let most = SLACK + passed.as_millis() as u64 * RATE / 1000;
        assert!(
            arrived <= most,
            "{arrived} bytes after {passed:?} are more than {most}"
        );
        if let Some(status) = ended {
            assert!(status.success() && arrived == LEN as u64, "{status}");
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes on disk of the file `name`, temporary or complete.
fn on_disk(directory: &Path, name: &str) -> u64 {
    let whole = directory.join(name).metadata().map_or(0, |it| it.len());
    whole.max(part_bytes(directory, name))
}

#[test]
fn limit__of_sync_either_way() {
    let lab = Lab::new(&[]);
    for base in [lab.local("a"), lab.share("b")] {
        fs::create_dir(&base).unwrap();
        fs::write(base.join("large"), content(1, LEN)).unwrap();
    }
    let sync = |options: &[&str], from: String, to: String| {
        let mut command = zerolane();
        command.arg("sync").args(options).args([from, to]);
        command
    };
    let local = |name: &str| lab.local(name).display().to_string();
    for name in ["to", "back"] {
        fs::create_dir_all(lab.share(name)).unwrap();
        fs::create_dir_all(lab.local(name)).unwrap();
    }
    let there = sync(&SLOW, local("a"), lab.there("to"));
    keeps_to_the_limit(there, || on_disk(&lab.share("to"), "large"));
    let back = sync(&SLOW, lab.there("b"), local("back"));
    keeps_to_the_limit(back, || on_disk(&lab.local("back"), "large"));
}

#[test]
fn limit__over_a_remote_shell_either_way() {
    let login = Login::new();
    for at in ["local/large", "home/large"] {
        fs::write(login.path(at), content(1, LEN)).unwrap();
    }
    for (at, from, to) in [
        ("home", "local/large", login.there("to")),
        ("local", &*login.there("large"), "local/to".to_owned()),
    ] {
        let command = login.zerolane(&[&["cp"], &SLOW[..], &[from, &to]].concat());
        keeps_to_the_limit(command, || on_disk(&login.path(at), "to"));
    }
}

#[test]
fn limit__that_the_other_end_of_a_remote_shell_has() {
    let login = Login::with("exec zerolane serve --stdio --limit 4MiB/s");
    for at in ["local/large", "home/large"] {
        fs::write(login.path(at), content(1, LEN)).unwrap();
    }
    for (at, from, to) in [
        ("home", "local/large", login.there("to")),
        ("local", &*login.there("large"), "local/to".to_owned()),
    ] {
        let command = login.zerolane(&["cp", from, &to]);
        keeps_to_the_limit(command, || on_disk(&login.path(at), "to"));
    }
}

#[test]
fn limit__of_the_configuration_unless_the_command_line_has_another() {
    let lab = Lab::new(&[]);
    fs::write(lab.local("a"), content(1, LEN)).unwrap();
    let file = lab.base.path().join("config.toml");
    let (name, _) = lab.address.split_once(':').unwrap();
    let of_host = format!("[client]\nlimit = '100MiB/s'\n[host.'{name}']\nlimit = '4MiB/s'\n");
    for (target, config, options) in [
        ("t1", "[client]\nlimit = '4MiB/s'\n", &[][..]),
        ("t2", &of_host, &[]),
        ("t3", "[client]\nlimit = '100MiB/s'\n", &SLOW),
    ] {
        fs::write(&file, config).unwrap();
        let mut put = lab.put(options, "a", target);
        put.env("ZEROLANE_CONFIG", &file);
        keeps_to_the_limit(put, || on_disk(&lab.share(""), target));
    }
    fs::write(&file, "[client]\nlimit = 'fast'\n").unwrap();
    let mut put = lab.put(&[], "a", "t4");
    put.env("ZEROLANE_CONFIG", &file);
    fail(put, 2, "10MiB/s or 100mbit");
}

#[test]
fn limit__of_a_servers_configuration() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, "[serve]\nlimit = '4MiB/s'\n").unwrap();
    let limited = || {
        let mut command = zerolane();
        command.env("ZEROLANE_CONFIG", file.path());
        command
    };
    let lab = Lab::served_by(limited, &[]);
    fs::write(lab.local("a"), content(1, LEN)).unwrap();
    keeps_to_the_limit(lab.put(&[], "a", "t"), || on_disk(&lab.share(""), "t"));
}

/// Runs a command under a limit of the shell's `ulimit`.
fn under(limit: &str, command: Command) -> (i32, String, String) {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    run(shell)
}

#[test]
fn ulimit__of_the_size_of_files_is_an_error_of_one_file() {
    let lab = Lab::new(&[]);
    fs::create_dir(lab.share("d")).unwrap();
    fs::write(lab.share("d/large"), content(1, 3 * MIB)).unwrap();
    fs::write(lab.share("d/small"), b"small").unwrap();
    // 1 MiB or half of that, because shells differ in the block size. The limit also covers shared memory.
    let options = ["-r", "--lane", "udp"];
    let (code, _, err) = under("-f 1024", lab.get(&options, "d", "e"));
    assert_eq!(code, 5, "{err}");
    assert!(err.contains("large: is too large"), "{err}");
    assert_eq!(names(&lab.local("e")), ["small"]);
    let to_output = {
        let mut shell = Command::new("sh");
        let out = lab.local("out").display().to_string();
        shell.args(["-c", "ulimit -f 1024 && exec \"$0\" cp \"$1\" - > \"$2\""]);
        shell.arg(env!("CARGO_BIN_EXE_zerolane"));
        shell.args([lab.there("d/large"), out]);
        shell.env("ZEROLANE_HOME", HOME);
        shell.env("ZEROLANE_CONFIG", "/dev/null");
        shell
    };
    fail(
        to_output,
        1,
        "cannot write to standard output: File too large",
    );
}

#[test]
fn ulimit__of_descriptors_is_named_where_it_ends_a_copy() {
    let lab = Lab::new(&[]);
    fs::write(lab.local("a"), b"a").unwrap();
    let silent = silent_port();
    let port = silent.local_addr().unwrap().port();
    // With fewer descriptors the program may not even load.
    for descriptors in 6..=14 {
        let mut put = zerolane();
        put.args(["cp", "--lane", "udp"]).arg(lab.local("a"));
        put.arg(format!("localhost:{port}:"));
        let (code, _, err) = under(&format!("-n {descriptors}"), put);
        assert_ne!(code, 0);
        let says_why = err.contains("(ulimit -n)") || err.contains("nothing listens there");
        assert!(says_why, "{descriptors}: {err}");
    }
}
