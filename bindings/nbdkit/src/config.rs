//! Parses the plugin's parameters, and connects with them.

use std::ffi::CStr;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zerolane::keys::{self, HostTrust, KnownHosts, identity};
use zerolane::lanes::{is_ethernet, resolve_host};
use zerolane::options::{
    DeviceOptions, EthernetAddress, EthernetDevice, LaneChoice, MAX_PATHS, PathAddresses,
};
use zerolane::security::{PublicKey, Trust};
use zerolane::{Connection, Options, Security};
use zerolane_block::Lun;
use zerolane_disk::initiator::Dial;

use crate::failure::Failure;

/// nbdkit's `--help` text.
pub(crate) const HELP: &CStr = c"\
host=HOST[:PORT]     (required) where `zerolane disk serve` runs
lun=N                which of its disks [default: 0]
identity=FILE        this end's key [default: identity beside the user's other keys]
server-key=KEY       trust the server with this key and no other
authenticated=BOOL   do not encrypt, only authenticate
plain=BOOL           use no protection
lane=NAME            udp, auto, shm, ethernet or ip118 [default: auto, or ethernet for ether:IFACE/MAC]
bypass=WHEN          AF_XDP for raw Ethernet: auto, always or never [default: auto]
path=LOCAL=PEER      one more path, as --path of the commands; again for each
patience=SECONDS     how long to connect again after a break [default: 60]
depth=N              commands at a time, 1 to 256 [default: 64]";

/// Default UDP port.
const DEFAULT_PORT: u16 = 9183;

struct Config {
    host: Option<(String, u16)>,
    lun: Option<Lun>,
    identity: Option<PathBuf>,
    server_key: Option<PublicKey>,
    authenticated: bool,
    plain: bool,
    lane: Option<LaneChoice>,
    bypass: Bypass,
    paths: Vec<PathAddresses>,
    patience: Duration,
    depth: u16,
}

/// Whether raw Ethernet bypasses the kernel's network stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bypass {
    Auto,
    Always,
    Never,
}

static CONFIG: Mutex<Config> = Mutex::new(Config {
    host: None,
    lun: None,
    identity: None,
    server_key: None,
    authenticated: false,
    plain: false,
    lane: None,
    bypass: Bypass::Auto,
    paths: Vec::new(),
    patience: Duration::from_secs(60),
    depth: 64,
});

fn config() -> MutexGuard<'static, Config> {
    // Usable after a panic: each parameter is set as a whole.
    CONFIG.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parsed<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, Failure> {
    let wrong = |_| Failure::usage(&format!("{key}={value}: invalid value"));
    value.parse().map_err(wrong)
}

