//! Simulates two connections over an emulated link, in virtual time.
//!
//! Memory is written as by a speculating lane: payload lands by forecast, headers are checked afterwards, and misplaced
//! payload is moved.

use super::sim_trains::Trains;
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use netsim::pair::Duplex;
use std::collections::HashMap;
use std::time::Duration;
use zerolane_wire::{
    Flags, Frames, HEADER_LEN, Header, Op, Operation, Packet, PrivateData, Reason, Word,
};

/// How long a host leaves datagrams in its socket before it receives them all at once.
const NAP: Duration = Duration::from_micros(40);

/// When a host receives a datagram that arrives at `now`.
pub(super) fn wake_time(now: Duration) -> Duration {
    now + NAP
}

/// Datagrams received at once.
pub(super) const BATCH: usize = 32;

/// Content of unwritten memory.
const UNTOUCHED: u8 = 0xee;

/// Bytes around every target.
const GUARD: u64 = 40;

/// The byte at `offset` of content number `seed`: depends on both, so that misplacement shows.
pub(super) fn content(seed: u64, offset: u64) -> u8 {
    word(seed, offset / 8)[(offset % 8) as usize]
}

/// Bytes `8 * index` to `8 * index + 7` of content numbered `seed`.
fn word(seed: u64, index: u64) -> [u8; 8] {
    let mut x = seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 32;
    x.to_le_bytes()
}

/// The first `len` bytes of content number `seed`.
pub(super) fn bytes_of(seed: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len.next_multiple_of(8) as usize];
    let (words, _) = bytes.as_chunks_mut();
    (0..)
        .zip(words)
        .for_each(|(index, it)| *it = word(seed, index));
    bytes.truncate(len as usize);
    bytes
}

/// One host: a connection, its memory, and its events.
pub(super) struct Host {
    pub(super) connection: Option<Connection>,
    memory: Vec<Vec<u8>>,
    pub(super) events: Vec<Event>,
    pub(super) placed: u64,
    pub(super) moved: u64,
    /// Bytes that came with their announcement.
    pub(super) eager: u64,
    /// Regions that must not be written any more, with their content.
    frozen: HashMap<u32, Vec<u8>>,
    /// Payload without a posted receive.
    pub(super) holds: HashMap<u32, Vec<u8>>,
    /// Targets: the only parts of their regions that may be written.
    targets: Vec<Span>,
    /// Datagrams in the socket.
    pub(super) arrived: Vec<Vec<u8>>,
    /// Their arrival times, if its lane reports them.
    arrival_times: Option<Vec<Duration>>,
    /// How many of them are ECN-capable, and how many of those are marked.
    marks: (u32, u32),
    /// When it receives them.
    pub(super) wake_at: Option<Duration>,
    /// Until then it is descheduled: nothing is sent, received or timed.
    pub(super) stalled_until: Duration,
    /// How far this host's clock is ahead.
    pub(super) skew: Duration,
    /// Lengths of the payload of receives that are posted when a message arrives that lacks one.
    pub(super) pool: Vec<u64>,
    /// Those that were posted.
    pub(super) pooled: Vec<(TransferId, Span)>,
    /// Set where trains are sent and accepted.
    pub(super) trains: Option<Trains>,
    /// Datagrams being assembled, and those that are whole.
    slots: [Vec<u8>; limits::MAX_DATAGRAMS_ASSEMBLED],
    pub(super) datagrams: Vec<Vec<u8>>,
}

impl Host {
    pub(super) fn new(connection: Option<Connection>) -> Host {
        Host {
            connection,
            memory: vec![],
            events: vec![],
            placed: 0,
            moved: 0,
            eager: 0,
            frozen: HashMap::new(),
            holds: HashMap::new(),
            targets: vec![],
            arrived: vec![],
            arrival_times: None,
            marks: (0, 0),
            wake_at: None,
            stalled_until: Duration::ZERO,
            skew: Duration::ZERO,
            pool: vec![],
            pooled: vec![],
            trains: None,
            slots: Default::default(),
            datagrams: vec![],
        }
    }

