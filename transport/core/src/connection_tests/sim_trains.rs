//! Simulates trains: datagrams that are sealed, cut, merged and reassembled in one buffer.
//!
//! A seal is eight bytes computed from everything that it seals. As in a lane that opens from its buffer into memory, a
//! train whose seal fails was written all the same.

use super::seeds::Dice;
use super::sim::{BATCH, Host, Sim};
use crate::limits::MIN_TRAIN;
use crate::*;
use netsim::link::LinkConfig;
use std::time::Duration;
use zerolane_wire::{
    Assembled, Assembler, DatagramPart, Flags, HEADER_LEN, Header, MAX_TRAIN, Op, Train,
};

/// Bytes of a seal.
pub(super) const SEAL: usize = 8;

/// Most datagrams merged.
const MERGED: usize = 44;

/// Bytes of the buffer in which trains are assembled.
const BUFFER: usize = Assembler::BUFFER;

/// How a kernel merges arriving datagrams.
pub(super) enum Merging {
    /// Not at all.
    Off,
    /// As many as there are.
    Full,
    /// Any number of datagrams, as a card or a budget would.
    Any(Dice),
}

/// The same, by seed.
pub(super) type Merge = fn(u64) -> Merging;

/// Returns the datagrams that arrive in place of the given one.
pub(super) type Tamper = Box<dyn FnMut(&[u8]) -> Vec<Vec<u8>>>;

/// State of a host that uses trains: everything it sends is sealed.
pub(super) struct Trains {
    /// Bursts may be trains.
    pub(super) sends: bool,
    pub(super) merging: Merging,
    pub(super) tamper: Option<Tamper>,
    assembler: Assembler,
    buffer: Vec<u8>,
    /// Headers of the sent trains.
    pub(super) left: Vec<Header>,
    /// Trains that were opened, that were not, that were incomplete, and that had no place.
    pub(super) opened: usize,
    pub(super) spoiled: usize,
    pub(super) incomplete: usize,
    pub(super) unplaced: usize,
}

impl Trains {
    pub(super) fn new(merging: Merging) -> Trains {
        Trains {
            sends: true,
            merging,
            tamper: None,
            assembler: Assembler::default(),
            buffer: vec![0; BUFFER],
            left: vec![],
            opened: 0,
            spoiled: 0,
            incomplete: 0,
            unplaced: 0,
        }
    }

    /// Cuts off the first datagrams that a kernel delivers as one piece; all but the last have one length.
    fn merged<'d>(&mut self, datagrams: &mut &'d [Vec<u8>]) -> &'d [Vec<u8>] {
        let most = match &mut self.merging {
            Merging::Off => 1,
            Merging::Full => MERGED,
            Merging::Any(dice) => {
                let any = 1 + dice.below(MERGED as u64) as usize;
                dice.pick(&[1, 3, MERGED, any])
            }
        };
        let len = datagrams[0].len();
        let same = datagrams.iter().take(most).take_while(|it| it.len() == len);
        let same = same.count();
        let shorter = |it: &Vec<u8>| same < most && it.len() < len;
        let count = same + usize::from(datagrams.get(same).is_some_and(shorter));
        let piece;
        (piece, *datagrams) = datagrams.split_at(count);
        piece
    }
}

