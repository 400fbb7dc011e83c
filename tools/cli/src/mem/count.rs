//! Implements `zerolane mem fetch-add`.

use anyhow::{Result, ensure};
use zerolane::Rights;

use super::place::Place;
use super::remote::{Remote, parse_host};
use crate::console;
use crate::exit::Exit;
use crate::host::Host;
use crate::security::ClientArgs;

/// Arguments of `zerolane mem fetch-add`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where `mem export` runs: HOST or HOST:PORT
    #[arg(value_parser = parse_host)]
    host: Host,
    /// Name of the region, and the offset of an unsigned 64-bit number, a multiple of 8
    #[arg(value_name = "NAME[@OFFSET]")]
    place: Place,
    /// The number to add, which may be negative; the sum wraps around at 2^64
    #[arg(allow_hyphen_values = true)]
    delta: i64,
    /// Repeat this many times, and print each value
    #[arg(long, default_value_t = 1)]
    times: u64,
    #[command(flatten)]
    security: ClientArgs,
}

/// Bytes of the number.
const WORD: u64 = 8;

/// Adds, and prints the earlier value of the number.
pub(crate) fn run(args: &Args) -> Result<()> {
    let Place { offset, len, .. } = args.place;
    let usage = |words: String| anyhow::Error::new(Exit::Usage).context(words);
    ensure!(
        len.is_none(),
        usage("a number has 8 bytes: NAME@OFFSET without +LEN".into())
    );
    ensure!(
        offset.is_multiple_of(WORD),
        usage(format!("offset {offset} is not a multiple of {WORD}"))
    );
    let mut remote = Remote::open(&args.host, &args.place, Rights::ATOMIC, &args.security)?;
    remote.check(offset, WORD)?;
    for _ in 0..args.times {
        let added = args.delta.cast_unsigned();
        let before = remote.connection.fetch_add(&remote.key, offset, added);
        console::say(before.map_err(|error| remote.explain(error))?)?;
    }
    remote.close()
}
