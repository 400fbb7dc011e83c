//! Listens on an address and accepts connections.

use crate::addresses::ToAddresses;
use crate::backlog::Backlog;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::incoming::Incoming;
use crate::listener::Listener;
use crate::worker::{EndpointId, Worker, not_asked};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use zerolane_lane::{
    GateCounters, ListenerCounters, NoSharedMemory, Options, Process, PublicKey, Untrusted,
};

/// A listening UDP port. Each connection it accepts has a socket of its own and can be given to
/// another thread.
///
/// A thread of the endpoint accepts connections before the program does, up to
/// [`ListenOptions::backlog`](crate::options::ListenOptions::backlog): clients are connected then, and what they ask
/// waits until the program takes the connection. Further clients repeat their request, and are connected when there is
/// room. The connections that wait end with the endpoint.
///
/// The thread starts in [`Endpoint::bind`], with the network namespace and the rights of its caller; it takes no signals.
/// A program that confines itself by thread (Landlock, capabilities), or may have one thread only (`unshare` of a user
/// namespace), does that first, or sets the backlog to 0: then only [`Endpoint::accept`] accepts, and clients wait for
/// it.
///
/// Connections that receive at the same time share a [`Scheduler`](crate::options::Scheduler): together they grant no
/// more than the link carries and a shallow switch queue holds, so that many senders to one receiver lose nothing
/// (incast). By default all get a fair share. The options can name another [`Schedule`](crate::options::Schedule), or a
/// scheduler that several endpoints and outgoing connections share.
///
/// After `fork` the endpoint belongs to the parent, and only the parent accepts: if two processes did, each would get
/// half of a client's handshake. A server of several processes binds an endpoint at a port of its own in each, or
/// accepts in one.
///
/// A connection outlives the endpoint that accepted it. If the endpoint listens on one address instead of on all of a
/// family (`0.0.0.0`, `[::]`), its connections are bound to that address: they do not follow when this host's address
/// changes.
///
/// ```
/// use zerolane::options::{Schedule, Scheduler};
/// use zerolane::{Connection, Endpoint, Options};
/// // The sender that needs fewest bytes is served first.
/// let shortest = Scheduler::new(Schedule::Shortest);
/// let options = Options::default().with(|it| it.rate.scheduler = Some(shortest));
/// let endpoint = Endpoint::bind("127.0.0.1:0", options)?;
/// # Ok::<(), zerolane::Error>(())
/// ```
///
/// ```
/// use zerolane::{Endpoint, Options};
/// use std::time::Duration;
/// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
/// assert_ne!(endpoint.local_addr().port(), 0);
/// assert!(endpoint.accept(Some(Duration::from_millis(1)))?.is_none());
/// # Ok::<(), zerolane::Error>(())
/// ```
#[derive(Debug)]
pub struct Endpoint {
    door: Door,
    local: SocketAddr,
    key: Option<PublicKey>,
    process: Process,
    /// [`ListenOptions::asks`](crate::options::ListenOptions::asks).
    asks: bool,
}

#[derive(Debug)]
enum Door {
    /// The calls of its owner read the listener.
    Alone(Box<Listener>),
    /// A thread reads the listener.
    Attended(Backlog),
}

impl Endpoint {
    /// Listens on the first free address of `on` (port 0: any free port). The address may be that of a dropped endpoint
    /// with the same [`Ports`](crate::options::Ports) whose connections are still open.
    ///
    /// # Errors
    /// There is no address ([`Error::Address`], which says what is wrong with the text, or [`Error::NoAddress`]), or none
    /// of them can be listened on.
    pub fn bind(on: impl ToAddresses, options: Options) -> Result<Endpoint> {
        Endpoint::of(Listener::bind(on, options)?)
    }

    /// Listens on a UDP socket that another program opened and bound, such as one [passed](crate::activation) by
    /// systemd. Another user may own it. No other holder of the socket may use it.
    ///
    /// # Errors
    /// The socket is not a bound and unconnected UDP socket, or connections could not share its address.
    pub fn adopt(socket: OwnedFd, options: Options) -> Result<Endpoint> {
        Endpoint::of(Listener::adopt(socket, options)?)
    }

    fn of(listener: Listener) -> Result<Endpoint> {
        Ok(Endpoint {
            local: listener.local_addr(),
            key: listener.public_key(),
            process: listener.process(),
            asks: listener.asks(),
            door: match listener.backlog() {
                0 => Door::Alone(Box::new(listener)),
                most => Door::Attended(Backlog::start(listener, most)?),
            },
        })
    }

    /// The address this endpoint listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Makes user `uid` the owner of the address. This process can then become that user and continue to accept
    /// connections, each of which binds a socket of its own to the address. Ports below 1024 also need
    /// `CAP_NET_BIND_SERVICE`. From now on the endpoint listens by UDP alone, and accepts nothing before the next
    /// [`Endpoint::accept`].
    ///
    /// # Errors
    /// Only root may change the owner; the options require a lane other than UDP; or [`Error::Forked`].
    pub fn give_to(&mut self, uid: u32) -> Result<()> {
        self.check_process()?;
        let given = match &mut self.door {
            Door::Alone(it) => it.give_to(uid),
            Door::Attended(backlog) => backlog.change(|it| it.give_to(uid))?,
        };
        Ok(given?)
    }

