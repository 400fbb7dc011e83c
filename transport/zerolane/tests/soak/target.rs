//! Serves all initiators: owns the memory, sends back their Transfers, and verifies its content.

use crate::content::{first_wrong, name_of, named};
use crate::dice::{Dice, MAX_LEN};
use crate::initiator::AREA;
use crate::process::{Role, hear, peak, say, since};
use crate::protocol::{BOARD, Kind, OWN_WORDS, SHARED_WORDS, control, pinned, read_control};
use crate::{INITIATORS, MESSAGE_LEN};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use zerolane::counters::Account;
use zerolane::failure::{CloseReason, PostError, Reason, TransferError};
use zerolane::request::{Message, Output, ReceiveMessage};
use zerolane::{
    Completion, Connection, Endpoint, Error, ExportedRegion, Region, Rights, SharedRegion,
};

/// Posted receives, of Transfers and of messages.
pub const RECEIVES: usize = 3;

/// The exported regions.
struct Exports {
    areas: Vec<ExportedRegion>,
    boards: Vec<ExportedRegion>,
    words: ExportedRegion,
    /// How often each initiator's connection must report its counters.
    asked: Vec<AtomicU64>,
    connections: AtomicUsize,
}

impl Exports {
    fn new() -> Exports {
        let exported = |len: u64| {
            let region = Region::anonymous(len as usize).expect("memory");
            ExportedRegion::new(region).expect("aligned")
        };
        Exports {
            areas: (0..INITIATORS).map(|_| exported(AREA)).collect(),
            boards: (0..INITIATORS).map(|_| exported(BOARD)).collect(),
            words: exported(8 * (SHARED_WORDS + INITIATORS as u64 * OWN_WORDS)),
            asked: (0..INITIATORS).map(|_| AtomicU64::new(0)).collect(),
            connections: AtomicUsize::new(0),
        }
    }
}

