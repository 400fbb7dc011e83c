//! Implements `zerolane cp`.

use std::ffi::OsString;
use std::io::{ErrorKind, stdin, stdout};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use clap::builder::{OsStringValueParser, TypedValueParser};
use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;
use zerolane_files::limits::MAX_CONNECTIONS;
use zerolane_files::{
    Client, CopyOptions, Error, Host, Location, LocationError, Stop, Totals, open_stream,
};

use super::between::{Between, Verb};
use super::copying::{CopyingArgs, WritingArgs};
use super::filters::Filters;
use super::guarded::Guarded;
use super::kept::{KeptArgs, PermissionArgs};
use super::progress::Progress;
use super::stop_on_signals;
use super::within::Side;
use crate::exit::Exit;
use crate::security::FileClientArgs;

/// Arguments of `zerolane cp`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
A remote side is HOST:PATH, HOST:PORT:PATH, or [IPV6]:PATH, where PATH is below the directory \
that HOST serves. A local name with a ':' is written ./NAME. As the only source, - is standard input; \
as the target of one file it is standard output (./- is a file of that name).

Where both sides are local, the copy is made as between hosts, within this process: with temporary names, \
digests and --resume. USER@HOST:PATH on both sides copies from one host to the other, not by way of this machine: \
zerolane at the source connects to the one at the target.

USER@HOST:PATH needs no server: zerolane is started there over ssh, and ends with the copy. PATH is \
what USER may reach, absolute or from USER's home; USER@HOST:PORT:PATH names the port of ssh.

Every file is written under a temporary name, verified end to end, then renamed. With \
--resume, what a killed copy left is hashed at both ends, and only the parts that differ are sent.

When the connection breaks, the copy continues over a new one once the network, or the server, is back. \
--timeout says how long it tries.")]
pub struct Args {
    /// What to copy, then where to: a directory, or a new name for one source
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"],
          value_parser = OsStringValueParser::new().try_map(parse_location))]
    locations: Vec<Location>,
    /// Copy directories with everything in them
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    kept: KeptArgs,
    #[command(flatten)]
    permissions: PermissionArgs,
    /// Copy symbolic links named as sources as links, not the files they point to
    #[arg(short = 'P', long, conflicts_with = "copy_links")]
    keep_links: bool,
    #[command(flatten)]
    writing: WritingArgs,
    /// Replace target files without write permission
    #[arg(short, long)]
    force: bool,
    /// Print the name of each file that is copied
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    #[command(flatten)]
    copying: CopyingArgs,
    /// Spread the files over this many connections, each with its own threads, where one core is not enough
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["code", "hard_links"],
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CONNECTIONS)))]
    connections: u16,
    #[command(flatten)]
    security: FileClientArgs,
}

fn parse_location(text: OsString) -> Result<Location, LocationError> {
    Location::parse(&text)
}

/// A copy in one direction.
#[derive(Debug, PartialEq, Eq)]
enum Direction {
    Put {
        sources: Vec<PathBuf>,
        side: Side,
        destination: Vec<u8>,
    },
    Get {
        host: Host,
        sources: Vec<Vec<u8>>,
        destination: PathBuf,
    },
    /// From here, with paths that a login's order named.
    PutMatching {
        sources: Vec<Vec<u8>>,
        side: Side,
        destination: Vec<u8>,
    },
    /// Standard input to a remote file.
    PutStream { side: Side, destination: Vec<u8> },
    /// A remote file to standard output.
    GetStream { side: Side, source: Vec<u8> },
}

impl Direction {
    /// The side that is not this process.
    fn side(&self) -> Side {
        match self {
            Direction::Put { side, .. }
            | Direction::PutMatching { side, .. }
            | Direction::PutStream { side, .. }
            | Direction::GetStream { side, .. } => side.clone(),
            Direction::Get { host, .. } => Side::Host(host.clone()),
        }
    }

    /// Reads a pipe that is the only source, such as `/dev/stdin` or `<(command)`, like standard input.
    fn of_pipe(self) -> (Direction, Option<OwnedFd>) {
        match self {
            Direction::Put {
                sources,
                side,
                destination,
            } if let [source] = &sources[..]
                && let Some(pipe) = open_stream(source) =>
            {
                (Direction::PutStream { side, destination }, Some(pipe))
            }
            other => (other, None),
        }
    }

