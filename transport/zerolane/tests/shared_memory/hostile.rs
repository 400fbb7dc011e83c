//! Tests that a peer that writes arbitrary words into the rings ends only its own connection.

use crate::child::{Job, SWAPPED, child, lane_of, swap};
use crate::random::{Random, seeds};
use crate::{LEN, PATIENCE, accept, is_all, options};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Child;
use std::time::{Duration, Instant};
use zerolane::failure::CloseReason;
use zerolane::options::LaneChoice;
use zerolane::request::WorkKind;
use zerolane::{Connection, Endpoint, Error, Region};

const FILL: u8 = 0xee;
const AROUND: usize = 4096;

/// Offsets of the rings' words longer than 4 bytes: how far each was written, which part is retired, how far it was
/// read, and the word by which a process tests whether it may read the other.
const LONG: [u64; 10] = [0, 8, 64, 128, 136, 192, 264, 272, 328, 336];
/// Those of them that are not indices: they end no connection.
const NO_INDICES: [u64; 6] = [8, 136, 264, 272, 328, 336];
/// Offsets of words of 4 bytes: who sleeps, and which payload comes by reference.
const SHORT: [u64; 4] = [256, 260, 320, 324];

/// Changes of words after which the peer ends. Their number, and no time, bounds a round on a machine of any speed.
const TEARS: u32 = 4000;

/// Whether the rounds of this seed leave the indices alone, so that Transfers run for longer.
fn is_gentle(seed: u64) -> bool {
    !seed.is_multiple_of(2)
}

/// The peer's view of the rings, for writes that bypass the library.
struct Words {
    memory: File,
    start: u64,
}

impl Words {
    fn of_this_process() -> Words {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
        let rings = maps.lines().find(|it| it.contains("memfd:zerolane"));
        let (start, _) = rings.and_then(|it| it.split_once('-')).expect("mapped");
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/proc/self/mem");
        Words {
            memory: memory.expect("this process's own"),
            start: u64::from_str_radix(start, 16).expect("an address"),
        }
    }

    /// Once the connection is over, the memory may be unmapped.
    fn write(&self, at: u64, bytes: &[u8]) {
        let _ = self.memory.write_at(bytes, self.start + at);
    }

    fn read(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        let _ = self.memory.read_at(&mut word, self.start + at);
        u64::from_ne_bytes(word)
    }

    /// Changes one word: half of it, to an old value, to a slightly larger one, or out of bounds.
    fn tear(&self, words: &[u64], random: &mut Random, before: &mut HashMap<u64, u64>) {
        let at = words[random.below(words.len() as u64) as usize];
        let now = self.read(at);
        let half = (random.next() as u32).to_ne_bytes();
        match random.below(6) {
            0 => self.write(at + 4 * random.below(2), &half),
            1 => {
                let old = before.insert(at, now).unwrap_or(0);
                self.write(at, &old.to_ne_bytes());
            }
            2 => self.write(at, &(now.wrapping_add(8 * random.below(64))).to_ne_bytes()),
            3 => self.write(at, &(now ^ 1 << random.below(64)).to_ne_bytes()),
            4 => self.write(
                at,
                &[0u64, u64::MAX, 1 << 63][random.below(3) as usize].to_ne_bytes(),
            ),
            _ => self.write(SHORT[random.below(4) as usize], &half),
        }
    }
}

/// Swaps, and meanwhile changes words [`TEARS`] times. Then the process ends.
pub(crate) fn tear(connection: &mut Connection, seed: u64) {
    let words = Words::of_this_process();
    let torn: &[u64] = match is_gentle(seed) {
        true => &NO_INDICES,
        false => &LONG,
    };
    let mut random = Random::new(seed);
    let tearing = std::thread::spawn(move || {
        let mut before = HashMap::new();
        std::thread::sleep(random.micros(20_000));
        for _ in 0..TEARS {
            words.tear(torn, &mut random, &mut before);
            std::thread::sleep(random.micros(300));
        }
        std::process::exit(0);
    });
    // The content may be anything.
    while connection.recv_into(&mut vec![0; LEN]).is_ok() {
        let _ = connection.send(&vec![1; LEN]);
    }
    // The peer must also detect it by the words in memory.
    let _ = tearing.join();
}

