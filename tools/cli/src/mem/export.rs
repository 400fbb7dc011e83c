//! Implements `zerolane mem export`.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bytesize::ByteSize;
use zerolane::keys::Access as Allowed;
use zerolane::memory::{Access, FileRegion};
use zerolane::security::PublicKey;
use zerolane::{Connection, Endpoint, Error, ExportedRegion, Region, Rights};
use zerolane_files::Stop;

use super::remote::DEFAULT_PORT;
use crate::address::{Listen, address_shown};
use crate::console;
use crate::exit::Exit;
use crate::files::stop_on_signals;
use crate::host::Serving;
use crate::security::{self, ServerArgs};

/// Arguments of `zerolane mem export`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A file whose content becomes the memory, or a size such as 64MiB for new memory filled with zeros
    #[arg(value_name = "FILE|SIZE")]
    what: String,
    /// The name by which clients open it, at most 32 bytes
    #[arg(long, value_parser = parse_name)]
    name: String,
    /// Address or host name to listen on, with or without a port (port 0: any free one), or ether:IFACE for raw
    /// Ethernet
    #[arg(long, value_name = "ADDR", value_parser = parse_address, default_value_t = Listen::loopback(DEFAULT_PORT))]
    listen: Listen,
    /// Clients may only read: --rights r
    #[arg(long, conflicts_with = "rights")]
    read_only: bool,
    /// What clients may do: read (r), write (w), atomic operations (a)
    #[arg(long, value_name = "RIGHTS", default_value = "rwa", value_parser = parse_rights)]
    rights: Rights,
    #[command(flatten)]
    security: ServerArgs,
}

/// Longest name, bytes.
const NAME_MAX: usize = 32;
/// Most concurrent connections. Each has a thread and a socket.
const CONNECTIONS_MAX: usize = 1024;
/// Poll interval for a stop.
const LOOK: Duration = Duration::from_millis(200);

fn parse_address(text: &str) -> Result<Listen, String> {
    Listen::parse(text, DEFAULT_PORT)
}

fn parse_name(text: &str) -> Result<String, String> {
    match text.len() {
        _ if text.contains('@') => Err("a name without '@': NAME@OFFSET is how it is read".into()),
        1..=NAME_MAX => Ok(text.to_owned()),
        len => Err(format!("{len} bytes: a name has 1 to {NAME_MAX}")),
    }
}

/// Parses letters of `rwa`, in any order.
fn parse_rights(text: &str) -> Result<Rights, String> {
    let of = |letter| match letter {
        'r' => Ok(Rights::READ),
        'w' => Ok(Rights::WRITE),
        'a' => Ok(Rights::ATOMIC),
        other => Err(format!("{other:?} is none of r, w and a")),
    };
    let rights = text.chars().map(of);
    let rights = rights.reduce(|one, other| Ok(one?.with(other?)));
    rights.unwrap_or_else(|| Err("no right at all".into()))
}

/// The exported memory, and the clients that may use it.
struct Export {
    name: String,
    region: ExportedRegion,
    rights: Rights,
    allowed: Allowed,
    connections: AtomicUsize,
}

/// Exports until Ctrl-C or SIGTERM.
pub(crate) fn run(args: Args) -> Result<()> {
    let rights = if args.read_only {
        Rights::READ
    } else {
        args.rights
    };
    let stop = stop_on_signals()?;
    let region = region(&args.what, rights)?;
    let len = region.len();
    let Serving {
        lane,
        options,
        allowed,
        words: access,
    } = Serving::of(&args.listen, args.security)?;
    let mut endpoint = Endpoint::bind(&args.listen.resolve(lane)?[..], options)
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = endpoint.local_addr();
    console::say(format_args!(
        "Exporting {} ({}) as {:?} on {} to {}.",
        args.what,
        console::counted(len, "byte"),
        args.name,
        address_shown(address, lane),
        words(rights)
    ))?;
    if let Some(key) = endpoint.public_key() {
        console::say(format_args!("Its key: {key}"))?;
    }
    console::say(access)?;
    if address.ip().is_loopback() {
        console::say("Only this machine can reach it; --listen ADDR opens it to others.")?;
    }
    let export = Arc::new(Export {
        name: args.name,
        region,
        rights,
        allowed,
        connections: AtomicUsize::new(0),
    });
    while !stop.requested() {
        if let Some(news) = export.allowed.take_change() {
            security::tell_news(news);
        }
        if let Some(connection) = endpoint.accept(Some(LOOK))? {
            start(&export, connection, &stop)?;
        }
    }
    // Revokes on all connections at once: no write follows.
    let _ = export.region.clone().revoke();
    Err(Exit::Interrupted.into())
}