    /// Why processes on this host connect by UDP although [`LaneOptions::choice`](crate::options::LaneOptions::choice)
    /// is [`LaneChoice::Best`](crate::options::LaneChoice::Best); `None` if shared memory is available.
    pub fn no_shared_memory(&self) -> Option<NoSharedMemory> {
        self.look(Listener::no_shared_memory).flatten()
    }

    /// The key that identifies this end to clients; `None` in plain mode.
    pub fn public_key(&self) -> Option<PublicKey> {
        self.key
    }

    /// Counts connection requests of unauthenticated peers; `None` in plain mode.
    pub fn gate_counters(&self) -> Option<GateCounters> {
        self.look(Listener::gate_counters).flatten()
    }

    /// Counts other requests that did not become connections.
    pub fn counters(&self) -> ListenerCounters {
        self.look(Listener::counters).unwrap_or_default()
    }

    /// The clients rejected since the last call because [`Security::trust`](crate::Security::trust) does not trust
    /// their key. A limited number of keys is kept; the rest are counted.
    pub fn take_untrusted(&mut self) -> Untrusted {
        match &mut self.door {
            Door::Alone(it) => it.take_untrusted(),
            Door::Attended(backlog) => {
                let taken = backlog.look(Listener::take_untrusted);
                taken.unwrap_or_default()
            }
        }
    }

    /// Whether this endpoint admits no more clients, because its one-time code was used, or guessed wrong too often. The
    /// client that used it may still wait for [`Endpoint::accept`].
    pub fn is_spent(&self) -> bool {
        self.look(Listener::is_spent).unwrap_or_default()
    }

    fn look<T>(&self, look: impl FnOnce(&Listener) -> T) -> Option<T> {
        match &self.door {
            Door::Alone(it) => Some(look(it)),
            Door::Attended(backlog) => backlog.look(|it| look(it)),
        }
    }

    /// # Errors
    /// [`Error::Forked`]: the endpoint belongs to a parent of this process.
    fn check_process(&self) -> Result<()> {
        match self.process.is_current() {
            true => Ok(()),
            false => Err(Error::Forked),
        }
    }

    /// Waits for the next connection; `None` on timeout. A timeout of zero takes one that waits already. Export memory
    /// and post receives before the connection's next call: its peer's requests are then answered.
    ///
    /// With [`ListenOptions::asks`](crate::options::ListenOptions::asks), it accepts the next request with
    /// [`Options::private_data`].
    ///
    /// # Errors
    /// The socket failed; or [`Error::Forked`].
    pub fn accept(&mut self, timeout: Option<Duration>) -> Result<Option<Connection>> {
        let mut accepted = self.next(timeout)?;
        if let Some(connection) = &mut accepted
            && self.asks
        {
            connection.answer(None);
        }
        Ok(accepted)
    }

    /// Waits for the next request for a connection, to accept or refuse it; `None` on timeout. The backlog holds the
    /// requests until then.
    ///
    /// # Errors
    /// The endpoint was made without [`ListenOptions::asks`](crate::options::ListenOptions::asks); the socket failed;
    /// or [`Error::Forked`].
    pub fn incoming(&mut self, timeout: Option<Duration>) -> Result<Option<Incoming>> {
        if !self.asks {
            return Err(not_asked());
        }
        let refuser = match &self.door {
            Door::Alone(_) => None,
            Door::Attended(backlog) => Some(backlog.refuser()),
        };
        let next = self.next(timeout)?;
        Ok(next.map(|it| Incoming::new(it, refuser)))
    }

    fn next(&mut self, timeout: Option<Duration>) -> Result<Option<Connection>> {
        self.check_process()?;
        match &mut self.door {
            Door::Alone(it) => it.accept(timeout),
            Door::Attended(backlog) => backlog.accept(timeout),
        }
    }
}

impl Worker {
    /// Takes over an endpoint, and the connections in its backlog.
    ///
    /// # Errors
    /// The system refused to watch it; or [`Error::Forked`].
    pub fn listen_on(&mut self, endpoint: Endpoint) -> Result<EndpointId> {
        endpoint.check_process()?;
        let (listener, accepted) = match endpoint.door {
            Door::Alone(it) => (*it, Vec::new()),
            Door::Attended(backlog) => backlog.dismiss()?,
        };
        self.attend(listener, accepted)
    }
}

