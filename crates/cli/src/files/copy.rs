//! `zerolane cp`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::builder::{OsStringValueParser, TypedValueParser};
use zerolane_files::{Client, CopyOptions, Error, Host, Location, LocationError, Totals};

use super::guarded::Guarded;
use super::progress::Progress;
use super::stop_on_signals;
use crate::exit::Exit;
use crate::security::ClientArgs;

/// Arguments of `zerolane cp`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
One side is remote: HOST:PATH, HOST:PORT:PATH, or [IPV6]:PATH, where PATH is below the directory \
that HOST serves. A local name with a ':' is written ./NAME.

Every file is written under a temporary name, verified end to end, then renamed. With \
--resume, what a killed copy left is hashed at both ends and only what differs is sent.")]
pub struct Args {
    /// What to copy, then where to: a directory, or a new name for one source
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"],
          value_parser = OsStringValueParser::new().try_map(parse_location))]
    locations: Vec<Location>,
    /// Copy directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// Continue a killed copy: keep what is there and the same
    #[arg(long)]
    resume: bool,
    /// Have each file on the disk (fsync) before it gets its name
    #[arg(long)]
    fsync: bool,
    /// Replace target files without write permission
    #[arg(short, long)]
    force: bool,
    /// Events for machines, one JSON object a line
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    security: ClientArgs,
}

fn parse_location(text: OsString) -> Result<Location, LocationError> {
    Location::parse(&text)
}

/// A copy in one direction.
#[derive(Debug, PartialEq, Eq)]
enum Direction {
    Put {
        sources: Vec<PathBuf>,
        host: Host,
        destination: Vec<u8>,
    },
    Get {
        host: Host,
        sources: Vec<Vec<u8>>,
        destination: PathBuf,
    },
}

impl Direction {
    /// The remote side.
    fn host(&self) -> &Host {
        match self {
            Direction::Put { host, .. } | Direction::Get { host, .. } => host,
        }
    }
}

/// Copies; the exit code says whether everything, something or nothing was.
pub(crate) fn run(args: Args) -> Result<()> {
    let progress = Progress::new(args.json, args.quiet);
    let options = CopyOptions {
        recursive: args.recursive,
        resume: args.resume,
        durable: args.fsync,
        replace_read_only: args.force,
        count_first: progress.wants_total(),
    };
    let direction =
        direction(args.locations).map_err(|words| anyhow!(words).context(Exit::Usage))?;
    let guarded = Guarded::new(direction.host().clone(), args.security)?;
    let copied = copy(&guarded.client, &direction, &options, &progress);
    progress.clear();
    let totals = guarded.explain(copied)?;
    progress.summarize(&totals);
    judge(&totals, progress.saw_corruption())
}

fn copy(
    client: &Client,
    direction: &Direction,
    options: &CopyOptions,
    progress: &Progress,
) -> Result<Totals, Error> {
    let client = client.clone();
    // Without the handler, Ctrl-C ends the process at once: a killed copy is safe.
    let client = match stop_on_signals() {
        Ok(stop) => client.with_stop(stop),
        Err(_) => client,
    };
    match direction {
        Direction::Put {
            sources,
            destination,
            ..
        } => client.put(sources, destination, options, progress),
        Direction::Get {
            sources,
            destination,
            ..
        } => client.get(sources, destination, options, progress),
    }
}

/// The copy that the locations ask for, or a message why there is none.
fn direction(mut locations: Vec<Location>) -> Result<Direction, &'static str> {
    const BOTH: &str = "one side must be HOST:PATH and the other local";
    match locations.pop() {
        Some(Location::Remote(host, destination)) => {
            let local = |location| match location {
                Location::Local(path) => Ok(path),
                Location::Remote(..) => Err(BOTH),
            };
            let sources = locations.into_iter().map(local).collect::<Result<_, _>>()?;
            Ok(Direction::Put {
                sources,
                host,
                destination,
            })
        }
        Some(Location::Local(destination)) => {
            let mut hosts = Vec::new();
            let mut sources = Vec::new();
            for location in locations {
                let Location::Remote(host, path) = location else {
                    return Err(BOTH);
                };
                hosts.push(host);
                sources.push(path);
            }
            hosts.dedup();
            match <[Host; 1]>::try_from(hosts) {
                Ok([host]) => Ok(Direction::Get {
                    host,
                    sources,
                    destination,
                }),
                Err(_) => Err("all sources must be on one host"),
            }
        }
        None => Err(BOTH),
    }
}

fn judge(totals: &Totals, corrupt: bool) -> Result<()> {
    let copied = totals.files + totals.links + totals.directories;
    match (totals.failed, copied) {
        (0, _) => Ok(()),
        _ if corrupt => Err(Exit::Corrupt.into()),
        (failed, 0) => Err(anyhow!("nothing was copied, {failed} failed").context(Exit::Failure)),
        (failed, _) => Err(anyhow!("{failed} failed, {copied} copied").context(Exit::Partial)),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn parse(texts: &[&str]) -> Result<Direction, &'static str> {
        direction(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn direction__one_side_is_remote() {
        assert!(
            matches!(parse(&["a", "b", "h:c"]), Ok(Direction::Put { sources, .. }) if sources.len() == 2)
        );
        assert!(
            matches!(parse(&["h:a", "h:b", "c"]), Ok(Direction::Get { sources, .. }) if sources.len() == 2)
        );
        for bad in [
            &["a", "b"][..],
            &["h:a", "h:b"],
            &["a", "h:b", "c"],
            &["a", "h:b", "h:c"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(parse(&["h:a", "g:b", "c"]).is_err());
        assert!(parse(&["h:a", "h:7:b", "c"]).is_err());
    }

    #[test]
    fn judge__exit_codes() {
        let totals = |files, failed| Totals {
            files,
            failed,
            ..Totals::default()
        };
        let code = |totals, corrupt| {
            judge(&totals, corrupt).map_or_else(|e| Exit::of(&e), |()| Exit::Success)
        };
        assert_eq!(code(totals(2, 0), false), Exit::Success);
        assert_eq!(code(totals(2, 1), false), Exit::Partial);
        assert_eq!(code(totals(2, 1), true), Exit::Corrupt);
        assert_eq!(code(totals(0, 1), false), Exit::Failure);
    }
}
