//! Serves NBD clients from one thread, which watches their sockets, drives the connection to the disk, and sleeps when idle.
//!
//! The payload of a write is read from the socket into the memory from which the disk's host fetches it. The payload of a
//! read is sent from the memory into which the disk's host puts it.
//!
//! | module | what it knows |
//! |---|---|
//! | `client` | a client's socket |
//! | `contention` | whether other threads compete for the core |
//! | `work` | requests in progress at the disk |
//! | `steps` | the requests to the disk for each request of a client |
//! | `pool` | memory |

mod client;
mod contention;
mod pool;
mod steps;
mod work;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use zerolane_disk::initiator::{DriverSlot, Queue};

use crate::limits::MAX_CLIENTS;
use crate::session::{Export, Offence};
use client::{Client, End};
use contention::Contention;
use pool::Pool;
use work::{ClientId, Outcome, Over, Work};

/// How often a busy server checks whether it must stop, and handles what waited meanwhile.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two looks for a connection that is made again.
const BROKEN: Duration = Duration::from_millis(5);
/// How long the server polls for answers of the disk's host before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// How long the connection to the disk's host is left alone that has nothing in progress but moved something last.
const REST: Duration = Duration::from_micros(500);
/// Turns that move nothing for one that looks at clients.
const READ_EVERY: u32 = 4;

/// Answers that wait for others, and what they have read at most, bytes: fewer where they are a part of this size of what
/// is in progress, so that one alone never waits.
const GATHERED: usize = 8;
const GATHERED_BYTES: usize = 64 << 10;
const GATHERED_OF: usize = 4;
/// How long they wait at most.
const GATHERING: Duration = Duration::from_micros(30);

/// An event of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A client has connected.
    Connected,
    /// It is gone.
    Disconnected,
    /// It was cut off.
    CutOff(Offence),
    /// There are too many: one was closed at once.
    Full,
}

/// An NBD server on a UNIX socket. Dropping the server removes the socket's file.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    read_only: bool,
}

impl Server {
    /// Listens on `path`, which must not be there yet. Clients of a `read_only` one may not write.
    ///
    /// # Errors
    /// The system's error.
    pub fn bind(path: &Path, read_only: bool) -> io::Result<Server> {
        let listener = UnixListener::bind(path)?;
        let path = path.to_owned();
        let server = Server {
            listener,
            path,
            read_only,
        };
        server.listener.set_nonblocking(true)?;
        Ok(server)
    }

    /// Serves the disk of `queue` until `stop` is readable or the queue has failed; `tell` hears the news. The thread drives
    /// the queue meanwhile, and sleeps until a client or the connection wakes it: no other thread may ask the queue for
    /// anything.
    ///
    /// # Errors
    /// The listening socket failed, or descriptors cannot be waited for.
    pub fn serve(
        &self,
        queue: &Queue,
        stop: impl AsFd,
        tell: impl FnMut(ServerEvent),
    ) -> io::Result<()> {
        self.serving(queue, stop.as_fd(), tell).run()
    }

