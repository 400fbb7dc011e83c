//! Implements `zerolane up USER@HOST`: starts the other end by a login, chooses addresses, and ends both together.

use std::io::{IsTerminal, Read, Write, stdin};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use zerolane::security::{Identity, PublicKey};
use zerolane::tun::TunOffload;
use zerolane_files::{Answer, Host, Stop};
use zerolane_tunnel::config::{Config, Prefix};

use super::UpArgs;
use super::up::{End, GONE, LOOK, Start, bring_up};
use crate::console;
use crate::exit::Exit;
use crate::files::stdio::Called;
use crate::login::{self, RemoteEnd};

/// How long the ends may take to connect once both are there.
const PATIENCE: Duration = Duration::from_secs(15);
/// Poll interval for the end of the login.
const WATCH: Duration = Duration::from_millis(100);

/// An end of the tunnel, by the place of its address in a network.
#[derive(Clone, Copy)]
enum Side {
    Here = 1,
    There = 2,
}

/// Parses a network that has addresses for two.
pub(super) fn network(text: &str) -> Result<Prefix, String> {
    let wrong = || format!("{text:?} is no network for two, such as 10.9.0.0/30");
    let (address, len) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 30 } else { 126 };
    let len: u8 = len.parse().map_err(|_| wrong())?;
    (len > 0 && len <= most)
        .then_some(Prefix { address, len })
        .ok_or_else(wrong)
}

/// Checks the name of an interface, which the remote shell reads.
pub(super) fn interface(text: &str) -> Result<String, String> {
    let plain = |it: u8| it.is_ascii_alphanumeric() || it == b'_' || it == b'-';
    let is_name =
        !text.starts_with('-') && text.bytes().all(plain) && (1..16).contains(&text.len());
    let wrong = || format!("{text:?}: a name has 1 to 15 letters, digits, '-' and '_'");
    is_name.then(|| text.to_owned()).ok_or_else(wrong)
}

/// The address of an end in `network`.
fn address(network: Prefix, side: Side) -> Prefix {
    let address = match network.first() {
        IpAddr::V4(it) => Ipv4Addr::from_bits(it.to_bits() + side as u32).into(),
        IpAddr::V6(it) => Ipv6Addr::from_bits(it.to_bits() + side as u128).into(),
    };
    Prefix { address, ..network }
}

/// A network of IPv4 for private use (RFC 1918), and one of IPv6 (RFC 4193).
fn random_networks(random: &[u8; 32]) -> Vec<Prefix> {
    let [a, b, c, d, e, f, g, h, ..] = *random;
    let v4 = Ipv4Addr::new(10, a, b, c);
    let pair = |high, low| u16::from_be_bytes([high, low]);
    let v6 = Ipv6Addr::new(pair(0xfd, d), pair(e, f), pair(g, h), 0, 0, 0, 0, 0);
    let networks = [(IpAddr::from(v4), 30), (v6.into(), 64)];
    networks
        .map(|(address, len)| Prefix { address, len })
        .to_vec()
}

/// The configuration of one side.
fn config(networks: &[Prefix], own: Side, other: Side, key: PublicKey) -> Config {
    let own = networks.iter().map(|&it| address(it, own)).collect();
    let other: Vec<_> = networks
        .iter()
        .map(|&it| address(it, other).address)
        .collect();
    Config::pair(own, key, &other)
}

/// The host to log in to, if the arguments name one.
pub(super) fn host(args: &UpArgs) -> Result<Option<Host>> {
    let named = args
        .config
        .to_str()
        .filter(|it| it.contains('@') && !it.contains('/'));
    if named.is_none() {
        let over_ssh = args.name.is_some() || !args.inside.is_empty();
        ensure!(
            !over_ssh,
            anyhow!("--name and --inside are for USER@HOST").context(Exit::Usage)
        );
    }
    named
        .filter(|it| !it.ends_with(".conf"))
        .map(login::host)
        .transpose()
}

