//! Gives each datagram from an address without a connected socket to its connection, or to the listener.
//!
//! A connected socket receives from its peer at one address. Datagrams from other addresses arrive at the unconnected
//! socket of the same port: the listener's, or one that a connection opens when its peer is silent. The reader of that
//! socket sorts them by the key in the header, because they may belong to any connection.

use super::packet_info::{self, PacketAddresses};
use super::{adopted, udp};
use crate::threads::Process;
use nix::sys::eventfd::{EfdFlags, EventFd};
use socket2::Socket;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use zerolane_handshake::Origin;

/// Bytes read of a datagram: more than any datagram without payload has.
pub(crate) const SHOWN: usize = 2048;
/// Most datagrams kept for one connection, and for the listener. Their senders repeat dropped ones.
pub(crate) const MAX_KEPT: usize = 64;
/// Most datagrams read at a time: as many as a sender has in flight when its address changes.
const MAX_READ: usize = 4096;
/// Datagrams read before they are sorted under the port's lock.
const READ_AT_A_TIME: usize = 64;
/// Position of the D_Key in a header.
const KEY: std::ops::Range<usize> = 8..12;

/// The ports of listeners, as long as their connections live. A new listener finds here the address of an earlier one
/// whose connections live. Cheap to clone: all clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    list: Arc<Mutex<Vec<Weak<SharedPort>>>>,
}

/// The start of a datagram, and its addresses.
pub(crate) type Received = (Vec<u8>, PacketAddresses);

/// A port, and the datagrams that arrived there for existing connections.
#[derive(Debug)]
pub(crate) struct SharedPort {
    local: SocketAddr,
    /// The unconnected socket, if it was passed to this process, which cannot open another.
    adopted: Option<Arc<Socket>>,
    kept: Mutex<PortState>,
}

#[derive(Debug, Default)]
struct PortState {
    /// The unconnected socket, open as long as it is held.
    socket: Weak<Socket>,
    /// Existing connections by key.
    known: HashMap<u32, KnownConnection>,
    /// Keys of connections with new datagrams since [`SharedPort::keys_at_new_addresses`].
    news: Vec<u32>,
    /// The listener's datagrams, if there is a listener.
    others: Option<Others>,
    /// Slots assigned so far.
    registered: u64,
    /// Datagrams dropped because of [`MAX_KEPT`].
    dropped: u64,
}

/// Datagrams for the listener that connections read.
#[derive(Debug)]
struct Others {
    kept: VecDeque<Received>,
    /// Readable while there are any, because the listener may sleep.
    waits: Arc<EventFd>,
}

#[derive(Debug)]
struct KnownConnection {
    /// Number of its slot.
    number: u64,
    /// Its peer's first address.
    origin: Origin,
    datagrams: VecDeque<Received>,
    /// Whether it is in `news`.
    is_news: bool,
}

impl SharedPort {
    /// A port without a listener.
    pub(crate) fn unattended(local: SocketAddr) -> SharedPort {
        SharedPort {
            local,
            adopted: None,
            kept: Mutex::default(),
        }
    }

    /// The port of a listener, until [`SharedPort::leave`], and its socket. A listener may take a port of `ports` that
    /// another listener left and connections still use.
    ///
    /// # Errors
    /// The address is not available.
    pub(crate) fn attend(
        local: SocketAddr,
        receive_buffer: usize,
        ports: &Ports,
    ) -> io::Result<(Arc<SharedPort>, Arc<Socket>)> {
        let mut ports = ports.list.lock().unwrap_or_else(PoisonError::into_inner);
        ports.retain(|it| it.strong_count() > 0);
        let left = |it: &Arc<SharedPort>| it.local == local && it.kept().others.is_none();
        if let Some(port) = ports.iter().filter_map(Weak::upgrade).find(left) {
            let socket = port.listen()?;
            udp::prepare(&socket, receive_buffer);
            port.kept().others = Some(Others::new()?);
            return Ok((port, socket));
        }
        let socket = udp::bind(local, udp::Share::WithJoining, receive_buffer)?;
        let local = socket.local_addr()?.as_socket().unwrap_or(local);
        let socket = Arc::new(socket);
        let port = SharedPort::attended(local, &socket, None)?;
        ports.push(Arc::downgrade(&port));
        Ok((port, socket))
    }

