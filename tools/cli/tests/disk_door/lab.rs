//! Runs `disk serve` on one host, which can be killed, and `disk attach` on another or the same host, for the tests.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use netlab::netns::Topology;
use netlab::udp::Relay;
use netsim::link::LinkConfig;

use crate::running::Running;

const PROGRAM: &str = env!("CARGO_BIN_EXE_zerolane");

/// A server that is killed by SIGKILL. Its output stays open, because closing it would end the server.
struct Server {
    child: Child,
    _said: BufReader<ChildStdout>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The connection between door and server.
pub(crate) enum Between {
    /// Loopback.
    Nothing,
    /// A relay with impaired links.
    Relay,
    /// Links between two hosts: the door is on a, the server on b.
    Hosts(Topology),
}

pub(crate) struct Lab {
    pub(crate) base: tempfile::TempDir,
    pub(crate) uri: String,
    pub(crate) image: PathBuf,
    door: Option<Running>,
    server: Option<Server>,
    pub(crate) hosts: Option<Topology>,
    pub(crate) relay: Option<Relay>,
    listen: String,
    serve_options: Vec<String>,
}

impl Lab {
    /// Serves and attaches a sparse image of `len` bytes.
    pub(crate) fn new(
        bytes: u64,
        between: Between,
        serve_options: &[&str],
        attach_options: &[&str],
    ) -> Lab {
        let base = tempfile::tempdir().unwrap();
        let image = base.path().join("image");
        File::create(&image).unwrap().set_len(bytes).unwrap();
        let has_relay = matches!(between, Between::Relay);
        let hosts = match between {
            Between::Hosts(hosts) => Some(hosts),
            _ => None,
        };
        let at = hosts.as_ref();
        let at = at.map_or(Ipv4Addr::LOCALHOST, |hosts| hosts.b().ipv4());
        let mut lab = Lab {
            base,
            uri: String::new(),
            image,
            door: None,
            server: None,
            hosts,
            relay: None,
            listen: "0.0.0.0:0".to_owned(),
            serve_options: serve_options.iter().map(|&it| it.to_owned()).collect(),
        };
        lab.restart();
        let port: u16 = lab.listen.rsplit(':').next().unwrap().parse().unwrap();
        let mut to = SocketAddr::from((at, port));
        if has_relay {
            let link = LinkConfig::default();
            let relay = Relay::start(to, link, link, fastrand::u64(..)).unwrap();
            to = relay.addr();
            lab.relay = Some(relay);
        }
        let socket = lab.path("socket");
        let mut attach = lab.command(true);
        attach.args(["disk", "attach", "--socket", &socket]);
        attach.args(attach_options).arg(format!("{to}/0"));
        let mut door = Running::new(attach);
        lab.uri = door.line();
        assert!(lab.uri.starts_with("nbd+unix:"), "no door: {}", lab.uri);
        lab.door = Some(door);
        lab
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.base.path().join(name).to_str().unwrap().to_owned()
    }

    fn command(&self, is_a: bool) -> Command {
        let mut command = match &self.hosts {
            Some(hosts) if is_a => hosts.a().command(PROGRAM),
            Some(hosts) => hosts.b().command(PROGRAM),
            None => Command::new(PROGRAM),
        };
        command.env("ZEROLANE_HOME", self.base.path().join("home"));
        command.stdin(Stdio::null());
        command
    }

    /// Kills the server, if there is one, and starts another at the same address.
    pub(crate) fn restart(&mut self) {
        drop(self.server.take());
        let mut command = self.command(false);
        command.args(["disk", "serve", "--listen", &self.listen]);
        command.args(&self.serve_options).arg(&self.image);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let address = line.trim().trim_end_matches('.').rsplit(' ').next();
        let address = address.filter(|it| it.contains(':'));
        let address = address.unwrap_or_else(|| panic!("the server said {line:?}"));
        self.listen = address.to_owned();
        self.server = Some(Server { child, _said: said });
    }

    /// Closes the door, then ends the server, with nothing in progress.
    pub(crate) fn end(&mut self) {
        drop(self.door.take());
        drop(self.server.take());
    }
}

/// The order matters: the door would wait for a server that is gone.
impl Drop for Lab {
    fn drop(&mut self) {
        self.end();
    }
}

/// The output of `program`, which must succeed.
pub(crate) fn run(program: &str, words: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = command.args(words).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {words:?}: {}\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// Writes a file with these bytes.
pub(crate) fn put(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}