/// The seal of `payload` with `header`.
pub(super) fn seal(header: &[u8], payload: &[u8]) -> [u8; SEAL] {
    let mut sum = header.len() as u64 ^ (payload.len() as u64) << 32;
    for part in [header, payload] {
        let (words, rest) = part.as_chunks::<SEAL>();
        let mut last = [0; SEAL];
        last[..rest.len()].copy_from_slice(rest);
        for word in words.iter().chain([&last]) {
            sum = (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sum ^= sum >> 29;
        }
    }
    sum.to_le_bytes()
}

/// Whether a datagram of `connection` has its header in front. A datagram that starts with a train's header is part of
/// a train.
fn is_operation(connection: &Connection, datagram: &[u8]) -> bool {
    Header::parse(datagram).is_ok_and(|header| {
        let train = header.op == Op::Data && header.flags.contains(Flags::TRAIN);
        connection.owns(&header) && !train
    })
}

/// Sealing and sending.
impl Host {
    /// Bytes of a datagram's seal.
    pub(super) fn seal(&self) -> usize {
        if self.trains.is_some() { SEAL } else { 0 }
    }

    pub(super) fn sealed(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.trains.is_some() {
            let (header, payload) = bytes.split_at(HEADER_LEN);
            let seal = seal(header, payload);
            bytes.extend_from_slice(&seal);
        }
        bytes
    }

    /// Datagrams received at once.
    pub(super) fn batch(&self) -> usize {
        if self.trains.is_some() {
            3 * MERGED
        } else {
            BATCH
        }
    }

    pub(super) fn burst_limit(&self) -> BurstLimit {
        BurstLimit {
            train: match &self.trains {
                Some(it) if it.sends => MAX_TRAIN,
                _ => 0,
            },
            ..BurstLimit::default()
        }
    }

    /// The datagrams of a train.
    pub(super) fn train(&mut self, burst: &DataBurst) -> Vec<Vec<u8>> {
        let train = burst.train.expect("a train");
        let header = burst.train_header(train);
        assert_eq!(u64::from(train.len), burst.span.len);
        let payload = self.bytes(burst.span);
        let mut bytes = payload.to_vec();
        bytes.resize(bytes.len() + usize::from(train.padding), 0);
        bytes.extend(header.emit());
        bytes.extend(seal(&header.emit(), payload));
        assert!(
            bytes.len() <= BurstLimit::default().bytes as usize,
            "one send"
        );
        let datagram = burst.stu as usize;
        assert!(!bytes.len().is_multiple_of(datagram), "the last is shorter");
        let datagrams: Vec<_> = bytes.chunks(datagram).map(<[u8]>::to_vec).collect();
        assert_eq!(datagrams.len(), burst.segments as usize);
        assert!(burst.segments > MIN_TRAIN);
        self.trains.as_mut().expect("trains").left.push(header);
        datagrams
    }
}

/// Trains of frames.
impl Host {
    pub(super) fn frames_train(
        &mut self,
        burst: &OperationBurst,
        train: Train,
        header: Header,
        datagrams: &mut Vec<(Vec<u8>, bool)>,
    ) {
        let mut content = vec![];
        for it in burst.datagrams().flat_map(|it| it.operations()) {
            content.extend_from_slice(it.head);
            if let Some(payload) = it.payload {
                content.extend_from_slice(self.bytes(payload));
            }
        }
        assert_eq!(content.len(), train.len as usize);
        let seal = seal(&header.emit(), &content);
        content.resize(content.len() + usize::from(train.padding), 0);
        content.extend(header.emit());
        content.extend(seal);
        let cut: Vec<_> = content.chunks(burst.segment as usize).collect();
        assert_eq!(cut.len(), burst.segments as usize);
        assert!(cut.len() > MIN_TRAIN as usize);
        datagrams.extend(cut.into_iter().map(|it| (it.to_vec(), true)));
        self.trains.as_mut().expect("trains").left.push(header);
    }

    fn open_frames(
        &mut self,
        now: Instant,
        header: &Header,
        (content, sealed): (&[u8], &[u8]),
        datagram: u32,
    ) {
        let trains = self.trains.as_mut().expect("trains");
        if seal(&header.emit(), content) != *sealed {
            trains.spoiled += 1;
            return self.c().on_dropped(DropReason::Forged);
        }
        trains.opened += 1;
        let datagrams = (content.len() as u32).div_ceil(datagram);
        self.c().on_frames_train(datagrams);
        let mut moves = vec![];
        self.receive_frames(now, header, content, &mut moves);
        for (span, payload) in moves {
            self.bytes_mut(span).copy_from_slice(&payload);
        }
    }
}

/// Receiving.
impl Host {
    pub(super) fn receive_sealed(&mut self, now: Instant, mut datagrams: Vec<Vec<u8>>) {
        if let Some(tamper) = self.trains.as_mut().and_then(|it| it.tamper.as_mut()) {
            datagrams = datagrams.iter().flat_map(|it| tamper(it)).collect();
        }
        if !self.c().expects_trains() {
            let opened = self.opened(&datagrams);
            let places = self.land(&opened);
            return self.take_operations(now, &opened, &places);
        }
        let mut rest = &datagrams[..];
        while !rest.is_empty() {
            let piece = self.trains.as_mut().expect("trains").merged(&mut rest);
            let connection = self.connection.as_ref().expect("connection");
            let is_operation = |it: &Vec<u8>| is_operation(connection, it);
            let runs = piece.chunk_by(|a, b| is_operation(a) == is_operation(b));
            let runs: Vec<_> = runs.map(|run| (is_operation(&run[0]), run)).collect();
            for (operations, run) in runs {
                match operations {
                    true => {
                        let opened = self.opened(run);
                        self.take_operations(now, &opened, &vec![None; opened.len()]);
                    }
                    false => self.take_part(now, run),
                }
            }
        }
    }

    /// Operations without their seals; drops those with an invalid seal.
    fn opened(&mut self, datagrams: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut all = vec![];
        for datagram in datagrams {
            let content = datagram.len().saturating_sub(SEAL);
            let (content, sealed) = datagram.split_at(content);
            let (header, payload) = content.split_at(content.len().min(HEADER_LEN));
            match seal(header, payload) == *sealed {
                true => all.push(content.to_vec()),
                false => self.c().on_dropped(DropReason::Forged),
            }
        }
        all
    }

    /// Takes datagrams that may be part of a train.
    fn take_part(&mut self, now: Instant, run: &[Vec<u8>]) {
        let (connection, trains) = (self.connection.as_ref(), self.trains.as_mut());
        let (connection, trains) = (connection.expect("connection"), trains.expect("trains"));
        let piece = run.concat();
        let at = trains.assembler.filled();
        trains.buffer[at..at + piece.len()].copy_from_slice(&piece);
        let sizes = (piece.len(), run[0].len());
        let ours = |header: &Header| connection.owns(header);
        match trains.assembler.take(&trains.buffer, sizes, SEAL, ours) {
            Assembled::Part => {}
            Assembled::Stray => self.c().on_dropped(DropReason::Malformed),
            Assembled::Incomplete => trains.incomplete += 1,
            Assembled::Train {
                header,
                payload,
                datagram,
            } => {
                let end = at + piece.len();
                let sealed = trains.buffer[end - SEAL..end].to_vec();
                let payload = trains.buffer[payload].to_vec();
                self.open(now, &header, &payload, &sealed, datagram);
            }
        }
    }

    /// Opens a train into its place, if it has one.
    fn open(
        &mut self,
        now: Instant,
        header: &Header,
        payload: &[u8],
        sealed: &[u8],
        datagram: u32,
    ) {
        if header.flags.contains(Flags::FRAMES) {
            return self.open_frames(now, header, (payload, sealed), datagram);
        }
        if DatagramPart::is(header) {
            let holds = seal(&header.emit(), payload) == *sealed;
            let trains = self.trains.as_mut().expect("trains");
            if !holds {
                trains.spoiled += 1;
                return self.c().on_dropped(DropReason::Forged);
            }
            trains.opened += 1;
            if let Ok(slot) = self.c().on_datagram_train(now, header) {
                self.keep(slot, payload);
            }
            return;
        }
        let claim = match self.c().claim_train(header) {
            Ok(claim) => claim,
            Err(reason) => {
                self.trains.as_mut().expect("trains").unplaced += 1;
                return self.c().on_dropped(reason);
            }
        };
        self.bytes_mut(claim.span()).copy_from_slice(payload);
        let holds = seal(&header.emit(), payload) == *sealed;
        let trains = self.trains.as_mut().expect("trains");
        if !holds {
            trains.spoiled += 1;
            return self.c().on_dropped(DropReason::Forged);
        }
        trains.opened += 1;
        let noted = self.c().on_train(now, header, claim, datagram);
        assert_eq!(noted, Ok(()), "{header:?}");
        self.placed += payload.len() as u64;
    }
}

/// Follows trains datagram by datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Follower {
    train: usize,
    index: usize,
    len: usize,
}

