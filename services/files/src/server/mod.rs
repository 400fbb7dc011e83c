//! Serves one directory, with a thread for each connection.

mod change;
mod copies;
mod guests;
mod listing;
mod queues;
mod ranges;
mod remove_tree;
mod session;
mod spent;
mod sync;
mod tally;
mod turns;

use crate::confine::{BOOT_ID, Confinement, confine};
use crate::error::{Error, Refusal};
use crate::filter::Filter;
use crate::limits::{SERVER_CONNECTIONS, SERVER_CONNECTIONS_OF_ORIGIN};
use crate::message::{Reply, Request};
use crate::name::RelativePath;
use crate::observe::{Peer, ServerObserver};
use crate::opening::{hear, say};
use crate::root::Root;
use crate::stop::Stop;
use crate::umask::umask;
use guests::Guests;
use queues::Queues;
use rustix::fd::AsFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use session::Session;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use turns::Turns;
use zerolane::keys::{Access, Rights};
use zerolane::security::{CODE_GUESSES, PublicKey, Trust, Untrusted};
use zerolane::{Connection, Endpoint, Options};

/// How a directory is served.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// Refuse every request that would write.
    pub read_only: bool,
    /// The clients that may connect, and their rights.
    pub access: Access,
    /// Options of the transport.
    pub transport: Options,
}

/// The files that are served.
#[derive(Clone, Debug)]
enum Served {
    /// Everything below a directory.
    Below(Arc<Root>),
    /// These sources, wherever they are, to be read as a whole.
    Offered(Arc<Offered>),
}

/// The offered sources, and the filter.
#[derive(Debug)]
pub(crate) struct Offered {
    pub(crate) sources: Vec<PathBuf>,
    pub(crate) filter: Filter,
}

/// The part of `served` that a client with these rights sees, and whether it may write there.
fn admit(rights: &Rights, served: &Served) -> Result<(Served, bool), Refusal> {
    let below = rights.files().ok_or(Refusal::NotAllowed)?;
    if below.is_empty() {
        return Ok((served.clone(), rights.write));
    }
    let Served::Below(root) = served else {
        return Err(Refusal::NoPlace);
    };
    let below = RelativePath::parse(below).map_err(|_| Refusal::NoPlace)?;
    let root = root.below(&below).map_err(|_| Refusal::NoPlace)?;
    Ok((Served::Below(Arc::new(root)), rights.write))
}

/// A directory being served.
#[derive(Debug)]
pub struct Server {
    served: Served,
    endpoint: Endpoint,
    read_only: bool,
    access: Access,
    /// The list of keys, if there is one.
    pub(crate) boot: [u8; 16],
    max_rate: Option<u64>,
}

impl Server {
    /// Opens `directory` and listens on `address`. A client that `options` admit may read everything below the
    /// directory and, unless read-only, write there.
    ///
    /// # Errors
    /// [`Error::Local`] if the directory cannot be opened, [`Error::Listen`] if the address
    /// cannot be listened on, [`Error::Transport`] if its name cannot be resolved.
    pub fn bind(
        directory: &Path,
        address: impl ToSocketAddrs,
        options: ServeOptions,
    ) -> Result<Server, Error> {
        let root = Root::open(directory).map_err(|cause| Error::local(directory, cause))?;
        Server::of(Served::Below(Arc::new(root)), address, options)
    }

    /// Like [`Server::bind`], on a UDP socket that another program opened and bound: [`Endpoint::adopt`].
    ///
    /// # Errors
    /// As for [`Server::bind`]; [`Error::Listen`] if the socket cannot be listened on.
    pub fn adopt(
        directory: &Path,
        socket: OwnedFd,
        options: ServeOptions,
    ) -> Result<Server, Error> {
        let root = Root::open(directory).map_err(|cause| Error::local(directory, cause))?;
        let served = Served::Below(Arc::new(root));
        Server::at(served, options, |transport| {
            Endpoint::adopt(socket, transport).map_err(|source| Error::Listen {
                address: "the socket that was passed".into(),
                source,
            })
        })
    }

    /// Like [`Server::bind`], for a login that accesses its own files: clients name files as programs of that user on
    /// this machine would, relative to the working directory or by absolute path, with `..` and through symbolic links.
    /// They have the permissions of this process's user.
    ///
    /// # Errors
    /// As for [`Server::bind`], applied to the working directory.
    pub fn bind_login(address: impl ToSocketAddrs, options: ServeOptions) -> Result<Server, Error> {
        let here = Path::new(".");
        let root = Root::of_login().map_err(|cause| Error::local(here, cause))?;
        Server::of(Served::Below(Arc::new(root)), address, options)
    }

    /// Listens on `address` and lets clients read the offered files, and nothing else.
    pub(crate) fn offering(
        offered: Offered,
        address: SocketAddr,
        options: ServeOptions,
    ) -> Result<Server, Error> {
        Server::of(Served::Offered(Arc::new(offered)), address, options)
    }