/// Maps a file, or allocates memory. If `what` is both a file and a size, it means the file.
fn region(what: &str, rights: Rights) -> Result<ExportedRegion> {
    let path = Path::new(what);
    match (path.exists(), what.parse::<ByteSize>()) {
        (true, _) => ExportedRegion::of_file(map(path, rights)?).map_err(|_| unaligned(what)),
        (false, Ok(size)) => {
            let len = usize::try_from(size.as_u64()).context(Exit::Usage)?;
            ensure!(
                len > 0,
                anyhow::Error::new(Exit::Usage).context("nothing to export: 0 bytes")
            );
            // Peers on this host can map a memfd. If there is none (`ulimit -f`, or not enough memory now), anonymous
            // memory is allocated page by page.
            let region = Region::memfd(len).or_else(|_| Region::anonymous(len))?;
            ExportedRegion::new(region).map_err(|_| unaligned(what))
        }
        (false, Err(_)) => Err(Exit::Usage)
            .with_context(|| format!("{what:?} is neither a file nor a size such as 64MiB")),
    }
}

fn unaligned(what: &str) -> anyhow::Error {
    anyhow!("{what:?} cannot be exported: it is not aligned")
}

fn map(path: &Path, rights: Rights) -> Result<FileRegion> {
    let access = match rights.write || rights.atomic {
        true => Access::Write,
        false => Access::Read,
    };
    let name = path.display();
    let file: File = OpenOptions::new()
        .read(true)
        .write(access == Access::Write)
        .open(path)
        .with_context(|| format!("cannot open {name}"))?;
    let len = usize::try_from(file.metadata()?.len())?;
    ensure!(len > 0, "{name} is empty: there is nothing to export");
    Region::map_file(&file, 0, len, access).with_context(|| format!("cannot map {name}"))
}

fn words(rights: Rights) -> String {
    let granted = [
        (rights.read, "read"),
        (rights.write, "write"),
        (rights.atomic, "count in"),
    ];
    let words: Vec<&str> = granted.iter().filter(|it| it.0).map(|it| it.1).collect();
    words.join(", ")
}

/// Serves a connection on a separate thread, unless there are too many.
fn start(export: &Arc<Export>, connection: Connection, stop: &Stop) -> Result<()> {
    let peer = connection.peer_addr();
    if export.connections.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
        console::note(format_args!(
            "{peer}: refused, {CONNECTIONS_MAX} are connected already"
        ));
        return Ok(());
    }
    export.connections.fetch_add(1, Ordering::Relaxed);
    let (export, stop) = (Arc::clone(export), stop.clone());
    thread::Builder::new()
        .name(format!("mem {peer}"))
        .spawn(move || {
            match serve(&export, connection, &stop) {
                Ok(()) => console::note(format_args!("{peer}: done")),
                Err(error) => console::note(format_args!("{peer}: {error:#}")),
            }
            export.connections.fetch_sub(1, Ordering::Relaxed);
        })
        .context("starting a thread for a connection")?;
    Ok(())
}

impl Export {
    /// The rights of the holder of `key`, limited by its line in the list.
    fn rights_of(&self, key: Option<PublicKey>) -> Rights {
        let its = self.allowed.rights(key);
        its.map_or(Rights::NONE, |its| its.memory(&self.name, self.rights))
    }
}

/// Serves the memory to one peer until it disconnects or the command ends.
fn serve(export: &Export, mut connection: Connection, stop: &Stop) -> Result<()> {
    // Set before the first call that makes progress, so that no request comes before the region.
    let rights = export.rights_of(connection.peer_key());
    connection.export_named(&export.name, &export.region, rights)?;
    while !stop.requested() {
        match connection.wait(Some(LOOK)).map(zerolane::Waited::got) {
            Ok(_) => {}
            Err(Error::Closed(zerolane::failure::CloseReason::Peer(_))) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(connection.close()?)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse_rights__letters_in_any_order() {
        assert_eq!(parse_rights("r"), Ok(Rights::READ));
        assert_eq!(parse_rights("arw"), Ok(Rights::ALL));
        assert_eq!(parse_rights("rr"), Ok(Rights::READ));
        assert!(parse_rights("").is_err());
        assert!(parse_rights("rx").is_err());
    }

    #[test]
    fn parse_name__has_a_length() {
        assert!(parse_name("").is_err());
        assert!(parse_name("a@b").is_err(), "a@b means place b in a");
        assert!(parse_name(&"n".repeat(NAME_MAX)).is_ok());
        assert!(parse_name(&"n".repeat(NAME_MAX + 1)).is_err());
    }
}
