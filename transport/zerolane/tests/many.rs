//! Tests that a worker serves a thousand connections, each with remote memory, within limits of memory.
//!
//! A separate program, because it measures its memory. The other ends are processes of their own, so that each needs
//! fewer open files.
#![allow(non_snake_case)]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use zerolane::options::LaneChoice;
use zerolane::request::Put;
use zerolane::worker::Worker;
use zerolane::{Connection, ExportedRegion, Options, Region, Rights};

const CONNECTIONS: usize = 1000;
/// Processes that share the connections.
const CLIENTS: usize = 4;
/// Open files of a connection: its socket, and the waker of a connection driven by its caller.
const FILES_EACH: usize = 2;
/// Open files for everything but connections: the listener, pipes, short-lived ones.
const OTHER_FILES: usize = 4 + 2 * CLIENTS;
/// Tells a client its part: "ADDRESS FIRST END".
const PART: &str = "ZEROLANE_TEST_PART";
/// Bytes of the exported region for each connection.
const SLOT: usize = 200;
const ROUNDS: usize = 5;
/// Memory of a connection apart from regions, bytes, at most.
const MOST_EACH: usize = 24 << 10;
/// The same, of an encrypted connection that was only established.
const MOST_IDLE: usize = 18 << 10;

fn patient() -> Options {
    Options::default().with(|it| {
        it.times.connect = Duration::from_secs(60);
        it.times.idle = Duration::from_secs(60);
        // The test measures the memory of sockets and keys, not shared memory.
        it.lane.choice = LaneChoice::Udp;
    })
}

fn content(connection: usize, round: usize) -> [u8; SLOT] {
    std::array::from_fn(|i| (connection * 7 + round * 131 + i * 31) as u8)
}

/// Resident memory of this process, bytes, without the pages of the program's file, which do not depend on connections.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        kib.unwrap().parse::<usize>().unwrap() << 10
    };
    of("RssAnon:") + of("RssShmem:")
}

/// How often the worker's thread has slept or was preempted so far.
fn switches() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of_worker = tasks.filter_map(|task| {
        let task = task.unwrap().path();
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        (name.trim_end() == "zerolane-worker").then_some(status)
    });
    let status = of_worker.last().expect("the worker's thread");
    let counts = status.lines().filter(|it| it.contains("ctxt_switches"));
    let counts = counts.filter_map(|it| it.split_whitespace().nth(1));
    counts.map(|it| it.parse::<u64>().unwrap()).sum()
}

/// Waits for a second in which the worker does nothing at all: path probes of new connections end after some time.
fn await_rest() {
    const SECONDS: u32 = 30;
    let rests = (0..SECONDS).any(|_| {
        let before = switches();
        std::thread::sleep(Duration::from_secs(1));
        switches() == before
    });
    assert!(rests, "an idle worker wakes in each of {SECONDS} seconds");
}

/// Connections that this process can open: all, unless its hard limit of open files is lower and it may not raise that.
fn connections_that_fit() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() + OTHER_FILES;
    let hard = getrlimit(Resource::Nofile).maximum;
    let enough = (open + CONNECTIONS * FILES_EACH) as u64;
    let raise = |to| {
        let raised = Rlimit {
            current: to,
            maximum: to,
        };
        setrlimit(Resource::Nofile, raised).is_ok()
    };
    // Only root may exceed the hard limit.
    if hard.is_none_or(|hard| hard >= enough) || !raise(Some(enough)) {
        raise(hard);
    }
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.map_or(usize::MAX, |limit| limit as usize);
    (limit.saturating_sub(open) / FILES_EACH).min(CONNECTIONS)
}

/// A process that opens a part of the connections.
struct Client {
    child: Child,
    /// Each line lets it continue.
    go: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Client {
    fn start(part: &str) -> Client {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "client__puts_over_its_part", "--nocapture"])
            .env(PART, part)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (go, said) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let said = BufReader::new(said);
        Client { child, go, said }
    }

    /// Waits until it has printed `word`; the test harness prints other lines.
    fn await_word(&mut self, word: &str) {
        let mut line = String::new();
        while !line.trim_end().ends_with(word) {
            line.clear();
            let read = self.said.read_line(&mut line).unwrap();
            assert!(read > 0, "it ended before it was {word}");
        }
    }

    fn go_on(&mut self) {
        use std::io::Write;
        self.go.write_all(b"go on\n").unwrap();
    }
}

