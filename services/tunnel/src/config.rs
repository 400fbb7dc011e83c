//! Parses configuration files, which have the keys of wg-quick, and keys of Zerolane.

use crate::limits::{DEFAULT_MTU, MAX_MTU, MAX_PEERS, MAX_PREFIXES, MIN_MTU};
use crate::routes::Prefix as Network;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use zerolane::keys::identity;
use zerolane::security::{Identity, PublicKey};

pub use crate::routes::Prefix;

/// What is wrong with a configuration, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ConfigError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub problem: String,
}

/// The routes to make for AllowedIPs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Table {
    /// In the main table.
    #[default]
    Main,
    /// In the table of this number.
    Number(u32),
    /// None.
    Off,
}

/// The section `[Interface]`.
#[derive(Debug)]
pub struct Interface {
    /// The key of this end, if the file has it.
    pub identity: Option<Identity>,
    /// The file with the key of this end.
    pub identity_file: Option<PathBuf>,
    /// Addresses of the interface.
    pub addresses: Vec<Prefix>,
    /// Where to be called, by UDP: at the first that is free. Empty: this end only calls.
    pub listen: Vec<SocketAddr>,
    /// Longest packet inside, bytes.
    pub mtu: u32,
    /// Where routes are made.
    pub table: Table,
    /// The packets outside have the DSCP of those inside, and not 0.
    pub copies_dscp: bool,
    /// Name servers and search domains, for `resolvconf`.
    pub dns: Vec<String>,
    /// Commands of the shell to run before and after the interface is there; `%i` is its name.
    pub pre_up: Vec<String>,
    /// See [`Interface::pre_up`].
    pub post_up: Vec<String>,
    /// Commands to run before and after it goes.
    pub pre_down: Vec<String>,
    /// See [`Interface::pre_down`].
    pub post_down: Vec<String>,
}

/// A section `[Peer]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Its key.
    pub key: PublicKey,
    /// Where it is called, HOST:PORT; all at once. Empty: it calls.
    pub endpoints: Vec<String>,
    /// Its networks.
    pub allowed: Vec<Prefix>,
    /// How often an idle connection is used, so that firewalls remember it.
    pub keepalive: Option<Duration>,
}

/// A configuration.
#[derive(Debug)]
pub struct Config {
    /// This end.
    pub interface: Interface,
    /// The others.
    pub peers: Vec<PeerConfig>,
}

enum Section {
    None,
    Interface,
    Peer(usize, PartialPeer),
}

#[derive(Default)]
struct PartialPeer {
    key: Option<PublicKey>,
    endpoint: Option<String>,
    allowed: Vec<Network>,
    keepalive: Option<Duration>,
}

impl Interface {
    /// No address, and nowhere to be called.
    fn new() -> Interface {
        Interface {
            identity: None,
            identity_file: None,
            addresses: vec![],
            listen: vec![],
            mtu: DEFAULT_MTU,
            table: Table::default(),
            copies_dscp: false,
            dns: vec![],
            pre_up: vec![],
            post_up: vec![],
            pre_down: vec![],
            post_down: vec![],
        }
    }
}

