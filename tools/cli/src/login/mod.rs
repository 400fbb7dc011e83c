//! Reaches `USER@HOST:PATH`: logs in over ssh, starts the other end there, and exchanges keys with it over the login's
//! channel. The host needs only the program, and neither end stores a key.

mod command;
mod lines;

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use zerolane::failure::CloseReason;
use zerolane::keys::HostTrust;
use zerolane::security::{Identity, PublicKey};
use zerolane::{Connection, Options, Security};
use zerolane_files::limits::RENDEZVOUS_LINE_BYTES;
use zerolane_files::{Answer, Call, Host, LineError, escape};

use crate::exit::Exit;
use crate::ports;
use command::Program;
use lines::Said;

/// Options of commands that may start the other end.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Over ssh")]
pub(crate) struct LoginArgs {
    /// The remote shell that starts the other end, with its options; also used for hosts without USER@ [default for
    /// USER@HOST: $ZEROLANE_RSH, or ssh]
    #[arg(short = 'e', long, value_name = "COMMAND")]
    pub(crate) rsh: Option<String>,
    /// How the remote shell starts zerolane: a path, or a command [default: zerolane]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) remote_program: Option<String>,
    /// Where the other end listens for UDP, such as ':60000-60010' [default: at the address where ssh came in, at any
    /// free port]
    #[arg(long, value_name = "[ADDR][:PORT[-PORT]]", value_parser = ports::check)]
    pub(crate) remote_listen: Option<String>,
}

/// The variable that names the remote shell.
const SHELL_VARIABLE: &str = "ZEROLANE_RSH";

/// Builds the command that runs zerolane with `words` at `host`, by the remote shell of the options or the environment.
///
/// # Errors
/// The user or host is not a valid name, or the shell is not a command.
pub(crate) fn command_at(
    host: &Host,
    shell: Option<&str>,
    remote: Option<&str>,
    words: &[&str],
) -> Result<std::process::Command> {
    let named = of_environment();
    let shell = shell.or(named.as_deref());
    command::of(host, &Program { shell, remote }, words).map_err(|why| why.context(Exit::Usage))
}

/// Parses the name of a host for a login, `[USER@]HOST[:PORT]`.
///
/// # Errors
/// PORT is no port.
pub(crate) fn host(name: &str) -> Result<Host> {
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
    let name = bare.to_owned();
    Ok(Host { user, name, port })
}

/// The remote shell that the environment names.
pub(crate) fn of_environment() -> Option<String> {
    let named = std::env::var(SHELL_VARIABLE).ok();
    named.filter(|it| !it.trim().is_empty())
}

/// A server that a login started for this process. It ends when this is dropped.
#[derive(Clone, Debug)]
pub(crate) struct RemoteEnd(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    host: Host,
    /// Its addresses, most likely first.
    addresses: Vec<SocketAddr>,
    key: PublicKey,
    /// Whether a connection to it succeeded before.
    was_connected: AtomicBool,
    /// `None`: another host started the server.
    shell: Option<Mutex<Shell>>,
    /// This host's name in messages, if another one started both ends.
    here: Option<String>,
}

/// The remote shell's process.
#[derive(Debug)]
pub(crate) struct Shell {
    child: Child,
    /// `None` after the end was announced.
    input: Option<ChildStdin>,
}

/// The words that start a file server for one client.
pub(crate) const SERVE: [&str; 2] = ["serve", "--stdio"];

/// What a client writes to the channel when it is done.
pub(crate) const DONE: &[u8] = b"done\n";

/// How long the other end may take to answer. By then TCP has given up connecting (127 s), and sshd has given up on the
/// login (LoginGraceTime, 120 s).
pub(crate) const ANSWER: Duration = Duration::from_secs(300);
/// How long the other end may take to end after [`DONE`].
const FAREWELL: Duration = Duration::from_secs(5);
/// Poll interval for the end of the shell.
const LOOK: Duration = Duration::from_millis(5);

