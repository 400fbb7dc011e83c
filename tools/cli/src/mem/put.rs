//! Implements `zerolane mem put`.

use std::fs::File;
use std::io::{Read, stdin};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use zerolane::request::Put;
use zerolane::{Region, Rights};

use super::place::Place;
use super::remote::{AHEAD, PIECE, Remote, parse_host};
use crate::console;
use crate::host::Host;
use crate::security::ClientArgs;

/// Arguments of `zerolane mem put`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where `mem export` runs: HOST or HOST:PORT
    #[arg(value_parser = parse_host)]
    host: Host,
    /// Name of the region, and offset of the first byte: NAME or NAME@OFFSET
    #[arg(value_name = "NAME[@OFFSET]")]
    place: Place,
    /// The input file; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    security: ClientArgs,
}

/// Writes the whole input. On return, it is in the host's memory.
pub(crate) fn run(args: &Args) -> Result<()> {
    let place = &args.place;
    ensure!(
        place.len.is_none(),
        anyhow::Error::new(crate::exit::Exit::Usage)
            .context("the input says how many bytes are put, not NAME@OFFSET+LEN")
    );
    let mut input = open(args)?;
    let mut remote = Remote::open(&args.host, place, Rights::WRITE, &args.security)?;
    if let Some(len) = input.known_len {
        remote.check(place.offset, len)?;
    }
    let mut put = 0;
    let mut free: Vec<Region> = Vec::new();
    let mut made = 0;
    loop {
        let mut region = match free.pop() {
            Some(region) => region,
            None if made < AHEAD => {
                made += 1;
                Region::anonymous(PIECE)?
            }
            None => remote.next()?.into_region()?,
        };
        let len = fill(&mut input.reader, &mut region).context("reading the input")?;
        let last = len < region.len();
        // Frees the part of the region that the input does not fill.
        let _rest = region.split_off(len);
        if len > 0 {
            remote.check(place.offset, put + len as u64)?;
            let offset = place.offset + put;
            let posted = remote
                .connection
                .post(Put::new(&remote.key, offset, region));
            posted.map_err(|refused| remote.explain(refused.into()))?;
            put += len as u64;
        }
        if last {
            break;
        }
        if let Some(done) = remote.poll()? {
            free.push(done.into_region()?);
        }
    }
    while remote.connection.in_flight() > 0 {
        remote.next()?;
    }
    remote.close()?;
    console::note(format_args!("{} put", console::counted(put, "byte")));
    Ok(())
}

/// The bytes to write.
struct Input {
    reader: Box<dyn Read>,
    /// Its length if it is a file, bytes.
    known_len: Option<u64>,
}

fn open(args: &Args) -> Result<Input> {
    if args.file.as_os_str() == "-" {
        return Ok(Input {
            reader: Box::new(stdin().lock()),
            known_len: None,
        });
    }
    let name = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("cannot read {name}"))?;
    let metadata = file.metadata()?;
    Ok(Input {
        reader: Box::new(file),
        known_len: metadata.is_file().then_some(metadata.len()),
    })
}

/// Reads until `space` is full or the input ends. Returns the number of bytes.
fn fill(input: &mut impl Read, space: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < space.len() {
        match input.read(&mut space[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
