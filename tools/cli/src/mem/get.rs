//! Implements `zerolane mem get`.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Write, stdout};
use std::path::PathBuf;

use anyhow::{Context, Result};
use zerolane::request::Get;
use zerolane::{Region, RequestId, Rights};

use super::place::Place;
use super::remote::{AHEAD, PIECE, Remote, parse_host};
use crate::console;
use crate::host::Host;
use crate::security::ClientArgs;

/// Arguments of `zerolane mem get`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where `mem export` runs: HOST or HOST:PORT
    #[arg(value_parser = parse_host)]
    host: Host,
    /// Name of the region, offset of the first byte, and number of bytes [default: all that follow]
    #[arg(value_name = "NAME[@OFFSET[+LEN]]")]
    place: Place,
    /// The output file; `-` is standard output
    #[arg(default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    security: ClientArgs,
}

/// Reads the bytes and writes them in order.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut remote = Remote::open(&args.host, &args.place, Rights::READ, &args.security)?;
    let offset = args.place.offset;
    let len = args
        .place
        .len
        .unwrap_or(remote.len().saturating_sub(offset));
    remote.check(offset, len)?;
    let mut output: Box<dyn Write> = match args.file.as_os_str() == "-" {
        true => Box::new(stdout().lock()),
        false => {
            let name = args.file.display();
            let file = File::create(&args.file);
            Box::new(file.with_context(|| format!("cannot write {name}"))?)
        }
    };
    copy(&mut remote, offset, len, &mut output)?;
    output.flush().context("writing the output")?;
    remote.close()?;
    console::note(format_args!("{} got", console::counted(len, "byte")));
    Ok(())
}

/// Pieces in order of output: in flight, or arrived and waiting for earlier ones.
type Pieces = VecDeque<(RequestId, Option<Region>)>;

fn copy(remote: &mut Remote, offset: u64, len: u64, output: &mut impl Write) -> Result<()> {
    let mut pieces = Pieces::new();
    let mut spare = Vec::new();
    let (mut asked, mut written) = (0, 0);
    while written < len {
        while asked < len && pieces.len() < AHEAD {
            let piece = usize::try_from(len - asked).map_or(PIECE, |left| left.min(PIECE));
            let region = spare.pop().map_or_else(|| Region::anonymous(PIECE), Ok)?;
            let region = first(region, piece);
            let posted = remote
                .connection
                .post(Get::new(&remote.key, offset + asked, region));
            pieces.push_back((
                posted.map_err(|refused| remote.explain(refused.into()))?,
                None,
            ));
            asked += piece as u64;
        }
        let done = remote.next()?;
        let place = pieces.iter_mut().find(|(id, _)| *id == done.id);
        place.context("a get that was not posted")?.1 = Some(done.into_region()?);
        while let Some((_, here @ Some(_))) = pieces.front_mut() {
            let Some(region) = here.take() else { break };
            pieces.pop_front();
            output.write_all(&region).context("writing the output")?;
            written += region.len() as u64;
            if region.len() == PIECE {
                spare.push(region);
            }
        }
    }
    Ok(())
}

/// The first `len` bytes of `region`; the rest is freed.
fn first(mut region: Region, len: usize) -> Region {
    let _rest = region.split_off(len);
    region
}
