//! Runs both ends of forwards as processes, and targets as threads.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with the test; its output is in a file.
pub(crate) struct Running {
    pub(crate) child: Child,
    out: PathBuf,
}

impl Running {
    pub(crate) fn start(mut command: Command, out: PathBuf) -> Running {
        let file = File::create(&out).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file);
        let child = command.spawn().unwrap();
        Running { child, out }
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    /// Waits for `words` in the output, and returns what follows up to the end of the line.
    pub(crate) fn says(&mut self, words: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let said = self.said();
            if let Some((_, rest)) = said.split_once(words)
                && let Some((line, _)) = rest.split_once('\n')
            {
                return line.to_owned();
            }
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() || self.said().contains(words),
                "it ended without {words:?}: {said}"
            );
            assert!(Instant::now() < until, "no {words:?} in {said:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for the end; its exit code.
    pub(crate) fn ends(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "it does not end: {}", self.said());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Resident memory, bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|it| it.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Homes of both ends.
pub(crate) struct Lab {
    pub(crate) base: tempfile::TempDir,
    number: std::cell::Cell<u32>,
}

impl Lab {
    pub(crate) fn new() -> Lab {
        let base = tempfile::tempdir().unwrap();
        let number = std::cell::Cell::new(0);
        Lab { base, number }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    /// `zerolane WORD...` with the keys in `home`.
    pub(crate) fn zerolane(&self, home: &str, words: &[&str]) -> Command {
        self.with_program(Command::new(program()), home, words)
    }

    pub(crate) fn with_program(&self, mut command: Command, home: &str, words: &[&str]) -> Command {
        command
            .env("ZEROLANE_HOME", self.path(home))
            .env("ZEROLANE_CONFIG", "/dev/null")
            .args(words);
        command
    }

    pub(crate) fn start(&self, command: Command) -> Running {
        self.number.set(self.number.get() + 1);
        Running::start(command, self.path(&format!("out{}", self.number.get())))
    }

    /// The key of `home`.
    pub(crate) fn key(&self, home: &str) -> String {
        let made = self.zerolane(home, &["keygen"]).output().unwrap();
        assert!(
            made.status.success() || home_exists(&self.path(home)),
            "{made:?}"
        );
        let id = self.zerolane(home, &["id"]).output().unwrap();
        String::from_utf8(id.stdout).unwrap().trim().to_owned()
    }

    /// `forward serve` that lets in the same user; and its address.
    pub(crate) fn serve(&self, options: &[&str]) -> (Running, String) {
        self.serve_at("127.0.0.1:0", options)
    }

    pub(crate) fn serve_at(&self, listen: &str, options: &[&str]) -> (Running, String) {
        let words = [&["forward", "serve", "--listen", listen], options].concat();
        let mut server = self.start(self.zerolane("home", &words));
        let address = server.says("Forwarding for others on ");
        (server, address.trim_end_matches('.').to_owned())
    }

    /// `forward LISTEN TARGET --to PEER`, and where it listens.
    pub(crate) fn forward(&self, listen: &str, target: &str, to: &str) -> (Running, String) {
        let mut it = self.start(self.zerolane("home", &["forward", listen, target, "--to", to]));
        let line = it.says("Forwarding ");
        let (on, _) = line.split_once(" to ").unwrap();
        (it, on.to_owned())
    }
}

fn home_exists(home: &Path) -> bool {
    home.join("identity").exists()
}

pub(crate) fn program() -> &'static str {
    env!("CARGO_BIN_EXE_zerolane")
}

/// A target: `serve` gets each connection, in a thread of its own. Returns its address.
pub(crate) fn target(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = serve.clone();
            let stream = stream.unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Sends back what comes, and ends when it ends.
pub(crate) fn echo() -> String {
    target(|mut stream| {
        let mut copy = stream.try_clone().unwrap();
        let _ = io::copy(&mut stream, &mut copy);
        let _ = copy.shutdown(std::net::Shutdown::Write);
    })
}

pub(crate) fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Writes all in another thread, and ends the direction.
pub(crate) fn write_all(stream: &TcpStream, bytes: Vec<u8>) -> thread::JoinHandle<io::Result<()>> {
    let mut stream = stream.try_clone().unwrap();
    thread::spawn(move || {
        stream.write_all(&bytes)?;
        stream.shutdown(std::net::Shutdown::Write)
    })
}

pub(crate) fn read_all(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Resets the connection.
pub(crate) fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}
