//! Implements `zerolane forward`: TCP connections and UNIX sockets to or from another host, as with `ssh -L`, `-R` and
//! `-D`.

mod dial;
mod serve;
mod spec;

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Subcommand;
use zerolane_streams::forward::{Error, Forwarder, Nothing, Notice};

use crate::console;
use crate::descriptors;
use crate::exit::Exit;
use crate::files::stop_on_signals;
use crate::login::LoginArgs;
use crate::security::ClientArgs;
use dial::Peer;

/// The default UDP port.
const DEFAULT_PORT: u16 = 9185;

/// Arguments of `zerolane forward`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  zerolane forward 8080 db:5432 --to me@gateway        # connect to port 8080 here, and reach db:5432 from gateway
  zerolane forward 1080 socks --to me@gateway          # a SOCKS5 proxy here
  zerolane forward -R 2222 localhost:22 --to me@host   # port 2222 there leads here

Without USER@, `zerolane forward serve` must run at the other host, and its list of keys must name the targets."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Where to accept connections: PORT on 127.0.0.1, ADDR:PORT, or the path of a UNIX socket
    #[arg(
        value_name = "LISTEN",
        requires = "target",
        required_unless_present = "file"
    )]
    listen: Option<String>,
    /// Where the other host connects: HOST:PORT, or `socks`: where each SOCKS5 client says
    #[arg(value_name = "TARGET")]
    target: Option<String>,
    /// The other host: USER@HOST, where ssh starts zerolane, or HOST[:PORT], where `zerolane forward serve` runs
    #[arg(long, value_name = "PEER", required = true)]
    to: Option<String>,
    /// The other way round: the other host accepts at LISTEN, and this one connects to TARGET
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Which connections go first, where several share the way: 0 before all others, 7 behind them [default: 3]
    #[arg(long, value_name = "N", value_parser = spec::parse_priority)]
    priority: Option<u8>,
    /// Also forward what this file says: a line `[reverse] LISTEN TARGET [priority=N]` for each; # begins a comment
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    login: LoginArgs,
    #[command(flatten)]
    security: ClientArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Connect and listen for other hosts, as far as the list of keys names the targets
    Serve(serve::Args),
}

/// Forwards, or serves, until Ctrl-C or SIGTERM.
pub(crate) fn run(args: Args) -> Result<()> {
    descriptors::allow_all();
    match args.command {
        Some(Command::Serve(args)) => serve::run(args),
        None => forward(args),
    }
}

fn forward(args: Args) -> Result<()> {
    let mut forwards = Vec::new();
    if let (Some(listen), Some(target)) = (&args.listen, &args.target) {
        forwards.push(spec::forward(listen, target, args.reverse, args.priority)?);
    } else {
        ensure!(
            !args.reverse,
            anyhow!("-R is for LISTEN TARGET; in a file, write: reverse LISTEN TARGET")
                .context(Exit::Usage)
        );
    }
    if let Some(file) = &args.file {
        forwards.extend(spec::of_file(file)?);
    }
    let stop = stop_on_signals()?;
    let to = args.to.context("no --to")?;
    let peer = Peer::new(&to, args.login, args.security)?;
    let connection = peer.connect()?;
    let shown = to.clone();
    let tell = move |notice| tell(&shown, notice);
    let mut forwarder = Forwarder::new(Nothing, tell)?;
    let peer_dials = peer.clone();
    let dial = std::sync::Arc::new(move || peer_dials.dial());
    let begun = forwarder.forward(connection, dial, forwards);
    begun.map_err(with_exit_code)?;
    forwarder.run(|| stop.requested()).map_err(with_exit_code)?;
    forwarder.close()?;
    peer.say_done();
    Err(Exit::Interrupted.into())
}

fn with_exit_code(error: Error) -> anyhow::Error {
    let exit = match &error {
        Error::Refused { denied: true, .. } => Exit::Refused,
        _ => Exit::Failure,
    };
    anyhow::Error::new(error).context(exit)
}

/// Prints what happened.
fn tell(to: &str, notice: Notice) {
    match notice {
        Notice::Listening { on, to: target } => {
            // A reader that has left does not end the forwards.
            let _ = console::say(format_args!("Forwarding {on} to {target} by {to}."));
        }
        Notice::Came(name) => console::note(format_args!("{name}: connected")),
        Notice::Left(name, why) => console::note(format_args!("{name}: {why}")),
        Notice::Refused(words) => console::note(words),
        Notice::Broken(why) => {
            console::note(format_args!(
                "The connection to {to} broke ({why}). Connecting again ..."
            ));
        }
        Notice::Again => console::note(format_args!("Connected to {to} again.")),
    }
}
