//! Hosts that a login starts: ssh says which key the source has, and the host says which it has and where it waits.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use zerolane::Security;
use zerolane::keys::HostTrust;
use zerolane::security::{Identity, PublicKey};
use zerolane_castnet::Host;
use zerolane_files::Host as LoginHost;

use super::hosts;
use crate::login;

/// How hosts are started.
#[derive(Clone, Copy)]
pub(super) struct Login<'a> {
    pub(super) shell: Option<&'a str>,
    pub(super) program: Option<&'a str>,
    pub(super) to: Option<&'a str>,
    pub(super) force: bool,
}

/// A login. It ends with this; the host there ends by itself.
pub(super) struct Remote {
    child: Child,
    /// Open as long as it may say something.
    out: BufReader<ChildStdout>,
}

impl Drop for Remote {
    fn drop(&mut self) {
        // It has said how it ended, over its connection.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines that a host may say before it waits.
const LINES: usize = 20;

/// Logins at a time.
const LOGINS: usize = 32;

/// Starts all of them; one that cannot be started is a host whose address is not known, and why.
pub(super) fn start_all(
    names: &[String],
    login: &Login<'_>,
) -> Result<Vec<(Host, Option<Remote>)>> {
    let secret = zerolane::security::random().context("no random numbers for a key")?;
    let identity = Arc::new(Identity::from_secret(secret));
    let mut started = Vec::with_capacity(names.len());
    for some in names.chunks(LOGINS) {
        let some = thread::scope(|scope| {
            let key = identity.public();
            let begin = |name: &String| {
                let name = name.clone();
                scope.spawn(move || start(&name, login, key))
            };
            let running: Vec<_> = some.iter().map(begin).collect();
            running
                .into_iter()
                .map(|it| it.join().expect("no panic"))
                .collect::<Vec<_>>()
        });
        started.extend(some);
    }
    let host = |(name, begun): (&String, Result<(SocketAddr, PublicKey, Remote)>)| match begun {
        Ok((address, key, remote)) => {
            let security = Security {
                identity: Some(Arc::clone(&identity)),
                trust: Arc::new(HostTrust::only(key)),
                ..Security::default()
            };
            let host = Host {
                name: name.clone(),
                address: Ok(address),
                security,
            };
            (host, Some(remote))
        }
        Err(why) => {
            let address = Err(format!("{why:#}"));
            let host = Host {
                name: name.clone(),
                address,
                security: Security::default(),
            };
            (host, None)
        }
    };
    Ok(names.iter().zip(started).map(host).collect())
}

fn start(name: &str, login: &Login<'_>, key: PublicKey) -> Result<(SocketAddr, PublicKey, Remote)> {
    let (user, place) = match name.split_once('@') {
        Some((user, place)) => (Some(user.to_owned()), place),
        None => (None, name),
    };
    let (bare, port) = match place.rsplit_once(':') {
        Some((bare, port)) if !bare.contains(':') => {
            (bare, Some(port.parse().context("the port of ssh")?))
        }
        _ => (place, None),
    };
    let at = hosts::resolve(bare).map_err(anyhow::Error::msg)?;
    let host = LoginHost {
        user,
        name: bare.to_owned(),
        port,
    };
    let listen = if at.is_ipv6() {
        "'[::]:0'"
    } else {
        "0.0.0.0:0"
    };
    let (key, to) = (key.to_string(), quoted(login.to.unwrap_or(".")));
    let mut words = vec!["cast", "receive", "--json", "--quiet", "--listen", listen];
    words.extend(["--allow-key", &key, "--to", &to]);
    words.extend(login.force.then_some("--force"));
    let mut command = login::command_at(&host, login.shell, login.program, &words)?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child =
        child.with_context(|| format!("starting {}", command.get_program().display()))?;
    let out = child
        .stdout
        .take()
        .context("no channel to the remote shell")?;
    let mut remote = Remote {
        child,
        out: BufReader::new(out),
    };
    let (mut waits_at, mut its_key) = (None, None);
    for _ in 0..LINES {
        let mut line = String::new();
        if remote
            .out
            .read_line(&mut line)
            .context("the remote shell")?
            == 0
        {
            break;
        }
        let line = line.trim();
        if let Some(address) = line.strip_prefix("Waiting for a cast on ") {
            waits_at = address.trim_end_matches('.').parse::<SocketAddr>().ok();
        } else if let Some(key) = line.strip_prefix("Its key: ") {
            its_key = key.parse().ok();
        }
        if let (Some(there), Some(key)) = (waits_at, its_key) {
            return Ok((SocketAddr::new(at.ip(), there.port()), key, remote));
        }
    }
    Err(anyhow::anyhow!(
        "the login did not start a host that waits: is zerolane there?"
    ))
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
