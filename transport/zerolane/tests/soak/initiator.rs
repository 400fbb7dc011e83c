//! Requests random operations and verifies their results.

use crate::MESSAGE_LEN;
use crate::content::{first_wrong, name_of, named, region};
use crate::dice::{Dice, MAX_LEN};
use crate::link::Path;
use crate::oracle::{Oracle, Part};
use crate::process::{LINGER, Role, peak, say, since};
use crate::protocol::{Kind, OWN_WORDS, SHARED_WORDS, SLOTS, control, pinned, read_control};
use crate::target::RECEIVES;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use zerolane::counters::Account;
use zerolane::failure::{Reason, TransferError};
use zerolane::memory::Memory;
use zerolane::request::{
    Fetch, Get, GetPieces, MAX_INLINE, Message, Put, PutInline, PutPieces, ReceiveMessage, WorkKind,
};
use zerolane::{Completion, Connection, FetchOp, Region, RegionKey, RequestId, Rights};

/// An initiator's own memory at the target, bytes: the known part, and a scratch part for puts that are cancelled.
pub const AREA: u64 = KNOWN + SCRATCH;
const KNOWN: u64 = 40 << 20;
const SCRATCH: u64 = 9 << 20;

/// Most operations in flight, their total bytes, and pending answers.
const IN_FLIGHT: usize = 30;
const BYTES_IN_FLIGHT: u64 = 64 << 20;
const AWAITED: u64 = 60;

/// A stall: nothing completed for this long. It is reported with the counters since then.
const STALL: Duration = Duration::from_secs(2);

/// A failure: no payload moved, or nothing completed, for this much longer than the link explains. On a busy machine a
/// completion takes long.
const STILL_LIMIT: Duration = Duration::from_secs(10);
const STALL_LIMIT: Duration = Duration::from_secs(60);

/// A request that is not complete.
#[derive(Debug)]
struct Asked {
    what: What,
    bytes: u64,
    at: Instant,
    /// When to cancel it.
    cancel: Option<Instant>,
    cancelled: bool,
}

#[derive(Debug)]
enum What {
    Put {
        parts: Vec<(u64, u64)>,
        /// It may be longer than one datagram: unordered with other long ones.
        long: bool,
    },
    Get {
        parts: Vec<(u64, u64)>,
        /// The expected content of each part.
        expected: Vec<Vec<Part>>,
    },
    /// An atomic operation, and the word's previous value if it is known.
    Atomic(Option<u64>),
    Immediate,
    Message,
    Transfer,
}

/// Operations on the open connection that must be answered.
#[derive(Default)]
struct Talk {
    chats: HashSet<u64>,
    /// Immediates not received yet.
    pinned: HashSet<u32>,
    sent: u64,
    sent_or_cancelled: u64,
    echoes: u64,
    names: HashSet<u64>,
    agreed: Option<u64>,
}

impl Talk {
    fn awaited(&self) -> u64 {
        let echoes = self.sent.saturating_sub(self.echoes);
        self.chats.len() as u64 + self.pinned.len() as u64 + echoes
    }
}

pub fn run(role: &Role) {
    let mut initiator = Initiator::new(role);
    let end = Instant::now() + role.time();
    while Instant::now() < end {
        let time = Duration::from_millis(3_000 + initiator.dice.below(10_000));
        initiator.work(end.min(Instant::now() + time));
        initiator.settle();
        if initiator.dice.chance(50) && Instant::now() < end {
            initiator.reconnect(role);
        }
    }
    let Initiator {
        connection,
        done,
        bytes,
        gap,
        still,
        added,
        reconnects,
        ..
    } = initiator;
    connection.close().expect("closed");
    let added: Vec<_> = added.iter().map(u64::to_string).collect();
    say(&format!("sums {}", added.join(" ")));
    say(&format!(
        "done {} ops={done} bytes={bytes} gap={} still={} reconnects={reconnects}",
        peak(),
        gap.as_millis(),
        still.as_millis()
    ));
}