pub fn run(role: &Role) {
    let exports = Arc::new(Exports::new());
    let over = Arc::new(AtomicBool::new(false));
    let address: SocketAddr = role.get("address");
    let mut endpoint = Endpoint::bind(address, role.options()).expect("a port");
    say(&format!("port {}", endpoint.local_addr().port()));
    let (asked, ended) = (Arc::clone(&exports), Arc::clone(&over));
    std::thread::spawn(move || {
        let heard = hear(move |line| {
            let index: usize = line.parse().expect("an initiator");
            asked.asked[index].fetch_add(1, Ordering::Relaxed);
        });
        heard.join().expect("no panic");
        ended.store(true, Ordering::Relaxed);
    });
    while !over.load(Ordering::Relaxed) || exports.connections.load(Ordering::Relaxed) > 0 {
        let accepted = endpoint.accept(Some(Duration::from_millis(100)));
        let Some(connection) = accepted.expect("the socket works") else {
            continue;
        };
        exports.connections.fetch_add(1, Ordering::Relaxed);
        let (exports, seed) = (Arc::clone(&exports), role.seed());
        std::thread::spawn(move || {
            Service::new(connection, &exports, seed).serve();
            exports.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }
    let sums = (0..SHARED_WORDS).map(|index| {
        exports
            .words
            .word(8 * index as usize)
            .load(Ordering::Acquire)
            .to_string()
    });
    say(&format!("sums {}", sums.collect::<Vec<_>>().join(" ")));
    say(&format!("done {}", peak()));
}

/// One connection.
struct Service<'a> {
    connection: Connection,
    exports: &'a Exports,
    dice: Dice,
    initiator: Option<usize>,
    /// Messages that wait for room: control and payload.
    owed: VecDeque<(Vec<u8>, Option<SharedRegion>)>,
    /// Transfers sent back so far.
    echoes: u64,
    account: Account,
    asked: u64,
}

impl<'a> Service<'a> {
    fn new(mut connection: Connection, exports: &'a Exports, seed: u64) -> Service<'a> {
        for index in 0..INITIATORS {
            let mut export = |name: &str, region, rights| {
                let key = connection.export_named(&format!("{name}{index}"), region, rights);
                key.expect("exported")
            };
            export("area", &exports.areas[index], Rights::ALL);
            export("board", &exports.boards[index], Rights::WRITE);
        }
        let words = connection.export_named("words", &exports.words, Rights::ATOMIC);
        words.expect("exported");
        for _ in 0..RECEIVES {
            let region = |len: u64| Region::anonymous(len as usize).expect("memory");
            connection.post_recv(region(MAX_LEN)).expect("posted");
            let message = connection.post(ReceiveMessage::new().payload(region(MESSAGE_LEN)));
            message.expect("posted");
        }
        Service {
            account: connection.account(),
            connection,
            exports,
            dice: Dice::new(seed),
            initiator: None,
            owed: VecDeque::new(),
            echoes: 0,
            asked: 0,
        }
    }

    fn serve(mut self) {
        loop {
            match self
                .connection
                .wait(Some(Duration::from_millis(100)))
                .map(zerolane::Waited::got)
            {
                Ok(Some(completion)) => self.take(completion),
                Ok(None) => {}
                Err(Error::Closed(CloseReason::Peer(Reason::Normal))) => return,
                Err(error) => panic!("initiator {:?}: {error}", self.initiator),
            }
            self.pay();
            self.tell();
        }
    }

    /// Reports the counters since the last request.
    fn tell(&mut self) {
        let Some(index) = self.initiator else { return };
        let asked = self.exports.asked[index].load(Ordering::Relaxed);
        if asked != self.asked {
            let account = self.connection.account();
            let counted = since(&self.account, &account);
            say(&format!("note target for {index}: {counted}"));
            (self.asked, self.account) = (asked, account);
        }
    }

    fn take(&mut self, completion: Completion) {
        match (&completion.output, completion.result) {
            (_, Err(TransferError::Closed(_))) => {}
            (Output::Receive { .. }, Ok(len)) => {
                let region = completion.into_region().expect("a region");
                name_of(&region[..len]);
                self.connection.post_recv(region).expect("posted");
                let len = self.dice.len(MAX_LEN);
                let back = named(self.echoes, len);
                self.connection.post_send(back).expect("posted");
                self.echoes += 1;
            }
            (Output::Receive { .. }, Err(TransferError::Refused(Reason::Cancelled))) => {
                let region = completion.into_region().expect("a region");
                self.connection.post_recv(region).expect("posted");
            }
            (Output::MessageReceived { .. }, Ok(len)) => self.take_message(completion, len),
            (Output::Immediate(it), Ok(_)) => {
                let (offset, len, seed) = pinned(it.number);
                assert_eq!(it.length as u64, len, "{it:?}");
                let index = self.initiator.expect("it says hello first");
                self.check(&self.exports.boards[index], offset, len, seed);
                self.owe(Kind::Seen, u64::from(it.number), None);
            }
            (Output::Send { .. } | Output::Message { .. }, Ok(_)) => {}
            _ => panic!("initiator {:?}: {completion:?}", self.initiator),
        }
    }

    fn take_message(&mut self, completion: Completion, len: usize) {
        let (kind, number) = read_control(completion.control().expect("a message"));
        let region = completion.into_region().expect("a region");
        let payload = &region[..len];
        match kind {
            Kind::Hello => self.initiator = Some(number as usize),
            Kind::Chat => {
                if let Some(name) = name_of(payload) {
                    assert_eq!(name, number, "a message's payload is another's");
                }
                let len = self.dice.len(MESSAGE_LEN);
                let answer = self.dice.chance(70).then(|| named(number, len));
                self.owe(Kind::Chat, number, answer);
            }
            Kind::Check => {
                let index = self.initiator.expect("it says hello first");
                for part in payload.chunks_exact(24) {
                    let mut words = part
                        .chunks_exact(8)
                        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
                    let mut next = || words.next().expect("three words");
                    let (from, to, seed) = (next(), next(), next());
                    self.check(&self.exports.areas[index], from, to - from, seed);
                }
                self.owe(Kind::Agreed, self.echoes, None);
            }
            Kind::Agreed | Kind::Seen => panic!("{kind:?}"),
        }
        let posted = self.connection.post(ReceiveMessage::new().payload(region));
        posted.expect("posted");
    }

    fn check(&self, memory: &ExportedRegion, offset: u64, len: u64, seed: u64) {
        let mut bytes = vec![0; len as usize];
        memory.read(offset as usize, &mut bytes);
        let wrong = first_wrong(seed, offset, &bytes);
        assert_eq!(
            wrong, None,
            "memory of initiator {:?} at {offset}, {len} bytes, content {seed}",
            self.initiator
        );
    }

    fn owe(&mut self, kind: Kind, number: u64, payload: Option<Region>) {
        let padding = self.dice.below(100);
        let control = control(kind, number, padding);
        self.owed.push_back((control, payload.map(Region::share)));
    }

    /// Sends messages while there is room.
    fn pay(&mut self) {
        while let Some((control, payload)) = self.owed.front() {
            let message = Message::new(control);
            let posted = self.connection.post(match payload.clone() {
                Some(payload) => message.payload(payload),
                None => message,
            });
            match posted {
                Ok(_) => self.owed.pop_front(),
                Err(refused) if matches!(refused.error, Error::Post(PostError::Full)) => return,
                Err(error) => panic!("initiator {:?}: {error}", self.initiator),
            };
        }
    }
}
