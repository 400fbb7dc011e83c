//! Implements the commands of the file service: their arguments, progress and exit codes. `zerolane_files` does the
//! work.

pub(crate) mod between;
pub(crate) mod change;
pub(crate) mod copy;
mod copying;
mod filters;
mod guarded;
mod kept;
mod limit;
pub(crate) mod list;
mod log;
mod metrics;
pub(crate) mod ordered;
mod pace;
mod progress;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod stdio;
pub(crate) mod sync;
mod user;
mod within;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zerolane::keys::AllowFile;
use zerolane_files::{Cause, Error, Host, Location, Refusal, Stop};

use crate::exit::Exit;

/// A stop that the first Ctrl-C or SIGTERM requests. The second one ends the process at once.
pub(crate) fn stop_on_signals() -> Result<Stop> {
    let stop = Stop::default();
    let requested = stop.clone();
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("taking over signals")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                if requested.requested() {
                    std::process::exit(Exit::Interrupted.code().into());
                }
                requested.request();
            }
        })
        .context("starting the thread that waits for signals")?;
    Ok(stop)
}

/// Rereads the list of keys on SIGHUP; without a list, ignores SIGHUP. If the program was started on a terminal,
/// closing the terminal stops it.
pub(crate) fn on_hangup(list: Option<Arc<AllowFile>>, stop: &Stop) -> Result<()> {
    let on_terminal = std::io::stderr().is_terminal();
    let stop = stop.clone();
    let mut signals = Signals::new([SIGHUP]).context("taking over SIGHUP")?;
    std::thread::Builder::new()
        .name("hangup".into())
        .spawn(move || {
            for _ in signals.forever() {
                match &list {
                    // The terminal is gone.
                    _ if on_terminal && !std::io::stderr().is_terminal() => stop.request(),
                    Some(list) => list.reload(),
                    None => {}
                }
            }
        })
        .context("starting the thread that waits for SIGHUP")?;
    Ok(())
}

/// Attaches an exit code to an error of the file service.
fn with_exit_code(error: Error) -> anyhow::Error {
    let exit = match &error {
        Error::Connect { source, .. } => Exit::of_connecting(source),
        Error::Filter(_) => Exit::Usage,
        Error::NotFileService | Error::Version { .. } | Error::NoSender(_) => Exit::Unreachable,
        Error::Refused(Refusal::NotAllowed | Refusal::NoPlace) => Exit::Refused,
        Error::Refused(Refusal::Full) => Exit::Busy,
        Error::Stopped => return Exit::Interrupted.into(),
        Error::Local {
            cause: Cause::PermissionDenied,
            ..
        } => return anyhow!("{error}, here"),
        _ => return error.into(),
    };
    anyhow::Error::new(error).context(exit)
}

/// Parses a location that must be remote.
fn parse_remote(text: OsString) -> Result<(Host, Vec<u8>), String> {
    match Location::parse(&text) {
        Ok(Location::Remote(host, path)) => Ok((host, path)),
        Ok(Location::Local(_)) => Err("not of the form [USER@]HOST[:PORT]:PATH".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Splits locations into their common host and the paths there.
fn at_one_host(locations: Vec<(Host, Vec<u8>)>) -> Result<(Host, Vec<Vec<u8>>)> {
    let (mut hosts, paths): (Vec<_>, Vec<_>) = locations.into_iter().unzip();
    hosts.dedup();
    match <[Host; 1]>::try_from(hosts) {
        Ok([host]) => Ok((host, paths)),
        Err(_) => Err(anyhow!("all paths must be on one host").context(Exit::Usage)),
    }
}