    /// The reason why these options do not fit, if any.
    fn check(
        &self,
        resume: bool,
        json: bool,
        filtered: bool,
        connections: u16,
    ) -> Result<(), &'static str> {
        match self {
            Direction::PutStream { .. } | Direction::GetStream { .. } if filtered => {
                Err("what comes through - is one file: there is nothing to filter")
            }
            Direction::PutStream { .. } | Direction::GetStream { .. } if resume => {
                Err("there is nothing to resume: what came through - before is not known")
            }
            Direction::PutStream { .. } | Direction::GetStream { .. } if connections > 1 => {
                Err("what comes through - is one file, which goes over one connection")
            }
            Direction::GetStream { .. } if json => {
                Err("--json prints events on standard output, which is the target")
            }
            _ => Ok(()),
        }
    }
}

/// Copies. The exit code says whether everything, something or nothing was copied.
pub(crate) fn run(mut args: Args) -> Result<Exit> {
    let locations = std::mem::take(&mut args.locations);
    if let Some(between) = between(&locations) {
        let (patience, max_rate) = (args.copying.patience(), args.copying.limit.max_rate);
        let given = (args.security, &args.filters.0);
        return between.run::<Args>(Verb::Cp, given, patience, max_rate);
    }
    let direction = direction(locations).map_err(|words| anyhow!(words).context(Exit::Usage))?;
    let side = direction.side();
    let progress = args.copying.progress_with(&side, args.verbose);
    let security = args.security.clone();
    let guarded = |patience, max_rate| Guarded::copying(side, security, patience, max_rate);
    // Without the handler, Ctrl-C ends the process at once. That is safe: a killed copy loses nothing.
    let stop = || stop_on_signals().unwrap_or_default();
    run_in(args, direction, &progress, guarded, stop)
}

/// Copies from here, as ordered by the machine that logged in.
pub(super) fn run_between(
    args: Args,
    sources: Vec<Vec<u8>>,
    destination: Vec<u8>,
    (guarded, stop): (Guarded, Stop),
) -> Result<Exit> {
    let direction = Direction::PutMatching {
        sources,
        side: Side::Here,
        destination,
    };
    let progress = args.copying.progress_with(&Side::Here, args.verbose);
    let guarded = |_, max_rate| Ok(guarded.with_max_rate(max_rate));
    run_in(args, direction, &progress, guarded, || stop)
}

fn run_in(
    args: Args,
    direction: Direction,
    progress: &Progress,
    guarded: impl FnOnce(Option<Duration>, Option<u64>) -> Result<Guarded>,
    stop: impl FnOnce() -> Stop,
) -> Result<Exit> {
    let usage = |words: &'static str| anyhow!(words).context(Exit::Usage);
    let options = CopyOptions {
        recursive: args.recursive,
        resume: args.writing.resume,
        durable: args.writing.fsync,
        replace_read_only: args.force,
        count_first: progress.wants_total(),
        delta: args.writing.delta,
        in_place: args.writing.in_place,
        copy_links: args.kept.copy_links,
        keep_links: args.keep_links,
        attributes: args.kept.attributes(),
        allow_changing: args.writing.allow_changing,
        no_permissions: args.permissions.no_perms,
    };
    let (direction, pipe) = match args.keep_links {
        true => (direction, None),
        false => direction.of_pipe(),
    };
    let (resume, json) = (args.writing.resume, args.copying.json);
    let filtered = !args.filters.0.is_empty();
    direction
        .check(resume, json, filtered, args.connections)
        .map_err(usage)?;
    let patience = args.copying.patience();
    let guarded = guarded(patience, args.copying.limit.max_rate)?;
    let client = guarded.for_one_copy().with_connections(args.connections);
    let client = client
        .with_filter(args.filters.0)
        .with_modes(args.permissions.modes())
        .with_stop(stop());
    let copied = copy(client, &direction, pipe, &options, progress);
    progress.clear();
    if let Err(Error::Output(error)) = &copied
        && error.kind() == ErrorKind::BrokenPipe
    {
        // The reader has closed the pipe: end silently by SIGPIPE, like other tools.
        let _ = emulate_default_handler(SIGPIPE);
    }
    let can_resume = !matches!(
        direction,
        Direction::PutStream { .. } | Direction::GetStream { .. }
    );
    let broke = can_resume && copied.as_ref().err().is_some_and(is_broken);
    let totals = guarded.explain(copied).map_err(|error| match broke {
        true => error.context(LEFT),
        false => error,
    })?;
    progress.summarize(&totals);
    check_totals(&totals, progress.saw_corruption())?;
    ensure!(
        progress.said_all(),
        "everything was copied, but not all events could be written to standard output"
    );
    Ok(Exit::Success)
}

