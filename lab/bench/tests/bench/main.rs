//! Tests `zerolane bench` and `zerolane demo` as a user starts them.

#![allow(non_snake_case)]

mod curve;
mod explain;
mod flows;
mod latency;
mod model;
mod stream;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use netlab::netns::{self, Topology};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zerolane-bench");

fn zerolane(words: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(words.split(' '));
    command
}

fn output(words: &str) -> Output {
    zerolane(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Every key of `value`, as a path; `#` stands for the entries of an array. Then the paths that have nothing below them
/// here, and may have elsewhere.
fn keys(value: &Value, at: &str, all: &mut BTreeSet<String>, open: &mut Vec<String>) {
    let below: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, it)| (key.clone(), it)).collect(),
        Value::Array(entries) => entries.iter().map(|it| ("#".to_owned(), it)).collect(),
        _ => Vec::new(),
    };
    if value.is_null() || value.as_array().is_some_and(Vec::is_empty) {
        open.push(format!("{at}."));
    }
    for (key, value) in below {
        let path = if at.is_empty() {
            key
        } else {
            format!("{at}.{key}")
        };
        keys(value, &path, all, open);
        all.insert(path);
    }
}

/// The report has the keys that scripts rely on, those of a file of `json/`, and no others.
fn assert_keys(report: &Value, promised: &str) {
    let (mut has, mut open) = (BTreeSet::new(), Vec::new());
    keys(report, "", &mut has, &mut open);
    let promised: BTreeSet<String> = promised.lines().map(str::to_owned).collect();
    let more: Vec<_> = has.difference(&promised).collect();
    let missing = promised.difference(&has);
    let missing = missing.filter(|key| !open.iter().any(|open| key.starts_with(open)));
    let missing: Vec<_> = missing.collect();
    assert!(
        more.is_empty() && missing.is_empty(),
        "more: {more:?}, missing: {missing:?}"
    );
}

/// Ends the process even if the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `zerolane` as a user without rights: root becomes one for it.
fn output_of_ordinary_user(words: &str) -> Output {
    if !nix::unistd::geteuid().is_root() {
        return output(words);
    }
    // A program where that user may start it.
    let directory = tempfile::tempdir().unwrap();
    let anyone = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), anyone).unwrap();
    let program = directory.path().join("zerolane");
    // By a process of its own: while this one has it open for writing, so has what other tests start, and it
    // cannot be run.
    let copied = Command::new("cp").arg(PROGRAM).arg(&program).status();
    assert!(copied.unwrap().success());
    let mut command = Command::new(program);
    command.args(words.split(' ')).uid(65534).gid(65534);
    command.output().unwrap()
}

/// What the kernel says of TCP's congestion control.
fn tcp_setting(name: &str) -> Vec<String> {
    let path = format!("/proc/sys/net/ipv4/tcp_{name}congestion_control");
    let said = std::fs::read_to_string(path).unwrap();
    said.split_whitespace().map(str::to_owned).collect()
}

/// A `bench serve` on a free port.
fn server() -> (Running, SocketAddr) {
    serve(zerolane("bench serve --listen 127.0.0.1:0"))
}

/// Starts a server; where it listens.
fn serve(mut command: Command) -> (Running, SocketAddr) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line
        .strip_prefix("listening on ")
        .and_then(|rest| rest.split(';').next());
    let address = address
        .unwrap_or_else(|| panic!("{line:?}"))
        .parse()
        .unwrap();
    (Running(child), address)
}

/// What the server answers to `request` on a connection of its own.
fn answer(server: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(request).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut reply = String::new();
    // A server that hangs up on unread input resets the connection.
    let _ = stream.read_to_string(&mut reply);
    reply
}

/// Names of the namespaces that process `pid` made.
fn namespaces_of(pid: u32) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else {
        return Vec::new();
    };
    let part = format!("-{pid}-");
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(&part)).collect()
}

#[test]
fn bulk__small_run_gives_the_promised_json() {
    let output = output("bench bulk --only tcp --buffer 1MiB --bytes 16MiB --reps 2 --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verified"], json!(true));
    assert_eq!(report["bytes_per_run"], json!(16 << 20));
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(report["sender"]["cores"], json!(cores));
    for figure in ["min", "median", "max"] {
        assert!(
            report["tcp"]["gbps"][figure].as_f64().unwrap() > 0.0,
            "{figure}"
        );
    }
    assert!(report["tcp"]["rx_syscalls_per_mib"].as_f64().unwrap() > 0.0);
    assert!(report["memcpy_gbps"].as_f64().unwrap() > 0.0);
    assert_eq!(report["ratio_vs_tcp"], Value::Null);
}