    fn of(
        served: Served,
        address: impl ToSocketAddrs,
        options: ServeOptions,
    ) -> Result<Server, Error> {
        let addresses = address.to_socket_addrs().map_err(zerolane::Error::from)?;
        let addresses: Vec<_> = addresses.collect();
        Server::at(served, options, |transport| {
            Endpoint::bind(&addresses[..], transport).map_err(|source| Error::Listen {
                address: in_words(&addresses),
                source,
            })
        })
    }

    fn at(
        served: Served,
        options: ServeOptions,
        listen: impl FnOnce(Options) -> Result<Endpoint, Error>,
    ) -> Result<Server, Error> {
        // Read now, because a confined process cannot read it any more.
        umask();
        let mut transport = options.transport;
        let max_rate = transport.rate.max;
        if let Access::Listed(list) = &options.access {
            // A client that is not on the list gets no connection.
            transport.security.trust = Arc::clone(list) as Arc<dyn Trust>;
        }
        // It accepts at once, in a thread that it confines; a code admits one client, whom it counts when it accepts.
        transport.listen.backlog = 0;
        let of_origin = &mut transport.listen.max_connections_of_origin;
        *of_origin = SERVER_CONNECTIONS_OF_ORIGIN.min(*of_origin);
        Ok(Server {
            served,
            endpoint: listen(transport)?,
            read_only: options.read_only,
            access: options.access,
            boot: boot()?,
            max_rate,
        })
    }

    /// The key that identifies this server to clients; `None` with plain connections.
    pub fn public_key(&self) -> Option<PublicKey> {
        self.endpoint.public_key()
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    /// [`Endpoint::give_to`].
    ///
    /// # Errors
    /// Only root may change the owner.
    pub fn give_to(&mut self, uid: u32) -> Result<(), Error> {
        Ok(self.endpoint.give_to(uid)?)
    }

    /// Drops the rights that serving does not need, by Landlock, from the calling thread and from all threads that it
    /// starts from now on: files outside of the directory (except those below `readable`, for reading), starting
    /// programs, TCP, signals to other processes. A read-only server cannot write below the directory either. It cannot
    /// be undone; existing threads are unaffected.
    ///
    /// This is a second line of defence: no request can name anything outside of the directory anyway. A
    /// [login](Self::bind_login)'s server keeps the rights to all files of the login, and loses the rest. Connections
    /// use UDP, which Landlock does not cover.
    ///
    /// # Errors
    /// The kernel has Landlock and refused. Paths in `readable` that do not exist are ignored.
    pub fn confine(&self, readable: &[&Path]) -> io::Result<Confinement> {
        let Served::Below(root) = &self.served else {
            // An offer can name files anywhere, and its process ends with it.
            return Ok(Confinement::None);
        };
        let all;
        let served = match root.is_of_login() {
            true => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                all = openat(CWD, "/", flags, Mode::empty())?;
                all.as_fd()
            }
            false => root.as_fd(),
        };
        confine(served, !self.read_only, readable)
    }

    /// Serves until `stop` is requested, then ends running copies early. With a one-time code
    /// ([`PreShared::Code`](zerolane::security::PreShared)), it serves the one client that the code admits and returns.
    /// When the list of keys changes, connections end whose clients lost rights.
    ///
    /// # Errors
    /// The endpoint failed; the failure of one connection ends only that connection. [`Error::CodeGuessed`] if too many
    /// wrong guesses invalidated the code, [`Error::ClientLost`] if the one client with the code was not served
    /// completely.
    pub fn run(&mut self, stop: &Stop, observer: &dyn ServerObserver) -> Result<(), Error> {
        let Server {
            served,
            endpoint,
            read_only,
            access,
            boot,
            max_rate,
        } = self;
        let turns = Turns::default();
        let turns = &turns;
        let queues = Queues::default();
        let queues = &queues;
        let mut guests = Guests::default();
        let active = AtomicUsize::new(0);
        let all_served = AtomicBool::new(true);
        let all_served = &all_served;
        let mut told = 0;
        thread::scope(|scope| {
            while !stop.requested() {
                stop.wait_beside(endpoint.as_fd(), ACCEPT_WAIT);
                let accepted = endpoint.accept(Some(UNAUTHENTICATED_WAIT))?;
                // Also when the new client is the first to use the new list: its request is reported after that.
                if let Some(news) = access.take_change() {
                    observer.list_changed(news);
                    guests.check(access);
                }
                observer.unauthenticated(endpoint.gate_counters().as_ref(), &endpoint.counters());
                observer.queued(queues.queued());
                tell_wrong_codes(endpoint, &mut told, observer);
                report_untrusted(endpoint, observer);
                let Some(connection) = accepted else {
                    if endpoint.is_spent() && active.load(Ordering::Acquire) == 0 {
                        return how_spent(endpoint, all_served.load(Ordering::Acquire));
                    }
                    continue;
                };
                let peer = peer(&connection, access);
                if active.load(Ordering::Acquire) >= SERVER_CONNECTIONS {
                    observer.refused(&peer, &Refusal::Full);
                    turn_away(connection, Refusal::Full, stop);
                    continue;
                }
                let rights = access.rights(peer.key).ok_or(Refusal::NotAllowed);
                let admitted = rights.and_then(|it| Ok((admit(&it, served)?, it)));
                let ((served, may_write), rights) = match admitted {
                    Ok(admitted) => admitted,
                    Err(why) => {
                        observer.refused(&peer, &why);
                        turn_away(connection, why, stop);
                        continue;
                    }
                };
                let session = Session {
                    served,
                    read_only: *read_only,
                    may_write,
                    stop: stop.of_part(),
                    observer,
                    key: lasting_key(access, peer.key),
                    peer,
                    turns,
                    boot: *boot,
                    max_rate: *max_rate,
                    spent: Mutex::default(),
                    queues,
                };
                guests.enter(&session.peer, rights, session.stop.clone());
                let slot = Slot::take(&active);
                // Without a thread the connection is dropped, and its client sees it end.
                let _ =
                    thread::Builder::new()
                        .name("serve".into())
                        .spawn_scoped(scope, move || {
                            let _slot = slot;
                            let served = session.serve(connection);
                            all_served.fetch_and(served, Ordering::AcqRel);
                        });
            }
            Ok(())
        })
    }
}

