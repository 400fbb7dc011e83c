//! Implements `zerolane ls`.

use std::ops::ControlFlow;

use anyhow::{Result, anyhow};
use clap::builder::{OsStringValueParser, TypedValueParser};
use indicatif::HumanBytes;
use jiff::Timestamp;
use zerolane_files::{Entry, EntryKind, Host, ListOptions, Listed, Meta, escape};

use super::guarded::Guarded;
use super::{at_one_host, parse_remote, stop_on_signals};
use crate::console;
use crate::exit::Exit;
use crate::security::FileClientArgs;

/// Arguments of `zerolane ls`.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_long_help = "\
Paths are patterns as in a shell (quote them), unless there is a file of that very name: '*', '?', '[a-z]', and \
'\\' before a character that means itself."
)]
pub struct Args {
    /// What to list, `[USER@]HOST[:PORT]:PATH`; an empty PATH is the served directory, or USER's home
    #[arg(required = true, value_name = "HOST:PATH",
          value_parser = OsStringValueParser::new().try_map(parse_remote))]
    locations: Vec<(Host, Vec<u8>)>,
    /// Show permissions, size and time (UTC) before each name, and the targets of links
    #[arg(short, long)]
    long: bool,
    /// Show sizes with units
    // This replaces the help flag -h, as in ls.
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Also list the directories below, with one path a line
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Also show names that begin with a dot
    #[arg(short, long)]
    all: bool,
    /// One JSON object a line instead of text
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    security: FileClientArgs,
}

/// One line of `--json`.
#[derive(serde::Serialize)]
struct Line<'a> {
    /// Escaped as on screen if it is not plain text.
    name: String,
    /// The listed directory that contains it, if there may be several.
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<&'a str>,
    kind: &'static str,
    bytes: u64,
    mode: u32,
    mtime: i64,
    /// The target of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

/// Lists, sorted by the bytes of the names.
pub(crate) fn run(args: Args) -> Result<()> {
    let (host, paths) = at_one_host(args.locations)?;
    let options = ListOptions {
        recursive: args.recursive,
        hidden: args.all,
    };
    let mut shown = Shown {
        long: args.long,
        human: args.human_readable,
        json: args.json,
        several: paths.len() > 1 || paths.iter().any(|path| may_match_several(path)),
        directory: String::new(),
        listed: 0,
        failed: 0,
        said: Ok(()),
    };
    let guarded = Guarded::new(host, args.security)?;
    let client = guarded.client.clone().with_stop(stop_on_signals()?);
    let listed = client.list(&paths, options, |it| shown.show(it));
    guarded.explain(listed)?;
    shown.said?;
    match (shown.failed, shown.listed) {
        (0, _) => Ok(()),
        (failed, 0) => Err(anyhow!("nothing was listed, {failed} failed").context(Exit::Failure)),
        (failed, _) => Err(anyhow!("{failed} could not be listed").context(Exit::Partial)),
    }
}

/// Whether the path contains a pattern character.
fn may_match_several(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[".contains(byte))
}

/// Prints a listing as it arrives.
struct Shown {
    long: bool,
    human: bool,
    json: bool,
    /// Whether to name each directory.
    several: bool,
    /// The directory being listed.
    directory: String,
    listed: u64,
    failed: u64,
    said: Result<()>,
}

impl Shown {
    fn show(&mut self, listed: Listed<'_>) -> ControlFlow<()> {
        let said = match listed {
            Listed::Top(path, entry) if entry.kind == EntryKind::Directory => self.begin(path),
            Listed::Top(path, entry) | Listed::Below(path, entry) => {
                let below = matches!(listed, Listed::Below(..));
                self.line(path, entry, below)
            }
            Listed::Failed(failure) => {
                self.failed += 1;
                console::note(format_args!("{failure}, at the server"));
                return ControlFlow::Continue(());
            }
        };
        self.listed += 1;
        self.said = said;
        match self.said {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }

    /// Begins the listing of a directory that was asked for.
    fn begin(&mut self, path: &[u8]) -> Result<()> {
        self.directory = escape(path);
        if self.json || !self.several {
            return Ok(());
        }
        if self.listed > 0 {
            console::say("")?;
        }
        console::say(format_args!("{}:", self.directory))
    }

    fn line(&self, path: &[u8], entry: &Entry, below: bool) -> Result<()> {
        let name = escape(path);
        let target = entry.target.as_deref().map(escape);
        if self.json {
            let line = Line {
                name,
                directory: (self.several && below).then_some(&self.directory),
                kind: kind(entry.kind),
                bytes: entry.size,
                mode: entry.meta.mode,
                mtime: entry.meta.mtime_seconds,
                target,
            };
            return console::say(serde_json::to_string(&line)?);
        }
        let size = match self.human {
            true => HumanBytes(entry.size).to_string(),
            false => entry.size.to_string(),
        };
        let leads = target.map_or(String::new(), |target| format!(" -> {target}"));
        match (self.long, self.human) {
            (true, _) => console::say(format_args!(
                "{}{} {size:>14}  {}  {name}{leads}",
                letter(entry.kind),
                permissions(entry.meta.mode),
                time(&entry.meta),
            )),
            (false, true) => console::say(format_args!("{size:>14}  {name}")),
            (false, false) => console::say(name),
        }
    }
}

/// UTC, to the minute; seconds since the epoch if no calendar has the time.
fn time(meta: &Meta) -> String {
    match Timestamp::from_second(meta.mtime_seconds) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M").to_string(),
        Err(_) => meta.mtime_seconds.to_string(),
    }
}

pub(super) fn kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link => "link",
        EntryKind::Special => "special",
    }
}

fn letter(kind: EntryKind) -> char {
    match kind {
        EntryKind::File => '-',
        EntryKind::Directory => 'd',
        EntryKind::Link => 'l',
        EntryKind::Special => '?',
    }
}

/// `rwxr-x---`.
fn permissions(mode: u32) -> String {
    "rwxrwxrwx"
        .chars()
        .enumerate()
        .map(|(i, letter)| {
            if mode & (0o400 >> i) != 0 {
                letter
            } else {
                '-'
            }
        })
        .collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn time__in_utc() {
        let of = |mtime_seconds| {
            time(&Meta {
                mtime_seconds,
                ..Meta::default()
            })
        };
        assert_eq!(of(0), "1970-01-01 00:00");
        assert_eq!(of(1_790_000_059), "2026-09-21 14:14");
        assert_eq!(of(-1), "1969-12-31 23:59");
        assert_eq!(of(i64::MAX), i64::MAX.to_string());
    }

    #[test]
    fn permissions__every_bit() {
        assert_eq!(permissions(0o754), "rwxr-xr--");
        assert_eq!(permissions(0o6001), "--------x");
    }
}