/// Readable when [`Endpoint::accept`] has something to do. Only watch it; do not read it.
impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.door {
            Door::Alone(it) => it.as_fd(),
            Door::Attended(backlog) => backlog.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use zerolane_lane::Ports;
    use zerolane_lane::{CloseReason, LaneChoice, Region};
    use zerolane_wire::Reason;

    /// Another thread may have used the waker just before, while no call was waiting.
    #[test]
    fn close__waits_for_what_was_posted_despite_a_wake() {
        let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default()).expect("a port");
        let address = endpoint.local_addr();
        let sending = std::thread::spawn(move || {
            let mut connection = Connection::connect(address, &Options::default())?;
            let waker = connection.waker();
            connection.post_send(Region::from_vec(vec![7; 1 << 20]))?;
            waker.wake();
            connection.close()
        });
        let accepted = endpoint.accept(Some(Duration::from_secs(10)));
        let mut accepted = accepted.expect("no error").expect("in time");
        std::thread::sleep(Duration::from_millis(20));
        let mut received = vec![0; 1 << 20];
        accepted.recv_into(&mut received).expect("all of it");
        assert!(received.iter().all(|&it| it == 7));
        let reason = loop {
            match accepted.wait(Some(Duration::from_secs(10))) {
                Ok(_) => {}
                Err(Error::Closed(reason)) => break reason,
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(reason, CloseReason::Peer(Reason::Normal));
        sending.join().expect("no panic").expect("all was sent");
    }

    #[test]
    fn accept_wait_and_close__as_long_as_no_clock_counts() {
        // With a thread that accepts, and without.
        for backlog in [Options::default().listen.backlog, 0] {
            accept_wait_and_close(backlog);
        }
    }

    fn accept_wait_and_close(backlog: u16) {
        let never = Options::default().with(|it| {
            it.listen.backlog = backlog;
            it.times.idle = Duration::MAX;
            it.times.connect = Duration::MAX;
            it.times.spin = Duration::ZERO;
        });
        let mut endpoint = Endpoint::bind("127.0.0.1:0", never.clone()).expect("a port");
        let address = endpoint.local_addr();
        let connecting = std::thread::spawn(move || Connection::connect(address, &never));
        let accepted = endpoint.accept(Some(Duration::MAX)).expect("no error");
        let mut accepted = accepted.expect("no timeout");
        let mut connected = connecting.join().expect("no panic").expect("connected");
        connected.set_timeout(Some(Duration::MAX));
        let sending = std::thread::spawn(move || {
            connected.send(b"hello")?;
            connected.close()
        });
        accepted
            .post_recv(Region::from_vec(vec![0; 5]))
            .expect("posted");
        let received = accepted.wait(Some(Duration::MAX)).expect("no error");
        assert_eq!(received.got().expect("no timeout").result, Ok(5));
        assert!(matches!(
            accepted.announced(Some(Duration::MAX)),
            Err(Error::Closed(_))
        ));
        sending.join().expect("no panic").expect("all was sent");
    }

    #[test]
    fn connect_and_bind__say_what_is_wrong_with_an_address() {
        let options = Options::default();
        for (text, words) in [
            ("127.0.0.1", "no port: an address is HOST:PORT"),
            ("::1", "no port: an address is [::1]:PORT"),
            ("127.0.0.1:65536", "is not a port: expected 0 to 65535"),
            (":9", "has no host"),
            ("[fe80::1%no-such-one]:9", "no interface no-such-one"),
            ("no-such-host.invalid:9", "host \"no-such-host.invalid\""),
        ] {
            let bound = Endpoint::bind(text, options.clone()).map(drop);
            for refused in [bound, Connection::connect(text, &options).map(drop)] {
                let error = refused.expect_err(text);
                assert!(matches!(error, Error::Address(_)), "{error:?}");
                let said = error.to_string();
                assert!(
                    said.starts_with("address: ") && said.contains(words),
                    "{error}"
                );
            }
        }
        let idle = options.with(|it| it.times.idle = Duration::ZERO);
        let error = Connection::connect("127.0.0.1:9", &idle).expect_err("no such time");
        assert_eq!(
            error.to_string(),
            "idle timeout is 0: no peer can answer in that time; use a longer time"
        );
    }

    #[test]
    fn bind__again_while_connections_of_the_first_live() {
        // Only this lane gives each connection a socket of its own at the address.
        let options = Options::default().with(|it| it.lane.choice = LaneChoice::Udp);
        let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).expect("a port");
        let address = endpoint.local_addr();
        let mut open = Vec::new();
        for _ in 0..3 {
            let theirs = options.clone();
            let connecting = std::thread::spawn(move || Connection::connect(address, &theirs));
            let accepted = endpoint.accept(Some(Duration::from_secs(10)));
            open.push(accepted.expect("no error").expect("in time"));
            open.push(connecting.join().expect("no panic").expect("connected"));
            drop(endpoint);
            let strange = options
                .clone()
                .with(|it| it.listen.ports = Ports::default());
            let other = Endpoint::bind(address, strange);
            assert!(other.is_err(), "its connections are not known there");
            endpoint = Endpoint::bind(address, options.clone()).expect("the port is free");
        }
        for connection in &mut open {
            connection.poll().expect("connected");
        }
    }

    #[test]
    fn accept__the_peer_is_connected_without_another_call_here() {
        let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default()).expect("a port");
        let address = endpoint.local_addr();
        let connecting =
            std::thread::spawn(move || Connection::connect(address, &Options::default()));
        let accepted = endpoint.accept(Some(Duration::from_secs(10)));
        let accepted = accepted.expect("no error").expect("in time");
        let connected = connecting.join().expect("no panic").expect("connected");
        assert_eq!(connected.peer_addr(), address);
        drop(accepted);
    }
}
