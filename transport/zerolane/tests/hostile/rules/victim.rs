//! Runs an honest end with guarded memory, which a hostile peer attacks.

use super::guard::{Guards, UNTOUCHED, touched};
use super::rule::{Outcome, Rule};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use zerolane::counters::Account;
use zerolane::failure::{CloseReason, Reason, TransferError};
use zerolane::options::Profiles;
use zerolane::request::{Fetch, Get, Put, ReceiveMessage, WorkKind};
use zerolane::{
    Completion, Connection, Endpoint, Error, ExportedRegion, FetchOp, Options, Region, RequestId,
    Rights, Security, SharedRegion,
};

/// Nothing here takes longer; a call that does hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Room of a receive, bytes.
pub(super) const ROOM: usize = 100_000;
/// Room for the payload of a message, bytes.
pub(super) const MESSAGE_ROOM: usize = 1000;
/// Size of the exported memory, bytes.
pub(super) const EXPORTED: usize = 4096;
/// Length of gets and puts: in one datagram, or as a Transfer.
pub(super) const SHORT: usize = 1000;
pub(super) const LONG: usize = 50_000;
/// The peer's region.
pub(super) const THEIRS: &str = "theirs";
/// The byte with which the peer must answer a get.
pub(super) const THEIR_BYTE: u8 = 9;
/// An immediate that follows an operation that the peer never does.
pub(super) const NEVER_SHOWN: u32 = 0xdead;
/// Answers in flight at once.
const ANSWERS: usize = 8;

/// A request to the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Get,
    LongGet,
    Put,
    LongPut,
    Fetch,
}

/// The outcome of a connection.
pub(super) struct Served {
    pub(super) account: Account,
    pub(super) closed: Option<CloseReason>,
    /// Length of the last received Transfer: that much of the next receive may be granted before it is announced.
    usual: usize,
    /// In receives that did not complete, bytes from the start of the memory to the last one written.
    pub(super) touched: usize,
}

fn options(encrypted: bool) -> Options {
    Options::default().with(|it| {
        it.security = match encrypted {
            true => Security::default(),
            false => Security::plain(),
        };
        // It also allows classic, because rules of both profiles are broken.
        it.profiles = Profiles::BOTH;
        it.times.connect = Duration::from_secs(20);
        // Even a peer that leaves at once is accepted.
        it.listen.backlog = 0;
    })
}

/// Options of an end whose peer breaks a rule.
fn attacked(encrypted: bool, outcome: Outcome) -> Options {
    options(encrypted).with(|it| {
        // Only a silent peer is given up, not one that the machine delays for a while.
        it.times.idle = match outcome {
            Outcome::GoesOn => Duration::from_secs(20),
            Outcome::Ended | Outcome::GivenUp => Duration::from_secs(2),
        };
    })
}

/// Memory that the peer may use, and memory that it must not change.
struct Exports {
    guards: [Guards; 2],
    frozen: ExportedRegion,
    _open: ExportedRegion,
}

impl Exports {
    fn of(connection: &mut Connection) -> Exports {
        let exported = |value: u8| {
            let (guards, mut region) = Guards::around(EXPORTED);
            region.fill(value);
            (guards, ExportedRegion::new(region).unwrap())
        };
        let ((around_frozen, frozen), (around_open, open)) = (exported(1), exported(2));
        // Refused once the peer has ended the connection.
        let _ = connection.export_named("frozen", &frozen, Rights::READ);
        let _ = connection.export_named("sink", &open, Rights::WRITE);
        let _ = connection.export_named("open", &open, Rights::ALL);
        Exports {
            guards: [around_frozen, around_open],
            frozen,
            _open: open,
        }
    }

    fn check(&self) {
        self.guards.iter().for_each(Guards::check);
        let mut content = vec![0; EXPORTED];
        self.frozen.read(0, &mut content);
        let unchanged = content.iter().all(|&byte| byte == 1);
        assert!(unchanged, "written where only reading was granted");
    }
}

