//! Implements `zerolane up`, `down` and `show`: a network interface whose packets travel to other hosts.

mod commands;
mod control;
mod over_ssh;
mod rights;
mod up;

pub(crate) use commands::{down, show};

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use zerolane::tun::{TunDevice, TunOffload};
use zerolane_tunnel::config::Prefix;

use crate::exit::Exit;
use crate::login::LoginArgs;

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

It stays in the foreground until Ctrl-C or `zerolane down NAME`; then the interface and its routes are gone.

USER@HOST needs no file: zerolane is started there over ssh, both ends get addresses and end
together. Both need the right to make interfaces. Under sudo, ssh has the keys of root, unless
--rsh says otherwise:
  sudo zerolane up admin@host --remote-program 'sudo zerolane' --rsh 'sudo -u me ssh'")]
pub struct UpArgs {
    /// The configuration: a file NAME.conf, or NAME for /etc/zerolane/NAME.conf. The interface is called NAME. Or a host
    /// to log in to, USER@HOST or USER@HOST:PORT of ssh
    #[arg(value_name = "FILE|NAME|USER@HOST")]
    config: PathBuf,
    /// Take and hand over only packets that are cut already: slower, for kernels that handle others wrongly
    #[arg(long)]
    no_offload: bool,
    /// Use the interface that this descriptor has, made by another program, and leave its addresses and routes alone
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..))]
    tun_fd: Option<i32>,
    /// The networks inside, of which this end has the first address and USER@HOST the second [default: a random one of
    /// IPv4 and one of IPv6]
    #[arg(long, value_name = "NETWORK,...", value_delimiter = ',', value_parser = over_ssh::network, help_heading = "Over ssh")]
    inside: Vec<Prefix>,
    /// The name of both interfaces [default: zl and four random hexadecimal digits]
    #[arg(long, value_name = "NAME", value_parser = over_ssh::interface, help_heading = "Over ssh")]
    name: Option<String>,
    #[command(flatten)]
    login: LoginArgs,
    /// Be the other end of a login: what `up USER@HOST` starts
    #[arg(long, hide = true, conflicts_with_all = ["tun_fd", "rsh", "remote_program", "remote_listen"])]
    stdio: bool,
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

/// Runs a tunnel until a signal or `zerolane down`.
pub(crate) fn up(args: UpArgs) -> Result<Exit> {
    let offload = match args.no_offload {
        true => TunOffload::None,
        false => TunOffload::TcpAndUdp,
    };
    // Before this process opens files, which could have the number.
    let adopt = |number| {
        let adopted = TunDevice::adopt(number, offload);
        adopted.with_context(|| format!("--tun-fd {number}"))
    };
    let given = args.tun_fd.map(adopt).transpose()?;
    if args.stdio {
        return over_ssh::answer(&args, offload);
    }
    match over_ssh::host(&args)? {
        Some(host) => over_ssh::call(&host, &args, offload),
        None => up::from_file(&args, offload, given),
    }
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