impl RemoteEnd {
    /// Starts a server at `host`, by zerolane with `words`, that lets in `key`, and waits for its answer as long as a login
    /// may take.
    ///
    /// # Errors
    /// The server did not start; the error says why, with an exit code.
    pub(crate) fn start(
        host: &Host,
        args: &LoginArgs,
        words: &[&str],
        patience: Duration,
        key: PublicKey,
    ) -> Result<RemoteEnd> {
        let call = Call {
            key,
            patience,
            listen: args.remote_listen.clone(),
        };
        let (mut shell, line, _) = Shell::start(host, args, words, &call.to_string(), io::sink())?;
        let answer = Answer::parse(&line).map_err(|why| shell.not_understood(host, &line, &why))?;
        let shared = Shared {
            addresses: addresses(host, answer.address),
            host: host.clone(),
            key: answer.key,
            was_connected: AtomicBool::new(false),
            shell: Some(Mutex::new(shell)),
            here: None,
        };
        Ok(RemoteEnd(Arc::new(shared)))
    }

    /// A server that was started by the machine that also started this process. `here` is that machine's name for this
    /// one.
    pub(crate) fn handed(
        here: String,
        host: Host,
        told: &[SocketAddr],
        key: PublicKey,
    ) -> RemoteEnd {
        let mut addresses = told.to_vec();
        let own = told.first().map(|&told| addresses_of(&host, told));
        addresses.extend(own.unwrap_or_default());
        RemoteEnd(Arc::new(Shared {
            addresses: once_each(addresses),
            host,
            key,
            was_connected: AtomicBool::new(false),
            shell: None,
            here: Some(here),
        }))
    }

    /// The host, as the user named it.
    pub(crate) fn host(&self) -> &Host {
        &self.0.host
    }

    /// Whether another machine started both the server and this process.
    pub(crate) fn is_handed(&self) -> bool {
        self.0.here.is_some()
    }