/// Receives messages into guarded memory and sends each back, makes its request, until the peer has ended. Panics if
/// memory changed that was not granted to the peer.
fn serve(mut connection: Connection, ask: Option<Ask>) -> Served {
    let end = Instant::now() + PATIENCE;
    let (around_room, room) = Guards::around(ROOM);
    let (around_message, message) = Guards::around(MESSAGE_ROOM);
    let (around_got, got) = Guards::around(if ask == Some(Ask::Get) { SHORT } else { LONG });
    let exports = Exports::of(&mut connection);
    let mut served = Served {
        account: connection.account(),
        closed: None,
        usual: 0,
        touched: 0,
    };
    let mut looked = Looked::at(connection.post_recv(room).ok());
    let _ = connection.post(ReceiveMessage::new().payload(message));
    if let Some(ask) = ask {
        // The peer may refuse it, or leave it without an answer.
        let _ = post(&mut connection, ask, got);
    }
    while served.closed.is_none() {
        assert!(Instant::now() < end, "a peer kept the victim busy");
        let waited = connection
            .wait(Some(Duration::from_millis(20)))
            .map(zerolane::Waited::got);
        // The peer may choose a delivery that does not wake: poll as well.
        let found = match waited {
            Ok(None) => connection.poll(),
            other => other,
        };
        match found {
            Ok(None) => {}
            Ok(Some(completion)) => take(&mut connection, completion, &mut served, &mut looked),
            Err(Error::Closed(reason)) => served.closed = Some(reason),
            Err(error) => panic!("{error}"),
        }
        looked.again(&mut connection);
        for guards in [&around_room, &around_message, &around_got] {
            guards.check();
        }
    }
    exports.check();
    served.account = connection.account();
    served
}

fn post(connection: &mut Connection, ask: Ask, into: Region) -> zerolane::Result<()> {
    let rights = Rights::ALL;
    let theirs = connection.open_region(THEIRS, rights)?;
    let put = |len| Region::from_vec(vec![3; len]);
    match ask {
        Ask::Get | Ask::LongGet => connection.post(Get::new(&theirs, 0, into))?,
        Ask::Put => connection.post(Put::new(&theirs, 0, put(SHORT)))?,
        Ask::LongPut => connection.post(Put::new(&theirs, 0, put(LONG)))?,
        Ask::Fetch => connection.post(Fetch::new(&theirs, 0, FetchOp::Add(1)))?,
    };
    Ok(())
}

/// The arrived part of the receive, shared each time, and its content at that time.
struct Looked {
    id: Option<RequestId>,
    parts: Vec<(SharedRegion, Vec<u8>)>,
}

impl Looked {
    fn at(id: Option<RequestId>) -> Looked {
        Looked { id, parts: vec![] }
    }

    /// Checks that the part seen before has not changed; more may have arrived.
    fn again(&mut self, connection: &mut Connection) {
        for (part, held) in &self.parts {
            assert!(part[..] == held[..], "written after it was shared");
        }
        let arrived = self.id.and_then(|id| connection.arrived(id)).unwrap_or(0);
        let last = self.parts.last().map_or(0, |(part, _)| part.len());
        assert!(self.parts.is_empty() || self.id.is_none() || arrived >= last as u64);
        if let Some(id) = self.id.filter(|_| arrived > last as u64) {
            let part = connection.share_arrived(id).expect("in progress");
            let held = part.to_vec();
            self.parts.push((part, held));
        }
    }
}