impl Config {
    /// An interface with `addresses` of its own for one peer, which has the addresses `of_peer`.
    pub fn pair(addresses: Vec<Prefix>, key: PublicKey, of_peer: &[IpAddr]) -> Config {
        Config {
            interface: Interface {
                addresses,
                ..Interface::new()
            },
            peers: vec![PeerConfig {
                key,
                endpoints: vec![],
                allowed: of_peer.iter().copied().map(Prefix::of_host).collect(),
                keepalive: None,
            }],
        }
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The first line that is wrong, and why.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let mut interface = Interface::new();
        let (mut peers, mut section, mut last) = (vec![], Section::None, 1);
        let mut prefixes = 0;
        for (line, text) in (1..).zip(text.lines()) {
            last = line;
            let wrong = |problem: String| ConfigError { line, problem };
            let text = text.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            if text.starts_with('[') {
                end(&mut peers, std::mem::replace(&mut section, Section::None))?;
                section = match text.to_ascii_lowercase().as_str() {
                    "[interface]" => Section::Interface,
                    "[peer]" if peers.len() >= MAX_PEERS => {
                        return Err(wrong(format!("more than {MAX_PEERS} peers")));
                    }
                    "[peer]" => Section::Peer(line, PartialPeer::default()),
                    _ => return Err(wrong(format!("{text}: a section is [Interface] or [Peer]"))),
                };
                continue;
            }
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| wrong(format!("\"{text}\" is no \"Key = value\"")))?;
            let (key, value) = (key.trim(), value.trim());
            let set = match &mut section {
                Section::None => Err("a key before [Interface]".to_owned()),
                Section::Interface => interface.set(key, value),
                Section::Peer(_, peer) => peer.set(key, value),
            };
            set.map_err(|problem| wrong(format!("{key}: {problem}")))?;
            if key.eq_ignore_ascii_case("AllowedIPs") {
                prefixes += value.split(',').count();
            }
            if prefixes > MAX_PREFIXES {
                return Err(wrong(format!("more than {MAX_PREFIXES} networks")));
            }
        }
        end(&mut peers, section)?;
        let nobody = interface.listen.is_empty() && peers.iter().all(|it| it.endpoints.is_empty());
        if nobody {
            let problem = "there is neither a ListenPort nor a peer with an Endpoint".to_owned();
            return Err(ConfigError {
                line: last,
                problem,
            });
        }
        Ok(Config { interface, peers })
    }
}

fn end(peers: &mut Vec<PeerConfig>, section: Section) -> Result<(), ConfigError> {
    let Section::Peer(line, it) = section else {
        return Ok(());
    };
    let wrong = |problem: &str| {
        let problem = problem.to_owned();
        Err(ConfigError { line, problem })
    };
    let Some(key) = it.key else {
        return wrong("this peer has no PublicKey");
    };
    if peers.iter().any(|other| other.key == key) {
        return wrong("another peer has this PublicKey");
    }
    peers.push(PeerConfig {
        key,
        endpoints: it.endpoint.into_iter().collect(),
        allowed: it.allowed,
        keepalive: it.keepalive,
    });
    Ok(())
}

impl Interface {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key.to_ascii_lowercase().as_str() {
            "privatekey" => {
                let parsed = identity::parse(value);
                self.identity = Some(parsed.map_err(|_| "no key as `zerolane keygen` makes it")?);
            }
            "identity" => self.identity_file = Some(value.into()),
            "address" => self.addresses.extend(list(value, address)?),
            "listenport" => {
                let port = number(value, 1, 65_535)? as u16;
                self.listen = vec![(Ipv6Addr::UNSPECIFIED, port).into()];
            }
            "mtu" => self.mtu = number(value, MIN_MTU, MAX_MTU)?,
            "table" => {
                self.table = match value.to_ascii_lowercase().as_str() {
                    "auto" => Table::Main,
                    "off" => Table::Off,
                    _ => Table::Number(number(value, 1, u32::MAX)?),
                }
            }
            "dscp" => {
                self.copies_dscp = match value.to_ascii_lowercase().as_str() {
                    "copy" => true,
                    "0" => false,
                    _ => return Err(format!("\"{value}\" is neither copy nor 0")),
                }
            }
            "dns" => self.dns.extend(list(value, |it| Ok(it.to_owned()))?),
            "preup" => self.pre_up.push(value.to_owned()),
            "postup" => self.post_up.push(value.to_owned()),
            "predown" => self.pre_down.push(value.to_owned()),
            "postdown" => self.post_down.push(value.to_owned()),
            _ => return Err("no key of [Interface]".to_owned()),
        }
        Ok(())
    }
}

impl PartialPeer {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key.to_ascii_lowercase().as_str() {
            "publickey" => {
                let parsed = value.parse();
                self.key = Some(parsed.map_err(|_| "no public key, which begins with zl:")?);
            }
            "endpoint" => {
                let port = value
                    .rsplit_once(':')
                    .and_then(|(_, port)| port.parse::<u16>().ok());
                if port.is_none() {
                    return Err(format!("\"{value}\" is no HOST:PORT"));
                }
                self.endpoint = Some(value.to_owned());
            }
            "allowedips" => self.allowed.extend(list(value, address)?),
            "persistentkeepalive" if value.eq_ignore_ascii_case("off") => self.keepalive = None,
            "persistentkeepalive" => {
                let seconds = number(value, 0, 65_535)?;
                let every = Duration::from_secs(seconds.into());
                self.keepalive = (seconds > 0).then_some(every);
            }
            _ => return Err("no key of [Peer]".to_owned()),
        }
        Ok(())
    }
}

