//! Implements `zerolane disk ls`: lists the disks of a host.

use anyhow::Result;
use indicatif::HumanBytes;
use serde_json::json;
use zerolane_disk::initiator::Unit;

use super::remote::{parse_host, units};
use crate::console;
use crate::host::Host;
use crate::security::ClientArgs;

/// Arguments of `zerolane disk ls`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where `disk serve` runs: HOST or HOST:PORT
    #[arg(value_parser = parse_host)]
    host: Host,
    /// One JSON object a line instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    security: ClientArgs,
}

/// Prints a line for each disk.
pub(super) fn run(args: &Args) -> Result<()> {
    for unit in units(&args.host, &args.security)? {
        match args.json {
            true => console::say(as_json(&unit))?,
            false => console::say(line(&unit))?,
        }
    }
    Ok(())
}

pub(super) fn as_json(unit: &Unit) -> serde_json::Value {
    json!({
        "lun": unit.lun,
        "bytes": unit.bytes(),
        "block_bytes": unit.block_bytes,
        "blocks": unit.blocks,
        "read_only": unit.read_only,
        "thin": unit.thin,
        "serial": unit.serial,
    })
}

pub(super) fn line(unit: &Unit) -> String {
    let rights = if unit.read_only {
        "read-only"
    } else {
        "read-write"
    };
    format!(
        "LUN {}  {}  blocks of {}  {rights}  {}",
        unit.lun,
        HumanBytes(unit.bytes()),
        unit.block_bytes,
        unit.serial
    )
}
