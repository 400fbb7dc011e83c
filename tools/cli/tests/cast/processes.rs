//! Tests casts between processes over loopback, as unprivileged users run them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::content::content;
use crate::running::{Casting, Place, Waiting, addresses, said};

fn hosts(place: &Place, count: usize, options: &[&str]) -> Vec<Waiting> {
    let start = |it| Waiting::start(place.command(), "127.0.0.1:0", options, &place.target(it));
    (0..count).map(start).collect()
}

#[test]
fn cast__standard_input_to_hosts_of_a_file_by_a_code() {
    let place = Place::new();
    let bytes = content(1, 3_000_000);
    let hosts = hosts(&place, 3, &["--code", "1234-5678"]);
    let list = place.file(
        "list",
        format!("# all\n{}\n", addresses(&hosts).join("\n")).as_bytes(),
    );
    let mut command = place.command();
    command
        .args(["-", "--json", "--code", "1234-5678", "--hosts"])
        .arg(list);
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let (code, summary) = Casting(child).end();
    assert_eq!(code, Some(0), "{summary}");
    assert_eq!(
        (&summary["nodes"], &summary["bytes"]),
        (&3.into(), &3_000_000.into()),
        "{summary}"
    );
    assert_eq!(
        summary["failed"].as_array().map(Vec::len),
        Some(0),
        "{summary}"
    );
    for time in ["seconds", "predicted_seconds"] {
        assert!(
            summary[time].as_f64().is_some_and(|it| it > 0.0),
            "{summary}"
        );
    }
    hosts.into_iter().for_each(|it| drop(it.summary()));
    assert!((0..3).all(|it| place.has(it, &bytes)));
}

#[test]
fn interrupt__while_standard_input_comes_casts_nothing() {
    for ends in [true, false] {
        let place = Place::new();
        let hosts = hosts(&place, 1, &[]);
        let mut command = place.command();
        command.args(["-", "--json"]).args(addresses(&hosts));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take();
        // More than a pipe holds, so the source is reading.
        let bytes = content(11, 300_000);
        input.as_mut().unwrap().write_all(&bytes).unwrap();
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        if ends {
            // The same Ctrl-C may have ended the writer.
            input = None;
        }
        place.wait_until("it ends", || child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", said(&output));
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["reason"], "stopped", "{summary}");
        assert_eq!(summary["failed"][0]["reason"], "stopped", "{summary}");
        assert!(!place.target(0).exists(), "a part was taken for the whole");
        drop(input);
    }
}

#[test]
fn cast__to_hosts_of_standard_input_and_of_a_slurm_job() {
    let place = Place::new();
    let bytes = content(12, 500_000);
    let source = place.file("source", &bytes);
    let first = hosts(&place, 2, &[]);
    let mut command = place.command();
    command.args(["--json", "--hosts", "-"]).arg(&source);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let list = format!("{} # both\n\n{}\n", first[0].address, first[1].address);
    let mut input = child.stdin.take().unwrap();
    input.write_all(list.as_bytes()).unwrap();
    drop(input);
    let (code, summary) = Casting(child).end();
    assert_eq!((code, &summary["nodes"]), (Some(0), &2.into()), "{summary}");
    first.into_iter().for_each(|it| drop(it.summary()));
    assert!((0..2).all(|it| place.has(it, &bytes)));
    let more = |it| Waiting::start(place.command(), "127.0.0.1:0", &[], &place.target(it));
    let job = [more(2), more(3)];
    let port = |it: &Waiting| it.address.rsplit_once(':').unwrap().1.to_owned();
    let list = format!("127.0.0.1:[{},{}]", port(&job[0]), port(&job[1]));
    let mut command = place.command();
    command.env("SLURM_JOB_NODELIST", list);
    let (code, summary) = Casting::start(command, &[], &source, &[]).end();
    assert_eq!((code, &summary["nodes"]), (Some(0), &2.into()), "{summary}");
    job.into_iter().for_each(|it| drop(it.summary()));
    assert!((2..4).all(|it| place.has(it, &bytes)));
}