/// Sends and receives until the end of the connection, which follows that of the `peer`; each request ends once, and the
/// guards around granted memory are unchanged.
fn suffer(connection: &mut Connection, peer: &mut Child) -> Error {
    let post = |connection: &mut Connection| {
        let mut before = Region::from_vec(vec![FILL; LEN + 2 * AROUND]);
        let mut middle = before.split_off(AROUND);
        let after = middle.split_off(LEN);
        let id = connection.post_recv(middle).ok()?;
        Some((id, [before, after]))
    };
    let send = |connection: &mut Connection| {
        let region = Region::from_vec(vec![2; LEN]);
        usize::from(connection.post_send(region).is_ok())
    };
    let mut around: HashMap<_, _> = (0..2).filter_map(|_| post(connection)).collect();
    let mut sending = send(connection);
    let mut gone: Option<Instant> = None;
    let over = loop {
        if gone.is_none() && peer.try_wait().expect("ours").is_some() {
            gone = Some(Instant::now());
        }
        let late = gone.is_some_and(|gone| gone.elapsed() > PATIENCE);
        assert!(!late, "{:#?}", connection.account());
        match connection
            .wait(Some(Duration::from_millis(100)))
            .map(zerolane::Waited::got)
        {
            Ok(None) => {}
            Ok(Some(done)) if done.kind() == WorkKind::Receive => {
                let regions = around.remove(&done.id).expect("ended once");
                let untouched = |it: &Region| is_all(it, FILL);
                assert!(regions.iter().all(untouched), "around {:?}", done.result);
                around.extend(post(connection));
            }
            Ok(Some(done)) => {
                sending -= 1;
                let sent = done.into_region().expect("a region");
                assert!(is_all(&sent, 2), "what was sent");
                sending += send(connection);
            }
            Err(over) => break over,
        }
    };
    assert!(around.is_empty() && sending == 0, "each ends");
    over
}

/// Its connection ends with a specific error; those of others, in the same process, have the right content.
#[test]
fn hostile__words_torn_and_repeated_while_transfers_run_end_nothing_but_the_connection() {
    let patient =
        options(LaneChoice::SharedMemory).with(|it| it.times.idle = Duration::from_secs(600));
    let mut faults = 0;
    let listen = || Endpoint::bind("127.0.0.1:0", patient.clone()).expect("a port");
    for seed in seeds(8) {
        let (mut hostile, mut honest) = (listen(), listen());
        let tears = Job {
            then: "tear",
            seed,
            ..Job::SEND
        };
        let swaps = Job {
            then: "swap",
            ..Job::SEND
        };
        let (mut tearing, mut said) = child(hostile.local_addr(), &tears);
        let mut torn = accept(&mut hostile);
        assert!(lane_of(&mut said).starts_with("SharedMemory"));
        let (mut swapping, _said) = child(honest.local_addr(), &swaps);
        let mut right = accept(&mut honest);
        right.set_timeout(Some(PATIENCE));
        let over = std::thread::scope(|scope| {
            let swapped = scope.spawn(|| swap(&mut right, [1, 0], SWAPPED));
            let over = suffer(&mut torn, &mut tearing);
            let swapped = swapped.join().expect("right content");
            swapped.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            over
        });
        let fault = torn.account().ring_fault;
        eprintln!("seed {seed}: {over}, {fault:?}");
        let named = match over {
            Error::Closed(CloseReason::Violation) => fault.is_some(),
            // It detected it first, because both read the changed words; or it ended.
            Error::Closed(CloseReason::PeerDead | CloseReason::Peer(_)) => fault.is_none(),
            _ => false,
        };
        assert!(named, "seed {seed}: {over}, {fault:?}");
        faults += u32::from(fault.is_some());
        tearing.kill().expect("ours");
        tearing.wait().expect("killed");
        assert!(swapping.wait().expect("done").success(), "seed {seed}");
    }
    assert!(faults > 0, "it was never this end that found out");
}