    /// Does the same with a socket that was passed to this process.
    ///
    /// # Errors
    /// The socket cannot be used for listening.
    pub(crate) fn adopt(
        passed: OwnedFd,
        receive_buffer: usize,
        ports: &Ports,
    ) -> io::Result<(Arc<SharedPort>, Arc<Socket>)> {
        let (socket, local) = adopted::adopt(passed, receive_buffer)?;
        let socket = Arc::new(socket);
        let port = SharedPort::attended(local, &socket, Some(Arc::clone(&socket)))?;
        let mut ports = ports.list.lock().unwrap_or_else(PoisonError::into_inner);
        ports.push(Arc::downgrade(&port));
        Ok((port, socket))
    }

    fn attended(
        local: SocketAddr,
        socket: &Arc<Socket>,
        adopted: Option<Arc<Socket>>,
    ) -> io::Result<Arc<SharedPort>> {
        packet_info::show_called(socket, local);
        let kept = PortState {
            socket: Arc::downgrade(socket),
            others: Some(Others::new()?),
            ..PortState::default()
        };
        let kept = Mutex::new(kept);
        Ok(Arc::new(SharedPort {
            local,
            adopted,
            kept,
        }))
    }

    /// A socket for a connection, bound to `local`: this port, at its address or one that its wildcard includes.
    ///
    /// # Errors
    /// The system gives none.
    pub(crate) fn join(&self, local: SocketAddr, receive_buffer: usize) -> io::Result<Socket> {
        let Some(adopted) = &self.adopted else {
            return udp::bind(local, udp::Share::Joins, receive_buffer);
        };
        let socket = adopted::bind_beside(adopted, local)?;
        udp::prepare(&socket, receive_buffer);
        Ok(socket)
    }

    /// Reserves a place among [`SharedPort::connections`] for the connection with key `key` at this end, whose peer is
    /// at `peer`.
    pub(crate) fn register(self: &Arc<SharedPort>, key: u32, peer: SocketAddr) -> PortSlot {
        let number = self.expect(key, peer);
        PortSlot {
            port: Arc::clone(self),
            key,
            number,
            process: Process::current(),
        }
    }

    /// Whether a connection of this port has that key, so that another must not draw it.
    pub(crate) fn is_taken(&self, key: u32) -> bool {
        self.kept().known.contains_key(&key)
    }

    /// Records that the listener is gone.
    pub(crate) fn leave(&self) {
        self.kept().others = None;
    }

    /// The address, possibly a wildcard, and the port.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Ignores poison: no holder of the lock leaves the state half changed.
    fn kept(&self) -> MutexGuard<'_, PortState> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the connection with key `key`, whose peer is at `peer`. Returns the number of its slot.
    fn expect(&self, key: u32, peer: SocketAddr) -> u64 {
        let mut kept = self.kept();
        kept.registered += 1;
        let number = kept.registered;
        let known = KnownConnection {
            number,
            origin: Origin::of(peer.ip()),
            datagrams: VecDeque::new(),
            is_news: false,
        };
        kept.known.insert(key, known);
        number
    }

    /// Removes the connection of that slot. A later one with the same key stays.
    fn forget(&self, key: u32, number: u64) {
        let mut kept = self.kept();
        if kept.known.get(&key).is_some_and(|it| it.number == number) {
            kept.known.remove(&key);
            kept.news.retain(|it| *it != key);
        }
    }

    /// The number of existing connections: all, and those of `origin`.
    pub(crate) fn connections(&self, origin: Origin) -> (usize, usize) {
        let known = &self.kept().known;
        let of_origin = known.values().filter(|it| it.origin == origin);
        (known.len(), of_origin.count())
    }

    /// Datagrams dropped because too many waited.
    pub(crate) fn dropped(&self) -> u64 {
        self.kept().dropped
    }

    /// The unconnected socket of the port, which is opened if necessary. It closes when its last holder drops it.
    ///
    /// # Errors
    /// It cannot be opened: another process has the port, or there is no descriptor left.
    pub(crate) fn listen(&self) -> io::Result<Arc<Socket>> {
        let mut kept = self.kept();
        if let Some(socket) = kept.socket.upgrade() {
            return Ok(socket);
        }
        let socket = Arc::new(udp::open(self.local, udp::Share::Joins)?);
        packet_info::show_called(&socket, self.local);
        kept.socket = Arc::downgrade(&socket);
        Ok(socket)
    }

    /// Readable while a datagram for the listener waits that a connection read. `None`: there is no listener.
    pub(crate) fn others_wait(&self) -> Option<Arc<EventFd>> {
        self.kept().others.as_ref().map(|it| Arc::clone(&it.waits))
    }