#[test]
fn lane__ethernet_between_two_namespaces() {
    if !netlab::netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let bulk = "bench bulk --only zerolane --lane ethernet --buffer 1MiB --bytes 16MiB --reps 1";
    let ping = "bench put_lat --only zerolane --lane ethernet -s 8 -n 1000 --reps 1";
    for words in [bulk, ping] {
        for bypass in ["auto", "always", "never"] {
            let lane = format!("--lane ethernet --bypass {bypass}");
            let words = words.replace("--lane ethernet", &lane);
            let output = output(&format!("{words} --json"));
            assert!(output.status.success(), "{}", text(&output.stderr));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let path = report["path"].as_str().unwrap();
            assert!(path.ends_with(&format!("Zerolane with {lane}")), "{path}");
        }
    }
    let udp = output("bench put_lat --only zerolane --bypass always -s 8 -n 10");
    assert_eq!(udp.status.code(), Some(2));
    assert!(
        text(&udp.stderr).contains("--bypass always needs --lane ethernet"),
        "{}",
        text(&udp.stderr)
    );
}

#[test]
fn bulk__encrypted_stands_first_and_is_compared_with_what_else_encrypts() {
    // Laps that are no whole number of TLS records.
    let output = output("bench bulk --buffer 1000KiB --bytes 4MiB --reps 2 --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.starts_with("{\n  \"zerolane\": {"), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verified"], json!(true));
    assert_keys(&report, include_str!("../json/bulk.keys"));
    assert_eq!(report["security"], json!("encrypted"));
    assert!(report["cipher"].is_string(), "{report}");
    for contender in [
        "zerolane",
        "zerolane_plain",
        "tcp",
        "tcp_splice",
        "tls",
        "quinn",
    ] {
        let gbps = report[contender]["gbps"]["min"].as_f64();
        assert!(gbps.unwrap() > 0.0, "{contender}");
    }
    for ratio in [
        "ratio_vs_tcp",
        "ratio_vs_tcp_splice",
        "plain_ratio_vs_tcp",
        "ratio_vs_tls",
        "ratio_vs_quinn",
    ] {
        assert!(report[ratio].as_f64().unwrap() > 0.0, "{ratio}");
    }
}

#[test]
fn bulk__plain_is_compared_with_what_is_plain() {
    let output = output("bench bulk --security plain --buffer 1MiB --bytes 4MiB --reps 1 --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["security"], json!("plain"));
    assert_eq!(report["cipher"], Value::Null);
    for contender in ["zerolane", "tcp", "tcp_splice"] {
        assert!(report[contender].is_object(), "{contender}");
    }
    for contender in ["zerolane_plain", "tls", "quinn"] {
        assert_eq!(report[contender], Value::Null, "{contender}");
    }
}

#[test]
fn bulk__tcp_that_lends_its_memory_is_verified_and_named_if_stronger() {
    let words =
        "bench bulk --only tcp,tcp_splice,tcp_sendfile --buffer 1MiB --bytes 64MiB --reps 1";
    let ran = output(&format!("{words} --json"));
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(report["verified"], json!(true));
    for contender in ["tcp_splice", "tcp_sendfile"] {
        let gbps = &report[contender]["gbps"]["min"];
        assert!(gbps.as_f64().unwrap() > 0.0, "{contender}");
    }
    // A send of a file is one call for what plain TCP sends at once; pages through a pipe take two at least.
    let calls = |contender: &str| report[contender]["tx_syscalls_per_mib"].as_f64().unwrap();
    assert!(calls("tcp_splice") >= 2.0 && calls("tcp_sendfile") >= 1.0);
    let table = text(&output(words).stdout);
    assert!(table.contains("TCP by splice") && table.contains("TCP by sendfile"));
}

#[test]
fn tcp__an_ordinary_user_runs_with_what_it_may_choose_and_is_told() {
    let json = |words: &str| -> Value {
        let output = output_of_ordinary_user(words);
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let cubic = "cubic".to_owned();
    let expected = match tcp_setting("allowed_").contains(&cubic) {
        true => cubic,
        false => tcp_setting("").remove(0),
    };
    let bulk = "bench bulk --only tcp,tls --buffer 1MiB --bytes 4MiB --reps 1 --json";
    let report = json(bulk);
    assert_eq!(report["tcp_congestion"], json!(expected));
    assert_eq!(report["receiver"]["tcp_baseline"], json!(expected));
    let report = json("bench send_lat --only tcp --iters 50 --reps 1 --json");
    assert_eq!(report["initiator"]["tcp_baseline"], json!(expected));
    let table = output_of_ordinary_user("bench send_lat --only tcp --iters 50 --reps 1");
    let table = text(&table.stdout);
    assert!(table.contains(&format!("TCP with {expected}; ")), "{table}");
    let demo = output_of_ordinary_user("demo --only tcp --size 8MiB");
    assert!(demo.status.success(), "{}", text(&demo.stderr));
    let said = text(&demo.stdout);
    assert!(
        said.contains(&format!("congestion control was {expected}.")),
        "{said}"
    );
}

#[test]
fn tcp__a_congestion_control_that_is_asked_for_is_had_or_refused_in_words() {
    let with = |name: &str| {
        output_of_ordinary_user(&format!(
            "bench bulk --only tcp --buffer 1MiB --bytes 4MiB --reps 1 --tcp-congestion {name} --json"
        ))
    };
    let default = tcp_setting("").remove(0);
    let output = with(&default);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["tcp_congestion"], json!(default));
    let missing = with("no-such-one");
    assert_eq!(missing.status.code(), Some(1));
    let said = text(&missing.stderr);
    assert!(said.contains("this kernel does not have"), "{said}");
    // Where root withholds one.
    let allowed = tcp_setting("allowed_");
    let mut available = tcp_setting("available_").into_iter();
    if let Some(withheld) = available.find(|it| !allowed.contains(it)) {
        let refused = with(&withheld);
        assert_eq!(refused.status.code(), Some(1));
        let said = text(&refused.stderr);
        let command = format!(
            "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{} {withheld}\"",
            allowed.join(" ")
        );
        assert!(said.contains(&command), "{said}");
    }
}

#[test]
fn bulk__only_the_contenders_that_were_named() {
    let output = output("bench bulk --only tls,quinn --buffer 1MiB --bytes 4MiB --reps 1");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("TLS") && table.contains("quinn"), "{table}");
    assert!(!table.contains("Zerolane /"), "{table}");
}

#[test]
fn bulk__bad_sizes_are_usage_errors_with_the_range() {
    for (words, says) in [
        ("bench bulk --buffer 5", "4096 to"),
        ("bench bulk --buffer 8TiB", "4096 to"),
        ("bench bulk --bytes 0", "laps"),
        ("bench bulk --tcp-send 12", "multiple of 8"),
        ("bench bulk --buffer lots", "lots"),
        ("bench bulk --reps 0", "--reps"),
    ] {
        let output = output(words);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{words}: {}",
            text(&output.stderr)
        );
        assert!(
            text(&output.stderr).contains(says),
            "{words}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn bulk__host_that_does_not_answer_is_exit_3() {
    // Port 1 of loopback: refused at once.
    let output = output("bench bulk --to 127.0.0.1:1");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("bench serve"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn bulk__ended_by_a_signal_leaves_nothing() {
    let mut running = Running(
        zerolane("bench bulk --only tcp --buffer 1MiB --bytes 4MiB --reps 1000 --json")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let pid = running.0.id();
    let mut lines = BufReader::new(running.0.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM).unwrap();
    for line in lines {
        drop(line);
    }
    assert_eq!(running.0.wait().unwrap().code(), Some(130), "{first}");
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
}

/// Runs a benchmark over an emulated link; `None`, with a message, where
/// namespaces are not allowed.
fn over_a_link(words: &str) -> Option<Value> {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return None;
    }
    let output = output(words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verified"], json!(true));
    Some(report)
}

/// The same with a time for TIME in which something came of all: each of `lists` has results, of which `figure` is above 0. On a
/// busy machine nothing may come in a short time: then it is a longer one.
fn until_it_came(words: &str, lists: &[&str], figure: &str) -> Option<Value> {
    for time in ["500ms", "3s", "10s"] {
        let report = over_a_link(&words.replace("TIME", time))?;
        let results = |list: &&str| report.pointer(list).unwrap().as_array().unwrap().iter();
        let came = |it: &Value| it.pointer(figure).unwrap().as_f64().unwrap() > 0.0;
        if lists.iter().flat_map(results).all(came) {
            return Some(report);
        }
        eprintln!("not all came in {time}: {report}");
    }
    panic!("not all came in 10 s");
}

#[test]
fn loss__compares_on_one_link_and_counts_what_it_did() {
    let words = "bench loss --at 0%,2% --rate 50mbit --time TIME --reps 1 --json";
    let lists = ["/cells/0/results", "/cells/1/results"];
    let Some(report) = until_it_came(words, &lists, "/mbps/median") else {
        return;
    };
    assert_keys(&report, include_str!("../json/sweep.keys"));
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2);
    for (cell, lossy) in cells.iter().zip([false, true]) {
        let names: Vec<_> = cell["results"].as_array().unwrap().iter().collect();
        assert_eq!(names.len(), 4, "{cell}");
        for result in names {
            assert_eq!(result["failures"], json!([]), "{result}");
            assert_eq!(result["network"]["not_emulated"], json!(0), "{result}");
            assert!(
                result["network"]["frames"].as_u64().unwrap() > 10,
                "{result}"
            );
            if !lossy {
                assert_eq!(result["network"]["lost"], json!(0), "{result}");
            }
        }
    }
    let lost = |cell: &Value| -> u64 {
        let results = cell["results"].as_array().unwrap().iter();
        results
            .map(|it| it["network"]["lost"].as_u64().unwrap())
            .sum()
    };
    assert!(lost(&cells[1]) > 0);
    assert_eq!(report["thesis"]["rows"][0]["stp"], json!(41.65));
}

#[test]
fn incast__every_sender_has_a_row_of_its_own() {
    let words = "bench incast --senders 3 --rate 50mbit --time TIME --only extended,cubic --json";
    let Some(report) = until_it_came(words, &["/results"], "/aggregate_mbps") else {
        return;
    };
    assert_keys(&report, include_str!("../json/incast.keys"));
    for result in report["results"].as_array().unwrap() {
        assert_eq!(result["failure"], Value::Null);
        assert_eq!(
            result["sender_mbps"].as_array().unwrap().len(),
            3,
            "{result}"
        );
    }
}

#[test]
fn share__both_flows_are_there_over_time() {
    let words = "bench share --rate 50mbit --time TIME --json";
    let Some(report) = until_it_came(words, &["/flows"], "/mbps") else {
        return;
    };
    assert_keys(&report, include_str!("../json/share.keys"));
    let flows = report["flows"].as_array().unwrap();
    assert_eq!(flows[0]["contender"], json!("extended"));
    assert_eq!(flows[1]["contender"], json!("cubic"));
    let millis = |name: &str| (report[name].as_f64().unwrap() * 1e3).round() as usize;
    let samples = millis("seconds").div_ceil(millis("sample_seconds"));
    for flow in flows {
        let over_time = flow["mbps_over_time"].as_array().unwrap();
        assert_eq!(over_time.len(), samples, "{flow}");
    }
}

#[test]
fn rtt__gives_the_promised_json() {
    let words = "bench rtt --at 5ms --rate 50mbit --time 500ms --only extended --reps 1 --json";
    let Some(report) = over_a_link(words) else {
        return;
    };
    assert_keys(&report, include_str!("../json/sweep.keys"));
}

#[test]
fn siege__gives_the_promised_json() {
    let words = "bench siege --seconds 1 --hellos 500 --garbage 500 --json";
    let Some(report) = over_a_link(words) else {
        return;
    };
    assert_keys(&report, include_str!("../json/siege.keys"));
}

/// By whatever makes namespaces of its own: between two hosts, of several over a link, for the siege.
#[test]
fn bench__removes_the_namespaces_of_a_killed_one() {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    for words in [
        "bench bulk --only tcp --buffer 1MiB --bytes 4MiB --reps 1",
        "bench loss --at 0% --time 100ms --reps 1 --only cubic",
        "bench siege --seconds 1 --rx-core 999",
    ] {
        let mut dead = Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let stale = format!("zl-bench-{}-0-a", dead.id());
        // What one leaves behind that is killed early: a name, and no namespace yet.
        fs::create_dir_all("/run/netns").unwrap();
        File::create(Path::new("/run/netns").join(&stale)).unwrap();
        output(words);
        assert_eq!(namespaces_of(dead.id()), [""; 0], "{words}");
    }
}

/// Not only that there is no server.
#[test]
fn siege__says_which_core_there_is_not() {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    for core in ["--tx-core", "--rx-core", "--attack-core"] {
        let output = output(&format!("bench siege --seconds 1 {core} 999"));
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains("cannot run on core 999"), "{core}: {said}");
    }
}

#[test]
fn echo__gives_the_promised_json() {
    let output = output("bench echo -c 20 --seconds 1 --reps 1 --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keys(&report, include_str!("../json/echo.keys"));
}

#[test]
fn alltoall__gives_the_promised_json() {
    let output = output("bench alltoall --quick -n 3 --size 16KiB,64KiB --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keys(&report, include_str!("../json/alltoall.keys"));
    assert_eq!(report["verified"], json!(true));
    for size in report["sizes"].as_array().unwrap() {
        for side in ["tcp", "shm", "udp"] {
            let ms = size["ms"][side]["median"].as_f64();
            assert!(ms.unwrap() > 0.0, "{side}: {size}");
        }
    }
    let wrong = zerolane("bench alltoall --size 8").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn blocks__gives_the_promised_json() {
    let output = output("bench blocks --quick -n 130 --size 64KiB,16KiB --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keys(&report, include_str!("../json/blocks.keys"));
    assert_eq!(report["verified"], json!(true));
    let rows = report["rows"].as_array().unwrap();
    let notified = rows.iter().map(|it| it["blocks_per_notification"].as_u64());
    assert!(notified.eq([130, 64, 1, 130, 64, 1].map(Some)), "{report}");
    for row in rows {
        for side in ["tcp", "shm", "udp"] {
            let rate = row["gb_per_s"][side]["median"].as_f64();
            assert!(rate.unwrap() > 0.0, "{side}: {row}");
        }
    }
    let wrong = zerolane("bench blocks --size 16MiB").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn handshake__gives_the_promised_json() {
    let output = output("bench handshake -n 500 --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keys(&report, include_str!("../json/handshake.keys"));
    assert_eq!(report["plain"]["count"], json!(500));
}

#[test]
fn serve__measures_for_one_client_after_the_other() {
    let (_server, address) = server();
    for _ in 0..2 {
        let words = format!(
            "bench bulk --to {address} --only tcp --buffer 1MiB --bytes 4MiB --reps 1 --json"
        );
        let output = output(&words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["verified"], json!(true));
    }
}

#[test]
fn serve__between_two_hosts_gives_the_promised_json() {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let hosts = Topology::pair("two", 1500).unwrap();
    let mut command = hosts.b().command(PROGRAM);
    command.args(["bench", "serve", "--listen"]);
    command.arg(format!("{}:0", hosts.b().ipv4()));
    let (_server, address) = serve(command);
    let mut bulk = hosts.a().command(PROGRAM);
    bulk.args(["bench", "bulk", "--to", &address.to_string()]);
    bulk.args(["--buffer", "1MiB", "--bytes", "16MiB", "--reps", "1"]);
    let output = bulk.arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verified"], json!(true));
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    for contender in ["tcp", "zerolane"] {
        let contender = &report[contender];
        for figure in ["min", "median", "max"] {
            assert!(number(&contender["gbps"][figure]) > 0.0, "{contender}");
        }
        assert!(number(&contender["tx_cpu_s_per_gb"]) >= 0.0, "{contender}");
        assert!(number(&contender["rx_cpu_s_per_gb"]) >= 0.0, "{contender}");
    }
    for figure in [
        "ratio_vs_tcp",
        "placed_fraction",
        "tx_syscalls_per_mib",
        "rx_syscalls_per_mib",
    ] {
        assert!(number(&report[figure]) > 0.0, "{figure}: {report}");
    }
    for figure in ["moved_bytes_per_byte", "drops"] {
        assert!(number(&report[figure]) >= 0.0, "{figure}: {report}");
    }
}

#[test]
fn serve__refuses_hostile_requests_and_goes_on() {
    let (_server, address) = server();
    let huge = r#"{"do":"memcpy","buffer":1099511627776}"#;
    assert!(answer(address, format!("{huge}\n").as_bytes()).contains("must be"));

    let tcp = r#"{"send_bytes":8,"recv_bytes":8,"send_buffer":null,"recv_buffer":null,"wait_all":false,"congestion":null}"#;
    let respond = |contender: &str, work: &str| {
        let request = format!(
            r#"{{"do":"respond","contender":"{contender}","work":{work},"security":"plain","lane":"udp","bypass":"never","links":[],"path_threads":false,"tcp":{tcp},"token":1}}"#
        );
        answer(address, format!("{request}\n").as_bytes())
    };
    let file = r#"{"file":{"name":"passwd","bytes":1}}"#;
    let path = r#"{"file":{"name":"../passwd","bytes":1}}"#;
    let huge = r#"{"laps":{"buffer":1099511627776,"laps":1,"seed":0}}"#;
    let endless = r#"{"laps":{"buffer":4096,"laps":18446744073709551615,"seed":0}}"#;
    for (contender, work, says) in [
        ("tcp", file, "has no directory for files"),
        ("tcp", path, "plain name"),
        ("zerolane", huge, "must be"),
        ("zerolane", endless, "laps of"),
        (
            "udp",
            r#"{"laps":{"buffer":4096,"laps":1,"seed":0}}"#,
            "no stream of bytes",
        ),
        ("ucx", file, "no such test"),
    ] {
        let reply = respond(contender, work);
        assert!(reply.contains(says), "{work}: {reply}");
    }

    for garbage in [
        &b"\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[b'x'; 100_000],
        b"{\"do\":\"prepare\"}\n",
    ] {
        let reply = answer(address, garbage);
        assert!(reply.is_empty() || reply.contains("failed"), "{reply}");
    }
    assert!(answer(address, b"{\"do\":\"hello\",\"version\":17}\n").contains("kernel"));
}

#[test]
fn demo__small_copy_is_verified_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let child = zerolane("demo --only tcp --size 8MiB")
        .env("TMPDIR", directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let said = text(&output.stdout);
    assert!(
        said.contains("digest correct") && said.contains("goodput"),
        "{said}"
    );
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// The directory that this demo holds open.
fn stage_of(demo: u32) -> Option<PathBuf> {
    let open = fs::read_dir(format!("/proc/{demo}/fd")).ok()?;
    let paths = open
        .flatten()
        .filter_map(|it| fs::read_link(it.path()).ok());
    let mut stages = paths.filter(|path| {
        let name = path.file_name().unwrap_or_default();
        path.is_dir() && name.to_string_lossy().starts_with("zerolane-demo-")
    });
    stages.next()
}

#[test]
fn demo__that_was_killed_is_cleaned_up_by_the_next() {
    let temporary = tempfile::tempdir().unwrap();
    let demo = |size: &str| {
        let mut demo = zerolane(&format!("demo --only tcp --size {size}"));
        demo.env("TMPDIR", temporary.path());
        demo
    };
    let quiet = |mut demo: Command| {
        let demo = demo.stdout(Stdio::null()).stderr(Stdio::null());
        demo.spawn().unwrap()
    };
    let mut killed = quiet(demo("256MiB"));
    let until = Instant::now() + Duration::from_secs(60);
    let stage = loop {
        let stage = stage_of(killed.id()).filter(|it| it.join("from/file").exists());
        if let Some(stage) = stage {
            break stage;
        }
        assert!(Instant::now() < until && killed.try_wait().unwrap().is_none());
    };
    killed.kill().unwrap();
    killed.wait().unwrap();
    // What one had there that found no room in memory.
    let elsewhere = temporary.path().join("zerolane-demo-killed");
    fs::create_dir_all(elsewhere.join("from")).unwrap();
    fs::write(elsewhere.join("from/file"), b"half").unwrap();
    let next = demo("8MiB").output().unwrap();
    assert!(next.status.success(), "{}", text(&next.stderr));
    assert!(!stage.exists() && !elsewhere.exists());
    let words = format!(
        "removed {}, left behind by a killed demo",
        elsewhere.display()
    );
    assert!(
        text(&next.stderr).contains(&words),
        "{}",
        text(&next.stderr)
    );
}

#[test]
fn demo__says_what_was_encrypted() {
    let output = output("demo --size 8MiB");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let ciphers = ["aegis-128x2", "chacha20-poly1305"];
    let is_said = |cipher| said.contains(&format!("Zerolane, encrypted with {cipher},"));
    assert!(
        ciphers.iter().any(is_said) && said.contains("plain TCP"),
        "{said}"
    );
}

#[test]
fn perftest__every_test_gives_the_promised_json() {
    let (latency, stream) = (
        include_str!("../json/latency.keys"),
        include_str!("../json/stream.keys"),
    );
    for (test, figure, promised) in [
        ("put_lat", "us", latency),
        ("get_lat", "us", latency),
        ("fetch_lat", "us", latency),
        ("send_lat", "us", latency),
        ("put_bw", "gbps", stream),
        ("get_bw", "gbps", stream),
        ("put_rate", "mops", stream),
        ("send_bw", "gbps", stream),
    ] {
        // An unoptimised program takes long to fill and compare the usual 4 MiB.
        let size = match test.ends_with("_bw") {
            true => " --size 64KiB",
            false => "",
        };
        let words =
            format!("bench {test}{size} --only udp,tcp,zerolane --iters 50 --reps 2 --json");
        let output = output(&words);
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["verified"], json!(true));
        assert_eq!(report["test"], json!(test));
        assert_keys(&report, promised);
        for side in ["udp", "tcp", "zerolane"] {
            let median = &report["sizes"][0]["sides"][side][figure]["median"];
            assert!(median.as_f64().unwrap() > 0.0, "{words} {side}: {report}");
        }
        let ratio = &report["sizes"][0]["ratio_vs"]["tcp"];
        assert!(ratio.as_f64().unwrap() > 0.0, "{words}: {report}");
    }
}

#[test]
fn perftest__puts_to_a_target_whose_program_sleeps() {
    for target in ["active", "background"] {
        let words = format!("bench put_lat --target {target} --iters 50 --reps 2 --json");
        let output = output(&words);
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_keys(&report, include_str!("../json/target.keys"));
        assert_eq!(report["target"], json!(target));
        let median = &report["sizes"][0]["sides"]["zerolane"]["us"]["median"];
        assert!(median.as_f64().unwrap() > 0.0, "{report}");
    }
}

#[test]
fn perftest__says_what_it_leaves_out_and_why() {
    let words = "bench put_lat --only udp,tcp --size 4MiB --iters 2 --reps 1 --event --json";
    let output = output(words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keys(&report, include_str!("../json/skipped.keys"));
    let skipped = &report["skipped"][0];
    assert_eq!(
        (&skipped["side"], &skipped["size"]),
        (&json!("udp"), &json!(4 << 20))
    );
    assert!(skipped["why"].as_str().unwrap().contains("no flow control"));
    assert!(report["sizes"][0]["sides"]["tcp"]["us"]["p99"].is_number());

    // By nsenter, which every system has, processes enter the namespaces that root measures in.
    let tools = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/usr/bin/nsenter", tools.path().join("nsenter")).unwrap();
    let without_peers = zerolane("bench put_lat --only ucx --quick --json")
        .env("PATH", tools.path())
        .output()
        .unwrap();
    let said = text(&without_peers.stderr);
    let report: Value = serde_json::from_slice(&without_peers.stdout).expect(&said);
    let why = report["skipped"][0]["why"].as_str();
    assert!(why.unwrap().contains("not installed"), "{said}");
}

#[test]
fn perftest__bad_sizes_are_usage_errors_with_the_range() {
    for (words, says) in [
        ("bench put_lat --size 0", "at least 1 byte"),
        ("bench put_lat --size 65MiB", "1 to 67108864"),
        ("bench fetch_lat --size 16", "a fetch works on 8 bytes"),
        ("bench put_bw --size 4MiB --depth 100", "more than"),
        ("bench put_bw --depth 0", "--depth"),
        ("bench put_lat --poll --event", "--event"),
        ("bench put_lat --iters 0", "--iters"),
        ("bench get_lat --target background", "only put_lat"),
    ] {
        let output = output(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains(says), "{words}: {said}");
    }
}