struct Initiator {
    connection: Connection,
    keys: Keys,
    index: usize,
    path: Path,
    dice: Dice,
    oracle: Oracle,
    asked: HashMap<RequestId, Asked>,
    talk: Talk,
    /// The content of the next put; each is used once.
    content: u64,
    chat: u64,
    immediate: u32,
    /// The own words' values once all requested operations are done.
    own: [u64; OWN_WORDS as usize],
    added: [u64; SHARED_WORDS as usize],
    silence: Silence,
    done: u64,
    bytes: u64,
    /// The longest time without a completion while one was due.
    gap: Duration,
    /// The longest time in which no payload moved either.
    still: Duration,
    reconnects: u32,
}

struct Keys {
    area: RegionKey,
    board: RegionKey,
    words: RegionKey,
}

/// A period without completions.
struct Silence {
    since: Instant,
    /// Since when no payload has moved, and how much had moved by then.
    still: Instant,
    moved: u64,
    /// The counters of the last report.
    told: Option<(Instant, Account)>,
}

fn connect(role: &Role) -> (Connection, Keys) {
    let to: SocketAddr = role.get("to");
    let index: usize = role.get("index");
    let mut connection = Connection::connect(to, &role.options()).expect("connected");
    for _ in 0..RECEIVES {
        let region = |len: u64| Region::anonymous(len as usize).expect("memory");
        connection.post_recv(region(MAX_LEN)).expect("posted");
        let message = connection.post(ReceiveMessage::new().payload(region(MESSAGE_LEN)));
        message.expect("posted");
    }
    let hello = control(Kind::Hello, index as u64, 0);
    connection.send_message(&hello, None).expect("said");
    let mut open = |name: String, rights| {
        let opened = connection.open_region(&name, rights);
        opened.expect("a region")
    };
    let keys = Keys {
        area: open(format!("area{index}"), Rights::ALL),
        board: open(format!("board{index}"), Rights::WRITE),
        words: open("words".into(), Rights::ATOMIC),
    };
    (connection, keys)
}

impl Initiator {
    fn new(role: &Role) -> Initiator {
        let index: usize = role.get("index");
        let (connection, keys) = connect(role);
        Initiator {
            connection,
            keys,
            index,
            path: role.path(),
            dice: Dice::new(role.seed() * 16 + index as u64),
            oracle: Oracle::new(KNOWN),
            asked: HashMap::new(),
            talk: Talk::default(),
            content: 0,
            chat: 0,
            immediate: 0,
            own: [0; OWN_WORDS as usize],
            added: [0; SHARED_WORDS as usize],
            silence: Silence {
                since: Instant::now(),
                still: Instant::now(),
                moved: 0,
                told: None,
            },
            done: 0,
            bytes: 0,
            gap: Duration::ZERO,
            still: Duration::ZERO,
            reconnects: 0,
        }
    }

    fn reconnect(&mut self, role: &Role) {
        let (connection, keys) = connect(role);
        let old = std::mem::replace(&mut self.connection, connection);
        old.close().expect("closed");
        self.keys = keys;
        self.talk = Talk::default();
        self.reconnects += 1;
    }

    /// Keeps many operations in flight until `end`.
    fn work(&mut self, end: Instant) {
        self.silence.since = Instant::now();
        self.silence.still = Instant::now();
        while Instant::now() < end {
            let in_flight = |it: &Self| it.asked.values().map(|it| it.bytes).sum::<u64>();
            while self.asked.len() < IN_FLIGHT
                && self.talk.awaited() < AWAITED
                && in_flight(self) < BYTES_IN_FLIGHT
            {
                self.ask();
            }
            self.cancel();
            self.turn();
        }
    }

    /// Waits until everything is done and answered, and has the target verify its memory.
    fn settle(&mut self) {
        let end = Instant::now() + LINGER;
        let all_done = |it: &Self| it.asked.is_empty() && it.talk.awaited() == 0;
        while !all_done(self) {
            assert!(Instant::now() < end, "not done: {}", self.outstanding());
            self.turn();
        }
        let parts = self.oracle.all();
        let words = parts.iter().flat_map(|&(from, to, seed)| [from, to, seed]);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let control = control(Kind::Check, 0, 0);
        self.talk.agreed = None;
        let payload = Memory::from(Region::from_vec(bytes));
        self.asked_for(What::Message, 0, |connection| {
            connection.post(Message::new(&control).payload(payload))
        });
        // A Transfer cancelled too late is sent back as well.
        while !all_done(self) || self.talk.agreed.is_none_or(|sent| self.talk.echoes < sent) {
            assert!(Instant::now() < end, "not done: {}", self.outstanding());
            self.turn();
        }
        assert!(
            self.talk.echoes <= self.talk.sent_or_cancelled,
            "more was sent back than sent"
        );
    }

