//! The server: one directory, a thread for each connection.

use super::client::{CONTROL, DATA};
use super::confine::{Confinement, confine};
use super::error::{Cause, Error, Refusal};
use super::limits::{
    CONTROL_BYTES, ENTRY_OVERHEAD_BYTES, REPLY_SECONDS, REQUEST_SECONDS, SERVER_CONNECTIONS,
    SERVER_CONNECTIONS_OF_ORIGIN,
};
use super::message::{CopyOptions, Entry, Reply, Request, Totals};
use super::name::RelativePath;
use super::opening::{hear, say};
use super::pump;
use super::receive::{FileReceiver, TopLevel};
use super::root::{Root, kind_of, meta_of, stat_at};
use super::send::{FileSender, Start};
use super::stop::Stop;
use super::target::{Sources, resolve_below, top_level};
use crate::keys::{AllowFile, Rights};
use crate::{Connection, Endpoint, Options, PublicKey, Trust};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::Dir;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use zerolane_lane::limits::CODE_GUESSES;

/// Who may connect to a server.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// Whoever reaches the address, with all rights.
    #[default]
    Anyone,
    /// Whose keys are on the list, with the rights that stand there. Not with plain connections,
    /// which prove no key.
    Listed(Arc<AllowFile>),
}

impl Access {
    /// What the owner of `key` may do (`None` in plain mode); `None`: not even connect.
    pub fn rights(&self, key: Option<PublicKey>) -> Option<Rights> {
        match self {
            Access::Anyone => Some(Rights::ALL),
            Access::Listed(list) => list.list().rights(&key?).cloned(),
        }
    }

    /// [`AllowFile::news`] of the list, if there is one.
    pub fn news(&self) -> Option<Result<usize, String>> {
        match self {
            Access::Anyone => None,
            Access::Listed(list) => list.news(),
        }
    }

    /// What the owner of `key` sees of `root`, and whether it may write there; `None`: nothing.
    fn admit(&self, key: Option<PublicKey>, root: &Arc<Root>) -> Option<(Arc<Root>, bool)> {
        let rights = self.rights(key)?;
        let below = rights.files()?;
        if below.is_empty() {
            return Some((Arc::clone(root), rights.write));
        }
        let below = RelativePath::parse(below).ok()?;
        Some((Arc::new(root.below(&below).ok()?), rights.write))
    }
}

/// How a directory is served.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// Refuse every request that would write.
    pub read_only: bool,
    /// Who may connect, and what for.
    pub access: Access,
    /// Options of the transport.
    pub transport: Options,
}

/// Told what a server does, from the threads of its connections. Every method may be left out.
pub trait ServerObserver: Sync {
    /// A client asks for something; `what` is for people.
    fn asked(&self, peer: SocketAddr, what: &str) {
        let _ = (peer, what);
    }

    /// The list of keys changed: how many it has now, or why the file cannot be used and the list
    /// before it stays in force.
    fn list_changed(&self, news: Result<usize, String>) {
        let _ = news;
    }

    /// A client was connected, and is turned away because of `why`.
    fn turned_away(&self, peer: SocketAddr, why: &Refusal) {
        let _ = (peer, why);
    }

    /// Somebody tried a wrong one-time code; after `left` more nobody gets in.
    fn wrong_code(&self, left: u32) {
        let _ = left;
    }

    /// What came of it. `None`: there is nothing to count (a listing).
    fn ended(&self, peer: SocketAddr, outcome: &Result<Option<Totals>, Error>) {
        let _ = (peer, outcome);
    }
}

/// Nobody wants to know.
impl ServerObserver for () {}

/// A directory being served.
#[derive(Debug)]
pub struct Server {
    root: Arc<Root>,
    endpoint: Endpoint,
    read_only: bool,
    access: Access,
}

impl Server {
    /// Opens `directory` and listens on `address`. Whoever `options` let in may read what is below
    /// the directory and, unless read-only, write there.
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
            // Whoever is not on the list gets no connection.
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

