//! Implements `--path`, `--paths` and `--path-threads`: several paths for one connection.

use std::net::UdpSocket;

use anyhow::{Context, Result, anyhow, ensure};
use zerolane::counters::NoPath;
use zerolane::lanes::max_ethernet_datagram;
use zerolane::options::{MAX_PATHS, PathAddresses, PathThreads};

use crate::exit::Exit;
use crate::lane::LaneName;

/// The additional paths of a command that connects.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PathArgs {
    /// Add a path from LOCAL, an address of this host, to PEER, an address of the server; up to 7 times. The server
    /// needs --paths. Omitted parts, also ports, are those of the first path: '=' adds a path from another port.
    /// ether:IFACE=ether:IFACE/MAC adds a path over raw Ethernet; the server needs --ethernet-paths, unless the first
    /// path is over raw Ethernet too. In that case a path over UDP must name the server's address, and the server needs
    /// --udp-paths
    #[arg(long = "path", value_name = "LOCAL=PEER")]
    links: Vec<PathAddresses>,
    #[command(flatten)]
    threads: ThreadsArgs,
}

/// Which threads run the additional paths, at this end.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct ThreadsArgs {
    /// Give each additional path a thread at this end, so that one connection uses more than one core
    #[arg(long)]
    path_threads: bool,
}

impl ThreadsArgs {
    pub(crate) fn choice(self) -> PathThreads {
        self.path_threads.into()
    }
}

impl PathArgs {
    /// Whether there are no additional paths.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Which threads run them at this end.
    pub fn threads(&self) -> PathThreads {
        self.threads.choice()
    }

    /// The additional paths of a connection over `lane`.
    ///
    /// # Errors
    /// There are too many, `lane` supports only one path, a path begins at an address that this host does not have, or
    /// raw Ethernet is not permitted.
    pub fn links(&self, lane: LaneName) -> Result<Vec<PathAddresses>> {
        self.check(lane).context(Exit::Usage)?;
        Ok(self.links.clone())
    }

    fn check(&self, lane: LaneName) -> Result<()> {
        let most = usize::from(MAX_PATHS);
        ensure!(
            self.links.len() < most,
            "{} times --path: a connection has at most {most} paths, including the first",
            self.links.len()
        );
        ensure!(
            self.is_empty() || matches!(lane, LaneName::Udp | LaneName::Auto | LaneName::Ethernet),
            "--path is for UDP and raw Ethernet, and --lane {} is neither: leave one of them out",
            lane.name()
        );
        for path in &self.links {
            if let Some(peer) = path.ethernet_peer() {
                max_ethernet_datagram(peer).with_context(|| format!("--path {path}"))?;
            }
            let &PathAddresses::Udp { local, peer } = path else {
                continue;
            };
            ensure!(
                lane != LaneName::Ethernet || peer.is_some(),
                "--path {path}: {}",
                NoPath::NoAddress
            );
            let Some(local) = local else { continue };
            let socket = UdpSocket::bind(local);
            let words = || {
                let ip = local.ip();
                format!(
                    "--path from {local}: is {ip} an address of this host? `ip address` shows which there are"
                )
            };
            socket.map_err(|error| anyhow!(error)).with_context(words)?;
        }
        Ok(())
    }
}

/// How many paths a client may have, for a command that listens.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct PathsArgs {
    /// Most paths that a client may have at a time, over UDP or raw Ethernet: 1 to 8. For paths to several addresses of
    /// this host, --listen on all of them (0.0.0.0 or [::])
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_PATHS)))]
    pub(crate) paths: u8,
    /// With --paths: let clients add paths over raw Ethernet to a connection over UDP, at any interface of this host. Needs
    /// CAP_NET_RAW for as long as it listens
    #[arg(long, requires = "paths")]
    pub(crate) ethernet_paths: bool,
    /// With --paths: let clients add paths over UDP to a connection over raw Ethernet, at any address of this host and
    /// the UDP port of the same number
    #[arg(long, requires = "paths")]
    pub(crate) udp_paths: bool,
    #[command(flatten)]
    pub(crate) threads: ThreadsArgs,
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn args(links: &[&str]) -> PathArgs {
        let links = links.iter().map(|it| it.parse().unwrap()).collect();
        PathArgs {
            links,
            ..PathArgs::default()
        }
    }

    #[test]
    fn links__as_many_as_there_may_be_from_addresses_of_this_host() {
        let links = args(&["127.0.0.1=127.0.0.2:9181", "="]);
        assert_eq!(links.links(LaneName::Udp).unwrap().len(), 2);
        assert_eq!(args(&["="; 7]).links(LaneName::Auto).unwrap().len(), 7);
        assert!(args(&[]).links(LaneName::Shm).unwrap().is_empty());
        let named = args(&["=127.0.0.2"]).links(LaneName::Ethernet);
        assert_eq!(named.unwrap().len(), 1);
    }

    #[test]
    fn links__what_cannot_be_says_what_to_do() {
        for (links, lane, says) in [
            (&["="; 8][..], LaneName::Udp, "at most 8 paths"),
            (&["="], LaneName::Shm, "--lane shm is neither"),
            (&["="], LaneName::Ip118, "leave one of them out"),
            (
                &["127.0.0.1="],
                LaneName::Ethernet,
                "must name the peer's IP address",
            ),
            (&["192.0.2.77="], LaneName::Udp, "`ip address`"),
        ] {
            let error = args(links).links(lane).unwrap_err();
            assert_eq!(Exit::of(&error), Exit::Usage);
            assert!(format!("{error:#}").contains(says), "{error:#}");
        }
    }
}