    /// The keys of connections for which datagrams came from other addresses than their peers' since the last call, and
    /// that did not take them.
    pub(crate) fn keys_at_new_addresses(&self) -> Vec<u32> {
        let mut kept = self.kept();
        let PortState { known, news, .. } = &mut *kept;
        let mut found = std::mem::take(news);
        found.retain(|key| {
            known.get_mut(key).is_some_and(|it| {
                it.is_news = false;
                !it.datagrams.is_empty()
            })
        });
        found
    }

    /// The next datagram at `socket`, this port's, that belongs to no connection. `None` if there is none, or if
    /// [`MAX_KEPT`] in a row belonged to connections: an endless sender of those must not keep the caller from its
    /// deadline.
    ///
    /// # Errors
    /// Errors of the socket, including those of datagrams sent earlier.
    pub(crate) fn next_other(&self, socket: &Socket) -> io::Result<Option<Received>> {
        for _ in 0..MAX_KEPT {
            let other = self.kept().others.as_mut().and_then(Others::take);
            let next = match other {
                Some(other) => Some(other),
                None => receive(socket)?,
            };
            let Some(received) = next else {
                return Ok(None);
            };
            if let Some(other) = self.kept().sort(received) {
                return Ok(Some(other));
            }
        }
        Ok(None)
    }

    /// Takes the datagrams for `key`, including those readable at `socket`, this port's.
    pub(crate) fn of(&self, key: u32, socket: &Socket) -> VecDeque<Received> {
        // An endless sender must not keep the other connections of the port waiting.
        let reads = MAX_READ / READ_AT_A_TIME;
        let _empty = (0..reads).any(|_| !self.read_some(socket));
        let mut kept = self.kept();
        kept.known
            .get_mut(&key)
            .map(|it| std::mem::take(&mut it.datagrams))
            .unwrap_or_default()
    }

    /// Reads and sorts up to [`READ_AT_A_TIME`] datagrams of `socket`. True if there may be more. Others may use the port
    /// while this reads: a flood must not keep the lock.
    fn read_some(&self, socket: &Socket) -> bool {
        let mut datagrams = Vec::new();
        let mut may_be_more = true;
        for _ in 0..READ_AT_A_TIME {
            match receive(socket) {
                Ok(Some(received)) => datagrams.push(received),
                Ok(None) => {
                    may_be_more = false;
                    break;
                }
                // An error of an earlier send, which this call cleared.
                Err(_) => {}
            }
        }
        let mut kept = self.kept();
        for received in datagrams {
            if let Some(other) = kept.sort(received) {
                kept.keep_other(other);
            }
        }
        may_be_more
    }
}

/// A place among the connections of a port, which is freed when this is dropped.
#[derive(Debug)]
pub(crate) struct PortSlot {
    port: Arc<SharedPort>,
    key: u32,
    number: u64,
    process: Process,
}

impl PortSlot {
    pub(crate) fn port(&self) -> &Arc<SharedPort> {
        &self.port
    }

    pub(crate) fn key(&self) -> u32 {
        self.key
    }
}

impl Drop for PortSlot {
    fn drop(&mut self) {
        // In a child of fork, a lock that another thread held is never released.
        if self.process.is_current() {
            self.port.forget(self.key, self.number);
        }
    }
}

impl PortState {
    /// Keeps a connection's datagram, and returns any other.
    fn sort(&mut self, received: Received) -> Option<Received> {
        let key = received.0.get(KEY).and_then(|key| key.try_into().ok());
        let key = key.map(u32::from_be_bytes);
        let known = key.and_then(|key| Some((key, self.known.get_mut(&key)?)));
        let Some((key, connection)) = known else {
            return Some(received);
        };
        if !std::mem::replace(&mut connection.is_news, true) {
            self.news.push(key);
        }
        let datagrams = &mut connection.datagrams;
        if datagrams.len() >= MAX_KEPT {
            datagrams.pop_front();
            self.dropped += 1;
        }
        datagrams.push_back(received);
        None
    }

    /// Keeps for the listener a datagram that belongs to no connection.
    fn keep_other(&mut self, other: Received) {
        match &mut self.others {
            Some(others) if others.kept.len() < MAX_KEPT => others.keep(other),
            _ => self.dropped += 1,
        }
    }
}