/// Prints `word` and waits for the line to continue.
fn say_and_wait(word: &str) {
    println!("{word}");
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).unwrap();
    assert!(read > 0, "the test has ended");
}

/// Opens its part of the connections, then puts over all of them at once, round by round.
#[test]
fn client__puts_over_its_part() {
    // Not a test by itself.
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    let fit = connections_that_fit();
    let words: Vec<&str> = part.split(' ').collect();
    let [to, first, end] = words[..] else {
        panic!("{part:?}");
    };
    let mine = first.parse().unwrap()..end.parse().unwrap();
    let (before, count) = (resident(), mine.len());
    assert!(count <= fit, "{count} of {fit}");
    let mut connections: Vec<_> = mine
        .map(|index: usize| {
            let mut connection = Connection::connect(to, &patient()).unwrap();
            let key = connection.open_region("slots", Rights::WRITE).unwrap();
            (index, connection, key)
        })
        .collect();
    say_and_wait("open");
    for round in 0..ROUNDS {
        for (index, connection, key) in &mut connections {
            let data = Region::from_vec(content(*index, round).to_vec());
            let offset = (*index * SLOT) as u64;
            connection.post(Put::new(key, offset, data)).unwrap();
        }
        for (index, connection, _) in &mut connections {
            let completion = connection
                .wait(Some(Duration::from_secs(60)))
                .unwrap()
                .got();
            let completion = completion.unwrap_or_else(|| panic!("{index}: nothing in time"));
            assert_eq!(completion.result.unwrap(), SLOT, "{index}");
        }
    }
    assert_little(resident().saturating_sub(before) / count);
    say_and_wait("done");
    for (_, connection, _) in connections {
        connection.close().unwrap();
    }
}

fn assert_little(each: usize) {
    eprintln!("{each} bytes an end");
    assert!(each <= MOST_EACH, "{each} bytes an end");
}

#[test]
fn thousand_connections__put_without_failure_in_little_memory() {
    let count = connections_that_fit();
    if count < CONNECTIONS {
        eprintln!("only {count} connections, not {CONNECTIONS}: no more open files are allowed");
    }
    let memory = ExportedRegion::new(Region::anonymous(CONNECTIONS * SLOT).unwrap()).unwrap();
    let worker = Worker::new().unwrap().spawn().unwrap();
    let endpoint = worker.listen("127.0.0.1:0", patient());
    let endpoint = endpoint.wait().unwrap();
    let exported = endpoint.export("slots", &memory, Rights::WRITE);
    exported.wait().unwrap();
    let address = endpoint.local_addr();
    let before = resident();
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|part| {
            let (first, end) = (part * count / CLIENTS, (part + 1) * count / CLIENTS);
            Client::start(&format!("{address} {first} {end}"))
        })
        .collect();
    // Served by the worker's thread; this thread only lists the connections.
    let connections: Vec<_> = (0..count)
        .map(|_| {
            let mut accepting = endpoint.accept();
            let accepted = accepting.wait_for(Duration::from_secs(60));
            accepted.expect("in time").unwrap()
        })
        .collect();
    clients.iter_mut().for_each(|it| it.await_word("open"));
    let idle = resident().saturating_sub(before) / count;
    await_rest();
    clients.iter_mut().for_each(Client::go_on);
    clients.iter_mut().for_each(|it| it.await_word("done"));
    let each = resident().saturating_sub(before) / count;
    clients.iter_mut().for_each(Client::go_on);
    for client in &mut clients {
        assert!(client.child.wait().unwrap().success());
    }
    drop(connections);
    worker.stop().unwrap();
    for index in 0..count {
        let mut there = [0; SLOT];
        memory.read(index * SLOT, &mut there);
        assert_eq!(there, content(index, ROUNDS - 1), "{index}");
    }
    assert_little(each);
    eprintln!("{idle} bytes an idle end");
    assert!(idle <= MOST_IDLE, "{idle} bytes an idle end");
}
