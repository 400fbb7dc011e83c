//! Implements `zerolane sync`.

mod backups;
mod shown;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use clap::ArgGroup;
use clap::builder::{OsStringValueParser, TypedValueParser};
use zerolane_files::limits::LINK_DIRECTORIES;
use zerolane_files::{
    Location, LocationError, NotDeleted, Stop, SyncOptions, SyncPaths, SyncTotals, escape,
};

use super::between::{Between, Verb};
use super::copy::{is_broken, side_of};
use super::copying::{CopyingArgs, WritingArgs};
use super::filters::Filters;
use super::guarded::Guarded;
use super::kept::{KeptArgs, PermissionArgs};
use super::stop_on_signals;
use super::within::Side;
use crate::console;
use crate::exit::Exit;
use crate::security::FileClientArgs;
use backups::BackupArgs;
use shown::{Shown, Summary, in_words};

/// Arguments of `zerolane sync`.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new(DELETING).multiple(true))]
#[command(after_long_help = "\
Makes the content of the directory DST equal to that of the directory SRC; a '/' at the end means nothing. One \
of the two may be remote: HOST:PATH, HOST:PORT:PATH, or [IPV6]:PATH; or one or both are USER@HOST:PATH, where \
zerolane is started over ssh. DST is made if it does not exist.

A file of the same size and time at both ends is unchanged. Files that differ are copied as by 'cp -r'. Extra files \
stay, unless --delete is given: then they are removed after everything else succeeded.")]
pub struct Args {
    /// The directory to copy from
    #[arg(value_name = "SRC", value_parser = OsStringValueParser::new().try_map(parse_location))]
    source: Location,
    /// The directory to make equal to SRC
    #[arg(value_name = "DST", value_parser = OsStringValueParser::new().try_map(parse_location))]
    destination: Location,
    /// Print what would be done, and do nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Remove from DST what SRC does not have, after everything else succeeded
    #[arg(long, group = DELETING)]
    delete: bool,
    /// As --delete, and also remove what --exclude leaves alone
    #[arg(long, group = DELETING)]
    delete_excluded: bool,
    /// With --delete: delete even if SRC is empty
    #[arg(long, requires = DELETING)]
    allow_empty_source: bool,
    /// With --delete: remove at most N files and directories, and print how many more there are
    #[arg(long, value_name = "N", requires = DELETING)]
    max_delete: Option<u64>,
    /// Compare contents, not sizes and times
    #[arg(long)]
    checksum: bool,
    #[command(flatten)]
    filters: Filters,
    /// Treat times that differ by at most this many seconds as the same (FAT: 1)
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    modify_window: u32,
    #[command(flatten)]
    kept: KeptArgs,
    #[command(flatten)]
    permissions: PermissionArgs,
    #[command(flatten)]
    writing: WritingArgs,
    #[command(flatten)]
    backups: BackupArgs,
    /// Hard link files that are the same in DIR, a path relative to DST, instead of sending them (at most 20 times)
    #[arg(long, value_name = "DIR", conflicts_with = "in_place")]
    link_dest: Vec<OsString>,
    /// Print what is done with each file
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    copying: CopyingArgs,
    #[command(flatten)]
    security: FileClientArgs,
}

/// The group of options that remove files.
const DELETING: &str = "deleting";

fn parse_location(text: OsString) -> Result<Location, LocationError> {
    Location::parse(&text)
}

/// What the user can do after a sync that ended early.
const LEFT: &str = "the sync is not complete, and nothing that is there is lost: run it again, with --resume to continue \
                    large files, too";

/// Syncs. The exit code says whether everything, something or nothing was done.
pub(crate) fn run(args: Args) -> Result<Exit> {
    let (patience, max_rate) = (args.copying.patience(), args.copying.limit.max_rate);
    let (side, paths) = match paths(args.source.clone(), args.destination.clone()) {
        Ok(found) => found,
        Err(between) => {
            let given = (args.security, &args.filters.0);
            return between.run::<Args>(Verb::Sync, given, patience, max_rate);
        }
    };
    if args.security.has_code() {
        return Err(anyhow!(
            "a one-time code lets in one connection, and sync makes several: use cp --code, or keys"
        )
        .context(Exit::Usage));
    }
    let security = args.security.clone();
    let guarded = Guarded::copying(side.clone(), security, patience, max_rate)?;
    // Without the handler, Ctrl-C ends the process at once. That is safe: a killed sync loses nothing.
    let stop = stop_on_signals().unwrap_or_default();
    run_in(args, &side, &paths, (guarded, stop))
}

