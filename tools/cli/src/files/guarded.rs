//! Connects a client of the file service: starts the server if needed, and checks its identity.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use zerolane::options::LaneChoice;
use zerolane::security::PublicKey;
use zerolane::{Options, Security};
use zerolane_files::limits::PATIENCE_SECONDS;
use zerolane_files::{Client, Error, Host, Refusal, escape};

use super::with_exit_code;
use super::within::{OwnServer, Side};
use crate::config::{Config, Section};
use crate::exit::Exit;
use crate::login::{RemoteEnd, SERVE, new_identity, of_environment, security};
use crate::security::{Caution, FileClientArgs};
use crate::transport::Configured;

/// A client of one host, and its trust in that host.
pub(crate) struct Guarded {
    pub(crate) client: Client,
    caution: Caution,
    server: Started,
}

/// How the client's server came to run.
enum Started {
    /// It was already running.
    Before,
    /// A login started it.
    There(RemoteEnd),
    /// It runs in this process, and ends with the client.
    Within { _server: OwnServer },
}

impl Guarded {
    /// Creates a client with the trust that `args` ask for. Starts the server by a login if `host` names a user or
    /// `args` name a remote shell. The configuration completes both.
    pub(crate) fn new(host: Host, args: FileClientArgs) -> Result<Guarded> {
        Guarded::of(host, args, &Config::load()?, None)
    }

    /// Creates a client for a copy, with this patience for outages and starting the server, and at most this rate.
    pub(super) fn copying(
        side: Side,
        args: FileClientArgs,
        patience: Option<Duration>,
        max_rate: Option<u64>,
    ) -> Result<Guarded> {
        let config = Config::load()?;
        let (guarded, sections) = match side {
            Side::Host(host) => {
                let sections = sections(&host).to_vec();
                (Guarded::of(host, args, &config, patience)?, sections)
            }
            Side::Here => {
                args.check_within()?;
                let sections = vec![Section::Client];
                let patience = patience_of(&config, &sections, patience);
                (Guarded::within(patience)?, sections)
            }
        };
        let max_rate = max_rate.or(config.rate(&sections, "limit"));
        Ok(guarded.with_max_rate(max_rate))
    }

    fn of(
        mut host: Host,
        mut args: FileClientArgs,
        config: &Config,
        patience: Option<Duration>,
    ) -> Result<Guarded> {
        let sections = sections(&host);
        let by_login = complete(&mut host, &mut args, config, &sections);
        let patience = patience_of(config, &sections, patience);
        if by_login {
            return Guarded::by_login(host, args, patience);
        }
        let configured = Configured {
            lane: config.chosen(&sections, "lane"),
            bypass: config.chosen(&sections, "bypass"),
        };
        let to = (host.name.as_str(), host.port());
        let transport = args.client.transport(to, configured)?;
        let (caution, security) = Caution::new(host.to_string(), args.client, args.code)?;
        let transport = transport.with(|it| it.security = security);
        let client = Client::new(host).with_transport(transport);
        Ok(Guarded {
            client: client.with_patience(patience),
            caution,
            server: Started::Before,
        })
    }

    /// Creates a client for a copy within this machine.
    pub(super) fn within(patience: Duration) -> Result<Guarded> {
        let (server, security) = OwnServer::start()?;
        let host = Host::from(server.address);
        let caution = Caution::of_known(host.to_string(), server.key);
        let transport = Options::default().with(|it| it.security = security);
        let client = Client::new(host).with_transport(transport);
        Ok(Guarded {
            client: client.with_patience(patience).within_this_process(),
            caution,
            server: Started::Within { _server: server },
        })
    }

    /// Creates a client for a host that a login reaches.
    fn by_login(host: Host, args: FileClientArgs, patience: Duration) -> Result<Guarded> {
        args.check_for_login()?;
        let identity = new_identity()?;
        let remote = RemoteEnd::start(&host, &args.login, &SERVE, patience, identity.public())?;
        let security = security(identity, remote.key());
        Ok(Guarded::at(remote, security, patience))
    }

    /// Creates a client for the other end of a login.
    pub(super) fn at(remote: RemoteEnd, security: Security, patience: Duration) -> Guarded {
        let host = remote.host().clone();
        let caution = Caution::of_known(host.to_string(), remote.key());
        let transport = Options::default().with(|it| {
            it.security = security;
            // The server is on another host.
            it.lane.choice = LaneChoice::Udp;
        });
        let end = remote.clone();
        let client = Client::new(host).with_transport(transport);
        Guarded {
            client: client
                .with_patience(patience)
                .with_connector(move |options| end.connect(options)),
            caution,
            server: Started::There(remote),
        }
    }

    /// Whether both sides are on this machine.
    pub(super) fn is_within(&self) -> bool {
        matches!(self.server, Started::Within { .. })
    }

