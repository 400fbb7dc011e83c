//! A host that serves memory or disks: how it listens, and how it is connected to, once or again and again.

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
use crate::security::{Caution, ClientArgs, Doors, ServerArgs};
use crate::transport::Configured;

/// A host, and the port at which it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    name: String,
    port: u16,
}

/// How a server of memory or disks listens.
pub(crate) struct Serving {
    pub(crate) lane: LaneChoice,
    pub(crate) options: Options,
    pub(crate) allowed: Access,
    /// A line for the user: who may connect.
    pub(crate) words: String,
}

impl Serving {
    /// At `listen`, as `security` says.
    pub(crate) fn of(listen: &Listen, security: ServerArgs) -> Result<Serving> {
        let lane = LaneName::to(listen.name(), security.lane, None)?;
        let transport = security.transport(lane, listen.place(), Configured::default())?;
        let Doors {
            mut security,
            access: allowed,
            words,
        } = security.doors()?;
        if let Access::Listed(list) = &allowed {
            // A client that is not on the list gets no connection.
            security.trust = Arc::clone(list) as Arc<dyn Trust>;
        }
        let options = Options {
            security,
            ..transport
        };
        Ok(Serving {
            lane: options.lane,
            options,
            allowed,
            words,
        })
    }
}

/// All that is needed to connect to a host.
pub(crate) struct Dialer {
    host: Host,
    options: Options,
    caution: Caution,
}

impl Host {
    /// From `HOST[:PORT]`.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<Host, String> {
        parse_host(text, default_port).map(|(name, port)| Host { name, port })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Ready to connect as `security` says.
    pub(crate) fn dialer(&self, security: &ClientArgs) -> Result<Dialer> {
        let transport = security.transport((&self.name, self.port), Configured::default())?;
        let (caution, security) = Caution::new(self.to_string(), security.clone(), None)?;
        Ok(Dialer {
            host: self.clone(),
            options: Options {
                security,
                ..transport
            },
            caution,
        })
    }
}

impl Dialer {
    /// Connects, to where the name leads now.
    pub(crate) fn connect(&self) -> zerolane::Result<Connection> {
        let to = resolve_host(&self.host.name, self.host.port, self.options.lane)?;
        Connection::connect(&to[..], &self.options)
    }

    /// Says which server was met, after the first attempt.
    pub(crate) fn introduce(&self) {
        self.caution.introduce();
    }

    /// `error`, which `why` caused, with what the user can do about it, and an exit code.
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
