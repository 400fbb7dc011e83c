//! Tests that datagrams arrive whole and once, or not at all.

use crate::content;
use crate::drive::{PATIENCE, both, transfer};
use crate::path::{Path, plain};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use zerolane::failure::PostError;
use zerolane::options::{Profile, Profiles};
use zerolane::{Connection, Error, Options};

/// How long the answer to a datagram is awaited before another is sent.
const ROUND: Duration = Duration::from_millis(200);
/// Datagrams sent without waiting for answers.
const STREAM: u64 = 300;

/// A datagram of `len` bytes, at least 8, that `seed` names.
fn datagram(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    content::fill(seed, &mut bytes[8..]);
    bytes
}

/// The seed of a datagram, whose content is verified.
fn seed_of(datagram: &[u8]) -> u64 {
    let (seed, rest) = datagram.split_first_chunk().expect("8 bytes");
    let seed = u64::from_le_bytes(*seed);
    content::verify(seed, rest);
    seed
}

fn lengths(longest: usize, stu: usize) -> Vec<usize> {
    let edges = [8, 100, stu - 1, stu, stu + 1, 3 * stu, 20_000, longest - 1];
    let fit = edges.into_iter().filter(|&it| (8..longest).contains(&it));
    fit.chain([longest]).collect()
}

/// Datagrams of every length are answered by the same, until one of each length came back; then many at once, while a
/// Transfer is sent.
pub fn arrive_whole_and_once(path: Path, base: &Options) {
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    let stu = pair.a.account().stu as usize;
    // Where much is lost, hardly any long datagram would be whole.
    let longest = match path {
        Path::Lossy(loss) | Path::Ip118Lossy(loss) if loss > 0.02 => 3 * stu,
        _ => 60 << 10,
    };
    let echo = |b: &mut Connection| {
        let mut seen = HashSet::new();
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until, "no end in {PATIENCE:?}");
            let Some(it) = b.recv_datagram(Some(ROUND)).expect("open").got() else {
                continue;
            };
            if it.len() == 1 {
                return seen.len();
            }
            assert!(seen.insert(seed_of(&it)), "came twice");
            b.send_datagram(it).expect("sent");
        }
    };
    let ask = |a: &mut Connection| {
        assert_eq!(a.max_datagram(), 60 << 10);
        let mut seed = 0;
        for len in lengths(longest, stu) {
            let until = Instant::now() + PATIENCE;
            loop {
                assert!(Instant::now() < until, "{len} bytes never came back");
                seed += 1;
                a.send_datagram(datagram(seed, len)).expect("sent");
                let came = a.recv_datagram(Some(ROUND)).expect("open").got();
                if came.is_some_and(|it| seed_of(&it) <= seed && it.len() == len) {
                    break;
                }
            }
        }
        seed
    };
    // The end is told until it is heard.
    let done = std::sync::atomic::AtomicBool::new(false);
    both(
        &mut pair,
        |a| {
            let sent = ask(a);
            while !done.load(std::sync::atomic::Ordering::Acquire) {
                a.send_datagram([1]).expect("sent");
                let _ = a.recv_datagram(Some(Duration::from_millis(5)));
            }
            sent
        },
        |b| {
            let seen = echo(b);
            done.store(true, std::sync::atomic::Ordering::Release);
            assert!(seen >= lengths(longest, stu).len());
        },
    );
    while pair.b.next_datagram().is_some() {}
    transfer(&mut pair, 7, &[1 << 20]);
}