/// Syncs from here, as ordered by the machine that logged in.
pub(super) fn run_between(
    args: Args,
    source: Vec<u8>,
    destination: Vec<u8>,
    (guarded, stop): (Guarded, Stop),
) -> Result<Exit> {
    let source = match &source[..] {
        b"" => b".".to_vec(),
        _ => source,
    };
    let paths = SyncPaths::Push {
        source: OsString::from_vec(source).into(),
        destination: trimmed(destination),
    };
    let guarded = guarded.with_max_rate(args.copying.limit.max_rate);
    run_in(args, &Side::Here, &paths, (guarded, stop))
}

fn run_in(
    args: Args,
    side: &Side,
    paths: &SyncPaths,
    (guarded, stop): (Guarded, Stop),
) -> Result<Exit> {
    if guarded.is_within() && (args.delete || args.delete_excluded) {
        check_deleting(paths)?;
    }
    if args.link_dest.len() > LINK_DIRECTORIES {
        let error = anyhow!("--link-dest may be given {LINK_DIRECTORIES} times at most");
        return Err(error.context(Exit::Usage));
    }
    let options = SyncOptions {
        dry_run: args.dry_run,
        delete: args.delete || args.delete_excluded,
        delete_excluded: args.delete_excluded,
        allow_empty_source: args.allow_empty_source,
        max_delete: args.max_delete,
        checksum: args.checksum,
        modify_window: args.modify_window,
        resume: args.writing.resume,
        durable: args.writing.fsync,
        delta: args.writing.delta,
        in_place: args.writing.in_place,
        backup: args.backups.backup(),
        link_dest: args.link_dest.into_iter().map(OsString::into_vec).collect(),
        copy_links: args.kept.copy_links,
        attributes: args.kept.attributes(),
        allow_changing: args.writing.allow_changing,
        no_permissions: args.permissions.no_perms,
        modes: args.permissions.modes(),
        filter: args.filters.0,
    };
    let shown = Shown {
        // The sync itself prints what it does with each file.
        progress: args.copying.progress_with(side, false),
        lines: args.verbose || args.dry_run,
        json: args.copying.json,
    };
    let started = Instant::now();
    let client = guarded.client.clone().with_stop(stop);
    let synced = client.sync(paths, &options, &shown);
    shown.progress.clear();
    let broke = synced.as_ref().err().is_some_and(is_broken);
    let totals = guarded.explain(synced).map_err(|error| match broke {
        true => error.context(LEFT),
        false => error,
    })?;
    let reconnected = shown.progress.times_reconnected();
    if args.copying.json {
        let summary = Summary::of(&totals, &options, started, reconnected);
        console::say(serde_json::to_string(&summary)?)?;
    } else if !args.copying.quiet {
        console::note(in_words(&totals, &options, started, reconnected));
    }
    check_totals(&totals, shown.progress.saw_corruption())?;
    Ok(Exit::Success)
}

/// The other side and the paths; an error if no side is on this machine.
fn paths(source: Location, destination: Location) -> Result<(Side, SyncPaths), Box<Between>> {
    match (source, destination) {
        (Location::Local(source), destination) => {
            let (side, destination) = side_of(destination);
            let destination = trimmed(destination);
            Ok((
                side,
                SyncPaths::Push {
                    source,
                    destination,
                },
            ))
        }
        (Location::Remote(host, source), Location::Local(destination)) => {
            let source = trimmed(source);
            Ok((
                Side::Host(host),
                SyncPaths::Pull {
                    source,
                    destination,
                },
            ))
        }
        (Location::Remote(source, path), Location::Remote(target, destination)) => {
            Err(Box::new(Between {
                source,
                sources: vec![path],
                target,
                destination,
            }))
        }
    }
}

