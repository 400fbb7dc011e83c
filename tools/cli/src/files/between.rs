//! Copies from one host to another by logins at both, when both sides of `cp` or `sync` are remote: zerolane at the source
//! connects to the one at the target. Where both sides are at one host, zerolane there copies within it. The source draws its
//! key and says the public half: no secret is said.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Read, sink, stdin, stdout};
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::parser::ValueSource;
use serde::{Deserialize, Serialize};
use zerolane::security::Identity;
use zerolane_files::{Answer, Filter, Host, LineError, Order, Ready, Stop};

use super::guarded::{Guarded, Reached};
use super::stdio::hear_line;
use super::stop_on_signals;
use super::{copy, sync};
use crate::console;
use crate::exit::Exit;
use crate::input::Input;
use crate::login::{RemoteEnd, Shell, new_identity, security};
use crate::security::FileClientArgs;

/// The command by which the program is started at the source.
pub(crate) const SUBCOMMAND: &str = "between";

/// Bytes that may say what to copy: filters and paths.
const TASK_BYTES: u32 = 1 << 20;
/// How long the source waits to be told what to copy: the login at the target comes before.
const ORDER: Duration = Duration::from_secs(400);
/// How long the source may take to end once it was told to.
const FAREWELL: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// What copies.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verb {
    Cp,
    Sync,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Verb::Cp => "cp",
            Verb::Sync => "sync",
        }
    }
}

/// A copy from one host to another, or within one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Between {
    pub(super) source: Host,
    pub(super) sources: Vec<Vec<u8>>,
    pub(super) target: Host,
    pub(super) destination: Vec<u8>,
}

/// What the source is to do.
#[derive(Serialize, Deserialize)]
struct Task {
    verb: Verb,
    /// As on the command line.
    options: Vec<Vec<u8>>,
    sources: Vec<Vec<u8>>,
    destination: Vec<u8>,
    patience: Duration,
    /// `None`: the target is at the same host.
    target: Option<Target>,
}

/// A server that was started at the target, for the source's key.
#[derive(Serialize, Deserialize)]
struct Target {
    /// What the user calls the source.
    source: String,
    user: Option<String>,
    name: String,
    port: Option<u16>,
    addresses: Vec<SocketAddr>,
    key: String,
}

impl Between {
    /// Has it copied, by `verb` with the options of this command line.
    ///
    /// # Errors
    /// It could not be begun; what goes wrong later, the source says.
    pub(super) fn run<A: clap::Args>(
        self,
        verb: Verb,
        (args, filter): (FileClientArgs, &Filter),
        patience: Option<Duration>,
        max_rate: Option<u64>,
    ) -> Result<Exit> {
        let source = Reached::new(self.source, args.clone(), patience)?;
        let target = Reached::new(self.target, args, patience)?;
        let mut options = options_given::<A>(verb, filter)?;
        if let Some(max_rate) = max_rate.or(target.max_rate) {
            options.push(format!("--limit={max_rate}B/s").into_bytes());
        }
        let stop = stop_on_signals()?;
        let (host, login) = (&source.host, &source.args.login);
        let line = Order.to_string();
        let (mut shell, line, rest) = Shell::start(host, login, &[SUBCOMMAND], &line, stdout())?;
        let ready = Ready::parse(&line).map_err(|why| shell.not_understood(host, &line, &why))?;
        let end = match *host == target.host {
            true => Ok(None),
            false => target.start(ready.key).map(Some),
        };
        let end = end.inspect_err(|_| shell.hang_up(FAREWELL))?;
        let task = Task {
            verb,
            options,
            sources: self.sources,
            destination: self.destination,
            patience: target.patience,
            target: end.as_ref().map(|end| Target {
                source: host.to_string(),
                user: target.host.user.clone(),
                name: target.host.name.clone(),
                port: target.host.port,
                addresses: end.addresses().to_vec(),
                key: end.key().to_string(),
            }),
        };
        let order = task.encoded().inspect_err(|_| shell.hang_up(FAREWELL))?;
        // If it has gone, that tells why.
        let _ = shell.say(&order);
        let status = loop {
            let ended = shell.ended();
            if stop.requested() {
                // A terminal interrupts the remote shell as well.
                shell.hang_up(FAREWELL);
                return Err(Exit::Interrupted.into());
            }
            if let Some(status) = ended {
                break status;
            }
            thread::sleep(LOOK);
        };
        // All that it said.
        let _ = rest.join();
        match status.code() {
            Some(255) | None => bail!(
                "the login at {host} ended before the copy did: say it again, with --resume to go on with what is there"
            ),
            Some(_) => Ok(Exit::of_command(status)),
        }
    }
}