fn copy(
    client: Client,
    direction: &Direction,
    pipe: Option<OwnedFd>,
    options: &CopyOptions,
    progress: &Progress,
) -> Result<Totals, Error> {
    match direction {
        Direction::PutMatching {
            sources,
            destination,
            ..
        } => client.put_matching(sources, destination, options, progress),
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
        Direction::PutStream { destination, .. } => match pipe {
            Some(pipe) => client.put_stream(pipe, destination, options, progress),
            None => client.put_stream(stdin(), destination, options, progress),
        },
        Direction::GetStream { source, .. } => {
            client.get_stream(source, stdout(), options, progress)
        }
    }
}

/// The copy between hosts, if no side is on this machine.
fn between(locations: &[Location]) -> Option<Between> {
    let remote = |location: &Location| match location {
        Location::Remote(host, path) => Some((host.clone(), path.clone())),
        Location::Local(_) => None,
    };
    let mut all = locations.iter().map(remote).collect::<Option<Vec<_>>>()?;
    let (target, destination) = all.pop()?;
    let (mut hosts, sources): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    hosts.dedup();
    let [source] = <[Host; 1]>::try_from(hosts).ok()?;
    Some(Between {
        source,
        sources,
        target,
        destination,
    })
}

/// The direction of the copy, or a message why it is not possible.
fn direction(mut locations: Vec<Location>) -> Result<Direction, &'static str> {
    const MIXED: &str = "all sources must be local, or all at one host";
    const ALONE: &str = "- is standard input or output, and goes with one other path alone";
    let is_stream = |location: &Location| *location == Location::Local(STREAM.into());
    if locations.iter().any(is_stream) {
        return match <[Location; 2]>::try_from(locations) {
            Ok([from, to]) if is_stream(&from) && !is_stream(&to) => {
                let (side, destination) = side_of(to);
                Ok(Direction::PutStream { side, destination })
            }
            Ok([from, to]) if !is_stream(&from) => {
                let (side, source) = side_of(from);
                debug_assert!(is_stream(&to), "one of the two is");
                Ok(Direction::GetStream { side, source })
            }
            _ => Err(ALONE),
        };
    }
    let destination = locations.pop().ok_or(MIXED)?;
    if destination == Location::Local(PathBuf::new()) {
        return Err("an empty target is no path: the working directory is .");
    }
    let (mut local, mut remote, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
    for location in locations {
        match location {
            Location::Local(path) => local.push(path),
            Location::Remote(host, path) => {
                hosts.push(host);
                remote.push(path);
            }
        }
    }
    hosts.dedup();
    match (<[Host; 1]>::try_from(hosts), destination) {
        (Err(none), destination) if none.is_empty() => {
            let (side, destination) = side_of(destination);
            Ok(Direction::Put {
                sources: local,
                side,
                destination,
            })
        }
        (Ok(_), _) if !local.is_empty() => Err(MIXED),
        (Ok([host]), Location::Local(destination)) => Ok(Direction::Get {
            host,
            sources: remote,
            destination,
        }),
        // All sides are remote, but not in a combination that `between` accepts.
        (Ok(_), Location::Remote(..)) => Err(MIXED),
        (Err(_), _) => Err(MIXED),
    }
}

/// The other side of a copy, and the path there.
pub(super) fn side_of(location: Location) -> (Side, Vec<u8>) {
    match location {
        Location::Remote(host, path) => (Side::Host(host), path),
        Location::Local(path) => (Side::Here, path.into_os_string().into_vec()),
    }
}

