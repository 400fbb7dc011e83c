//! Fuzzes an established pair with datagrams, calls and waits in any order: no panic, nothing placed outside the posted
//! receives and the exported regions, no growth beyond the limits.

use std::collections::VecDeque;
use std::time::Duration;
use zerolane_core::{
    Atomic, BurstLimit, Config, Connection, DatagramSlot, Delivery, Entropy, ExportAs, Forecast,
    HoldOrder, Instant, OperationDatagram, Placement, RegionId, RegionNumber, RemotePlace, Span,
    TransferId, Transmit, WorkFlags, WorkRequest, limits, listen,
};
use zerolane_wire::{
    DatagramPart, FetchOpKind, Flags, Frames, HEADER_LEN, Header, MAX_DATAGRAM, Op, Packet,
    Profile, Profiles, Rights, Word,
};

/// Bytes of every receive; sends are as long or longer.
const ROOM: u64 = 200_000;

/// Datagrams kept on the way, so that memory stays small.
const MAX_ON_THE_WAY: usize = 256;

const KEYS: [u32; 2] = [0xa0a0, 0xb0b0];
const PORTS: [u16; 2] = [11, 22];

/// A control datagram, or the header and payload length of Data.
enum Datagram {
    Control(Vec<u8>),
    Data(Header, u32),
    /// The header of a train, and the bytes of its datagrams.
    Train(Header, u32),
}

struct Pair {
    ends: [Connection; 2],
    /// By receiver.
    wire: [VecDeque<Datagram>; 2],
    posted: [Vec<TransferId>; 2],
    /// Handle, Mx and region of what each end exports; the other end uses it.
    exports: [Vec<(u32, u16, u32)>; 2],
    now: Instant,
    regions: u32,
}

fn entropy(side: usize) -> Entropy {
    Entropy {
        key: KEYS[side],
        port: PORTS[side],
        sync: 5,
    }
}

impl Pair {
    fn established(classic: bool) -> Option<Pair> {
        let now = Instant::ZERO;
        let config = Config {
            profiles: match classic {
                true => Profiles::only(Profile::Classic),
                false => Profiles::BOTH,
            },
            block: 30_000,
            slots: 4,
            ..Config::default()
        };
        let mut a = Connection::connect(now, config.clone(), entropy(0));
        let Some(Transmit::Control(request)) = a.poll_transmit(now, BurstLimit::default()) else {
            return None;
        };
        let request = Packet::parse(request.bytes()).ok()?;
        let b = listen(now, config, entropy(1), &request).ok()?;
        let mut pair = Pair {
            ends: [a, b],
            wire: [VecDeque::new(), VecDeque::new()],
            posted: [vec![], vec![]],
            exports: [vec![], vec![]],
            now,
            regions: 0,
        };
        pair.exchange();
        pair.ends
            .iter_mut()
            .for_each(|it| it.set_takes_trains(true));
        pair.export(0, Rights::ALL);
        pair.export(1, Rights::READ);
        pair.export(1, Rights::ALL);
        Some(pair)
    }

    /// Both ends say what they have to say and hear it, a few times.
    fn exchange(&mut self) {
        for _ in 0..4 {
            for side in 0..2 {
                self.ends[side].on_timeout(self.now);
                self.transmit(side);
                while self.deliver(1 - side) {}
            }
        }
    }

    fn transmit(&mut self, side: usize) {
        let limit = BurstLimit {
            train: zerolane_wire::MAX_TRAIN,
            ..BurstLimit::default()
        };
        for _ in 0..64 {
            let Some(it) = self.ends[side].poll_transmit(self.now, limit) else {
                break;
            };
            match it {
                // These connections are plain; the exchange has a target of its own.
                Transmit::Handshake => {}
                Transmit::Control(it) => {
                    let mut bytes = it.bytes().to_vec();
                    bytes.resize(bytes.len().max(it.pad_to), 0);
                    self.put(1 - side, Datagram::Control(bytes));
                }
                Transmit::Data(burst) => {
                    if let Some(train) = burst.train {
                        assert!(u64::from(train.len) == burst.span.len);
                        let datagram = Datagram::Train(burst.train_header(train), burst.stu);
                        self.put(1 - side, datagram);
                        continue;
                    }
                    for index in 0..burst.segments {
                        let start = u64::from(index) * u64::from(burst.stu);
                        let len = u64::from(burst.stu).min(burst.span.len - start);
                        let datagram = Datagram::Data(burst.header(index), len as u32);
                        self.put(1 - side, datagram);
                    }
                }
                Transmit::Operations(burst) => {
                    let train = burst.as_train().map(|(_, header)| header);
                    for datagram in burst.datagrams() {
                        self.put_operations(1 - side, datagram, train);
                    }
                }
            }
        }
        while let Some(order) = self.ends[side].poll_hold() {
            if let HoldOrder::Move { to, .. } = order {
                assert!(to.len > 0 && to.end() <= ROOM);
            }
        }
        while self.ends[side].poll_event().is_some() {}
    }

