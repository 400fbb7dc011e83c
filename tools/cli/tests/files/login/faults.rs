//! Tests the messages and exit codes of logins that fail.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::{Child, Stdio};

use super::super::lab::*;
use super::script::Login;

/// Asserts that a copy over this login fails with this code and these words.
fn fails(script: &str, code: i32, words: &[&str]) {
    let login = Login::with(script);
    fs::write(login.path("home/a"), b"a").unwrap();
    let (actual, out, err) = run(login.zerolane(&["cp", "me@localhost:a", "local/"]));
    assert_eq!(actual, code, "{script}: {out}{err}");
    for words in words {
        assert!(
            err.contains(words),
            "{script}: {err:?} does not say {words:?}"
        );
    }
    assert_eq!(names(&login.path("local")), [""; 0]);
    login.all_ended();
}

#[test]
fn login__that_fails_says_why() {
    fails(
        "echo 'Permission denied (publickey).' >&2; exit 255",
        3,
        &["Permission denied (publickey).", "no login at localhost"],
    );
    fails(
        "echo 'sh: zerolane: not found' >&2; exit 127",
        3,
        &[
            "sh: zerolane: not found",
            "install zerolane there",
            "--remote-program",
        ],
    );
    fails(
        "echo 'sh: zerolane: Permission denied' >&2; exit 126",
        3,
        &[
            "sh: zerolane: Permission denied",
            "zerolane at localhost cannot be executed",
            "--remote-program",
        ],
    );
    fails(
        "echo 'this account is closed'; exit 1",
        3,
        &["ended with 1", "\"this account is closed\""],
    );
    fails("kill -9 $$", 3, &["was killed"]);
    // An older program that does not know the option.
    fails(
        "exec zerolane serve --stdin-and-out",
        3,
        &["install the same version"],
    );
    fails(
        "exec zerolane serve --stdio missing",
        3,
        &["no such file", "ended with 1"],
    );
}

#[test]
fn login__whose_start_file_reads_the_call_is_told_so() {
    // Like `read answer` in a .bashrc.
    let script = "read answer; exec sh -c \"$command\"";
    let words = ["no call came", ".bashrc", "did not start zerolane"];
    fails(script, 3, &words);
}

#[test]
fn login__remote_shell_that_is_none() {
    let login = Login::new();
    let with = |rsh: &str| login.without_rsh(&["cp", "-e", rsh, "me@localhost:a", "local"]);
    fail(with("no-such-remote-shell"), 1, "no-such-remote-shell");
    fail(with("'not closed"), 2, "quote");
    fail(with("''"), 1, "cannot start the remote shell");
}

#[test]
fn login__that_prints_before_is_understood() {
    let noisy =
        "printf 'Welcome!\\n\\033[1mno line end'; echo warning >&2; exec sh -c \"$command\"";
    let login = Login::with(noisy);
    fs::write(login.path("home/a"), b"theirs").unwrap();
    let (code, out, err) = run(login.zerolane(&["cp", "me@localhost:a", "local/b"]));
    assert_eq!((code, &*out), (0, ""), "{err}");
    assert!(
        err.starts_with("warning\n") && !err.contains("Welcome"),
        "{err}"
    );
    assert_eq!(fs::read(login.path("local/b")).unwrap(), b"theirs");
    fails("yes", 3, &["says too much", "\"y"]);
    fails("head -c 1000000 /dev/zero", 3, &["says too much"]);
}

#[test]
fn login__an_answer_that_is_none_is_refused() {
    for (line, words) in [
        (
            "zerolane-answer 999 9.9.9",
            "zerolane 9.9.9 there speaks version 999",
        ),
        ("zerolane-answer", "did not start zerolane"),
        ("zerolane-answer x", "is not one of zerolane's"),
        ("zerolane-answer 1 1 1 1 1 1", "there speaks version 1 "),
    ] {
        fails(&format!("echo '{line}'"), 3, &[words]);
    }
}

#[test]
fn login__nothing_of_a_location_becomes_an_option() {
    let login = Login::new();
    for (location, words) in [
        (
            "-oProxyCommand=touch x@localhost:a",
            "no user begins with '-'",
        ),
        ("me@-oProxyCommand=x:a", "no host begins with '-'"),
        ("me@a;touch x:a", "this is no host"),
        ("$(touch x)@localhost:a", "this is no user"),
    ] {
        let get = ["cp", "--rsh", &login.shell(), "--", location, "local"];
        fail(login.without_rsh(&get), 2, words);
    }
    assert!(!login.path("ran").exists());
    // The command line on the host contains no path.
    fs::write(login.path("home/-rf; x"), b"odd").unwrap();
    succeed(login.zerolane(&["cp", "me@localhost:-rf; x", "local/a"]));
    assert_eq!(fs::read(login.path("local/a")).unwrap(), b"odd");
}

#[test]
fn login__options_for_servers_that_are_there_are_refused() {
    let login = Login::new();
    for option in [
        "--plain",
        "--authenticated",
        "--code=1234-5678",
        "--profile=classic",
        "--lane=auto",
    ] {
        let get = login.zerolane(&["cp", option, "me@localhost:a", "local"]);
        fail(get, 2, "for servers that are there already");
    }
}

#[test]
fn login__the_remote_program_is_a_command_of_the_shell_there() {
    let login = Login::new();
    fs::write(login.path("home/a"), b"theirs").unwrap();
    let own = env!("CARGO_BIN_EXE_zerolane");
    fs::create_dir(login.path("my bin")).unwrap();
    std::os::unix::fs::symlink(own, login.path("my bin/zl")).unwrap();
    let program = format!("env X=1 '{}'", login.path("my bin/zl").display());
    let get = [
        "cp",
        "--remote-program",
        &program,
        "me@localhost:a",
        "local/b",
    ];
    succeed(login.zerolane(&get));
    assert_eq!(fs::read(login.path("local/b")).unwrap(), b"theirs");
    let none = [
        "cp",
        "--remote-program",
        "/no/zerolane",
        "me@localhost:a",
        "local/c",
    ];
    fail(
        login.zerolane(&none),
        3,
        "there is no /no/zerolane at localhost",
    );
}