/// Many at once: what is sent is either received, or counted as dropped somewhere, and nothing comes twice.
pub fn many_at_once(path: Path, base: &Options) {
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    let ((), received) = both(
        &mut pair,
        |a| {
            for seed in 0..STREAM {
                let len = if seed.is_multiple_of(3) {
                    60 << 10
                } else {
                    900
                };
                let datagram = datagram(seed, len);
                loop {
                    match a.send_datagram(datagram.clone()) {
                        Ok(()) => break,
                        Err(Error::Post(PostError::Full)) => {
                            let _ = a.recv_datagram(Some(Duration::from_millis(1)));
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            while a.datagram_bytes() > 0 {
                let _ = a.recv_datagram(Some(Duration::from_millis(1)));
            }
            a.send(b"end").expect("received");
        },
        |b| {
            let mut seen = HashSet::new();
            let receive = b
                .post_recv(zerolane::Region::anonymous(8).expect("memory"))
                .expect("posted");
            loop {
                let over = b.wait_for(receive, Some(Duration::ZERO)).expect("open");
                while let Some(it) = b.next_datagram() {
                    assert!(seen.insert(seed_of(&it)), "came twice");
                }
                if let Some(Some(it)) = over.got() {
                    it.result.expect("received");
                    break;
                }
                let _ = b.recv_datagram(Some(Duration::from_millis(1))).map(|it| {
                    it.got()
                        .map(|it| assert!(seen.insert(seed_of(&it)), "came twice"))
                });
            }
            seen.len() as u64
        },
    );
    let late = std::iter::from_fn(|| pair.b.next_datagram()).count() as u64;
    let received = received + late;
    let (a, b) = (pair.a.account(), pair.b.account());
    let left = a.protocol.unreliable_sent;
    assert_eq!(left + a.protocol.unreliable_expired, STREAM, "{a:#?}");
    assert!(received > 0 && received <= left, "{received} of {left}");
    assert_eq!(
        b.protocol.unreliable_received,
        received + b.unreliable_unread
    );
}

#[test]
fn datagrams__go_as_trains_where_they_can() {
    for base in [Options::default(), plain()] {
        let Some(mut pair) = Path::Veth(1500).connect(&base) else {
            return;
        };
        let until = Instant::now() + PATIENCE;
        let mut seed = 0;
        while pair.b.account().protocol.trains_received < 5 {
            assert!(Instant::now() < until, "{:#?}", pair.b.account());
            seed += 1;
            match pair.a.send_datagram(datagram(seed, 60 << 10)) {
                // On a busy machine they leave later.
                Ok(()) | Err(Error::Post(PostError::Full)) => {}
                Err(other) => panic!("{other:?}"),
            }
            while let Some(it) = pair
                .b
                .recv_datagram(Some(Duration::ZERO))
                .expect("open")
                .got()
            {
                seed_of(&it);
            }
            let _ = pair.a.recv_datagram(Some(Duration::ZERO));
        }
    }
}

#[test]
fn datagrams__refused_with_the_reason() {
    let pair = Path::LoopbackV4.connect(&Options::default());
    let mut pair = pair.expect("always permitted");
    for len in [0, (60 << 10) + 1] {
        let refused = pair.a.send_datagram(vec![0; len]);
        assert!(matches!(
            refused,
            Err(Error::Post(PostError::DatagramLength))
        ));
    }
    let classic = Options::default().with(|it| it.profiles = Profiles::only(Profile::Classic));
    let pair = Path::LoopbackV4.connect_with(&classic, &classic);
    let mut pair = pair.expect("always permitted");
    assert_eq!(pair.a.max_datagram(), 0);
    let refused = pair.a.send_datagram([1]);
    assert!(matches!(refused, Err(Error::Post(PostError::NoDatagrams))));
}

#[test]
fn datagrams__beyond_the_queue_are_refused_and_expire() {
    let slow = Options::default().with(|it| {
        it.rate.max = Some(100_000);
        // Long enough for a busy machine to fill the queue first.
        it.times.datagram = Duration::from_secs(1);
    });
    let pair = Path::LoopbackV4.connect(&slow);
    let mut pair = pair.expect("always permitted");
    let all: Vec<_> = (0..200).map(|seed| datagram(seed, 60 << 10)).collect();
    let refused = all
        .into_iter()
        .find_map(|it| pair.a.send_datagram(it).err());
    assert!(
        matches!(refused, Some(Error::Post(PostError::Full))),
        "{refused:?}"
    );
    let until = Instant::now() + PATIENCE;
    while pair.a.account().protocol.unreliable_expired == 0 {
        assert!(Instant::now() < until);
        let _ = pair.a.recv_datagram(Some(Duration::from_millis(5)));
    }
    assert!(pair.a.account().protocol.unreliable_refused > 0);
}
