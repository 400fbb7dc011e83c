//! Serves this process's own files to itself, for a copy within this machine: the engine is the same as between hosts.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use zerolane::keys::Access;
use zerolane::security::PublicKey;
use zerolane::{Options, Security};
use zerolane_files::{Error, Host, ServeOptions, Server, Stop};

use crate::exit::Exit;
use crate::login::{new_identity, security};

/// The other side of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Host(Host),
    /// This machine, too.
    Here,
}

/// A server for this process only. It ends when it is dropped.
pub(super) struct OwnServer {
    pub(super) address: SocketAddr,
    pub(super) key: PublicKey,
    stop: Stop,
    ended: Receiver<()>,
}

/// How long the server may take to end. Then it has removed its temporary files.
const FAREWELL: Duration = Duration::from_secs(5);

impl OwnServer {
    /// Starts the server, and returns what a connection to it needs. Both keys exist only in this process, so no other
    /// process can connect.
    ///
    /// # Errors
    /// This machine has no loopback interface, or no descriptors or threads are left.
    pub(super) fn start() -> Result<(OwnServer, Security)> {
        let (own, client) = (new_identity()?, new_identity()?);
        let (key, client_key) = (own.public(), client.public());
        let options = ServeOptions {
            access: Access::Anyone,
            transport: Options::default().with(|it| it.security = security(own, client_key)),
            ..ServeOptions::default()
        };
        let server = Server::bind_login((Ipv4Addr::LOCALHOST, 0), options);
        let mut server = server.map_err(|error| match error {
            Error::Listen { source, .. } => anyhow!(
                "a copy within this machine needs the loopback interface, which is not available ({source}): `ip link set lo up`"
            )
            .context(Exit::Failure),
            error => super::with_exit_code(error),
        })?;
        let address = server.local_addr();
        let stop = Stop::default();
        let stopped = stop.clone();
        let (tell, ended) = channel();
        thread::Builder::new()
            .name("within".into())
            .spawn(move || {
                // The client reports errors.
                let _ = server.run(&stopped, &());
                drop(server);
                let _ = tell.send(());
            })
            .context("starting a thread")?;
        let own = OwnServer {
            address,
            key,
            stop,
            ended,
        };
        Ok((own, security(client, key)))
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.stop.request();
        let _ = self.ended.recv_timeout(FAREWELL);
    }
}
