//! Copies files from one host to another, if both sides of `cp` or `sync` are remote: logs in at both, and tells the
//! source what to copy and where the target is (see [`ordered`](super::ordered)). The source generates its key and
//! reports the public half, so no secret crosses the channel.

use std::io::{ErrorKind, Read, stdout};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::parser::ValueSource;
use serde::{Deserialize, Serialize};
use zerolane_files::{Filter, Host, Order, Ready};

use super::guarded::Reached;
use super::stop_on_signals;
use crate::exit::Exit;
use crate::login::Shell;
use crate::security::FileClientArgs;

/// The subcommand that runs at the source.
pub(crate) const SUBCOMMAND: &str = "between";

/// Most bytes of a task: filters and paths.
const TASK_BYTES: u32 = 1 << 20;
/// How long the source may take to end after it was told to.
const FAREWELL: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// The command that copies.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verb {
    Cp,
    Sync,
}

impl Verb {
    pub(super) fn name(self) -> &'static str {
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

/// The task that the source receives.
#[derive(Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) verb: Verb,
    /// Options, as on the command line.
    pub(super) options: Vec<Vec<u8>>,
    pub(super) sources: Vec<Vec<u8>>,
    pub(super) destination: Vec<u8>,
    pub(super) patience: Duration,
    /// `None` means that the target is on the source's host.
    pub(super) target: Option<Target>,
}

/// The server that this machine started at the target, for the source's key.
#[derive(Serialize, Deserialize)]
pub(super) struct Target {
    /// The source's name on the command line.
    pub(super) source: String,
    pub(super) user: Option<String>,
    pub(super) name: String,
    pub(super) port: Option<u16>,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) key: String,
}

impl Between {
    /// Runs the copy, with the options of this process's command line.
    ///
    /// # Errors
    /// The copy could not begin. Later failures are printed by the source.
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
        // If the source is gone, its exit says why.
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
        // Everything that the source printed.
        let _ = rest.join();
        match status.code() {
            Some(255) | None => bail!(
                "the login at {host} ended before the copy did: run it again, with --resume to continue where it stopped"
            ),
            Some(_) => Ok(Exit::of_command(status)),
        }
    }
}

/// The options of this process's command line that the source needs, with their values. Filters become rules, because
/// filter files are on this machine.
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

impl Task {
    /// Encodes the task, after its length.
    fn encoded(&self) -> Result<Vec<u8>> {
        let task = serde_json::to_vec(self)?;
        let bytes = u32::try_from(task.len()).ok();
        let bytes = bytes.filter(|&bytes| bytes <= TASK_BYTES);
        let bytes = bytes.context(
            "the paths and filters of one copy are more than 1 MiB: copy a part at a time",
        )?;
        Ok([&bytes.to_be_bytes()[..], &task].concat())
    }

    /// Decodes a task; `None` at the end of the input.
    pub(super) fn read(input: &mut impl Read) -> Result<Option<Task>> {
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
}