/// Position of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carriage {
    /// Number of its train, from 0.
    pub(super) train: usize,
    /// Number in its train, from 0.
    pub(super) index: usize,
    pub(super) last: bool,
}

impl Follower {
    /// The next datagram in the order of sending; `None` if it has a header in front.
    pub(super) fn follow(&mut self, datagram: &[u8]) -> Option<Carriage> {
        if has_header(datagram) {
            return None;
        }
        if self.index == 0 {
            self.len = datagram.len();
        }
        let (train, index) = (self.train, self.index);
        let last = datagram.len() < self.len;
        (self.train, self.index) = match last {
            true => (train + 1, 0),
            false => (train, index + 1),
        };
        Some(Carriage { train, index, last })
    }
}

/// Whether a datagram between the ends of a [`Sim`] is an operation.
pub(super) fn has_header(datagram: &[u8]) -> bool {
    Header::parse(datagram).is_ok_and(|header| {
        let train = header.op == Op::Data && header.flags.contains(Flags::TRAIN);
        [(11, 22), (22, 11), (0, 11)].contains(&(header.d_port, header.s_port)) && !train
    })
}

impl Sim {
    /// Two connected ends that send and accept trains, on a known path.
    pub(super) fn with_trains(link: LinkConfig, seed: u64, config: Config, merging: Merge) -> Sim {
        let config = Config {
            seal: SEAL,
            ..config
        };
        let mut sim = Sim::new(link, seed, config.clone(), config);
        for host in [&mut sim.a, &mut sim.b] {
            host.trains = Some(Trains::new(merging(seed)));
        }
        sim.connect();
        sim.a.c().set_takes_trains(true);
        sim.b.c().set_takes_trains(true);
        sim.run_for(Duration::from_secs(1));
        sim
    }
}

pub(super) fn unmerged(_: u64) -> Merging {
    Merging::Off
}

pub(super) fn merged(_: u64) -> Merging {
    Merging::Full
}

pub(super) fn merged_at_random(seed: u64) -> Merging {
    Merging::Any(Dice::new(seed))
}
