//! Implements `zerolane keys`: edits the list of clients that may connect, and the list of known servers.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Subcommand;
use zerolane::keys::{AllowFile, AllowedKey, KnownHosts, Place, Rights};
use zerolane::security::PublicKey;
use zerolane_files::escape;

use crate::console;
use crate::security::{allowed_keys_file, in_file, known_hosts_file};

/// Arguments of `zerolane keys`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the keys that may connect here, and the servers whose keys are remembered
    List(ListArgs),
    /// Let the holder of a key connect, or change what it may do
    Add(AddArgs),
    /// Remove a key from the list. `serve` also ends its connections
    Revoke(RevokeArgs),
    /// Forget the key of a server, so that the next connection counts as the first
    Forget(ForgetArgs),
}

/// The list of clients.
#[derive(Debug, clap::Args)]
struct Clients {
    /// The list of keys that may connect [default: allowed_keys beside the user's other keys]
    #[arg(long, value_name = "FILE")]
    allowed: Option<PathBuf>,
}

impl Clients {
    fn path(self) -> Result<PathBuf> {
        let path = allowed_keys_file(self.allowed);
        path.context(
            "no directory for keys: set HOME or ZEROLANE_HOME, or name the list with --allowed",
        )
    }
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// One JSON object a line instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    clients: Clients,
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// The key, as `zerolane id` prints it there
    #[arg(value_name = "KEY")]
    key: PublicKey,
    /// What its holder may do with files and memory [default: read]
    #[arg(value_enum, value_name = "RIGHT", required_unless_present_any = ["connect", "listen"])]
    right: Option<Right>,
    /// A name for the list and the server's log
    #[arg(long, value_name = "WORDS")]
    name: Option<String>,
    /// Allow only files below this path, which is relative to the served directory
    #[arg(long, value_name = "PATH")]
    below: Option<String>,
    /// Allow only memory with these names
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    regions: Option<Vec<String>>,
    /// With `read`: also allow atomic operations on memory
    #[arg(long)]
    fetch: bool,
    /// Have `forward serve` connect to these places; `*` is any host or port. Without --below and --regions, allows no
    /// files and no memory
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    connect: Vec<Place>,
    /// Have `forward serve` listen on these addresses, likewise
    #[arg(long, value_name = "ADDR:PORT,...", value_delimiter = ',')]
    listen: Vec<Place>,
    #[command(flatten)]
    clients: Clients,
}

/// The first word of a line's rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Right {
    /// Read files and memory
    Read,
    /// Also write
    ReadWrite,
}

#[derive(Debug, clap::Args)]
struct RevokeArgs {
    /// The key, or its name in the list
    #[arg(value_name = "KEY|NAME")]
    who: String,
    #[command(flatten)]
    clients: Clients,
}

#[derive(Debug, clap::Args)]
struct ForgetArgs {
    /// The server: `HOST:PORT` as listed, or `HOST` for all its ports
    #[arg(value_name = "HOST[:PORT]")]
    host: String,
}

/// A line of `keys list --json`.
#[derive(serde::Serialize)]
#[serde(tag = "list", rename_all = "snake_case")]
enum Line<'a> {
    Allowed {
        key: String,
        rights: String,
        name: Option<&'a str>,
    },
    Known {
        host: &'a str,
        key: String,
    },
}

/// Lists keys, or changes a list.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Command::List(args) => list(args),
        Command::Add(args) => add(args),
        Command::Revoke(args) => revoke(args),
        Command::Forget(args) => forget(args),
    }
}

