//! Runs two engines over a simulated transport in virtual time, against an oracle.
#![allow(non_snake_case)]

use super::*;
use crate::limits::{EARLY_WINDOW, INITIAL_WINDOW, MAX_WINDOW};
use std::time::Duration;

/// What a new stream may be sent, if few are open.
const WINDOW: u64 = INITIAL_WINDOW + EARLY_WINDOW;

/// The byte at `offset` of one direction of a stream.
fn byte(id: StreamId, from: usize, offset: u64) -> u8 {
    (id.0.wrapping_mul(31) + from as u64 * 7 + offset.wrapping_mul(offset >> 8 | 1) + offset) as u8
}

/// A message on its way: when it arrives, its number at the sender, and its bytes.
type Travelling = (Instant, u64, Region);

/// Both ends, and the messages between them. End 0 is the connector.
struct Pair {
    ends: [Engine; 2],
    /// From each end, in the order of sending: message n fills receive n.
    sent: [VecDeque<Travelling>; 2],
    matched: [u64; 2],
    receives: [BTreeMap<u64, Region>; 2],
    arrivals: [Vec<(Instant, u64, Region, usize)>; 2],
    ends_of_sends: [Vec<(Instant, u64, Region)>; 2],
    now: Instant,
    delay: Duration,
    jitter: Duration,
    dice: fastrand::Rng,
}

impl Pair {
    fn new(seed: u64, delay: Duration, jitter: Duration) -> Pair {
        Pair {
            ends: [Engine::new(Role::Connector), Engine::new(Role::Acceptor)],
            sent: Default::default(),
            matched: [0; 2],
            receives: Default::default(),
            arrivals: Default::default(),
            ends_of_sends: Default::default(),
            now: Instant::now(),
            delay,
            jitter,
            dice: fastrand::Rng::with_seed(seed),
        }
    }

    /// Posts what may leave.
    fn post(&mut self) {
        for from in 0..2 {
            while let Some((number, memory)) = self.ends[from].next_receive().unwrap() {
                self.receives[from].insert(number, memory);
            }
            while let Some(out) = self.ends[from].next_message(self.now) {
                let jitter = self.dice.u64(0..=self.jitter.as_micros() as u64);
                let at = self.now + self.delay + Duration::from_micros(jitter);
                self.sent[from].push_back((at, out.number, out.memory));
            }
        }
    }

    /// Posts what may leave, and advances to the next arrival. False if nothing travels.
    fn step(&mut self) -> bool {
        self.post();
        for from in 0..2 {
            let to = 1 - from;
            while let Some(mut memory) = self.receives[to].remove(&self.matched[from]) {
                let Some((at, number, bytes)) = self.sent[from].pop_front() else {
                    self.receives[to].insert(self.matched[from], memory);
                    break;
                };
                memory[..bytes.len()].copy_from_slice(&bytes);
                self.arrivals[to].push((at, self.matched[from], memory, bytes.len()));
                self.ends_of_sends[from].push((at + self.delay, number, bytes));
                self.matched[from] += 1;
            }
        }
        let arrivals = self.arrivals.iter().flatten().map(|it| it.0);
        let ends = self.ends_of_sends.iter().flatten().map(|it| it.0);
        let Some(next) = arrivals.chain(ends).min() else {
            return false;
        };
        self.now = self.now.max(next);
        for end in 0..2 {
            let due = |at: &Instant| *at <= self.now;
            let (due_now, later) = std::mem::take(&mut self.arrivals[end])
                .into_iter()
                .partition(|it| due(&it.0));
            self.arrivals[end] = later;
            for (_, number, memory, len) in Vec::from_iter::<Vec<_>>(due_now) {
                self.ends[end].on_message(number, memory, len).unwrap();
            }
            let (due_now, later) = std::mem::take(&mut self.ends_of_sends[end])
                .into_iter()
                .partition(|it| due(&it.0));
            self.ends_of_sends[end] = later;
            for (_, number, memory) in Vec::from_iter::<Vec<_>>(due_now) {
                self.ends[end].on_sent(number, memory, self.now);
            }
        }
        true
    }

    fn open(&mut self, end: usize) -> StreamId {
        self.ends[end].open(b"test", None).unwrap()
    }

