//! Tests that killed peers leave nothing behind, in a process that counts its resources.

use crate::child::{Job, child, heard, listener};
use crate::random::{Random, seeds};
use crate::{LEN, PATIENCE, content, is_all, options};
use std::collections::HashMap;
use std::io::BufReader;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use zerolane::failure::CloseReason;
use zerolane::options::LaneChoice;
use zerolane::request::WorkKind;
use zerolane::{Completion, Connection, Endpoint, Error, Region, RequestId};

/// The content of memory before anything is received.
const FILL: u8 = 0xee;
/// Guard bytes on both sides of granted memory.
const AROUND: usize = 4096;
/// How long to wait for a peer that may have been killed before it connected.
const BRIEF: Duration = Duration::from_millis(500);
/// Peers killed.
const KILLED: u64 = 24;

/// Posts receives in the middle of memory of which the rest is not granted.
struct Receives {
    /// The index of each posted receive, and its guards.
    posted: HashMap<RequestId, (usize, [Region; 2])>,
    count: usize,
    /// Nothing is ever sent to these.
    forgotten: bool,
}

impl Receives {
    fn post(&mut self, connection: &mut Connection) -> bool {
        let mut before = Region::from_vec(vec![FILL; LEN + 2 * AROUND]);
        let mut middle = before.split_off(AROUND);
        let after = middle.split_off(LEN);
        let Ok(id) = connection.post_recv(middle) else {
            return false;
        };
        self.posted.insert(id, (self.count, [before, after]));
        self.count += 1;
        true
    }

    fn take(&mut self, done: Completion) {
        let (number, around) = self.posted.remove(&done.id).expect("ended once");
        let whole = done.result.as_ref().ok().copied();
        let found = done.into_region().expect("a region");
        assert_eq!(found.len(), LEN);
        let right = content(number, LEN);
        let len = whole.unwrap_or(0);
        assert!(found[..len] == right[..len], "Transfer {number}");
        // The arrived part of an incomplete one is right; the rest is unchanged.
        let is_left =
            |(is, be): (&u8, &u8)| *is == FILL || !self.forgotten && whole.is_none() && is == be;
        let mut rest = found[len..].iter().zip(&right[len..]);
        let left = is_all(&found[len..], FILL) || rest.all(is_left);
        assert!(left, "Transfer {number} is {whole:?}");
        let untouched = |it: &Region| is_all(it, FILL);
        assert!(around.iter().all(untouched), "around Transfer {number}");
    }
}

/// Sends and receives until the peer is gone.
fn survive(mut connection: Connection, peer: &Job) {
    let mut receives = Receives {
        posted: HashMap::new(),
        count: 0,
        forgotten: peer.then == "take",
    };
    let mut sends = HashMap::new();
    let send = |connection: &mut Connection, sends: &mut HashMap<_, _>, number: usize| {
        let region = Region::from_vec(content(number, LEN));
        let id = connection.post_send(region);
        id.is_ok_and(|id| sends.insert(id, number).is_none())
    };
    let mut sent = 0;
    for _ in 0..2 {
        receives.post(&mut connection);
        sent += usize::from(send(&mut connection, &mut sends, sent));
    }
    // The time that verification takes does not count.
    let mut end = Instant::now() + PATIENCE;
    let missed = loop {
        assert!(Instant::now() < end, "{:#?}", connection.account());
        let done = match connection
            .wait(Some(Duration::from_millis(100)))
            .map(zerolane::Waited::got)
        {
            Ok(None) => continue,
            Ok(Some(done)) => done,
            Err(missed) => break missed,
        };
        if done.kind() == WorkKind::Receive {
            receives.take(done);
            receives.post(&mut connection);
        } else {
            let number = sends.remove(&done.id).expect("ended once");
            assert!(
                done.into_region().expect("a region")[..] == content(number, LEN),
                "sent {number}"
            );
            sent += usize::from(send(&mut connection, &mut sends, sent));
        }
        end = Instant::now() + PATIENCE;
    };
    // Detected by its process, not by a timeout, which would take 600 s.
    assert!(
        matches!(missed, Error::Closed(CloseReason::PeerDead)),
        "{missed}"
    );
    assert!(receives.posted.is_empty() && sends.is_empty(), "each ends");
    assert_eq!(connection.in_flight(), 0);
}

