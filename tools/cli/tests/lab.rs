//! Tests `zerolane lab`. Tests that need namespaces skip themselves, with a message, where they are not allowed.

#![allow(non_snake_case)]

mod first_line;

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use netlab::netns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use first_line::started;

fn zerolane<I: IntoIterator<Item = S>, S: AsRef<str>>(words: I) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zerolane"));
    command.args(words.into_iter().map(|word| word.as_ref().to_owned()));
    command
}

/// Runs `script` in host 1 of a lab with `options`.
fn lab(options: &str, script: &str) -> Command {
    let words = ["lab"].into_iter().chain(options.split_whitespace());
    zerolane(words.chain(["--", "sh", "-c", script]))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn permitted() -> bool {
    let permitted = netns::is_permitted();
    if !permitted {
        eprintln!("skipped: network namespaces need root");
    }
    permitted
}

fn output(mut command: Command) -> Output {
    command.output().unwrap()
}

/// The namespaces that process `pid` made.
fn namespaces_of(pid: u32) -> Vec<String> {
    let part = format!("-{pid}-");
    let names = std::fs::read_dir("/run/netns").into_iter().flatten();
    names
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains(&part))
        .collect()
}

/// Ends the process even if the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// A lab whose command has printed its first line, and that line.
    fn start(script: &str) -> (Running, String) {
        let (child, line) = started(lab("", script).stderr(Stdio::null()));
        (Running(child), line)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }
}

/// Whether the process exists and is not a zombie.
fn is_running(pid: &str) -> bool {
    assert!(pid.parse::<u32>().is_ok(), "{pid:?} is not a pid");
    let status = Path::new("/proc").join(pid).join("status");
    std::fs::read_to_string(status).is_ok_and(|text| !text.contains("State:\tZ"))
}

#[test]
fn lab__passes_the_exit_code_on_and_reports() {
    if !permitted() {
        return;
    }
    let done = output(lab("--rtt 2ms", "exit 7"));
    assert_eq!(done.status.code(), Some(7), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("jitter added"));

    let killed = output(lab("--quiet", "kill -9 $$"));
    assert_eq!(killed.status.code(), Some(137));
    // A lab of another test may have been killed.
    let of_another = |line: &&str| line.contains("left behind by a killed process");
    let said = text(&killed.stderr);
    let said: Vec<_> = said.lines().filter(|it| !of_another(it)).collect();
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn lab__the_hosts_reach_each_other_by_their_variables() {
    if !permitted() {
        return;
    }
    let script = "
        test $ZEROLANE_LAB_HOSTS = 3 && test $ZEROLANE_LAB_HOST = 1 &&
        grep -q \"^ *$ZEROLANE_LAB_DEVICE1:\" /proc/net/dev &&
        grep -qFe \"- $ZEROLANE_LAB_ADDR1\" /proc/net/fib_trie &&
        in3() { nsenter --net=/run/netns/$ZEROLANE_LAB_NETNS3 \"$@\"; } &&
        in3 grep -qFe \"- $ZEROLANE_LAB_ADDR3\" /proc/net/fib_trie &&
        test $ZEROLANE_LAB_ADDR6_3 = fd77::3 &&
        in3 grep -q fd770000000000000000000000000003 /proc/net/if_inet6 &&
        echo all there";
    let done = output(lab("--hosts 3", script));
    assert_eq!(text(&done.stdout), "all there\n", "{}", text(&done.stderr));
}

#[test]
fn lab__a_script_runs_a_line_in_each_host() {
    if !permitted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("script");
    let mut file = std::fs::File::create(&path).unwrap();
    // Hosts 2 and 3 leave a word each; host 1 waits for both and decides.
    let place = directory.path().display();
    writeln!(
        file,
        "# three hosts\n\
         n=0; until [ -e {place}/2 ] && [ -e {place}/3 ]; do n=$((n+1)); [ $n -lt 2000 ] || exit 1; sleep 0.01; done; exit 5\n\
         \n\
         grep -qFe \"- $ZEROLANE_LAB_ADDR2\" /proc/net/fib_trie && touch {place}/$ZEROLANE_LAB_HOST; sleep 1000\n\
         touch {place}/$ZEROLANE_LAB_HOST"
    )
    .unwrap();
    let done = output(zerolane(["lab", "--script", path.to_str().unwrap()]));
    assert_eq!(done.status.code(), Some(5), "{}", text(&done.stderr));
    assert!(
        text(&done.stderr).contains("host 3"),
        "{}",
        text(&done.stderr)
    );
}

/// Losses make Transfers complete out of order; the file must be correct.
#[test]
fn lab__a_file_copied_over_a_bad_link_is_whole() {
    if !permitted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    std::fs::create_dir(place.join("share")).unwrap();
    // Several units, all different, the last one shorter.
    let content: Vec<u8> = (0..5_500_000_u64)
        .map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0])
        .collect();
    std::fs::write(place.join("share/file"), &content).unwrap();
    let (program, place_text) = (env!("CARGO_BIN_EXE_zerolane"), place.display());
    let script = place.join("script");
    // Waits for the server, then copies once.
    let address = "$ZEROLANE_LAB_ADDR2";
    std::fs::write(
        &script,
        format!(
            "n=0; until {program} ls {address}:; do \
               n=$((n+1)); [ $n -lt 200 ] || exit 1; sleep 0.1; done; \
             {program} cp -q {address}:file {place_text}/copy\n\
             {program} serve --read-only --listen {address}:9181 {place_text}/share\n"
        ),
    )
    .unwrap();
    let mut command = zerolane(["lab", "--rtt", "2ms", "--loss", "1%", "--rate", "200mbit"]);
    let done = output({
        command.env("ZEROLANE_HOME", place.join("keys"));
        command.arg("--script").arg(&script);
        command
    });
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(std::fs::read(place.join("copy")).unwrap() == content);
}