    fn put(&mut self, to: usize, datagram: Datagram) {
        if self.wire[to].len() < MAX_ON_THE_WAY {
            self.wire[to].push_back(datagram);
        }
    }

    /// A datagram of operations, or a train with this header, as a lane shows it: each on its own.
    fn put_operations(
        &mut self,
        to: usize,
        datagram: OperationDatagram<'_>,
        train: Option<Header>,
    ) {
        let mut bytes = train.map_or(vec![], |it| it.emit().to_vec());
        for it in datagram.operations() {
            let payload = it.payload.map_or(0, |span| span.len as usize);
            bytes.extend_from_slice(it.head);
            bytes.resize(bytes.len() + payload + it.padding as usize, 0);
        }
        let header = Header::parse(&bytes).expect("what is sent");
        let content = &bytes[HEADER_LEN..];
        if header.op != Op::Data {
            self.put(to, Datagram::Control(bytes));
        } else if header.flags.contains(Flags::FRAMES) {
            let frames = Frames::parse(&header, content).expect("what is sent");
            for (header, payload) in frames {
                self.put(to, Datagram::Data(header, payload.len() as u32));
            }
        } else {
            self.put(to, Datagram::Data(header, content.len() as u32));
        }
    }

    fn deliver(&mut self, to: usize) -> bool {
        match self.wire[to].pop_front() {
            None => return false,
            Some(Datagram::Control(bytes)) => self.control(to, &bytes),
            Some(Datagram::Data(header, len)) => self.data(to, &header, len, len),
            Some(Datagram::Train(header, datagram)) => self.train(to, &header, datagram),
        }
        true
    }

    /// A control datagram, or the small Data that a value is, and the order that may follow.
    fn control(&mut self, to: usize, bytes: &[u8]) {
        match Header::parse(bytes) {
            Ok(header) if header.op == Op::Data => {
                let len = (bytes.len() - HEADER_LEN) as u32;
                self.data(to, &header, len, len);
            }
            _ => {
                self.ends[to].on_control(self.now, bytes, bytes.len());
                self.obey(to);
            }
        }
    }

    fn obey(&mut self, to: usize) {
        if let Some(order) = self.ends[to].pending_atomic() {
            assert!(order.word.len == 8 && order.word.offset % 8 == 0);
            assert!(order.skip == 0 || order.skip == 4 && order.atomic.word == Word::U32);
            assert!(order.atomic.operand <= order.atomic.word.max());
            self.assert_exported(to, order.word);
            self.ends[to].on_atomic_done(self.now, Some(order.atomic.operand));
        }
    }

    /// The span lies in something that `side` exports now.
    fn assert_exported(&self, side: usize, span: Span) {
        let region = span.region.index;
        assert!(self.exports[side].iter().any(|it| it.2 == region) && span.end() <= ROOM);
    }

    fn export(&mut self, side: usize, rights: Rights) {
        let span = self.span(ROOM);
        // Every other one under a number, which may be taken.
        let named = match self.exports[side].len() as u8 {
            n if n % 2 == 1 => ExportAs::Number(RegionNumber::from_be_bytes([0, 0, n])),
            _ => ExportAs::Handle,
        };
        if let Ok((handle, mx)) = self.ends[side].export(span, rights, named) {
            self.exports[side].push((handle, mx, span.region.index));
        }
    }

    fn revoke(&mut self, side: usize, which: u8) {
        let exports = &mut self.exports[side];
        if !exports.is_empty() {
            let (handle, ..) = exports.swap_remove(usize::from(which) % exports.len());
            assert!(self.ends[side].revoke(self.now, handle));
        }
    }

