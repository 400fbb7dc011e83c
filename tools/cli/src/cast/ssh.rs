//! Starts hosts of a cast by ssh, and exchanges keys and addresses with them over the login.
//!
//! Where the remote shell finds no zerolane, a second login carries this executable there. The file is unlinked before
//! it runs, so nothing is left behind.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use zerolane::Security;
use zerolane::keys::HostTrust;
use zerolane::security::{Identity, PublicKey};
use zerolane_castnet::Host;
use zerolane_files::Host as LoginHost;

use super::hosts;
use crate::login::{self, ANSWER, Heard};

/// How hosts are started.
#[derive(Clone, Copy)]
pub(super) struct Login<'a> {
    pub(super) shell: Option<&'a str>,
    pub(super) program: Option<&'a str>,
    pub(super) to: Option<&'a str>,
    pub(super) force: bool,
}

/// A login, which ends when this is dropped. A remote host that takes part in the cast ends by itself.
pub(super) struct Remote {
    child: Child,
    /// Closing this ends a remote host that the source has not called yet, even if this program is killed: the host
    /// gets no other sign that ssh is gone.
    input: Option<ChildStdin>,
}

/// A started host: its addresses, its key, and its login.
type Ready = (Vec<SocketAddr>, PublicKey, Remote);

/// All logins of a cast.
#[derive(Default)]
pub(super) struct Remotes(Vec<Remote>);

impl Extend<Remote> for Remotes {
    fn extend<T: IntoIterator<Item = Remote>>(&mut self, remotes: T) {
        self.0.extend(remotes);
    }
}

/// How long to wait at the end for all logins together.
const FAREWELL: Duration = Duration::from_secs(2);

