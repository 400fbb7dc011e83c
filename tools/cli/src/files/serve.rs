//! Implements `zerolane serve`.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use zerolane::activation::passed_sockets;
use zerolane::keys::{Access, AllowFile};
use zerolane::options::{Schedule, Scheduler};
use zerolane::security::Code;
use zerolane_files::limits::DEFAULT_PORT;
use zerolane_files::{Confinement, ServeOptions, Server, ServerObserver};

use super::limit::LimitArgs;
use super::log::{Format, Log};
use super::metrics::{self, Metrics};
use super::{on_hangup, stdio, stop_on_signals, user, with_exit_code};
use crate::address::{Listen, address_shown};
use crate::config::{Config, Section};
use crate::console;
use crate::exit::Exit;
use crate::lane::LaneName;
use crate::security::{Admission, ServerArgs};
use crate::transport::Configured;

/// Arguments of `zerolane serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory; nothing outside it can be reached
    #[arg(value_name = "DIR", required_unless_present = "stdio")]
    directory: Option<PathBuf>,
    /// Address or host name to listen on, with or without a port (port 0: any free one), or ether:IFACE for raw
    /// Ethernet [default: 127.0.0.1:9181]. A socket from systemd takes precedence
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Serve one client over the channel that ssh connects to standard input and output, and end with it. `cp
    /// USER@HOST:` starts this. Without DIR, serve every file that the login may reach
    #[arg(long, conflicts_with_all = ["code", "user", "metrics", "log", "identity", "allowed", "anyone", "authenticated", "plain", "profile", "lane", "bypass", "ether_name", "paths"])]
    stdio: bool,
    /// Refuse writes; --read-only=false overrides the configuration file
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    read_only: Option<bool>,
    /// How senders share the link when several send at once [default: auto]
    #[arg(long, value_enum)]
    schedule: Option<ScheduleName>,
    /// As root: after binding the address, become this user, who must be able to read the list of keys and to do in DIR
    /// what clients may do
    #[arg(long, value_name = "NAME", conflicts_with_all = ["lane", "bypass"])]
    user: Option<String>,
    /// Print a one-time code, let in one client that has it, without keys, then end
    #[arg(long, conflicts_with_all = ["identity", "allowed", "anyone", "authenticated", "plain"])]
    code: bool,
    /// Format of the log on standard error, which records requests, clients and outcomes [default: text]
    #[arg(long, value_enum, value_name = "FORMAT")]
    log: Option<Format>,
    /// Publish counters for Prometheus at this loopback address: http://ADDR:PORT/metrics
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    security: ServerArgs,
}

/// The words of `--schedule`, one for each [`Schedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ScheduleName {
    /// Fair, or fast where measurements show that it pays
    Auto,
    /// Equal shares
    Fair,
    /// Each sender in turn at full speed, the others at a trickle
    Fast,
    /// The sender with the fewest bytes left first
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

fn parse_listen(text: &str) -> Result<Listen> {
    let parsed = Listen::parse(text, DEFAULT_PORT);
    parsed.map_err(|why| anyhow!("--listen {text}: {why}").context(Exit::Usage))
}

/// The section of the configuration.
const OWN: [Section; 1] = [Section::Serve];

