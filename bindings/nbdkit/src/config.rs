//! The plugin's parameters, and connecting as they say.

use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zerolane::keys::{self, HostTrust, KnownHosts, identity};
use zerolane::lanes::resolve_host;
use zerolane::options::LaneChoice;
use zerolane::security::{PublicKey, Trust};
use zerolane::{Connection, Options, Security};
use zerolane_block::Lun;
use zerolane_disk::initiator::Dial;

use crate::failure::Failure;

/// What nbdkit prints for `--help`.
pub(crate) const HELP: &CStr = c"\
host=HOST[:PORT]     (required) where `zerolane disk serve` runs
lun=N                which of its disks [default: 0]
identity=FILE        this end's key [default: identity beside the user's other keys]
server-key=KEY       trust the server with this key and no other
authenticated=BOOL   do not encrypt, only authenticate
plain=BOOL           use no protection
patience=SECONDS     how long to connect again after a break [default: 60]
depth=N              commands at a time, 1 to 256 [default: 64]";

/// UDP port where none is named.
const DEFAULT_PORT: u16 = 9183;

struct Config {
    host: Option<(String, u16)>,
    lun: Option<Lun>,
    identity: Option<PathBuf>,
    server_key: Option<PublicKey>,
    authenticated: bool,
    plain: bool,
    patience: Duration,
    depth: u16,
}

static CONFIG: Mutex<Config> = Mutex::new(Config {
    host: None,
    lun: None,
    identity: None,
    server_key: None,
    authenticated: false,
    plain: false,
    patience: Duration::from_secs(60),
    depth: 64,
});

fn config() -> MutexGuard<'static, Config> {
    // Each parameter is set as a whole.
    CONFIG.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parsed<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, Failure> {
    let wrong = |_| Failure::usage(&format!("{key}={value} is not possible"));
    value.parse().map_err(wrong)
}

fn host(value: &str) -> Result<(String, u16), Failure> {
    let (name, port) = match value.rsplit_once(':') {
        // Of an IPv6 address without a port, or in brackets.
        Some((before, _)) if before.contains(':') && !before.ends_with(']') => (value, None),
        Some((_, last)) if last.ends_with(']') => (value, None),
        Some((name, port)) => (name, Some(port)),
        None => (value, None),
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let port = port.map_or(Ok(DEFAULT_PORT), |port| parsed("host", port))?;
    match name.is_empty() {
        true => Err(Failure::usage("host= names no host")),
        false => Ok((name.to_owned(), port)),
    }
}

/// Sets a parameter.
pub(crate) fn set(key: &str, value: &str) -> Result<(), Failure> {
    let mut config = config();
    match key {
        "host" => config.host = Some(host(value)?),
        "lun" => {
            let lun = Lun::new(parsed(key, value)?);
            config.lun = Some(lun.ok_or_else(|| Failure::usage("no such LUN"))?);
        }
        "identity" => config.identity = Some(value.into()),
        "server-key" => config.server_key = Some(parsed(key, value)?),
        "authenticated" => config.authenticated = parsed(key, value)?,
        "plain" => config.plain = parsed(key, value)?,
        "patience" => config.patience = Duration::from_secs(parsed(key, value)?),
        "depth" => config.depth = parsed(key, value)?,
        _ => return Err(Failure::usage(&format!("no parameter is called {key}"))),
    }
    Ok(())
}

/// All that is needed was set.
pub(crate) fn check() -> Result<(), Failure> {
    let config = config();
    if config.plain && (config.authenticated || config.server_key.is_some()) {
        return Err(Failure::usage(
            "plain= goes with no key, and no authenticated=",
        ));
    }
    match config.host {
        Some(_) => Ok(()),
        None => Err(Failure::usage("host= is missing")),
    }
}

/// Which disk, and how its queue is to be.
pub(crate) fn wanted() -> (Lun, zerolane_disk::initiator::Options) {
    let config = config();
    let options = zerolane_disk::initiator::Options {
        depth: config.depth,
        patience: config.patience,
        ..Default::default()
    };
    (config.lun.unwrap_or_else(zero), options)
}

fn zero() -> Lun {
    zerolane_block::Lun::new(0).expect("zero is a LUN")
}

/// Connects as the parameters say.
pub(crate) fn dial() -> Result<Dial, Failure> {
    let config = config();
    let Some((name, port)) = config.host.clone() else {
        return Err(Failure::usage("host= is missing"));
    };
    let options = Options {
        security: security(&config, &name, port)?,
        ..Options::default()
    };
    Ok(Box::new(move || {
        let to = resolve_host(&name, port, LaneChoice::Udp)?;
        Connection::connect(&to[..], &options)
    }))
}

fn security(config: &Config, name: &str, port: u16) -> Result<Security, Failure> {
    if config.plain {
        return Ok(Security::plain());
    }
    let home = keys::home();
    let path = config.identity.clone();
    let path = path.or_else(|| home.as_ref().map(|home| home.join("identity")));
    let broken = |error: keys::Error| Failure::usage(&error.to_string());
    let own = path.map(|path| identity::load_or_create(&path).map_err(broken));
    let own = own.transpose()?.map(Arc::new);
    // As the other commands remember it.
    let host = match name.contains(':') {
        true => format!("[{name}]:{port}"),
        false => format!("{name}:{port}"),
    };
    let trust = match (config.server_key, home) {
        (Some(key), _) => HostTrust::only(key),
        (None, Some(home)) => {
            let known = KnownHosts::load(&home.join("known_hosts")).map_err(broken)?;
            known.trust(&host, own.as_ref().map(|it| it.public()))
        }
        (None, None) => HostTrust::anyone(),
    };
    let protection = match config.authenticated {
        true => Security::authenticated(),
        false => Security::default(),
    };
    Ok(Security {
        identity: own,
        trust: Arc::new(trust) as Arc<dyn Trust>,
        ..protection
    })
}
