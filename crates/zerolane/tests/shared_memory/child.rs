//! A child: this very program, with a test that is ignored otherwise as its job.

use crate::{LEN, content, options};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use zerolane::counters::MoveCause;
use zerolane::options::LaneChoice;
use zerolane::{Connection, Options};

/// What a child is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) lane: &'static str,
    /// As whom.
    pub(crate) user: Option<u32>,
    /// What it does first, and then; see [`child__job`].
    pub(crate) first: &'static str,
    pub(crate) then: &'static str,
    /// What starts it.
    pub(crate) started_by: &'static [&'static str],
}

impl Job {
    /// Sends without end.
    pub(crate) const SEND: Job = Job {
        lane: "shared",
        user: None,
        first: "",
        then: "send",
        started_by: &[],
    };
}

/// Transfers that a child receives.
pub(crate) const RECEIVED: usize = 3;

/// What a child does to the listener at `ZL_TO`.
#[test]
#[ignore = "the job of a child process"]
fn child__job() {
    let Ok(to) = std::env::var("ZL_TO") else {
        return;
    };
    let to: SocketAddr = to.parse().expect("an address");
    let lane = match std::env::var("ZL_LANE").as_deref() {
        Ok("best") => LaneChoice::Best,
        _ => LaneChoice::SharedMemory,
    };
    let first = std::env::var("ZL_FIRST").unwrap_or_default();
    match first.as_str() {
        "hide" => prctl::set_dumpable(false).expect("permitted"),
        "make no files" => setrlimit(Resource::RLIMIT_FSIZE, 4096, 4096).expect("less"),
        _ => {}
    }
    // Those of a peer that is silent are not missed by a clock here.
    let options = Options {
        idle_timeout: std::time::Duration::from_secs(600),
        ..options(lane)
    };
    let mut connection = Connection::connect(to, &options).expect("connected");
    let account = connection.account();
    println!("zl lane {:?} {:?}", account.lane, account.no_shared_memory);
    if first == "lend" {
        // A process that outlives this one has the socket as well.
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
        Ok("put") => crate::mapped::put_without_end(&mut connection),
        Ok("stay") => connection.wait(None).map(drop).expect("killed before"),
        _ => send(&mut connection),
    }
}

/// Transfers without end, whose contents tell their numbers.
fn send(connection: &mut Connection) {
    for seed in 0.. {
        if connection.send(&content(seed, LEN)).is_err() {
            return;
        }
    }
}

/// So many Transfers; tells how their payload came.
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

/// A child that says first what carries its connection.
pub(crate) fn child(to: SocketAddr, job: &Job) -> (Child, BufReader<impl Read>) {
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
        .env("ZL_TO", to.to_string())
        .env("ZL_LANE", job.lane)
        .env("ZL_FIRST", job.first)
        .env("ZL_THEN", job.then)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    if let Some(user) = job.user {
        command.uid(user).gid(user).current_dir("/");
    }
    let mut child = command.spawn().expect("spawned");
    let said = BufReader::new(child.stdout.take().expect("piped"));
    (child, said)
}

/// What a child said behind `zl WORD`.
pub(crate) fn told(said: &mut BufReader<impl Read>, word: &str) -> String {
    let begin = format!("zl {word}");
    let lines = said.lines().map(|it| it.expect("text"));
    let line = lines
        .filter_map(|it| it.split_once(&begin).map(|(_, it)| it.trim().to_owned()))
        .next();
    line.unwrap_or_else(|| panic!("it never said {word}"))
}

/// What a child said carries its connection.
pub(crate) fn lane_of(said: &mut BufReader<impl Read>) -> String {
    told(said, "lane")
}
