//! Resolves names of hosts: a listener answers questions for its name, and an Initiator asks all hosts of a segment.
//!
//! The message format is in `zerolane_wire::discovery`. An answer is only a hint: any host of the segment can forge it.

use crate::unavailable::NoEthernet;

use super::{filter, socket};
use crate::address;
use crate::address::ethernet::{EthernetAddress, Hardware, Station};
use crate::seal::security;
use crate::wait::poll;
use socket2::Socket;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use zerolane_wire::discovery::{Discovery, DiscoveryKind, is_neighbour_name};

/// Most times that a question is asked, and how long each waits for answers.
const TRIES: u32 = 4;
const PATIENCE: Duration = Duration::from_millis(250);
/// How long other hosts may answer after the first one.
const GRACE: Duration = Duration::from_millis(100);
/// Most answers that are kept.
const MOST: usize = 256;
/// Most answers of a listener in each [`WINDOW`].
const ANSWERS: u32 = 32;
const WINDOW: Duration = Duration::from_millis(100);
/// All hosts of a segment.
const BROADCAST: Hardware = [0xff; 6];

/// A listener of raw Ethernet on the same segment, by its own claim. Only a connection proves it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Neighbour {
    /// The name that its host claims.
    pub name: String,
    /// Its listening address, by this host's interface.
    pub address: EthernetAddress,
}

/// The name that a listener claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum NeighbourName {
    /// This host's name, up to the first dot.
    #[default]
    Host,
    /// This name: 1 to 63 ASCII letters, digits, `-`, `_` and `.`. A listener with any other name does not answer.
    Named(String),
    /// The listener answers no question.
    Silent,
}

impl NeighbourName {
    fn text(&self) -> Option<String> {
        let name = match self {
            NeighbourName::Silent => return None,
            NeighbourName::Named(name) => name.clone(),
            NeighbourName::Host => {
                let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
                name.trim().split('.').next()?.to_owned()
            }
        };
        Some(name).filter(|it| is_neighbour_name(it))
    }
}

/// A listener's answers, and their rate limit.
#[derive(Debug)]
pub(crate) struct Answering {
    name: Option<String>,
    port: u16,
    /// Start of the present window, and the answers in it.
    window: Option<Instant>,
    answered: u32,
}

impl Answering {
    pub(crate) fn new(name: &NeighbourName, port: u16) -> Answering {
        Answering {
            name: name.text(),
            port,
            window: None,
            answered: 0,
        }
    }

    /// The answer to `frame`, of the same length, if it is a question that should be answered.
    pub(crate) fn answer(&mut self, frame: &[u8], now: Instant) -> Option<Vec<u8>> {
        let name = self.name.as_deref()?;
        let question = Discovery::parse(frame).ok()?;
        let asked = question.name.is_empty() || question.name.eq_ignore_ascii_case(name);
        if question.kind != DiscoveryKind::Question || !asked {
            return None;
        }
        if self
            .window
            .is_none_or(|it| now.saturating_duration_since(it) >= WINDOW)
        {
            (self.window, self.answered) = (Some(now), 0);
        }
        self.answered += 1;
        let answer = Discovery {
            kind: DiscoveryKind::Answer,
            port: self.port,
            nonce: question.nonce,
            name,
        };
        (self.answered <= ANSWERS).then(|| answer.emit().to_vec())
    }
}

/// The listeners of raw Ethernet reachable through this host's interface of that name that answer within a second:
/// those that claim `name`, or all that are not silent. At most 256.
///
/// # Errors
/// [`NoEthernet`]: there is no such interface, or this process may not use packet sockets.
pub fn neighbours(interface: &str, name: Option<&str>) -> io::Result<Vec<Neighbour>> {
    let (own, _) = address::ethernet::link(interface)?;
    let random = security::random()?;
    let mut nonce = [0; 8];
    nonce.copy_from_slice(&random[..8]);
    let question = Discovery {
        kind: DiscoveryKind::Question,
        port: 0,
        nonce,
        name: name.unwrap_or(""),
    };
    let (socket, _) = socket::open(own, &filter::of_answers(nonce))?;
    let all = Station {
        interface: own,
        hardware: Some(BROADCAST),
        port: 0,
    };
    let mut found = Vec::new();
    for _ in 0..TRIES {
        socket::send(&socket, &question.emit(), all)?;
        let mut until = Instant::now() + PATIENCE;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if !poll::wait(Some(socket.as_fd()), false, [None, None], Some(left))?.socket {
                break;
            }
            let had = found.len();
            take(&socket, &question, interface, &mut found)?;
            // One host is wanted, and one has answered: others with that name have little time left.
            if name.is_some() && had == 0 && !found.is_empty() {
                until = until.min(Instant::now() + GRACE);
            }
        }
        if name.is_some() && !found.is_empty() {
            break;
        }
    }
    Ok(found)
}