    fn serving<'a, T: FnMut(ServerEvent)>(
        &'a self,
        queue: &'a Queue,
        stop: BorrowedFd<'a>,
        tell: T,
    ) -> Serving<'a, T> {
        let unit = queue.unit();
        let export = Export {
            bytes: unit.bytes(),
            block_bytes: unit.block_bytes,
            read_only: self.read_only || unit.read_only,
            thin: unit.thin,
        };
        Serving {
            listener: &self.listener,
            stop,
            queue,
            export,
            tell,
            driver_slot: None,
            clients: BTreeMap::new(),
            next: 0,
            no_room: false,
            pool: Pool::default(),
            work: Work::new(queue),
            over: Vec::new(),
            idle_turns: 0,
            held: Held::default(),
            has_written: false,
            contention: Contention::default(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

struct Serving<'a, T> {
    listener: &'a UnixListener,
    /// Readable when it must stop.
    stop: BorrowedFd<'a>,
    queue: &'a Queue,
    export: Export,
    tell: T,
    driver_slot: Option<DriverSlot<'a>>,
    clients: BTreeMap<ClientId, Client>,
    next: ClientId,
    /// A waiting client could not be accepted, for lack of descriptors or memory. Until the next look the listener is
    /// not waited for: it stays readable, and would end every sleep at once.
    no_room: bool,
    pool: Pool,
    work: Work<'a>,
    over: Vec<Over>,
    /// Turns since the last that moved something.
    idle_turns: u32,
    held: Held,
    /// Answers went to clients since the last sleep.
    has_written: bool,
    contention: Contention,
}

/// Answers since clients were written to last.
#[derive(Default)]
struct Held {
    answers: usize,
    /// What they have read.
    bytes: usize,
    /// When the first of them was looked at.
    since: Option<Instant>,
}

impl<T: FnMut(ServerEvent)> Serving<'_, T> {
    fn run(&mut self) -> io::Result<()> {
        let mut idle_since: Option<Instant> = None;
        let mut looked = Instant::now();
        loop {
            let now = Instant::now();
            if now - looked > LOOK {
                looked = now;
                if is_readable(self.stop)? {
                    return Ok(());
                }
                self.remove_closed();
                // Also while clients give no time to sleep.
                self.accept()?;
            }
            let moved = self.turn();
            // With nothing in progress the client has the next word, and may need this core for it.
            if moved && self.is_busy() {
                idle_since = None;
                continue;
            }
            // A client that has answers goes on before more is asked for; if it shares this core, only when that is free.
            let is_in_the_way = self.has_written && self.contention.is_wanted(now);
            let is_to_spin = self.work.is_busy() && !is_in_the_way;
            if is_to_spin && now - *idle_since.get_or_insert(now) < SPIN {
                std::hint::spin_loop();
                continue;
            }
            idle_since = None;
            if self.driver_slot.is_none() && self.queue.failure().is_some() && !self.work.is_busy()
            {
                return Ok(());
            }
            match self.sleep()? {
                Woken::ToStop => return Ok(()),
                Woken::ToAccept => self.accept()?,
                Woken::Else => {}
            }
        }
    }

    /// Requests are in progress or were read, or answers wait for their clients' sockets.
    fn is_busy(&self) -> bool {
        let waits = |client: &Client| client.has_output() || client.has_input();
        self.work.is_busy() || self.clients.values().any(waits)
    }

    /// Makes one round over clients and disk. False if nothing moved.
    fn turn(&mut self) -> bool {
        // Check waiting clients less often than the disk, which brings their answers.
        let mut moved = self.idle_turns.is_multiple_of(READ_EVERY) && self.read();
        if self.driver_slot.is_none() {
            self.driver_slot = self.queue.take_driver_slot();
        }
        if let Some(driver_slot) = &mut self.driver_slot {
            if driver_slot.turn() {
                moved |= driver_slot.next_timeout() == Some(Duration::ZERO);
            } else {
                self.driver_slot = None;
            }
        }
        self.work.proceed(&mut self.pool);
        self.work.take_over(&mut self.over);
        moved |= !self.over.is_empty();
        for over in std::mem::take(&mut self.over) {
            self.answer(over);
        }
        if self.is_to_write() {
            self.held = Held::default();
            for client in self.clients.values_mut() {
                if client.has_output() {
                    let written = client.write(&mut self.pool);
                    self.has_written |= written;
                    moved |= written;
                }
            }
        }
        self.idle_turns = match moved {
            true => 0,
            false => self.idle_turns.wrapping_add(1),
        };
        let ended = |client: &mut Client| client.end().is_some() && client.is_idle();
        if self.clients.values_mut().any(ended) {
            self.remove_closed();
        }
        moved
    }

    /// Reads requests of clients. False if there are none.
    fn read(&mut self) -> bool {
        let mut moved = false;
        for (&id, client) in &mut self.clients {
            let (work, pool) = (&mut self.work, &mut self.pool);
            let mut started = Vec::new();
            moved |= client.read(pool, &mut |request, payload| {
                started.push((request, payload))
            });
            for (request, payload) in started {
                work.begin(id, request, payload, pool);
            }
        }
        moved
    }

    /// Whether answers go to their clients now, or wait a moment for more. A client that gets one at a time asks for one at
    /// a time, and each costs its wake-up, a datagram and an answer of its own.
    fn is_to_write(&mut self) -> bool {
        let Held {
            answers,
            bytes,
            since,
        } = &mut self.held;
        let is_little = *answers < GATHERED && *bytes < GATHERED_BYTES;
        if *answers == 0 || !is_little || self.work.len() < *answers * GATHERED_OF {
            return true;
        }
        since.get_or_insert_with(Instant::now).elapsed() > GATHERING
    }

    fn answer(&mut self, over: Over) {
        let Over {
            client,
            request,
            outcome,
        } = over;
        self.held.answers += 1;
        self.held.bytes += match outcome {
            Outcome::Done(ref memory, _) => memory.len(),
            _ => 0,
        };
        // A client is there until its requests are over.
        let Some(client) = self.clients.get_mut(&client) else {
            return;
        };
        let session = client.session();
        let none = zerolane::Region::empty();
        match outcome {
            Outcome::Done(memory, skip) => {
                let head = session.done(&request);
                let part = match memory.is_empty() {
                    true => 0..0,
                    false => skip..skip + request.bytes as usize,
                };
                client.answer(&request, head, memory, part);
            }
            Outcome::Extents(extents) => {
                let head = session.extents(&request, &extents);
                client.answer(&request, head, none, 0..0);
            }
            Outcome::Failed(why) => {
                let head = session.failed(&request, why);
                client.answer(&request, head, none, 0..0);
            }
        }
    }

    /// Forgets clients that are gone, and nothing of which is in progress.
    fn remove_closed(&mut self) {
        let tell = &mut self.tell;
        self.clients.retain(|_, client| {
            let news = match client.end() {
                None => return true,
                Some(End::Left) => ServerEvent::Disconnected,
                Some(&End::CutOff(offence)) => ServerEvent::CutOff(offence),
            };
            if client.is_idle() {
                tell(news);
            }
            !client.is_idle()
        });
    }

    fn accept(&mut self) -> io::Result<()> {
        self.no_room = false;
        loop {
            match self.listener.accept() {
                Ok(_) if self.clients.len() >= MAX_CLIENTS => (self.tell)(ServerEvent::Full),
                Ok((stream, _)) => {
                    let Ok(client) = Client::new(stream, self.export) else {
                        continue;
                    };
                    self.next += 1;
                    self.clients.insert(self.next, client);
                    (self.tell)(ServerEvent::Connected);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_of_the_client(&error) => {}
                Err(error) if is_want(&error) => {
                    self.no_room = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sleeps until there may be something to do.
    fn sleep(&mut self) -> io::Result<Woken> {
        // After a sleep, check first what ended it.
        (self.has_written, self.idle_turns) = (false, 0);
        let mut longest = match self.driver_slot {
            None => Some(BROKEN),
            // The disk's host may not answer, or there is room for a client again.
            Some(_) if self.work.is_busy() || self.no_room => Some(LOOK),
            Some(_) => None,
        };
        let mut polls = Vec::with_capacity(3 + self.clients.len());
        let mut arriving = PollFlags::empty();
        arriving.set(PollFlags::IN, !self.no_room);
        polls.push(PollFd::new(self.listener, arriving));
        polls.push(PollFd::from_borrowed_fd(self.stop, PollFlags::IN));
        if let Some(driver_slot) = &mut self.driver_slot {
            let next = driver_slot.next_timeout();
            // Of a connection that moved something and has nothing in progress, what is left is readable, or not urgent.
            let next = match next {
                Some(Duration::ZERO) if !self.work.is_busy() => Some(REST),
                next => next,
            };
            longest = [longest, next].into_iter().flatten().min();
            if let Some((descriptor, writable)) = driver_slot.watched() {
                let out = if writable {
                    PollFlags::OUT
                } else {
                    PollFlags::empty()
                };
                polls.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN | out));
            }
        }
        for client in self.clients.values_mut() {
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::IN, client.has_room());
            wanted.set(
                PollFlags::OUT,
                client.has_output() && client.end().is_none(),
            );
            // Of one that waits for neither, its end would wake for nothing.
            if !wanted.is_empty() {
                polls.push(PollFd::new(client.stream(), wanted));
            }
        }
        // One that is longer than can be told is without end.
        let timeout = longest.and_then(|it| Timespec::try_from(it).ok());
        match poll(&mut polls, timeout.as_ref()) {
            Ok(_) if !polls[1].revents().is_empty() => Ok(Woken::ToStop),
            Ok(_) if !polls[0].revents().is_empty() => Ok(Woken::ToAccept),
            Ok(_) | Err(Errno::INTR) => Ok(Woken::Else),
            Err(error) => Err(error.into()),
        }
    }
}

/// What ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    ToStop,
    /// A client wants to connect.
    ToAccept,
    Else,
}

fn is_readable(descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polls = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    match poll(&mut polls, Some(&Timespec::default())) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A connection that ended before it was taken: the next one can be.
fn is_of_the_client(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::INTR | Errno::CONNABORTED | Errno::CONNRESET)
    )
}

/// Whether this process or its host temporarily lacks the resources for a connection.
fn is_want(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
