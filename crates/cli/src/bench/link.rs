//! Two hosts on one machine: two network namespaces joined by veth, or
//! loopback where those are not allowed.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

/// Which segmentation and merging work the interfaces take over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Offloads {
    /// veth's defaults: packets of up to 64 KiB pass uncut
    #[default]
    On,
    /// No GSO, TSO or GRO at either end: every packet is real
    Off,
    /// No GSO or TSO at the sender, GRO at the receiver: as with a plain NIC
    SenderOff,
}

impl Offloads {
    /// As the command line spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Offloads::On => "on",
            Offloads::Off => "off",
            Offloads::SenderOff => "sender-off",
        }
    }
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Sender,
    Receiver,
}

/// Two hosts that reach each other; gone when dropped.
#[derive(Debug)]
pub(crate) struct Link(Option<Namespaces>);

impl Link {
    /// Two namespaces with their veth set up as asked.
    pub(crate) fn namespaces(mtu: u32, offloads: Offloads) -> Result<Link> {
        let namespaces = Namespaces::new(mtu)?;
        namespaces.set(offloads)?;
        Ok(Link(Some(namespaces)))
    }

    /// This machine's loopback.
    pub(crate) fn loopback() -> Link {
        Link(None)
    }

    /// In words.
    pub(crate) fn describe(&self) -> &'static str {
        match &self.0 {
            Some(_) => "two network namespaces joined by veth",
            None => "loopback",
        }
    }

    /// Whether MTU and offloads are as asked for, and not what loopback has.
    pub(crate) fn is_shaped(&self) -> bool {
        self.0.is_some()
    }

    /// The address of a host.
    pub(crate) fn address(&self, host: Host) -> IpAddr {
        match (&self.0, host) {
            (None, _) => Ipv4Addr::LOCALHOST.into(),
            (Some(_), Host::Sender) => Ipv4Addr::new(10, 77, 0, 1).into(),
            (Some(_), Host::Receiver) => Ipv4Addr::new(10, 77, 0, 2).into(),
        }
    }

    /// This very program, to be run on a host.
    pub(crate) fn this_program(&self, host: Host) -> Result<Command> {
        let program = std::env::current_exe().context("where is this program?")?;
        Ok(match &self.0 {
            None => Command::new(program),
            Some(namespaces) => {
                let mut command = Command::new("ip");
                command
                    .args(["netns", "exec", namespaces.name(host)])
                    .arg(program);
                command
            }
        })
    }
}

#[derive(Debug)]
struct Namespaces {
    names: [String; 2],
}

impl Namespaces {
    fn new(mtu: u32) -> Result<Namespaces> {
        let base = format!("zl{}", std::process::id());
        let names = [format!("{base}a"), format!("{base}b")];
        let [a, b] = &names;
        run(&format!("ip netns add {a}"))?;
        let this = Namespaces {
            names: names.clone(),
        };
        run(&format!("ip netns add {b}"))?;
        run(&format!(
            "ip link add veth0 mtu {mtu} netns {a} type veth peer name veth0 mtu {mtu} netns {b}"
        ))?;
        for (name, n) in [(a, 1), (b, 2)] {
            run(&format!("ip -n {name} addr add 10.77.0.{n}/24 dev veth0"))?;
            run(&format!("ip -n {name} link set lo up"))?;
            run(&format!("ip -n {name} link set veth0 up"))?;
        }
        Ok(this)
    }

    fn name(&self, host: Host) -> &str {
        match host {
            Host::Sender => &self.names[0],
            Host::Receiver => &self.names[1],
        }
    }

    fn set(&self, offloads: Offloads) -> Result<()> {
        let [a, b] = &self.names;
        const OFF: &str = "tso off gso off tx-udp-segmentation off";
        match offloads {
            Offloads::On => Ok(()),
            Offloads::Off => {
                run(&format!("ip netns exec {a} ethtool -K veth0 {OFF} gro off"))?;
                run(&format!("ip netns exec {b} ethtool -K veth0 {OFF} gro off"))
            }
            Offloads::SenderOff => {
                run(&format!("ip netns exec {a} ethtool -K veth0 {OFF}"))?;
                run(&format!("ip netns exec {b} ethtool -K veth0 gro on"))
            }
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = run(&format!("ip netns del {name}"));
        }
    }
}

fn run(line: &str) -> Result<()> {
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap_or_default())
        .args(words)
        .output()?;
    if !output.status.success() {
        bail!("{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