    /// A region whose bytes are `content(seed, offset)`.
    pub(super) fn filled(&mut self, seed: u64, len: u64) -> Span {
        self.region(bytes_of(seed, len))
    }

    /// An unwritten target of `len` bytes, guarded on both sides.
    pub(super) fn empty(&mut self, len: u64) -> Span {
        self.empty_at(GUARD, len)
    }

    /// The same, `offset` bytes into its region.
    pub(super) fn empty_at(&mut self, offset: u64, len: u64) -> Span {
        let whole = self.region(vec![UNTOUCHED; (offset + len + GUARD) as usize]);
        let target = whole.part(offset, len);
        self.targets.push(target);
        target
    }

    /// Checks that nothing outside the targets was written.
    pub(super) fn assert_guards(&self) {
        for target in &self.targets {
            let region = &self.memory[target.region.index as usize];
            let (start, end) = (target.offset as usize, target.end() as usize);
            let untouched = |bytes: &[u8]| bytes.iter().all(|&byte| byte == UNTOUCHED);
            assert!(untouched(&region[..start]), "written before {target:?}");
            assert!(untouched(&region[end..]), "written behind {target:?}");
        }
    }

    pub(super) fn region(&mut self, bytes: Vec<u8>) -> Span {
        let len = bytes.len() as u64;
        self.memory.push(bytes);
        let index = self.memory.len() as u32 - 1;
        Span {
            region: RegionId {
                index,
                generation: 1,
            },
            offset: 0,
            len,
        }
    }

    pub(super) fn bytes(&self, span: Span) -> &[u8] {
        &self.memory[span.region.index as usize][span.offset as usize..span.end() as usize]
    }

