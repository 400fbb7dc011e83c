//! A client of the file service that checks the identity of the server.

use std::time::Duration;

use anyhow::{Result, anyhow};
use zerolane::Options;
use zerolane::options::LaneChoice;
use zerolane_files::limits::PATIENCE_SECONDS;
use zerolane_files::{Client, Error, Host, Refusal, escape};

use super::with_exit_code;
use super::within::{OwnServer, Side};
use crate::config::{Config, Section};
use crate::login::{RemoteEnd, of_environment};
use crate::security::{Caution, FileClientArgs};
use crate::transport::Configured;

/// A client of one host, and its trust in that host.
pub(crate) struct Guarded {
    pub(crate) client: Client,
    caution: Caution,
    server: Started,
}

/// The server of a client.
enum Started {
    /// It was there before.
    Before,
    /// By a login.
    There(RemoteEnd),
    /// In this process. It ends with the client.
    Within { _server: OwnServer },
}

impl Guarded {
    /// A client with the trust that `args` ask for. What `host` names a user of, or `args` a remote shell for, is started
    /// there. What neither says, the configuration does.
    pub(crate) fn new(host: Host, args: FileClientArgs) -> Result<Guarded> {
        Guarded::of(host, args, &Config::load()?, None)
    }

    /// The same for one that copies, with so much patience, for which it also waits, and at most at this rate.
    pub(super) fn copying(
        side: Side,
        args: FileClientArgs,
        patience: Option<Duration>,
        max_rate: Option<u64>,
    ) -> Result<Guarded> {
        let config = Config::load()?;
        let (mut guarded, sections) = match side {
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
        guarded.client = guarded.client.with_max_rate(max_rate);
        Ok(guarded)
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
        let transport = Options {
            security,
            ..transport
        };
        let client = Client::new(host).with_transport(transport);
        Ok(Guarded {
            client: client.with_patience(patience),
            caution,
            server: Started::Before,
        })
    }

    /// Both sides are on this machine.
    fn within(patience: Duration) -> Result<Guarded> {
        let (server, security) = OwnServer::start()?;
        let host = Host::from(server.address);
        let caution = Caution::of_known(host.to_string(), server.key);
        let transport = Options {
            security,
            ..Options::default()
        };
        let client = Client::new(host).with_transport(transport);
        Ok(Guarded {
            client: client.with_patience(patience).within_this_process(),
            caution,
            server: Started::Within { _server: server },
        })
    }

    /// `host` is one that is reached by a login.
    fn by_login(host: Host, args: FileClientArgs, patience: Duration) -> Result<Guarded> {
        args.check_for_login()?;
        let (remote, security) = RemoteEnd::start(&host, &args.login, patience)?;
        let caution = Caution::of_known(host.to_string(), remote.key());
        let transport = Options {
            security,
            // To another host.
            lane: LaneChoice::Udp,
            ..Options::default()
        };
        let end = remote.clone();
        let client = Client::new(host).with_transport(transport);
        Ok(Guarded {
            client: client
                .with_patience(patience)
                .with_connector(move |options| end.connect(options)),
            caution,
            server: Started::There(remote),
        })
    }

    /// The client for one copy, with which a server that was started for it ends.
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

    /// Says which server it met, before anything else is said, and adds to an error what the user can do.
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
            if let (Started::Within { .. }, Error::Refused(Refusal::Path { path, cause })) =
                (&self.server, &error)
            {
                // No server that the user knows of.
                return anyhow!("{}: {cause}", escape(path));
            }
            let error = advise(with_exit_code(error));
            match &self.server {
                Started::There(remote) if !is_known => remote.advise(error, is_connecting),
                _ => error,
            }
        })
    }
}

/// How long to try, as the command line or the configuration says.
fn patience_of(config: &Config, sections: &[Section], said: Option<Duration>) -> Duration {
    said.unwrap_or_else(|| {
        let seconds = config.number(sections, "timeout");
        Duration::from_secs(seconds.unwrap_or(PATIENCE_SECONDS))
    })
}

/// Where the configuration has what is said of `host`.
fn sections(host: &Host) -> [Section; 2] {
    [Section::Host(host.name.clone()), Section::Client]
}

/// Adds to what the command line says what the environment and the configuration do; whether the host is reached by
/// a login.
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
    // For all hosts it is which remote shell, not whether.
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
