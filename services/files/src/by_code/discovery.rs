//! Finds the sender: the receiver broadcasts a question for a channel, and senders on it answer.
//!
//! ```text
//! | "ZLrv" | version 1 | kind | channel: u16 | random number of the asker: 16 | port: u16 |
//! ```
//! Question and answer have the same length, so that answers cannot amplify an attack. Both are in the open and prove
//! nothing: an answer is a place to try, and the key exchange there shows whether it is the right one.

use super::links::Link;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::limits::{ANSWERS_AT_ONCE, ASKERS, DISCOVERY_PORT};

const MAGIC: [u8; 5] = *b"ZLrv\x01";
const NONCE: usize = 16;
const LEN: usize = MAGIC.len() + 1 + 2 + NONCE + 2;
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;

/// How often a wait checks whether it must stop.
const LOOK: Duration = Duration::from_millis(50);
/// Pause after [`ANSWERS_AT_ONCE`] answers, which bounds the cost of a flood of questions.
const PAUSE: Duration = Duration::from_millis(10);

/// A question, or an answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    kind: u8,
    channel: u16,
    nonce: [u8; NONCE],
    /// Used in answers.
    port: u16,
}

impl Word {
    fn emit(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..5].copy_from_slice(&MAGIC);
        bytes[5] = self.kind;
        bytes[6..8].copy_from_slice(&self.channel.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.nonce);
        bytes[24..].copy_from_slice(&self.port.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Word> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let (magic, rest) = bytes.split_first_chunk::<5>()?;
        let (&[kind, a, b], rest) = rest.split_first_chunk::<3>()?;
        let (&nonce, rest) = rest.split_first_chunk::<NONCE>()?;
        let &[c, d] = rest.first_chunk::<2>()?;
        (*magic == MAGIC).then_some(Word {
            kind,
            channel: u16::from_le_bytes([a, b]),
            nonce,
            port: u16::from_le_bytes([c, d]),
        })
    }
}

/// Answers questions for a channel until it is dropped.
#[derive(Debug)]
pub(super) struct Beacon {
    stop: Arc<AtomicBool>,
    answering: Option<JoinHandle<()>>,
}

impl Beacon {
    /// Announces on these networks that the sender on `channel` listens at `port`.
    pub(super) fn new(links: &[Link], channel: u16, port: u16) -> io::Result<Beacon> {
        let ears = any(links.iter().map(|link| Ear::new(*link)))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let answering = thread::Builder::new()
            .name("beacon".into())
            .spawn(move || {
                let mut askers = Askers::default();
                while !stopped.load(Ordering::Acquire) {
                    if wait(ears.iter().map(|ear| &ear.questions)) {
                        for ear in &ears {
                            ear.answer(channel, port, &mut askers);
                        }
                        thread::sleep(PAUSE);
                    }
                }
            })?;
        Ok(Beacon {
            stop,
            answering: Some(answering),
        })
    }
}

impl Drop for Beacon {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(answering) = self.answering.take() {
            let _ = answering.join();
        }
    }
}

/// Recent askers, and the one network on which each is answered. A receiver that shares several networks with this host
/// would try each place, and a mistyped code would count as several wrong guesses.
#[derive(Debug, Default)]
struct Askers(VecDeque<([u8; NONCE], Link)>);

impl Askers {
    fn may(&mut self, nonce: [u8; NONCE], link: Link) -> bool {
        if let Some((_, first)) = self.0.iter().find(|(known, _)| *known == nonce) {
            return *first == link;
        }
        if self.0.len() == ASKERS {
            self.0.pop_front();
        }
        self.0.push_back((nonce, link));
        true
    }
}

/// The successful results; the last failure, if all failed.
fn any<T>(outcomes: impl Iterator<Item = io::Result<T>>) -> io::Result<Vec<T>> {
    let mut last = io::ErrorKind::NetworkUnreachable.into();
    let mut good = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(one) => good.push(one),
            Err(error) => last = error,
        }
    }
    match good.is_empty() {
        true => Err(last),
        false => Ok(good),
    }
}

/// One network that is listened on.
#[derive(Debug)]
struct Ear {
    link: Link,
    questions: UdpSocket,
    /// Answers are sent from this host's address there.
    answers: UdpSocket,
}

