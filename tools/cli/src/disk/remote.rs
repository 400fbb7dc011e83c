//! Parses `HOST[:PORT]/LUN`, and opens that disk.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use zerolane_block::Lun;
use zerolane_disk::initiator::{Dial, Error, Options, Queue, Unit};

use crate::host::{Dialer, Host};
use crate::security::ClientArgs;

/// The default UDP port.
pub(super) const DEFAULT_PORT: u16 = 9183;

/// A disk of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) host: Host,
    pub(super) lun: Lun,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let (host, number) = text.rsplit_once('/').ok_or("HOST/LUN is wanted")?;
        let lun = number.parse().ok().and_then(Lun::new);
        let lun = lun.ok_or_else(|| format!("{number:?} is no LUN from 0 to {}", Lun::MAX))?;
        let host = Host::parse(host, DEFAULT_PORT)?;
        Ok(Place { host, lun })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.lun)
    }
}

/// Parses `HOST[:PORT]`.
pub(super) fn parse_host(text: &str) -> Result<Host, String> {
    Host::parse(text, DEFAULT_PORT)
}

fn dial(dialer: &Arc<Dialer>) -> Dial {
    let dialer = Arc::clone(dialer);
    Box::new(move || dialer.connect())
}

fn explained<T>(dialer: &Dialer, outcome: Result<T, Error>) -> Result<T> {
    dialer.introduce();
    outcome.map_err(|error| match &error {
        Error::Connecting(why) => dialer.explain(why, anyhow!(error.to_string())),
        _ => anyhow!(error),
    })
}

/// Opens a disk.
pub(super) fn open(place: &Place, security: &ClientArgs, options: Options) -> Result<Queue> {
    let dialer = Arc::new(place.host.dialer(security)?);
    let queue = Queue::open(dial(&dialer), place.lun, options);
    explained(&dialer, queue).with_context(|| format!("opening {place}"))
}

/// The disks of a host that this key may see.
pub(super) fn units(host: &Host, security: &ClientArgs) -> Result<Vec<Unit>> {
    let dialer = Arc::new(host.dialer(security)?);
    let patience = Options::default().patience;
    explained(&dialer, Queue::units(dial(&dialer), patience))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Place__host_port_and_number() {
        for (text, shown) in [
            ("host/0", "host:9183/0"),
            ("host:7/3", "host:7/3"),
            ("[::1]:7/16383", "[::1]:7/16383"),
            (
                "ether:eth0/02:00:00:00:00:01/2",
                "ether:eth0/02:00:00:00:00:01:9183/2",
            ),
        ] {
            let place: Place = text.parse().unwrap();
            assert_eq!(place.to_string(), shown);
        }
        for bad in ["host", "host/", "host/x", "/0", "host/16384", "host/-1"] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
    }
}
