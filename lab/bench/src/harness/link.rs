//! Links two hosts on one machine: network namespaces joined by veth, or loopback if namespaces are not allowed.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use netlab::netns::{Interface, Namespace, OffloadChange, Offloads as DeviceOffloads, Topology};
use netsim::Side;
use zerolane::options::PathAddresses;
use zerolane_cli::lab;

/// The offloads of the interfaces: checksums, segmentation and merging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Offloads {
    /// veth's defaults: packets of up to 64 KiB pass uncut
    #[default]
    On,
    /// No GSO, TSO or GRO at either end: every packet is real
    Off,
    /// No GSO or TSO at the sender, GRO at the receiver: as with a plain NIC
    SenderOff,
    /// As off, and checksums are computed and checked in software
    None,
}

impl Offloads {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Offloads::On => "on",
            Offloads::Off => "off",
            Offloads::SenderOff => "sender-off",
            Offloads::None => "none",
        }
    }

    /// Sets the offloads of the devices of `topology`.
    pub(crate) fn apply(self, topology: &Topology) -> Result<()> {
        let check = |side, change: OffloadChange| -> Result<()> {
            ensure!(
                change.unavailable.is_empty(),
                "this kernel cannot change {} of {}",
                change.unavailable.join(", "),
                topology.device(side)
            );
            Ok(())
        };
        for (side, wanted) in self.changes() {
            check(side, topology.set_offloads(side, wanted)?)?;
        }
        if self == Offloads::None {
            for side in [Side::A, Side::B] {
                check(side, topology.set_checksums(side, false)?)?;
            }
        }
        Ok(())
    }

    /// The settings by device; none if veth's defaults apply.
    fn changes(self) -> Vec<(Side, DeviceOffloads)> {
        let off = DeviceOffloads {
            tx: false,
            gro: false,
        };
        // The receiver's own sending stays whole: only acknowledgements.
        let merging = DeviceOffloads {
            tx: true,
            gro: true,
        };
        match self {
            Offloads::On => vec![],
            Offloads::Off | Offloads::None => vec![(Side::A, off), (Side::B, off)],
            Offloads::SenderOff => vec![(Side::A, off), (Side::B, merging)],
        }
    }
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Sender,
    Receiver,
}

impl Host {
    /// The role of its end, as text.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Host::Sender => "sender",
            Host::Receiver => "receiver",
        }
    }
}

/// Two hosts that reach each other; removed when dropped.
#[derive(Debug)]
pub(crate) struct Link(Option<Topology>);

impl Link {
    /// Two namespaces joined by `pairs` veth pairs of this MTU, with these offloads at the ends of the first.
    pub(crate) fn namespaces(mtu: u32, offloads: Offloads, pairs: usize) -> Result<Link> {
        lab::sweep();
        let topology = Topology::pairs("bench", mtu, pairs)?;
        offloads.apply(&topology)?;
        Ok(Link(Some(topology)))
    }

    /// This machine's loopback.
    pub(crate) fn loopback() -> Link {
        Link(None)
    }

    /// Paths from the sender to the receiver over the pairs after the first.
    pub(crate) fn paths(&self) -> Vec<PathAddresses> {
        let Some(topology) = &self.0 else {
            return Vec::new();
        };
        let ends = [topology.a(), topology.b()].map(|it| &it.interfaces()[1..]);
        let address = |it: &Interface| Some((it.ipv4(), 0).into());
        let pairs = ends[0].iter().zip(ends[1]);
        pairs
            .map(|(here, there)| PathAddresses::Udp {
                local: address(here),
                peer: address(there),
            })
            .collect()
    }

    /// In words.
    pub(crate) fn describe(&self) -> &'static str {
        match &self.0 {
            Some(it) if it.a().interfaces().len() > 1 => {
                "two network namespaces joined by several veth pairs"
            }
            Some(_) => "two network namespaces joined by veth",
            None => "two processes on loopback",
        }
    }

    /// Whether MTU and offloads are the requested ones, not those of loopback.
    pub(crate) fn is_shaped(&self) -> bool {
        self.0.is_some()
    }

    /// The address of a host.
    pub(crate) fn address(&self, host: Host) -> IpAddr {
        self.namespace(host)
            .map_or(Ipv4Addr::LOCALHOST, Namespace::ipv4)
            .into()
    }

    /// This program, to run on a host.
    pub(crate) fn this_program(&self, host: Host) -> Result<Command> {
        let program = std::env::current_exe().context("cannot find this program's file")?;
        Ok(self.program(host, program))
    }

    /// Any program, to run on a host.
    pub(crate) fn program(&self, host: Host, program: impl AsRef<OsStr>) -> Command {
        match self.namespace(host) {
            Some(namespace) => namespace.command(program),
            None => Command::new(program),
        }
    }

    /// Runs `make` on a host: a socket stays in that namespace.
    pub(crate) fn within<T: Send>(
        &self,
        host: Host,
        make: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        match self.namespace(host) {
            Some(namespace) => namespace.enter_thread(make)?,
            None => make(),
        }
    }

    /// Name of a host's interface.
    pub(crate) fn device(&self, host: Host) -> &str {
        self.namespace(host).map_or("lo", Namespace::device)
    }

    fn namespace(&self, host: Host) -> Option<&Namespace> {
        let topology = self.0.as_ref()?;
        Some(match host {
            Host::Sender => topology.a(),
            Host::Receiver => topology.b(),
        })
    }
}
