//! Implements `zerolane disk serve`: serves images and block devices to other hosts.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use bytesize::ByteSize;
use indicatif::HumanBytes;
use zerolane_block::store::{FileStore, InUse, MemoryStore, Store};
use zerolane_block::{Disk, Identity, Lun};
use zerolane_disk::target::{Server, ServerEvent, Settings};

use super::remote::DEFAULT_PORT;
use crate::address::{Listen, address_shown};
use crate::console;
use crate::exit::Exit;
use crate::files::stop_on_signals;
use crate::host::Serving;
use crate::security::{self, ServerArgs};

/// The prefix of a disk in memory, before its size.
const MEMORY: &str = "memory:";

/// The file, beside the user's keys, that records which disks lost writes since the machine started.
const LOSSES: &str = "lost_writes";

/// Most threads for disk I/O.
const THREADS_MAX: usize = 256;

/// Arguments of `zerolane disk serve`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The first image is LUN 0, the next one LUN 1, and so on. In the list of keys a disk is a region called disk0, disk1, and \
so on: 'KEY read regions=disk0' sees LUN 0 alone and may not write it, 'KEY read-write' sees and writes all of them.")]
pub(super) struct Args {
    /// Regular files, block devices, or memory:SIZE for a disk in this process's memory, which starts as zeros and ends
    /// with the process
    #[arg(required = true, value_name = "IMAGE|DEVICE|memory:SIZE")]
    images: Vec<Medium>,
    /// Refuse all writes
    #[arg(long)]
    read_only: bool,
    /// Address or host name to listen on, with or without a port (port 0: any free one), or ether:IFACE for raw
    /// Ethernet
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    #[arg(default_value_t = Listen::loopback(DEFAULT_PORT))]
    listen: Listen,
    /// Length of a logical block, bytes: 512, 1024, 2048 or 4096
    /// [default: 512, or a device's own if that is more]
    #[arg(long, value_name = "BYTES")]
    block_size: Option<u32>,
    /// Serve images that do not end with a whole block. Initiators cannot reach the bytes after the last whole block
    #[arg(long)]
    ignore_tail: bool,
    /// Name that the identity of the first image is derived from, instead of machine and path; repeat it for the next
    /// image
    #[arg(long, value_name = "NAME")]
    serial: Vec<String>,
    /// Threads that read and write the images
    #[arg(long, default_value_t = 4, value_name = "N")]
    threads: usize,
    #[command(flatten)]
    security: ServerArgs,
}

/// Where a disk keeps its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Medium {
    /// A file or device.
    File(PathBuf),
    /// Memory of this many bytes.
    Memory(u64),
}

impl FromStr for Medium {
    type Err = String;

    fn from_str(text: &str) -> Result<Medium, String> {
        let Some(size) = text.strip_prefix(MEMORY) else {
            return Ok(Medium::File(text.into()));
        };
        let bytes = size.parse().map(|it: ByteSize| it.as_u64())?;
        match bytes {
            0 => Err("a disk of no bytes".into()),
            bytes => Ok(Medium::Memory(bytes)),
        }
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Medium::File(path) => path.display().fmt(f),
            Medium::Memory(_) => f.write_str("memory"),
        }
    }
}

impl Medium {
    /// Opens the store, and derives the identity to use if none is named.
    fn open(&self, read_only: bool) -> Result<(Arc<dyn Store>, Identity)> {
        match self {
            Medium::File(path) => {
                let store = FileStore::open(path, read_only).map_err(explained)?;
                Ok((Arc::new(store), Identity::of_image(path)?))
            }
            Medium::Memory(bytes) => {
                // A new identity at each start, because the earlier content is gone.
                let name = zerolane::security::random()?;
                let name: String = name.iter().map(|it| format!("{it:02x}")).collect();
                Ok((Arc::new(MemoryStore::new(*bytes)), Identity::named(&name)))
            }
        }
    }
}

/// Adds to an error what to do if another process serves the image.
fn explained(error: io::Error) -> anyhow::Error {
    let in_use: Option<&InUse> = error.get_ref().and_then(|it| it.downcast_ref());
    match in_use {
        Some(holder) if holder.is_here() => anyhow!("the same image twice: name it once"),
        Some(holder) => {
            anyhow!("{holder}: stop that one first, or serve the image with --read-only")
        }
        None => error.into(),
    }
}

fn parse_address(text: &str) -> Result<Listen, String> {
    Listen::parse(text, DEFAULT_PORT)
}

