//! Tests `zerolane bench flows`: in each direction, several at once, by interval.

use super::*;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// What is reported of flows of `parallel` and two and a half intervals, by a command of these words and more. On a busy machine
/// a flow may bring less than `enough` bytes in a short time: then it is a longer one, in which something comes.
fn report(command: impl Fn() -> Command, parallel: usize, enough: u64) -> Value {
    let brought = |report: &Value, bytes: u64| {
        let mut flows = report["flows"].as_array().unwrap().iter();
        flows.all(|it| number(&it["bytes"]) >= bytes)
    };
    let mut report = once(command(), 0.2, parallel);
    for interval in [1.0, 5.0] {
        if brought(&report, enough) {
            return report;
        }
        report = once(command(), interval, parallel);
    }
    assert!(brought(&report, 1), "nothing came in 12 s");
    report
}

/// The intervals are those that were asked for, and add up to what was received.
fn once(mut command: Command, interval: f64, parallel: usize) -> Value {
    command.args(["--parallel", &parallel.to_string()]);
    command.args(["--time", &(interval * 2.5).to_string()]);
    command.args(["--interval", &interval.to_string()]);
    command.args(["--buffer", "1MiB", "--json"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keys(&report, include_str!("../json/flows.keys"));
    assert_eq!(report["verified"], json!(true));
    let all = report["intervals"].as_array().unwrap();
    let edges = all.iter().map(|it| it["sum"]["end_s"].as_f64().unwrap());
    assert!(
        edges.eq([1.0, 2.0, 2.5].map(|it| it * interval)),
        "{report}"
    );
    let flows = report["flows"].as_array().unwrap();
    assert_eq!(flows.len(), parallel, "{report}");
    for (at, flow) in flows.iter().enumerate() {
        let parts = all.iter().map(|it| number(&it["flows"][at]["bytes"]));
        assert_eq!(parts.sum::<u64>(), number(&flow["bytes"]), "{report}");
    }
    let sums = all.iter().map(|it| number(&it["sum"]["bytes"]));
    assert_eq!(sums.sum::<u64>(), number(&report["sum"]["bytes"]));
    let flows = flows.iter().map(|it| number(&it["bytes"]));
    assert_eq!(flows.sum::<u64>(), number(&report["sum"]["bytes"]));
    report
}

#[test]
fn flows__intervals_add_up_to_what_was_received() {
    for contender in ["zerolane", "tcp"] {
        let words = format!("bench flows --contender {contender}");
        let report = report(|| zerolane(&words), 2, 1);
        assert_eq!(report["contender"], json!(contender));
        assert_eq!(report["cipher"].is_string(), contender == "zerolane");
    }
}

/// The connections are made from here, whichever way it flows.
#[test]
fn flows__between_two_hosts_either_way() {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let hosts = Topology::pair("flows", 1500).unwrap();
    let mut command = hosts.b().command(PROGRAM);
    command.args(["bench", "serve", "--listen"]);
    command.arg(format!("{}:0", hosts.b().ipv4()));
    let (_server, address) = serve(command);
    for (contender, reverse) in [("zerolane", false), ("zerolane", true), ("tcp", true)] {
        let report = report(
            || {
                let mut flows = hosts.a().command(PROGRAM);
                flows.args(["bench", "flows", "--to", &address.to_string()]);
                flows.args(["--contender", contender]);
                flows.args(reverse.then_some("--reverse"));
                flows
            },
            3,
            1,
        );
        assert_eq!(report["reverse"], json!(reverse));
    }
}

/// In namespaces of the command's own, where that is permitted, by a veth pair each; else from a port each.
#[test]
fn flows__of_several_paths_are_carried_by_all() {
    /// Of so many bytes each path has its part; where a machine is too busy for them, nothing is known of that.
    const ENOUGH: u64 = 8 << 20;
    let report = report(|| zerolane("bench flows --paths 3"), 1, ENOUGH);
    let by: Vec<u64> = report["path_bytes"]
        .as_array()
        .unwrap()
        .iter()
        .map(number)
        .collect();
    assert_eq!(by.len(), 3, "{report}");
    let whole: u64 = by.iter().sum();
    assert!(whole < ENOUGH || by.iter().all(|&it| it > 0), "{report}");
    println!("{by:?} by each path");
    for (words, says) in [
        ("--paths 9", "1..=8"),
        ("--paths 2 -P 2", "only a single flow can use several paths"),
        ("--paths 2 --lane ethernet", "--paths works over UDP only"),
        ("--path 127.0.0.1=", "--to"),
    ] {
        let refused = output(&format!("bench flows {words}"));
        assert_eq!(refused.status.code(), Some(2), "{words}");
        let said = text(&refused.stderr);
        assert!(said.contains(says), "{words}: {said}");
    }
}

#[test]
fn flows__lines_while_it_flows_and_a_summary() {
    let (_server, address) = server();
    let words = format!("bench flows --to {address} -t 0.4 -i 0.2 --buffer 1MiB");
    for (more, lines) in [("", 1), (" -P 2", 3), (" -P 2 -R", 3)] {
        let output = output(&format!("{words}{more}"));
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said = text(&output.stdout);
        let of = |time: &str| said.lines().filter(|line| line.contains(time)).count();
        assert_eq!(
            (of(" 0.00-0.20 "), of(" 0.20-0.40 ")),
            (lines, lines),
            "{said}"
        );
        let (intervals, summary) = said.split_once("- - -").unwrap();
        assert_eq!(intervals.lines().count(), 2 * lines, "{said}");
        let whole = summary.lines().filter(|line| line.starts_with('['));
        assert_eq!(whole.count(), lines, "{said}");
        assert!(summary.contains("payload verified"), "{said}");
        assert_eq!(
            summary.contains("in reverse"),
            more.contains("-R"),
            "{said}"
        );
    }
}

/// An honest end is what it speaks to, but for one line.
#[test]
fn flows__a_server_that_tells_more_than_there_is_is_refused() {
    for (tells, says) in [
        (
            r#"{"did":"sample","flow":1,"bytes":1}"#,
            "flow 1, which does not exist",
        ),
        (
            r#"{"did":"sample","flow":0,"bytes":1}"#,
            "more intervals than there are",
        ),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let liar = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = BufReader::new(stream.try_clone().unwrap());
            let machine = r#"{"cpu":"","cores":1,"kernel":"","tcp_baseline":"cubic"}"#;
            let hello = format!(r#"{{"did":"hello","version":17,"machine":{machine}}}"#);
            let listening = r#"{"did":"listening","port":1}"#;
            for answer in [hello.as_str(), listening] {
                asked.read_line(&mut String::new()).unwrap();
                writeln!(stream, "{answer}").unwrap();
            }
            // It goes when it has heard enough.
            while writeln!(stream, "{tells}").is_ok() {}
        });
        let output = output(&format!("bench flows --to {address} -t 1 -i 0.5"));
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains(says), "{said}");
        liar.join().unwrap();
    }
}

#[test]
fn flows__bad_arguments_are_usage_errors_with_the_range() {
    for (words, says) in [
        ("bench flows --time 0", "1 ms to"),
        ("bench flows --time 601", "600 s"),
        ("bench flows --time lots", "lots"),
        ("bench flows --parallel 0", "1 to 64"),
        ("bench flows --parallel 65", "1 to 64"),
        ("bench flows --parallel 64 --buffer 32MiB", "64 buffers"),
        ("bench flows --interval 0.001", "at least 10 ms"),
        ("bench flows --time 600 --interval 0.5", "at most 1000"),
        ("bench flows --contender tls", "tls"),
    ] {
        let output = output(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains(says), "{words}: {said}");
    }
}
