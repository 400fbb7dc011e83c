//! Implements `zerolane doctor`: checks this machine, and on request the way to a host.

mod findings;
mod probe;

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Result, anyhow};
use zerolane::Options;
use zerolane::keys::{AllowFile, KnownHosts, identity};
use zerolane::lanes::is_ethernet;
use zerolane_files::limits::DEFAULT_PORT;

use crate::address::parse_host;
use crate::console;
use crate::exit::Exit;
use crate::security::{allowed_keys_file, identity_file, known_hosts_file};
use findings::{Finding, State};

/// Arguments of `zerolane doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also check the way to this host, where `serve` or `mem export` should listen
    #[arg(value_name = "HOST[:PORT]", value_parser = parse_there)]
    host: Option<(String, u16)>,
    /// One JSON object a line instead of text
    #[arg(long)]
    json: bool,
}

fn parse_there(text: &str) -> Result<(String, u16), String> {
    match is_ethernet(text) {
        true => Err("`zerolane lanes` says what is known of an address of raw Ethernet".into()),
        false => parse_host(text, DEFAULT_PORT),
    }
}

/// Prints the findings; fails if something is wrong.
pub(crate) fn run(args: Args) -> Result<()> {
    let mut findings = own_machine();
    findings.extend(keys());
    if let Some((name, port)) = &args.host {
        findings.extend(probe::way_to(name, *port));
    }
    for finding in &findings {
        match args.json {
            true => console::say(serde_json::to_string(finding)?)?,
            false => console::say(finding)?,
        }
    }
    let wrong = findings.iter().filter(|it| it.state == State::Wrong);
    match wrong.count() {
        0 => Ok(()),
        wrong => Err(anyhow!("{wrong} wrong").context(Exit::Failure)),
    }
}

fn own_machine() -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let mut findings = match probe::loopback() {
        Ok(account) => {
            let limit = read("/proc/sys/net/core/rmem_max");
            let limit = limit.and_then(|it| it.trim().parse().ok());
            let wanted = Options::default().flow.receive_buffer;
            vec![
                findings::receive_buffer(account.receive_buffer, wanted, limit),
                findings::offload("GSO", account.gso, "4.18"),
                findings::offload("GRO", account.gro, "5.0"),
                findings::cipher(account.cipher),
            ]
        }
        Err(error) => vec![findings::no_loopback(&error)],
    };
    let made = std::env::current_exe().and_then(fs::metadata);
    let made = made.and_then(|it| it.modified()).ok();
    findings.push(findings::clock(SystemTime::now(), made));
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    findings.extend(read(source).map(|it| findings::clock_source(it.trim())));
    findings
}

fn keys() -> Vec<Finding> {
    let Ok(own) = identity_file(None) else {
        return vec![findings::no_home()];
    };
    let found = identity::load(&own).map(|it| it.map(|it| it.public().to_string()));
    let own = findings::key_file("own key", &own, found);
    let lines = |what,
                 path: Option<PathBuf>,
                 count: &dyn Fn(&PathBuf) -> Result<usize, zerolane::keys::Error>| {
        let path = path?;
        let found = count(&path).map(|it| path.exists().then(|| console::counted(it, "key")));
        Some(findings::key_file(what, &path, found))
    };
    let clients = lines("clients' keys", allowed_keys_file(None), &|path| {
        AllowFile::load(path, None).map(|it| it.list().len())
    });
    let servers = lines("servers' keys", known_hosts_file(), &|path| {
        KnownHosts::load(path).map(|it| it.hosts().len())
    });
    [Some(own), clients, servers]
        .into_iter()
        .flatten()
        .collect()
}