    /// Writes up to `len` bytes behind `offset`; returns how many.
    fn write(&mut self, end: usize, id: StreamId, offset: u64, len: usize) -> usize {
        let filled = self.ends[end].fill(id, |place| {
            let len = len.min(place.len());
            for (at, to) in place[..len].iter_mut().enumerate() {
                *to = byte(id, end, offset + at as u64);
            }
            Ok(len)
        });
        match filled {
            Fill::Asked(len) => len.unwrap(),
            Fill::Full | Fill::Ended => 0,
        }
    }

    /// Reads up to `len` bytes at `offset`, and checks them.
    fn read(&mut self, end: usize, id: StreamId, offset: u64, len: usize) -> usize {
        let bytes = self.ends[end].readable(id);
        let len = len.min(bytes.len());
        for (at, &it) in bytes[..len].iter().enumerate() {
            assert_eq!(
                it,
                byte(id, 1 - end, offset + at as u64),
                "stream {id} at {}",
                offset + at as u64
            );
        }
        self.ends[end].consume(id, len);
        len
    }
}

/// What the program of one end knows of a stream.
#[derive(Default, Debug)]
struct Known {
    wrote: u64,
    to_write: u64,
    finished: bool,
    read: u64,
    over: bool,
    released: bool,
}

/// Random streams with random content, reads and resets, until all are over.
fn random_round(seed: u64) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let jitter = Duration::from_millis(dice.u64(0..20));
    let mut pair = Pair::new(seed, Duration::from_millis(dice.u64(0..30)), jitter);
    let mut known: [BTreeMap<StreamId, Known>; 2] = Default::default();
    let mut lengths: HashMap<(StreamId, usize), u64> = HashMap::new();
    let mut resets = std::collections::HashSet::new();
    let to_open = dice.usize(1..40);
    let mut opened = 0;
    for round in 0..200_000 {
        if opened < to_open && dice.u8(0..4) == 0 {
            let end = dice.usize(0..2);
            let id = pair.open(end);
            known[end].insert(id, random_stream(&mut dice));
            opened += 1;
        }
        for (end, known) in known.iter_mut().enumerate() {
            while let Some(event) = pair.ends[end].next_event() {
                match event {
                    Event::Opened(id) => {
                        assert_eq!(pair.ends[end].purpose(id), b"test");
                        pair.ends[end].accept(id);
                        known.insert(id, random_stream(&mut dice));
                    }
                    Event::Reset(id) => {
                        assert!(resets.contains(&id), "stream {id} was reset by nobody")
                    }
                    Event::Accepted(_) | Event::Readable(_) | Event::Writable(_) => {}
                }
            }
            for (&id, it) in known.iter_mut() {
                act(&mut pair, end, id, it, &mut dice, &mut lengths, &mut resets);
            }
            known.retain(|_, it| !it.released);
        }
        let moved = pair.step();
        if !moved && opened == to_open && known.iter().all(BTreeMap::is_empty) {
            let left = pair.ends.iter().map(Engine::streams).sum::<usize>();
            assert_eq!(left, 0, "streams left");
            for end in &pair.ends {
                assert_eq!((end.extra, end.own, end.peers), (EXTRA_WINDOW, 0, 0));
                assert!(end.is_flushed());
            }
            return;
        }
        assert!(round < 199_999, "it does not end: {known:?}");
    }
}

fn random_stream(dice: &mut fastrand::Rng) -> Known {
    let to_write = match dice.u8(0..4) {
        0 => 0,
        1 => dice.u64(0..200),
        2 => dice.u64(0..100_000),
        _ => dice.u64(0..3_000_000),
    };
    Known {
        to_write,
        ..Known::default()
    }
}

/// One random step of a program with one stream.
fn act(
    pair: &mut Pair,
    end: usize,
    id: StreamId,
    it: &mut Known,
    dice: &mut fastrand::Rng,
    lengths: &mut HashMap<(StreamId, usize), u64>,
    resets: &mut std::collections::HashSet<StreamId>,
) {
    if pair.ends[end].reset_reason(id).is_some() || dice.u16(0..3000) == 0 {
        resets.insert(id);
        pair.ends[end].reset(id, ResetCode::Aborted, "chance");
        pair.ends[end].release(id);
        it.released = true;
        return;
    }
    if it.wrote < it.to_write {
        let most = dice
            .usize(1..400_000)
            .min((it.to_write - it.wrote) as usize);
        it.wrote += pair.write(end, id, it.wrote, most) as u64;
    } else if !it.finished {
        it.finished = true;
        lengths.insert((id, end), it.wrote);
        pair.ends[end].finish(id);
    }
    if dice.bool() {
        it.read += pair.read(end, id, it.read, dice.usize(1..300_000)) as u64;
    }
    if pair.ends[end].is_over(id) && !it.over {
        it.over = true;
        assert_eq!(
            lengths.get(&(id, 1 - end)),
            Some(&it.read),
            "stream {id} ends early"
        );
    }
    if it.over && it.finished {
        pair.ends[end].release(id);
        it.released = true;
    }
}

