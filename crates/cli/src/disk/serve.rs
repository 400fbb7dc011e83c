//! `zerolane disk serve`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use indicatif::HumanBytes;
use zerolane_block::store::{FileStore, Store};
use zerolane_block::{Disk, Identity, Lun};
use zerolane_disk::target::{News, Server, Settings};

use super::remote::DEFAULT_PORT;
use crate::address::{Listen, address_shown};
use crate::console;
use crate::exit::Exit;
use crate::files::stop_on_signals;
use crate::host::Serving;
use crate::security::{self, ServerArgs};

/// Most threads that work on disks.
const THREADS_MAX: usize = 256;

/// Arguments of `zerolane disk serve`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The first image is LUN 0, the next one LUN 1, and so on. In the list of keys a disk is a region called disk0, disk1, and \
so on: 'KEY read regions=disk0' sees LUN 0 alone and may not write it, 'KEY read-write' sees and writes all of them.")]
pub(super) struct Args {
    /// Regular files or block devices
    #[arg(required = true, value_name = "IMAGE|DEVICE")]
    images: Vec<PathBuf>,
    /// No initiator may write
    #[arg(long)]
    read_only: bool,
    /// Address to listen on, or a name of this host, with or without a port (port 0: any free one), or ether:IFACE
    /// for raw Ethernet
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    #[arg(default_value_t = Listen::loopback(DEFAULT_PORT))]
    listen: Listen,
    /// Length of a logical block, bytes: 512, 1024, 2048 or 4096
    #[arg(long, default_value_t = 512, value_name = "BYTES")]
    block_size: u32,
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
    })?;
    let mut shown = Vec::new();
    for (number, path) in args.images.iter().enumerate() {
        let serial = args.serial.get(number).map(String::as_str);
        let words = add(&mut server, number, path, serial, (block_size, read_only));
        shown.push(words.with_context(|| path.display().to_string())?);
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
    server.serve(|| stop.requested(), tell)?;
    Err(Exit::Interrupted.into())
}

/// Adds an image as LUN `number`; returns what to say of it.
fn add(
    server: &mut Server,
    number: usize,
    path: &Path,
    serial: Option<&str>,
    (block_size, read_only): (u32, bool),
) -> Result<String> {
    let store = FileStore::open(path, read_only)?;
    let identity = match serial {
        Some(name) => Identity::named(name),
        None => Identity::of_image(path)?,
    };
    let bytes = store.bytes();
    let disk = Disk::of(&store, block_size, identity)?;
    let lun = u16::try_from(number).ok().and_then(Lun::new);
    let lun = lun.context("too many images")?;
    let read_only = if disk.read_only { ", read-only" } else { "" };
    let words = format!(
        "LUN {lun}: {}, {}{read_only}, serial number {identity}",
        path.display(),
        HumanBytes(bytes)
    );
    server.add_unit(lun, &format!("disk{number}"), disk, Arc::new(store))?;
    Ok(words)
}

fn tell(news: News) {
    match news {
        News::Came(address) => console::note(format_args!("{address}: connected")),
        News::Left(address, why) => console::note(format_args!("{address}: gone: {why}")),
        News::CutOff(address, offence) => {
            console::note(format_args!("{address}: cut off: {offence}"));
        }
        News::List(news) => security::tell_news(news),
    }
}