#[test]
fn receive__by_a_command_and_one_that_fails_is_named() {
    let place = Place::new();
    let bytes = content(13, 1_000_000);
    let source = place.file("source", &bytes);
    let start = |reads: &str| Waiting::start_exec(place.command(), "127.0.0.1:0", reads);
    let target = place.target(0);
    let hosts = vec![
        start(&format!("cat >'{}'", target.display())),
        start("cat >/dev/null; exit 3"),
    ];
    let names = addresses(&hosts);
    let (code, summary) = Casting::start(place.command(), &[], &source, &names).end();
    assert_eq!(code, Some(5), "{summary}");
    assert_eq!(summary["failed"][0]["host"], *names[1], "{summary}");
    let why = summary["failed"][0]["reason"].as_str().unwrap_or_default();
    assert!(
        why.contains("the command ended with exit status: 3"),
        "{summary}"
    );
    let ended: Vec<_> = hosts.into_iter().map(|it| it.end().0).collect();
    assert_eq!(ended, [Some(0), Some(1)]);
    assert!(place.has(0, &bytes));
}

/// A host on a terminal that pipes into a command: its process, address, and the terminal's input and output.
fn at_terminal(place: &Place, reads: &str) -> (Child, String, ChildStdin, Lines) {
    let reads = format!(
        "exec '{}' cast receive --listen 127.0.0.1:0 --exec '{reads}'",
        env!("CARGO_BIN_EXE_zerolane")
    );
    let mut command = Command::new("script");
    command.args(["-qec", &reads, "/dev/null"]);
    command.env("ZEROLANE_HOME", place.path("keys"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (keyboard, shown) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(shown).lines();
    let line = lines.next().unwrap().unwrap();
    let address = line.trim().strip_prefix("Waiting for a cast on ");
    let address = address.unwrap_or_else(|| panic!("{line:?}"));
    let address = address.trim_end_matches('.').to_owned();
    (child, address, keyboard, lines)
}

type Lines = std::io::Lines<BufReader<ChildStdout>>;

/// sudo and ssh ask for passwords like this.
#[test]
fn receive__by_a_command_that_asks_at_the_terminal() {
    let place = Place::new();
    let source = place.file("source", b"content");
    let target = place.target(0);
    let reads = format!(
        "read line </dev/tty; echo $line >\"{}\"; cat >>\"{0}\"",
        target.display()
    );
    let (child, address, mut keyboard, lines) = at_terminal(&place, &reads);
    let mut host = Casting(child);
    let casting = Casting::start(place.command(), &[], &source, &[address]);
    keyboard.write_all(b"yes\n").unwrap();
    place.wait_until("it is answered", || place.has(0, b"yes\ncontent"));
    assert_eq!(casting.end().0, Some(0));
    lines.for_each(drop);
    assert_eq!(host.0.wait().unwrap().code(), Some(0));
}

/// On a terminal, the command's processes share the host's process group, and the host ends in its own way.
#[test]
fn interrupt__at_a_terminal_ends_all_that_a_command_started() {
    let place = Place::new();
    let source = place.file("source", b"content");
    let number = place.path("number");
    let reads = format!(
        "trap \"\" INT HUP; sleep 1000 & echo $! >\"{}\"; cat; wait",
        number.display()
    );
    let (child, address, mut keyboard, lines) = at_terminal(&place, &reads);
    let mut host = Casting(child);
    let _casting = Casting::start(place.command(), &[], &source, &[address]);
    let pid = || fs::read_to_string(&number).ok()?.trim().parse().ok();
    place.wait_until("it is started", || pid().is_some());
    let started = Started(nix::unistd::Pid::from_raw(pid().unwrap()));
    keyboard.write_all(b"\x03").unwrap();
    lines.for_each(drop);
    assert_eq!(host.0.wait().unwrap().code(), Some(130));
    // On its own, the command would run for a quarter of an hour.
    place.wait_until("what the command started has ended", || !started.lives());
}

#[test]
fn receive__without_spilling() {
    let place = Place::new();
    let bytes = content(14, 12_000_000);
    let source = place.file("source", &bytes);
    let hosts = hosts(&place, 3, &["--no-spill"]);
    let names = addresses(&hosts);
    let (code, summary) = Casting::start(place.command(), &[], &source, &names).end();
    assert_eq!(code, Some(0), "{summary}");
    hosts.into_iter().for_each(|it| drop(it.summary()));
    assert!((0..3).all(|it| place.has(it, &bytes)));
}

#[test]
fn cast__only_to_hosts_that_let_this_key_in() {
    let place = Place::new();
    let bytes = content(2, 100_000);
    let source = place.file("source", &bytes);
    let mut own = std::process::Command::new(env!("CARGO_BIN_EXE_zerolane"));
    let own = own
        .arg("keygen")
        .env("ZEROLANE_HOME", place.path("other-keys"))
        .output()
        .unwrap();
    let words = said(&own);
    let key = words
        .split_whitespace()
        .find(|it| it.starts_with("zl:"))
        .unwrap_or_default();
    let other = |it: usize, options: &[&str]| {
        Waiting::start(place.command(), "127.0.0.1:0", options, &place.target(it))
    };
    let hosts = [other(0, &["--allow-key", key]), other(1, &[])];
    let mut command = place.command();
    command.env("ZEROLANE_HOME", place.path("other-keys"));
    let (code, summary) = Casting::start(command, &[], &source, &addresses(&hosts)).end();
    assert_eq!(code, Some(5), "{summary}");
    assert_eq!(
        summary["failed"][0]["host"],
        hosts[1].address.as_str(),
        "{summary}"
    );
    let why = summary["failed"][0]["reason"].as_str().unwrap_or_default();
    assert!(why.contains("does not admit this key"), "{summary}");
    let [first, _second] = hosts;
    first.summary();
    assert!(place.has(0, &bytes) && !place.target(1).exists());
}

#[test]
fn kill__a_host_for_good_and_the_others_are_right() {
    let place = Place::new();
    let bytes = content(3, 16_000_000);
    let source = place.file("source", &bytes);
    let mut hosts = hosts(&place, 4, &[]);
    let casting = Casting::start(
        place.command(),
        &["--limit", "2MB/s"],
        &source,
        &addresses(&hosts),
    );
    place.wait_until("some has come", || place.partly(1) > 2_000_000);
    let address = hosts[1].address.clone();
    hosts.remove(1).kill();
    let (code, summary) = casting.end();
    assert_eq!(code, Some(5), "{summary}");
    assert_eq!(
        summary["failed"].as_array().map(Vec::len),
        Some(1),
        "{summary}"
    );
    assert_eq!(summary["failed"][0]["host"], address.as_str(), "{summary}");
    hosts.into_iter().for_each(|it| drop(it.summary()));
    assert!([0, 2, 3].iter().all(|it| place.has(*it, &bytes)));
    assert!(
        !place.target(1).exists(),
        "nothing half-written has the name"
    );
}

#[test]
fn kill__a_host_that_is_started_again_and_takes_up_what_it_had() {
    let place = Place::new();
    let bytes = content(4, 24_000_000);
    let source = place.file("source", &bytes);
    let mut hosts = hosts(&place, 3, &[]);
    let casting = Casting::start(
        place.command(),
        &["--limit", "3MB/s"],
        &source,
        &addresses(&hosts),
    );
    place.wait_until("some has come", || place.partly(2) > 5_000_000);
    let address = hosts[2].address.clone();
    hosts.remove(2).kill();
    hosts.push(Waiting::start(
        place.command(),
        &address,
        &[],
        &place.target(2),
    ));
    let (code, summary) = casting.end();
    assert_eq!(code, Some(0), "{summary}");
    let again = hosts.remove(2).summary();
    assert!(
        again["resumed_bytes"]
            .as_u64()
            .is_some_and(|it| it > 4_000_000),
        "{again}"
    );
    hosts.into_iter().for_each(|it| drop(it.summary()));
    assert!((0..3).all(|it| place.has(it, &bytes)));
}

#[test]
fn kill__the_source_once_a_host_has_all() {
    let place = Place::new();
    let bytes = content(5, 12_000_000);
    let source = place.file("source", &bytes);
    // The hosts pass on data slower than the source sends it.
    let hosts = hosts(&place, 3, &["--limit", "3MB/s"]);
    let casting = Casting::start(place.command(), &[], &source, &addresses(&hosts));
    place.wait_until("one has all", || (0..3).any(|it| place.target(it).exists()));
    drop(casting);
    hosts.into_iter().for_each(|it| drop(it.summary()));
    assert!((0..3).all(|it| place.has(it, &bytes)));
}

#[test]
fn cast__a_directory_into_directories_and_not_over_one() {
    let place = Place::new();
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("a")).unwrap();
    fs::write(tree.join("a/file"), content(6, 100_000)).unwrap();
    for index in 0..2 {
        fs::create_dir(place.target(index)).unwrap();
    }
    fs::create_dir(place.target(1).join("tree")).unwrap();
    let hosts = hosts(&place, 2, &[]);
    let (code, summary) = Casting::start(place.command(), &[], &tree, &addresses(&hosts)).end();
    assert_eq!(code, Some(5), "{summary}");
    let why = summary["failed"][0]["reason"].as_str().unwrap_or_default();
    assert!(why.contains("already exists"), "{summary}");
    let mut hosts = hosts.into_iter();
    hosts.next().unwrap().summary();
    // The host waits for another cast.
    hosts.next().unwrap().kill();
    assert!(fs::read(place.target(0).join("tree/a/file")).unwrap() == content(6, 100_000));
    assert_eq!(
        fs::read_dir(place.target(1).join("tree")).unwrap().count(),
        0
    );
}

/// A replacement for ssh that runs the remote command on this machine.
fn shell(place: &Place) -> String {
    use std::os::unix::fs::PermissionsExt;
    let script = place.file(
        "shell",
        b"#!/bin/sh\n[ \"$1\" = away ] && exit 255\nshift\nexec sh -c \"$*\"\n",
    );
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script.to_str().unwrap().to_owned()
}

#[test]
fn ssh__starts_the_hosts_and_names_one_that_it_does_not_reach() {
    let place = Place::new();
    let bytes = content(8, 1_000_000);
    let source = place.file("source", &bytes);
    let target = place.path("it's here");
    let mut command = place.command();
    command.args([
        "--ssh",
        "--remote-program",
        env!("CARGO_BIN_EXE_zerolane"),
        "-e",
        &shell(&place),
        "--to",
    ]);
    command.arg(&target);
    let names = ["127.0.0.1".to_owned(), "away".to_owned()];
    let (code, summary) = Casting::start(command, &[], &source, &names).end();
    assert_eq!(code, Some(5), "{summary}");
    assert_eq!(summary["failed"][0]["host"], "away", "{summary}");
    assert!(fs::read(target).unwrap() == bytes);
}

#[test]
fn ssh__starts_no_host_before_the_source_and_all_names_are_known() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let log = place.path("log");
    let script = format!("#!/bin/sh\necho login >>'{}'\nexit 255\n", log.display());
    let script = place.file("shell", script.as_bytes());
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let source = place.file("source", b"content");
    let cast = |source: &std::path::Path, options: &[&str]| {
        let mut command = place.command();
        command.arg("--ssh").arg("-e").arg(&script).args(options);
        let output = command.arg(source).arg("127.0.0.1").output().unwrap();
        (output.status.code(), said(&output))
    };
    assert_eq!(cast(&place.path("nothing"), &[]).0, Some(1));
    assert_eq!(cast(std::path::Path::new("/dev/null"), &[]).0, Some(1));
    let list = place.file("list", b"no-such-host.invalid\n");
    let list = list.to_str().unwrap();
    let (code, words) = cast(&source, &["--unknown", "stop", "--hosts", list]);
    assert_eq!(code, Some(3), "{words}");
    assert!(words.contains("no-such-host.invalid"), "{words}");
    assert!(!log.exists(), "a host was started");
    cast(&source, &[]);
    assert!(log.exists(), "a login leaves a trace");
}

