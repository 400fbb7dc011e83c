//! Tests what a source and a host refuse, that they say why, and that they continue.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::content::content;
use crate::running::{Casting, Place, Waiting, addresses, said};

fn host(place: &Place, options: &[&str], to: &Path) -> Waiting {
    Waiting::start(place.command(), "127.0.0.1:0", options, to)
}

/// Casts to one host: the exit code, and the host's failure.
fn cast_to(place: &Place, host: &Waiting, source: &Path) -> (Option<i32>, String) {
    let hosts = [host.address.clone()];
    let (code, summary) = Casting::start(place.command(), &[], source, &hosts).end();
    let why = summary["failed"][0]["reason"].as_str();
    (code, why.unwrap_or_default().to_owned())
}

fn mkfifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// The directory lets others create names, too. The receiver must not write through them.
#[test]
fn partial__that_is_not_a_file_of_this_user_s_alone_is_refused() {
    let place = Place::new();
    let source = place.file("source", &content(1, 300_000));
    let tree = place.path("source tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "file").unwrap();
    let victim = place.file("victim", b"precious");
    let elsewhere = place.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let partial = place.path(".target-0.zerolane-part");
    let unpacked = place.path(".target-0.zerolane-tree");
    let refused = |source: &Path, what: &str| {
        let host = host(&place, &[], &place.target(0));
        let (code, why) = cast_to(&place, &host, source);
        assert_eq!(code, Some(1), "{what}: {why}");
        assert!(
            why.contains("is a link, a FIFO, another user's file"),
            "{what}: {why}"
        );
        assert!(!place.target(0).exists(), "{what}");
        assert_eq!(fs::read(&victim).unwrap(), b"precious", "{what}");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "{what}");
    };
    symlink(&victim, &partial).unwrap();
    refused(&source, "a link");
    fs::remove_file(&partial).unwrap();
    symlink(place.path("elsewhere/new"), &partial).unwrap();
    refused(&source, "a link to nothing");
    fs::remove_file(&partial).unwrap();
    mkfifo(&partial);
    refused(&source, "a FIFO");
    fs::remove_file(&partial).unwrap();
    fs::hard_link(&victim, &partial).unwrap();
    refused(&source, "another name of a file");
    fs::remove_file(&partial).unwrap();
    if nix::unistd::geteuid().is_root() {
        fs::write(&partial, "another's").unwrap();
        std::os::unix::fs::chown(&partial, Some(12345), None).unwrap();
        refused(&source, "another user's");
        fs::remove_file(&partial).unwrap();
    } else {
        println!("skipped: only root gives a file to another user");
    }
    symlink(&elsewhere, &unpacked).unwrap();
    refused(&tree, "a link in place of a directory");
    fs::remove_file(&unpacked).unwrap();
    mkfifo(&unpacked);
    refused(&tree, "a FIFO in place of a directory");
}

/// The list is replaced, not written through.
#[test]
fn list__that_is_a_link_or_a_fifo_is_not_followed() {
    let place = Place::new();
    let bytes = content(2, 300_000);
    let source = place.file("source", &bytes);
    let victim = place.file("victim", b"precious");
    symlink(&victim, place.path(".target-0.zerolane-list")).unwrap();
    mkfifo(&place.path(".target-1.zerolane-list"));
    for index in 0..2 {
        let host = host(&place, &[], &place.target(index));
        let (code, why) = cast_to(&place, &host, &source);
        assert_eq!(code, Some(0), "{index}: {why}");
        host.summary();
        assert!(place.has(index, &bytes));
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }
}

#[test]
fn targets__whose_names_are_not_utf_8_have_partial_files_of_their_own() {
    let place = Place::new();
    let bytes = content(3, 3_000_000);
    let source = place.file("source", &bytes);
    let name = |byte: u8| place.0.path().join(std::ffi::OsStr::from_bytes(&[byte]));
    let names = [name(0xfe), name(0xff)];
    let hosts: Vec<_> = names.iter().map(|it| host(&place, &[], it)).collect();
    let casting = Casting::start(
        place.command(),
        &["--limit", "3MB/s"],
        &source,
        &addresses(&hosts),
    );
    let (code, summary) = casting.end();
    assert_eq!(code, Some(0), "{summary}");
    hosts.into_iter().for_each(|it| drop(it.summary()));
    assert!(names.iter().all(|it| fs::read(it).unwrap() == bytes));
}

