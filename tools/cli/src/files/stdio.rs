//! Implements `serve --stdio`: serves the one client at the other end of a login, and ends with it.

use std::collections::HashSet;
use std::io::{self, IsTerminal, Read, stdin};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use zerolane::counters::Account;
use zerolane::failure::{CloseReason, TransferError};
use zerolane::keys::{Access, HostTrust};
use zerolane::options::{LaneChoice, Scheduler};
use zerolane::{Options, Security};
use zerolane_files::limits::RENDEZVOUS_LINE_BYTES;
use zerolane_files::{
    Answer, Call, Error, LineError, Peer, ServeOptions, Server, ServerObserver, Stop, Totals, Verb,
};

use super::{on_hangup, stop_on_signals, with_exit_code};
use crate::console;
use crate::exit::Exit;
use crate::input::Input;
use crate::login::{DONE, new_identity};
use crate::ports::Ports;

/// The variable in which sshd passes both addresses of a login.
const CONNECTION: &str = "SSH_CONNECTION";

/// How long to wait for the client's call. The client writes it when it starts the login, before this program runs.
const CALL: Duration = Duration::from_secs(10);
/// How long a client may take from the answer to its first request. The first address it tries may be wrong.
const FIRST: Duration = Duration::from_secs(60);
/// How long a client may take to return after it disconnected properly without a word on the channel.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// The least time that a client may be away: it disconnects between the parts of a sync.
const LEAST_PATIENCE: Duration = Duration::from_secs(10);
/// Poll interval for the end.
const LOOK: Duration = Duration::from_millis(50);

/// Options of the server.
#[derive(Debug)]
pub(super) struct Terms<'a> {
    /// The directory to serve; without one, everything that the login may reach.
    pub(super) directory: Option<&'a Path>,
    /// Where to listen, overriding the client.
    pub(super) listen: Option<&'a str>,
    pub(super) read_only: bool,
    /// Most content a second, bytes.
    pub(super) max_rate: Option<u64>,
    pub(super) scheduler: Scheduler,
}

/// Serves only the client at the other end of standard input and output.
pub(super) fn run(terms: Terms<'_>) -> Result<Exit> {
    if stdin().is_terminal() {
        let why = anyhow!("--stdio is for a login: `zerolane cp USER@HOST:PATH` uses it");
        return Err(why.context(Exit::Usage));
    }
    let stop = stop_on_signals()?;
    on_hangup(None, &stop)?;
    let Called {
        call,
        addresses,
        options,
    } = Called::hear(&stop, terms.listen)?;
    let options = ServeOptions {
        read_only: terms.read_only,
        access: Access::Anyone,
        transport: options.with(|it| {
            it.rate.scheduler = Some(terms.scheduler);
            it.rate.max = terms.max_rate;
        }),
    };
    let bound = match terms.directory {
        Some(directory) => Server::bind(directory, &addresses[..], options),
        None => Server::bind_login(&addresses[..], options),
    };
    let mut server = bound.map_err(|error| match (&error, &addresses[..]) {
        (Error::Listen { source, .. }, [first, .., last]) => {
            anyhow!("cannot listen on any of {first} to {last}: {source}")
        }
        _ => with_exit_code(error),
    })?;
    // Without Landlock, this process can do no more than other programs of the login.
    let _ = server
        .confine(&[])
        .context("confining this process to files")?;
    let key = server.public_key().context("no key")?;
    let address = server.local_addr();
    let visit = Visit::default();
    watch(&visit, &stop, call.patience.max(LEAST_PATIENCE))?;
    // Begins a new line, because the login's shell may have printed an incomplete one.
    console::say(format_args!("\n{}", Answer { key, address }))?;
    server.run(&stop, &visit).map_err(with_exit_code)?;
    match visit.state().came {
        true => Ok(Exit::Success),
        false => Ok(Exit::Failure),
    }
}

/// What the client at the other end of a login asked for.
pub(crate) struct Called {
    pub(crate) call: Call,
    /// Where to listen: the first free one.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Options that let in this client alone.
    pub(crate) options: Options,
}

impl Called {
    /// Reads the client's call. `listen` overrides where it wants this end to listen.
    pub(crate) fn hear(stop: &Stop, listen: Option<&str>) -> Result<Called> {
        let call = hear_call(stop)?;
        let listen = listen.or(call.listen.as_deref());
        let ports = listen.map_or(Ok(Ports::ANY), Ports::parse);
        let ports = ports.map_err(|why| anyhow!("where to listen: {why}"))?;
        let addresses = ports.resolve(arrived().as_deref())?;
        let identity = new_identity()?;
        let options = Options::default().with(|it| {
            it.security = Security {
                identity: Some(Arc::new(identity)),
                trust: Arc::new(HostTrust::only(call.key)),
                ..Security::default()
            };
            // The client is on another host.
            it.lane.choice = LaneChoice::Udp;
        });
        Ok(Called {
            call,
            addresses,
            options,
        })
    }
}

/// Reads the client's call; answers a call of another version.
fn hear_call(stop: &Stop) -> Result<Call> {
    let line = hear_line(stop)?;
    Call::parse(&line).map_err(|why| {
        if matches!(why, LineError::Version { .. }) {
            // The client tells the user.
            let _ = console::say(format_args!("\n{}", Answer::of_version()));
        }
        anyhow!(why).context("the client's call")
    })
}

