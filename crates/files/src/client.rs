//! The client: `cp` and `ls` as functions.

use crate::digest::{Algorithm, Digester};
use crate::error::{Cause, Error};
use crate::limits::REPLY_SECONDS;
use crate::location::Host;
use crate::message::{CopyOptions, Entry, Reply, Request, Totals};
use crate::name::RelativePath;
use crate::observe::Observer;
use crate::opening::{hear, say};
use crate::pump::{self, CONTROL, DATA};
use crate::receive::{FileReceiver, TopLevel};
use crate::send::{FileSender, Start};
use crate::stop::Stop;
use crate::target::{Sources, resolve_local, top_level};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zerolane::{Connection, Options};

/// The server to ask, and how the connection behaves. Each copy or listing is a connection of its own.
///
/// ```no_run
/// use zerolane_files::{Client, CopyOptions, Host};
/// let client = Client::new(Host { name: "server".into(), port: 9181 });
/// let totals = client.put(&["data".into()], b"backup", &CopyOptions::default(), &())?;
/// assert_eq!(totals.failed, 0);
/// # Ok::<(), zerolane_files::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    host: Host,
    transport: Options,
    stop: Stop,
}

impl Client {
    /// A client of the file service at `host`.
    pub fn new(host: Host) -> Client {
        Client {
            host,
            transport: Options::default(),
            stop: Stop::default(),
        }
    }

    /// With these options of the transport.
    pub fn with_transport(mut self, options: Options) -> Client {
        self.transport = options;
        self
    }

    /// Ends early, with [`Error::Stopped`], when `stop` is requested.
    pub fn with_stop(mut self, stop: Stop) -> Client {
        self.stop = stop;
        self
    }

    /// Copies local files to the host: into `destination` if that is a directory there, else under
    /// that name. A source without a name of its own (`.`, `/`, `..`) stands for its contents.
    ///
    /// # Errors
    /// Whatever ends the whole copy. Files that fail alone are told to `observer` and counted in
    /// [`Totals::failed`].
    pub fn put(
        &self,
        sources: &[PathBuf],
        destination: &[u8],
        options: &CopyOptions,
        observer: &dyn Observer,
    ) -> Result<Totals, Error> {
        let digester = Digester::offer()?;
        let contents = sources.iter().any(|source| source.file_name().is_none());
        let request = Request::Put {
            destination: destination.to_vec(),
            sources: u32::try_from(sources.len()).map_err(|_| Error::TooLong)?,
            contents,
            options: *options,
            digester: digester.clone(),
        };
        let starts = sources
            .iter()
            .map(|source| local_start(source, options))
            .collect();
        let (mut connection, algorithm) = self.ask(&request)?;
        let digester = digester.settle(algorithm)?;
        let copied = pump::run(&mut connection, DATA, CONTROL, &self.stop, |port| {
            FileSender::new(port, observer, *options, digester).send_all(starts)
        });
        close(connection);
        copied
    }

    /// Copies files of the host here: into `destination` if that is a directory, else under that
    /// name. An empty source stands for the contents of the served directory.
    ///
    /// # Errors
    /// As [`Client::put`], and [`Error::Local`] if `destination` cannot take the sources.
    pub fn get(
        &self,
        sources: &[Vec<u8>],
        destination: &Path,
        options: &CopyOptions,
        observer: &dyn Observer,
    ) -> Result<Totals, Error> {
        let wanted = wanted(sources);
        let known = Sources {
            count: u32::try_from(sources.len()).map_err(|_| Error::TooLong)?,
            contents: wanted == TopLevel::Any,
        };
        let (base, new_name) =
            resolve_local(destination, known).map_err(|cause| Error::local(destination, cause))?;
        let digester = Digester::offer()?;
        let request = Request::Get {
            sources: sources.to_vec(),
            options: *options,
            digester: digester.clone(),
        };
        let (mut connection, algorithm) = self.ask(&request)?;
        let digester = digester.settle(algorithm)?;
        let top = top_level(new_name, wanted);
        let copied = pump::run(&mut connection, CONTROL, DATA, &self.stop, |port| {
            FileReceiver::new(port, observer, *options, digester, base, top).receive_all()
        });
        close(connection);
        copied
    }

    /// Tells `each` the entries of a directory of the host, in no order, or the one file.
    ///
    /// # Errors
    /// Whatever ends the listing.
    pub fn list(&self, path: &[u8], mut each: impl FnMut(Entry)) -> Result<(), Error> {
        let mut connection = self.connect()?;
        say(
            &mut connection,
            &Request::List {
                path: path.to_vec(),
            },
            &self.stop,
            PATIENCE,
        )?;
        loop {
            match hear(&mut connection, &self.stop, PATIENCE)? {
                Reply::Refused(refusal) => return Err(refusal.into()),
                Reply::Accepted(_) => return Err(Error::Protocol("accepts instead of listing")),
                Reply::Entries { entries, last } => {
                    entries.into_iter().for_each(&mut each);
                    if last {
                        close(connection);
                        return Ok(());
                    }
                }
            }
        }
    }

    fn connect(&self) -> Result<Connection, Error> {
        Connection::connect((self.host.name.as_str(), self.host.port), &self.transport).map_err(
            |source| Error::Connect {
                host: self.host.clone(),
                source,
            },
        )
    }

    /// Connects, asks, and is accepted.
    fn ask(&self, request: &Request) -> Result<(Connection, Algorithm), Error> {
        let mut connection = self.connect()?;
        say(&mut connection, request, &self.stop, PATIENCE)?;
        match hear(&mut connection, &self.stop, PATIENCE)? {
            Reply::Accepted(algorithm) => Ok((connection, algorithm)),
            Reply::Refused(refusal) => Err(refusal.into()),
            Reply::Entries { .. } => Err(Error::Protocol("lists instead of accepting")),
        }
    }
}

/// Tells the server that this was all. What came of the copy is known: how the connection ends
/// changes nothing about it.
fn close(connection: Connection) {
    let _ = connection.close();
}

const PATIENCE: Duration = Duration::from_secs(REPLY_SECONDS);

/// Where sending a local source starts. Symbolic links on the way to it are the user's own and
/// followed; the source itself, if it is one, is sent as a link.
fn local_start(source: &Path, options: &CopyOptions) -> Start {
    let missing = |cause| Start::Missing {
        path: source.as_os_str().as_bytes().to_vec(),
        cause,
    };
    let open = |path: &Path| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, path, flags, Mode::empty()).map_err(Cause::from)
    };
    let Some(name) = source.file_name() else {
        return match options.recursive {
            true => open(source).map_or_else(missing, Start::Contents),
            false => missing(Cause::IsADirectory),
        };
    };
    let parent = match source.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = name.as_bytes().to_vec();
    open(parent).map_or_else(missing, |directory| Start::Named { directory, name })
}

/// The names that may arrive when these are asked for.
fn wanted(sources: &[Vec<u8>]) -> TopLevel {
    let mut names = std::collections::HashSet::new();
    for source in sources {
        // The server will refuse this path and send nothing for it.
        let Ok(path) = RelativePath::parse(source) else {
            continue;
        };
        match path.split_last() {
            Some((_, name)) => names.insert(name.to_vec()),
            None => return TopLevel::Any,
        };
    }
    TopLevel::Only(names)
}
