//! Implements `zerolane forward serve`: connects and listens for other hosts, as far as their keys' rights go.

use std::io::{IsTerminal, Read, stdin};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use zerolane::keys::{Access, Place, Rights};
use zerolane::security::PublicKey;
use zerolane_files::{Answer, Stop};
use zerolane_streams::forward::{Everything, Forwarder, Notice, Rules, Target};

use super::{DEFAULT_PORT, tell, with_exit_code};
use crate::address::{Listen, address_shown};
use crate::console;
use crate::exit::Exit;
use crate::files::stdio::Called;
use crate::files::{on_hangup, stop_on_signals};
use crate::host::Serving;
use crate::security::{ServerArgs, tell_news};

/// Arguments of `zerolane forward serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A key may use only the places that its line in the list of keys or this command names:
  zl:Xv...  connect=db:5432,*:443 listen=127.0.0.1:2222
Names are compared as they are written, not resolved.")]
pub(super) struct Args {
    /// Address or host name to listen on, with or without a port (port 0: any free one), or ether:IFACE for raw
    /// Ethernet
    #[arg(long, value_name = "ADDR", value_parser = parse_address, default_value_t = Listen::loopback(DEFAULT_PORT))]
    listen: Listen,
    /// Connect to these places for every key that may connect; `*` is any host or port
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    connect: Vec<Place>,
    /// Listen on these addresses for every key that may connect, likewise
    #[arg(long, value_name = "ADDR:PORT,...", value_delimiter = ',')]
    accept: Vec<Place>,
    /// Serve one client over the channel that ssh connects to standard input and output, with every right of the login,
    /// and end with it. `forward --to USER@HOST` starts this
    #[arg(long, conflicts_with_all = ["connect", "accept", "identity", "allowed", "anyone", "authenticated", "plain", "profile", "lane", "bypass", "ether_name", "paths"])]
    stdio: bool,
    #[command(flatten)]
    security: ServerArgs,
}

/// How long the client of a login may take to come, or to come again.
const PATIENCE: Duration = Duration::from_secs(60);

fn parse_address(text: &str) -> Result<Listen, String> {
    Listen::parse(text, DEFAULT_PORT)
}

/// Rights by key, and those of all keys.
struct ByKey {
    access: Access,
    connect: Vec<Place>,
    listen: Vec<Place>,
}

impl ByKey {
    fn covers(
        &self,
        key: Option<PublicKey>,
        of_all: &[Place],
        of_key: fn(&Rights) -> &[Place],
        target: &Target,
    ) -> bool {
        let covers =
            |places: &[Place]| places.iter().any(|it| it.covers(&target.host, target.port));
        // A key that left the list has no rights, whatever those of all are.
        let rights = self.access.rights(key);
        rights.is_some_and(|it| covers(of_all) || covers(of_key(&it)))
    }
}

impl Rules for ByKey {
    fn may_connect(&self, key: Option<PublicKey>, target: &Target) -> bool {
        self.covers(key, &self.connect, |it| &it.connect, target)
    }

    fn may_listen(&self, key: Option<PublicKey>, target: &Target) -> bool {
        self.covers(key, &self.listen, |it| &it.listen, target)
    }
}

/// Serves until Ctrl-C or SIGTERM.
pub(super) fn run(args: Args) -> Result<()> {
    if args.stdio {
        return serve_login();
    }
    let stop = stop_on_signals()?;
    let Serving {
        lane,
        options,
        allowed,
        words,
    } = Serving::of(&args.listen, args.security)?;
    let list = match &allowed {
        Access::Listed(list) => Some(std::sync::Arc::clone(list)),
        Access::Anyone => None,
    };
    on_hangup(list.clone(), &stop)?;
    let rules = ByKey {
        access: allowed,
        connect: args.connect,
        listen: args.accept,
    };
    let mut forwarder = Forwarder::new(rules, |it| tell("", it))?;
    let options = options.with(|it| it.times.keep_alive = true);
    let served = forwarder.serve(&args.listen.resolve(lane)?, options);
    let (address, key) = served.with_context(|| format!("cannot listen on {}", args.listen))?;
    console::say(format_args!(
        "Forwarding for others on {}.",
        address_shown(address, lane)
    ))?;
    if let Some(key) = key {
        console::say(format_args!("Its key: {key}"))?;
    }
    console::say(words)?;
    if address.ip().is_loopback() {
        console::say("Only this machine can reach it; --listen ADDR opens it to others.")?;
    }
    let stops = || {
        if let Some(news) = list.as_ref().and_then(|it| it.take_change()) {
            tell_news(news);
        }
        stop.requested()
    };
    forwarder.run(stops).map_err(with_exit_code)?;
    forwarder.close()?;
    Err(Exit::Interrupted.into())
}

/// Serves the client at the other end of a login, which may do what the login may.
fn serve_login() -> Result<()> {
    if stdin().is_terminal() {
        let why = anyhow!("--stdio is for a login: `zerolane forward --to USER@HOST` uses it");
        return Err(why.context(Exit::Usage));
    }
    let stop = stop_on_signals()?;
    on_hangup(None, &stop)?;
    let Called {
        addresses, options, ..
    } = Called::hear(&stop, None)?;
    let here = std::rc::Rc::new(std::cell::Cell::new((0_usize, Instant::now())));
    let counts = std::rc::Rc::clone(&here);
    let count = move |notice: Notice| {
        let (count, _) = counts.get();
        match notice {
            Notice::Came(_) => counts.set((count + 1, Instant::now())),
            Notice::Left(..) => counts.set((count.saturating_sub(1), Instant::now())),
            _ => {}
        }
    };
    let mut forwarder = Forwarder::new(Everything, count)?;
    let options = options.with(|it| it.times.keep_alive = true);
    let (address, key) = forwarder.serve(&addresses, options)?;
    let key = key.context("no key")?;
    end_with_channel(&stop)?;
    // Begins a new line, because the login's shell may have printed an incomplete one.
    console::say(format_args!("\n{}", Answer { key, address }))?;
    let stops = || {
        let (count, since) = here.get();
        stop.requested() || count == 0 && since.elapsed() > PATIENCE
    };
    forwarder.run(stops).map_err(with_exit_code)?;
    Ok(forwarder.close()?)
}

/// Requests `stop` when the channel of the login ends, or the client says that it is done: ssh forwards nothing either
/// after its connection is gone.
fn end_with_channel(stop: &Stop) -> Result<()> {
    let stop = stop.clone();
    let listen = move || {
        let _ = stdin().lock().read(&mut [0]);
        stop.request();
    };
    let thread = thread::Builder::new().name("channel".into()).spawn(listen);
    thread.context("starting a thread").map(drop)
}
