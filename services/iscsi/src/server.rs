//! Runs the sockets and threads of the door: two threads for each connection, and some for the disks.
//!
//! The [`Portal`] makes all decisions, under one lock.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::limits::{DATA_PATIENCE, LOGIN_PATIENCE};
use crate::portal::{Peer, Portal};
use crate::session::Offence;

/// Time between two tries to take a connection for which there were no descriptors or no memory.
const AGAIN: Duration = Duration::from_millis(200);
/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;

/// An event of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// An initiator has connected.
    Connected(SocketAddr),
    /// It is gone.
    Disconnected(SocketAddr),
    /// It was cut off.
    CutOff(SocketAddr, Offence),
    /// There are too many: this one was closed at once.
    Full(SocketAddr),
}

struct State {
    portal: Portal,
    outlets: BTreeMap<Peer, Outlet>,
    stopping: bool,
}

/// What is known of a connection beside its session.
struct Outlet {
    /// Told when there is news of it.
    news: Arc<Condvar>,
    came: Instant,
    /// When something was read, or could be again.
    heard: Instant,
}

impl State {
    /// Until when an initiator may be silent that owes something. `None`: it owes nothing.
    fn patience(&self, peer: Peer) -> Option<Instant> {
        let outlet = self.outlets.get(&peer)?;
        match self.portal.is_in(peer) {
            false => Some(outlet.came + LOGIN_PATIENCE),
            true => {
                let is_owed = self.portal.is_owed(peer);
                is_owed.then(|| outlet.heard + DATA_PATIENCE)
            }
        }
    }

    fn hear(&mut self, peer: Peer) {
        if let Some(outlet) = self.outlets.get_mut(&peer) {
            outlet.heard = Instant::now();
        }
    }
}