    /// Its addresses, most likely first.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.0.addresses
    }

    /// The key of the server.
    pub(crate) fn key(&self) -> PublicKey {
        self.0.key
    }

    /// Connects to all addresses at once, and returns the first connection that succeeds.
    pub(crate) fn connect(&self, options: &Options) -> zerolane::Result<Connection> {
        let addresses = &self.0.addresses;
        let (tell, hear) = channel();
        for &address in addresses {
            let (tell, options) = (tell.clone(), options.clone());
            // A connection that comes too late is dropped with the receiver.
            let connect = move || drop(tell.send(Connection::connect(address, &options)));
            thread::Builder::new()
                .name("connect".into())
                .spawn(connect)?;
        }
        drop(tell);
        let mut why = zerolane::Error::NoAddress;
        for tried in hear {
            match tried {
                Ok(connection) => {
                    self.0.was_connected.store(true, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(error) => why = error,
            }
        }
        let unreachable = matches!(why, zerolane::Error::Closed(CloseReason::Unreachable));
        match self.has_ended() {
            // Nothing listens there any more, and nothing restarts the server.
            Some(_) if unreachable => Err(io::Error::other("the other end is gone").into()),
            _ => Err(why),
        }
    }

    /// Announces the end of the last connection, which also ends the server.
    pub(crate) fn say_done(&self) {
        if let Some(shell) = &self.0.shell {
            locked(shell).say_done();
        }
    }

    /// The exit status of the remote shell, if it has ended: the server is gone.
    pub(crate) fn has_ended(&self) -> Option<ExitStatus> {
        locked(self.0.shell.as_ref()?).ended()
    }

    /// Adds the state of the other end and advice to an error. `connecting` says that there is no connection.
    pub(crate) fn advise(&self, error: anyhow::Error, connecting: bool) -> anyhow::Error {
        let Shared {
            host,
            addresses,
            here,
            ..
        } = &*self.0;
        let was_connected = self.0.was_connected.load(Ordering::Relaxed);
        if let Some(status) = self.has_ended() {
            let gone = format!(
                "the zerolane that was started at {host} is gone (its remote shell {})",
                words_of(status)
            );
            return match connecting && was_connected {
                true => anyhow!("{gone}: run it again with --resume to continue"),
                false => error.context(gone),
            };
        }
        if !connecting || was_connected {
            return error;
        }
        let places: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        if let Some(here) = here {
            return error.context(format!(
                "both hosts were reached by their logins, and started zerolane, but UDP from {here} does not reach {host} at \
                 {}. Have a firewall there let in UDP to some ports, such as by 'ufw allow 60000:60010/udp', and name them: --remote-listen \
                 :60000-60010. Or copy in two steps: from {here} to this machine, and from here to {host}",
                places.join(" or ")
            ));
        }
        error.context(format!(
            "{host} was reached by its login, and started zerolane, but UDP from here does not reach it at {}. A firewall is \
             between: have it let in UDP to some ports, such as by 'ufw allow 60000:60010/udp' there, and name \
             them: --remote-listen :60000-60010",
            places.join(" or ")
        ))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(shell) = &self.shell {
            let _ = locked(shell).end(FAREWELL);
        }
    }
}

impl Shell {
    /// Starts zerolane at `host` by a login, with `words`, writes `line` to it, and waits for its answer as long as a
    /// login may take. A thread copies its further output to `rest`.
    ///
    /// # Errors
    /// No answer came; the error says why, with an exit code.
    pub(crate) fn start(
        host: &Host,
        args: &LoginArgs,
        words: &[&str],
        line: &str,
        rest: impl Write + Send + 'static,
    ) -> Result<(Shell, Vec<u8>, JoinHandle<io::Result<u64>>)> {
        let program = Program {
            shell: args.rsh.as_deref(),
            remote: args.remote_program.as_deref(),
        };
        let mut command =
            command::of(host, &program, words).map_err(|why| why.context(Exit::Usage))?;
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| match &*name {
                "ssh" => "cannot start ssh (install it, or name another remote shell with --rsh)"
                    .to_owned(),
                _ => format!("cannot start the remote shell {name:?}"),
            })?;
        let mut input = child.stdin.take();
        let output = child
            .stdout
            .take()
            .context("no channel to the remote shell")?;
        // The line waits in the pipe until the program reads it. If the shell ends before, its exit says why.
        let _ = input.as_mut().map(|input| writeln!(input, "{line}"));
        let heard = hear(host, output, ANSWER, answer_line, rest);
        let mut shell = Shell { child, input };
        match heard {
            Ok((Heard::Answer(line), rest)) => Ok((shell, line, rest)),
            Ok((Heard::End(noise), _)) => {
                let status = shell.end(FAREWELL);
                let status = status.context("waiting for the remote shell")?;
                Err(ended(host, &name, status, &program, &noise))
            }
            Err(why) => {
                let _ = shell.end(Duration::ZERO);
                Err(why.context(Exit::Unreachable))
            }
        }
    }

    /// Ends the shell after an answer that cannot be parsed.
    pub(crate) fn not_understood(
        &mut self,
        host: &Host,
        line: &[u8],
        why: &LineError,
    ) -> anyhow::Error {
        let _ = self.end(Duration::ZERO);
        not_understood(host, line, why)
    }

    /// Writes more to the other end.
    pub(crate) fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.input
            .as_mut()
            .map_or(Ok(()), |input| input.write_all(bytes))
    }

    /// Closes the channel, which stops the other end, and waits at most `patience` for it to end.
    pub(crate) fn hang_up(&mut self, patience: Duration) {
        self.input = None;
        let _ = self.end(patience);
    }

    /// The exit status, if the shell has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Writes [`DONE`], once.
    fn say_done(&mut self) {
        if let Some(mut input) = self.input.take() {
            let _ = input.write_all(DONE);
        }
    }

    /// Writes [`DONE`], and waits for the shell to end. Kills it after `patience`.
    ///
    /// # Errors
    /// The shell cannot be waited for.
    fn end(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        self.say_done();
        let until = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= until {
                let _ = self.child.kill();
                return self.child.wait();
            }
            thread::sleep(LOOK);
        }
    }
}

fn locked(shell: &Mutex<Shell>) -> MutexGuard<'_, Shell> {
    shell.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Generates a key for this connection only.
pub(crate) fn new_identity() -> Result<Identity> {
    let secret = zerolane::security::random().context("no random numbers for a key")?;
    Ok(Identity::from_secret(secret))
}

/// The security options for a connection to the server with this key.
pub(crate) fn security(identity: Identity, key: PublicKey) -> Security {
    Security {
        identity: Some(Arc::new(identity)),
        trust: Arc::new(HostTrust::only(key)),
        ..Security::default()
    }
}