    /// Takes completions; measures the time without any.
    fn turn(&mut self) {
        let wait = Duration::from_millis(50);
        let completion = self.connection.wait(Some(wait)).expect("connected").got();
        let now = Instant::now();
        let silent = now - self.silence.since;
        let outstanding = !self.asked.is_empty() || self.talk.awaited() > 0;
        let account = self.connection.account();
        let counters = &account.protocol;
        let moved = counters.bytes_received + counters.bytes_sent - counters.bytes_resent;
        if completion.is_some() || !outstanding || moved != self.silence.moved {
            (self.silence.still, self.silence.moved) = (now, moved);
        }
        self.still = self.still.max(now - self.silence.still);
        if completion.is_some() || !outstanding {
            if completion.is_some() {
                self.gap = self.gap.max(silent);
            }
            self.silence.since = now;
            if let Some((_, then)) = self.silence.told.take() {
                let counted = since(&then, &account);
                say(&format!(
                    "stall {} ends after {silent:.1?}: {counted}",
                    self.index
                ));
            }
        } else if silent >= STALL {
            self.tell_of_silence(now, account);
        }
        if let Some(completion) = completion {
            self.take(completion);
        }
    }

    fn tell_of_silence(&mut self, now: Instant, account: Account) {
        let (silent, still) = (now - self.silence.since, now - self.silence.still);
        let due = |told: &(Instant, Account)| now - told.0 >= STALL;
        if self.silence.told.as_ref().is_none_or(due) {
            let then = self.silence.told.take();
            let counted = then.map(|(_, then)| since(&then, &account));
            say(&format!(
                "stall {} for {silent:.1?}, no payload for {still:.1?}: outstanding {} | {}",
                self.index,
                self.outstanding(),
                counted.unwrap_or_default()
            ));
            self.silence.told = Some((now, account));
        }
        let bytes: u64 = self.asked.values().map(|it| it.bytes).sum();
        let explained = self
            .path
            .explains(bytes + self.talk.awaited() * MAX_LEN / 8);
        assert!(
            still < STILL_LIMIT + self.path.explains(0) && silent < STALL_LIMIT + explained,
            "initiator {}: nothing completed for {silent:.1?}, no payload moved for {still:.1?}: {}",
            self.index,
            self.outstanding()
        );
    }

    fn outstanding(&self) -> String {
        let mut lines: Vec<_> = self.asked.iter().collect();
        lines.sort_by_key(|it| it.1.at);
        let line = |(id, it): &(&RequestId, &Asked)| {
            let what = match &it.what {
                What::Put { parts, .. } => format!("put of {} parts", parts.len()),
                What::Get { parts, .. } => format!("get of {} parts", parts.len()),
                other => format!("{other:?}"),
            };
            let age = it.at.elapsed();
            let cancelled = if it.cancelled { ", cancelled" } else { "" };
            format!("{id:?} {what} {} bytes {age:.1?}{cancelled}", it.bytes)
        };
        let lines: Vec<_> = lines.iter().map(line).collect();
        format!(
            "[{}] chats {} immediates {} echoes {}",
            lines.join("; "),
            self.talk.chats.len(),
            self.talk.pinned.len(),
            self.talk.sent.saturating_sub(self.talk.echoes)
        )
    }

    fn cancel(&mut self) {
        let now = Instant::now();
        for (&id, asked) in &mut self.asked {
            if asked.cancel.is_some_and(|at| at <= now) {
                asked.cancel = None;
                asked.cancelled = true;
                self.connection.cancel(id);
            }
        }
    }