    pub(super) fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        &mut self.memory[span.region.index as usize][span.offset as usize..span.end() as usize]
    }

    /// Requires that the region stays unchanged from now on.
    pub(super) fn freeze(&mut self, span: Span) {
        let whole = self.memory[span.region.index as usize].clone();
        self.frozen.insert(span.region.index, whole);
    }

    pub(super) fn assert_frozen(&self) {
        for (&index, bytes) in &self.frozen {
            assert!(
                self.memory[index as usize] == *bytes,
                "region {index} written after its end"
            );
        }
    }

    pub(super) fn holds(&self, span: Span, seed: u64, len: u64) -> bool {
        let (words, rest) = self.bytes(span)[..len as usize].as_chunks();
        // A loop: little optimised, as here, `all` takes several times as long.
        for (index, it) in (0..).zip(words) {
            if *it != word(seed, index) {
                return false;
            }
        }
        *rest == word(seed, len / 8)[..rest.len()]
    }

    pub(super) fn c(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("connection")
    }

    /// Makes its lane report arrival times.
    pub(super) fn tell_arrival_times(&mut self) {
        self.arrival_times = Some(vec![]);
    }

    /// Receives arrived datagrams as the UDP lane does: one forecast, all payload lands, then headers are checked, and
    /// misplaced payload is moved.
    pub(super) fn receive(&mut self, now: Instant) {
        let datagrams = std::mem::take(&mut self.arrived);
        let (capable, marked) = std::mem::take(&mut self.marks);
        self.c().on_marks(capable, marked);
        if self.trains.is_some() {
            return self.receive_sealed(now, datagrams);
        }
        let places = self.land(&datagrams);
        self.take_operations(now, &datagrams, &places);
    }

    /// Passes in operations whose bytes behind the header are at `places`.
    pub(super) fn take_operations(
        &mut self,
        now: Instant,
        datagrams: &[Vec<u8>],
        places: &[Option<Span>],
    ) {
        let times = self.arrival_times.as_mut().map(std::mem::take);
        let (mut moves, mut eager) = (vec![], vec![]);
        let mut next = 0;
        while next < datagrams.len() {
            let datagram = &datagrams[next];
            if let Some(times) = &times {
                let waited = now - (Instant::ZERO + times[next]);
                self.c().on_waited(waited);
            }
            let Some(header) = data_header(datagram) else {
                let len = datagram.len() + self.seal();
                self.c().on_control(now, datagram, len);
                self.obey(now);
                next += 1;
                continue;
            };
            let count = run_length(&datagrams[next..], &places[next..]);
            let run = datagrams[next..next + count].iter();
            let payload = run.map(|it| &it[HEADER_LEN..]).collect::<Vec<_>>().concat();
            next += count;
            if header.flags.contains(Flags::FRAMES) && self.c().takes_frames() {
                self.receive_frames(now, &header, &payload, &mut moves);
                continue;
            }
            let stu = (datagram.len() - HEADER_LEN) as u32;
            let landed = places[next - count].map(|place| Span {
                len: payload.len() as u64,
                ..place
            });
            self.supply(now, &header, payload.len() as u32);
            match self
                .c()
                .on_data(now, &header, payload.len() as u32, stu, landed)
            {
                Placement::InPlace => self.placed += payload.len() as u64,
                Placement::Eager(span) => {
                    assert_eq!(span.len, payload.len() as u64);
                    self.eager += span.len;
                    eager.push((span, payload));
                }
                placement => self.place(now, placement, payload, &mut moves),
            }
        }
        self.moved += moves.iter().map(|(span, _)| span.len).sum::<u64>();
        for (span, payload) in moves.into_iter().chain(eager) {
            self.bytes_mut(span).copy_from_slice(&payload);
        }
    }

    pub(super) fn receive_frames(
        &mut self,
        now: Instant,
        header: &Header,
        content: &[u8],
        moves: &mut Vec<(Span, Vec<u8>)>,
    ) {
        let Ok(frames) = Frames::parse(header, content) else {
            return self.c().on_dropped(DropReason::Malformed);
        };
        for (header, payload) in frames {
            let len = payload.len() as u32;
            self.supply(now, &header, len);
            let placement = self.c().on_data(now, &header, len, len, None);
            self.place(now, placement, payload.to_vec(), moves);
        }
    }

    /// Posts a receive for a message that lacks one, as a lane does whose connection shares a pool.
    fn supply(&mut self, now: Instant, header: &Header, len: u32) {
        if !self.pool.is_empty() && self.c().lacks_receive(header, len) {
            self.post_pooled(now);
        }
    }

    pub(super) fn post_pooled(&mut self, now: Instant) {
        let length = self.pool.remove(0);
        let (control, target) = (self.empty(128), self.empty(length));
        let request = WorkRequest::ReceiveMessage { control };
        let id = self.c().post(now, request, target).expect("posted");
        self.pooled.push((id, target));
    }

    fn place(
        &mut self,
        now: Instant,
        placement: Placement,
        payload: Vec<u8>,
        moves: &mut Vec<(Span, Vec<u8>)>,
    ) {
        match placement {
            Placement::InPlace | Placement::Eager(_) => panic!("{placement:?}"),
            Placement::Hold(hold) => {
                let held = self.holds.entry(hold.number);
                let held = held.or_insert_with(|| vec![UNTOUCHED; hold.length as usize]);
                let start = hold.start as usize;
                held[start..start + payload.len()].copy_from_slice(&payload);
            }
            Placement::Move(span) | Placement::Unannounced(span) => {
                assert_eq!(span.len, payload.len() as u64);
                moves.push((span, payload));
            }
            Placement::Store(span) => {
                assert_eq!(span.len, payload.len() as u64);
                if span.len > 0 {
                    self.bytes_mut(span).copy_from_slice(&payload);
                }
            }
            Placement::Value { number, id } => {
                let value = u64::from_be_bytes(payload.try_into().expect("8 bytes"));
                self.c().on_value(now, number, id, value);
            }
            Placement::Datagram(slot) => self.keep(slot, &payload),
            Placement::Drop(_) => {}
        }
    }

    /// Stores a part of a datagram, as a lane does.
    pub(super) fn keep(&mut self, to: DatagramSlot, payload: &[u8]) {
        if to.begins {
            self.slots[to.slot] = vec![UNTOUCHED; to.length as usize];
        }
        let start = to.start as usize;
        self.slots[to.slot][start..start + payload.len()].copy_from_slice(payload);
        if to.ends {
            self.datagrams
                .push(std::mem::take(&mut self.slots[to.slot]));
        }
    }

    /// Obeys the core's orders for held payload.
    pub(super) fn obey_holds(&mut self) {
        while let Some(order) = self.connection.as_mut().and_then(Connection::poll_hold) {
            match order {
                HoldOrder::Free(number) => {
                    assert!(self.holds.remove(&number).is_some(), "{number} freed twice");
                }
                HoldOrder::Move { number, start, to } => {
                    let from = &self.holds[&number][start as usize..][..to.len as usize];
                    let from = from.to_vec();
                    self.eager += to.len;
                    self.bytes_mut(to).copy_from_slice(&from);
                }
            }
        }
    }

    /// Executes the core's pending atomic operation.
    pub(super) fn obey(&mut self, now: Instant) {
        let Some(order) = self.c().pending_atomic() else {
            return;
        };
        let bytes = self.bytes_mut(order.word);
        let before = match order.atomic.word {
            Word::U64 => {
                let whole: &mut [u8; 8] = bytes.try_into().expect("8 bytes");
                let before = u64::from_ne_bytes(*whole);
                *whole = order.atomic.apply(before).to_ne_bytes();
                before
            }
            Word::U32 => {
                let half = &mut bytes[order.skip..order.skip + 4];
                let half: &mut [u8; 4] = half.try_into().expect("4 bytes");
                let before = u64::from(u32::from_ne_bytes(*half));
                let after = u32::try_from(order.atomic.apply(before)).expect("32 bits");
                *half = after.to_ne_bytes();
                before
            }
        };
        self.c().on_atomic_done(now, Some(before));
    }

    /// The next event, as a lane returns it: held payload has been moved by then.
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.obey_holds();
        self.connection.as_mut()?.poll_event()
    }

    /// The word at `span`.
    pub(super) fn word(&self, span: Span) -> u64 {
        u64::from_ne_bytes(self.bytes(span).try_into().expect("8 bytes"))
    }

    /// A region of `words`.
    pub(super) fn words(&mut self, words: &[u64]) -> Span {
        self.region(words.iter().flat_map(|word| word.to_ne_bytes()).collect())
    }

    /// Everything that it can send now, and whether each datagram is Data.
    pub(super) fn outgoing(&mut self, now: Instant) -> Vec<(Vec<u8>, bool)> {
        self.obey_holds();
        let mut datagrams = vec![];
        let limit = self.burst_limit();
        while let Some(connection) = self.connection.as_mut() {
            let due = connection.next_timeout().is_some_and(|at| at <= now);
            let quiet = connection.is_quiet() && !due;
            let next = connection.poll_transmit(now, limit);
            assert!(!quiet || next.is_none(), "quiet, and sends {next:?}");
            match next {
                None => break,
                Some(Transmit::Handshake) => panic!("plain"),
                Some(Transmit::Control(it)) => {
                    let mut bytes = it.bytes().to_vec();
                    bytes.resize(bytes.len().max(it.pad_to.saturating_sub(self.seal())), 0);
                    datagrams.push((self.sealed(bytes), false));
                }
                Some(Transmit::Data(burst)) if burst.train.is_some() => {
                    let train = self.train(&burst).into_iter();
                    datagrams.extend(train.map(|bytes| (bytes, true)));
                }
                Some(Transmit::Data(burst)) => {
                    let mut at = 0;
                    for index in 0..burst.segments {
                        let len = u64::from(burst.stu).min(burst.span.len - at);
                        let mut bytes = burst.header(index).emit().to_vec();
                        bytes.extend_from_slice(self.bytes(burst.span.part(at, len)));
                        at += len;
                        datagrams.push((self.sealed(bytes), true));
                    }
                }
                Some(Transmit::Operations(burst)) => self.operations(&burst, &mut datagrams),
            }
        }
        datagrams
    }

    fn operations(&mut self, burst: &OperationBurst, datagrams: &mut Vec<(Vec<u8>, bool)>) {
        if let Some((train, header)) = burst.as_train() {
            return self.frames_train(burst, train, header, datagrams);
        }
        let mut longest = burst.segment as usize;
        for (index, datagram) in (1..).zip(burst.datagrams()) {
            let mut bytes = vec![];
            for it in datagram.operations() {
                bytes.extend_from_slice(it.head);
                if let Some(payload) = it.payload {
                    bytes.extend_from_slice(self.bytes(payload));
                }
                bytes.resize(bytes.len() + it.padding as usize, 0);
            }
            let bytes = self.sealed(bytes);
            assert!(bytes.len() <= longest, "a burst GSO cannot cut");
            assert!(index == burst.segments || bytes.len() == longest);
            longest = bytes.len();
            datagrams.push((bytes, true));
        }
    }

    /// Places everything behind the first 40 bytes by the forecast. Returns the place of each, if it fitted there.
    pub(super) fn land(&mut self, datagrams: &[Vec<u8>]) -> Vec<Option<Span>> {
        let mut forecast = Forecast::default();
        self.c().forecast(datagrams.len() as u32, &mut forecast);
        let mut places = forecast.runs().flat_map(|run| {
            let stu = u64::from(run.stu);
            (0..run.span.len.div_ceil(stu))
                .map(move |n| run.span.part(n * stu, stu.min(run.span.len - n * stu)))
        });
        let mut landed = vec![];
        for datagram in datagrams {
            let rest = datagram.get(HEADER_LEN..).unwrap_or_default();
            let place = if rest.is_empty() { None } else { places.next() };
            let part = place.map(|place| place.part(0, place.len.min(rest.len() as u64)));
            if let Some(part) = part {
                self.bytes_mut(part)
                    .copy_from_slice(&rest[..part.len as usize]);
            }
            landed.push(part.filter(|part| part.len == rest.len() as u64));
        }
        landed
    }
}

