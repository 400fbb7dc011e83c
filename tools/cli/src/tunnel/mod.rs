//! Implements `zerolane up`, `down` and `show`: a network interface whose packets travel to other hosts.

mod commands;
mod control;
mod rights;
mod up;

pub(crate) use commands::{down, show};
pub(crate) use up::run as up;

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};

/// Where configurations named without a path are.
const DIRECTORY: &str = "/etc/zerolane";

/// Arguments of `zerolane up`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file has the keys of wg-quick. PublicKey is what `zerolane id` prints at the peer:
  [Interface]
  Address = 10.9.0.1/24
  ListenPort = 9186
  [Peer]
  PublicKey = zl:...
  Endpoint = host:9186
  AllowedIPs = 10.9.0.2/32

It stays in the foreground until Ctrl-C or `zerolane down NAME`; then the interface and its routes are gone.")]
pub struct UpArgs {
    /// The configuration: a file NAME.conf, or NAME for /etc/zerolane/NAME.conf. The interface is called NAME
    #[arg(value_name = "FILE|NAME")]
    config: PathBuf,
    /// Have the kernel cut packets and make checksums: slower, for kernels that do it wrongly otherwise
    #[arg(long)]
    no_offload: bool,
    /// Use the interface that this descriptor has, made by another program, and leave its addresses and routes alone
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..))]
    tun_fd: Option<i32>,
}

/// Arguments of `zerolane down`.
#[derive(Debug, clap::Args)]
pub struct DownArgs {
    /// The interface, or its configuration
    #[arg(value_name = "FILE|NAME")]
    config: PathBuf,
}

/// Arguments of `zerolane show`.
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// The interface, or its configuration [default: all]
    #[arg(value_name = "FILE|NAME")]
    config: Option<PathBuf>,
    /// One object of JSON in a line for each interface
    #[arg(long)]
    json: bool,
}

/// The file of a configuration, and the name of its interface.
fn file_and_name(config: &Path) -> Result<(PathBuf, String)> {
    let is_file = config.extension().is_some() || config.components().count() > 1;
    let file = match is_file {
        true => config.to_owned(),
        false => Path::new(DIRECTORY).join(config).with_extension("conf"),
    };
    let name = file.file_stem().and_then(|it| it.to_str());
    let name = name.ok_or_else(|| anyhow!("{} names no interface", config.display()))?;
    let name = name.to_owned();
    Ok((file, name))
}