/// The path that stands for standard input or output.
const STREAM: &str = "-";

/// What the user can do after a copy that ended early.
const LEFT: &str = "the copy is not complete: run it again with --resume to continue";

/// Whether the connection broke after copying had begun.
pub(super) fn is_broken(error: &Error) -> bool {
    matches!(
        error,
        Error::GaveUp { .. } | Error::Transport(_) | Error::PeerGone | Error::Stalled
    )
}

pub(super) fn check_totals(totals: &Totals, corrupt: bool) -> Result<()> {
    let copied = totals.files + totals.links + totals.directories;
    match (totals.failed, copied) {
        (0, _) => Ok(()),
        _ if corrupt => Err(Exit::Corrupt.into()),
        (failed, _) if failed == totals.vanished => {
            Err(anyhow!("{failed} vanished, {copied} copied").context(Exit::Vanished))
        }
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
    fn direction__of_each_pair_of_sides() {
        assert!(
            matches!(parse(&["a", "b", "h:c"]), Ok(Direction::Put { sources, .. }) if sources.len() == 2)
        );
        assert!(
            matches!(parse(&["h:a", "h:b", "c"]), Ok(Direction::Get { sources, .. }) if sources.len() == 2)
        );
        for within in [&["a", "b"][..], &["a", "b", "c"]] {
            let put = parse(within).unwrap();
            assert!(
                matches!(&put, Direction::Put { sources, .. } if sources.len() + 1 == within.len())
            );
            assert_eq!(put.side(), Side::Here);
        }
        for bad in [&["a", "h:b", "c"][..], &["a", "h:b", "h:c"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        let hosts = |texts: &[&str]| {
            let locations: Vec<_> = texts.iter().map(|text| text.parse().unwrap()).collect();
            between(&locations).map(|it| (it.source.name, it.sources.len(), it.target.name))
        };
        let found = |source: &str, count, target: &str| Some((source.into(), count, target.into()));
        assert_eq!(hosts(&["h:a", "h:b", "h:c"]), found("h", 2, "h"));
        assert_eq!(hosts(&["h:a", "g:b"]), found("h", 1, "g"));
        for other in [
            &["h:a", "g:b", "k:c"][..],
            &["a", "h:b"],
            &["h:b"],
            &["h:b", "-"],
        ] {
            assert_eq!(hosts(other), None);
        }
        assert!(matches!(
            parse(&["-", "h:c"]),
            Ok(Direction::PutStream { .. })
        ));
        assert!(matches!(
            parse(&["h:c", "-"]),
            Ok(Direction::GetStream { .. })
        ));
        assert!(matches!(parse(&["./-", "h:c"]), Ok(Direction::Put { .. })));
        for within in [["-", "a"], ["a", "-"]] {
            assert_eq!(parse(&within).unwrap().side(), Side::Here);
        }
        for bad in [&["-", "a", "h:c"][..], &["-", "-"], &["h:a", "h:b", "-"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(parse(&["h:a", "g:b", "c"]).is_err());
        assert!(parse(&["h:a", "h:7:b", "c"]).is_err());
    }

    #[test]
    fn check_totals__exit_codes() {
        let totals = |files, failed| Totals {
            files,
            failed,
            ..Totals::default()
        };
        let code = |totals, corrupt| {
            check_totals(&totals, corrupt).map_or_else(|e| Exit::of(&e), |()| Exit::Success)
        };
        assert_eq!(code(totals(2, 0), false), Exit::Success);
        assert_eq!(code(totals(2, 1), false), Exit::Partial);
        assert_eq!(code(totals(2, 1), true), Exit::Corrupt);
        assert_eq!(code(totals(0, 1), false), Exit::Failure);
        let gone = |files, failed| Totals {
            vanished: 1,
            ..totals(files, failed)
        };
        assert_eq!(code(gone(2, 1), false), Exit::Vanished);
        assert_eq!(code(gone(0, 1), false), Exit::Vanished);
        assert_eq!(code(gone(2, 2), false), Exit::Partial);
    }
}