fn data_header(datagram: &[u8]) -> Option<Header> {
    let header = Header::parse(datagram).ok()?;
    (header.op == Op::Data).then_some(header)
}

/// How many of the first datagrams continue each other, in the header and in memory.
fn run_length(datagrams: &[Vec<u8>], places: &[Option<Span>]) -> usize {
    let stu = datagrams[0].len();
    let mut count = 1;
    while count < datagrams.len() {
        let (last, next) = (&datagrams[count - 1], &datagrams[count]);
        let (Some(a), Some(b)) = (last.first_chunk(), next.first_chunk()) else {
            break;
        };
        let joined = match (places[count - 1], places[count]) {
            (Some(a), Some(b)) => a.region == b.region && a.end() == b.offset,
            (None, None) => true,
            _ => false,
        };
        let len = (last.len() - HEADER_LEN) as u32;
        if last.len() != stu || next.len() > stu || !joined || !Header::continues(a, len, b) {
            break;
        }
        count += 1;
    }
    count
}

/// Returns how many copies of a datagram reach the link: 0 loses it.
pub(super) type Copies = Box<dyn FnMut(Side, &[u8]) -> usize>;

/// Initiator A, Responder B.
pub(super) struct Sim {
    pub(super) a: Host,
    pub(super) b: Host,
    pub(super) net: Duplex<Vec<u8>>,
    b_config: Config,
    seed: u64,
    /// The Responder rejects connections.
    pub(super) busy: bool,
    /// The path clears the ECN field.
    pub(super) clears_marks: bool,
    /// Copies of each sent datagram that reach the link; one if not set.
    pub(super) copies: Option<Copies>,
    /// Every datagram sent, when recording.
    pub(super) trace: Option<Vec<(Side, Vec<u8>)>>,
}

