//! Starts children: this program, with a test that is otherwise ignored as the child's job.

use crate::hostile::tear;
use crate::places::name;
use crate::{LEN, PATIENCE, accept, content, length, options};
use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, Scope};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use zerolane::counters::MoveCause;
use zerolane::options::LaneChoice;
use zerolane::{Connection, Endpoint};

/// A child's job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) lane: &'static str,
    /// Its user.
    pub(crate) user: Option<u32>,
    /// Its first task, and the next one; see [`child__job`].
    pub(crate) first: &'static str,
    pub(crate) then: &'static str,
    /// The program that starts it.
    pub(crate) started_by: &'static [&'static str],
    /// The seed of its random numbers.
    pub(crate) seed: u64,
}

impl Job {
    /// Sends without end.
    pub(crate) const SEND: Job = Job {
        lane: "shared",
        user: None,
        first: "",
        then: "send",
        started_by: &[],
        seed: 0,
    };
}

/// Transfers that a child receives.
pub(crate) const RECEIVED: usize = 3;

/// Transfers in each direction of a child that swaps.
pub(crate) const SWAPPED: usize = 40;

/// The job of a child with the listener at `ZL_TO`, or, if that is [`LISTEN`], with the process that connects.
#[test]
#[ignore = "the job of a child process"]
fn child__job() {
    let Ok(to) = std::env::var("ZL_TO") else {
        return;
    };
    let lane = match std::env::var("ZL_LANE").as_deref() {
        Ok("best") => LaneChoice::Best,
        _ => LaneChoice::SharedMemory,
    };
    // A clock does not detect silent peers here.
    let options = options(lane).with(|it| it.times.idle = std::time::Duration::from_secs(600));
    let first = std::env::var("ZL_FIRST").unwrap_or_default();
    let mut connection = match to.as_str() {
        LISTEN => {
            let bound = Endpoint::bind("127.0.0.1:0", options);
            let mut endpoint = bound.inspect_err(|error| println!("zl refused {error}"));
            let endpoint = endpoint.as_mut().expect("a port");
            if first == "turn away" {
                return turn_away(endpoint);
            }
            println!("zl at {}", endpoint.local_addr());
            prepare(&first);
            accept(endpoint)
        }
        to => {
            prepare(&first);
            let to: SocketAddr = to.parse().expect("an address");
            Connection::connect(to, &options).expect("connected")
        }
    };
    let account = connection.account();
    println!("zl lane {:?} {:?}", account.lane, account.no_shared_memory);
    if first == "lend" {
        // A process that outlives this one inherits the socket.
        fcntl(connection.as_fd(), FcntlArg::F_SETFD(FdFlag::empty())).expect("open");
        Command::new("sh")
            .args(["-c", "sleep 120 &"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .expect("started");
        println!("zl lent");
    }
    match std::env::var("ZL_THEN").as_deref() {
        Ok("receive") => receive(&mut connection),
        Ok("take") => while connection.recv_into(&mut vec![0; LEN]).is_ok() {},
        Ok("notify") => crate::immediates::notify_without_end(&mut connection),
        Ok("own") => crate::immediates::own(&mut connection),
        Ok("put") => crate::mapped::put_without_end(&mut connection),
        Ok("stay") => connection.wait(None).map(drop).expect("killed before"),
        Ok("swap") => {
            swap(&mut connection, [0, 1], SWAPPED).expect("all of them");
            println!("zl swapped");
            connection.close().expect("closed");
        }
        Ok("swap on") => drop(swap(&mut connection, [0, 1], usize::MAX).expect_err("no end")),
        Ok("both") => both(&mut connection),
        Ok("tear") => {
            let seed = std::env::var("ZL_SEED").expect("given");
            tear(&mut connection, seed.parse().expect("a number"));
        }
        _ => send(&mut connection),
    }
}

fn prepare(first: &str) {
    match first {
        "hide" => prctl::set_dumpable(false).expect("permitted"),
        "make no files" => setrlimit(Resource::RLIMIT_FSIZE, 4096, 4096).expect("less"),
        "no huge pages" => prctl::set_thp_disable(true).expect("permitted"),
        "confine" => confine(),
        _ => {}
    }
}

/// Gives up the rights to files, to TCP and to outside processes, as a server confined by Landlock does.
fn confine() {
    const VERSION: ABI = ABI::V6;
    let created = Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))
        .and_then(|it| it.handle_access(AccessNet::from_all(VERSION)))
        .and_then(|it| it.scope(Scope::from_all(VERSION)))
        .and_then(Ruleset::create);
    let confined = created.and_then(|it| it.restrict_self());
    println!("zl confined {:?}", confined.expect("permitted").ruleset);
}

