//! Tests copies that authenticate by a one-time code.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use zerolane::security::PreShared;
use zerolane::{Connection, Endpoint, Options, Security};

use super::lab::{Lab, content, fail, succeed, zerolane};

/// A lab whose server waits for a code.
struct Coded {
    lab: Lab,
    code: String,
    /// Kept open, because closing its standard output would end the program.
    _said: BufReader<std::process::ChildStdout>,
}

impl Coded {
    fn new() -> Coded {
        let mut lab = Lab::new(&[]);
        let mut serve = zerolane();
        serve.stderr(Stdio::piped());
        let mut said = lab.serve(serve, &["--code", "--listen", "127.0.0.1:0"]);
        let mut hint = String::new();
        for _ in 0..2 {
            hint.clear();
            said.read_line(&mut hint).unwrap();
        }
        // ... --code CODE HOST:PORT: DIR
        let words: Vec<&str> = hint.split_whitespace().collect();
        let at = words.iter().position(|&word| word == "--code");
        let at = at.unwrap_or_else(|| panic!("{hint:?}"));
        lab.address = words[at + 2].trim_end_matches(':').to_owned();
        let code = words[at + 1].to_owned();
        assert_eq!(code.len(), 9, "{code}");
        Coded {
            lab,
            code,
            _said: said,
        }
    }

    /// The code with another last digit.
    fn wrong(&self) -> String {
        let (front, last) = self.code.split_at(self.code.len() - 1);
        format!("{front}{}", (last.parse::<u8>().unwrap() + 1) % 10)
    }

    fn get(&self, code: &str) -> Command {
        self.lab.get(&["--code", code], "a", "")
    }

    /// Waits for the server to end. Returns its status and output.
    fn ends(mut self) -> (ExitStatus, String) {
        let server: &mut Child = &mut self.lab.server.as_mut().unwrap().0;
        let errors = server.stderr.take().unwrap();
        let status = server.wait().unwrap();
        (status, std::io::read_to_string(errors).unwrap())
    }
}

#[test]
fn code__copies_for_one_client_that_has_it_and_ends() {
    let coded = Coded::new();
    let bytes = content(3, 3_000_000);
    fs::write(coded.lab.share("a"), &bytes).unwrap();
    // The code as people type it.
    succeed(coded.get(&coded.code.replace('-', " ")));
    assert!(fs::read(coded.lab.local("a")).unwrap() == bytes);
    let (status, said) = coded.ends();
    assert!(status.success(), "{said}");
}

#[test]
fn code__a_wrong_one_gets_nothing_and_the_right_one_still_works() {
    let coded = Coded::new();
    fs::write(coded.lab.share("a"), b"theirs").unwrap();
    fail(coded.get(&coded.wrong()), 6, "does not know this code");
    assert!(!coded.lab.local("a").exists());
    // A client without a code is told that it needs one.
    fail(coded.lab.get(&[], "a", ""), 6, "wants a one-time code");
    succeed(coded.get(&coded.code));
    assert_eq!(fs::read(coded.lab.local("a")).unwrap(), b"theirs");
    let (status, said) = coded.ends();
    assert!(status.success(), "{said}");
    assert_eq!(
        said.matches("tried a wrong code. After 2 more").count(),
        1,
        "{said}"
    );
}

#[test]
fn code__guessed_at_too_often_is_void() {
    let coded = Coded::new();
    fs::write(coded.lab.share("a"), b"theirs").unwrap();
    for _ in 0..3 {
        fail(coded.get(&coded.wrong()), 6, "does not know this code");
    }
    assert!(!coded.lab.local("a").exists());
    let (status, said) = coded.ends();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("This one is void"), "{said}");
    assert!(said.contains("the code is void"), "{said}");
}

#[test]
fn code__to_a_server_that_has_none() {
    let lab = Lab::new(&[]);
    let get = lab.get(&["--code", "1234-5678"], "a", "");
    fail(get, 6, "does not know this code");
    let get = lab.get(&["--code", "1234"], "a", "");
    fail(get, 2, "eight digits");
}

#[test]
fn code__a_relay_without_it_gets_in_nowhere() {
    let coded = Coded::new();
    fs::write(coded.lab.share("a"), b"theirs").unwrap();
    let options = |code: &str| {
        Options::default().with(|it| {
            it.security = Security {
                pre_shared: Some(PreShared::Code(code.parse().unwrap())),
                ..Security::default()
            }
        })
    };
    // Takes the server's part.
    let mut false_server = Endpoint::bind("127.0.0.1:0", options(&coded.wrong())).unwrap();
    let there = false_server.local_addr();
    let mut client = zerolane();
    client.args(["cp", "--code", &coded.code]);
    client.arg(format!("{there}:a")).arg(coded.lab.local("a"));
    let client = std::thread::spawn(move || fail(client, 6, "does not know this code"));
    let accepted = loop {
        let accepted = false_server
            .accept(Some(Duration::from_millis(50)))
            .unwrap();
        if accepted.is_some() || client.is_finished() {
            break accepted;
        }
    };
    assert!(accepted.is_none(), "it let the client in");
    client.join().unwrap();
    assert_eq!(false_server.gate_counters().unwrap().wrong_codes, 1);
    // Takes the client's part.
    let refused = Connection::connect(coded.lab.address.as_str(), &options(&coded.wrong()));
    assert!(refused.is_err());
    // The right client and server still find each other.
    succeed(coded.get(&coded.code));
    assert_eq!(fs::read(coded.lab.local("a")).unwrap(), b"theirs");
    assert!(coded.ends().0.success());
}

#[test]
fn code__its_client_lost_midway_is_a_failure() {
    let coded = Coded::new();
    fs::write(coded.lab.share("a"), content(1, 192 << 20)).unwrap();
    let local = coded.lab.local("");
    let midway = || super::lab::part_bytes(&local, "a") > 8 << 20;
    assert!(super::lab::kill_when(coded.get(&coded.code), midway));
    let (status, said) = coded.ends();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(
        said.contains("disconnected before it had everything"),
        "{said}"
    );
}