#[test]
fn source__whose_name_is_not_utf_8_keeps_it() {
    let place = Place::new();
    let name = std::ffi::OsStr::from_bytes(b"na\xffme");
    let source = place.0.path().join(name);
    fs::write(&source, "content").unwrap();
    fs::create_dir(place.target(0)).unwrap();
    let host = host(&place, &[], &place.target(0));
    assert_eq!(cast_to(&place, &host, &source).0, Some(0));
    assert_eq!(host.end().0, Some(0));
    assert_eq!(fs::read(place.target(0).join(name)).unwrap(), b"content");
}

/// Ends a source by a signal, within `time`.
fn end_by(casting: Casting, signal: Signal, time: Duration) -> Option<i32> {
    end_by_watching(casting, signal, time, || {})
}

/// The same, and calls `watch` all the while.
fn end_by_watching(
    mut casting: Casting,
    signal: Signal,
    time: Duration,
    mut watch: impl FnMut(),
) -> Option<i32> {
    kill(Pid::from_raw(casting.0.id().cast_signed()), signal).unwrap();
    let until = Instant::now() + time;
    loop {
        if let Some(status) = casting.0.try_wait().unwrap() {
            return status.code();
        }
        assert!(Instant::now() < until, "{signal} does not end it");
        watch();
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Longer than any step takes.
const LONG: Duration = Duration::from_secs(30);

#[test]
fn fifo__as_a_source_is_read_to_its_end() {
    let place = Place::new();
    let bytes = content(4, 500_000);
    let fifo = place.path("fifo");
    mkfifo(&fifo);
    let host = host(&place, &[], &place.target(0));
    let casting = Casting::start(
        place.command(),
        &[],
        &fifo,
        std::slice::from_ref(&host.address),
    );
    // The FIFO has no writer for some time, which is not its end.
    place.wait_until("it opens the FIFO", || has_open(&casting, &fifo));
    std::thread::sleep(Duration::from_millis(500));
    let (at, written) = (fifo.clone(), bytes.clone());
    let writes = std::thread::spawn(move || fs::write(at, written).unwrap());
    assert_eq!(casting.end().0, Some(0));
    writes.join().unwrap();
    host.summary();
    assert!(place.has(0, &bytes));
}

/// Whether the source has this file open.
fn has_open(casting: &Casting, path: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", casting.0.id()));
    let mut open = open.into_iter().flatten().flatten();
    open.any(|it| fs::read_link(it.path()).is_ok_and(|it| it == path))
}

/// Whether the source has a thread of this name.
fn has_thread(casting: &Casting, name: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", casting.0.id()));
    let names = threads.into_iter().flatten().flatten();
    let mut names = names.filter_map(|it| fs::read_to_string(it.path().join("comm")).ok());
    names.any(|it| it.trim() == name)
}

#[test]
fn fifo__as_a_source_ends_by_a_signal() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let place = Place::new();
        let fifo = place.path("fifo");
        mkfifo(&fifo);
        let start = || Casting::start(place.command(), &[], &fifo, &["127.0.0.1:9".to_owned()]);
        // The FIFO has no writer. By now the source handles signals.
        let waits = start();
        place.wait_until("it waits", || has_thread(&waits, "signals"));
        assert_eq!(end_by(waits, signal, LONG), Some(130));
        // A writer exists, and does not end.
        let reads = start();
        let mut input = OpenOptions::new().write(true).open(&fifo).unwrap();
        input.write_all(&[7; 300_000]).unwrap();
        assert_eq!(end_by(reads, signal, LONG), Some(130));
    }
}

#[test]
fn socket__as_a_source_is_refused_in_words() {
    let place = Place::new();
    let socket = place.path("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut command = place.command();
    let output = command.arg(&socket).arg("127.0.0.1:9").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("is a socket"), "{}", said(&output));
}

#[test]
fn offer__that_is_refused_does_not_end_the_host() {
    let place = Place::new();
    let (first, second) = (
        place.file("first", b"first"),
        place.file("second", b"second"),
    );
    let directory = place.path("directory");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("first"), "precious").unwrap();
    let host = host(&place, &[], &directory);
    for _ in 0..2 {
        let (code, why) = cast_to(&place, &host, &first);
        assert_eq!(code, Some(1));
        assert!(why.contains("already exists"), "{why}");
    }
    assert_eq!(cast_to(&place, &host, &second).0, Some(0));
    let (code, last, why) = host.end();
    assert_eq!(code, Some(0), "{why}");
    assert!(
        why.contains("refused") && why.contains("already exists"),
        "{why}"
    );
    let summary: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!(summary["refused_offers"], 2, "{summary}");
    assert_eq!(fs::read(directory.join("first")).unwrap(), b"precious");
    assert_eq!(fs::read(directory.join("second")).unwrap(), b"second");
}