impl Sim {
    pub(super) fn new(link: LinkConfig, seed: u64, a: Config, b: Config) -> Sim {
        let entropy = Entropy {
            key: 0xa11c_e000 | seed as u32 & 0xfff,
            port: 11,
            sync: 77,
        };
        let connection = Connection::connect(Instant::ZERO, a, entropy);
        Sim {
            a: Host::new(Some(connection)),
            b: Host::new(None),
            net: Duplex::symmetric(link, seed),
            b_config: b,
            seed,
            busy: false,
            clears_marks: false,
            copies: None,
            trace: None,
        }
    }

    pub(super) fn now(&self) -> Instant {
        Instant::ZERO + self.net.now()
    }

    pub(super) fn host(&mut self, side: Side) -> &mut Host {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }

    fn is_stalled(&mut self, side: Side) -> bool {
        self.net.now() < self.host(side).stalled_until
    }

    fn transmit(&mut self, side: Side) {
        if self.is_stalled(side) {
            return;
        }
        let now = self.now() + self.host(side).skew;
        for (bytes, _) in self.host(side).outgoing(now) {
            self.send(side, bytes);
        }
    }

    fn take_events(&mut self) {
        for side in Side::BOTH {
            let host = self.host(side);
            while let Some(event) = host.poll_event() {
                host.events.push(event);
            }
        }
    }