    /// Uses what the other end exports.
    fn work(&mut self, side: usize, kind: u8, address: u64, len: u64) {
        let (now, theirs) = (self.now, &self.exports[1 - side]);
        let Some(&(handle, mx, _)) = theirs.get(usize::from(kind >> 4) % theirs.len().max(1))
        else {
            return;
        };
        let place = RemotePlace {
            handle,
            mx,
            address,
        };
        let (span, control) = (self.span(len % (ROOM + 2)), self.span(128));
        let bytes = vec![7; (len % 130) as usize];
        let flags = WorkFlags {
            signalled: kind & 8 != 0,
            fence: len.is_multiple_of(7),
            awaited: len.is_multiple_of(3),
        };
        let word = match len & 16 {
            0 => Word::U64,
            _ => Word::U32,
        };
        let atomic = Atomic {
            kind: FetchOpKind::ALL[usize::from(kind) % FetchOpKind::ALL.len()],
            word,
            operand: len & word.max(),
            comparand: 0,
        };
        let bounded = |span: Span, len: u64| Span {
            len: span.len.min(len),
            ..span
        };
        let (request, memory) = match kind & 7 {
            it @ (0 | 1) => {
                let immediate = (it == 1).then_some(7);
                if bytes.len() as u64 == len {
                    // As short as this, it is a copy.
                    let id = self.ends[side].post_inline(now, place, &bytes, immediate, flags);
                    return self.posted[side].extend(id.ok());
                }
                let put = WorkRequest::Put {
                    place,
                    immediate,
                    flags,
                };
                (put, span)
            }
            2 => (WorkRequest::Get { place, flags }, bounded(span, ROOM)),
            3 => {
                let fetch = WorkRequest::FetchOp {
                    place,
                    atomic,
                    flags,
                };
                (fetch, Span::EMPTY)
            }
            it @ (4 | 5) => {
                let control = &bytes;
                let payload = if it == 5 { span } else { Span::EMPTY };
                (WorkRequest::Message { control, flags }, payload)
            }
            it => {
                let payload = match it {
                    7 => bounded(span, ROOM),
                    _ => Span::EMPTY,
                };
                (WorkRequest::ReceiveMessage { control }, payload)
            }
        };
        let id = self.ends[side].post(now, request, memory);
        self.posted[side].extend(id.ok());
    }

    fn data(&mut self, to: usize, header: &Header, len: u32, stu: u32) {
        let mut forecast = Forecast::default();
        self.ends[to].forecast(3, &mut forecast);
        for run in forecast.runs() {
            assert!(run.span.len > 0 && run.span.end() <= ROOM && run.stu > 0);
        }
        let landed = forecast.runs().next().map(|run| run.span);
        let landed = landed
            .filter(|span| span.len >= u64::from(len))
            .map(|span| Span {
                len: u64::from(len),
                ..span
            });
        match self.ends[to].on_data(self.now, header, len, stu, landed) {
            Placement::InPlace => assert!(landed.is_some()),
            Placement::Move(span) | Placement::Unannounced(span) | Placement::Eager(span) => {
                assert!(span.len == u64::from(len) && span.end() <= ROOM);
            }
            Placement::Hold(hold) => {
                assert!(u64::from(hold.start) + u64::from(len) <= u64::from(hold.length));
            }
            Placement::Store(span) => {
                assert!(span.len == u64::from(len));
                if len > 0 {
                    self.assert_exported(to, span);
                }
            }
            Placement::Value { number, id } => {
                assert!(len == 8);
                self.ends[to].on_value(self.now, number, id, u64::from(number));
            }
            Placement::Datagram(to) => assert_slot(to, len),
            Placement::Drop(_) => {}
        }
    }

    /// A train, opened into its place, if it has one.
    fn train(&mut self, to: usize, header: &Header, datagram: u32) {
        if DatagramPart::is(header) {
            if let Ok(slot) = self.ends[to].on_datagram_train(self.now, header) {
                assert!(slot.begins && slot.ends);
                assert_slot(slot, header.s_id);
            }
            return;
        }
        let Ok(claim) = self.ends[to].claim_train(header) else {
            return;
        };
        let place = claim.span();
        assert!(place.len == u64::from(header.s_id) && place.end() <= ROOM);
        // An announcement that the train implies may be refused.
        let _ = self.ends[to].on_train(self.now, header, claim, datagram);
    }

    fn span(&mut self, len: u64) -> Span {
        self.regions += 1;
        Span {
            region: RegionId {
                index: self.regions,
                generation: 1,
            },
            offset: 0,
            len,
        }
    }

    fn post(&mut self, side: usize, kind: u8, len: u64) {
        let (now, len) = (self.now, len % (ROOM + 2));
        let receives = matches!(kind % 5, 1 | 3);
        let span = self.span(if receives { len.min(ROOM) } else { len });
        let request = match kind % 5 {
            0 => WorkRequest::Send {
                delivery: Delivery::Polled,
            },
            1 => WorkRequest::Receive,
            2 => WorkRequest::Offer {
                delivery: Delivery::Silent,
            },
            3 => WorkRequest::Read,
            _ => WorkRequest::Datagram {
                lifetime: Duration::from_millis(len % 50),
                dscp: (len % 64) as u8,
            },
        };
        let id = self.ends[side].post(now, request, span);
        self.posted[side].extend(id.ok());
    }

    fn cancel(&mut self, side: usize, which: u8) {
        let ids = &self.posted[side];
        if !ids.is_empty() {
            let id = ids[usize::from(which) % ids.len()];
            self.ends[side].cancel(self.now, id);
        }
    }
}