    /// Posts a random operation.
    fn ask(&mut self) {
        match self.dice.below(100) {
            0..35 => self.put(),
            35..58 => self.get(),
            58..70 => self.atomic(),
            70..78 => self.pin(),
            78..90 => self.message(),
            _ => self.transfer(),
        }
    }

    fn asked_for<E: std::fmt::Debug>(
        &mut self,
        what: What,
        bytes: u64,
        post: impl FnOnce(&mut Connection) -> Result<RequestId, E>,
    ) {
        let id = post(&mut self.connection).expect("posted");
        let cancel = None;
        let at = Instant::now();
        let asked = Asked {
            what,
            bytes,
            at,
            cancel,
            cancelled: false,
        };
        assert!(self.asked.insert(id, asked).is_none(), "{id:?} twice");
    }

    /// Cancels the newest request soon.
    fn doom(&mut self) {
        let newest = self.asked.values_mut().max_by_key(|it| it.at);
        let wait = Duration::from_micros(self.dice.below(100_000));
        if let Some(newest) = newest {
            newest.cancel = Some(Instant::now() + wait);
        }
    }

    /// Disjoint parts of the area, and whether they need a fence.
    fn parts(&mut self, of: impl Fn(&What) -> Option<&Vec<(u64, u64)>>) -> (Vec<(u64, u64)>, bool) {
        let count = match self.dice.chance(20) {
            true => 2 + self.dice.below(4),
            false => 1,
        };
        let mut parts: Vec<(u64, u64)> = vec![];
        let mut fence = self.dice.chance(2);
        for _ in 0..count {
            let len = self.dice.len(MAX_LEN / count);
            for attempt in 0.. {
                let from = self.dice.below(KNOWN - len);
                let to = from + len;
                let overlaps = |it: &(u64, u64)| it.0 < to && from < it.1;
                if parts.iter().any(overlaps) {
                    continue;
                }
                let mut taken = self.asked.values().filter_map(|it| of(&it.what)).flatten();
                let conflict = taken.any(overlaps);
                if conflict && attempt < 8 {
                    continue;
                }
                fence |= conflict;
                parts.push((from, to));
                break;
            }
        }
        (parts, fence)
    }

    fn put(&mut self) {
        if self.dice.chance(8) {
            return self.doomed_put();
        }
        // A get may see a later put, and long puts are not ordered with other puts.
        let (parts, fence) = self.parts(|what| match what {
            What::Get { parts, .. } | What::Put { parts, long: true } => Some(parts),
            _ => None,
        });
        self.content += 1;
        let seed = self.content;
        let long = parts.len() > 1 || surely_small(parts[0]).is_none();
        let fence = fence || long && self.puts_to(&parts);
        let bytes = parts.iter().map(|it| it.1 - it.0).sum();
        for &(from, to) in &parts {
            self.oracle.put(from, to, seed);
        }
        let key = self.keys.area;
        let filled = |&(from, to): &(u64, u64)| (from, region(seed, from, to - from));
        let mut memory: Vec<_> = parts.iter().map(filled).collect();
        let what = What::Put { parts, long };
        self.asked_for(what, bytes, |connection| -> zerolane::Result<RequestId> {
            let id = match &mut memory[..] {
                [(from, region)] if region.len() <= MAX_INLINE => {
                    connection.post(PutInline::new(&key, *from, &region[..]).fence(fence))?
                }
                [_] => {
                    let (from, region) = memory.remove(0);
                    connection.post(Put::new(&key, from, region).fence(fence))?
                }
                _ => {
                    let pieces = memory.into_iter().map(|(from, it)| (from, it.into()));
                    connection.post(PutPieces::new(&key, pieces.collect()).fence(fence))?
                }
            };
            Ok(id)
        });
    }

    /// Whether a put to any of the `parts` is in flight.
    fn puts_to(&self, parts: &[(u64, u64)]) -> bool {
        let overlaps = |it: &(u64, u64)| parts.iter().any(|part| it.0 < part.1 && part.0 < it.1);
        self.asked.values().any(|it| match &it.what {
            What::Put { parts, .. } => parts.iter().any(overlaps),
            _ => false,
        })
    }

