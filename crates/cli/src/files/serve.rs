//! `zerolane serve`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Result;
use zerolane::file::limits::DEFAULT_PORT;
use zerolane::file::{Error, ServeOptions, Server, ServerObserver, Totals};
use zerolane::{Options, Schedule, Scheduler};

use super::{stop_on_signals, with_exit_code};
use crate::address::parse_listen;
use crate::console;
use crate::security::{Doors, ServerArgs};

/// Arguments of `zerolane serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory; nothing outside it can be reached
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Address to listen on, with or without a port (port 0: any free one)
    #[arg(long, value_name = "ADDR", value_parser = parse_address,
          default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)))]
    listen: SocketAddr,
    /// Refuse to write
    #[arg(long)]
    read_only: bool,
    /// How senders share the link when several write at once
    #[arg(long, value_enum, default_value_t = ScheduleName::Auto)]
    schedule: ScheduleName,
    #[command(flatten)]
    security: ServerArgs,
}

/// Names of [`Schedule`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ScheduleName {
    /// Fair, and fast where it is found to pay
    Auto,
    /// An equal part for each
    Fair,
    /// One at full speed, the others at a trickle, in turns
    Fast,
    /// Who needs fewest bytes first
    Shortest,
}

impl From<ScheduleName> for Schedule {
    fn from(name: ScheduleName) -> Schedule {
        match name {
            ScheduleName::Auto => Schedule::Automatic,
            ScheduleName::Fair => Schedule::Fair,
            ScheduleName::Fast => Schedule::Fast,
            ScheduleName::Shortest => Schedule::Shortest,
        }
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    parse_listen(text, DEFAULT_PORT)
}

/// Serves until Ctrl-C or SIGTERM.
pub(crate) fn run(args: Args) -> Result<()> {
    let stop = stop_on_signals()?;
    let Doors {
        security,
        access: allowed,
        words,
    } = args.security.doors()?;
    let options = ServeOptions {
        read_only: args.read_only,
        access: allowed,
        transport: Options {
            scheduler: Some(Scheduler::new(args.schedule.into())),
            security,
            ..Options::default()
        },
    };
    let mut server = Server::bind(&args.directory, args.listen, options).map_err(with_exit_code)?;
    let address = server.local_addr();
    let access = if args.read_only {
        "reading"
    } else {
        "reading and writing"
    };
    console::say(format_args!(
        "Serving {} on {address} for {access}.",
        args.directory.display()
    ))?;
    if let Some(key) = server.public_key() {
        console::say(format_args!("Its key: {key}"))?;
    }
    console::say(words)?;
    if address.ip().is_loopback() {
        console::say("Only this machine can reach it; --listen ADDR opens it to others.")?;
    }
    server.run(&stop, &Log).map_err(with_exit_code)
}

/// One line for each request and each end, on standard error.
struct Log;

impl ServerObserver for Log {
    fn asked(&self, peer: SocketAddr, what: &str) {
        console::note(format_args!("{peer}: {what}"));
    }

    fn ended(&self, peer: SocketAddr, outcome: &Result<Option<Totals>, Error>) {
        match outcome {
            Ok(None) => {}
            Ok(Some(totals)) => console::note(format_args!(
                "{peer}: {} files, {} bytes, {} failed",
                totals.files, totals.bytes, totals.failed
            )),
            Err(error) => console::note(format_args!("{peer}: {error}")),
        }
    }
}