/// Takes bytes off the front, zeros when there are no more.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let taken = count.min(self.0.len());
        let mut bytes = self.0[..taken].to_vec();
        self.0 = &self.0[taken..];
        bytes.resize(count, 0);
        bytes
    }

    fn byte(&mut self) -> u8 {
        self.bytes(1)[0]
    }

    fn number(&mut self) -> u64 {
        let bytes = self.bytes(4);
        u64::from(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A datagram to `side`, with the right ports and key unless `unauthenticated`.
    fn datagram(&mut self, side: usize, len: usize, unauthenticated: bool) -> Vec<u8> {
        let mut bytes = self.bytes(len);
        if len >= 14 && !unauthenticated {
            bytes[4..6].copy_from_slice(&PORTS[side].to_be_bytes());
            bytes[6..8].copy_from_slice(&PORTS[1 - side].to_be_bytes());
            bytes[8..12].copy_from_slice(&KEYS[side].to_be_bytes());
            bytes[12..14].fill(0);
        }
        bytes
    }
}

fn step(pair: &mut Pair, input: &mut Input<'_>) {
    let choice = input.byte();
    let side = usize::from(choice & 1);
    match choice >> 1 & 15 {
        0 => pair.exchange(),
        1 => pair.transmit(side),
        2 => {
            pair.deliver(side);
        }
        3 => {
            pair.wire[side].pop_front();
        }
        4..=6 => {
            let len = [HEADER_LEN, HEADER_LEN + 32, usize::from(input.byte())];
            let len = len[usize::from(choice >> 5 & 3) % 3];
            let datagram = input.datagram(side, len, choice & 0x80 != 0);
            pair.ends[side].on_control(pair.now, &datagram, len);
            pair.obey(side);
        }
        7 | 8 => {
            let header = input.datagram(side, HEADER_LEN, choice & 0x80 != 0);
            let (len, stu) = (input.number() as u32, input.number() as u32);
            if let Ok(header) = Header::parse(&header) {
                let header = Header {
                    op: Op::Data,
                    ..header
                };
                match header.flags.contains(Flags::TRAIN) {
                    true => pair.train(side, &header, stu & 0xffff),
                    false => pair.data(side, &header, len, stu),
                }
            }
        }
        9 => {
            // Real Data, or a real train, but for one field.
            let mut value = 0;
            let mut change = |header: Header| {
                value = input.number() as u32;
                let mut header = header;
                match choice >> 5 {
                    0 => header.b_id ^= value as u16,
                    1 => header.bufx = value,
                    2 => header.offset = value,
                    3 => header.b_num = value,
                    4 => header.d_id = value,
                    _ => {}
                }
                header
            };
            match pair.wire[side].pop_front() {
                Some(Datagram::Data(header, len)) => {
                    let header = change(header);
                    pair.data(side, &header, len ^ value & 0xff, len);
                }
                Some(Datagram::Train(header, datagram)) => {
                    let header = change(header);
                    let s_id = header.s_id ^ value & 0xff;
                    pair.train(side, &Header { s_id, ..header }, datagram);
                }
                _ => {}
            }
        }
        10 => {
            let wait = Duration::from_micros(input.number());
            pair.now = pair.now + wait;
            pair.ends[side].on_timeout(pair.now);
        }
        11 => {
            let (kind, len) = (input.byte(), input.number());
            pair.post(side, kind, len);
        }
        12 => {
            let (kind, address, len) = (input.byte(), input.number(), input.number());
            match kind {
                0xff => pair.revoke(side, address as u8),
                0xfe => pair.export(side, Rights::ALL),
                _ => pair.work(side, kind, address, len),
            }
        }
        13 => {
            let which = input.byte();
            pair.cancel(side, which);
        }
        14 => pair.ends[side].set_path_datagram(pair.now, usize::from(input.byte()) * 40),
        _ => {
            if input.byte() == 7 {
                pair.ends[side].close(pair.now);
            }
        }
    }
}

/// See the first lines of this file.
pub fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let Some(mut pair) = Pair::established(input.byte() & 1 == 1) else {
        panic!("a pair does not come up");
    };
    while !input.0.is_empty() {
        step(&mut pair, &mut input);
        pair.ends.iter().for_each(Connection::assert_bounded);
    }
    pair.exchange();
}

/// Where a lane stores `len` bytes of a datagram.
fn assert_slot(to: DatagramSlot, len: u32) {
    assert!(to.slot < limits::MAX_DATAGRAMS_ASSEMBLED && to.length <= MAX_DATAGRAM);
    assert!(to.start + len <= to.length);
}