/// Serves until Ctrl-C or SIGTERM.
pub(super) fn run(args: Args) -> Result<()> {
    let usage = || anyhow::Error::new(Exit::Usage);
    ensure!(
        args.serial.len() <= args.images.len(),
        usage().context("more names than images")
    );
    ensure!(
        (1..=THREADS_MAX).contains(&args.threads),
        usage().context(format!("1 to {THREADS_MAX} threads are possible"))
    );
    let stop = stop_on_signals()?;
    let terms = Terms {
        block_size: args.block_size,
        read_only: args.read_only,
        ignore_tail: args.ignore_tail,
    };
    let Serving {
        lane,
        options,
        allowed,
        words: access,
    } = Serving::of(&args.listen, args.security)?;
    let mut server = Server::new(Settings {
        allowed,
        threads: args.threads,
        losses: zerolane::keys::home().map(|it| it.join(LOSSES)),
        ..Settings::default()
    })?;
    let mut shown = Vec::new();
    for (number, medium) in args.images.iter().enumerate() {
        let serial = args.serial.get(number).map(String::as_str);
        let words = add(&mut server, number, medium, serial, &terms);
        shown.push(words.with_context(|| medium.to_string())?);
    }
    let addresses = args.listen.resolve(lane)?;
    let mut endpoints = addresses
        .iter()
        .map(|&on| server.listen(on, options.clone()));
    let first = endpoints.next().context("no address to listen on")?;
    // If an address is taken, tries the next one of the same name.
    let endpoint = endpoints.fold(first, |found, next| found.or(next));
    let endpoint = endpoint.with_context(|| format!("cannot listen on {}", args.listen))?;
    let (address, key) = server.endpoint(endpoint).context("it listens")?;
    console::say(format_args!(
        "Serving {} on {}.",
        console::counted(shown.len(), "disk"),
        address_shown(address, lane)
    ))?;
    for line in shown {
        console::say(line)?;
    }
    if let Some(key) = key {
        console::say(format_args!("Its key: {key}"))?;
    }
    console::say(access)?;
    if address.ip().is_loopback() {
        console::say("Only this machine can reach it; --listen ADDR opens it to others.")?;
    }
    let served = server.serve(|| stop.requested(), tell);
    server.end(tell);
    served?;
    Err(Exit::Interrupted.into())
}

/// Options for all images.
struct Terms {
    block_size: Option<u32>,
    read_only: bool,
    ignore_tail: bool,
}

/// Adds an image as LUN `number`; returns the line that describes it.
fn add(
    server: &mut Server,
    number: usize,
    medium: &Medium,
    serial: Option<&str>,
    terms: &Terms,
) -> Result<String> {
    let (store, own) = medium.open(terms.read_only)?;
    let identity = serial.map_or(own, Identity::named);
    let bytes = store.bytes();
    let block_size = terms.block_size;
    let block_size = block_size.unwrap_or_else(|| Disk::block_bytes_of(&*store));
    let disk = Disk {
        read_only: terms.read_only || store.is_read_only(),
        ..Disk::of(&*store, block_size, identity)?
    };
    let tail = unreachable(bytes, block_size);
    ensure!(
        tail == 0 || disk.read_only || terms.ignore_tail,
        refused_for(medium, bytes, block_size)
    );
    let lun = u16::try_from(number).ok().and_then(Lun::new);
    let lun = lun.context("too many images")?;
    let read_only = if disk.read_only { ", read-only" } else { "" };
    let tail = match tail {
        0 => String::new(),
        tail => format!(
            ", without its last {}, which are no whole block",
            console::counted(tail, "byte")
        ),
    };
    let words = format!(
        "LUN {lun}: {medium}, {}{read_only}{tail}, serial number {identity}",
        HumanBytes(bytes)
    );
    server.add_unit(lun, &format!("disk{number}"), disk, store)?;
    Ok(words)
}

/// Bytes after the last whole block.
pub(super) fn unreachable(bytes: u64, block_size: u32) -> u64 {
    bytes % u64::from(block_size)
}

/// The error for an image that does not end with a whole block, with what to do.
fn refused_for(medium: &Medium, bytes: u64, block_size: u32) -> String {
    let tail = unreachable(bytes, block_size);
    let mend = match medium {
        Medium::Memory(_) => "choose another size".to_owned(),
        // Devices have whole blocks of 512 bytes.
        Medium::File(_) if bytes.is_multiple_of(512) => "choose a shorter --block-size".to_owned(),
        Medium::File(path) => {
            let path = path.display();
            format!("append zeros (truncate --size=%{block_size} {path})")
        }
    };
    format!(
        "it has {bytes} bytes: the last {tail} are no whole block of {block_size} bytes, and initiators could not reach them; \
         {mend}, or serve it without them: --ignore-tail, or --read-only"
    )
}

fn tell(news: ServerEvent) {
    match news {
        ServerEvent::Connected(address) => console::note(format_args!("{address}: connected")),
        ServerEvent::Disconnected(address, why) => {
            console::note(format_args!("{address}: gone: {why}"))
        }
        ServerEvent::CutOff(address, offence) => {
            console::note(format_args!("{address}: cut off: {offence}"));
        }
        ServerEvent::Lost { unit, recorded } => {
            console::note(format_args!(
                "{unit}: writes were lost: its flushes fail until it is served anew"
            ));
            if let Err(why) = recorded {
                console::note(format_args!(
                    "{unit}: not written down, so initiators that do not flush before will not learn of it: {why}"
                ));
            }
        }
        ServerEvent::List(news) => security::tell_news(news),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Medium__files_and_memory() {
        for (text, medium) in [
            ("disk.img", Medium::File("disk.img".into())),
            ("./memory:1MiB", Medium::File("./memory:1MiB".into())),
            ("memory:1MiB", Medium::Memory(1 << 20)),
            ("memory:4096", Medium::Memory(4096)),
        ] {
            assert_eq!(text.parse(), Ok(medium));
        }
        for bad in ["memory:", "memory:0", "memory:x", "memory:-1"] {
            assert!(bad.parse::<Medium>().is_err(), "{bad}");
        }
    }
}