fn list<T>(value: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let items = value.split(',').map(str::trim).filter(|it| !it.is_empty());
    items.map(parse).collect()
}

fn number(value: &str, least: u32, most: u32) -> Result<u32, String> {
    let number = value.parse().ok().filter(|it| (least..=most).contains(it));
    number.ok_or_else(|| format!("\"{value}\" is no number from {least} to {most}"))
}

fn address(text: &str) -> Result<Network, String> {
    let wrong = || format!("\"{text}\" is no address, alone or with the length of a prefix");
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let host = Network::of_host(address);
    match len.map(str::parse) {
        None => Ok(host),
        Some(Ok(len)) if len <= host.len => Ok(Network { len, ..host }),
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn key(n: u8) -> PublicKey {
        Identity::from_secret([n; 32]).public()
    }

    #[test]
    fn parse__the_words_of_wg_quick() {
        let text = format!(
            "# a comment\n[Interface]\nAddress = 10.0.0.1/24, fd00::1/64\nListenPort = 7001\nMTU=9000\n\
             PostUp = echo %i\nTable = off\nDSCP = copy\nDNS = 10.0.0.9\n\n[Peer]\npublickey = {}\nEndpoint = host:7002 # there\n\
             AllowedIPs = 10.0.0.2/32,192.168.0.0/16\nAllowedIPs = ::/0\nPersistentKeepalive = 25\n[Peer]\nPublicKey={}\n",
            key(1),
            key(2)
        );
        let it = Config::parse(&text).unwrap();
        assert_eq!(it.interface.addresses.len(), 2);
        let port = it.interface.listen[0].port();
        assert_eq!((port, it.interface.mtu), (7001, 9000));
        assert_eq!(it.interface.table, Table::Off);
        assert!(it.interface.copies_dscp && !Interface::new().copies_dscp);
        assert_eq!(it.interface.post_up, ["echo %i"]);
        assert_eq!(it.peers[0].allowed.len(), 3);
        assert_eq!(it.peers[0].endpoints, ["host:7002"]);
        assert_eq!(it.peers[0].keepalive, Some(Duration::from_secs(25)));
        assert_eq!(it.peers[1].key, key(2));
    }

    #[test]
    fn parse__names_the_line_that_is_wrong() {
        let head = "[Interface]\nListenPort = 1\n";
        for (text, line, part) in [
            ("Address = 1\n", 1, "before [Interface]"),
            ("[Interface]\nAddres = 1\n", 2, "no key of [Interface]"),
            ("[Interface]\nAddress = 10.0.0.300/24", 2, "10.0.0.300/24"),
            ("[Interface]\nAddress = 10.0.0.3/33", 2, "10.0.0.3/33"),
            ("[Interface]\nMTU = 100\n", 2, "from 1280"),
            ("[Interface]\nDSCP = 46\n", 2, "neither copy nor 0"),
            ("[Interface]\nListenPort = 0\n", 2, "from 1 to"),
            ("[Interface]\nnonsense\n", 2, "nonsense"),
            ("[Interfaces]\n", 1, "a section is"),
            ("[Interface]\nPrivateKey = abc\n", 2, "keygen"),
            ("[Interface]\n", 1, "neither a ListenPort"),
            (
                &format!("{head}[Peer]\nAllowedIPs = ::/0\n"),
                3,
                "no PublicKey",
            ),
            (
                &format!("{head}[Peer]\nPublicKey = x\n"),
                4,
                "begins with zl:",
            ),
            (&format!("{head}[Peer]\nEndpoint = host\n"), 4, "HOST:PORT"),
            (
                &format!(
                    "{head}[Peer]\nPublicKey = {0}\n[Peer]\nPublicKey = {0}\n",
                    key(1)
                ),
                5,
                "another peer",
            ),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.problem.contains(part), "{error}");
        }
    }
}
