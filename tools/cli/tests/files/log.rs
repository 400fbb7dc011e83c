//! Tests the log of a server.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{ChildStderr, ChildStdout, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::lab::*;

/// A server with a log, and keys of its own.
struct Logged {
    lab: Lab,
    home: tempfile::TempDir,
    lines: std::io::Lines<BufReader<ChildStderr>>,
    /// Kept open, because closing its standard output would end the program.
    _said: BufReader<ChildStdout>,
}

impl Logged {
    fn new(options: &[&str], listen: &str) -> Logged {
        let (mut lab, home) = server_of_another_user(&[]);
        let mut serve = zerolane();
        serve
            .env("ZEROLANE_HOME", home.path())
            .stderr(Stdio::piped());
        let said = lab.serve(serve, &[&["--listen", listen], options].concat());
        let stderr = lab.server.as_mut().unwrap().0.stderr.take().unwrap();
        let lines = BufReader::new(stderr).lines();
        Logged {
            lab,
            home,
            lines,
            _said: said,
        }
    }

    /// The next line that is not about Landlock.
    fn line(&mut self) -> String {
        let line = self
            .lines
            .find(|line| !line.as_ref().unwrap().contains("Landlock"));
        line.unwrap().unwrap()
    }

    fn json(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// Replaces the list in one step, so that the server reads either the old or the new one.
    fn allow(&self, line: &str) {
        let new = self.home.path().join("new");
        fs::write(&new, line).unwrap();
        fs::rename(new, self.home.path().join("allowed_keys")).unwrap();
    }

    fn hang_up(&self) {
        let pid = self.lab.server.as_ref().unwrap().0.id();
        kill(Pid::from_raw(pid as i32), Signal::SIGHUP).unwrap();
    }
}

#[test]
fn log__who_asked_for_what_and_what_became_of_it() {
    let mut logged = Logged::new(&["--log", "json"], "127.0.0.1:0");
    let own = own_key();
    fs::write(logged.lab.share("a"), b"theirs").unwrap();
    let (code, _, err) = run(logged.lab.get(&[], "a", ""));
    assert_eq!(code, 6, "{err}");
    let line = logged.json();
    assert_eq!(
        (&line["event"], &line["key"]),
        (&"refused".into(), &own.as_str().into())
    );
    assert_eq!(line["reason"], "not on the list of keys");
    assert!(
        line["peer"].as_str().unwrap().starts_with("127.0.0.1:"),
        "{line}"
    );

    logged.allow(&format!("{own} read # Ada\n"));
    succeed(logged.lab.get(&[], "a", ""));
    // The change is logged before the client's request, whether the server's loop or the client's handshake notices it
    // first.
    let line = logged.json();
    assert_eq!(line["event"], "keys", "{line}");
    let line = logged.json();
    assert_eq!(
        (&line["event"], &line["name"]),
        (&"read".into(), &"Ada".into())
    );
    assert_eq!(
        (&line["key"], &line["paths"]),
        (&own.as_str().into(), &serde_json::json!(["a"]))
    );
    assert!(
        line["peer"].as_str().unwrap().starts_with("127.0.0.1:"),
        "{line}"
    );
    assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
    let line = logged.json();
    assert_eq!(
        (&line["event"], &line["files"]),
        (&"done".into(), &1.into())
    );
    assert_eq!((&line["bytes"], &line["failed"]), (&6.into(), &0.into()));
    assert!(line["seconds"].is_number(), "{line}");

    fail(logged.lab.get(&[], "no\nsuch", ""), 1, "no such file");
    assert_eq!(logged.json()["event"], "read");
    let line = logged.json();
    assert_eq!(
        (&line["event"], &line["reason"]),
        (&"not-copied".into(), &"no such file or directory".into())
    );
    assert_eq!(line["paths"], serde_json::json!(["no\\nsuch"]));
    assert_eq!(logged.json()["failed"], 1);

    fs::write(logged.lab.local("b"), b"x").unwrap();
    fail(logged.lab.put(&[], "b", "b"), 1, "may only read");
    let line = logged.json();
    assert_eq!(
        (&line["event"], &line["paths"]),
        (&"write".into(), &serde_json::json!(["b"]))
    );
    let line = logged.json();
    assert_eq!(
        (&line["event"], &line["reason"]),
        (&"refused".into(), &"this key may only read there: the server's owner can allow more, with 'read-write' in the list of keys".into())
    );
}

#[test]
fn log__as_text_on_a_line_each() {
    let mut logged = Logged::new(&["--anyone"], "127.0.0.1:0");
    let own = own_key();
    run(logged.lab.get(&["-r"], "", "here"));
    let line = logged.line();
    assert!(line.contains(&format!(" {own} read: \"\"")), "{line:?}");
    let line = logged.line();
    assert!(
        line.contains(&format!(" {own} done: 0 files, 0 bytes, 0 failed, ")),
        "{line:?}"
    );
    // Lines about one client may come after those about the next.
    let mut ls = zerolane();
    ls.arg("ls").arg(logged.lab.there(""));
    succeed(ls);
    let line = logged.line();
    assert!(line.contains(&format!(" {own} list: \"\"")), "{line:?}");
}

#[test]
fn serve__reads_its_list_again_on_sighup_and_says_so() {
    let mut logged = Logged::new(&["--log", "json"], "127.0.0.1:0");
    for _ in 0..2 {
        logged.hang_up();
        let line = logged.json();
        assert_eq!(line["event"], "keys");
        assert_eq!(
            line["reason"],
            "the list of keys was read again: 1 key may connect"
        );
    }
    logged.allow("nonsense\n");
    let line = logged.json();
    assert!(
        line["reason"]
            .as_str()
            .unwrap()
            .contains("cannot be used: line 1"),
        "{line}"
    );
}

#[test]
fn serve__without_a_list_survives_sighup() {
    let logged = Logged::new(&["--anyone"], "127.0.0.1:0");
    logged.hang_up();
    let mut ls = zerolane();
    ls.arg("ls").arg(logged.lab.there(""));
    run(ls);
    let mut ls = zerolane();
    ls.arg("ls").arg(logged.lab.there(""));
    succeed(ls);
}

#[test]
fn serve__listens_on_a_name() {
    let logged = Logged::new(&["--anyone"], "localhost:0");
    let address: std::net::SocketAddr = logged.lab.address.parse().unwrap();
    assert!(
        address.ip().is_loopback() && address.port() != 0,
        "{address}"
    );
    let mut missing = zerolane();
    missing.args(["serve", "--listen", "no-such-host.invalid", "."]);
    fail(
        missing,
        1,
        "cannot find the address of \"no-such-host.invalid\"",
    );
}

#[test]
fn log__of_json_has_nothing_else_when_a_signal_ends_it() {
    let mut logged = Logged::new(&["--log", "json"], "127.0.0.1:0");
    let server = logged.lab.server.as_ref().unwrap();
    kill(Pid::from_raw(server.0.id() as i32), Signal::SIGTERM).unwrap();
    for line in logged.lines.by_ref() {
        let line = line.unwrap();
        assert!(
            line.contains("this process") || line.starts_with('{'),
            "{line}"
        );
    }
}
