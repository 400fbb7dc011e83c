//! Implements `--lane`: chooses what carries connections.

use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use zerolane::lanes::is_ethernet;
use zerolane::options::LaneChoice;

use crate::exit::Exit;

/// The words of `--lane`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneName {
    /// UDP, also on one host
    Udp,
    /// Shared memory where both ends are this user's processes on one host; else UDP
    #[default]
    Auto,
    /// Shared memory and nothing else
    Shm,
    /// Raw Ethernet to a host of the same segment, with the address ether:IFACE/MAC
    Ethernet,
    /// IP protocol 118, without UDP; needs CAP_NET_RAW at both ends
    Ip118,
}

impl LaneName {
    /// The word on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            LaneName::Udp => "udp",
            LaneName::Auto => "auto",
            LaneName::Shm => "shm",
            LaneName::Ethernet => "ethernet",
            LaneName::Ip118 => "ip118",
        }
    }

    /// The lane to `host`, or for a listener there: from the command line, otherwise from the form of the address,
    /// otherwise from the configuration.
    ///
    /// # Errors
    /// The lane on the command line does not fit the address.
    pub(crate) fn to(
        host: &str,
        said: Option<LaneName>,
        configured: Option<LaneName>,
    ) -> Result<LaneName> {
        match said {
            Some(lane) if is_ethernet(host) && lane != LaneName::Ethernet => {
                let words = format!(
                    "--lane {} does not go with {host}, which is an address of raw Ethernet",
                    lane.name()
                );
                Err(anyhow!(words).context(Exit::Usage))
            }
            Some(lane) => Ok(lane),
            None if is_ethernet(host) => Ok(LaneName::Ethernet),
            None => Ok(configured.unwrap_or_default()),
        }
    }
}

impl From<LaneName> for LaneChoice {
    fn from(name: LaneName) -> LaneChoice {
        match name {
            LaneName::Udp => LaneChoice::Udp,
            LaneName::Auto => LaneChoice::Best,
            LaneName::Shm => LaneChoice::SharedMemory,
            LaneName::Ethernet => LaneChoice::Ethernet,
            LaneName::Ip118 => LaneChoice::Ip118,
        }
    }
}