    /// Who it is to those who connect; `None` with plain connections.
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
    /// ([`PreShared::Code`](crate::PreShared)), until the one client that it lets in is served.
    ///
    /// # Errors
    /// If the endpoint itself fails; what goes wrong with one connection ends only that one.
    /// [`Error::CodeGuessed`] if the code was tried so often that nobody gets in any more.
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
                let Some((root, write)) = access.admit(connection.peer_key(), root) else {
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
const PATIENCE: Duration = Duration::from_secs(REPLY_SECONDS);
/// A client that is turned away gets this long to hear why: nobody else is accepted meanwhile.
const TURN_AWAY: Duration = Duration::from_millis(200);

/// Tells of the wrong codes beyond the first `told`.
fn tell_wrong_codes(endpoint: &Endpoint, told: &mut u32, observer: &dyn ServerObserver) {
    let wrong_codes = endpoint.gate_counters().map_or(0, |it| it.wrong_codes);
    while u64::from(*told) < wrong_codes {
        *told += 1;
        observer.wrong_code(CODE_GUESSES.saturating_sub(*told));
    }
}

/// What became of a code by which nobody gets in any more.
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

/// One connection and what it may do.
struct Session<'a> {
    root: Arc<Root>,
    read_only: bool,
    stop: &'a Stop,
    observer: &'a dyn ServerObserver,
    peer: SocketAddr,
}

impl Session<'_> {
    fn serve(&self, mut connection: Connection) {
        let outcome = self.answer(&mut connection);
        self.observer.ended(self.peer, &outcome);
        let _ = connection.close();
    }

