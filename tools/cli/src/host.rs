//! Sets up the listening and the connecting ends of the memory and disk commands.

use std::fmt;
use std::sync::Arc;

use anyhow::Result;
use zerolane::keys::Access;
use zerolane::lanes::resolve_host;
use zerolane::options::LaneChoice;
use zerolane::security::Trust;
use zerolane::{Connection, Options};

use crate::address::{Listen, parse_host, shown};
use crate::exit::Exit;
use crate::lane::LaneName;
use crate::security::{Admission, Caution, ClientArgs, ServerArgs};
use crate::transport::Configured;

/// A host and its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    name: String,
    port: u16,
}

/// A listening server of memory or disks.
pub(crate) struct Serving {
    pub(crate) lane: LaneChoice,
    pub(crate) options: Options,
    pub(crate) allowed: Access,
    /// The line that tells the user who may connect.
    pub(crate) words: String,
}

impl Serving {
    /// Prepares to listen at `listen`, as `security` says.
    pub(crate) fn of(listen: &Listen, security: ServerArgs) -> Result<Serving> {
        let lane = LaneName::to(listen.name(), security.lane, None)?;
        let transport = security.transport(lane, listen.place(), Configured::default())?;
        let Admission {
            mut security,
            access: allowed,
            words,
        } = security.admission()?;
        if let Access::Listed(list) = &allowed {
            // Refuses the connections of clients that are not on the list.
            security.trust = Arc::clone(list) as Arc<dyn Trust>;
        }
        let options = transport.with(|it| it.security = security);
        Ok(Serving {
            lane: options.lane.choice,
            options,
            allowed,
            words,
        })
    }
}

/// Everything needed to connect to a host, repeatedly.
pub(crate) struct Dialer {
    host: Host,
    options: Options,
    caution: Caution,
}

impl Host {
    /// Parses `HOST[:PORT]`.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<Host, String> {
        parse_host(text, default_port).map(|(name, port)| Host { name, port })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Prepares connections as `security` says.
    pub(crate) fn dialer(&self, security: &ClientArgs) -> Result<Dialer> {
        let transport = security.transport((&self.name, self.port), Configured::default())?;
        let (caution, security) = Caution::new(self.to_string(), security.clone(), None)?;
        Ok(Dialer {
            host: self.clone(),
            options: transport.with(|it| it.security = security),
            caution,
        })
    }
}

impl Dialer {
    /// Connections notice a dead peer also while they are idle.
    pub(crate) fn watching(mut self) -> Dialer {
        self.options.times.keep_alive = true;
        self
    }

    /// Resolves the name again, and connects.
    pub(crate) fn connect(&self) -> zerolane::Result<Connection> {
        let to = resolve_host(&self.host.name, self.host.port, self.options.lane.choice)?;
        Connection::connect(&to[..], &self.options)
    }

    /// Prints which server was met, after the first attempt.
    pub(crate) fn introduce(&self) {
        self.caution.introduce();
    }

    /// Adds advice and an exit code to `error`, which `why` caused.
    pub(crate) fn explain(&self, why: &zerolane::Error, error: anyhow::Error) -> anyhow::Error {
        let Host { name, port } = &self.host;
        let words = format!("cannot reach {name} at port {port}");
        let advise = self.caution.advise(Some(why));
        advise(error.context(words).context(Exit::of_connecting(why)))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.name, self.port))
    }
}