struct Shared {
    state: Mutex<State>,
    /// There is work, or the end.
    work: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code under the lock leaves it inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those that there is news for.
    fn wake(&self, state: &mut State) {
        for peer in state.portal.take_changed() {
            if let Some(outlet) = state.outlets.get(&peer) {
                outlet.news.notify_all();
            }
        }
        for _ in 0..state.portal.jobs_waiting() {
            self.work.notify_one();
        }
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition
        .wait(state)
        .unwrap_or_else(PoisonError::into_inner)
}

/// A portal that listens.
pub struct Server {
    listener: TcpListener,
    shared: Shared,
    threads: usize,
}

impl Server {
    /// Listens on `address`; `threads` of its threads work on disks.
    ///
    /// # Errors
    /// The system's error.
    pub fn bind(address: SocketAddr, portal: Portal, threads: usize) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let state = State {
            portal,
            outlets: BTreeMap::new(),
            stopping: false,
        };
        Ok(Server {
            listener,
            shared: Shared {
                state: Mutex::new(state),
                work: Condvar::new(),
            },
            threads: threads.max(1),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's error, without an address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is readable; `tell` hears the news, from any thread. Wakes for nothing: each thread sleeps until
    /// there is something to do.
    ///
    /// # Errors
    /// The listening socket failed.
    pub fn serve(
        &self,
        stop: impl AsFd,
        tell: impl Fn(ServerEvent) + Send + Sync,
    ) -> io::Result<()> {
        thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| work(&self.shared));
            }
            let take = |stream, from| self.take(scope, stream, from, &tell);
            let served = self.accept(stop.as_fd(), take);
            let mut state = self.shared.state();
            state.stopping = true;
            for outlet in state.outlets.values() {
                outlet.news.notify_all();
            }
            self.shared.work.notify_all();
            served
        })
    }

    /// Hands connections to `take` until `stop` is readable.
    fn accept(&self, stop: BorrowedFd<'_>, take: impl Fn(TcpStream, SocketAddr)) -> io::Result<()> {
        let mut has_room = true;
        while !self.sleep(stop, has_room)? {
            has_room = true;
            match self.listener.accept() {
                Ok((stream, from)) => take(stream, from),
                Err(error) => match Errno::from_io_error(&error) {
                    // None is there, or one that ended before it was taken.
                    Some(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED | Errno::CONNRESET) => {}
                    Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                        has_room = false;
                    }
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Sleeps until an initiator connects or `stop` is readable, and says whether that is. Without descriptors or memory for a
    /// connection the listener is not waited for, but [`AGAIN`] at most: it stays readable, and would end every sleep at once.
    fn sleep(&self, stop: BorrowedFd<'_>, has_room: bool) -> io::Result<bool> {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, has_room);
        let again = Timespec {
            tv_sec: 0,
            tv_nsec: AGAIN.subsec_nanos().into(),
        };
        let mut polls = [
            PollFd::new(&self.listener, wanted),
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
        ];
        match poll(&mut polls, (!has_room).then_some(&again)) {
            Ok(_) => Ok(!polls[1].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn take<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        stream: TcpStream,
        from: SocketAddr,
        tell: &'scope (impl Fn(ServerEvent) + Send + Sync),
    ) {
        let Ok(address) = prepare(&stream) else {
            return;
        };
        let Ok(writing) = stream.try_clone() else {
            return;
        };
        let news = Arc::new(Condvar::new());
        let came = Instant::now();
        let mut state = self.shared.state();
        let Some(peer) = state.portal.connect(&address.to_string()) else {
            drop(state);
            return tell(ServerEvent::Full(from));
        };
        let outlet = Outlet {
            news: Arc::clone(&news),
            came,
            heard: came,
        };
        state.outlets.insert(peer, outlet);
        drop(state);
        tell(ServerEvent::Connected(from));
        let (shared, own) = (&self.shared, Arc::clone(&news));
        scope.spawn(move || write(shared, peer, writing, &own));
        scope.spawn(move || {
            read(shared, peer, stream, &news);
            let mut state = shared.state();
            let offence = state.portal.offence(peer);
            state.portal.disconnect(peer);
            shared.wake(&mut state);
            state.outlets.remove(&peer);
            news.notify_all();
            drop(state);
            tell(offence.map_or(ServerEvent::Disconnected(from), |it| {
                ServerEvent::CutOff(from, it)
            }));
        });
    }
}

/// Makes a connection ready; its address at this end is returned.
fn prepare(stream: &TcpStream) -> io::Result<SocketAddr> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(DATA_PATIENCE))?;
    stream.local_addr()
}

/// Reads until the connection ends, which the writer sees to where the initiator does not.
fn read(shared: &Shared, peer: Peer, mut stream: TcpStream, news: &Condvar) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let mut state = shared.state();
        while state.portal.is_full(peer) && !state.portal.is_over(peer) && !state.stopping {
            state = wait(news, state);
            state.hear(peer);
        }
        if state.stopping {
            break;
        }
        drop(state);
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => {
                let mut state = shared.state();
                state.hear(peer);
                state.portal.receive(peer, &buffer[..bytes]);
                shared.wake(&mut state);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    // An error means that it is closed already.
    let _ = stream.shutdown(Shutdown::Both);
}

/// Writes until the connection ends, and cuts the initiator off that is silent and owes something.
fn write(shared: &Shared, peer: Peer, mut stream: TcpStream, news: &Condvar) {
    loop {
        let mut state = shared.state();
        let output = loop {
            let is_over = state.portal.is_over(peer) || state.stopping;
            let patience = state.patience(peer).filter(|_| !is_over);
            let left = patience.map(|it| it.saturating_duration_since(Instant::now()));
            if left.is_some_and(|it| it.is_zero()) {
                state.portal.cut(peer, Offence::Silence);
                shared.wake(&mut state);
                continue;
            }
            let output = state.portal.take_output(peer);
            if !output.is_empty() || is_over {
                break output;
            }
            state = match left {
                None => wait(news, state),
                Some(left) => {
                    let woken = news.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        drop(state);
        if output.is_empty() || stream.write_all(&output).is_err() {
            break;
        }
        let mut state = shared.state();
        state.portal.on_sent(peer);
        // The reader may wait for room.
        news.notify_all();
        shared.wake(&mut state);
    }
    // The reader sees the end by this.
    let _ = stream.shutdown(Shutdown::Both);
}

/// Works on disks until the end.
fn work(shared: &Shared) {
    let mut state = shared.state();
    loop {
        if state.stopping {
            return;
        }
        let Some(job) = state.portal.next_job() else {
            state = wait(&shared.work, state);
            continue;
        };
        drop(state);
        let done = job.perform();
        state = shared.state();
        state.portal.finished(done);
        shared.wake(&mut state);
    }
}