#[test]
fn Engine__random_streams_lose_double_and_reorder_nothing() {
    let seed = std::env::var("ZEROLANE_SEED")
        .ok()
        .and_then(|it| it.parse().ok());
    let seeds = seed.map_or(0..20, |it: u64| it..it + 1);
    for seed in seeds {
        println!("seed {seed}");
        random_round(seed);
    }
}

/// Steps until nothing travels.
fn settle(pair: &mut Pair) {
    for _ in 0..10_000 {
        if !pair.step() {
            return;
        }
    }
    panic!("it does not settle");
}

#[test]
fn Engine__a_stream_that_is_not_read_holds_up_no_other() {
    let mut pair = Pair::new(1, Duration::from_millis(1), Duration::ZERO);
    let streams: Vec<_> = (0..1000).map(|_| pair.open(0)).collect();
    let mut wrote = vec![0; streams.len()];
    let mut read = vec![0; streams.len()];
    let each = 4 * INITIAL_WINDOW;
    for _ in 0..2000 {
        for (at, &id) in streams.iter().enumerate() {
            let most = (if at == 0 { 2 * WINDOW } else { each }) - wrote[at];
            let most = most as usize;
            if most > 0 {
                wrote[at] += pair.write(0, id, wrote[at], most) as u64;
            }
            // The first is not read.
            if at > 0 {
                read[at] += pair.read(1, id, read[at], usize::MAX) as u64;
            }
        }
        while pair.ends[1].next_event().is_some() {}
        while pair.ends[0].next_event().is_some() {}
        pair.step();
    }
    assert!(
        read[1..].iter().all(|&it| it == each),
        "{:?}",
        read.iter().min()
    );
    assert_eq!((read[0], wrote[0]), (0, WINDOW), "one window");
    let held = pair.ends[1].streams[&streams[0]]
        .inbox
        .fronts(usize::MAX)
        .map(<[u8]>::len)
        .sum::<usize>();
    assert_eq!(held as u64, WINDOW);
}

/// The window of a stream after its sender wrote all it could for a while, and its reader read if `reads`.
fn window_after(reads: bool) -> u64 {
    let mut pair = Pair::new(2, Duration::from_millis(50), Duration::ZERO);
    let id = pair.open(0);
    let (mut wrote, mut read) = (0, 0);
    for _ in 0..100 {
        if pair.ends[1]
            .streams
            .get(&id)
            .is_some_and(|it| it.inbox.extra() > MAX_WINDOW / 8)
        {
            break;
        }
        loop {
            let more = pair.write(0, id, wrote, usize::MAX) as u64;
            wrote += more;
            if more == 0 {
                break;
            }
            pair.post();
        }
        while pair.ends[0].next_event().is_some() {}
        pair.step();
        let mut more = u64::from(reads);
        while more > 0 {
            more = pair.read(1, id, read, usize::MAX) as u64;
            read += more;
        }
    }
    INITIAL_WINDOW + pair.ends[1].streams[&id].inbox.extra()
}

#[test]
fn Engine__a_window_grows_where_it_limits_and_only_there() {
    assert!(window_after(true) > MAX_WINDOW / 8);
    assert_eq!(window_after(false), WINDOW);
}

#[test]
fn Engine__urgent_streams_go_first() {
    let mut pair = Pair::new(3, Duration::from_millis(5), Duration::ZERO);
    let late = pair.ends[0].open(b"bulk", Some(7)).unwrap();
    let urgent = pair.ends[0].open(b"keys", Some(0)).unwrap();
    settle(&mut pair);
    pair.write(0, late, 0, 60_000);
    pair.write(0, urgent, 0, 10);
    let first = pair.ends[0].next_message(pair.now).unwrap();
    let Ok(Message::Bundle(mut frames)) = Message::parse(&first.memory) else {
        panic!("the bulk went first");
    };
    assert!(matches!(frames.next(), Some(Ok(Frame::Data { stream, .. })) if stream == urgent));
    let second = pair.ends[0].next_message(pair.now).unwrap();
    assert!(
        matches!(Message::parse(&second.memory), Ok(Message::Chunk { stream, .. }) if stream == late)
    );
}

