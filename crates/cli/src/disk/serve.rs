//! `zerolane disk serve`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytesize::ByteSize;
use indicatif::HumanBytes;
use zerolane_block::store::{FileStore, MemoryStore, Store};
use zerolane_block::{Disk, Identity, Lun};
use zerolane_disk::target::{News, Server, Settings};

use super::remote::DEFAULT_PORT;
use crate::address::{Listen, address_shown};
use crate::console;
use crate::exit::Exit;
use crate::files::stop_on_signals;
use crate::host::Serving;
use crate::security::{self, ServerArgs};

/// What is before the size of a disk in memory.
const MEMORY: &str = "memory:";

/// Beside this user's keys: which disks lost writes since the machine was started.
const LOSSES: &str = "lost_writes";

/// Most threads that work on disks.
const THREADS_MAX: usize = 256;

/// Arguments of `zerolane disk serve`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The first image is LUN 0, the next one LUN 1, and so on. In the list of keys a disk is a region called disk0, disk1, and \
so on: 'KEY read regions=disk0' sees LUN 0 alone and may not write it, 'KEY read-write' sees and writes all of them.")]
pub(super) struct Args {
    /// Regular files, block devices, or memory:SIZE, a disk in memory of this process, of zeros at first and gone with it
    #[arg(required = true, value_name = "IMAGE|DEVICE|memory:SIZE")]
    images: Vec<Medium>,
    /// No initiator may write
    #[arg(long)]
    read_only: bool,
    /// Address to listen on, or a name of this host, with or without a port (port 0: any free one), or ether:IFACE
    /// for raw Ethernet
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    #[arg(default_value_t = Listen::loopback(DEFAULT_PORT))]
    listen: Listen,
    /// Length of a logical block, bytes: 512, 1024, 2048 or 4096
    /// [default: 512, or a device's own if that is more]
    #[arg(long, value_name = "BYTES")]
    block_size: Option<u32>,
    /// Name from which the identity of the first image follows, instead of machine and path; said again, of the next
    /// one
    #[arg(long, value_name = "NAME")]
    serial: Vec<String>,
    /// Threads that read and write the images
    #[arg(long, default_value_t = 4, value_name = "N")]
    threads: usize,
    #[command(flatten)]
    security: ServerArgs,
}

/// What a disk keeps its blocks in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Medium {
    /// A file or device.
    File(PathBuf),
    /// So many bytes of memory.
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
    /// Its bytes, and who it is where no name is given.
    fn open(&self, read_only: bool) -> Result<(Arc<dyn Store>, Identity)> {
        match self {
            Medium::File(path) => {
                let store = FileStore::open(path, read_only)?;
                Ok((Arc::new(store), Identity::of_image(path)?))
            }
            Medium::Memory(bytes) => {
                // Another one after each start, for what it had is gone.
                let name = zerolane::security::random()?;
                let name: String = name.iter().map(|it| format!("{it:02x}")).collect();
                Ok((Arc::new(MemoryStore::new(*bytes)), Identity::named(&name)))
            }
        }
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
    let (block_size, read_only) = (args.block_size, args.read_only);
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
        let words = add(&mut server, number, medium, serial, (block_size, read_only));
        shown.push(words.with_context(|| medium.to_string())?);
    }
    let addresses = args.listen.resolve(lane)?;
    let mut endpoints = addresses
        .iter()
        .map(|&on| server.listen(on, options.clone()));
    let first = endpoints.next().context("no address to listen on")?;
    // Another address of the same name, if the first is taken.
    let endpoint = endpoints.fold(first, |found, next| found.or(next));
    let endpoint = endpoint.with_context(|| format!("cannot listen on {}", args.listen))?;
    let (address, key) = server.endpoint(endpoint).context("it listens")?;
    console::say(format_args!(
        "Serving {} disks on {}.",
        shown.len(),
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

/// Adds an image as LUN `number`; returns what to say of it.
fn add(
    server: &mut Server,
    number: usize,
    medium: &Medium,
    serial: Option<&str>,
    (block_size, read_only): (Option<u32>, bool),
) -> Result<String> {
    let (store, own) = medium.open(read_only)?;
    let identity = serial.map_or(own, Identity::named);
    let bytes = store.bytes();
    let block_size = block_size.unwrap_or_else(|| Disk::block_bytes_of(&*store));
    let disk = Disk {
        read_only: read_only || store.is_read_only(),
        ..Disk::of(&*store, block_size, identity)?
    };
    let lun = u16::try_from(number).ok().and_then(Lun::new);
    let lun = lun.context("too many images")?;
    let read_only = if disk.read_only { ", read-only" } else { "" };
    let words = format!(
        "LUN {lun}: {medium}, {}{read_only}, serial number {identity}",
        HumanBytes(bytes)
    );
    server.add_unit(lun, &format!("disk{number}"), disk, store)?;
    Ok(words)
}

fn tell(news: News) {
    match news {
        News::Came(address) => console::note(format_args!("{address}: connected")),
        News::Left(address, why) => console::note(format_args!("{address}: gone: {why}")),
        News::CutOff(address, offence) => {
            console::note(format_args!("{address}: cut off: {offence}"));
        }
        News::Lost { unit, recorded } => {
            console::note(format_args!(
                "{unit}: writes were lost: its flushes fail until it is served anew"
            ));
            if let Err(why) = recorded {
                console::note(format_args!(
                    "{unit}: not written down, so initiators that do not flush before will not learn of it: {why}"
                ));
            }
        }
        News::List(news) => security::tell_news(news),
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
