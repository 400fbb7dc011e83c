//! Runs an initiator in a child process that a test can kill.
//!
//! It writes sectors that name the write they belong to, and reports which writes it began and which it may rely on.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use fastrand::Rng;
use zerolane_disk::initiator::{Done, Error, Pending, Queue, Request};

use super::child;

/// In the environment of the child: address, number of its first write, seed.
const TARGET: &str = "ZEROLANE_TEST_TARGET";
const FIRST: &str = "ZEROLANE_TEST_FIRST";
const SEED: &str = "ZEROLANE_TEST_WRITER_SEED";
/// Before each line that it says: the test harness says others.
const MARK: &str = "@ ";

pub const SECTOR: usize = super::BLOCK as usize;
/// Requests in progress.
const MOST: usize = 16;
/// Sectors of a write.
const LONGEST: u64 = 256;
/// A child that is never killed ends.
const WRITES: u64 = 1 << 20;

/// Sector `sector` as write `version` has it; none has number 0, which stands for zeros.
pub fn content(sector: u64, version: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if version > 0 {
        Rng::with_seed(sector.rotate_left(32) ^ version).fill(&mut bytes);
        bytes[..8].copy_from_slice(&sector.to_be_bytes());
        bytes[8..16].copy_from_slice(&version.to_be_bytes());
    }
    bytes
}

/// Which write sector `sector` is of, if all of it is of one.
pub fn version_of(sector: u64, bytes: &[u8]) -> Option<u64> {
    let version = u64::from_be_bytes(bytes[8..16].try_into().unwrap());
    (bytes == content(sector, version)).then_some(version)
}

/// What it tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A write begins: its number, the first sector, how many.
    Begins(u64, u64, u64),
    /// These writes are on the medium.
    Safe(Vec<u64>),
}

fn say(words: &str) {
    // One call, so that a kill leaves whole lines.
    std::io::stdout()
        .write_all(format!("{MARK}{words}\n").as_bytes())
        .unwrap();
}

fn parse(line: &str) -> Option<Line> {
    let words = line.strip_prefix(MARK)?.strip_suffix('\n')?;
    let mut numbers = words.split(' ').skip(1).map(|it| it.parse().unwrap());
    Some(match words.split(' ').next()? {
        "begins" => Line::Begins(numbers.next()?, numbers.next()?, numbers.next()?),
        _ => Line::Safe(numbers.collect()),
    })
}

/// A write in progress.
struct Busy {
    version: u64,
    start: u64,
    count: u64,
    durable: bool,
    pending: Pending,
}

struct Writer {
    queue: Queue,
    busy: VecDeque<Busy>,
    /// Writes that were done and not flushed.
    done: Vec<u64>,
}

impl Writer {
    fn wait_for_one(&mut self) {
        let Some(busy) = self.busy.pop_front() else {
            return;
        };
        match busy.pending.wait().result {
            Ok(()) if busy.durable => say(&format!("safe {}", busy.version)),
            Ok(()) => self.done.push(busy.version),
            Err(error) => panic!("{error}"),
        }
    }

    fn write(&mut self, version: u64, rng: &mut Rng, sectors: u64) {
        let count = rng.u64(1..=LONGEST);
        let start = rng.u64(0..=sectors - count);
        let durable = rng.u32(0..16) == 0;
        let overlaps = |it: &Busy| it.start < start + count && start < it.start + it.count;
        while self.busy.len() >= MOST || self.busy.iter().any(overlaps) {
            self.wait_for_one();
        }
        let bytes: Vec<u8> = (start..start + count)
            .flat_map(|sector| content(sector, version))
            .collect();
        say(&format!("begins {version} {start} {count}"));
        let pending = self.queue.start(Request::Write {
            at: start * SECTOR as u64,
            memory: super::region(&bytes),
            durable,
        });
        self.busy.push_back(Busy {
            version,
            start,
            count,
            durable,
            pending,
        });
    }

    /// Flushes, with writes in progress. False if what was not flushed is lost.
    fn flush(&mut self) -> bool {
        let before = std::mem::take(&mut self.done);
        let Done { result, .. } = self.queue.call(Request::Flush);
        match result {
            Ok(()) => {
                let numbers: Vec<String> = before.iter().map(u64::to_string).collect();
                if !numbers.is_empty() {
                    say(&format!("safe {}", numbers.join(" ")));
                }
                true
            }
            Err(Error::Lost) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The test that writes. Does nothing unless it was started to.
pub fn write() {
    let Ok(address) = std::env::var(TARGET) else {
        return;
    };
    let address: SocketAddr = address.parse().unwrap();
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let mut rng = Rng::with_seed(std::env::var(SEED).unwrap().parse().unwrap());
    println!();
    let mut writer = Writer {
        queue: child::queue_to(address),
        busy: VecDeque::new(),
        done: Vec::new(),
    };
    let sectors = writer.queue.unit().blocks;
    for version in first..first + WRITES {
        writer.write(version, &mut rng, sectors);
        if rng.u32(0..12) == 0 && !writer.flush() {
            // What it has begun is over before another connection writes there.
            while !writer.busy.is_empty() {
                writer.wait_for_one();
            }
            // As a file system that is mounted again: nothing of before may be relied on.
            writer = Writer {
                queue: child::queue_to(address),
                busy: VecDeque::new(),
                done: Vec::new(),
            };
        }
    }
}

/// A running child. Dropped, it is killed.
pub struct Running {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Running {
    /// Writes to the target at `address`; `test` is the name of the test that writes.
    pub fn start(test: &str, address: SocketAddr, first: u64, seed: u64) -> Running {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(TARGET, address.to_string())
            .env(FIRST, first.to_string())
            .env(SEED, seed.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Running { child, said }
    }

    /// The next thing that it tells; `None` when it is dead and all was told.
    pub fn next(&mut self) -> Option<Line> {
        loop {
            let mut line = String::new();
            if self.said.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(line) = parse(&line) {
                return Some(line);
            }
        }
    }

    /// As by kill -9; returns what it had told before.
    pub fn kill(&mut self) -> Vec<Line> {
        let ended = self.child.try_wait().unwrap();
        assert_eq!(ended, None, "the writer ended by itself");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.next()).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