    pub(super) fn send(&mut self, side: Side, bytes: Vec<u8>) {
        if let Some(trace) = &mut self.trace {
            trace.push((side, bytes.clone()));
        }
        let copies = self
            .copies
            .as_mut()
            .map_or(1, |copies| copies(side, &bytes));
        for _ in 0..copies {
            // UDP and IP headers count on the wire. Datagrams beyond the path's size that cannot be cut any more are
            // fragmented.
            let apart = data_header(&bytes).is_some() && {
                let connection = self.host(side).connection.as_ref();
                connection.is_some_and(|it| bytes.len() > it.path_datagram())
            };
            let size = if apart { 576 } else { bytes.len() + 28 };
            self.net.send(side, size, bytes.clone());
        }
    }

    fn deliver(&mut self, to: Side, datagram: &[u8]) {
        let now = self.now();
        if to == Side::B && self.b.connection.is_none() {
            let content = &datagram[..datagram.len() - self.b.seal()];
            let Ok(packet) = Packet::parse(content) else {
                return;
            };
            let entropy = Entropy {
                key: 0xb0b0_0000 | self.seed as u32 & 0xfff,
                port: 22,
                sync: 5,
            };
            let outcome = if self.busy {
                Err(reject(&packet, Reason::Busy))
            } else {
                let made = listen(now, self.b_config.clone(), entropy, &packet);
                made.map(|it| it.with_peer_data(PrivateData::of(content)))
            };
            match outcome {
                Ok(connection) => self.b.connection = Some(connection),
                Err(Some(rejection)) => {
                    let (bytes, len) = rejection.emit();
                    self.send(Side::B, self.b.sealed(bytes[..len].to_vec()));
                }
                Err(None) => {}
            }
            return;
        }
        let wake_at = wake_time(self.net.now());
        let stalled = self.is_stalled(to);
        let host = self.host(to);
        host.wake_at.get_or_insert(wake_at.max(host.stalled_until));
        host.arrived.push(datagram.to_vec());
        if let Some(times) = &mut host.arrival_times {
            times.push(now - Instant::ZERO);
        }
        if host.arrived.len() >= host.batch() && !stalled {
            self.wake(to);
        }
    }