/// Checks completions; received memory is sent back, as long as the peer accepts it.
fn take(
    connection: &mut Connection,
    completion: Completion,
    served: &mut Served,
    looked: &mut Looked,
) {
    let (kind, result) = (completion.kind(), completion.result.as_ref().ok().copied());
    if kind == WorkKind::Receive {
        looked.id = None;
        looked.again(connection);
        let good = completion.arrived().expect("it fills memory");
        assert!(looked.parts.iter().all(|(part, _)| part.len() <= good));
        looked.parts.clear();
        let gone = TransferError::Refused(Reason::MemoryFault);
        assert_ne!(completion.result, Err(gone), "what is shared is no fault");
    }
    let number = completion.immediate().map(|it| it.number);
    let mut memory = match completion.memory() {
        Some(_) => completion.into_region().expect("the only reference"),
        None => Region::empty(),
    };
    let written = touched(&memory);
    match (kind, result) {
        (WorkKind::Receive, Some(len)) => {
            let granted = len.max(served.usual);
            assert!(written <= granted, "{written} bytes written of {granted}");
            served.usual = len;
        }
        (WorkKind::MessageReceived, Some(len)) => {
            assert!(written <= len, "{written} bytes written of {len}");
        }
        (WorkKind::Receive, None) => served.touched = served.touched.max(written),
        (WorkKind::Get, Some(len)) => {
            let right = memory[..len].iter().all(|&byte| byte == THEIR_BYTE);
            assert!(right, "got what the peer did not answer");
        }
        (WorkKind::Immediate, _) => {
            assert_ne!(number, Some(NEVER_SHOWN), "shown before what it follows");
        }
        _ => {}
    }
    if kind == WorkKind::Receive {
        if connection.in_flight() < ANSWERS {
            let back = memory[..result.unwrap_or(0)].to_vec();
            let _ = connection.post_send(Region::from_vec(back));
        }
        memory.fill(UNTOUCHED);
        *looked = Looked::at(connection.post_recv(memory).ok());
    }
}

/// An endpoint whose connections are all served this way.
pub(super) struct Victim {
    pub(super) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Served>>,
}

impl Victim {
    /// All clients but the first, which is honest, get the request.
    pub(super) fn start(encrypted: bool, rule: &Rule) -> Victim {
        let options = attacked(encrypted, rule.outcome);
        let mut endpoint = Endpoint::bind("127.0.0.1:0", options).unwrap();
        let ask = rule.ask;
        let address = endpoint.local_addr();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            thread::scope(|scope| {
                let mut served = vec![];
                while !stopped.load(Ordering::Relaxed) {
                    if let Some(it) = endpoint.accept(Some(Duration::from_millis(5))).unwrap() {
                        let ask = ask.filter(|_| !served.is_empty());
                        served.push(scope.spawn(move || serve(it, ask)));
                    }
                }
                served.into_iter().map(|it| it.join().unwrap()).collect()
            })
        });
        Victim {
            address,
            stop,
            thread,
        }
    }

    /// The outcome of each connection, in order; a panic if a check failed in one.
    pub(super) fn stop(self) -> thread::Result<Vec<Served>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join()
    }
}

/// A victim that connects to the hostile peer.
pub(super) fn connect_to(peer: SocketAddr, encrypted: bool, rule: &Rule) -> JoinHandle<Served> {
    let (options, ask) = (attacked(encrypted, rule.outcome), rule.ask);
    thread::spawn(move || {
        let connection = Connection::connect(peer, &options).unwrap();
        serve(connection, ask)
    })
}

/// An honest client at the same endpoint at the same time.
pub(super) struct Honest(Connection);

impl Honest {
    pub(super) fn connect(victim: &Victim, encrypted: bool) -> Honest {
        let mut honest = Honest(Connection::connect(victim.address, &options(encrypted)).unwrap());
        honest.is_served(0);
        honest
    }

    /// Sends something, which must come back unchanged.
    fn is_served(&mut self, turn: u32) {
        let sent: Vec<u8> = (0..40_000u32)
            .map(|n| ((n * 7 + turn) >> 3) as u8)
            .collect();
        let mut back = vec![0; sent.len()];
        self.0.send(&sent).unwrap();
        assert_eq!(self.0.recv_into(&mut back).unwrap(), sent.len());
        assert!(back == sent, "the honest one got something else back");
    }

    /// Repeats that, and does it once more after `done`.
    pub(super) fn go_on_until(mut self, done: &AtomicBool) {
        for turn in 1.. {
            let last = done.load(Ordering::Relaxed);
            self.is_served(turn);
            if last {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.0.close().unwrap();
    }
}