fn list(args: ListArgs) -> Result<()> {
    let clients = args.clients.path()?;
    let servers = known_hosts_file();
    let list = AllowFile::load(&clients, None).map_err(in_file(&clients))?;
    let list = list.list();
    let known = servers
        .as_deref()
        .map(|path| KnownHosts::load(path).map_err(in_file(path)));
    let known = known.transpose()?;
    let hosts = known.as_ref().map_or(&[][..], |known| known.hosts());
    if args.json {
        let allowed = list.keys().iter().map(|it| Line::Allowed {
            key: it.key.to_string(),
            rights: it.rights.to_string(),
            name: it.name.as_deref(),
        });
        let known = hosts.iter().map(|(host, key)| Line::Known {
            host,
            key: key.to_string(),
        });
        return allowed
            .chain(known)
            .try_for_each(|line| console::say(serde_json::to_string(&line)?));
    }
    console::say(format_args!(
        "Keys that may connect here besides your own, from {}: {}",
        clients.display(),
        list.len()
    ))?;
    for key in list.keys() {
        console::say(format_args!("  {}", words(key)))?;
    }
    let Some(servers) = servers else {
        return Ok(());
    };
    console::say(format_args!(
        "Servers remembered, in {}: {}",
        servers.display(),
        hosts.len()
    ))?;
    for (host, key) in hosts {
        console::say(format_args!("  {} {key}", escape(host.as_bytes())))?;
    }
    Ok(())
}

fn add(args: AddArgs) -> Result<()> {
    let path = args.clients.path()?;
    let write = args.right == Some(Right::ReadWrite);
    let new = AllowedKey {
        key: args.key,
        rights: Rights {
            write,
            fetch: write || args.fetch,
            below: args.below.map(String::into_bytes),
            regions: args.regions,
            connect: args.connect,
            listen: args.listen,
        },
        name: args.name,
    };
    let before = AllowFile::add(&path, &new).map_err(in_file(&path))?;
    let file = path.display();
    match before {
        None => console::note(format_args!("Added to {file}:")),
        Some(before) if before == new => console::note(format_args!("In {file} already:")),
        Some(before) => console::note(format_args!(
            "Changed in {file}. Before: {}. Now:",
            words(&before)
        )),
    }
    console::say(words(&new))
}

fn revoke(args: RevokeArgs) -> Result<()> {
    let path = args.clients.path()?;
    let key = match args.who.parse() {
        Ok(key) => key,
        Err(_) => key_called(&args.who, &path)?,
    };
    let gone = AllowFile::revoke(&path, &key).map_err(in_file(&path))?;
    let gone = gone.ok_or_else(|| none_of(&args.who, &path))?;
    console::note(format_args!(
        "Removed from {}. Running servers notice by themselves:",
        path.display()
    ));
    console::say(words(&gone))
}

/// The key in the line with this name.
fn key_called(name: &str, path: &Path) -> Result<PublicKey> {
    let list = AllowFile::load(path, None).map_err(in_file(path))?;
    let list = list.list();
    let called = |it: &&AllowedKey| it.name.as_deref() == Some(name);
    let found: Vec<&AllowedKey> = list.keys().iter().filter(called).collect();
    match found[..] {
        [] => Err(none_of(name, path)),
        [one] => Ok(one.key),
        _ => {
            let keys: Vec<String> = found.iter().map(|it| it.key.to_string()).collect();
            bail!(
                "{} keys are called {name:?}; say which: {}",
                keys.len(),
                keys.join(" ")
            )
        }
    }
}

fn none_of(who: &str, path: &Path) -> anyhow::Error {
    let path = path.display();
    anyhow!("no key or name {who:?} in {path}; `zerolane keys list` shows those that are there")
}

fn forget(args: ForgetArgs) -> Result<()> {
    let path = known_hosts_file().context("no directory for keys: set HOME or ZEROLANE_HOME")?;
    let gone = KnownHosts::forget(&path, &args.host).map_err(in_file(&path))?;
    if gone.is_empty() {
        bail!("no server {:?} in {}", args.host, path.display());
    }
    for (host, key) in gone {
        console::say(format_args!("Forgotten: {} {key}", escape(host.as_bytes())))?;
    }
    Ok(())
}

/// Formats a line of the list for people. The name is escaped, so it cannot contain a line break.
fn words(line: &AllowedKey) -> String {
    let AllowedKey { key, rights, name } = line;
    let name = name
        .as_deref()
        .map(|it| format!("  # {}", escape(it.as_bytes())));
    format!("{key} {rights}{}", name.unwrap_or_default())
}