fn host(value: &str) -> Result<(String, u16), Failure> {
    if let Some(end) = EthernetAddress::prefix(value.as_bytes()) {
        let (name, port) = value.split_at(end);
        let port = port.strip_prefix(':');
        let port = port.map_or(Ok(DEFAULT_PORT), |port| parsed("host", port))?;
        return Ok((name.to_owned(), port));
    }
    let (name, port) = match value.rsplit_once(':') {
        // An IPv6 address without a port or without brackets.
        Some((before, _)) if before.contains(':') && !before.ends_with(']') => (value, None),
        Some((_, last)) if last.ends_with(']') => (value, None),
        Some((name, port)) => (name, Some(port)),
        None => (value, None),
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let port = port.map_or(Ok(DEFAULT_PORT), |port| parsed("host", port))?;
    match name.is_empty() {
        true => Err(Failure::usage("host= needs the name or address of a host")),
        false => Ok((name.to_owned(), port)),
    }
}

/// The lane with this name, as in the commands.
fn lane(value: &str) -> Result<LaneChoice, Failure> {
    Ok(match value {
        "udp" => LaneChoice::Udp,
        "auto" => LaneChoice::Best,
        "shm" => LaneChoice::SharedMemory,
        "ethernet" => LaneChoice::Ethernet,
        "ip118" => LaneChoice::Ip118,
        _ => {
            return Err(Failure::usage(&format!(
                "lane={value}: use udp, auto, shm, ethernet or ip118"
            )));
        }
    })
}

fn bypass(value: &str) -> Result<Bypass, Failure> {
    Ok(match value {
        "auto" => Bypass::Auto,
        "always" => Bypass::Always,
        "never" => Bypass::Never,
        _ => {
            return Err(Failure::usage(&format!(
                "bypass={value}: use auto, always or never"
            )));
        }
    })
}

/// Sets a parameter.
pub(crate) fn set(key: &str, value: &str) -> Result<(), Failure> {
    let mut config = config();
    match key {
        "host" => config.host = Some(host(value)?),
        "lun" => {
            let lun = Lun::new(parsed(key, value)?);
            config.lun = Some(lun.ok_or_else(|| Failure::usage("lun= is out of range"))?);
        }
        "identity" => config.identity = Some(value.into()),
        "server-key" => config.server_key = Some(parsed(key, value)?),
        "authenticated" => config.authenticated = parsed(key, value)?,
        "plain" => config.plain = parsed(key, value)?,
        "lane" => config.lane = Some(lane(value)?),
        "bypass" => config.bypass = bypass(value)?,
        "path" => config.paths.push(parsed("path", value)?),
        "patience" => config.patience = Duration::from_secs(parsed(key, value)?),
        "depth" => config.depth = parsed(key, value)?,
        _ => return Err(Failure::usage(&format!("unknown parameter {key}="))),
    }
    Ok(())
}

/// Checks that the required parameters are set.
pub(crate) fn check() -> Result<(), Failure> {
    let config = config();
    if config.plain && (config.authenticated || config.server_key.is_some()) {
        return Err(Failure::usage(
            "plain= excludes server-key= and authenticated=",
        ));
    }
    let most = usize::from(MAX_PATHS) - 1;
    if config.paths.len() > most {
        let words = format!("path= may be given at most {most} times");
        return Err(Failure::usage(&words));
    }
    let lane = config.lane();
    if !config.paths.is_empty() && !matches!(lane, LaneChoice::Udp | LaneChoice::Best) {
        return Err(Failure::usage(
            "path= works with lane=udp or lane=auto only",
        ));
    }
    if config.bypass == Bypass::Always && lane != LaneChoice::Ethernet {
        return Err(Failure::usage("bypass=always works over raw Ethernet only"));
    }
    match config.host {
        Some(_) => Ok(()),
        None => Err(Failure::usage("host= is missing")),
    }
}

/// The disk, and the options of its queue.
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

/// Returns the function that connects, with the present parameters.
pub(crate) fn dial() -> Result<Dial, Failure> {
    let config = config();
    let Some((name, port)) = config.host.clone() else {
        return Err(Failure::usage("host= is missing"));
    };
    let lane = config.lane();
    let security = security(&config, &name, port)?;
    let device = config.device(&name, port)?;
    let options = Options::default().with(|it| {
        it.security = security;
        it.lane.choice = lane;
        it.lane.device = device;
        it.paths.links = config.paths.clone();
    });
    Ok(Box::new(move || {
        let to = resolve_host(&name, port, lane)?;
        Connection::connect(&to[..], &options)
    }))
}

impl Config {
    /// The requested lane, or the one that leads to the host.
    fn lane(&self) -> LaneChoice {
        let is_ethernet = self
            .host
            .as_ref()
            .is_some_and(|(name, _)| is_ethernet(name));
        let found = match is_ethernet {
            true => LaneChoice::Ethernet,
            false => LaneChoice::Best,
        };
        self.lane.unwrap_or(found)
    }

    /// The device of raw Ethernet, if one is needed.
    fn device(&self, name: &str, port: u16) -> Result<Option<Arc<EthernetDevice>>, Failure> {
        if self.lane() != LaneChoice::Ethernet || self.bypass == Bypass::Never {
            return Ok(None);
        }
        let is_auto = self.bypass == Bypass::Auto;
        let options = DeviceOptions {
            zero_copy: is_auto,
            fall_back: is_auto,
            ..DeviceOptions::default()
        };
        let opened = interface(name, port).and_then(|it| EthernetDevice::open(&it, options));
        match opened {
            Ok(device) => Ok(Some(device)),
            // Connecting reports the interface's fault.
            Err(_) if is_auto => Ok(None),
            Err(error) => Err(Failure::usage(&format!("bypass=always: {error}"))),
        }
    }
}

/// The interface in an address of raw Ethernet.
fn interface(name: &str, port: u16) -> io::Result<String> {
    let found = resolve_host(name, port, LaneChoice::Ethernet)?;
    let first = found.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok(EthernetAddress::of(*first)?.interface().to_owned())
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
    // The form in which the other commands store it.
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