/// A process that ends with the test.
struct Started(nix::unistd::Pid);

impl Started {
    /// Whether the process runs. A zombie that was not reaped does not count.
    fn lives(&self) -> bool {
        fs::read(format!("/proc/{}/cmdline", self.0)).is_ok_and(|it| !it.is_empty())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(self.0, nix::sys::signal::Signal::SIGKILL);
    }
}

/// Over ssh, a host is not a child of this machine, so killing the login does not end it.
#[test]
fn ssh__that_ends_before_it_called_a_host_leaves_none_there() {
    use nix::sys::signal::{Signal, kill};
    use std::os::unix::fs::PermissionsExt;
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let place = Place::new();
        let source = place.file("source", b"content");
        let (number, go) = (place.path("number"), place.path("go"));
        // The other login takes longer than the first host needs to wait.
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = localhost ]; then\nwhile [ -e \"$0\" ] && [ ! -e '{}' ]; do sleep 0.05; done\nexit 255\nfi\n\
             shift\nexec 3<&0\nsetsid sh -c \"exec $*\" <&3 3<&- &\necho $! >'{}'\nexec 3<&-\nwait\n",
            go.display(),
            number.display()
        );
        let script = place.file("shell", script.as_bytes());
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = place.command();
        command.args(["--ssh", "--remote-program", env!("CARGO_BIN_EXE_zerolane")]);
        command
            .arg("-e")
            .arg(script)
            .arg("--to")
            .arg(place.target(0));
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let casting = Casting::start(command, &[], &source, &names);
        let pid = || fs::read_to_string(&number).ok()?.trim().parse().ok();
        place.wait_until("a host is started", || pid().is_some());
        let host = Started(nix::unistd::Pid::from_raw(pid().unwrap()));
        let name = |it: &Started| fs::read_to_string(format!("/proc/{}/comm", it.0));
        place.wait_until("it is the program", || {
            name(&host).is_ok_and(|it| it.starts_with("zerolane"))
        });
        let source = nix::unistd::Pid::from_raw(casting.0.id().cast_signed());
        kill(source, signal).unwrap();
        place.file("go", b"");
        place.wait_until("the host has ended", || !host.lives());
        if signal == Signal::SIGINT {
            assert_eq!(casting.end().0, Some(130));
        }
    }
}

