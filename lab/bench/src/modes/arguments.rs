//! Defines the arguments that several benchmarks share.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bytesize::ByteSize;
use netlab::lab::LabConfig;
use zerolane::options::{MAX_PATHS, PathAddresses, PathThreads};
use zerolane_cli::bypass::Bypass;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;
use zerolane_cli::lane::LaneName;
use zerolane_cli::paths::PathArgs;
use zerolane_cli::units;

use crate::cpu;
use crate::harness::hosts::{self, MTU};
use crate::harness::link::{Link, Offloads};
use crate::harness::network::Network;
use crate::harness::runs::Ends;
use crate::job::name::Name;
use crate::job::settings::{PathEnds, Protection};
use crate::job::{Flows, fresh};
use crate::limits::{FLOW_MAX, REPS_MAX};

/// Cores of an initiator and a responder.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct CoreArgs {
    /// Core of the sender, initiator or client
    #[arg(long, default_value_t = 0)]
    pub(crate) tx_core: usize,
    /// Core of the receiver, responder or server, if this command starts it [default: 1, or 0 on one core]
    #[arg(long)]
    pub(crate) rx_core: Option<usize>,
}

impl CoreArgs {
    /// The core of the responder: the second if there is one and nothing else is asked for.
    pub(crate) fn responder(&self) -> usize {
        self.rx_core.unwrap_or(1.min(cpu::cores() - 1))
    }
}

/// Hosts of two ends.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// Measure to the machine where `zerolane bench serve` runs
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) cores: CoreArgs,
    /// Seed of the payload [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Common arguments of two ends.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EndsArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// MTU of the path; between namespaces, the veth gets it [default: 1500]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1280..=65535))]
    pub(crate) mtu: Option<u32>,
}

/// Bytes of the headers of UDP over IPv4.
pub(crate) const UDP_HEADERS: u32 = 28;

/// How often the contenders take turns.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Rounds {
    /// Runs of each contender
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=i64::from(REPS_MAX)))]
    pub(crate) reps: u32,
}

impl PlaceArgs {
    /// The seed of the payload.
    pub(crate) fn seed(&self) -> Result<u64> {
        self.seed.map_or_else(fresh, Ok)
    }

    fn ends_cores(&self) -> [usize; 2] {
        [self.cores.tx_core, self.cores.responder()]
    }

    /// Starts the ends, with this MTU and these offloads where the link between them is made for them.
    pub(crate) fn start(
        &self,
        mtu: Option<u32>,
        offloads: Option<Offloads>,
        interrupt: &Interrupt,
    ) -> Result<Ends> {
        self.start_over(1, mtu, offloads, interrupt)
    }

    /// The same, with so many pairs of interfaces.
    fn start_over(
        &self,
        pairs: usize,
        mtu: Option<u32>,
        offloads: Option<Offloads>,
        interrupt: &Interrupt,
    ) -> Result<Ends> {
        let cores = self.ends_cores();
        match &self.to {
            Some(to) => Ends::to(to, cores[0], interrupt),
            None => Ends::here(hosts::pairs(mtu, offloads, pairs)?, cores, None, interrupt),
        }
    }

    /// The path between the ends, in words, and its MTU where it was set to this, or to the usual one.
    pub(crate) fn path(&self, ends: &Ends, mtu: Option<u32>) -> (String, Option<u32>) {
        let path = ends.link().map_or("between two machines", Link::describe);
        let shaped = ends.link().is_some_and(Link::is_shaped);
        (path.to_owned(), shaped.then(|| mtu.unwrap_or(MTU)))
    }
}

impl EndsArgs {
    /// The seed of the payload.
    pub(crate) fn seed(&self) -> Result<u64> {
        self.place.seed()
    }

    /// Starts the ends, with these offloads where the link between them is made for them.
    pub(crate) fn start(&self, offloads: Option<Offloads>, interrupt: &Interrupt) -> Result<Ends> {
        self.place.start(self.mtu, offloads, interrupt)
    }

    /// The path between the ends, in words, and its MTU where it was set.
    pub(crate) fn path(&self, ends: &Ends) -> (String, Option<u32>) {
        self.place.path(ends, self.mtu)
    }
}

/// What carries Zerolane's connections.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct LaneArgs {
    /// What carries Zerolane's connections: auto and shm put both ends on one host without a network; ethernet needs
    /// interfaces on one segment
    #[arg(long, value_enum, default_value_t = LaneName::Udp, value_name = "LANE")]
    pub(crate) lane: LaneName,
    /// With ethernet: whether both ends bypass the kernel's network stack by AF_XDP
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) bypass: Bypass,
}

impl LaneArgs {
    /// Starts the ends where this lane can be between them.
    pub(crate) fn start(
        self,
        args: &EndsArgs,
        offloads: Option<Offloads>,
        interrupt: &Interrupt,
    ) -> Result<Ends> {
        if self.bypass == Bypass::Always && self.lane != LaneName::Ethernet {
            let words = "--bypass always needs --lane ethernet";
            return Err(anyhow!(words).context(Exit::Usage));
        }
        let has_network = matches!(
            self.lane,
            LaneName::Udp | LaneName::Ethernet | LaneName::Ip118
        );
        if has_network || args.place.to.is_some() {
            return args.start(offloads, interrupt);
        }
        if args.mtu.is_some() || offloads.is_some() {
            let name = self.lane.name();
            let words = format!("--lane {name} uses no network: leave out --mtu and --offloads");
            return Err(anyhow!(words).context(Exit::Usage));
        }
        Ends::here(Link::loopback(), args.place.ends_cores(), None, interrupt)
    }