#[test]
fn Engine__half_close_leaves_the_other_direction() {
    let mut pair = Pair::new(4, Duration::from_millis(1), Duration::ZERO);
    let id = pair.open(0);
    pair.write(0, id, 0, 100);
    pair.ends[0].finish(id);
    settle(&mut pair);
    assert_eq!(pair.read(1, id, 0, 1000), 100);
    assert!(pair.ends[1].is_over(id));
    assert_eq!(pair.write(0, id, 100, 1), 0, "it has finished");
    pair.write(1, id, 0, 5000);
    pair.ends[1].finish(id);
    settle(&mut pair);
    assert_eq!(pair.read(0, id, 0, 10_000), 5000);
    assert!(pair.ends[0].is_over(id));
    (0..2).for_each(|end| pair.ends[end].release(id));
    assert_eq!((pair.ends[0].streams(), pair.ends[1].streams()), (0, 0));
}

#[test]
fn Engine__an_aborted_stream_is_reset_behind_what_was_written() {
    let mut pair = Pair::new(9, Duration::from_millis(5), Duration::ZERO);
    let id = pair.open(0);
    while pair.step() {}
    pair.ends[1].accept(id);
    for len in [0, 10, 40_000] {
        let id = if len == 0 { id } else { pair.open(0) };
        let filled = pair.ends[0].fill(id, |place| {
            place[..len].fill(7);
            Ok(len)
        });
        assert!(matches!(filled, Fill::Asked(Ok(it)) if it == len));
        pair.ends[0].abort(id, ResetCode::Aborted, "failed");
        assert!(matches!(pair.ends[0].fill(id, |_| Ok(1)), Fill::Ended));
        let mut read = 0;
        while pair.step() {
            while let here @ 1.. = pair.ends[1].readable(id).len() {
                pair.ends[1].consume(id, here);
                read += here;
            }
        }
        assert_eq!(read, len);
        let reset = pair.ends[1].reset_reason(id).expect("a reset");
        assert_eq!(reset.words, "failed");
        pair.ends[1].release(id);
        assert!(pair.ends[0].is_flushed());
    }
    while pair.step() {}
    assert_eq!(pair.ends[0].streams() + pair.ends[1].streams(), 0);
}

#[test]
fn Engine__a_released_stream_that_is_still_written_is_reset() {
    let mut pair = Pair::new(5, Duration::from_millis(1), Duration::ZERO);
    let id = pair.open(0);
    settle(&mut pair);
    pair.ends[1].release(id);
    settle(&mut pair);
    assert!(pair.ends[0].is_over(id), "an end, not a reset");
    pair.write(0, id, 0, 10);
    settle(&mut pair);
    let reason = pair.ends[0].reset_reason(id).expect("it was reset");
    assert_eq!(reason.code, ResetCode::Aborted);
    assert_eq!(pair.ends[1].streams(), 0);
    pair.ends[0].release(id);
    assert_eq!(pair.ends[0].streams(), 0);
}

#[test]
fn Engine__more_streams_than_allowed_are_refused() {
    let mut pair = Pair::new(6, Duration::from_millis(1), Duration::ZERO);
    let streams: Vec<_> = (0..MAX_STREAMS).map(|_| pair.open(0)).collect();
    assert_eq!(pair.ends[0].open(b"", None), Err(OpenError::TooMany));
    // The peer counts for itself.
    pair.ends[0].own = 0;
    let more = pair.open(0);
    settle(&mut pair);
    let reason = pair.ends[0].reset_reason(more).expect("refused");
    assert_eq!(reason.code, ResetCode::TooMany);
    assert!(pair.ends[0].reset_reason(streams[0]).is_none());
}