/// Adds the answers that have arrived to `found`.
fn take(
    socket: &Socket,
    question: &Discovery<'_>,
    interface: &str,
    found: &mut Vec<Neighbour>,
) -> io::Result<()> {
    for _ in 0..MOST {
        let Some(arrived) = socket::receive(socket)? else {
            break;
        };
        let socket::ListenerFrame::Discovery(frame, from) = arrived else {
            continue;
        };
        let Some(answer) = answer_to(question, &frame) else {
            continue;
        };
        let neighbour = Neighbour {
            name: answer.name.to_owned(),
            address: EthernetAddress::new(interface, from.hardware, answer.port),
        };
        if found.len() < MOST && !found.contains(&neighbour) {
            found.push(neighbour);
        }
    }
    Ok(())
}

/// The content of `frame`, if it answers `question`.
fn answer_to<'a>(question: &Discovery<'_>, frame: &'a [u8]) -> Option<Discovery<'a>> {
    let answer = Discovery::parse(frame).ok()?;
    let is_its = answer.kind == DiscoveryKind::Answer && answer.nonce == question.nonce;
    let asked = question.name.is_empty() || question.name.eq_ignore_ascii_case(answer.name);
    (is_its && asked && answer.port != 0).then_some(answer)
}

/// The hardware address of the only host behind `interface` that claims `name`.
///
/// # Errors
/// As [`neighbours`]; [`NoEthernet::NoNeighbour`], [`NoEthernet::SeveralNeighbours`].
pub(crate) fn resolve(interface: &str, name: &str) -> io::Result<Hardware> {
    one_of(name, &neighbours(interface, Some(name))?).map_err(Into::into)
}

fn one_of(name: &str, found: &[Neighbour]) -> Result<Hardware, NoEthernet> {
    let mut all: Vec<Hardware> = found
        .iter()
        .filter_map(|it| it.address.hardware())
        .collect();
    all.sort_unstable();
    all.dedup();
    match all[..] {
        [] => Err(NoEthernet::NoNeighbour(name.to_owned())),
        [one] => Ok(one),
        _ => {
            let all: Vec<String> = all
                .iter()
                .map(|it| address::ethernet::hardware_text(*it))
                .collect();
            Err(NoEthernet::SeveralNeighbours(format!(
                "{name}: {}",
                all.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    const QUESTION: Discovery<'_> = Discovery {
        kind: DiscoveryKind::Question,
        port: 0,
        nonce: [7; 8],
        name: "Box",
    };

    fn answering() -> Answering {
        Answering::new(&NeighbourName::Named("box".into()), 9)
    }

    #[test]
    fn answer__to_its_name_and_to_none() {
        let now = Instant::now();
        let of = |question: Discovery<'_>| answering().answer(&question.emit(), now);
        let expected = Discovery {
            kind: DiscoveryKind::Answer,
            port: 9,
            name: "box",
            ..QUESTION
        };
        assert_eq!(of(QUESTION), Some(expected.emit().to_vec()));
        assert_eq!(
            of(Discovery {
                name: "",
                ..QUESTION
            }),
            of(QUESTION)
        );
        assert_eq!(
            of(Discovery {
                name: "boxes",
                ..QUESTION
            }),
            None
        );
        assert_eq!(of(expected), None, "no answer to an answer");
        let long = [&QUESTION.emit()[..], &[0]].concat();
        assert_eq!(answering().answer(&long, now), None);
        for silent in [NeighbourName::Silent, NeighbourName::Named("a b".into())] {
            let answer = Answering::new(&silent, 9).answer(&QUESTION.emit(), now);
            assert_eq!(answer, None);
        }
    }

    #[test]
    fn answer__so_many_in_a_time() {
        let (mut answering, start) = (answering(), Instant::now());
        let mut count = |now| {
            let asked = (0..ANSWERS * 3).map(|_| answering.answer(&QUESTION.emit(), now));
            asked.flatten().count()
        };
        assert_eq!(count(start), ANSWERS as usize);
        assert_eq!(count(start + WINDOW / 2), 0);
        assert_eq!(count(start + WINDOW), ANSWERS as usize);
    }

    #[test]
    fn answer_to__what_was_asked_alone() {
        let good = Discovery {
            kind: DiscoveryKind::Answer,
            port: 9,
            ..QUESTION
        };
        let is_taken = |it: Discovery<'_>| answer_to(&QUESTION, &it.emit()).is_some();
        assert!(
            is_taken(good)
                && is_taken(Discovery {
                    name: "BOX",
                    ..good
                })
        );
        assert!(!is_taken(QUESTION));
        assert!(!is_taken(Discovery { port: 0, ..good }));
        assert!(!is_taken(Discovery {
            nonce: [8; 8],
            ..good
        }));
        assert!(!is_taken(Discovery {
            name: "other",
            ..good
        }));
    }

    #[test]
    fn one_of__several_hosts_are_listed() {
        let of = |last| Neighbour {
            name: "box".into(),
            address: EthernetAddress::new("eth0", Some([2, 0, 0, 0, 0, last]), 9),
        };
        assert!(matches!(
            one_of("box", &[]),
            Err(NoEthernet::NoNeighbour(_))
        ));
        // Several listeners of one host.
        assert_eq!(one_of("box", &[of(1), of(1)]), Ok([2, 0, 0, 0, 0, 1]));
        let words = one_of("box", &[of(2), of(1)]).expect_err("two").to_string();
        assert!(
            words.contains("box: 02:00:00:00:00:01, 02:00:00:00:00:02"),
            "{words}"
        );
    }
}