#[test]
fn login__udp_that_does_not_come_through_is_told() {
    // A socket that answers no datagram.
    let deaf = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (key, address) = (own_key(), deaf.local_addr().unwrap());
    let version = version();
    let script =
        format!("read call; echo 'zerolane-answer {version} {key} {address}'; cat >/dev/null");
    fails(
        &script,
        3,
        &[
            "UDP from here does not reach it",
            &address.to_string(),
            "--remote-listen",
        ],
    );
}

/// The version words of this program's lines.
fn version() -> String {
    let (_, out, _) = stdio("zerolane-call 999 9.9.9\n");
    let line = out.lines().find(|it| it.starts_with("zerolane-answer "));
    line.unwrap()
        .trim_start_matches("zerolane-answer ")
        .to_owned()
}

/// Runs `serve --stdio` with `told` as its whole input.
fn stdio(told: &str) -> (i32, String, String) {
    let mut child = start_stdio();
    let mut input = child.stdin.take().unwrap();
    input.write_all(told.as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn start_stdio() -> Child {
    let mut serve = zerolane();
    serve
        .args(["serve", "--stdio"])
        .env("SSH_CONNECTION", "127.0.0.1 1 127.0.0.1 2");
    serve
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    serve.spawn().unwrap()
}

#[test]
fn stdio__ends_when_its_channel_does_before_the_client_came() {
    let (code, out, err) = stdio("");
    assert_eq!((code, &*out), (1, ""), "{err}");
    assert!(err.contains("the client is gone"), "{err}");
    let call = format!("zerolane-call {} {} 300 -\n", version(), own_key());
    let (code, out, err) = stdio(&call);
    assert!(
        code == 1 && out.starts_with("\nzerolane-answer "),
        "{out}{err}"
    );
    assert!(out.trim_end().contains(" 127.0.0.1:"), "{out}");
}

#[test]
fn stdio__takes_no_call_but_a_right_one() {
    let (version, key) = (version(), own_key());
    let right = format!("zerolane-call {version} {key} 300 -");
    for wrong in [
        "hello\n".to_owned(),
        format!("{right} more\n"),
        right.replace("zl:", "") + "\n",
        right.replace(" 300 ", " -1 ") + "\n",
        right.replace(" -", " :1-x") + "\n",
        "x".repeat(1 << 20) + "\n",
    ] {
        let mut child = start_stdio();
        let mut input = child.stdin.take().unwrap();
        // The program may end before it has read everything.
        let _ = input.write_all(wrong.as_bytes());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty(), "{output:?}");
        drop(input);
    }
    let (code, out, _) = stdio("zerolane-call 999 9.9.9 whatever\n");
    assert!(code != 0 && out.starts_with("\nzerolane-answer "), "{out}");
}

#[test]
fn stdio__lets_in_the_one_key_and_no_other() {
    let other = tempfile::tempdir().unwrap();
    let (version, key) = (version(), own_key());
    let mut child = start_stdio();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "zerolane-call {version} {key} 300 127.0.0.1").unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let _running = Running(child);
    let line = lines.nth(1).unwrap().unwrap();
    let words: Vec<_> = line.split(' ').collect();
    let [.., server_key, address] = words[..] else {
        panic!("{line}");
    };
    let ls = |home: Option<&std::path::Path>| {
        let mut ls = zerolane();
        ls.args(["ls", "--server-key", server_key, &format!("{address}:/")]);
        if let Some(home) = home {
            ls.env("ZEROLANE_HOME", home);
        }
        ls
    };
    fail(ls(Some(other.path())), 6, "does not let you in");
    let listed = succeed(ls(None));
    assert!(listed.lines().any(|it| it == "proc"), "{listed}");
}

#[test]
fn stdio__listens_where_it_is_told() {
    let login = Login::new();
    fs::write(login.path("home/a"), b"theirs").unwrap();
    // A free port and a taken one.
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let first = taken.local_addr().unwrap().port();
    let range = format!("127.0.0.1:{first}-{}", first.saturating_add(20));
    let get = ["cp", "--remote-listen", &range, "me@localhost:a", "local/b"];
    succeed(login.zerolane(&get));
    assert_eq!(fs::read(login.path("local/b")).unwrap(), b"theirs");
    let only = format!(":{first}");
    let get = ["cp", "--remote-listen", &only, "me@localhost:a", "local/c"];
    fail(login.zerolane(&get), 3, "Address already in use");
    let get = ["cp", "--remote-listen", ":x", "me@localhost:a", "local/c"];
    fail(login.zerolane(&get), 2, "is no port");
}

#[test]
fn stdio__without_word_of_the_connection_listens_everywhere() {
    for (unknown, host) in [
        ("unset SSH_CONNECTION", "127.0.0.1"),
        ("SSH_CONNECTION='UNKNOWN 65535 UNKNOWN 65535'", "127.0.0.1"),
        ("unset SSH_CONNECTION", "[::1]"),
    ] {
        let login = Login::with(&format!("{unknown}; exec sh -c \"$command\""));
        fs::write(login.path("home/a"), b"theirs").unwrap();
        let from = format!("me@{host}:a");
        succeed(login.zerolane(&["cp", &from, "local/b"]));
        assert_eq!(fs::read(login.path("local/b")).unwrap(), b"theirs");
    }
}
