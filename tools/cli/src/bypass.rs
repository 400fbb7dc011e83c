//! Implements `--bypass`: chooses between AF_XDP and packet sockets for raw Ethernet.

use std::io;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use zerolane::lanes::{is_ethernet, resolve_host};
use zerolane::options::{DeviceOptions, EthernetAddress, EthernetDevice, LaneChoice};

use crate::exit::Exit;
use crate::lane::LaneName;

/// Whether raw Ethernet bypasses the kernel's network stack, by AF_XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bypass {
    /// Use AF_XDP where the interface's driver reads and writes the memory itself, otherwise packet sockets
    #[default]
    Auto,
    /// Use AF_XDP even where the kernel copies each frame once more; fail where AF_XDP is not possible
    Always,
    /// Use packet sockets
    Never,
}

impl Bypass {
    /// The word on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Bypass::Auto => "auto",
            Bypass::Always => "always",
            Bypass::Never => "never",
        }
    }

    /// The choice of the command line; otherwise that of the configuration, if `lane` is raw Ethernet.
    pub(crate) fn of(lane: LaneName, said: Option<Bypass>, configured: Option<Bypass>) -> Bypass {
        let configured = configured.filter(|_| lane == LaneName::Ethernet);
        said.or(configured).unwrap_or_default()
    }

    /// The choice for connections with several paths, which use packet sockets.
    ///
    /// # Errors
    /// AF_XDP was demanded.
    pub fn beside(self, several_paths: bool) -> Result<Bypass> {
        match self {
            Bypass::Always if several_paths => {
                let words = "--bypass always is for connections of one path: leave it out, or --path and --paths";
                Err(anyhow!(words).context(Exit::Usage))
            }
            Bypass::Auto if several_paths => Ok(Bypass::Never),
            bypass => Ok(bypass),
        }
    }

    /// Opens the device for connections of `lane`, at the interface that `interface` returns. `None` means packet
    /// sockets, or another lane.
    ///
    /// # Errors
    /// AF_XDP was demanded and is not possible.
    pub fn device(
        self,
        lane: LaneName,
        interface: impl FnOnce() -> io::Result<String>,
    ) -> Result<Option<Arc<EthernetDevice>>> {
        let options = DeviceOptions {
            zero_copy: self == Bypass::Auto,
            fall_back: self == Bypass::Auto,
            ..DeviceOptions::default()
        };
        let open = || EthernetDevice::open(&interface()?, options);
        match (lane, self) {
            (LaneName::Ethernet, Bypass::Never) => Ok(None),
            // Packet sockets report what is wrong with the interface.
            (LaneName::Ethernet, Bypass::Auto) => Ok(open().ok()),
            (LaneName::Ethernet, Bypass::Always) => Ok(Some(open().context("--bypass always")?)),
            (_, Bypass::Always) => {
                let words = "--bypass always is for raw Ethernet alone: --lane ethernet, or an address ether:IFACE...";
                Err(anyhow!(words).context(Exit::Usage))
            }
            _ => Ok(None),
        }
    }

    /// Opens the device for connections to `host` at `port`.
    ///
    /// # Errors
    /// As [`Bypass::device`].
    pub(crate) fn device_to(
        self,
        lane: LaneName,
        (host, port): (&str, u16),
    ) -> Result<Option<Arc<EthernetDevice>>> {
        let device = self.device(lane, || interface_of(host, port));
        device.map_err(|error| match error.is::<Exit>() {
            true => error,
            false => error.context(Exit::Unreachable),
        })
    }

    /// Opens the device for a listener at `host` and `port`.
    ///
    /// # Errors
    /// As [`Bypass::device`].
    pub(crate) fn device_at(
        self,
        lane: LaneName,
        (host, port): (&str, u16),
    ) -> Result<Option<Arc<EthernetDevice>>> {
        self.device(lane, || interface_of(host, port))
    }
}

/// The interface of a raw Ethernet address. A host name in the address is not looked up.
fn interface_of(host: &str, port: u16) -> io::Result<String> {
    let address = match is_ethernet(host) {
        true => format!("{host}:{port}").parse()?,
        false => {
            let found = resolve_host(host, port, LaneChoice::Ethernet)?;
            let first = found.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
            EthernetAddress::of(*first)?
        }
    };
    Ok(address.interface().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn interface_of__an_address_asks_nobody() {
        for host in [
            "ether:eth7/02:00:00:00:00:01",
            "ether:eth7/box",
            "ether:eth7",
        ] {
            assert_eq!(interface_of(host, 9).unwrap(), "eth7", "{host}");
        }
        let error = interface_of("127.0.0.1", 9).unwrap_err().to_string();
        assert!(error.contains("raw Ethernet needs an address"), "{error}");
    }

    #[test]
    fn beside__several_paths_goes_by_packet_sockets() {
        for (bypass, several, left) in [
            (Bypass::Auto, false, Some(Bypass::Auto)),
            (Bypass::Always, false, Some(Bypass::Always)),
            (Bypass::Auto, true, Some(Bypass::Never)),
            (Bypass::Never, true, Some(Bypass::Never)),
            (Bypass::Always, true, None),
        ] {
            let is = bypass.beside(several);
            if let Err(error) = &is {
                assert_eq!(Exit::of(error), Exit::Usage);
                assert!(format!("{error:#}").contains("of one path"), "{error:#}");
            }
            assert_eq!(is.ok(), left, "{bypass:?}");
        }
    }

    #[test]
    fn device__is_for_raw_ethernet_alone() {
        let interface = || -> io::Result<String> { panic!("looked for") };
        for lane in [LaneName::Udp, LaneName::Auto, LaneName::Shm] {
            for bypass in [Bypass::Auto, Bypass::Never] {
                assert!(bypass.device(lane, interface).unwrap().is_none());
            }
            let error = Bypass::Always.device(lane, interface).unwrap_err();
            assert!(
                format!("{error:#}").contains("--lane ethernet"),
                "{error:#}"
            );
        }
        assert!(
            Bypass::Never
                .device(LaneName::Ethernet, interface)
                .unwrap()
                .is_none()
        );
    }
}