/// Refuses a target that contains the source: `--delete` would remove the source.
fn check_deleting(paths: &SyncPaths) -> Result<()> {
    let SyncPaths::Push {
        source,
        destination,
    } = paths
    else {
        return Ok(());
    };
    let target = Path::new(OsStr::from_bytes(destination));
    // A path that cannot be resolved fails later.
    let (Ok(real), Ok(target)) = (source.canonicalize(), target.canonicalize()) else {
        return Ok(());
    };
    ensure!(
        real == target || !real.starts_with(&target),
        anyhow!(
            "{} is inside of the target, and --delete would remove it: sync to a directory beside it, or leave out --delete",
            escape(source.as_os_str().as_bytes())
        )
        .context(Exit::Usage)
    );
    Ok(())
}

/// Removes slashes at the end, which mean nothing: SRC and DST are directories in any case.
fn trimmed(mut path: Vec<u8>) -> Vec<u8> {
    while path.len() > 1 && path.ends_with(b"/") {
        path.pop();
    }
    path
}

fn check_totals(totals: &SyncTotals, corrupt: bool) -> Result<()> {
    let advice = match totals.not_deleted {
        Some(NotDeleted::EmptySource) => {
            "; nothing was deleted: the source is empty (--allow-empty-source if that is right)"
        }
        Some(_) => "; nothing was deleted",
        None => "",
    };
    let (failed, sent) = (totals.failed, totals.copied.files + totals.copied.links);
    match failed {
        _ if failed > 0 && corrupt => {
            Err(anyhow!("{failed} failed{advice}").context(Exit::Corrupt))
        }
        _ if failed > 0 && failed == totals.copied.vanished => {
            Err(anyhow!("{failed} vanished, {sent} sent{advice}").context(Exit::Vanished))
        }
        0 if totals.over_limit > 0 => Err(anyhow!(
            "{} more should be deleted, and stay: --max-delete",
            totals.over_limit
        )
        .context(Exit::DeleteLimit)),
        0 if totals.not_deleted.is_none() => Ok(()),
        0 => Err(anyhow!("{}", advice.trim_start_matches("; ")).context(Exit::Failure)),
        _ if sent + totals.unchanged + totals.attributes_set + totals.deleted == 0 => {
            Err(anyhow!("nothing was sent, {failed} failed{advice}").context(Exit::Failure))
        }
        _ => Err(anyhow!(
            "{failed} failed, {sent} sent, {} unchanged{advice}",
            totals.unchanged
        )
        .context(Exit::Partial)),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn paths__of_each_pair_of_sides() {
        let of = |source: &str, destination: &str| {
            paths(source.parse().unwrap(), destination.parse().unwrap())
        };
        let (_, push) = of("a/", "h:b//").unwrap();
        let destination = b"b".to_vec();
        let source = "a/".into();
        assert_eq!(
            push,
            SyncPaths::Push {
                source,
                destination
            }
        );
        assert!(
            matches!(of("h:", "b"), Ok((_, SyncPaths::Pull { source, .. })) if source.is_empty())
        );
        assert!(
            matches!(of("a", "b/"), Ok((Side::Here, SyncPaths::Push { destination, .. })) if destination == b"b")
        );
        assert!(of("h:a", "h:b").is_err() && of("h:a", "g:b").is_err());
    }

    #[test]
    fn check_totals__exit_codes() {
        let code = |totals: SyncTotals, corrupt| {
            check_totals(&totals, corrupt).map_or_else(|error| Exit::of(&error), |()| Exit::Success)
        };
        let totals = SyncTotals {
            unchanged: 1,
            ..SyncTotals::default()
        };
        assert_eq!(code(totals, false), Exit::Success);
        let failed = SyncTotals {
            failed: 1,
            ..totals
        };
        assert_eq!(code(failed, false), Exit::Partial);
        assert_eq!(code(failed, true), Exit::Corrupt);
        let nothing = SyncTotals {
            unchanged: 0,
            ..failed
        };
        assert_eq!(code(nothing, false), Exit::Failure);
        let kept = SyncTotals {
            not_deleted: Some(NotDeleted::EmptySource),
            ..totals
        };
        assert_eq!(code(kept, false), Exit::Failure);
        let mut gone = failed;
        gone.copied.vanished = 1;
        assert_eq!(code(gone, false), Exit::Vanished);
        gone.failed = 2;
        assert_eq!(code(gone, false), Exit::Partial);
        let over = |failed| SyncTotals {
            over_limit: 1,
            failed,
            ..totals
        };
        assert_eq!(code(over(0), false), Exit::DeleteLimit);
        assert_eq!(code(over(1), false), Exit::Partial);
    }
}
