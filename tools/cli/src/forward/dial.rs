//! Reaches the other host of a forward: where `forward serve` runs, or by a login that starts it.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};
use zerolane::options::LaneChoice;
use zerolane::{Connection, Options};
use zerolane_files::Location;

use super::DEFAULT_PORT;
use crate::exit::Exit;
use crate::host::{Dialer, Host};
use crate::login::{LoginArgs, RemoteEnd, new_identity, security};
use crate::security::ClientArgs;

/// How long a server that a login started waits for this end after the connection broke.
const PATIENCE: Duration = Duration::from_secs(60);

/// The words that start the other end.
const SERVE: [&str; 3] = ["forward", "serve", "--stdio"];

/// The other host. Clones are the same.
#[derive(Clone)]
pub(super) struct Peer(Arc<Way>);

enum Way {
    /// It serves.
    Serves(Dialer),
    /// A login starts the server, and starts it again when it is gone.
    Login {
        host: zerolane_files::Host,
        args: LoginArgs,
        started: Mutex<Option<(RemoteEnd, Options)>>,
    },
}

impl Peer {
    /// Prepares to reach `to`.
    ///
    /// # Errors
    /// It is no host, or options do not fit it.
    pub(super) fn new(to: &str, login: LoginArgs, client: ClientArgs) -> Result<Peer> {
        let usage = |why: String| anyhow!("--to {to}: {why}").context(Exit::Usage);
        let way = match to.contains('@') || login.rsh.is_some() {
            false => {
                let host = Host::parse(to, DEFAULT_PORT).map_err(usage)?;
                Way::Serves(host.dialer(&client)?.watching())
            }
            true => {
                client.check_for_login()?;
                // The form of a location without its path.
                let host = match Location::parse(&OsString::from(format!("{to}:"))) {
                    Ok(Location::Remote(host, _)) => host,
                    Ok(Location::Local(_)) => return Err(usage("expected USER@HOST".into())),
                    Err(error) => return Err(usage(error.to_string())),
                };
                Way::Login {
                    host,
                    args: login,
                    started: Mutex::new(None),
                }
            }
        };
        Ok(Peer(Arc::new(way)))
    }

    /// Connects for the first time.
    ///
    /// # Errors
    /// The host cannot be reached; the error says why and what to do, with an exit code.
    pub(super) fn connect(&self) -> Result<Connection> {
        match &*self.0 {
            Way::Serves(dialer) => {
                let connected = dialer.connect();
                dialer.introduce();
                connected.map_err(|error| {
                    let words = anyhow!(error.to_string());
                    dialer.explain(&error, words)
                })
            }
            Way::Login {
                host,
                args,
                started,
            } => {
                let (end, options) = start(host, args)?;
                let connected = end.connect(&options);
                let connected = connected.map_err(|error| {
                    let words = anyhow!("{error}").context(Exit::of_connecting(&error));
                    end.advise(words, true)
                })?;
                *started.lock().unwrap_or_else(PoisonError::into_inner) = Some((end, options));
                Ok(connected)
            }
        }
    }

    /// Connects again.
    ///
    /// # Errors
    /// The host cannot be reached.
    pub(super) fn dial(&self) -> zerolane::Result<Connection> {
        match &*self.0 {
            Way::Serves(dialer) => dialer.connect(),
            Way::Login {
                host,
                args,
                started,
            } => {
                let mut started = started.lock().unwrap_or_else(PoisonError::into_inner);
                let gone = started
                    .as_ref()
                    .is_none_or(|(end, _)| end.has_ended().is_some());
                if gone {
                    let again = start(host, args);
                    let again = again.map_err(|why| std::io::Error::other(format!("{why:#}")))?;
                    *started = Some(again);
                }
                match &*started {
                    Some((end, options)) => end.connect(options),
                    None => Err(zerolane::Error::NoAddress),
                }
            }
        }
    }

    /// Ends a server that a login started.
    pub(super) fn say_done(&self) {
        if let Way::Login { started, .. } = &*self.0 {
            let started = started
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            started.iter().for_each(|(end, _)| end.say_done());
        }
    }
}

fn start(host: &zerolane_files::Host, args: &LoginArgs) -> Result<(RemoteEnd, Options)> {
    let identity = new_identity()?;
    let end = RemoteEnd::start(host, args, &SERVE, PATIENCE, identity.public())?;
    let security = security(identity, end.key());
    let options = Options::default().with(|it| {
        it.security = security;
        it.times.keep_alive = true;
        // The server is on another host.
        it.lane.choice = LaneChoice::Udp;
    });
    Ok((end, options))
}