    fn answer(&self, connection: &mut Connection) -> Result<Option<Totals>, Error> {
        let request = match hear(connection, self.stop, Duration::from_secs(REQUEST_SECONDS)) {
            Ok(request) => request,
            Err(error @ (Error::NotFileService | Error::Version { .. } | Error::Protocol(_))) => {
                // The reply carries our version, so that another one's client can tell.
                let _ = self.say(connection, &Reply::Refused(Refusal::Malformed));
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        self.observer.asked(self.peer, &describe(&request));
        match request {
            Request::Put {
                destination,
                sources,
                contents,
                options,
            } => self
                .put(
                    connection,
                    &destination,
                    Sources {
                        count: sources,
                        contents,
                    },
                    options,
                )
                .map(Some),
            Request::Get { sources, options } => self.get(connection, &sources, options).map(Some),
            Request::List { path } => self.list(connection, &path).map(|()| None),
        }
    }

    fn put(
        &self,
        connection: &mut Connection,
        destination: &[u8],
        sources: Sources,
        options: CopyOptions,
    ) -> Result<Totals, Error> {
        if self.read_only {
            return self.refuse(connection, Refusal::ReadOnly);
        }
        let target = RelativePath::parse(destination)
            .and_then(|path| resolve_below(&self.root, &path, sources));
        let (base, new_name) = match target {
            Ok(target) => target,
            Err(cause) => {
                return self.refuse(
                    connection,
                    Refusal::Path {
                        path: destination.to_vec(),
                        cause,
                    },
                );
            }
        };
        self.say(connection, &Reply::Accepted)?;
        let top = top_level(new_name, TopLevel::Any);
        pump::run(connection, CONTROL, DATA, self.stop, |port| {
            FileReceiver::new(port, &(), options, base, top).receive_all()
        })
    }

    fn get(
        &self,
        connection: &mut Connection,
        sources: &[Vec<u8>],
        options: CopyOptions,
    ) -> Result<Totals, Error> {
        let starts = sources
            .iter()
            .map(|source| self.start(source, &options))
            .collect();
        self.say(connection, &Reply::Accepted)?;
        pump::run(connection, DATA, CONTROL, self.stop, |port| {
            FileSender::new(port, &(), options).send_all(starts)
        })
    }

    fn start(&self, source: &[u8], options: &CopyOptions) -> Start {
        let missing = |cause| Start::Missing {
            path: source.to_vec(),
            cause,
        };
        let found =
            RelativePath::parse(source).and_then(|path| match self.root.open_parent(&path)? {
                Some((directory, name)) => Ok(Start::Named {
                    directory,
                    name: name.to_vec(),
                }),
                None if options.recursive => Ok(Start::Contents(self.root.open_directory(&path)?)),
                None => Err(Cause::IsADirectory),
            });
        found.unwrap_or_else(missing)
    }

    fn list(&self, connection: &mut Connection, path: &[u8]) -> Result<(), Error> {
        let listing = RelativePath::parse(path).and_then(|path| Listing::open(&self.root, &path));
        let mut listing = match listing {
            Ok(listing) => listing,
            Err(cause) => {
                return self.refuse(
                    connection,
                    Refusal::Path {
                        path: path.to_vec(),
                        cause,
                    },
                );
            }
        };
        loop {
            let (entries, last) = listing.next_entries();
            self.say(connection, &Reply::Entries { entries, last })?;
            if last {
                return Ok(());
            }
        }
    }

    fn say(&self, connection: &mut Connection, reply: &Reply) -> Result<(), Error> {
        say(connection, reply, self.stop, PATIENCE)
    }

    fn refuse<T>(&self, connection: &mut Connection, refusal: Refusal) -> Result<T, Error> {
        self.say(connection, &Reply::Refused(refusal.clone()))?;
        Err(refusal.into())
    }
}

/// A request in words.
fn describe(request: &Request) -> String {
    let list = |paths: &[Vec<u8>]| {
        paths
            .iter()
            .map(|path| super::escape(path))
            .collect::<Vec<_>>()
            .join(" ")
    };
    match request {
        Request::Put { destination, .. } => format!("write to {:?}", super::escape(destination)),
        Request::Get { sources, .. } => format!("read {:?}", list(sources)),
        Request::List { path } => format!("list {:?}", super::escape(path)),
    }
}

/// A listing on its way out, a message at a time.
enum Listing {
    One(Option<Entry>),
    Directory(Box<Dir>),
}

impl Listing {
    fn open(root: &Root, path: &RelativePath) -> Result<Listing, Cause> {
        match root.open_directory(path) {
            Ok(directory) => return Ok(Listing::Directory(Box::new(Dir::new(directory)?))),
            Err(Cause::NotADirectory | Cause::OutsideRoot) if !path.must_be_directory() => {}
            Err(cause) => return Err(cause),
        }
        let (parent, name) = root.open_parent(path)?.ok_or(Cause::NotFound)?;
        Ok(Listing::One(Some(entry(parent.as_fd(), name)?)))
    }

    /// As many entries as one message holds, and whether they are the last.
    fn next_entries(&mut self) -> (Vec<Entry>, bool) {
        match self {
            Listing::One(entry) => (entry.take().into_iter().collect(), true),
            Listing::Directory(directory) => next_entries(directory),
        }
    }
}

fn next_entries(directory: &mut Dir) -> (Vec<Entry>, bool) {
    let mut entries = Vec::new();
    let mut room = CONTROL_BYTES - 2 * ENTRY_OVERHEAD_BYTES;
    while let Some(next) = directory.next() {
        // An error ends the directory; what was read of it is shown.
        let Ok(next) = next else {
            return (entries, true);
        };
        let name = next.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        // Gone meanwhile, perhaps: not shown.
        let found = directory
            .fd()
            .map_err(Cause::from)
            .and_then(|fd| entry(fd, name));
        if let Ok(found) = found {
            room = room.saturating_sub(found.name.len() + ENTRY_OVERHEAD_BYTES);
            entries.push(found);
        }
        if room < super::limits::NAME_BYTES + ENTRY_OVERHEAD_BYTES {
            return (entries, false);
        }
    }
    (entries, true)
}

fn entry(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Entry, Cause> {
    let stat = stat_at(directory, name)?;
    Ok(Entry {
        name: name.to_vec(),
        kind: kind_of(&stat),
        size: stat.st_size as u64,
        meta: meta_of(&stat),
    })
}