/// Brings up both ends.
pub(super) fn call(host: &Host, args: &UpArgs, offload: TunOffload) -> Result<Exit> {
    let random = zerolane::security::random().context("no random numbers")?;
    let networks = match args.inside.is_empty() {
        true => random_networks(&random),
        false => args.inside.clone(),
    };
    let chosen = || format!("zl{:04x}", u16::from_be_bytes([random[30], random[31]]));
    let name = args.name.clone().unwrap_or_else(chosen);
    let inside: Vec<_> = networks
        .iter()
        .map(|it| format!("{}/{}", it.address, it.len))
        .collect();
    let inside = inside.join(",");
    let mut words = vec!["up", &*name, "--stdio", "--inside", &inside];
    words.extend(args.no_offload.then_some("--no-offload"));
    let identity = Arc::new(login::new_identity()?);
    let remote = RemoteEnd::start(host, &args.login, &words, PATIENCE, identity.public())?;
    let mut config = config(&networks, Side::Here, Side::There, remote.key());
    config.peers[0].endpoints = remote.addresses().iter().map(ToString::to_string).collect();
    let addresses = |side| {
        let all = networks
            .iter()
            .map(|&it| address(it, side).address.to_string());
        all.collect::<Vec<_>>().join(" and ")
    };
    let told = format!(
        "inside, this end is {}, and {} is {}",
        addresses(Side::Here),
        host.name,
        addresses(Side::There)
    );
    let (wake, woken) = UnixStream::pair()?;
    let (watched, watcher) = (remote.clone(), wake.try_clone()?);
    let opened = |_: &_| {
        console::note(told);
        thread::Builder::new()
            .name("watch".into())
            .spawn(move || watch(&watched, watcher))?;
        Ok(())
    };
    let start = Start {
        name,
        config,
        identity,
        offload,
        given: None,
    };
    match bring_up(start, (wake, woken), opened)? {
        End::Down => Ok(Exit::Success),
        End::Signal => Ok(Exit::Interrupted),
        End::Gone => Err(remote.advise(anyhow!("the tunnel is down"), false)),
        End::Unconnected => Err(remote.advise(anyhow!("no connection"), true)),
    }
}

/// Wakes the tunnel when the login has ended, and once when the ends should be connected.
fn watch(remote: &RemoteEnd, mut wake: UnixStream) {
    let until = Instant::now() + PATIENCE;
    let mut looked = false;
    while remote.has_ended().is_none() {
        if !looked && Instant::now() >= until {
            looked = true;
            // A tunnel that is gone needs no look.
            let _ = wake.write_all(&[LOOK]);
        }
        thread::sleep(WATCH);
    }
    let _ = wake.write_all(&[GONE]);
}

/// Is the other end: listens for the one that started this process, and ends with its login.
pub(super) fn answer(args: &UpArgs, offload: TunOffload) -> Result<Exit> {
    if stdin().is_terminal() {
        let why = anyhow!("--stdio is for a login: `zerolane up USER@HOST` uses it");
        return Err(why.context(Exit::Usage));
    }
    let name = args.config.to_str().context("the name of the interface")?;
    let Called {
        call,
        addresses,
        options,
    } = Called::hear(&Stop::default(), None)?;
    let identity: Arc<Identity> = options.security.identity.clone().context("no key")?;
    let key = identity.public();
    let mut config = config(&args.inside, Side::There, Side::Here, call.key);
    config.interface.listen = addresses;
    let start = Start {
        name: name.to_owned(),
        config,
        identity,
        offload,
        given: None,
    };
    let (wake, woken) = UnixStream::pair()?;
    let mut watcher = wake.try_clone()?;
    let opened = |tunnel: &zerolane_tunnel::driver::Tunnel| {
        thread::Builder::new()
            .name("channel".into())
            .spawn(move || {
                // Whatever comes ends the tunnel, as the end of the login does.
                let _ = stdin().lock().read(&mut [0]);
                let _ = watcher.write_all(&[GONE]);
            })?;
        let address = tunnel.address().context("it does not listen")?;
        // Begins a new line, because the login's shell may have printed an incomplete one.
        console::say(format_args!("\n{}", Answer { key, address }))?;
        Ok(())
    };
    match bring_up(start, (wake, woken), opened)? {
        End::Signal => Ok(Exit::Interrupted),
        End::Down | End::Gone | End::Unconnected => Ok(Exit::Success),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn network__has_two_addresses() {
        let it = network("10.9.0.7/29").unwrap();
        assert_eq!(address(it, Side::Here).address.to_string(), "10.9.0.1");
        assert_eq!(address(it, Side::There).address.to_string(), "10.9.0.2");
        let it = network("fd00:1::9/126").unwrap();
        assert_eq!(address(it, Side::Here).address.to_string(), "fd00:1::9");
        for bad in [
            "10.9.0.0",
            "10.9.0.0/31",
            "10.9.0.0/0",
            "fd00::/127",
            "host/8",
            "10.9.0.0/x",
        ] {
            assert!(network(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn interface__says_nothing_to_a_shell() {
        assert_eq!(interface("wan-0_a").as_deref(), Ok("wan-0_a"));
        for bad in ["", "-a", "a b", "a;b", "$a", "a/b", "sixteen-letters-"] {
            assert!(interface(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn random_networks__are_private() {
        for random in [[0; 32], [0xff; 32]] {
            let [v4, v6] = random_networks(&random)[..] else {
                panic!("two networks")
            };
            let text = |it| address(it, Side::There).address.to_string();
            assert!(text(v4).starts_with("10.") && text(v6).starts_with("fd"));
        }
    }
}