/// The options of this process's command line that the source needs, each with its value. Filters are said as rules: files of
/// them are here.
fn options_given<A: clap::Args>(verb: Verb, filter: &Filter) -> Result<Vec<Vec<u8>>> {
    const OWN: [&str; 12] = [
        "rsh",
        "remote_program",
        "remote_listen",
        "timeout",
        "max_rate",
        "exclude",
        "include",
        "exclude-from",
        "include-from",
        "filter",
        "filter-from",
        "filter-files",
    ];
    let command = A::augment_args(clap::Command::new(verb.name()));
    let matches = command
        .clone()
        .try_get_matches_from(std::env::args_os().skip(1))?;
    let mut options = Vec::new();
    for argument in command.get_arguments().filter(|it| !it.is_positional()) {
        let id = argument.get_id().as_str();
        let given = matches.value_source(id) == Some(ValueSource::CommandLine);
        let Some(long) = argument.get_long().filter(|_| given && !OWN.contains(&id)) else {
            continue;
        };
        if !argument.get_action().takes_values() {
            options.push(format!("--{long}").into_bytes());
            continue;
        }
        for value in matches.get_raw(id).into_iter().flatten() {
            options.push([format!("--{long}=").as_bytes(), value.as_bytes()].concat());
        }
    }
    options.extend(
        filter
            .texts()
            .iter()
            .map(|rule| [b"--filter=", &rule[..]].concat()),
    );
    Ok(options)
}

/// `zerolane between`, at the source.
pub(crate) fn serve() -> Result<Exit> {
    if stdin().is_terminal() {
        let why = anyhow!(
            "this is for a login: `zerolane cp USER@HOST:PATH USER@HOST:PATH` starts it so"
        );
        return Err(why.context(Exit::Usage));
    }
    let stop = stop_on_signals()?;
    Order::parse(&hear_line(&stop)?).map_err(|why| {
        if matches!(why, LineError::Version { .. }) {
            // The other end tells the user.
            let _ = console::say(format_args!("\n{}", Answer::of_version()));
        }
        anyhow!(why).context("what to copy")
    })?;
    let identity = new_identity()?;
    let key = identity.public();
    // After whatever the login's shell printed, perhaps without an end of line.
    console::say(format_args!("\n{}", Ready { key }))?;
    let until = Instant::now() + ORDER;
    let heard = stop.clone();
    let mut input = Input::new(move || heard.requested() || Instant::now() >= until)?;
    let task = match Task::read(&mut input) {
        Ok(Some(task)) => task,
        // The other end says why.
        Ok(None) => return Ok(Exit::Failure),
        Err(_) if stop.requested() => return Err(Exit::Interrupted.into()),
        Err(why) => return Err(why.context("what to copy")),
    };
    watch(stop.clone())?;
    task.run(identity, stop)
}

/// Requests `stop` when the machine that started this process has gone.
fn watch(stop: Stop) -> Result<()> {
    thread::Builder::new()
        .name("channel".into())
        .spawn(move || {
            let _ = std::io::copy(&mut stdin().lock(), &mut sink());
            stop.request();
        })
        .context("starting a thread")?;
    Ok(())
}

impl Task {
    /// Its length and itself, for the source.
    fn encoded(&self) -> Result<Vec<u8>> {
        let task = serde_json::to_vec(self)?;
        let bytes = u32::try_from(task.len()).ok();
        let bytes = bytes.filter(|&bytes| bytes <= TASK_BYTES);
        let bytes = bytes.context(
            "the paths and filters of one copy are more than 1 MiB: copy a part at a time",
        )?;
        Ok([&bytes.to_be_bytes()[..], &task].concat())
    }

    /// Reads that; `None` if nothing comes any more.
    fn read(input: &mut impl Read) -> Result<Option<Task>> {
        let mut bytes = [0; 4];
        match input.read_exact(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let bytes = u32::from_be_bytes(bytes);
        ensure!(bytes <= TASK_BYTES, "more than 1 MiB");
        let mut task = vec![0; bytes as usize];
        input.read_exact(&mut task)?;
        Ok(Some(serde_json::from_slice(&task)?))
    }

    fn run(self, identity: Identity, stop: Stop) -> Result<Exit> {
        let guarded = match self.target {
            None => Guarded::within(self.patience)?,
            Some(target) => {
                let key = target
                    .key
                    .parse()
                    .map_err(|_| anyhow!("no key of the target"))?;
                let host = Host {
                    user: target.user,
                    name: target.name,
                    port: target.port,
                };
                let end = RemoteEnd::handed(target.source, host, &target.addresses, key);
                let security = security(identity, key);
                Guarded::at(end, security, self.patience)
            }
        };
        let (verb, options) = (self.verb, self.options);
        match verb {
            Verb::Cp => {
                let args = parsed::<copy::Args>(verb, options)?;
                copy::run_between(args, self.sources, self.destination, (guarded, stop))
            }
            Verb::Sync => {
                let Ok([source]) = <[_; 1]>::try_from(self.sources) else {
                    bail!("a sync has one source");
                };
                let args = parsed::<sync::Args>(verb, options)?;
                sync::run_between(args, source, self.destination, (guarded, stop))
            }
        }
    }
}

/// The arguments that these options are, with two paths that stand for those of the task.
fn parsed<A: clap::Args>(verb: Verb, options: Vec<Vec<u8>>) -> Result<A> {
    let words = [OsString::from(verb.name())].into_iter();
    let words = words.chain(options.into_iter().map(OsString::from_vec));
    let words = words.chain(["--", "./source", "./target"].map(OsString::from));
    let command = A::augment_args(clap::Command::new(verb.name()));
    let parsed = command.try_get_matches_from(words);
    let parsed = parsed.and_then(|matches| A::from_arg_matches(&matches));
    parsed.map_err(|why| anyhow!("{why}").context(Exit::Usage))
}