    /// Limits the rate to `max_rate`, bytes a second.
    pub(super) fn with_max_rate(mut self, max_rate: Option<u64>) -> Guarded {
        self.client = self.client.with_max_rate(max_rate);
        self
    }

    /// The client for one copy. A server that was started for the copy ends with it.
    pub(crate) fn for_one_copy(&self) -> Client {
        let client = self.client.clone();
        match &self.server {
            Started::Before | Started::Within { .. } => client,
            Started::There(remote) => {
                let end = remote.clone();
                client.with_done(move || end.say_done())
            }
        }
    }

    /// Prints which server was met, before any other message, and adds advice to an error.
    pub(crate) fn explain<T>(&self, outcome: Result<T, Error>) -> Result<T> {
        self.caution.introduce();
        outcome.map_err(|error| {
            let connecting = match &error {
                Error::Connect { source, .. } => Some(source),
                _ => None,
            };
            let advise = self.caution.advise(connecting);
            let is_connecting = connecting.is_some();
            let is_known = matches!(
                error,
                Error::Stopped | Error::Refused(_) | Error::Local { .. }
            );
            if let Error::Refused(Refusal::Path { path, cause }) = &error {
                let path = escape(path);
                match &self.server {
                    // The user knows of no server in this case.
                    Started::Within { .. } => return anyhow!("{path}: {cause}"),
                    Started::There(remote) if remote.is_handed() => {
                        return anyhow!("{path}: {cause}, at {}", remote.host());
                    }
                    Started::There(_) | Started::Before => {}
                }
            }
            let error = advise(with_exit_code(error));
            match &self.server {
                Started::There(remote) if !is_known => remote.advise(error, is_connecting),
                _ => error,
            }
        })
    }
}

/// A host that a login reaches, as one side of a copy between hosts.
pub(super) struct Reached {
    pub(super) host: Host,
    pub(super) args: FileClientArgs,
    pub(super) patience: Duration,
    pub(super) max_rate: Option<u64>,
}

impl Reached {
    /// Combines the command line and the configuration.
    ///
    /// # Errors
    /// The host is reached without a login, or an option does not fit a login.
    pub(super) fn new(
        mut host: Host,
        mut args: FileClientArgs,
        patience: Option<Duration>,
    ) -> Result<Reached> {
        let config = Config::load()?;
        let sections = sections(&host);
        let by_login = complete(&mut host, &mut args, &config, &sections);
        let name = &host.name;
        ensure!(
            by_login,
            anyhow!(
                "a copy from one host to another needs a login at both, and {name} is reached without: write \
                 USER@{name}:PATH, or copy in two steps, to this machine and from here"
            )
            .context(Exit::Usage)
        );
        args.check_for_login()?;
        Ok(Reached {
            host,
            args,
            patience: patience_of(&config, &sections, patience),
            max_rate: config.rate(&sections, "limit"),
        })
    }

    /// Starts a server on the host that lets in `key`.
    ///
    /// # Errors
    /// As [`RemoteEnd::start`].
    pub(super) fn start(&self, key: PublicKey) -> Result<RemoteEnd> {
        RemoteEnd::start(&self.host, &self.args.login, &SERVE, self.patience, key)
    }
}

/// The patience of the command line or the configuration.
fn patience_of(config: &Config, sections: &[Section], said: Option<Duration>) -> Duration {
    said.unwrap_or_else(|| {
        let seconds = config.number(sections, "timeout");
        Duration::from_secs(seconds.unwrap_or(PATIENCE_SECONDS))
    })
}

/// The sections of the configuration that apply to `host`.
fn sections(host: &Host) -> [Section; 2] {
    [Section::Host(host.name.clone()), Section::Client]
}

/// Completes the command line from the environment and the configuration. Returns whether a login reaches the host.
fn complete(
    host: &mut Host,
    args: &mut FileClientArgs,
    config: &Config,
    sections: &[Section; 2],
) -> bool {
    let text = |key| config.text(sections, key).map(str::to_owned);
    let of_host = &sections[..1];
    let login = &mut args.login;
    let user = config.text(of_host, "user").map(str::to_owned);
    host.user = host.user.take().or(user);
    // `rsh` in the section for all hosts chooses the remote shell, not whether one is used.
    let has_shell = login.rsh.is_some() || config.text(of_host, "rsh").is_some();
    login.rsh = login.rsh.take().or_else(of_environment).or(text("rsh"));
    login.remote_program = login.remote_program.take().or(text("remote-program"));
    login.remote_listen = login.remote_listen.take().or(text("remote-listen"));
    let port = config.number(of_host, "port");
    host.port = host.port.or(port.and_then(|port| port.try_into().ok()));
    let by_login = host.user.is_some() || has_shell;
    if let Some(key) = config.parsed(of_host, "server-key").filter(|_| !by_login) {
        args.expect_key(key);
    }
    if let Some(name) = config.text(of_host, "name") {
        host.name = name.to_owned();
    }
    by_login
}