/// Reads the first line of standard input, without its end, and nothing after it.
pub(super) fn hear_line(stop: &Stop) -> Result<Vec<u8>> {
    let until = Instant::now() + CALL;
    let input = Input::new(|| stop.requested() || Instant::now() >= until);
    let mut input = input.context("reading from the client")?;
    let mut line = Vec::new();
    // One byte at a time, because the thread that watches the channel must get what follows.
    let mut byte = [0];
    loop {
        match input.read(&mut byte) {
            Ok(1) if byte == *b"\n" => return Ok(line),
            Ok(1) if line.len() < RENDEZVOUS_LINE_BYTES => line.extend(byte),
            Ok(_) => break,
            Err(_) if stop.requested() => return Err(Exit::Interrupted.into()),
            Err(_) if Instant::now() >= until => bail!(
                "no call came over standard input within {} s. A start file of the login's shell (.bashrc, .profile, \
                 .ssh/rc) reads it: have it read only from a terminal, with `[ -t 0 ] &&` before the command",
                CALL.as_secs()
            ),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("reading from the client"),
        }
    }
    bail!("no call came over standard input: the client is gone, or is not zerolane")
}

/// The local address of the login.
fn arrived() -> Option<String> {
    let connection = std::env::var(CONNECTION).ok()?;
    // Address and port of the client, then of this end.
    let arrived = connection.split(' ').nth(2)?;
    // Without a network sshd writes UNKNOWN. A link-local address has its interface after a '%'.
    let ip = arrived.split('%').next()?.parse::<IpAddr>();
    ip.is_ok().then(|| arrived.to_owned())
}

/// The client of this server, over all its connections.
#[derive(Clone, Debug)]
struct Visit(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// It made a request.
    came: bool,
    here: HashSet<u64>,
    /// The last connection broke, so the client may return.
    broke: bool,
    /// When its last connection ended.
    away: Instant,
    /// The channel has ended.
    channel_closed: bool,
}

impl Default for Visit {
    fn default() -> Visit {
        Visit(Arc::new(Mutex::new(State {
            came: false,
            here: HashSet::new(),
            broke: false,
            away: Instant::now(),
            channel_closed: false,
        })))
    }
}

impl Visit {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerObserver for Visit {
    fn requested(&self, peer: &Peer, _: Verb, _: &[Vec<u8>]) {
        let mut state = self.state();
        state.came = true;
        state.here.insert(peer.connection);
    }

    fn ended(&self, peer: &Peer, outcome: &Result<Option<Totals>, Error>, _: &Account) {
        let mut state = self.state();
        if state.here.remove(&peer.connection) {
            state.broke = outcome.as_ref().is_err_and(is_break);
            state.away = Instant::now();
        }
    }
}

impl State {
    /// Whether the client is gone for good; `patience` is the time it has to return.
    fn is_over(&self, patience: Duration) -> bool {
        let away = self.away.elapsed();
        match self.came {
            false => self.channel_closed || away > FIRST,
            true if !self.here.is_empty() => false,
            true if self.channel_closed && !self.broke => away > AFTERWARDS,
            true => away > patience,
        }
    }
}

/// Whether the connection broke, instead of being closed by the client.
fn is_break(error: &Error) -> bool {
    let (Error::Transport(zerolane::Error::Closed(reason))
    | Error::Transport(zerolane::Error::Transfer(TransferError::Closed(reason)))) = error
    else {
        return matches!(error, Error::Stalled);
    };
    !matches!(reason, CloseReason::Peer(_))
}

/// Reads the channel, and requests `stop` when the client says that it is done, or is gone.
fn watch(visit: &Visit, stop: &Stop, patience: Duration) -> Result<()> {
    let (heard, watched) = (visit.clone(), visit.clone());
    let (at_once, stop) = (stop.clone(), stop.clone());
    let listen = move || {
        let mut line = Vec::new();
        let most = DONE.len() as u64;
        let _ = stdin().lock().take(most).read_to_end(&mut line);
        if line == DONE {
            at_once.request();
        }
        heard.state().channel_closed = true;
    };
    let look = move || {
        while !watched.state().is_over(patience) {
            thread::sleep(LOOK);
        }
        stop.request();
    };
    thread::Builder::new()
        .name("channel".into())
        .spawn(listen)
        .context("starting a thread")?;
    thread::Builder::new()
        .name("watch".into())
        .spawn(look)
        .context("starting a thread")?;
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn is_over__when_the_client_cannot_come_again() {
        const PATIENCE: Duration = Duration::from_secs(100);
        let ago = |seconds| {
            Instant::now()
                .checked_sub(Duration::from_secs(seconds))
                .unwrap()
        };
        let state = |came, here: bool, broke, away, channel_closed| State {
            came,
            here: here.then_some(1).into_iter().collect(),
            broke,
            away: ago(away),
            channel_closed,
        };
        for (state, over) in [
            (state(false, false, false, 0, false), false),
            (state(false, false, false, 0, true), true),
            (state(false, false, false, 61, false), true),
            (state(true, true, false, 1000, false), false),
            (state(true, true, false, 1000, true), false),
            (state(true, false, false, 0, true), false),
            (state(true, false, false, 6, true), true),
            (state(true, false, true, 99, true), false),
            (state(true, false, true, 101, true), true),
            (state(true, false, true, 101, false), true),
            (state(true, false, false, 99, false), false),
        ] {
            assert_eq!(state.is_over(PATIENCE), over, "{state:?}");
        }
    }

    #[test]
    fn is_break__only_if_the_client_may_come_again() {
        let closed = |reason| Error::Transport(zerolane::Error::Closed(reason));
        assert!(is_break(&closed(CloseReason::PeerDead)));
        assert!(is_break(&Error::Stalled));
        let left = CloseReason::Peer(zerolane::failure::Reason::Cancelled);
        assert!(!is_break(&closed(left)) && !is_break(&Error::PeerGone));
    }
}
