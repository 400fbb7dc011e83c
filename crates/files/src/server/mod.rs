//! The server: one directory, a thread for each connection.

mod listing;
mod session;

use crate::confine::{Confinement, confine};
use crate::error::{Error, Refusal};
use crate::limits::{SERVER_CONNECTIONS, SERVER_CONNECTIONS_OF_ORIGIN};
use crate::message::Reply;
use crate::name::RelativePath;
use crate::observe::ServerObserver;
use crate::opening::say;
use crate::root::Root;
use crate::stop::Stop;
use rustix::fd::AsFd;
use session::Session;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use zerolane::keys::Access;
use zerolane::security::{CODE_GUESSES, PublicKey, Trust};
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

/// What the owner of `key` sees of `root`, and whether it may write there; `None`: nothing.
fn admit(access: &Access, key: Option<PublicKey>, root: &Arc<Root>) -> Option<(Arc<Root>, bool)> {
    let rights = access.rights(key)?;
    let below = rights.files()?;
    if below.is_empty() {
        return Some((Arc::clone(root), rights.write));
    }
    let below = RelativePath::parse(below).ok()?;
    Some((Arc::new(root.below(&below).ok()?), rights.write))
}

/// A directory being served.
#[derive(Debug)]
pub struct Server {
    root: Arc<Root>,
    endpoint: Endpoint,
    read_only: bool,
    access: Access,
}

impl Server {
    /// Opens `directory` and listens on `address`. A client that `options` let in may read what is
    /// below the directory and, unless read-only, write there.
    ///
    /// # Errors
    /// [`Error::Local`] if the directory cannot be opened, [`Error::Transport`] if the address
    /// cannot be listened on.
    pub fn bind(
        directory: &Path,
        address: impl ToSocketAddrs,
        options: ServeOptions,
    ) -> Result<Server, Error> {
        let root = Root::open(directory).map_err(|cause| Error::local(directory, cause))?;
        let mut transport = options.transport;
        if let Access::Listed(list) = &options.access {
            // A client that is not on the list gets no connection.
            transport.security.trust = Arc::clone(list) as Arc<dyn Trust>;
        }
        let of_origin = &mut transport.max_connections_of_origin;
        *of_origin = SERVER_CONNECTIONS_OF_ORIGIN.min(*of_origin);
        let endpoint = Endpoint::bind(address, transport)?;
        Ok(Server {
            root: Arc::new(root),
            endpoint,
            read_only: options.read_only,
            access: options.access,
        })
    }

    /// The key by which clients know it; `None` with plain connections.
    pub fn public_key(&self) -> Option<PublicKey> {
        self.endpoint.public_key()
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    /// [`Endpoint::give_to`].
    ///
    /// # Errors
    /// Only root may give to others.
    pub fn give_to(&self, uid: u32) -> Result<(), Error> {
        Ok(self.endpoint.give_to(uid)?)
    }

    /// Takes from the calling thread, and from all threads that it starts from now on, what serving
    /// does not need, by Landlock: files outside of the directory (but those below `readable`, for
    /// reading), starting programs, TCP, signals to other processes. A server that only reads may
    /// not write below the directory either. It cannot be undone; threads that are there stay as
    /// they are.
    ///
    /// It is a second lock, behind the first, should that fail: no request names anything outside of
    /// the directory. Connections are UDP, which Landlock does not know.
    ///
    /// # Errors
    /// The kernel has Landlock and refuses. What of `readable` is not there is left out.
    pub fn confine(&self, readable: &[&Path]) -> io::Result<Confinement> {
        confine(self.root.as_fd(), !self.read_only, readable)
    }

    /// Serves until `stop` is requested, then lets running copies end early. With a one-time code
    /// ([`PreShared::Code`](zerolane::security::PreShared)), until the one client that it lets in is served.
    ///
    /// # Errors
    /// If the endpoint itself fails; what goes wrong with one connection ends only that one.
    /// [`Error::CodeGuessed`] if wrong codes were tried so often that the code is void.
    pub fn run(&mut self, stop: &Stop, observer: &dyn ServerObserver) -> Result<(), Error> {
        let Server {
            root,
            endpoint,
            read_only,
            access,
        } = self;
        let active = AtomicUsize::new(0);
        let mut told = 0;
        thread::scope(|scope| {
            while !stop.requested() {
                if let Some(news) = access.news() {
                    observer.list_changed(news);
                }
                let accepted = endpoint.accept(Some(ACCEPT_WAIT))?;
                tell_wrong_codes(endpoint, &mut told, observer);
                let Some(connection) = accepted else {
                    if endpoint.is_spent() && active.load(Ordering::Acquire) == 0 {
                        return how_spent(endpoint);
                    }
                    continue;
                };
                if active.load(Ordering::Acquire) >= SERVER_CONNECTIONS {
                    observer.turned_away(connection.peer_addr(), &Refusal::Full);
                    turn_away(connection, Refusal::Full, stop);
                    continue;
                }
                let Some((root, write)) = admit(access, connection.peer_key(), root) else {
                    observer.turned_away(connection.peer_addr(), &Refusal::NotAllowed);
                    turn_away(connection, Refusal::NotAllowed, stop);
                    continue;
                };
                let session = Session {
                    root,
                    read_only: *read_only || !write,
                    stop,
                    observer,
                    peer: connection.peer_addr(),
                };
                let slot = Slot::take(&active);
                // Without a thread the connection is dropped: its client sees it end.
                let _ =
                    thread::Builder::new()
                        .name("serve".into())
                        .spawn_scoped(scope, move || {
                            let _slot = slot;
                            session.serve(connection);
                        });
            }
            Ok(())
        })
    }
}

/// How long the accept loop waits before it looks whether it is to stop.
const ACCEPT_WAIT: Duration = Duration::from_millis(100);
/// A client that is turned away gets this long to hear why: no other is accepted meanwhile.
const TURN_AWAY: Duration = Duration::from_millis(200);

/// Tells of the wrong codes beyond the first `told`.
fn tell_wrong_codes(endpoint: &Endpoint, told: &mut u32, observer: &dyn ServerObserver) {
    let wrong_codes = endpoint.gate_counters().map_or(0, |it| it.wrong_codes);
    while u64::from(*told) < wrong_codes {
        *told += 1;
        observer.wrong_code(CODE_GUESSES.saturating_sub(*told));
    }
}

/// Why a code admits no more clients.
fn how_spent(endpoint: &Endpoint) -> Result<(), Error> {
    match endpoint.gate_counters() {
        Some(strangers) if strangers.admitted == 0 => Err(Error::CodeGuessed),
        _ => Ok(()),
    }
}

fn turn_away(mut connection: Connection, why: Refusal, stop: &Stop) {
    let _ = say(&mut connection, &Reply::Refused(why), stop, TURN_AWAY);
}

/// One of the connections a server may have; given back when dropped.
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