    /// Sends `operation` as `speaker` to the other end, bypassing the link; checks that its state stays bounded.
    pub(super) fn say(&mut self, now: Instant, speaker: Side, operation: Operation) {
        let route = self.host(speaker).c().cx.route;
        let (bytes, len) = Packet { route, operation }.emit();
        let listener = self.host(speaker.other()).c();
        listener.on_control(now, &bytes[..len], len);
        listener.assert_bounded();
    }

    /// Puts `datagram` into the socket of `to`, bypassing the link.
    pub(super) fn inject(&mut self, to: Side, datagram: &[u8]) {
        self.deliver(to, datagram);
    }

    fn wake(&mut self, side: Side) {
        let now = self.now() + self.host(side).skew;
        let host = self.host(side);
        host.wake_at = None;
        if !host.arrived.is_empty() {
            host.receive(now);
        }
    }

    fn wake_due(&mut self) {
        let now = self.net.now();
        for side in Side::BOTH {
            if self.host(side).wake_at.is_some_and(|at| at <= now) {
                self.wake(side);
            }
        }
    }

    /// One step: transmits everything due, then advances to the next delivery or timer. False if nothing happens before
    /// `deadline`.
    pub(super) fn step(&mut self, deadline: Duration) -> bool {
        self.transmit(Side::A);
        self.transmit(Side::B);
        self.take_events();
        let hosts = [&self.a, &self.b];
        let timers = hosts.into_iter().filter_map(|host| {
            let at = host.connection.as_ref()?.next_timeout()?;
            let at = (at - Instant::ZERO).saturating_sub(host.skew);
            Some(at.max(host.stalled_until))
        });
        let stalls = hosts.into_iter().map(|host| host.stalled_until);
        let stalls = stalls.filter(|&until| until > self.net.now());
        let wakes = hosts.into_iter().filter_map(|host| host.wake_at);
        let until = timers
            .chain(wakes)
            .chain(stalls)
            .min()
            .unwrap_or(Duration::MAX);
        let delivery = self.net.next_delivery().unwrap_or(Duration::MAX);
        if until.min(delivery) > deadline {
            self.net.advance(Some(deadline));
            return false;
        }
        match self.net.advance_to_arrival(Some(until)) {
            Some((side, arrival)) => {
                self.note_marks(side, arrival.marked);
                self.deliver(side, &arrival.packet);
            }
            None => {
                self.wake_due();
                self.strike_timers();
            }
        }
        self.take_events();
        true
    }

    /// The next datagram for `to` passed the queue, `marked` if its sender is ECN-capable.
    fn note_marks(&mut self, to: Side, marked: bool) {
        let sender = self.host(to.other()).connection.as_ref();
        let capable = sender.is_some_and(Connection::wants_marks);
        if capable && !self.clears_marks {
            let marks = &mut self.host(to).marks;
            *marks = (marks.0 + 1, marks.1 + u32::from(marked));
        }
    }

    fn strike_timers(&mut self) {
        for side in Side::BOTH {
            if self.is_stalled(side) {
                continue;
            }
            let now = self.now() + self.host(side).skew;
            if let Some(connection) = self.host(side).connection.as_mut() {
                connection.on_timeout(now);
            }
        }
    }

