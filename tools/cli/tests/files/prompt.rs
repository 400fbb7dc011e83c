//! Tests prompts and progress on a pseudo-terminal.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::pty::{Winsize, openpty};

use super::lab::*;
use super::meet::{Sender, places};

/// A process with a terminal, and the terminal's output.
struct Terminal {
    child: Running,
    keyboard: File,
    shown: Arc<Mutex<Vec<u8>>>,
    reading: JoinHandle<()>,
}

impl Terminal {
    fn start(command: Command) -> Terminal {
        Terminal::of_columns(0, command)
    }

    fn of_columns(columns: u16, mut command: Command) -> Terminal {
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let ends = openpty(&size, None).unwrap();
        let slave = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        let child = command
            .stdin(slave(&ends.slave))
            .stdout(Stdio::null())
            .stderr(slave(&ends.slave))
            .spawn()
            .unwrap();
        // Closes this process's copies of the other end, so that reading ends with the child.
        drop((command, ends.slave));
        let keyboard = File::from(ends.master);
        let mut screen = keyboard.try_clone().unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&shown);
        let reading = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the other end is closed.
            while let Ok(len @ 1..) = screen.read(&mut bytes) {
                seen.lock().unwrap().extend_from_slice(&bytes[..len]);
            }
        });
        Terminal {
            child: Running(child),
            keyboard,
            shown,
            reading,
        }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    fn types(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    fn ends(mut self) -> (ExitStatus, String) {
        let status = self.child.0.wait().unwrap();
        self.reading.join().unwrap();
        let shown = self.shown.lock().unwrap();
        (status, String::from_utf8_lossy(&shown).into_owned())
    }
}

fn sender() -> Sender {
    let base = places();
    fs::write(base.path().join("from/a\x1b[31m"), b"red").unwrap();
    fs::create_dir(base.path().join("from/tree")).unwrap();
    fs::write(base.path().join("from/tree/b"), content(1, 3000)).unwrap();
    Sender::new(base, &[], &["a\x1b[31m", "tree"])
}

fn receive(sender: &Sender, options: &[&str]) -> Terminal {
    let from = ["--from", &sender.address];
    Terminal::start(sender.receive(&[&from, options].concat()))
}

/// Starts a receiver that asks. Returns it and its output so far. Restarts a receiver that got no answer in time.
fn asks(sender: &Sender) -> (Terminal, String) {
    eventually("it asks", || {
        let mut terminal = receive(sender, &[]);
        loop {
            let ended = terminal.child.0.try_wait().unwrap();
            let shown = terminal.shown();
            if shown.contains("[y/N] ") {
                return Some((terminal, shown));
            }
            if let Some(status) = ended {
                assert_eq!(status.code(), Some(3), "{shown}");
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    })
}

#[test]
fn receive__shows_what_comes_and_asks() {
    for answer in ["y\n", "Y\n", "yes\n"] {
        let mut sender = sender();
        let (mut terminal, shown) = asks(&sender);
        for words in [
            "3 B  a\\x1b[31m",
            "2.93 KiB  tree",
            "2 files, 2.93 KiB",
            "Receive into ",
        ] {
            assert!(shown.contains(words), "{words:?} is not in {shown:?}");
        }
        assert!(!shown.contains("a\x1b"), "{shown:?}");
        // Nothing was received before the answer.
        assert_eq!(names(&sender.to("")), [""; 0]);
        terminal.types(answer.as_bytes());
        let (status, shown) = terminal.ends();
        assert!(status.success(), "{shown}");
        assert_eq!(names(&sender.to("")), ["a\x1b[31m", "tree"]);
        assert!(sender.ends().0.success());
    }
}

#[test]
fn receive__takes_nothing_else_for_a_yes() {
    // Ctrl-D ends the input.
    for answer in ["\n", "n\n", "yy\n", "\x04"] {
        let mut sender = sender();
        let (mut terminal, _) = asks(&sender);
        terminal.types(answer.as_bytes());
        let (status, shown) = terminal.ends();
        assert_eq!(status.code(), Some(1), "{answer:?}: {shown}");
        assert!(shown.contains("nothing was received"), "{shown}");
        assert_eq!(names(&sender.to("")), [""; 0]);
        let (status, words) = sender.ends();
        assert_eq!(status.code(), Some(1));
        assert!(words.contains("the receiver declined"), "{words}");
    }
}

#[test]
fn receive__asks_nothing_with_yes() {
    let mut sender = sender();
    let (status, shown) = eventually("it is answered", || {
        let (status, shown) = receive(&sender, &["-y"]).ends();
        (status.code() != Some(3)).then_some((status, shown))
    });
    assert!(status.success() && !shown.contains("[y/N]"), "{shown}");
    assert_eq!(names(&sender.to("")), ["a\x1b[31m", "tree"]);
    assert!(sender.ends().0.success());
}

/// The longest line drawn, without control sequences.
fn widest(shown: &str) -> usize {
    let mut lines = vec![String::new()];
    let mut rest = shown.chars();
    while let Some(character) = rest.next() {
        match character {
            // A sequence with parameters, up to a letter.
            '\x1b' => drop(rest.find(char::is_ascii_alphabetic)),
            '\r' | '\n' => lines.push(String::new()),
            character => lines.last_mut().unwrap().push(character),
        }
    }
    let width = |line: &String| line.trim_end().chars().count();
    lines.iter().map(width).max().unwrap()
}

#[test]
fn cp__draws_a_bar_that_the_terminal_has_room_for() {
    let lab = Lab::new(&[]);
    fs::write(lab.local("a"), content(1, 3 * MIB)).unwrap();
    for columns in [120, 80, 60, 40, 20] {
        let mut put = lab.put(&["--limit", "8MiB/s"], "a", "a-name-of-some-length");
        put.env("TERM", "xterm");
        let (status, shown) = Terminal::of_columns(columns, put).ends();
        assert!(status.success(), "{shown}");
        let (drawn, _) = shown.rsplit_once("1 file, ").unwrap();
        let widest = widest(drawn);
        assert!(
            drawn.contains('%') || drawn.contains(" of 3.00 MiB"),
            "{drawn:?}"
        );
        assert!(
            widest <= usize::from(columns),
            "{widest} of {columns}: {drawn:?}"
        );
    }
}
