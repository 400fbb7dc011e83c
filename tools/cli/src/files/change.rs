//! Implements `zerolane rm`, `mkdir` and `mv`.

use anyhow::{Result, anyhow};
use clap::builder::{OsStringValueParser, TypedValueParser};
use zerolane_files::{Changes, Client, Error, Failure, Host, Observer, RemoveOptions, Replace};

use super::guarded::Guarded;
use super::{at_one_host, parse_remote, stop_on_signals};
use crate::console;
use crate::exit::Exit;
use crate::security::FileClientArgs;

/// Arguments of `zerolane rm`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Paths are patterns as in a shell (quote them), unless there is a file of that very name: '*', '?', '[a-z]', and \
'\\' before a character that means itself. Links are removed, not followed; the served directory itself stays.")]
pub struct RemoveArgs {
    /// What to remove, `[USER@]HOST[:PORT]:PATH`; all at one host
    #[arg(required = true, value_name = "HOST:PATH",
          value_parser = OsStringValueParser::new().try_map(parse_remote))]
    locations: Vec<(Host, Vec<u8>)>,
    /// Remove directories with everything in them
    #[arg(short, long)]
    recursive: bool,
    /// Also remove files without write permission, and ignore paths that do not exist
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    security: FileClientArgs,
}

/// Arguments of `zerolane mkdir`.
#[derive(Debug, clap::Args)]
pub struct MakeArgs {
    /// The directories, `[USER@]HOST[:PORT]:PATH`; all at one host
    #[arg(required = true, value_name = "HOST:PATH",
          value_parser = OsStringValueParser::new().try_map(parse_remote))]
    locations: Vec<(Host, Vec<u8>)>,
    /// Also make missing parent directories, and accept directories that exist
    #[arg(short, long)]
    parents: bool,
    #[command(flatten)]
    security: FileClientArgs,
}

/// Arguments of `zerolane mv`.
#[derive(Debug, clap::Args)]
pub struct MoveArgs {
    /// What to rename, `[USER@]HOST[:PORT]:PATH`
    #[arg(value_name = "HOST:FROM", value_parser = OsStringValueParser::new().try_map(parse_remote))]
    from: (Host, Vec<u8>),
    /// Its new name, or an existing directory to move it into; at the same host
    #[arg(value_name = "HOST:TO", value_parser = OsStringValueParser::new().try_map(parse_remote))]
    to: (Host, Vec<u8>),
    /// Replace a file without write permission
    #[arg(short, long)]
    force: bool,
    /// Do not replace existing files
    #[arg(short, long, conflicts_with = "force")]
    no_clobber: bool,
    #[command(flatten)]
    security: FileClientArgs,
}

/// Prints failures at the server.
struct Told;

impl Observer for Told {
    fn failed(&self, failure: &Failure) {
        console::note(format_args!("{failure}, at the server"));
    }
}

pub(crate) fn remove(args: RemoveArgs) -> Result<()> {
    let (host, paths) = at_one_host(args.locations)?;
    let options = RemoveOptions {
        recursive: args.recursive,
        force: args.force,
        empty: false,
    };
    let changes = ask(host, args.security, |client| {
        client.remove(&paths, options, &Told)
    })?;
    check_changes(changes, "removed")
}

pub(crate) fn make(args: MakeArgs) -> Result<()> {
    let (host, paths) = at_one_host(args.locations)?;
    let changes = ask(host, args.security, |client| {
        client.make_directories(&paths, args.parents, &Told)
    })?;
    check_changes(changes, "made")
}

pub(crate) fn rename(args: MoveArgs) -> Result<()> {
    let (from, to) = (args.from.1.clone(), args.to.1.clone());
    let (host, _) = at_one_host(vec![args.from, args.to])?;
    let replace = match (args.force, args.no_clobber) {
        (true, _) => Replace::Any,
        (_, true) => Replace::Nothing,
        _ => Replace::Writable,
    };
    let changes = ask(host, args.security, |client| {
        client.rename(&from, &to, replace, &Told)
    })?;
    check_changes(changes, "renamed")
}

fn ask(
    host: Host,
    security: FileClientArgs,
    change: impl FnOnce(&Client) -> Result<Changes, Error>,
) -> Result<Changes> {
    let guarded = Guarded::new(host, security)?;
    let client = guarded.client.clone().with_stop(stop_on_signals()?);
    let changed = change(&client);
    let unanswered = matches!(changed, Err(Error::Unanswered { .. }));
    guarded.explain(changed).map_err(|error| match unanswered {
        true => error.context("check with 'zerolane ls' what is there now"),
        false => error,
    })
}

fn check_changes(changes: Changes, what: &str) -> Result<()> {
    match changes {
        Changes { failed: 0, .. } => Ok(()),
        Changes { done: 0, failed } => {
            Err(anyhow!("nothing was {what}, {failed} failed").context(Exit::Failure))
        }
        Changes { done, failed } => {
            Err(anyhow!("{failed} failed, {done} {what}").context(Exit::Partial))
        }
    }
}