    /// Runs until `done`, or panics at `limit` of virtual time.
    pub(super) fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&Sim) -> bool) {
        let deadline = self.net.now() + limit;
        while !done(self) {
            assert!(
                self.step(deadline) || done(self),
                "seed {}: not done at {:?}\n a {:?} {:?}\n b {:?} {:?}",
                self.seed,
                self.net.now(),
                self.a.events,
                self.a.connection,
                self.b.events,
                self.b.connection
            );
        }
    }

    /// Runs for `time`.
    pub(super) fn run_for(&mut self, time: Duration) {
        let deadline = self.net.now() + time;
        while self.step(deadline) {}
    }

    /// The operations sent since recording began, as text. A run of Data from one side to one Block counts as one.
    pub(super) fn spoken(&self) -> String {
        let mut words: Vec<String> = vec![];
        for (side, bytes) in self.trace.iter().flatten() {
            let header = Header::parse(bytes).expect("what we send");
            let set = |flag, name: &str| match header.flags.contains(flag) {
                true => format!(" {name}"),
                false => String::new(),
            };
            let detail = match header.op {
                Op::Data if header.flags.contains(Flags::EAGER) => " eager".to_owned(),
                Op::Data if header.flags.contains(Flags::FRAMES) => {
                    let frames = Frames::parse(&header, &bytes[HEADER_LEN..]);
                    format!(" of {}", frames.expect("what we send").len())
                }
                Op::Data => format!(" {}", header.b_num),
                Op::ClearToSend => format!(" {}", header.b_num),
                Op::RequestAnswer => set(Flags::REJECT, "refused"),
                Op::State if header.flags.contains(Flags::MEMORY) => {
                    let below = match header.flags.contains(Flags::COMPLETE) {
                        true => "below",
                        false => "again from",
                    };
                    format!(" {below} {}", header.sync)
                }
                Op::State => set(Flags::COMPLETE, "complete") + &set(Flags::UNKNOWN, "unknown"),
                Op::Nop => set(Flags::REPLY, "reply"),
                _ => String::new(),
            };
            let word = format!("{side:?} {:?}{detail}", header.op);
            if header.op != Op::Data || words.last() != Some(&word) {
                words.push(word);
            }
        }
        words.join(", ")
    }

    pub(super) fn connect(&mut self) {
        self.run_until(Duration::from_secs(5), |sim| {
            sim.a.connected() && sim.b.connected()
        });
    }
}

impl Host {
    pub(super) fn connected(&self) -> bool {
        self.events
            .iter()
            .any(|event| matches!(event, Event::Connected(_)))
    }

    /// The immediates shown, in order: the number, the handle of its region, the bytes of its put.
    pub(super) fn immediates(&self) -> impl Iterator<Item = (u32, u32, u64)> + '_ {
        self.events.iter().filter_map(|event| match event {
            Event::Immediate {
                value,
                region,
                length,
            } => Some((*value, region.start.handle, *length)),
            _ => None,
        })
    }

    pub(super) fn is_shown(&self, value: u32) -> bool {
        self.immediates().any(|it| it.0 == value)
    }

    pub(super) fn sent(&self, id: TransferId) -> bool {
        self.events.contains(&Event::Sent { id })
    }

    pub(super) fn received(&self, id: TransferId) -> Option<u64> {
        self.events.iter().find_map(|event| match event {
            Event::Received {
                id: other, length, ..
            } if *other == id => Some(*length),
            _ => None,
        })
    }

    pub(super) fn failed(&self, id: TransferId) -> Option<TransferError> {
        self.events.iter().find_map(|event| match event {
            Event::Failed { id: other, error } if *other == id => Some(*error),
            _ => None,
        })
    }

    /// Why the connection ended, if it did.
    pub(super) fn closed(&self) -> Option<CloseReason> {
        self.events.iter().find_map(|event| match event {
            Event::Closed(reason) => Some(*reason),
            _ => None,
        })
    }

    /// How often Transfer `id` ended.
    pub(super) fn outcomes(&self, id: TransferId) -> usize {
        let ends = |event: &&Event| match **event {
            Event::Sent { id: other }
            | Event::Received { id: other, .. }
            | Event::Fetched { id: other, .. }
            | Event::Message { id: other, .. }
            | Event::Region { id: other, .. }
            | Event::Failed { id: other, .. } => other == id,
            _ => false,
        };
        self.events.iter().filter(ends).count()
    }
}