#[test]
fn ssh__brings_the_program_along_where_it_is_missing() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let bytes = content(9, 1_000_000);
    let source = place.file("source", &bytes);
    let temporary = place.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let missing = "zerolane() { return 127; }";
    let script = format!(
        "#!/bin/sh\nshift\nexport TMPDIR='{}'\n{missing}\necho Welcome\neval \"$*\"\n",
        temporary.display()
    );
    let script = place.file("shell", script.as_bytes());
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = place.command();
    command.arg("--ssh").arg("-e").arg(&script).arg("--to");
    command.arg(place.target(0));
    let (code, summary) = Casting::start(command, &[], &source, &["127.0.0.1".to_owned()]).end();
    assert_eq!(code, Some(0), "{summary}");
    assert!(place.has(0, &bytes));
    let left: Vec<_> = fs::read_dir(temporary).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    // If another program was named, that program is missing.
    let mut command = place.command();
    command.arg("--ssh").arg("-e").arg(&script);
    command.args(["--remote-program", "/no/zerolane", "--to"]);
    command.arg(place.target(1));
    let (code, summary) = Casting::start(command, &[], &source, &["127.0.0.1".to_owned()]).end();
    assert_eq!(code, Some(1), "{summary}");
    let why = summary["failed"][0]["reason"].as_str().unwrap_or_default();
    assert!(why.contains("--remote-program is not there"), "{summary}");
}