impl Ear {
    fn new(link: Link) -> io::Result<Ear> {
        let questions = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        // Several senders may run on one host: each hears every question.
        questions.set_reuse_address(true)?;
        // Bound to the broadcast address, the socket receives only this network's broadcasts.
        let place = SocketAddrV4::new(link.broadcast(), DISCOVERY_PORT);
        questions.bind(&SocketAddr::V4(place).into())?;
        questions.set_nonblocking(true)?;
        let answers = UdpSocket::bind((link.address, 0))?;
        answers.set_nonblocking(true)?;
        Ok(Ear {
            link,
            questions: questions.into(),
            answers,
        })
    }

    fn answer(&self, channel: u16, port: u16, askers: &mut Askers) {
        for _ in 0..ANSWERS_AT_ONCE {
            let Some((word, from)) = hear(&self.questions) else {
                return;
            };
            let asked = word.kind == QUESTION && word.channel == channel;
            if asked && self.link.holds(*from.ip()) && askers.may(word.nonce, self.link) {
                let answer = Word {
                    kind: ANSWER,
                    port,
                    ..word
                };
                // Another question follows soon.
                let _ = self.answers.send_to(&answer.emit(), from);
            }
        }
    }
}

/// Asks for the senders on a channel.
#[derive(Debug)]
pub(super) struct Search {
    mouths: Vec<(Link, UdpSocket)>,
    question: Word,
}

impl Search {
    /// `nonce` must be unpredictable: only a host that heard the question can answer it.
    pub(super) fn new(links: &[Link], channel: u16, nonce: [u8; NONCE]) -> io::Result<Search> {
        let mouth = |link: &Link| {
            let mouth = UdpSocket::bind((link.address, 0))?;
            mouth.set_broadcast(true)?;
            mouth.set_nonblocking(true)?;
            Ok((*link, mouth))
        };
        Ok(Search {
            mouths: any(links.iter().map(mouth))?,
            question: Word {
                kind: QUESTION,
                channel,
                nonce,
                port: 0,
            },
        })
    }

    /// Asks on every network; the last error, if no network could be asked.
    pub(super) fn ask(&self) -> io::Result<()> {
        let mut outcome = Err(io::ErrorKind::NetworkUnreachable.into());
        for (link, mouth) in &self.mouths {
            let everyone: (Ipv4Addr, u16) = (link.broadcast(), DISCOVERY_PORT);
            match mouth.send_to(&self.question.emit(), everyone) {
                Ok(_) => outcome = Ok(()),
                Err(error) if outcome.is_err() => outcome = Err(error),
                Err(_) => {}
            }
        }
        outcome
    }

    /// Waits for a moment, and passes answered places to `each`: a bounded number of them.
    pub(super) fn hear(&self, mut each: impl FnMut(SocketAddr)) {
        wait(self.mouths.iter().map(|(_, mouth)| mouth));
        for (link, mouth) in &self.mouths {
            for _ in 0..ANSWERS_AT_ONCE {
                let Some((word, from)) = hear(mouth) else {
                    break;
                };
                let answer = Word {
                    kind: ANSWER,
                    port: word.port,
                    ..self.question
                };
                if word == answer && word.port != 0 && link.holds(*from.ip()) {
                    each(SocketAddr::from((*from.ip(), word.port)));
                }
            }
        }
    }
}

/// Waits up to [`LOOK`] until one of these has a datagram; returns whether one has.
fn wait<'s>(sockets: impl Iterator<Item = &'s UdpSocket>) -> bool {
    let mut ready: Vec<_> = sockets
        .map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN))
        .collect();
    let look = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK.as_nanos() as i64,
    };
    poll(&mut ready, Some(&look)).is_ok_and(|count| count > 0)
}

/// The next question or answer, `None` if there is no datagram now. Garbage counts as one without meaning.
fn hear(socket: &UdpSocket) -> Option<(Word, SocketAddrV4)> {
    let mut bytes = [0; LEN + 1];
    match socket.recv_from(&mut bytes) {
        Ok((len, SocketAddr::V4(from))) => {
            let nothing = Word {
                kind: 0,
                channel: 0,
                nonce: [0; NONCE],
                port: 0,
            };
            Some((Word::parse(&bytes[..len]).unwrap_or(nothing), from))
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
