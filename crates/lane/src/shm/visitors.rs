//! Processes that came to a listener's rendezvous and are no connections yet.

use super::link::{Kind, Link};
use super::mapping::Shared;
use super::peer::PeerProcess;
use super::rendezvous::{self, Rendezvous};
use crate::process::Process;
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Processes that are waited for at a time: all of them are this user's. The oldest makes room.
const MAX_VISITORS: usize = 128;
/// How long one may take to become a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process that shares memory, and is no connection yet.
#[derive(Debug)]
pub(crate) struct Visitor {
    link: Link,
}

impl Visitor {
    pub(super) fn of(link: Link) -> Visitor {
        Visitor { link }
    }

    pub(super) fn into_link(self) -> Link {
        self.link
    }

    /// Sends it something. What finds no room is as good as lost: it asks again.
    pub(crate) fn answer(&mut self, bytes: &[u8]) {
        if let Ok(true) = self.link.push(Kind::Datagram, &[bytes]) {
            self.link.tell_written();
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.link.socket()
    }
}

/// Where a visitor stands.
#[derive(Debug)]
enum Stage {
    /// The memory is to come.
    Met(Socket, PeerProcess),
    Shares(Visitor),
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    stage: Stage,
}

/// What [`Visitors::next`] found.
#[derive(Debug)]
pub(crate) enum Arrived {
    /// A datagram of a visitor, who is given back by [`Visitors::keep`] unless it is a connection now.
    Datagram(Vec<u8>, Box<Visitor>),
    /// Something else: there may be more.
    Other,
    Nothing,
}

/// Those that wait.
#[derive(Debug)]
pub(crate) struct Visitors {
    rendezvous: Rendezvous,
    waiting: Vec<Waiting>,
    /// The one looked at next.
    next: usize,
    /// Turned away: of another user, or that passed no proper memory, or too slow; or gone.
    pub(crate) refused: u64,
    process: Process,
}

impl Visitors {
    /// Of a listener at `address`.
    ///
    /// # Errors
    /// As of [`Rendezvous::listen`].
    pub(crate) fn listen(address: SocketAddr) -> io::Result<Visitors> {
        Ok(Visitors {
            rendezvous: Rendezvous::listen(address)?,
            waiting: Vec::new(),
            next: 0,
            refused: 0,
            process: Process::current(),
        })
    }

    /// What is to be watched: it is readable when there is something to look at.
    pub(crate) fn rendezvous(&self) -> BorrowedFd<'_> {
        self.rendezvous.as_fd()
    }

    /// Looks at the next thing that came; `accepts`: also at the rendezvous. `watch` is told the sockets of those that came,
    /// which are closed with them.
    ///
    /// # Errors
    /// The rendezvous failed, or no more descriptors.
    pub(crate) fn next(
        &mut self,
        accepts: bool,
        mut watch: impl FnMut(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<Arrived> {
        if !self.process.is_current() {
            return Ok(Arrived::Nothing);
        }
        self.forget_slow();
        if accepts && let Some(socket) = self.rendezvous.accept()? {
            let Ok(Some(credentials)) = rendezvous::same_user(&socket) else {
                self.refused += 1;
                return Ok(Arrived::Other);
            };
            if self.waiting.len() >= MAX_VISITORS {
                self.waiting.remove(0);
                self.refused += 1;
            }
            watch(socket.as_fd())?;
            let process = PeerProcess::of(&credentials);
            self.waiting.push(Waiting {
                since: Instant::now(),
                stage: Stage::Met(socket, process),
            });
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
        Ok(Arrived::Nothing)
    }

    /// A visitor who is no connection yet.
    pub(crate) fn keep(&mut self, visitor: Visitor) {
        self.waiting.push(Waiting {
            since: Instant::now(),
            stage: Stage::Shares(visitor),
        });
    }

    fn forget_slow(&mut self) {
        let before = self.waiting.len();
        self.waiting.retain(|it| it.since.elapsed() < PATIENCE);
        self.refused += (before - self.waiting.len()) as u64;
    }

    fn look(&mut self, index: usize) -> io::Result<Arrived> {
        let waiting = &mut self.waiting[index];
        let visitor = match &mut waiting.stage {
            Stage::Met(socket, _) => match rendezvous::take(socket) {
                Ok(None) => return Ok(Arrived::Nothing),
                Ok(Some(shared)) => return self.share(index, shared),
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                    // What it passed is lost.
                    self.waiting.swap_remove(index);
                    return Err(error);
                }
                Err(_) => return Ok(self.turn_away(index)),
            },
            Stage::Shares(visitor) => visitor,
        };
        visitor.link.disarm(false);
        let mut datagram = Vec::new();
        match visitor.link.next(&mut datagram) {
            Ok(Some((Kind::Datagram, _))) => {
                visitor.link.release();
                match self.waiting.swap_remove(index).stage {
                    Stage::Shares(visitor) => Ok(Arrived::Datagram(datagram, Box::new(visitor))),
                    Stage::Met(..) => Ok(Arrived::Nothing),
                }
            }
            Ok(None) if !visitor.link.is_closed() => {
                // Something may have come since it was looked.
                Ok(match visitor.link.arm(false) {
                    true => Arrived::Nothing,
                    false => Arrived::Other,
                })
            }
            // A stranger has no payload to refer to.
            Ok(_) | Err(_) => Ok(self.turn_away(index)),
        }
    }

    fn share(&mut self, index: usize, shared: Shared) -> io::Result<Arrived> {
        let Waiting { since, stage } = self.waiting.swap_remove(index);
        if let Stage::Met(socket, process) = stage {
            let mut link = Link::new(socket, shared, process, super::mark()?, false);
            // One that only looks is told as well.
            link.try_reading();
            let stage = Stage::Shares(Visitor { link });
            self.waiting.push(Waiting { since, stage });
        }
        Ok(Arrived::Other)
    }

    fn turn_away(&mut self, index: usize) -> Arrived {
        self.waiting.swap_remove(index);
        self.refused += 1;
        Arrived::Other
    }
}