#[test]
fn progress__objects_come_before_the_last_of_json() {
    let place = Place::new();
    let bytes = content(10, 12_000_000);
    let source = place.file("source", &bytes);
    let hosts = hosts(&place, 2, &[]);
    // Lasts longer than the time between two progress events.
    let mut command = place.command();
    command.args(["--json", "--limit", "3MB/s"]).arg(&source);
    let output = command.args(addresses(&hosts)).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let objects: Vec<serde_json::Value> = text
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let (last, before) = objects.split_last().unwrap();
    assert_eq!(last["nodes"], 2, "{text}");
    assert!(!before.is_empty(), "{text}");
    for state in before {
        assert!(
            state["percent"].as_u64().is_some_and(|it| it <= 100),
            "{text}"
        );
        assert!(state["stragglers"].is_array(), "{text}");
    }
    hosts.into_iter().for_each(|it| drop(it.summary()));
}

#[test]
fn receive__to_standard_output() {
    let place = Place::new();
    let bytes = content(7, 1_000_000);
    let source = place.file("source", &bytes);
    let mut command = place.command();
    command.args(["receive", "--to", "-", "--listen", "127.0.0.1:0"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let line = lines.next().unwrap().unwrap();
    let address = line
        .strip_prefix("Waiting for a cast on ")
        .unwrap()
        .trim_end_matches('.')
        .to_owned();
    let casting = Casting::start(place.command(), &[], &source, &[address]);
    let (rest, out) = (
        std::thread::spawn(move || lines.count()),
        child.wait_with_output().unwrap(),
    );
    assert!(
        out.status.success() && out.stdout == bytes,
        "{} bytes",
        out.stdout.len()
    );
    assert_eq!(casting.end().0, Some(0));
    rest.join().unwrap();
}

#[test]
fn arguments__that_cannot_be_are_usage_errors() {
    let place = Place::new();
    for wrong in [
        &["file"][..],
        &["-", "--hosts", "-"],
        &["file", "host", "--tree", "0"],
        &[],
    ] {
        let output = place.command().args(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?} {}", said(&output));
    }
    // The waiting host decides where the content goes.
    for wrong in [&["--to", "/there"][..], &["--force"]] {
        let mut command = place.command();
        let output = command.args(["file", "host"]).args(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?} {}", said(&output));
        let words = said(&output);
        assert!(words.contains("cast receive --to PATH"), "{words}");
    }
    let output = place
        .command()
        .args(["nothing", "127.0.0.1:9"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[test]
fn racks__of_a_file_are_told_and_what_is_wrong_with_them_is_a_usage_error() {
    let place = Place::new();
    let bytes = content(9, 300_000);
    let source = place.file("source", &bytes);
    let hosts = hosts(&place, 2, &[]);
    let names = addresses(&hosts);
    let (one, other) = (&names[0], &names[1]);
    let refused = |racks: &str| {
        let mut command = place.command();
        command.args(["--racks", racks]).arg(&source).args(&names);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        said(&output)
    };
    let in_file = |text: String| place.file("racks", text.as_bytes()).display().to_string();
    assert!(refused("33").contains("a subnet has at most 32 bits"));
    assert!(refused("/nowhere/racks").contains("--racks /nowhere/racks"));
    assert!(refused(&in_file(format!("{one} a b"))).contains("line 1: a line is 'HOST RACK'"));
    assert!(refused(&in_file(format!("{one} a"))).contains(&format!("no line names {other}")));
    let list = in_file(format!("{one} a\n{other} b # the other\n- b\n"));
    let (code, summary) =
        Casting::start(place.command(), &["--racks", &list], &source, &names).end();
    assert_eq!((code, &summary["racks"]), (Some(0), &2.into()), "{summary}");
    hosts.into_iter().for_each(|it| drop(it.summary()));
    assert!((0..2).all(|it| place.has(it, &bytes)));
}