/// What the acceptor says to a message, behind a hello and a stream 0 with 10 bytes.
fn said(frames: &[Frame<'_>]) -> Result<(), Violation> {
    let mut end = Engine::new(Role::Acceptor);
    let mut take = |frames: &[Frame<'_>]| {
        let mut bundle = Vec::new();
        frames.iter().for_each(|it| it.write(&mut bundle));
        let (number, mut memory) = end.next_receive().unwrap().unwrap();
        memory[..bundle.len()].copy_from_slice(&bundle);
        end.on_message(number, memory, bundle.len())
    };
    take(&[Frame::Hello { version: VERSION }])?;
    take(&[
        Frame::Open {
            stream: StreamId(0),
            priority: 0,
            purpose: b"",
        },
        Frame::Data {
            stream: StreamId(0),
            offset: 0,
            bytes: &[0; 10],
        },
    ])?;
    take(frames)
}

#[test]
fn Engine__hostile_frames_are_refused() {
    let stream = StreamId(0);
    let data = |offset| Frame::Data {
        stream,
        offset,
        bytes: &[0; 10],
    };
    for (frames, expected) in [
        (vec![Frame::Hello { version: VERSION }], Violation::Hello),
        (vec![data(0)], Violation::Twice),
        (vec![data(9)], Violation::Twice),
        (vec![data(100), data(100)], Violation::Twice),
        (vec![data(15), data(10)], Violation::Twice),
        (vec![data(WINDOW - 9)], Violation::Credit),
        (vec![data(u64::MAX - 3)], Violation::Credit),
        (vec![Frame::Finish { stream, length: 9 }], Violation::Length),
        (
            vec![Frame::Finish {
                stream,
                length: WINDOW + 1,
            }],
            Violation::Length,
        ),
        (
            vec![
                Frame::Finish { stream, length: 10 },
                Frame::Finish { stream, length: 10 },
            ],
            Violation::Length,
        ),
        (
            vec![Frame::Finish { stream, length: 15 }, data(10)],
            Violation::Length,
        ),
        (
            vec![Frame::Open {
                stream,
                priority: 0,
                purpose: b"",
            }],
            Violation::NoStream,
        ),
        (
            vec![Frame::Open {
                stream: StreamId(1),
                priority: 0,
                purpose: b"",
            }],
            Violation::NoStream,
        ),
        (
            vec![Frame::Open {
                stream: StreamId(4),
                priority: 0,
                purpose: b"",
            }],
            Violation::NoStream,
        ),
        (
            vec![Frame::Data {
                stream: StreamId(2),
                offset: 0,
                bytes: b"",
            }],
            Violation::NoStream,
        ),
        (
            vec![Frame::Credit {
                stream: StreamId(1),
                limit: 1,
            }],
            Violation::NoStream,
        ),
        (vec![Frame::Accept { stream }], Violation::NoStream),
        (
            vec![Frame::Reset {
                stream: StreamId(u64::MAX),
                code: 0,
                words: "",
            }],
            Violation::NoStream,
        ),
    ] {
        assert_eq!(said(&frames), Err(expected), "{frames:?}");
    }
    assert_eq!(said(&[data(10)]), Ok(()));
    assert_eq!(
        said(&[Frame::Credit {
            stream,
            limit: u64::MAX
        }]),
        Ok(())
    );
    let gaps: Vec<_> = (0..=MAX_AHEAD).map(|it| data(20 + 20 * it)).collect();
    assert_eq!(said(&gaps), Err(Violation::Ahead));
}

#[test]
fn Engine__a_peer_of_another_version_is_told() {
    let mut end = Engine::new(Role::Acceptor);
    let mut bundle = Vec::new();
    Frame::Hello { version: 9 }.write(&mut bundle);
    let (number, mut memory) = end.next_receive().unwrap().unwrap();
    memory[..bundle.len()].copy_from_slice(&bundle);
    let said = end.on_message(number, memory, bundle.len()).unwrap_err();
    assert!(said.to_string().contains("version 9"), "{said}");
}

#[test]
fn Engine__opens_and_resets_without_end_cost_bounded_memory() {
    let mut end = Engine::new(Role::Acceptor);
    let mut next = 0;
    let mut refused = None;
    for round in 0..100_000 {
        let mut bundle = Vec::new();
        if round == 0 {
            Frame::Hello { version: VERSION }.write(&mut bundle);
        }
        while bundle.len() < BUNDLE_BYTES {
            // Never read, so that nothing but the limit of what is owed ends it.
            Frame::Open {
                stream: StreamId(next),
                priority: 0,
                purpose: b"",
            }
            .write(&mut bundle);
            next += 2;
        }
        let (number, mut memory) = end.next_receive().unwrap().unwrap();
        memory[..bundle.len()].copy_from_slice(&bundle);
        if let Err(why) = end.on_message(number, memory, bundle.len()) {
            refused = Some(why);
            break;
        }
    }
    assert_eq!(refused, Some(Violation::TooManyOwed));
    assert!(end.streams() <= MAX_STREAMS && end.owed.len() <= MAX_OWED + 1);
}