    /// A put that will be cancelled, to the scratch part.
    fn doomed_put(&mut self) {
        let len = self.dice.len(MAX_LEN);
        let offset = KNOWN + self.dice.below(SCRATCH - len);
        let key = self.keys.area;
        let what = What::Put {
            parts: vec![],
            long: true,
        };
        self.asked_for(what, len, |connection| {
            connection.post(Put::new(&key, offset, region(1, offset, len)))
        });
        self.doom();
    }

    fn get(&mut self) {
        // A get sees the puts before it.
        let (parts, fence) = self.parts(|_| None);
        let expected = parts.iter().map(|it| self.oracle.get(it.0, it.1)).collect();
        let bytes = parts.iter().map(|it| it.1 - it.0).sum();
        let empty = |&(from, to): &(u64, u64)| {
            let region = Region::anonymous((to - from) as usize);
            (from, region.expect("memory"))
        };
        let mut pieces: Vec<_> = parts.iter().map(empty).collect();
        let key = self.keys.area;
        let single = pieces.len() == 1;
        let what = What::Get { parts, expected };
        self.asked_for(what, bytes, |connection| -> zerolane::Result<RequestId> {
            if single {
                let (from, region) = pieces.remove(0);
                return Ok(connection.post(Get::new(&key, from, region).fence(fence))?);
            }
            Ok(connection.post(GetPieces::new(&key, pieces).fence(fence))?)
        });
        if single && self.dice.chance(8) {
            self.doom();
        }
    }

    fn atomic(&mut self) {
        let key = self.keys.words;
        let (word, op, before) = match self.dice.chance(50) {
            true => {
                let index = self.dice.below(SHARED_WORDS) as usize;
                let n = self.dice.next() >> self.dice.below(64);
                let (op, n) = match self.dice.below(4) {
                    0 => (FetchOp::Increment, 1),
                    1 => (FetchOp::Decrement, u64::MAX),
                    _ => (FetchOp::Add(n), n),
                };
                self.added[index] = self.added[index].wrapping_add(n);
                (index as u64, op, None)
            }
            false => {
                let index = self.dice.below(OWN_WORDS);
                let held = &mut self.own[index as usize];
                let before = *held;
                let new = self.dice.next();
                let op = match self.dice.below(6) {
                    0 => FetchOp::Add(new),
                    1 => FetchOp::Clear,
                    2 => FetchOp::Swap(new),
                    3 => FetchOp::CompareAndSwap {
                        expected: new,
                        new: 1,
                    },
                    4 => FetchOp::CompareAndSwap {
                        expected: before,
                        new,
                    },
                    _ => FetchOp::Increment,
                };
                *held = match op {
                    FetchOp::Add(n) => before.wrapping_add(n),
                    FetchOp::Clear => 0,
                    FetchOp::Swap(new) => new,
                    FetchOp::CompareAndSwap { expected, new } if expected == before => new,
                    FetchOp::Increment => before.wrapping_add(1),
                    _ => before,
                };
                let word = SHARED_WORDS + self.index as u64 * OWN_WORDS + index;
                (word, op, Some(before))
            }
        };
        self.asked_for(What::Atomic(before), 8, |connection| {
            connection.post(Fetch::new(&key, 8 * word, op))
        });
    }

    /// A put with an immediate, at that immediate's place.
    fn pin(&mut self) {
        let number = self.immediate;
        let slot = |it: &u32| u64::from(*it) % SLOTS == u64::from(number) % SLOTS;
        if self.talk.pinned.iter().any(slot) {
            return self.get();
        }
        self.immediate += 1;
        let (offset, len, seed) = pinned(number);
        let key = self.keys.board;
        self.talk.pinned.insert(number);
        self.asked_for(What::Immediate, len, |connection| {
            connection.post(Put::new(&key, offset, region(seed, offset, len)).immediate(number))
        });
    }

    fn message(&mut self) {
        let number = self.chat;
        self.chat += 1;
        let len = self.dice.len(MESSAGE_LEN);
        let payload = self.dice.chance(60).then(|| named(number, len));
        let bytes = payload.as_ref().map_or(0, |_| len);
        let control = control(Kind::Chat, number, self.dice.below(100));
        self.talk.chats.insert(number);
        self.asked_for(What::Message, bytes, |connection| {
            let message = Message::new(&control);
            connection.post(match payload {
                Some(payload) => message.payload(payload),
                None => message,
            })
        });
    }