    /// The path between the ends, in words, and its MTU where it was set.
    pub(crate) fn path(self, args: &EndsArgs, ends: &Ends) -> (String, Option<u32>) {
        let (path, mtu) = args.path(ends);
        match self.lane {
            LaneName::Udp => (path, mtu),
            LaneName::Ethernet => {
                let bypass = self.bypass.name();
                let words = format!("{path}, Zerolane with --lane ethernet --bypass {bypass}");
                (words, mtu)
            }
            lane => (format!("{path}, Zerolane with --lane {}", lane.name()), mtu),
        }
    }
}

/// The paths of Zerolane's connection.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ManyPaths {
    /// Paths of Zerolane's connection over UDP, 1 to 8: one veth pair each between namespaces, otherwise one port each
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "links", value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_PATHS)))]
    paths: u8,
    #[command(flatten)]
    named: PathArgs,
}

impl ManyPaths {
    /// Whether there are others than the first.
    pub(crate) fn is_several(&self) -> bool {
        self.paths > 1 || !self.named.is_empty()
    }

    /// Whether each of these has a thread of its own.
    pub(crate) fn has_threads(&self) -> bool {
        self.named.threads() == PathThreads::OnePerPath
    }

    /// Starts the ends where this lane and these paths can be between them; the paths beside the first.
    pub(crate) fn start(
        &self,
        lane: LaneArgs,
        args: &EndsArgs,
        offloads: Option<Offloads>,
        interrupt: &Interrupt,
    ) -> Result<(Ends, Vec<PathEnds>)> {
        let named = self.named.links(lane.lane)?;
        if self.paths < 2 {
            let ends = lane.start(args, offloads, interrupt)?;
            return Ok((ends, named.into_iter().map(PathEnds::from).collect()));
        }
        if lane.lane != LaneName::Udp {
            let words = format!(
                "--paths works over UDP only: leave out --paths or --lane {}",
                lane.lane.name()
            );
            return Err(anyhow!(words).context(Exit::Usage));
        }
        let pairs = usize::from(self.paths);
        let ends = args
            .place
            .start_over(pairs, args.mtu, offloads, interrupt)?;
        let of_pairs = ends.link().map(Link::paths).unwrap_or_default();
        let from_ports = vec![PathAddresses::default(); pairs - 1];
        let paths = match of_pairs.is_empty() {
            true => from_ports,
            false => of_pairs,
        };
        Ok((ends, paths.into_iter().map(PathEnds::from).collect()))
    }
}

/// Contenders that can flow for a time, in the order of the tables.
pub(crate) const FLOWING: [Name; 4] = [Name::Classic, Name::Extended, Name::Cubic, Name::Bbr];

/// What the benchmarks over emulated links have in common.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LinkArgs {
    /// How long each run lasts [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) time: Option<Duration>,
    /// Rate of the bottleneck
    #[arg(long, default_value = "1gbit", value_name = "RATE", value_parser = units::rate)]
    pub(crate) rate: u64,
    /// MTU of the hosts' interfaces
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1280..=65521))]
    pub(crate) mtu: u32,
    /// Rate of each host's own interface [default: unlimited]
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    pub(crate) interface_rate: Option<u64>,
    /// Memory at each end of each flow
    #[arg(long, default_value = "32MiB", value_name = "SIZE")]
    pub(crate) buffer: ByteSize,
    /// Measure only these
    #[arg(long, value_name = "CONTENDERS", value_delimiter = ',', value_parser = Name::among(&FLOWING))]
    pub(crate) only: Vec<Name>,
    /// Seed of the packet losses
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Protection of Zerolane's connections
    #[arg(long, default_value = "plain", value_name = "MODE")]
    pub(crate) security: Protection,
    /// A few short runs, to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

impl LinkArgs {
    /// What is measured.
    pub(crate) fn contenders(&self) -> Vec<Name> {
        if self.only.is_empty() {
            FLOWING.to_vec()
        } else {
            self.only.clone()
        }
    }

    /// Flows for as long as is asked for, `usual` unless said. How many there are, and with what in them, each run
    /// says.
    pub(crate) fn flows(&self, usual: Duration) -> Result<Flows> {
        const QUICK: Duration = Duration::from_secs(1);
        let usual = if self.quick { QUICK } else { usual };
        let time = self.time.unwrap_or(usual);
        ensure!(
            (Duration::from_millis(100)..=FLOW_MAX).contains(&time),
            anyhow!("--time is 100ms to {} s", FLOW_MAX.as_secs()).context(Exit::Usage)
        );
        Ok(Flows {
            buffer: size(self.buffer)?,
            initiators: 1,
            parallel: 1,
            reverse: false,
            live: false,
            millis: time.as_millis() as u64,
            sample_millis: match time > Duration::from_secs(5) {
                true => 1000,
                false => 100,
            },
            seed: 0,
        })
    }

    /// The network, in which hosts have interfaces of such a rate.
    pub(crate) fn network(
        &self,
        senders: usize,
        interface_rate: Option<u64>,
        interrupt: &Interrupt,
    ) -> Result<Network> {
        let config = LabConfig {
            hosts: senders + 1,
            mtu: self.mtu,
            interface_bits_per_s: interface_rate,
            seed: self.seed,
            ..LabConfig::default()
        };
        Network::set_up(config, self.security, interrupt)
    }
}

/// Seconds, or a time with its unit, of at most [`FLOW_MAX`].
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(_) => units::duration_up_to(&format!("{text}s"), FLOW_MAX),
        Err(_) => units::duration_up_to(text, FLOW_MAX),
    }
}

/// A size as this machine counts it.
pub(crate) fn size(size: ByteSize) -> Result<usize> {
    usize::try_from(size.as_u64()).context(Exit::Usage)
}