/// Reports clients that are not on the list.
fn report_untrusted(endpoint: &mut Endpoint, observer: &dyn ServerObserver) {
    let Untrusted { clients, more } = endpoint.take_untrusted();
    if clients.is_empty() {
        return;
    }
    let peer = |(key, address)| Peer {
        connection: 0,
        address,
        key: Some(key),
        name: None,
    };
    let clients: Vec<Peer> = clients.into_iter().map(peer).collect();
    observer.untrusted(&clients, more);
}

fn peer(connection: &Connection, access: &Access) -> Arc<Peer> {
    let key = connection.peer_key();
    static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
    Arc::new(Peer {
        connection: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
        address: connection.peer_addr(),
        key,
        name: access.name(key),
    })
}

/// The key that identifies a client when it reconnects. A client admitted without a list may use a new key for each
/// connection.
fn lasting_key(access: &Access, key: Option<PublicKey>) -> Option<PublicKey> {
    match access {
        Access::Listed(_) => key,
        Access::Anyone => None,
    }
}

/// The boot ID of this system, or if there is none, a random number for this server.
fn boot() -> Result<[u8; 16], Error> {
    let told = std::fs::read(BOOT_ID);
    let told = match told {
        Ok(id) => id,
        Err(_) => zerolane::security::random()
            .map_err(|_| Error::NoRandom)?
            .to_vec(),
    };
    let digest = blake3::hash(&told);
    let (halves, _) = digest.as_bytes().as_chunks();
    Ok(halves[0])
}

fn in_words(addresses: &[SocketAddr]) -> String {
    let words: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
    words.join(", ")
}

/// How long the accept loop waits before it checks the list of keys and the counters.
const ACCEPT_WAIT: Duration = Duration::from_millis(100);
/// How long it processes consecutive unauthenticated peers before that.
const UNAUTHENTICATED_WAIT: Duration = Duration::from_millis(1);
/// Time for a refused client to receive the reason: no other client is accepted meanwhile.
const TURN_AWAY: Duration = Duration::from_millis(200);

/// Reports the wrong codes beyond the first `told`.
fn tell_wrong_codes(endpoint: &Endpoint, told: &mut u32, observer: &dyn ServerObserver) {
    let wrong_codes = endpoint.gate_counters().map_or(0, |it| it.wrong_codes);
    while u64::from(*told) < wrong_codes {
        *told += 1;
        observer.wrong_code(CODE_GUESSES.saturating_sub(*told));
    }
}

/// The result of a code that admits no more clients.
fn how_spent(endpoint: &Endpoint, served: bool) -> Result<(), Error> {
    match endpoint.gate_counters() {
        Some(gate) if gate.admitted == 0 => Err(Error::CodeGuessed),
        _ if !served => Err(Error::ClientLost),
        _ => Ok(()),
    }
}

fn turn_away(mut connection: Connection, why: Refusal, stop: &Stop) {
    // Its request is received first: a client whose request is never received sees only that the connection ends. A
    // rate limit may come before the request.
    for _ in 0..2 {
        match hear(&mut connection, stop, TURN_AWAY) {
            Ok(Request::Limit { .. }) => {}
            _ => break,
        }
    }
    let _ = say(&mut connection, &Reply::Refused(why), stop, TURN_AWAY);
}

/// One of the server's connections; returned when dropped.
struct Slot<'a>(&'a AtomicUsize);

impl<'a> Slot<'a> {
    fn take(active: &'a AtomicUsize) -> Slot<'a> {
        active.fetch_add(1, Ordering::AcqRel);
        Slot(active)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