/// The open files of this process, by the links of its descriptors, and its mappings.
fn held() -> (usize, Vec<String>) {
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux");
    let open: Vec<_> = open
        .filter_map(|it| std::fs::read_link(it.ok()?.path()).ok())
        .collect();
    let rings = open.iter().map(|it| it.display().to_string());
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    let rings = rings.chain(maps.lines().map(str::to_owned));
    let rings = rings.filter(|it| it.contains("memfd:zerolane")).collect();
    (open.len(), rings)
}

/// Kills `child` after some time.
fn kill_later(mut child: Child, after: Duration) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        std::thread::sleep(after);
        child.kill().expect("ours");
        child.wait().expect("killed");
    })
}

/// A peer that is killed at some point, counted from its start or from the connection. Returns whether there was a
/// connection.
fn round(seed: u64) -> bool {
    let mut random = Random::new(seed);
    let job = Job {
        then: ["send", "take", "both"][random.below(3) as usize],
        ..Job::SEND
    };
    let patient = options(LaneChoice::SharedMemory).with(|it| {
        it.times.idle = Duration::from_secs(600);
        it.times.connect = Duration::from_secs(600);
    });
    let at_once = random.below(3) == 0;
    let after = random.micros(if at_once { 60_000 } else { 20_000 });
    let mut killing = None;
    let mut later = |child: &mut Option<Child>| {
        if let Some(child) = child.take() {
            killing = Some(kill_later(child, after));
        }
    };
    // Its output is not read to the end, which must not make it fail.
    let (connection, _said) = if random.below(2) == 0 {
        let mut endpoint = Endpoint::bind("127.0.0.1:0", patient).expect("a port");
        let (child, said) = child(endpoint.local_addr(), &job);
        let mut child = Some(child);
        if at_once {
            later(&mut child);
        }
        // A peer that was killed before does not connect.
        let wait = if at_once { BRIEF } else { PATIENCE };
        let connection = endpoint.accept(Some(wait)).expect("accepting");
        later(&mut child);
        (connection, said)
    } else {
        let (child, mut said) = listener(&job);
        let mut child = Some(child);
        if at_once {
            later(&mut child);
        }
        let at: Option<SocketAddr> = heard(&mut said, "at").map(|it| it.parse().expect("one"));
        let connection = at.and_then(|at| Connection::connect(at, &patient).ok());
        later(&mut child);
        (connection, said)
    };
    let connected = connection.is_some();
    if let Some(connection) = connection {
        survive(connection, &job);
    }
    killing.expect("started").join().expect("no panic");
    connected
}

/// See the test below.
#[test]
#[ignore = "the job of a child process"]
fn survivor__job() {
    if std::env::var("ZL_SURVIVE").is_err() {
        return;
    }
    let mut connected = 0;
    for seed in seeds(KILLED) {
        let before = held();
        connected += u64::from(round(seed));
        let after = held();
        assert_eq!(before, after, "seed {seed}");
        assert!(after.1.is_empty(), "seed {seed}: {after:?}");
    }
    println!("zl survived {connected}");
}

/// Its death is detected at once, guards are unchanged, and nothing of it is left.
#[test]
fn processes__killed_at_any_point_leave_nothing_behind() {
    let survivor = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "--exact",
            "survivor::survivor__job",
            "--ignored",
            "--nocapture",
        ])
        .env("ZL_SURVIVE", "1")
        .stdin(Stdio::null())
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&survivor.stdout);
    let errors = String::from_utf8_lossy(&survivor.stderr);
    assert!(survivor.status.success(), "{said}\n{errors}");
    let connected = heard(&mut BufReader::new(&survivor.stdout[..]), "survived");
    let connected: u64 = connected.expect("said").parse().expect("a number");
    assert!(connected > 0, "of {KILLED}");
}