/// Accepts nothing; reports when a process was turned away. The first one is of this user, and is waited for.
fn turn_away(endpoint: &mut Endpoint) {
    let directory = format!("/tmp/zerolane-{}", nix::unistd::geteuid());
    let at = endpoint.local_addr();
    let first = UnixStream::connect(name(directory.as_ref(), at)).expect("this listens");
    first.set_nonblocking(true).expect("open");
    println!("zl at {at}");
    let end = std::time::Instant::now() + PATIENCE;
    while endpoint.counters().refused == 0 {
        assert!(std::time::Instant::now() < end, "it never came");
        let wait = std::time::Duration::from_millis(20);
        let accepted = endpoint.accept(Some(wait)).expect("accepting");
        assert!(accepted.is_none(), "of another user");
    }
    let waits = (&first).read(&mut [0]).expect_err("it was turned away");
    assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock);
    println!("zl refused {}", endpoint.counters().refused);
}

/// Transfers in both directions by turns, whose contents identify their numbers: `mine` and the peer's differ by their
/// start.
pub(crate) fn swap(
    connection: &mut Connection,
    [mine, peers]: [usize; 2],
    count: usize,
) -> zerolane::Result<()> {
    let mut buffer = vec![0; LEN];
    for number in 0..count {
        let len = length(number);
        let send = |it: &mut Connection| it.send(&content(number + mine, len));
        if mine == 0 {
            send(connection)?;
        }
        let came = connection.recv_into(&mut buffer)?;
        assert_eq!(came, len, "Transfer {number}");
        assert!(
            buffer[..len] == content(number + peers, len),
            "Transfer {number}"
        );
        if mine != 0 {
            send(connection)?;
        }
    }
    Ok(())
}

/// Sends Transfers without end, whose contents identify their numbers.
fn send(connection: &mut Connection) {
    for seed in 0.. {
        if connection.send(&content(seed, LEN)).is_err() {
            return;
        }
    }
}

/// Like [`send`], and receives one after each.
fn both(connection: &mut Connection) {
    let mut buffer = vec![0; LEN];
    for seed in 0.. {
        let sent = connection.send(&content(seed, LEN));
        if sent.is_err() || connection.recv_into(&mut buffer).is_err() {
            return;
        }
    }
}

/// Receives that many Transfers; reports how their payload came.
fn receive(connection: &mut Connection) {
    let mut buffer = vec![0; LEN];
    for seed in 0..RECEIVED {
        connection.recv_into(&mut buffer).expect("received");
        assert!(buffer == content(seed, LEN), "Transfer {seed}");
    }
    let account = connection.account();
    let ring = account.moved(MoveCause::Ring);
    println!("zl came {ring} {}", account.bytes_placed);
}

/// Used instead of an address: the child must listen.
const LISTEN: &str = "listen";

/// A child that connects, and first reports the lane of its connection.
pub(crate) fn child(to: SocketAddr, job: &Job) -> (Child, BufReader<ChildStdout>) {
    start(&to.to_string(), job)
}

/// A child that listens, and reports where: see [`told`].
pub(crate) fn listener(job: &Job) -> (Child, BufReader<ChildStdout>) {
    start(LISTEN, job)
}

fn start(to: &str, job: &Job) -> (Child, BufReader<ChildStdout>) {
    let own = std::env::current_exe().expect("this program");
    let mut words = job.started_by.iter().copied();
    let mut command = match words.next() {
        Some(program) => Command::new(program),
        None => Command::new(&own),
    };
    if !job.started_by.is_empty() {
        command.args(words).arg(&own);
    }
    command
        .args(["--exact", "child::child__job", "--ignored", "--nocapture"])
        .env("ZL_TO", to)
        .env("ZL_LANE", job.lane)
        .env("ZL_FIRST", job.first)
        .env("ZL_THEN", job.then)
        .env("ZL_SEED", job.seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    if let Some(user) = job.user {
        command.uid(user).gid(user).current_dir("/");
        // This process's directory belongs to another user.
        command.env_remove("XDG_RUNTIME_DIR");
    }
    let mut child = command.spawn().expect("spawned");
    let said = BufReader::new(child.stdout.take().expect("piped"));
    (child, said)
}

/// The child's report after `zl WORD`, unless it ended before.
pub(crate) fn heard(said: &mut BufReader<impl Read>, word: &str) -> Option<String> {
    let begin = format!("zl {word}");
    let mut lines = said.lines().map(|it| it.expect("text"));
    lines.find_map(|it| it.split_once(&begin).map(|(_, it)| it.trim().to_owned()))
}

/// The child's report after `zl WORD`.
pub(crate) fn told(said: &mut BufReader<impl Read>, word: &str) -> String {
    heard(said, word).unwrap_or_else(|| panic!("it never said {word}"))
}

/// The lane that a child reported.
pub(crate) fn lane_of(said: &mut BufReader<impl Read>) -> String {
    told(said, "lane")
}
