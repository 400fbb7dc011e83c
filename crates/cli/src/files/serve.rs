//! `zerolane serve`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use zerolane::Options;
use zerolane::keys::{Access, AllowFile};
use zerolane::options::{Schedule, Scheduler};
use zerolane::security::Code;
use zerolane_files::limits::DEFAULT_PORT;
use zerolane_files::{Confinement, Error, Refusal, ServeOptions, Server, ServerObserver, Totals};

use super::{stop_on_signals, user, with_exit_code};
use crate::address::parse_listen;
use crate::console;
use crate::security::{self, Doors, ServerArgs};

/// Arguments of `zerolane serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
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
    /// As root: once the address is bound, become this user, who must be able to read the list of
    /// keys and to do in DIR what clients may do there
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Let in one client that has a one-time code, which is shown here, instead of keys; end after it
    #[arg(long, conflicts_with_all = ["identity", "allowed", "anyone", "authenticated", "plain"])]
    code: bool,
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
    /// The sender that needs fewest bytes first
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
    let user = args.user.as_deref().map(user::find).transpose()?;
    let code = args.code.then(one_time_code).transpose()?;
    let profiles = args.security.profile.into();
    let Doors {
        security,
        access: allowed,
        words,
    } = match code.clone() {
        Some(code) => Doors::by_code(code),
        None => args.security.doors()?,
    };
    let list = match &allowed {
        Access::Listed(list) => Some(Arc::clone(list)),
        Access::Anyone => None,
    };
    let options = ServeOptions {
        read_only: args.read_only,
        access: allowed,
        transport: Options {
            scheduler: Some(Scheduler::new(args.schedule.into())),
            security,
            profiles,
            ..Options::default()
        },
    };
    let mut server = Server::bind(&args.directory, args.listen, options).map_err(with_exit_code)?;
    let address = server.local_addr();
    if let Some(user) = &user {
        server
            .give_to(user.uid.as_raw())
            .map_err(with_exit_code)
            .with_context(|| format!("giving {address} to {}", user.name))?;
        user::become_user(user, address.port())?;
    }
    confine(&server, list.as_deref())?;
    let access = if args.read_only {
        "reading"
    } else {
        "reading and writing"
    };
    console::say(format_args!(
        "Serving {} on {address} for {access}.",
        args.directory.display()
    ))?;
    if let (Some(key), None) = (server.public_key(), &code) {
        console::say(format_args!("Its key: {key}"))?;
    }
    console::say(words)?;
    if let Some(code) = code {
        let place = place(address);
        console::say(format_args!(
            "There: zerolane cp -r --code {code} {place}: DIR"
        ))?;
    }
    if address.ip().is_loopback() {
        console::say("Only this machine can reach it; --listen ADDR opens it to others.")?;
    }
    server.run(&stop, &Log).map_err(with_exit_code)
}

fn one_time_code() -> Result<Code> {
    let random = zerolane::security::random().context("no random numbers for a code")?;
    Ok(Code::from_random(random))
}

/// The name under which others reach `address`, as far as it is known here.
fn place(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("THIS-HOST:{}", address.port()),
        false => address.to_string(),
    }
}

/// Confines this process to the directory and its list of keys.
fn confine(server: &Server, list: Option<&AllowFile>) -> Result<()> {
    let readable = list.map(|list| place_of(list.path()));
    let confined = server.confine(readable.as_slice());
    let why = match confined.context("confining this process to what it serves")? {
        Confinement::Full => None,
        Confinement::Partial => {
            Some("This kernel is older than Linux 6.12 and does so in part only")
        }
        Confinement::None => Some("This kernel does not (no Landlock)"),
    };
    if let Some(why) = why {
        console::note(format_args!(
            "The kernel is to keep this process to the directory even if it goes wrong. {why}."
        ));
    }
    if let Some(list) = list {
        // Whether it still can be read.
        list.reload();
        if let Some(broken @ Err(_)) = list.news() {
            security::tell_news(broken);
        }
    }
    Ok(())
}

/// The directory of a file: an editor may put a new file in the old one's place.
fn place_of(file: &Path) -> &Path {
    let directory = file.parent().filter(|it| !it.as_os_str().is_empty());
    directory.unwrap_or(Path::new("."))
}

/// One line for each request and each end, on standard error.
struct Log;

impl ServerObserver for Log {
    fn list_changed(&self, news: Result<usize, String>) {
        security::tell_news(news);
    }

    fn asked(&self, peer: SocketAddr, what: &str) {
        console::note(format_args!("{peer}: {what}"));
    }

    fn turned_away(&self, peer: SocketAddr, why: &Refusal) {
        console::note(format_args!("{peer}: turned away: {why}"));
    }

    fn wrong_code(&self, left: u32) {
        console::note(match left {
            0 => "WARNING: a wrong code was tried again. This one is void now.".into(),
            _ => {
                format!("WARNING: a client tried a wrong code. After {left} more this one is void.")
            }
        });
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
