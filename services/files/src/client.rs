//! Connects to a server and copies files to it and from it (`cp`).

mod change;
mod end;
mod list;
mod ranges;
mod repeated;
mod shares;
mod spare;
mod stream;
mod sync;
mod told;
mod within;

pub use change::Changes;
pub use list::{Entry, Listed};
pub use ranges::{Range, Ranges};

use crate::digest::{Algorithm, Digester};
use crate::error::Error;
use crate::expand::starts;
use crate::filter::Filter;
use crate::glob::is_wild;
use crate::limits::{LEAST_RATE, PATIENCE_SECONDS, REPLY_SECONDS};
use crate::links::SourceLinks;
use crate::local::{is_contents, local_starts};
use crate::location::Host;
use crate::message::{CopyOptions, Landing, Reply, Request, Totals};
use crate::modes::Modes;
use crate::observe::Observer;
use crate::opening::{hear, say};
use crate::persist::Copying;
use crate::pump::{CONTROL, DATA, run_watched};
use crate::receive::{FileReceiver, Offered, Role, TopLevel, Written};
use crate::root::Root;
use crate::send::{FileSender, Start};
use crate::stop::Stop;
use crate::target::{Sources, resolve_local, top_level};
use end::{Done, close};
use rustix::fd::OwnedFd;
use rustix::io::fcntl_dupfd_cloexec;
use shares::Assigned;
use spare::Spare;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use zerolane::{Connection, Options, lanes};

/// The server to connect to, and the options of connections. Each copy or listing uses its own connection; when the
/// connection of a copy breaks, the copy continues over a new one.
///
/// ```no_run
/// use zerolane_files::{Client, CopyOptions, Host};
/// let client = Client::new(Host::new("server", 9181));
/// let totals = client.put(&["data".into()], b"backup", &CopyOptions::default(), &())?;
/// assert_eq!(totals.failed, 0);
/// # Ok::<(), zerolane_files::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    host: Host,
    connector: Connector,
    transport: Options,
    stop: Stop,
    patience: Duration,
    connections: u16,
    filter: Arc<Filter>,
    modes: Modes,
    done: Done,
    /// The server belongs to this process: it sees the same files.
    within: bool,
}

/// Makes a connection with these options.
type Connect = dyn Fn(&Options) -> zerolane::Result<Connection> + Send + Sync;

