//! Connects to targets in threads, because names may take long to resolve and hosts long to answer.

use super::request::Target;
use std::collections::VecDeque;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use zerolane::Waker;

/// Threads that connect at a time, so that some hosts that do not answer hold up no others. Further targets wait.
const MAX_DIALS: usize = 256;

/// How long each address of a target may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;

/// Connections in the making. `T` says what each is for.
#[derive(Debug)]
pub(super) struct Dials<T> {
    waker: Waker,
    tell: Sender<(T, io::Result<TcpStream>)>,
    hear: Receiver<(T, io::Result<TcpStream>)>,
    waiting: VecDeque<(T, Target)>,
    running: usize,
}

impl<T: Copy + Send + 'static> Dials<T> {
    /// `waker` is used when a connection is made or has failed.
    pub(super) fn new(waker: Waker) -> Dials<T> {
        let (tell, hear) = channel();
        Dials {
            waker,
            tell,
            hear,
            waiting: VecDeque::new(),
            running: 0,
        }
    }

    /// Begins to connect.
    pub(super) fn dial(&mut self, purpose: T, target: Target) {
        self.waiting.push_back((purpose, target));
        self.start();
    }

    /// Forgets what waits for a thread.
    pub(super) fn cancel(&mut self, is_over: impl Fn(&T) -> bool) {
        self.waiting.retain(|(purpose, _)| !is_over(purpose));
    }

    fn start(&mut self) {
        while self.running < MAX_DIALS
            && let Some((purpose, target)) = self.waiting.pop_front()
        {
            let (tell, waker) = (self.tell.clone(), self.waker.clone());
            let run = move || {
                let connected = connect(&target);
                let _ = tell.send((purpose, connected));
                waker.wake();
            };
            let thread = thread::Builder::new().name("connect".into()).spawn(run);
            self.running += 1;
            if let Err(error) = thread {
                let _ = self.tell.send((purpose, Err(error)));
                self.waker.wake();
            }
        }
    }

    /// The next connection that is made, or has failed.
    pub(super) fn next(&mut self) -> Option<(T, io::Result<TcpStream>)> {
        let made = self.hear.try_recv().ok()?;
        self.running -= 1;
        self.start();
        Some(made)
    }
}

fn connect(target: &Target) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (&target.host[..], target.port)
        .to_socket_addrs()?
        .take(MAX_ADDRESSES)
    {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
