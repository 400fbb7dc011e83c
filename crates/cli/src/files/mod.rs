//! `zerolane serve`, `cp` and `ls`: arguments, progress and exit codes of the file service. What
//! they do is `zerolane_files`.

pub(crate) mod copy;
mod guarded;
pub(crate) mod list;
mod progress;
pub(crate) mod serve;
mod user;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zerolane_files::{Error, Host, Location, Stop};

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

/// An error of the file service with its exit code.
fn with_exit_code(error: Error) -> anyhow::Error {
    let exit = match &error {
        Error::Connect { .. } | Error::NotFileService | Error::Version { .. } => Exit::Unreachable,
        Error::Stopped => return Exit::Interrupted.into(),
        _ => return error.into(),
    };
    anyhow::Error::new(error).context(exit)
}

/// A location that must be remote.
fn parse_remote(text: &str) -> Result<(Host, Vec<u8>), String> {
    match text.parse() {
        Ok(Location::Remote(host, path)) => Ok((host, path)),
        Ok(Location::Local(_)) => Err("not of the form HOST[:PORT]:PATH".into()),
        Err(error) => Err(error.to_string()),
    }
}
