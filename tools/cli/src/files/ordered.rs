//! Implements the hidden command `between`: copies as ordered over a login, to another host or within this machine.

use std::ffi::OsString;
use std::io::{IsTerminal, sink, stdin};
use std::os::unix::ffi::OsStringExt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use zerolane::security::Identity;
use zerolane_files::{Answer, Host, LineError, Order, Ready, Stop};

use super::between::{Task, Verb};
use super::guarded::Guarded;
use super::stdio::hear_line;
use super::stop_on_signals;
use super::{copy, sync};
use crate::console;
use crate::exit::Exit;
use crate::input::Input;
use crate::login::{RemoteEnd, new_identity, security};

/// How long to wait for the order, which comes after the login at the target.
const ORDER: Duration = Duration::from_secs(400);

/// Runs `zerolane between`, at the source.
pub(crate) fn serve() -> Result<Exit> {
    if stdin().is_terminal() {
        let why =
            anyhow!("this is for a login: `zerolane cp USER@HOST:PATH USER@HOST:PATH` starts it");
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
    // Begins a new line, because the login's shell may have printed an incomplete one.
    console::say(format_args!("\n{}", Ready { key }))?;
    let until = Instant::now() + ORDER;
    let heard = stop.clone();
    let mut input = Input::new(move || heard.requested() || Instant::now() >= until)?;
    let task = match Task::read(&mut input) {
        Ok(Some(task)) => task,
        // The other end prints the reason.
        Ok(None) => return Ok(Exit::Failure),
        Err(_) if stop.requested() => return Err(Exit::Interrupted.into()),
        Err(why) => return Err(why.context("what to copy")),
    };
    watch(stop.clone())?;
    run(task, identity, stop)
}

/// Requests `stop` when the machine that started this process is gone.
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

fn run(task: Task, identity: Identity, stop: Stop) -> Result<Exit> {
    let guarded = match task.target {
        None => Guarded::within(task.patience)?,
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
            Guarded::at(end, security, task.patience)
        }
    };
    let (verb, options) = (task.verb, task.options);
    match verb {
        Verb::Cp => {
            let args = parsed::<copy::Args>(verb, options)?;
            copy::run_between(args, task.sources, task.destination, (guarded, stop))
        }
        Verb::Sync => {
            let Ok([source]) = <[_; 1]>::try_from(task.sources) else {
                bail!("a sync has one source");
            };
            let args = parsed::<sync::Args>(verb, options)?;
            sync::run_between(args, source, task.destination, (guarded, stop))
        }
    }
}

/// Parses the options, with two placeholder paths for those of the task.
fn parsed<A: clap::Args>(verb: Verb, options: Vec<Vec<u8>>) -> Result<A> {
    let words = [OsString::from(verb.name())].into_iter();
    let words = words.chain(options.into_iter().map(OsString::from_vec));
    let words = words.chain(["--", "./source", "./target"].map(OsString::from));
    let command = A::augment_args(clap::Command::new(verb.name()));
    let parsed = command.try_get_matches_from(words);
    let parsed = parsed.and_then(|matches| A::from_arg_matches(&matches));
    parsed.map_err(|why| anyhow!("{why}").context(Exit::Usage))
}
