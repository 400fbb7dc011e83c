//! Tests that senders are found by their channel.

#![allow(non_snake_case)]
use super::super::links::links;
use super::*;
use std::collections::HashSet;
use std::time::Instant;

fn lo() -> Vec<Link> {
    links(&["lo".into()]).unwrap()
}

/// A channel that no other test uses.
fn channel(test: u16) -> u16 {
    (std::process::id() as u16)
        .wrapping_mul(31)
        .wrapping_add(test)
        % 10_000
}

/// Asks until `count` places have answered.
fn find(search: &Search, count: usize) -> HashSet<SocketAddr> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut found = HashSet::new();
    while found.len() < count && Instant::now() < deadline {
        search.ask().unwrap();
        search.hear(|place| {
            found.insert(place);
        });
    }
    found
}

#[test]
fn Word__is_read_as_it_was_written_and_nothing_else() {
    let word = Word {
        kind: ANSWER,
        channel: 9999,
        nonce: *b"0123456789abcdef",
        port: 4711,
    };
    let bytes = word.emit();
    assert_eq!(Word::parse(&bytes), Some(word));
    for len in 0..LEN {
        assert_eq!(Word::parse(&bytes[..len]), None);
    }
    assert_eq!(Word::parse(&[&bytes[..], b"x"].concat()), None);
    for at in 0..MAGIC.len() {
        let mut other = bytes;
        other[at] ^= 1;
        assert_eq!(Word::parse(&other), None);
    }
}

#[test]
fn Search__finds_all_of_its_channel_and_no_other() {
    let (mine, other) = (channel(1), channel(2));
    let _beacons = [(mine, 11), (mine, 12), (other, 13)]
        .map(|(channel, port)| Beacon::new(&lo(), channel, port).unwrap());
    let search = Search::new(&lo(), mine, [7; NONCE]).unwrap();
    let expected = [11, 12].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    assert_eq!(find(&search, 2), HashSet::from(expected));
}

#[test]
fn Search__answers_to_other_questions_count_for_nothing() {
    let search = Search::new(&lo(), channel(3), [7; NONCE]).unwrap();
    let place = search.mouths[0].1.local_addr().unwrap();
    let liar = UdpSocket::bind("127.0.0.1:0").unwrap();
    let right = Word {
        kind: ANSWER,
        port: 11,
        ..search.question
    };
    for wrong in [
        search.question,
        Word { port: 0, ..right },
        Word {
            channel: right.channel ^ 1,
            ..right
        },
        Word {
            nonce: [8; NONCE],
            ..right
        },
    ] {
        liar.send_to(&wrong.emit(), place).unwrap();
    }
    liar.send_to(b"garbage", place).unwrap();
    liar.send_to(&right.emit(), place).unwrap();
    let mut heard = Vec::new();
    while heard.is_empty() {
        search.hear(|place| heard.push(place));
    }
    assert_eq!(heard, [SocketAddr::from(([127, 0, 0, 1], 11))]);
}

#[test]
fn Search__a_flood_is_taken_in_bounded_turns() {
    let search = Search::new(&lo(), channel(4), [7; NONCE]).unwrap();
    let place = search.mouths[0].1.local_addr().unwrap();
    let liar = UdpSocket::bind("127.0.0.1:0").unwrap();
    for port in 1..=300 {
        let answer = Word {
            kind: ANSWER,
            port,
            ..search.question
        };
        let _ = liar.send_to(&answer.emit(), place);
    }
    let mut heard = 0;
    search.hear(|_| heard += 1);
    assert_eq!(heard, ANSWERS_AT_ONCE);
}

#[test]
fn Askers__are_answered_on_one_network() {
    let [one, other] = [lo()[0], links(&[]).unwrap().pop().unwrap()];
    let mut askers = Askers::default();
    assert!(askers.may([1; NONCE], one));
    assert!(askers.may([1; NONCE], one), "the answer may be lost");
    assert_eq!(askers.may([1; NONCE], other), one == other);
    for nonce in 2..=255 {
        askers.may([nonce; NONCE], one);
    }
    assert_eq!(askers.0.len(), ASKERS);
}