impl Others {
    fn new() -> io::Result<Others> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        Ok(Others {
            kept: VecDeque::new(),
            waits: Arc::new(EventFd::from_flags(flags)?),
        })
    }

    fn keep(&mut self, other: Received) {
        if self.kept.is_empty() {
            // The count is 0, so one more fits.
            let _ = self.waits.write(1);
        }
        self.kept.push_back(other);
    }

    fn take(&mut self) -> Option<Received> {
        let other = self.kept.pop_front()?;
        if self.kept.is_empty() {
            let _ = self.waits.read();
        }
        Some(other)
    }
}

fn receive(socket: &Socket) -> io::Result<Option<Received>> {
    let mut buffer = [0; SHOWN];
    let received = packet_info::receive(socket, &mut buffer)?;
    Ok(received.map(|(len, addresses)| (buffer[..len].to_vec(), addresses)))
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    const PEER: ([u8; 4], u16) = ([127, 0, 0, 1], 9);

    fn datagram(key: u32) -> Received {
        let mut bytes = vec![0; 40];
        bytes[KEY].copy_from_slice(&key.to_be_bytes());
        let peer = PEER.into();
        (bytes, PacketAddresses { peer, here: None })
    }

    #[test]
    fn sort__keeps_no_more_for_one_connection_than_the_limit() {
        let port = SharedPort::unattended(([127, 0, 0, 1], 0).into());
        port.expect(7, PEER.into());
        let mut kept = port.kept();
        assert!(kept.sort(datagram(8)).is_some(), "another's");
        for _ in 0..MAX_KEPT + 3 {
            assert!(kept.sort(datagram(7)).is_none());
        }
        assert_eq!(
            (kept.known[&7].datagrams.len(), kept.dropped),
            (MAX_KEPT, 3)
        );
    }

    #[test]
    fn keys_at_new_addresses__name_a_connection_once() {
        let port = SharedPort::unattended(([127, 0, 0, 1], 0).into());
        for key in [7, 8, 9] {
            port.expect(key, PEER.into());
        }
        for key in [7, 7, 8, 9] {
            assert!(port.kept().sort(datagram(key)).is_none());
        }
        port.forget(9, 3);
        assert_eq!(port.keys_at_new_addresses(), [7, 8]);
        assert!(
            port.keys_at_new_addresses().is_empty(),
            "nothing came since"
        );
        // It was not taken yet, and another one came.
        assert!(port.kept().sort(datagram(7)).is_none());
        assert_eq!(port.keys_at_new_addresses(), [7]);
        let socket = port.listen().expect("a port");
        assert!(port.kept().sort(datagram(8)).is_none());
        assert_eq!(port.of(8, &socket).len(), 2);
        assert!(port.keys_at_new_addresses().is_empty(), "it was looked at");
    }

    #[test]
    fn forget__leaves_the_key_to_the_connection_that_has_it_since() {
        let port = Arc::new(SharedPort::unattended(([127, 0, 0, 1], 0).into()));
        let (first, second) = (port.register(7, PEER.into()), port.register(7, PEER.into()));
        assert!(port.is_taken(7) && !port.is_taken(8));
        drop(first);
        assert!(port.kept().sort(datagram(7)).is_none(), "the second's");
        assert_eq!(port.keys_at_new_addresses(), [7]);
        drop(second);
        assert!(!port.is_taken(7));
        assert!(port.kept().sort(datagram(7)).is_some(), "nobody's");
    }

    #[test]
    fn read_some__lets_others_at_the_port_in_between() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let (port, socket) = SharedPort::attend(local, 1 << 20, &Ports::default()).expect("a port");
        port.expect(7, PEER.into());
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        for _ in 0..READ_AT_A_TIME + 1 {
            sender.send_to(&datagram(7).0, port.local()).expect("sent");
        }
        assert!(port.read_some(&socket), "there is one more");
        assert_eq!(port.kept().known[&7].datagrams.len(), READ_AT_A_TIME);
        assert!(!port.read_some(&socket));
        let socket_is_empty = receive(&socket).expect("read").is_none();
        assert!(socket_is_empty && port.dropped() == 1, "the oldest");
    }

    #[test]
    fn read_some__reads_while_another_has_the_lock() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let (port, socket) = SharedPort::attend(local, 1 << 20, &Ports::default()).expect("a port");
        port.expect(7, PEER.into());
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        sender.send_to(&datagram(7).0, port.local()).expect("sent");
        let is_read = || {
            let seen = socket.peek(&mut [std::mem::MaybeUninit::uninit()]);
            seen.is_err_and(|it| it.kind() == io::ErrorKind::WouldBlock)
        };
        std::thread::scope(|scope| {
            let kept = port.kept();
            let reader = scope.spawn(|| port.read_some(&socket));
            let in_time = (0..10_000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                is_read()
            });
            drop(kept);
            assert!(in_time, "the reader waits for the lock");
            assert!(!reader.join().expect("no panic"));
        });
        assert_eq!(port.kept().known[&7].datagrams.len(), 1);
    }

    #[test]
    fn others_wait__as_long_as_there_are_any() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let (port, socket) = SharedPort::attend(local, 1 << 20, &Ports::default()).expect("a port");
        let waits = port.others_wait().expect("a listener");
        let is_readable = || {
            let fd = Some(std::os::fd::AsFd::as_fd(&*waits));
            let now = Some(std::time::Duration::ZERO);
            let ready = crate::wait::poll::wait(fd, false, [None; 2], now);
            ready.expect("a poll").socket
        };
        assert!(!is_readable());
        for _ in 0..2 {
            port.kept().keep_other(datagram(8));
        }
        for _ in 0..2 {
            assert!(is_readable());
            assert!(port.next_other(&socket).expect("read").is_some());
        }
        assert!(!is_readable());
        port.leave();
        assert!(port.others_wait().is_none());
    }

    #[test]
    fn keep_other__only_for_a_listener_and_up_to_the_limit() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let (port, socket) = SharedPort::attend(local, 1 << 20, &Ports::default()).expect("a port");
        for _ in 0..MAX_KEPT + 3 {
            port.kept().keep_other(datagram(8));
        }
        assert_eq!(port.dropped(), 3);
        assert!(port.next_other(&socket).expect("read").is_some());
        port.leave();
        assert!(port.next_other(&socket).expect("read").is_none());
        port.kept().keep_other(datagram(8));
        assert_eq!(port.dropped(), 4);
    }

    #[test]
    fn next_other__comes_back_however_much_is_there_for_connections() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let (port, socket) = SharedPort::attend(local, 1 << 20, &Ports::default()).expect("a port");
        port.expect(7, PEER.into());
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let datagrams = 3 * MAX_KEPT;
        let to = port.local();
        for _ in 0..datagrams {
            sender.send_to(&datagram(7).0, to).expect("sent");
        }
        sender.send_to(&datagram(8).0, to).expect("sent");
        let found = (0..4).map(|_| port.next_other(&socket).expect("read"));
        let found: Vec<bool> = found.map(|it| it.is_some()).collect();
        assert_eq!(found, [false, false, false, true]);
        assert_eq!(port.dropped(), (datagrams - MAX_KEPT) as u64);
    }

    #[test]
    fn attend__a_port_that_connections_still_have() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let ports = Ports::default();
        let attend = |local| SharedPort::attend(local, 1 << 20, &ports);
        let (port, socket) = attend(local).expect("a port");
        let local = port.local();
        let in_use = |it: io::Result<_>| it.is_err_and(|it| it.kind() == io::ErrorKind::AddrInUse);
        assert!(in_use(attend(local)), "there is a listener");
        let connection = udp::open(local, udp::Share::Joins).expect("joins");
        connection
            .connect(&SocketAddr::from(PEER).into())
            .expect("UDP");
        port.leave();
        drop(socket);
        let (again, socket) = attend(local).expect("no listener");
        assert!(Arc::ptr_eq(&port, &again));
        assert!(in_use(attend(local)), "there is one");
        // While a connection's peer is silent.
        port.leave();
        let (fallback, (_, again)) = (socket, attend(local).expect("no listener"));
        assert!(
            Arc::ptr_eq(&fallback, &again),
            "unauthenticated peers are not divided"
        );
    }

    #[test]
    fn listen__is_open_as_long_as_it_is_held() {
        let first = udp::open(([127, 0, 0, 1], 0).into(), udp::Share::WithJoining);
        let first = first.expect("a port");
        let local = first.local_addr().expect("bound").as_socket().expect("IP");
        first.connect(&SocketAddr::from(PEER).into()).expect("UDP");
        let port = SharedPort::unattended(local);
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        sender.connect(local).expect("UDP");
        let refused = || {
            // The second call reports the error of the first one.
            let _ = sender.send(&[0; 40]);
            sender.send(&[0; 40]).is_err()
        };
        assert!(refused(), "only the peer is heard");
        port.expect(0, PEER.into());
        let (one, other) = (port.listen().expect("joins"), port.listen().expect("open"));
        assert!(Arc::ptr_eq(&one, &other));
        assert!(!refused());
        assert_eq!(port.of(0, &one).len(), 2);
        drop((one, other));
        assert!(refused());
    }
}
