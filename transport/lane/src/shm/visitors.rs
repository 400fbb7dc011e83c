//! Receives processes that came to a listener's rendezvous and are not connections yet.

use super::link::{Kind, Link};
use super::mapping::Shared;
use super::peer::PeerProcess;
use super::rendezvous::{self, Rendezvous};
use crate::address::RendezvousName;
use crate::threads::process::Process;
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Most processes that are served at a time: all belong to this user. Others wait to be accepted.
const MAX_VISITORS: usize = 128;
/// Longest silence of a visitor.
const PATIENCE: Duration = Duration::from_secs(10);
/// Datagrams after which more of them do not extend the wait. A connection takes three.
const MAX_HEARD: u32 = 8;

/// A process that shares memory, and is not a connection yet.
#[derive(Debug)]
pub(crate) struct Visitor {
    link: Link,
    /// When it came, or last sent a datagram.
    since: Instant,
    /// Number of its datagrams.
    heard: u32,
}

impl Visitor {
    /// Turns back into a visitor a process that was not admitted after all.
    pub(super) fn of(link: Link) -> Visitor {
        Visitor {
            link,
            since: Instant::now(),
            heard: MAX_HEARD,
        }
    }

    pub(super) fn into_link(self) -> Link {
        self.link
    }

    /// Sends it a datagram. One that finds no room counts as lost: the visitor asks again.
    pub(crate) fn answer(&mut self, bytes: &[u8]) {
        if let Ok(true) = self.link.push(Kind::Datagram, &[bytes]) {
            self.link.wake_if_asleep();
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.link.socket()
    }
}

/// The state of a visitor.
#[derive(Debug)]
enum Waiting {
    /// It came at this time, and has not passed its memory yet.
    Met(Socket, PeerProcess, Instant),
    Shares(Visitor),
}

impl Waiting {
    fn since(&self) -> Instant {
        match self {
            Waiting::Met(.., since) => *since,
            Waiting::Shares(visitor) => visitor.since,
        }
    }
}

/// The result of [`Visitors::next`].
#[derive(Debug)]
pub(crate) enum Arrived {
    /// A datagram of a visitor. [`Visitors::keep`] returns the visitor, unless it is a connection now.
    Datagram(Vec<u8>, Box<Visitor>),
    /// Another event: there may be more.
    Other,
    Nothing,
}

/// The visitors that wait.
#[derive(Debug)]
pub(crate) struct Visitors {
    rendezvous: Rendezvous,
    waiting: Vec<Waiting>,
    /// Index of the next one to serve.
    next: usize,
    /// Number turned away: of another user, without proper memory, too slow, or gone.
    pub(crate) refused: u64,
    process: Process,
}

impl Visitors {
    /// The visitors of a listener at `address`, or with the name `named`.
    ///
    /// # Errors
    /// As [`Rendezvous::listen`].
    pub(crate) fn listen(
        address: SocketAddr,
        named: Option<&RendezvousName>,
    ) -> io::Result<Visitors> {
        Ok(Visitors {
            rendezvous: Rendezvous::listen(address, named)?,
            waiting: Vec::new(),
            next: 0,
            refused: 0,
            process: Process::current(),
        })
    }

    /// The descriptor to watch, which is readable when a process waits.
    pub(crate) fn rendezvous(&self) -> BorrowedFd<'_> {
        self.rendezvous.as_fd()
    }

    /// Whether there is a place for one more.
    pub(crate) fn has_place(&self) -> bool {
        self.waiting.len() < MAX_VISITORS
    }

    /// Serves the next visitor; `accepts`: also the rendezvous, because there is a place. `watch` receives the sockets
    /// of new visitors, which are closed with them.
    ///
    /// # Errors
    /// The rendezvous failed, or there is no descriptor left.
    pub(crate) fn next(
        &mut self,
        accepts: bool,
        mut watch: impl FnMut(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<Arrived> {
        if !self.process.is_current() {
            return Ok(Arrived::Nothing);
        }
        if accepts && let Some(socket) = self.rendezvous.accept()? {
            let Ok(Some(credentials)) = rendezvous::same_user(&socket) else {
                self.refused += 1;
                return Ok(Arrived::Other);
            };
            watch(socket.as_fd())?;
            let process = PeerProcess::of(&credentials);
            let since = Instant::now();
            self.waiting.push(Waiting::Met(socket, process, since));
            return Ok(Arrived::Other);
        }
        for _ in 0..self.waiting.len() {
            let index = self.next % self.waiting.len();
            self.next = index + 1;
            match self.look(index)? {
                Arrived::Nothing => {}
                found => return Ok(found),
            }
        }
        // All were served, and have sent nothing.
        Ok(self.forget_slow())
    }

    /// Keeps a visitor that is not a connection yet.
    pub(crate) fn keep(&mut self, mut visitor: Visitor) {
        if visitor.heard < MAX_HEARD {
            visitor.heard += 1;
            visitor.since = Instant::now();
        }
        self.waiting.push(Waiting::Shares(visitor));
    }

    fn forget_slow(&mut self) -> Arrived {
        let before = self.waiting.len();
        self.waiting.retain(|it| it.since().elapsed() < PATIENCE);
        let slow = before - self.waiting.len();
        self.refused += slow as u64;
        match slow {
            0 => Arrived::Nothing,
            _ => Arrived::Other,
        }
    }

    fn look(&mut self, index: usize) -> io::Result<Arrived> {
        let visitor = match &mut self.waiting[index] {
            Waiting::Met(socket, ..) => match rendezvous::take(socket) {
                Ok(None) => return Ok(Arrived::Nothing),
                Ok(Some(shared)) => return self.share(index, shared),
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                    // The descriptor that it passed is lost.
                    self.waiting.swap_remove(index);
                    return Err(error);
                }
                Err(_) => return Ok(self.turn_away(index)),
            },
            Waiting::Shares(visitor) => visitor,
        };
        visitor.link.disarm(false);
        let mut datagram = Vec::new();
        match visitor.link.next(&mut datagram) {
            Ok(Some((Kind::Datagram, _))) => {
                visitor.link.release();
                match self.waiting.swap_remove(index) {
                    Waiting::Shares(visitor) => Ok(Arrived::Datagram(datagram, Box::new(visitor))),
                    Waiting::Met(..) => Ok(Arrived::Nothing),
                }
            }
            Ok(None) if !visitor.link.is_closed() => {
                // Something may have arrived since the check.
                Ok(match visitor.link.arm(false) {
                    true => Arrived::Nothing,
                    false => Arrived::Other,
                })
            }
            // An unauthenticated peer has no payload to refer to.
            Ok(_) | Err(_) => Ok(self.turn_away(index)),
        }
    }

    fn share(&mut self, index: usize, shared: Shared) -> io::Result<Arrived> {
        if !shared.entry().let_in() {
            return Ok(self.turn_away(index));
        }
        if let Waiting::Met(socket, process, since) = self.waiting.swap_remove(index) {
            let mut link = Link::new(socket, shared, process, super::mark()?, false);
            // A process that only looks learns the result as well.
            link.try_reading();
            let heard = 0;
            self.waiting
                .push(Waiting::Shares(Visitor { link, since, heard }));
        }
        Ok(Arrived::Other)
    }

    fn turn_away(&mut self, index: usize) -> Arrived {
        self.waiting.swap_remove(index);
        self.refused += 1;
        Arrived::Other
    }
}