    fn transfer(&mut self) {
        let len = self.dice.len(MAX_LEN);
        let number = self.dice.next();
        self.talk.sent += 1;
        self.talk.sent_or_cancelled += 1;
        self.asked_for(What::Transfer, len, |connection| {
            connection.post_send(named(number >> 1, len))
        });
        if self.dice.chance(15) {
            self.doom();
        }
    }

    fn take(&mut self, completion: Completion) {
        match completion.kind() {
            WorkKind::Receive => self.take_echo(completion),
            WorkKind::MessageReceived => self.take_answer(completion),
            _ => self.take_result(completion),
        }
    }

    fn take_echo(&mut self, completion: Completion) {
        let len = *completion.result.as_ref().expect("a Transfer");
        let region = completion.into_region().expect("a region");
        self.talk.echoes += 1;
        self.done += 1;
        self.bytes += len as u64;
        if let Some(name) = name_of(&region[..len]) {
            assert!(self.talk.names.insert(name), "Transfer {name} came twice");
        }
        self.connection.post_recv(region).expect("posted");
    }

    fn take_answer(&mut self, completion: Completion) {
        let len = *completion.result.as_ref().expect("a message");
        let (kind, number) = read_control(completion.control().expect("a message"));
        let region = completion.into_region().expect("a region");
        self.done += 1;
        self.bytes += len as u64;
        match kind {
            Kind::Chat => {
                assert!(
                    self.talk.chats.remove(&number),
                    "answer {number} to nothing"
                );
                if let Some(name) = name_of(&region[..len]) {
                    assert_eq!(name, number, "an answer's payload is another's");
                }
            }
            Kind::Seen => {
                let number = number as u32;
                assert!(self.talk.pinned.remove(&number), "{number} seen twice");
            }
            Kind::Agreed => self.talk.agreed = Some(number),
            Kind::Hello | Kind::Check => panic!("{kind:?}"),
        }
        let posted = self.connection.post(ReceiveMessage::new().payload(region));
        posted.expect("posted");
    }

    fn take_result(&mut self, completion: Completion) {
        let asked = self.asked.remove(&completion.id);
        let asked = asked.unwrap_or_else(|| panic!("of nothing: {completion:?}"));
        match &completion.result {
            Ok(_) => {}
            Err(TransferError::Cancelled | TransferError::Refused(Reason::Cancelled))
                if asked.cancelled =>
            {
                if let What::Transfer = asked.what {
                    self.talk.sent -= 1;
                }
                return;
            }
            Err(error) => panic!("{asked:?}: {error}"),
        }
        self.done += 1;
        self.bytes += asked.bytes;
        match asked.what {
            What::Get { parts, expected } => {
                let pieces = completion.into_pieces();
                assert_eq!(pieces.len(), parts.len(), "pieces of a get");
                for ((piece, (from, to)), expected) in pieces.iter().zip(parts).zip(expected) {
                    assert_eq!(piece.len() as u64, to - from, "bytes of a get");
                    for (start, end, seed) in expected {
                        let piece = piece.as_slice().expect("a region");
                        let part = &piece[(start - from) as usize..(end - from) as usize];
                        let wrong = first_wrong(seed, start, part);
                        assert_eq!(
                            wrong, None,
                            "initiator {}: a get of {from}..{to}, content {seed} of {start}..{end}",
                            self.index
                        );
                    }
                }
            }
            What::Atomic(before @ Some(_)) => {
                assert_eq!(completion.before(), before, "the word before");
            }
            _ => {}
        }
    }
}

/// A length that fits one datagram whatever the peer's buffers are.
fn surely_small((from, to): (u64, u64)) -> Option<u64> {
    const BUFFER: u64 = 1 << 12;
    let len = to - from;
    let in_one = from / BUFFER == (to - 1) / BUFFER;
    (len <= 1168 && in_one).then_some(len)
}