/// The addresses of a server that reports `told`: that one, and those of the host's name as seen from here, because the
/// host may be behind NAT, or may report an unspecified address.
fn addresses(host: &Host, told: SocketAddr) -> Vec<SocketAddr> {
    let needs_interface = match told.ip() {
        std::net::IpAddr::V4(_) => false,
        std::net::IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let mut addresses = Vec::new();
    if !told.ip().is_unspecified() && !needs_interface {
        addresses.push(told);
    }
    addresses.extend(addresses_of(host, told));
    once_each(addresses)
}

/// The addresses of the host's name as seen from here, with the port of `told`.
fn addresses_of(host: &Host, told: SocketAddr) -> Vec<SocketAddr> {
    let named = (host.name.as_str(), told.port()).to_socket_addrs();
    named.into_iter().flatten().collect()
}

fn once_each(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let mut seen = Vec::new();
    addresses.retain(|it| {
        !seen.contains(it) && {
            seen.push(*it);
            true
        }
    });
    addresses.truncate(MOST_ADDRESSES);
    addresses
}

/// Most addresses to try at once.
const MOST_ADDRESSES: usize = 8;

fn not_understood(host: &Host, line: &[u8], why: &LineError) -> anyhow::Error {
    let name = &host.name;
    let error = match why {
        LineError::Version { .. } => anyhow!("{name}: {why}"),
        _ => anyhow!("{name} says {}: {why}", in_words(line)),
    };
    error.context(Exit::Unreachable)
}

/// The outcome of a login.
pub(crate) enum Heard<T> {
    /// The other end's answer.
    Answer(T),
    /// The end of the channel, with the text before it, in words; empty if there was none.
    End(String),
}

/// Waits for the answer of the program that a login starts. `parse` receives lines until it returns an answer. A thread
/// copies further output to `rest`.
///
/// # Errors
/// No answer came within `patience`, or too much other text came.
pub(crate) fn hear<T: Send + 'static>(
    host: &Host,
    output: ChildStdout,
    patience: Duration,
    parse: impl FnMut(&[u8]) -> Option<T> + Send + 'static,
    rest: impl Write + Send + 'static,
) -> Result<(Heard<T>, JoinHandle<io::Result<u64>>)> {
    let name = &host.name;
    let (said, rest) = lines::answer(output, patience, parse, rest).context("starting a thread")?;
    let noise = match said {
        Said::Answer(answer) => return Ok((Heard::Answer(answer), rest)),
        Said::End(noise) if noise.is_empty() => return Ok((Heard::End(String::new()), rest)),
        Said::End(noise) => return Ok((Heard::End(in_words(&noise)), rest)),
        Said::TooMuch(noise) => bail!(
            "{name} says too much before zerolane does ({}): its login should print nothing to a program",
            in_words(&noise)
        ),
        Said::Silence(noise) => noise,
    };
    let heard = match noise.is_empty() {
        true => "nothing".to_owned(),
        false => format!("{} and no more", in_words(&noise)),
    };
    bail!(
        "{name} says {heard} for {} s: a start file of the shell there (.bashrc, .profile, .ssh/rc) may wait for an answer, or \
         read what zerolane says. `ssh {name} true </dev/null` has to end by itself",
        patience.as_secs()
    )
}

/// A line that begins like an answer of `serve --stdio`.
fn answer_line(line: &[u8]) -> Option<Vec<u8>> {
    (line.len() <= RENDEZVOUS_LINE_BYTES && Answer::begins(line)).then(|| line.to_vec())
}

/// The error for a remote shell that ended without an answer.
fn ended(
    host: &Host,
    shell: &str,
    status: ExitStatus,
    program: &Program<'_>,
    noise: &str,
) -> anyhow::Error {
    let name = &host.name;
    let heard = match noise.is_empty() {
        true => String::new(),
        false => format!("; before that it said {noise}"),
    };
    let words = match status.code() {
        Some(126) => format!(
            "{} at {name} cannot be executed: it needs execute permission, a file system without noexec, and a build for \
             that processor; --remote-program PATH names another",
            program.remote()
        ),
        Some(127) => format!(
            "there is no {} at {name}: install zerolane there, or say where it is with --remote-program PATH",
            program.remote()
        ),
        Some(2) => format!(
            "the zerolane at {name} does not know this way to start it: install the same version at both ends"
        ),
        Some(255) => format!("no login at {name}: {shell} failed"),
        _ => format!(
            "{name} did not start zerolane: {shell} {}",
            words_of(status)
        ),
    };
    anyhow!("{words}{heard}").context(Exit::Unreachable)
}

fn words_of(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("ended with {code}"),
        None => "was killed".into(),
    }
}

/// The text, shortened, escaped and quoted.
fn in_words(bytes: &[u8]) -> String {
    let most = &bytes[..bytes.len().min(WORDS_BYTES)];
    let dots = if most.len() < bytes.len() { "..." } else { "" };
    format!("\"{}{dots}\"", escape(most.trim_ascii()))
}

/// Most bytes of a login's output that a message repeats.
const WORDS_BYTES: usize = 200;