#[derive(Clone)]
struct Connector(Arc<Connect>);

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl Client {
    /// A client of the file service at `host`.
    pub fn new(host: Host) -> Client {
        let (name, port) = (host.name.clone(), host.port());
        let connect = move |options: &Options| {
            let to = lanes::resolve_host(&name, port, options.lane.choice)?;
            Connection::connect(&to[..], options)
        };
        Client {
            host,
            connector: Connector(Arc::new(connect)),
            transport: Options::default(),
            stop: Stop::default(),
            patience: Duration::from_secs(PATIENCE_SECONDS),
            connections: 1,
            filter: Arc::default(),
            modes: Modes::default(),
            done: Done::default(),
            within: false,
        }
    }

    /// Sets the options of the transport.
    pub fn with_transport(mut self, options: Options) -> Client {
        self.transport = options;
        self
    }

    /// Limits the content that each connection sends and receives, in bytes per second, as
    /// [`RateOptions::max`](zerolane::options::RateOptions::max) does. The server is told the limit, because it sends
    /// when this end receives.
    pub fn with_max_rate(mut self, max_rate: Option<u64>) -> Client {
        self.transport.rate.max = max_rate;
        self
    }

    /// Ends early, with [`Error::Stopped`], when `stop` is requested.
    pub fn with_stop(mut self, stop: Stop) -> Client {
        self.stop = stop;
        self
    }

    /// Excludes files as `filter` says. Only [`Client::put`] and [`Client::get`] apply it. Rules for the source count,
    /// and patterns start at the sources, so that `/a/b` is `b` in a source called `a`.
    pub fn with_filter(mut self, filter: Filter) -> Client {
        self.filter = Arc::new(filter);
        self
    }

    /// Changes the permissions of copied files by `modes`; a sync uses
    /// [`SyncOptions::modes`](crate::SyncOptions::modes) instead.
    pub fn with_modes(mut self, modes: Modes) -> Client {
        self.modes = modes;
        self
    }

    /// Uses connections made by `connect`, at first and each time one breaks, instead of [`Connection::connect`] to the
    /// host. It is called on a thread of its own. An [`io::Error::other`](std::io::Error::other) means that no further
    /// connection can be made.
    pub fn with_connector(
        mut self,
        connect: impl Fn(&Options) -> zerolane::Result<Connection> + Send + Sync + 'static,
    ) -> Client {
        self.connector = Connector(Arc::new(connect));
        self
    }

    /// Limits how long a copy whose connection broke tries to continue without progress, before it ends with
    /// [`Error::GaveUp`]: [`PATIENCE_SECONDS`] unless set. Zero: the first break ends the copy.
    pub fn with_patience(mut self, patience: Duration) -> Client {
        self.patience = patience;
        self
    }

    /// Copies local files to the host: into `destination` if that is a directory there, else under that name. A source
    /// that ends with `/.`, or has no name of its own (`.`, `/`, `..`), stands for its contents. Of two sources with
    /// one name the first is copied, and the second fails.
    ///
    /// # Errors
    /// Any error that ends the whole copy. Single files that fail are reported to `observer` and counted in
    /// [`Totals::failed`].
    pub fn put(
        &self,
        sources: &[PathBuf],
        destination: &[u8],
        options: &CopyOptions,
        observer: &dyn Observer,
    ) -> Result<Totals, Error> {
        let contents = sources.iter().any(|source| is_contents(source));
        let known = Sources {
            count: u32::try_from(sources.len()).map_err(|_| Error::TooLong)?,
            contents,
            device: options.in_place,
        };
        let starts = local_starts(sources, options);
        let what = (&starts[..], SourceLinks::local(options), known);
        self.in_shares(options, starts.len(), observer, |client, assigned| {
            client.put_share(&what, destination, options, assigned)
        })
    }

    /// Like [`Client::put`], with sources interpreted as a [login's server](crate::Server::bind_login) interprets those
    /// of [`Client::get`]: patterns are expanded here, in the working directory.
    ///
    /// # Errors
    /// As for [`Client::put`], and [`Error::Local`] if the working directory cannot be opened.
    pub fn put_matching(
        &self,
        sources: &[Vec<u8>],
        destination: &[u8],
        options: &CopyOptions,
        observer: &dyn Observer,
    ) -> Result<Totals, Error> {
        let root = Root::of_login().map_err(|cause| Error::local(Path::new("."), cause))?;
        let root = Arc::new(root);
        let known = Sources::of(sources, options)?;
        let starts = starts(&root, sources);
        let links = SourceLinks::of_root(options, &root);
        let what = (&starts[..], links, known);
        self.in_shares(options, starts.len(), observer, |client, assigned| {
            client.put_share(&what, destination, options, assigned)
        })
    }

    fn put_share(
        &self,
        (starts, links, sources): &(&[Start], SourceLinks, Sources),
        destination: &[u8],
        options: &CopyOptions,
        mut assigned: Assigned<'_>,
    ) -> Result<Totals, Error> {
        let offer = Digester::offer()?;
        let share = assigned.share;
        self.copying_share(&assigned).run(|copying| {
            let options = copying.options(options, share);
            let request = Request::Put {
                destination: destination.to_vec(),
                sources: sources.count,
                contents: sources.contents,
                landing: assigned.landing(),
                share,
                options,
                digester: offer.clone(),
            };
            let (mut connection, accepted) = self.ask(&request, copying, &options)?;
            let digester = offer.settle(accepted.algorithm)?;
            assigned.accept(&accepted);
            let target = self.target_within(destination, accepted.landing);
            let observer = copying.observer;
            let reached = &mut copying.reached;
            let mut spare = Spare::new(self);
            let rings = (DATA, CONTROL);
            let copied = run_watched(&mut connection, rings, &self.stop, &mut spare, |port| {
                FileSender::new(port, observer, options, digester, reached)
                    .with_links(links.clone(), Vec::new())
                    .with_target(target)
                    .filtered(&self.filter)?
                    .with_modes(&self.modes)
                    .of_share(share)
                    .send_all(starts)
            });
            copying.spare = spare.found;
            self.end(connection, &copied);
            copied
        })
    }

    /// Copies files of the host here: into `destination` if that is a directory, else under that name. A source that
    /// ends with `/.` stands for the contents of that directory, an empty one for those of the served directory. A
    /// source that does not exist as written is a shell pattern: `*`, `?`, `[a-z]`, and `\\` to escape a character.
    /// `destination` must then be a directory.
    ///
    /// # Errors
    /// As for [`Client::put`], and [`Error::Local`] if `destination` cannot take the sources.
    pub fn get(
        &self,
        sources: &[Vec<u8>],
        destination: &Path,
        options: &CopyOptions,
        observer: &dyn Observer,
    ) -> Result<Totals, Error> {
        self.get_wanted(
            sources,
            destination,
            TopLevel::of(sources),
            options,
            observer,
        )
    }

    /// Copies exactly what a sender offered into a directory, which is made if necessary.
    pub(crate) fn get_offered(
        &self,
        directory: &Path,
        options: &CopyOptions,
        offered: Offered,
        observer: &dyn Observer,
    ) -> Result<Totals, Error> {
        let wanted = TopLevel::Offered(Arc::new(offered));
        self.get_wanted(&[Vec::new()], directory, wanted, options, observer)
    }

    /// Declines a sender's offer, also where a requested stop is the reason.
    pub(crate) fn decline(&self) -> Result<(), Error> {
        let client = self.clone().with_stop(Stop::default());
        let mut connection = client.connect(DECLINE_PATIENCE)?;
        let said = say(
            &mut connection,
            &Request::Decline,
            &client.stop,
            DECLINE_PATIENCE,
        );
        close(connection);
        said
    }

    fn get_wanted(
        &self,
        sources: &[Vec<u8>],
        destination: &Path,
        wanted: TopLevel,
        options: &CopyOptions,
        observer: &dyn Observer,
    ) -> Result<Totals, Error> {
        let known = Sources {
            contents: matches!(wanted, TopLevel::Any | TopLevel::Offered(_)),
            ..Sources::of(sources, options)?
        };
        let local = |cause| Error::local(destination, cause);
        // Resolved once, because the copy itself must not change where it goes.
        let (base, new_name) = resolve_local(destination, known).map_err(local)?;
        let top = top_level(new_name, wanted);
        // The number of files that patterns match is unknown.
        let files = if known.count == 1 { 1 } else { usize::MAX };
        self.in_shares(options, files, observer, |client, assigned| {
            client.get_share(sources, destination, (&base, &top), options, assigned)
        })
    }

    fn get_share(
        &self,
        sources: &[Vec<u8>],
        destination: &Path,
        (base, top): (&OwnedFd, &TopLevel),
        options: &CopyOptions,
        mut assigned: Assigned<'_>,
    ) -> Result<Totals, Error> {
        let offer = Digester::offer()?;
        let share = assigned.share;
        let written = Written::default();
        self.copying_share(&assigned).run(|copying| {
            let options = copying.options(options, share);
            let request = Request::Get {
                sources: sources.to_vec(),
                share,
                options,
                filter: self.filter.texts(),
                digester: offer.clone(),
                from: copying.reached.position,
                started: copying.reached.started,
            };
            let (mut connection, accepted) = self.ask(&request, copying, &options)?;
            let digester = offer.settle(accepted.algorithm)?;
            assigned.accept(&accepted);
            let observer = copying.observer;
            let base =
                fcntl_dupfd_cloexec(base, 0).map_err(|errno| Error::local(destination, errno))?;
            let to = (base, top.clone());
            let reached = &mut copying.reached;
            let mut spare = Spare::new(self);
            let rings = (CONTROL, DATA);
            let copied = run_watched(&mut connection, rings, &self.stop, &mut spare, |port| {
                let role = (Role::Asks, reached);
                FileReceiver::new(port, observer, options, digester, to, role)
                    .of_share(share)
                    .with_modes(&self.modes)
                    .remembering(written.clone())
                    .receive_all()
            });
            copying.spare = spare.found;
            self.end(connection, &copied);
            copied
        })
    }

    fn copying<'a>(&'a self, observer: &'a dyn Observer) -> Copying<'a> {
        Copying::new(observer, &self.stop, self.patience)
    }

    /// Connects within the connect timeout of the transport's options.
    pub(crate) fn connect_once(&self) -> Result<Connection, Error> {
        self.connect(self.transport.times.connect)
    }

    /// Connects, or stops if requested.
    fn connect(&self, timeout: Duration) -> Result<Connection, Error> {
        let connecting = self.start_connecting(timeout)?;
        loop {
            match connecting.recv_timeout(LOOK) {
                Ok(connected) => {
                    return connected.map_err(|source| Error::Connect {
                        host: self.host.clone(),
                        source,
                    });
                }
                Err(RecvTimeoutError::Timeout) => self.stop.check()?,
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Internal),
            }
        }
    }

    /// Begins to connect, on another thread. A connection that the caller no longer takes is closed.
    fn start_connecting(
        &self,
        timeout: Duration,
    ) -> Result<Receiver<zerolane::Result<Connection>>, Error> {
        let (tell, hear) = channel();
        let Connector(connect) = self.connector.clone();
        let options = self.transport.clone().with(|it| it.times.connect = timeout);
        thread::Builder::new()
            .name("connect".into())
            .spawn(move || {
                let _ = tell.send(connect(&options));
            })
            .map_err(|_| Error::NoThread)?;
        Ok(hear)
    }

    /// Connects, sends the request, and waits until it is accepted.
    fn ask(
        &self,
        request: &Request,
        copying: &mut Copying<'_>,
        options: &CopyOptions,
    ) -> Result<(Connection, Accepted), Error> {
        let timeout = copying.connect_timeout(self.transport.times.connect);
        let connection = match copying.spare.take() {
            Some(connection) => connection,
            None => self.connect(timeout)?,
        };
        let (connection, accepted) = self.request(request, connection)?;
        // When files are written here, a restart of this system is what loses them, not one of the server's.
        let durable =
            options.durable || matches!(request, Request::Get { .. } | Request::Read { .. });
        copying.accepted(accepted.boot, durable);
        Ok((connection, accepted))
    }

    /// Requests a copy on a new connection, and waits until it is accepted.
    fn request(
        &self,
        request: &Request,
        mut connection: Connection,
    ) -> Result<(Connection, Accepted), Error> {
        if let Some(max_rate) = self.transport.rate.max {
            let limit = Request::Limit { max_rate };
            say(&mut connection, &limit, &self.stop, PATIENCE)?;
        }
        say(&mut connection, request, &self.stop, PATIENCE)?;
        let mut reply = hear(&mut connection, &self.stop, PATIENCE)?;
        if let Reply::Limit { max_rate } = reply {
            let own = self.transport.rate.max.unwrap_or(u64::MAX);
            connection.set_max_rate(Some(own.min(max_rate.max(LEAST_RATE))));
            reply = hear(&mut connection, &self.stop, PATIENCE)?;
        }
        match reply {
            Reply::Accepted {
                algorithm,
                landing,
                boot,
            } => {
                let accepted = Accepted {
                    algorithm,
                    landing,
                    boot,
                };
                Ok((connection, accepted))
            }
            Reply::Refused(refusal) => Err(refusal.into()),
            Reply::Done { .. } | Reply::Limit { .. } | Reply::Offer { .. } => {
                Err(Error::Protocol("does instead of accepting"))
            }
        }
    }

    /// Connects, and requests an operation that starts when the server says so.
    fn begin(&self, request: &Request, timeout: Duration) -> Result<Connection, Error> {
        let mut connection = self.connect(timeout)?;
        say(&mut connection, request, &self.stop, PATIENCE)?;
        match hear(&mut connection, &self.stop, PATIENCE)? {
            Reply::Refused(refusal) => Err(refusal.into()),
            Reply::Done { last: false, .. } => Ok(connection),
            Reply::Done { .. }
            | Reply::Accepted { .. }
            | Reply::Limit { .. }
            | Reply::Offer { .. } => {
                Err(Error::Protocol("another answer than one to this request"))
            }
        }
    }
}

/// A server's reply that accepts a copy.
struct Accepted {
    algorithm: Algorithm,
    landing: Landing,
    /// The boot ID of the server's system.
    boot: [u8; 16],
}

impl Sources {
    /// The sources that `paths`, which may be patterns, stand for.
    fn of(paths: &[Vec<u8>], options: &CopyOptions) -> Result<Sources, Error> {
        Ok(Sources {
            count: match paths {
                // A pattern may match several.
                [path] if is_wild(path) => u32::MAX,
                _ => u32::try_from(paths.len()).map_err(|_| Error::TooLong)?,
            },
            contents: matches!(TopLevel::of(paths), TopLevel::Any),
            device: options.in_place,
        })
    }
}

/// How often a wait checks whether it must stop.
const LOOK: Duration = Duration::from_millis(50);

const PATIENCE: Duration = Duration::from_secs(REPLY_SECONDS);
/// Longest connect, and longest wait for the sender's confirmation, of a user who has declined and waits for the prompt.
const DECLINE_PATIENCE: Duration = Duration::from_secs(5);
