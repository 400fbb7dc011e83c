//! Chooses the connections that are tried by Zerolane: `--only 10.0.0.0/8:6379,*:80`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Other hosts, and a server's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `None`: every host.
    network: Option<(IpAddr, u8)>,
    /// `None`: every port.
    port: Option<u16>,
}

/// Why a text is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no rule: expected ADDRESS[/BITS][:PORT], where * is any address or port, such as 10.0.0.0/8:6379"
)]
pub struct NoRule(String);

impl Rule {
    /// Whether it covers a connection with a host at `peer`, whose server's port is `port`.
    pub fn covers(&self, peer: IpAddr, port: u16) -> bool {
        let network = self
            .network
            .is_none_or(|(network, bits)| within(network, bits, peer.to_canonical()));
        network && self.port.is_none_or(|it| it == port)
    }
}

/// Whether rules cover a connection; no rules cover all.
pub fn cover(rules: &[Rule], peer: SocketAddr, port: u16) -> bool {
    rules.is_empty() || rules.iter().any(|it| it.covers(peer.ip(), port))
}

fn within(network: IpAddr, bits: u8, ip: IpAddr) -> bool {
    let differ = match (network, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    differ >= u32::from(bits)
}

impl FromStr for Rule {
    type Err = NoRule;

    fn from_str(text: &str) -> Result<Rule, NoRule> {
        let wrong = || NoRule(text.to_owned());
        // An IPv6 address with a port, or a prefix, is in brackets.
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
                match port.strip_prefix(':') {
                    Some(port) => (host, port),
                    None if port.is_empty() => (host, "*"),
                    None => return Err(wrong()),
                }
            }
            None if text.matches(':').count() > 1 => (text, "*"),
            None => text.split_once(':').unwrap_or((text, "*")),
        };
        let port = match port {
            "*" => None,
            port => Some(port.parse().map_err(|_| wrong())?),
        };
        let network = match host {
            "*" => None,
            host => {
                let (ip, bits) = match host.split_once('/') {
                    Some((ip, bits)) => (ip, Some(bits)),
                    None => (host, None),
                };
                let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
                let most = if ip.is_ipv4() { 32 } else { 128 };
                let bits = bits.map_or(Ok(most), |it| it.parse().map_err(|_| wrong()))?;
                if bits > most {
                    return Err(wrong());
                }
                Some((ip, bits))
            }
        };
        Ok(Rule { network, port })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network {
            Some((ip @ IpAddr::V4(_), bits)) => write!(f, "{ip}/{bits}")?,
            Some((ip, bits)) => write!(f, "[{ip}/{bits}]")?,
            None => f.write_str("*")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => f.write_str(":*"),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Rule__covers_its_network_and_port() {
        let covers = |rule: &str, peer: &str| {
            let peer: SocketAddr = peer.parse().unwrap();
            let rule: Rule = rule.parse().unwrap();
            assert_eq!(rule.to_string().parse(), Ok(rule.clone()));
            rule.covers(peer.ip(), peer.port())
        };
        assert!(covers("10.0.0.0/8:6379", "10.1.2.3:6379"));
        assert!(covers("10.0.0.0/8:6379", "[::ffff:10.1.2.3]:6379"));
        assert!(!covers("10.0.0.0/8:6379", "10.1.2.3:6380"));
        assert!(!covers("10.0.0.0/8:6379", "11.1.2.3:6379"));
        assert!(covers("10.0.0.1", "10.0.0.1:1"));
        assert!(covers("*:80", "[fd00::1]:80"));
        assert!(covers("[fd00::/8]:80", "[fd00::1]:80"));
        assert!(covers("fd00::1", "[fd00::1]:80"));
        assert!(covers("0.0.0.0/0", "1.2.3.4:5"));
        assert!(!covers("0.0.0.0/0", "[fd00::1]:80"));
    }

    #[test]
    fn Rule__of_other_text_is_refused() {
        for text in [
            "",
            "host:80",
            "10.0.0.0/33",
            "10.0.0.0/8:x",
            "[fd00::1]x",
            "[fd00::1",
        ] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
    }
}