/// Serves until Ctrl-C or SIGTERM. A signal is not reported as an error, because standard error carries the log.
pub(crate) fn run(mut args: Args) -> Result<Exit> {
    let config = Config::load()?;
    let text = |key| config.text(&OWN, key);
    let read_only = args.read_only.or(config.flag(&OWN, "read-only"));
    let read_only = read_only.unwrap_or(false);
    let schedule = args.schedule.or(config.chosen(&OWN, "schedule"));
    let schedule = schedule.unwrap_or(ScheduleName::Auto);
    let max_rate = args.limit.max_rate.or(config.rate(&OWN, "limit"));
    if args.stdio {
        return stdio::run(stdio::Terms {
            directory: args.directory.as_deref(),
            listen: args.listen.as_deref().or(text("stdio-listen")),
            read_only,
            max_rate,
            scheduler: Scheduler::new(schedule.into()),
        });
    }
    // Must run before other descriptors are opened.
    let passed = passed_socket()?;
    let is_passed = passed.is_some();
    let directory = args.directory.context("no directory to serve")?;
    let listen = match args.listen.as_deref().or(text("listen")) {
        Some(listen) => parse_listen(listen)?,
        None => Listen::loopback(DEFAULT_PORT),
    };
    if let Some(list) = text("allowed") {
        args.security.expect_list(list.into());
    }
    let metrics = args.metrics.or(config.parsed(&OWN, "metrics"));
    let log = args.log.or(config.chosen(&OWN, "log"));
    let stop = stop_on_signals()?;
    let user = args.user.as_deref().map(user::find).transpose()?;
    let code = args.code.then(one_time_code).transpose()?;
    let configured = Configured {
        lane: config.chosen(&OWN, "lane"),
        bypass: config.chosen(&OWN, "bypass"),
    };
    let lane = LaneName::to(listen.name(), args.security.lane, configured.lane)?;
    // A rendezvous socket would belong to root, and an unprivileged user cannot open packet or raw sockets.
    let lane = match (&user, lane) {
        (None, lane) => lane,
        (Some(_), LaneName::Auto | LaneName::Udp) => LaneName::Udp,
        (Some(_), _) => {
            let words =
                "--user is for UDP alone, and the address or the configuration names another lane";
            return Err(anyhow!(words).context(Exit::Usage));
        }
    };
    let transport = args.security.transport(lane, listen.place(), configured)?;
    let Admission {
        security,
        access: allowed,
        words,
    } = match code.clone() {
        Some(code) => Admission::by_code(code),
        None => args.security.admission()?,
    };
    let list = match &allowed {
        Access::Listed(list) => Some(Arc::clone(list)),
        Access::Anyone => None,
    };
    let options = ServeOptions {
        read_only,
        access: allowed,
        transport: transport.with(|it| {
            it.rate.scheduler = Some(Scheduler::new(schedule.into()));
            it.security = security;
            it.rate.max = max_rate;
        }),
    };
    // Must run before Landlock forbids TCP.
    let published = metrics.map(metrics::listen).transpose()?;
    let server = match passed {
        Some(socket) => Server::adopt(&directory, socket, options),
        None => Server::bind(&directory, &listen.resolve(lane.into())?[..], options),
    };
    let mut server = server.map_err(with_exit_code)?;
    let address = server.local_addr();
    if let Some(user) = &user {
        server
            .give_to(user.uid.as_raw())
            .map_err(with_exit_code)
            .with_context(|| format!("giving {address} to {}", user.name))?;
        user::become_user(user, address.port())?;
    }
    let log = Log::new(log.unwrap_or(Format::Text));
    confine(&server, list.as_deref(), &log)?;
    // Must run before the address is printed: until then, SIGHUP ends this process.
    on_hangup(list, &stop)?;
    let access = if read_only {
        "reading"
    } else {
        "reading and writing"
    };
    let shown = address_shown(address, lane.into());
    console::say(format_args!(
        "Serving {} on {shown} for {access}.",
        directory.display()
    ))?;
    if let (Some(key), None) = (server.public_key(), &code) {
        console::say(format_args!("Its key: {key}"))?;
    }
    console::say(words)?;
    if let Some(code) = code {
        let place = match address.ip().is_unspecified() {
            true => format!("THIS-HOST:{}", address.port()),
            false => shown,
        };
        console::say(format_args!(
            "There: zerolane cp -r --code {code} {place}: DIR"
        ))?;
    }
    if address.ip().is_loopback() {
        let opens = match is_passed {
            true => "another address of the socket that was passed",
            false => "--listen ADDR",
        };
        console::say(format_args!(
            "Only this machine can reach it; {opens} opens it to others."
        ))?;
    }
    let metrics = Metrics::default();
    if let Some(listener) = published {
        let address = listener.local_addr().context("the address of --metrics")?;
        metrics.publish(listener)?;
        console::say(format_args!("Metrics: http://{address}/metrics"))?;
    }
    server.run(&stop, &(log, metrics)).map_err(with_exit_code)?;
    match stop.requested() {
        true => Ok(Exit::Interrupted),
        false => Ok(Exit::Success),
    }
}

/// The socket that systemd passes to this process: socket activation.
fn passed_socket() -> Result<Option<OwnedFd>> {
    let mut passed = passed_sockets().context("the sockets that were passed to this process")?;
    ensure!(
        passed.len() <= 1,
        "{} sockets were passed, and one is listened on: leave one ListenDatagram= in the .socket unit",
        passed.len()
    );
    Ok(passed.pop())
}

fn one_time_code() -> Result<Code> {
    let random = zerolane::security::random().context("no random numbers for a code")?;
    Ok(Code::from_random(random))
}

/// Confines this process to the directory and its list of keys.
fn confine(server: &Server, list: Option<&AllowFile>, log: &Log) -> Result<()> {
    let readable = list.map(|list| place_of(list.path()));
    let confined = server.confine(readable.as_slice());
    let why = match confined.context("confining this process to what it serves")? {
        Confinement::Full => None,
        Confinement::Partial => {
            Some("Landlock confines this process only in part: this kernel is older than 6.12.")
        }
        Confinement::None => Some("This kernel has no Landlock to confine this process."),
    };
    if let Some(why) = why {
        log.note(why);
    }
    if let Some(list) = list {
        // Checks that the list is still readable.
        list.reload();
        if let Some(broken @ Err(_)) = list.take_change() {
            log.list_changed(broken);
        }
    }
    Ok(())
}

/// The directory of a file, because an editor may replace the file.
fn place_of(file: &Path) -> &Path {
    let directory = file.parent().filter(|it| !it.as_os_str().is_empty());
    directory.unwrap_or(Path::new("."))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::bypass::Bypass;
    use clap::ValueEnum;

    #[test]
    fn chosen__every_word_that_a_configuration_may_have() {
        fn all<T: ValueEnum>(words: &[&str]) {
            for word in words {
                assert!(T::from_str(word, false).is_ok(), "{word}");
            }
            assert_eq!(T::value_variants().len(), words.len());
        }
        all::<ScheduleName>(&["auto", "fair", "fast", "shortest"]);
        all::<Format>(&["text", "json"]);
        all::<LaneName>(&["udp", "auto", "shm", "ethernet", "ip118"]);
        all::<Bypass>(&["auto", "always", "never"]);
    }
}