/// No other source can call the host.
#[test]
fn offer__that_is_refused_ends_a_host_whose_code_it_took() {
    let place = Place::new();
    let source = place.file("source", b"content");
    fs::create_dir_all(place.target(0).join("source")).unwrap();
    let host = host(&place, &["--code", "1234-5678"], &place.target(0));
    let options = ["--code", "1234-5678"];
    let hosts = [host.address.clone()];
    let (code, summary) = Casting::start(place.command(), &options, &source, &hosts).end();
    assert_eq!(code, Some(1), "{summary}");
    let why = summary["failed"][0]["reason"].as_str().unwrap_or_default();
    assert!(why.contains("already exists"), "{summary}");
    let (code, _, why) = host.end_within(LONG);
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("already exists"), "{why}");
}

#[test]
fn receive__at_a_port_that_is_taken_says_so() {
    let place = Place::new();
    let first = host(&place, &[], &place.target(0));
    let mut command = place.command();
    command.args(["receive", "--listen", &first.address, "--to"]);
    let output = command.arg(place.target(1)).output().unwrap();
    let words = said(&output);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(
        words.contains(&format!("{}: is in use", first.address)),
        "{words}"
    );
    assert!(words.contains("--listen"), "{words}");
    assert!(!words.contains("no answer"), "{words}");
}

#[test]
fn input__that_is_empty_is_not_cast() {
    let place = Place::new();
    let mut command = place.command();
    command.args(["-", "127.0.0.1:9"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("nothing to cast"),
        "{}",
        said(&output)
    );
}

/// The longest time that can be written means no limit.
#[test]
fn times__beyond_all_limits_are_none() {
    let place = Place::new();
    let longest = u64::MAX.to_string();
    let source = place.file("source", b"content");
    let host = host(&place, &["--timeout", &longest], &place.target(0));
    let hosts = [host.address.clone()];
    let casting = Casting::start(place.command(), &["--wait", &longest], &source, &hosts);
    assert_eq!(casting.end().0, Some(0));
    host.summary();
    assert!(place.has(0, b"content"));
}

/// Only the owner may read the partial file, until the complete file gets its mode.
#[test]
fn partial__is_its_owner_s_alone_until_the_file_is_complete() {
    let place = Place::new();
    let source = place.file("source", &content(5, 12_000_000));
    fs::set_permissions(&source, fs::Permissions::from_mode(0o644)).unwrap();
    let host = host(&place, &[], &place.target(0));
    let hosts = [host.address.clone()];
    let casting = Casting::start(place.command(), &["--limit", "6MB/s"], &source, &hosts);
    let partial = place.path(".target-0.zerolane-part");
    place.wait_until("some has come", || place.partly(0) > 1_000_000);
    let mode = fs::metadata(partial).unwrap().permissions().mode() & 0o777;
    assert_eq!(casting.end().0, Some(0));
    host.summary();
    assert_eq!(format!("{mode:o}"), "600");
}

/// A source that never waits for input ends by a signal too.
#[test]
fn endless_source__ends_by_a_signal_while_it_is_read() {
    let place = Place::new();
    // What it stores meanwhile is bounded, should it not end.
    let bounded = r#"ulimit -f 4000000; exec "$0" "$@""#;
    let cast = place.command();
    let mut command = Command::new("sh");
    command.args(["-c", bounded]).arg(cast.get_program());
    command.args(cast.get_args());
    for (name, value) in cast.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let nobody = ["127.0.0.1:9".to_owned()];
    let casting = Casting::start(command, &[], Path::new("/dev/zero"), &nobody);
    let io = format!("/proc/{}/io", casting.0.id());
    let stored = || {
        let counts = fs::read_to_string(&io).unwrap_or_default();
        let written = counts.lines().find_map(|it| it.strip_prefix("wchar: "));
        written.map_or(0, |it| it.parse::<u64>().unwrap())
    };
    place.wait_until("it is read", || stored() > 1 << 20);
    let mut most = 0;
    let code = end_by_watching(casting, Signal::SIGTERM, LONG, || most = stored().max(most));
    assert_eq!(code, Some(130));
    // A source that reads on ends, too, and by the same code: where the bound does not let it store more.
    assert!(most < 1 << 30, "it read on: {most} bytes are stored");
}
