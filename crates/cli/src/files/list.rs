//! `zerolane ls`.

use anyhow::Result;
use zerolane_files::{Entry, EntryKind, Host, escape};

use super::guarded::Guarded;
use super::{parse_remote, stop_on_signals};
use crate::console;
use crate::security::ClientArgs;

/// Arguments of `zerolane ls`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to list, `HOST[:PORT]:PATH`; an empty PATH is the served directory
    #[arg(value_name = "HOST:PATH", value_parser = parse_remote)]
    location: (Host, Vec<u8>),
    /// One JSON object a line instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    security: ClientArgs,
}

/// One line of `--json`.
#[derive(serde::Serialize)]
struct Line {
    /// Escaped as on screen if it is not plain text.
    name: String,
    kind: &'static str,
    bytes: u64,
    mode: u32,
    mtime: i64,
}

/// Lists, sorted by name.
pub(crate) fn run(args: Args) -> Result<()> {
    let (host, path) = args.location;
    let guarded = Guarded::new(host, args.security)?;
    let client = guarded.client.clone().with_stop(stop_on_signals()?);
    let mut entries = Vec::new();
    guarded.explain(client.list(&path, |entry| entries.push(entry)))?;
    entries.sort_by(|a: &Entry, b| a.name.cmp(&b.name));
    for entry in entries {
        match args.json {
            true => console::say(serde_json::to_string(&Line::of(&entry))?)?,
            false => console::say(format_args!(
                "{}{} {:>14}  {}",
                letter(entry.kind),
                permissions(entry.meta.mode),
                entry.size,
                escape(&entry.name)
            ))?,
        }
    }
    Ok(())
}

impl Line {
    fn of(entry: &Entry) -> Line {
        let kind = match entry.kind {
            EntryKind::File => "file",
            EntryKind::Directory => "directory",
            EntryKind::Link => "link",
            EntryKind::Special => "special",
        };
        Line {
            name: escape(&entry.name),
            kind,
            bytes: entry.size,
            mode: entry.meta.mode,
            mtime: entry.meta.mtime_seconds,
        }
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
    fn permissions__every_bit() {
        assert_eq!(permissions(0o754), "rwxr-xr--");
        assert_eq!(permissions(0o6001), "--------x");
    }
}