#[test]
fn lab__ends_what_the_command_left_behind() {
    if !permitted() {
        return;
    }
    let script =
        "sleep 1000 & echo $!; nsenter --net=/run/netns/$ZEROLANE_LAB_NETNS2 sleep 1000 & echo $!";
    let done = output(lab("", &format!("{{ {script}; }} 2>/dev/null")));
    let said = text(&done.stdout);
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(!said.lines().any(is_running), "{said}");
}

#[test]
fn lab__a_signal_ends_everything_and_leaves_nothing() {
    if !permitted() {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let (mut running, sleeper) = Running::start("sleep 1000 & echo $!; wait");
        let pid = running.0.id();
        assert_eq!(namespaces_of(pid).len(), 3);
        running.signal(signal);
        assert_eq!(running.0.wait().unwrap().code(), Some(130));
        assert_eq!(namespaces_of(pid), Vec::<String>::new());
        assert!(!is_running(&sleeper));
    }
}

/// The guard process of the lab.
fn guard_of(lab: u32) -> Pid {
    let children = std::fs::read_to_string(format!("/proc/{lab}/task/{lab}/children")).unwrap();
    let mut children = children.split_whitespace();
    let is_guard = |pid: &&str| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        text(&words).contains("lab-guard")
    };
    let guard = children.find(is_guard).expect("a guard");
    Pid::from_raw(guard.parse().unwrap())
}

#[test]
fn lab__a_killed_one_leaves_nothing_running() {
    if !permitted() {
        return;
    }
    // Neither the command nor its children survive, in the same process group or another.
    let (mut running, sleepers) =
        Running::start("sleep 1000 & a=$!; setsid sleep 1001 & echo $$ $a $!; wait");
    let pid = running.0.id();
    running.signal(Signal::SIGKILL);
    running.0.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while sleepers.split(' ').any(is_running) || !namespaces_of(pid).is_empty() {
        assert!(Instant::now() < deadline, "{sleepers}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn lab__the_next_one_removes_what_a_killed_one_left() {
    if !permitted() {
        return;
    }
    let (mut running, sleeper) = Running::start("echo $$; exec sleep 1000");
    let pid = running.0.id();
    kill(guard_of(pid), Signal::SIGKILL).unwrap();
    running.signal(Signal::SIGKILL);
    running.0.wait().unwrap();
    // The command outlives a lab that was killed together with its guard; only this test can end it.
    let _ = kill(Pid::from_raw(sleeper.parse().unwrap()), Signal::SIGKILL);
    assert!(output(lab("", "true")).status.success());
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
}

#[test]
fn lab__bad_values_are_usage_errors_that_name_the_value() {
    for (words, says) in [
        ("lab --loss 120% -- true", "100%"),
        ("lab --loss 0.1 -- true", "percentage"),
        ("lab --rate 1gbps -- true", "1gbit"),
        ("lab --rtt 20 -- true", "20ms"),
        ("lab --queue 64 -- true", "--rate"),
        ("lab --rate 1gbit --queue some -- true", "bdp"),
        ("lab --burst 1% -- true", "MEAN_LOSS:LENGTH"),
        ("lab --loss 1% --burst 1%:2 -- true", "cannot be used with"),
        ("lab --hosts 1 -- true", "2 to 64"),
        ("lab --mtu 20 -- true", "68"),
        ("lab --script /no/such/file", "/no/such/file"),
        ("lab", "COMMAND"),
    ] {
        let done = output(zerolane(words.split(' ')));
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains(says), "{words}: {said}");
    }
}

#[test]
fn lab__a_command_that_does_not_exist_is_127() {
    let done = output(zerolane(["lab", "--", "no-such-program-here"]));
    assert_eq!(done.status.code(), Some(127));
    assert!(text(&done.stderr).contains("no-such-program-here: command not found"));
}

#[test]
fn lab__without_rights_says_so() {
    if netns::is_permitted() {
        eprintln!("skipped: this process has the rights");
        return;
    }
    let done = output(zerolane(["lab", "--", "true"]));
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("as root"));
}

#[test]
fn lab__changes_while_the_command_runs() {
    if !permitted() {
        return;
    }
    // An existing host refuses at once; after the links go down, no answer comes.
    let script = r#"
        there() { timeout $1 bash -c ": </dev/tcp/$ZEROLANE_LAB_ADDR2/9" 2>/dev/null; [ $? -eq 1 ]; }
        there 5 || exit 3
        for i in $(seq 300); do there 2 || exit 0; sleep 0.1; done
        exit 4"#;
    let words = [
        "lab", "--quiet", "--change", "5s down", "--", "sh", "-c", script,
    ];
    assert_eq!(output(zerolane(words)).status.code(), Some(0));
    let wrong = output(zerolane(["lab", "--change", "5s sideways", "--", "true"]));
    assert_eq!(wrong.status.code(), Some(2));
    let words = text(&wrong.stderr);
    assert!(words.contains("sideways"), "{words}");
}
