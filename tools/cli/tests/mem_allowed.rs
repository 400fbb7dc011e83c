//! Tests `mem export` with a list of keys: the rights of clients, and changes of the list.

#![allow(non_snake_case)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;

use zerolane::failure::{CloseReason, Reason};
use zerolane::keys::identity;
use zerolane::{Connection, Error, Options, Rights, Security};

/// A running `mem export` of 4 KiB as `m`, and a client; each with separate keys.
struct Lab {
    home: tempfile::TempDir,
    client: tempfile::TempDir,
    server: Child,
    host: String,
    /// Kept open, because closing its standard output would end the program.
    _said: BufReader<ChildStdout>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn zerolane(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zerolane"));
    command.env("ZEROLANE_HOME", home).args(words);
    command
}

impl Lab {
    fn new() -> Lab {
        let home = tempfile::tempdir().unwrap();
        let words = [
            "mem",
            "export",
            "4KiB",
            "--name",
            "m",
            "--listen",
            "127.0.0.1:0",
        ];
        let mut server = zerolane(home.path(), &words)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(server.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let host = line
            .split(" on ")
            .nth(1)
            .and_then(|it| it.split(' ').next());
        Lab {
            home,
            client: tempfile::tempdir().unwrap(),
            host: host.unwrap_or_else(|| panic!("{line:?}")).to_owned(),
            server,
            _said: said,
        }
    }

    /// The client's key.
    fn client(&self) -> Arc<zerolane::security::Identity> {
        let path = self.client.path().join("identity");
        Arc::new(identity::load_or_create(&path).unwrap())
    }

    /// Replaces the list by one that lets in the client with `rights`, or no client.
    fn allow(&self, rights: Option<&str>) {
        let line = rights.map(|rights| format!("{} {rights}\n", self.client().public()));
        let new = self.home.path().join("new");
        fs::write(&new, line.unwrap_or_default()).unwrap();
        fs::rename(new, self.home.path().join("allowed_keys")).unwrap();
    }

    fn run(&self, verb: &str, words: &[&str], input: &[u8]) -> Output {
        let mut child = zerolane(
            self.client.path(),
            &[&["mem", verb, &self.host], words].concat(),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
        // The command may fail before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// Whether the client may get, put and count.
    fn can(&self) -> [bool; 3] {
        let counted = [
            self.run("get", &["m@0+8"], b""),
            self.run("put", &["m@16"], b"x"),
            self.run("fetch-add", &["m@8", "1"], b""),
        ];
        counted.map(|output| {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success() || said.contains("does not allow"),
                "{said}"
            );
            output.status.success()
        })
    }

    fn connect(&self) -> zerolane::Result<Connection> {
        let options = Options::default().with(|it| {
            it.security = Security {
                identity: Some(self.client()),
                ..Security::default()
            }
        });
        Connection::connect(self.host.as_str(), &options)
    }
}

#[test]
fn export__a_key_may_do_with_which_region_what_its_line_says() {
    let lab = Lab::new();
    for (rights, can) in [
        ("read", [true, false, false]),
        ("read fetch", [true, false, true]),
        ("read-write", [true, true, true]),
        ("read regions=m", [true, false, false]),
        ("read fetch regions=l,m", [true, false, true]),
        ("read-write regions=m", [true, true, true]),
        ("read-write regions=n", [false, false, false]),
        ("read-write below=in", [false, false, false]),
    ] {
        lab.allow(Some(rights));
        assert_eq!(lab.can(), can, "{rights}");
    }
}

#[test]
fn export__a_list_that_changes_ends_no_connection() {
    let lab = Lab::new();
    lab.allow(Some("read-write"));
    let mut there = lab.connect().unwrap();
    let region = there.open_region("m", Rights::ALL).unwrap();
    there.put(&region, 0, b"before").unwrap();

    lab.allow(None);
    let refused = lab.connect().map(|_| ()).unwrap_err();
    let denied = matches!(
        refused,
        Error::Closed(CloseReason::Rejected {
            reason: Reason::Denied,
            ..
        })
    );
    assert!(denied, "{refused:?}");
    // An existing connection continues.
    there.put(&region, 0, b"after!").unwrap();
    let mut back = [0; 6];
    there.get(&region, 0, &mut back).unwrap();
    assert_eq!(&back, b"after!");

    // So do all connections while the list is broken.
    lab.allow(Some("read-write"));
    drop(lab.connect().unwrap());
    lab.allow(Some("everything"));
    there.put(&region, 0, b"broken").unwrap();
    drop(lab.connect().unwrap());
}