impl Drop for Remotes {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|it| it.input = None);
        let until = Instant::now() + FAREWELL;
        for remote in &mut self.0 {
            remote.wait_until(until);
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command that receives a program of `bytes` bytes on standard input and runs it. Uses `sh`, because the login
/// shell may be any.
fn brought(bytes: u64) -> String {
    const SCRIPT: &str = r#"
        h="$(uname -s) $(uname -m)"
        if [ "$h" != "$W" ]; then
            echo "zerolane: this host is $h, and the program that was sent is for $W" >&2
            exit 126
        fi
        d=$(mktemp -d "${TMPDIR:-/tmp}/zerolane.XXXXXX") || exit
        trap 'rm -rf "$d"' EXIT
        head -c "$N" >"$d/zerolane" && chmod 700 "$d/zerolane" && exec 3<"$d/zerolane" && rm -r "$d" || exit
        exec /proc/self/fd/3 "$@"
    "#;
    let script = format!("N={bytes} W='Linux {}'{SCRIPT}", std::env::consts::ARCH);
    format!("exec sh -c {} zerolane", quoted(&script))
}

/// The exit code of a shell that does not find a program.
const NOT_FOUND: i32 = 127;

/// Copying the program may take longer, as if it arrived at this rate.
const BROUGHT_BYTES_PER_SECOND: u64 = 64 << 10;

/// Concurrent logins.
const LOGINS: usize = 32;

/// Starts all hosts, which resolved to these addresses. A host that cannot be started becomes one whose address is
/// unknown, with the reason.
pub(super) fn start_all(
    names: &[String],
    found: &[Result<Vec<SocketAddr>, String>],
    login: &Login<'_>,
) -> Result<Vec<(Host, Option<Remote>)>> {
    let secret = zerolane::security::random().context("no random numbers for a key")?;
    let identity = Arc::new(Identity::from_secret(secret));
    let mut started = Vec::with_capacity(names.len());
    let places: Vec<_> = names.iter().zip(found).collect();
    for some in places.chunks(LOGINS) {
        let some = thread::scope(|scope| {
            let key = identity.public();
            let begin = |(name, at): &(&String, &Result<Vec<SocketAddr>, String>)| {
                let (name, at) = ((*name).clone(), (*at).clone());
                scope.spawn(move || start(&name, at.map_err(anyhow::Error::msg)?, login, key))
            };
            let running: Vec<_> = some.iter().map(begin).collect();
            running
                .into_iter()
                .map(|it| it.join().expect("no panic"))
                .collect::<Vec<_>>()
        });
        started.extend(some);
    }
    let host = |(name, started): (&String, Result<Ready>)| match started {
        Ok((addresses, key, remote)) => {
            let security = Security {
                identity: Some(Arc::clone(&identity)),
                trust: Arc::new(HostTrust::only(key)),
                ..Security::default()
            };
            let host = Host {
                name: name.clone(),
                addresses: Ok(addresses),
                security,
            };
            (host, Some(remote))
        }
        Err(why) => {
            let addresses = Err(format!("{why:#}"));
            let host = Host {
                name: name.clone(),
                addresses,
                security: Security::default(),
            };
            (host, None)
        }
    };
    Ok(names.iter().zip(started).map(host).collect())
}

/// The addresses of a host that a login will start.
pub(super) fn resolve(name: &str) -> Result<Vec<SocketAddr>, String> {
    let host = login::host(name).map_err(|error| format!("{error:#}"))?;
    hosts::resolve(&host.name)
}

fn start(name: &str, at: Vec<SocketAddr>, login: &Login<'_>, key: PublicKey) -> Result<Ready> {
    let host = login::host(name)?;
    // The source tries all addresses that one socket of the host can listen on: an IPv6 socket also takes IPv4.
    let (listen, on_all) = match at.first().is_some_and(SocketAddr::is_ipv6) {
        true => ("'[::]:0'", true),
        false => ("0.0.0.0:0", false),
    };
    let at = at.into_iter().filter(|it| on_all || it.is_ipv4());
    let (key, to) = (key.to_string(), quoted(login.to.unwrap_or(".")));
    let mut words = vec!["cast", "receive", "--json", "--quiet", "--listen", listen];
    words.extend([
        "--until-eof",
        "--ephemeral-identity",
        "--allow-key",
        &key,
        "--to",
        &to,
    ]);
    words.extend(login.force.then_some("--force"));
    let at_port = |port| {
        let moved = |mut it: SocketAddr| {
            it.set_port(port);
            it
        };
        at.map(moved).collect()
    };
    let begin = |program: Option<&str>| login::command_at(&host, login.shell, program, &words);
    let (why, noise) = match begin_host(&host, begin(login.program)?, None, ANSWER)? {
        Started::Waits(port, key, remote) => {
            return Ok((at_port(port), key, remote));
        }
        Started::Ended(Some(NOT_FOUND), _) if login.program.is_none() => {
            let own = File::open("/proc/self/exe").context("this program's file")?;
            let bytes = own.metadata().context("this program's file")?.len();
            let patience = ANSWER + Duration::from_secs(bytes / BROUGHT_BYTES_PER_SECOND);
            match begin_host(&host, begin(Some(&brought(bytes)))?, Some(own), patience)? {
                Started::Waits(port, key, remote) => {
                    return Ok((at_port(port), key, remote));
                }
                Started::Ended(_, noise) => (
                    "zerolane is not there, and a copy of it did not start",
                    noise,
                ),
            }
        }
        Started::Ended(Some(NOT_FOUND), noise) => {
            ("the program of --remote-program is not there", noise)
        }
        Started::Ended(_, noise) => ("the login did not start a host that waits", noise),
    };
    Err(match noise.is_empty() {
        true => anyhow!("{why}"),
        false => anyhow!("{why}; before that it said {noise}"),
    })
}

/// The outcome of a login.
enum Started {
    /// The host waits at this port, and has this key.
    Waits(u16, PublicKey, Remote),
    /// The login ended with this exit code, after printing this.
    Ended(Option<i32>, String),
}

impl Remote {
    /// Waits for the login to end, at most until `then`.
    fn wait_until(&mut self, then: Instant) {
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < then {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Runs a login, writes all of `first` to it, and waits at most `patience` for the host to say where it waits.
fn begin_host(
    host: &LoginHost,
    mut command: Command,
    first: Option<File>,
    patience: Duration,
) -> Result<Started> {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child =
        child.with_context(|| format!("starting {}", command.get_program().display()))?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let mut remote = Remote { child, input };
    let output = output.context("no channel to the remote shell")?;
    let given = match (first, remote.input.take()) {
        (Some(first), Some(input)) => Some(give(first, input).context("starting a thread")?),
        (_, input) => {
            remote.input = input;
            None
        }
    };
    let (mut port, mut key) = (None, None);
    let waits = move |line: &[u8]| {
        let line = str::from_utf8(line).ok()?.trim();
        if let Some(address) = line.strip_prefix("Waiting for a cast on ") {
            let address = address.trim_end_matches('.').parse::<SocketAddr>();
            port = address.ok().map(|it| it.port());
        } else if let Some(text) = line.strip_prefix("Its key: ") {
            key = text.parse().ok();
        }
        port.zip(key)
    };
    let (heard, _) = login::hear(host, output, patience, waits, io::sink())?;
    match heard {
        Heard::Answer((port, key)) => {
            // A host that answers has read all of `first`.
            if let Some(given) = given {
                remote.input = given.recv_timeout(FAREWELL).ok();
            }
            Ok(Started::Waits(port, key, remote))
        }
        Heard::End(noise) => {
            remote.input = None;
            remote.wait_until(Instant::now() + FAREWELL);
            let status = remote.child.try_wait().ok().flatten();
            Ok(Started::Ended(status.and_then(|it| it.code()), noise))
        }
    }
}

/// Writes all of `first` to `input` on a separate thread, because a login may read nothing, and then returns `input`.
///
/// # Errors
/// The system cannot start a thread.
fn give(mut first: File, mut input: ChildStdin) -> io::Result<Receiver<ChildStdin>> {
    let (tell, given) = channel();
    thread::Builder::new().name("give".into()).spawn(move || {
        // A login that does not read everything reports why.
        let _ = io::copy(&mut first, &mut input);
        // After a failed login no receiver is left.
        tell.send(input).unwrap_or_default();
    })?;
    Ok(given)
}

/// Quotes `text` as one word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Enough for a busy machine to start a shell.
    const PATIENCE: Duration = Duration::from_secs(3);

    /// The outcome of a login that runs this script.
    fn started(script: &str, first: Option<File>) -> Result<Started> {
        let host = login::host("me@far").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        begin_host(&host, command, first, PATIENCE)
    }

    fn why(script: &str, first: Option<File>) -> String {
        match started(script, first) {
            Err(why) => format!("{why:#}"),
            Ok(Started::Waits(..)) => panic!("it waits"),
            Ok(Started::Ended(code, noise)) => format!("ended with {code:?}: {noise}"),
        }
    }

    #[test]
    fn begin_host__a_login_that_waits_for_an_answer_is_not_waited_for_without_end() {
        let asks = "printf 'Start a session? [y/N] '; exec cat";
        // More than a pipe holds, for a login that reads nothing.
        let zeros = || {
            let file = tempfile::tempfile().unwrap();
            file.set_len(1 << 20).unwrap();
            file
        };
        for (script, first) in [(asks, None), ("exec sleep 600", Some(zeros()))] {
            let why = why(script, first);
            assert!(why.contains("for 3 s") && why.contains(".bashrc"), "{why}");
        }
        assert!(why("exec yes", None).contains("says too much"));
    }

    #[test]
    fn begin_host__whatever_a_login_prints_before_it_waits() {
        let key = zerolane::security::Identity::from_secret([7; 32]).public();
        let says = |end: &str| {
            format!("seq 1000; printf '\\377\\n'; echo 'Waiting for a cast on [::]:77.'; {end}")
        };
        let script = says(&format!("echo 'Its key: {key}'; exec cat"));
        match started(&script, None).unwrap() {
            Started::Waits(port, its_key, _) => assert_eq!((port, its_key), (77, key)),
            Started::Ended(code, noise) => panic!("{code:?}: {noise}"),
        }
        let why = why("echo 'this account is closed'; exit 7", None);
        assert_eq!(why, "ended with Some(7): \"this account is closed\"");
    }
}
