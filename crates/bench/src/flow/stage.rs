//! The emulated network, and the processes in it.

use std::fs;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use netlab::lab::{Lab, LabConfig, LabStats};
use netlab::netns;
use netsim::link::LinkConfig;

use super::super::cpu;
use super::super::mover::Token;
use super::super::peer::Peer;
use super::super::protocol::{Protection, Request};
use super::contender::Contender;
use super::job::{Arrived, FlowJob, Sent};
use zerolane_cli::interrupt::Interrupt;

/// Host 1 receives, the others send.
#[derive(Debug)]
pub(crate) struct Stage {
    lab: Lab,
    interrupt: Interrupt,
}

/// Flows of one contender to one receiver.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) contender: Contender,
    /// The sending hosts, from 1: host 0 receives.
    pub(crate) senders: Vec<usize>,
}

/// For how long, and with what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) time: Duration,
    pub(crate) sample: Duration,
    /// Memory at each end of each flow, bytes.
    pub(crate) buffer: usize,
    /// Protection of Zerolane's connections.
    pub(crate) security: Protection,
}

/// What was counted of one flow.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Flow {
    pub(crate) contender: Contender,
    pub(crate) arrived: Arrived,
    pub(crate) sent: Sent,
}

/// What came of some flows at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) flows: Vec<Flow>,
    /// What the network did meanwhile.
    pub(crate) network: LabStats,
}

/// The network runs here, and goes before all else: it takes half a core. A lone sender does, too, for
/// receiving costs more than sending; of several, see [`sender_core`].
const NETWORK_CORE: usize = 0;

/// What TCP may use for its buffers, so that they are not what limits it: one
/// flow of 10 Gb/s over 50 ms.
const TCP_BUFFER_BYTES: usize = 64 << 20;

impl Stage {
    /// A network of one receiver and `senders` senders.
    pub(crate) fn set_up(
        senders: usize,
        mtu: u32,
        interface_bits_per_s: Option<u64>,
        seed: u64,
        interrupt: &Interrupt,
    ) -> Result<Stage> {
        ensure!(
            netns::is_permitted(),
            "the emulated network is made of network namespaces, and this process may make none: run it as root"
        );
        let lab = Lab::start(LabConfig {
            prefix: "bench".into(),
            hosts: senders + 1,
            mtu,
            interface_bits_per_s,
            core: Some(NETWORK_CORE),
            seed,
            ..LabConfig::default()
        })?;
        for host in lab.hosts() {
            host.enter_thread(tune_tcp)??;
        }
        Ok(Stage {
            lab,
            interrupt: interrupt.clone(),
        })
    }

    /// Sets the links: towards the receiver, and back towards each sender.
    pub(crate) fn set_links(&self, there: LinkConfig, back: LinkConfig) {
        for host in 0..self.lab.hosts().len() {
            self.lab
                .set_link(host, if host == 0 { there } else { back });
        }
    }

    /// Runs all flows of all groups at the same time.
    pub(crate) fn run(&self, groups: &[Group], terms: Terms) -> Result<Outcome> {
        self.settle();
        let before = self.lab.stats();
        self.lab.reset_lateness();
        let mut running = Vec::new();
        for group in groups {
            running.push(self.start(group, terms)?);
        }
        let mut flows = Vec::new();
        for group in running {
            flows.extend(group.finish()?);
        }
        Ok(Outcome {
            flows,
            network: self.lab.stats().since(&before),
        })
    }

    /// Lets what an earlier run left on the links pass.
    fn settle(&self) {
        let delay = (0..self.lab.hosts().len())
            .map(|host| self.lab.link(host).delay)
            .max();
        sleep(4 * delay.unwrap_or_default() + Duration::from_millis(50));
    }

    fn start(&self, group: &Group, terms: Terms) -> Result<Running> {
        let job = FlowJob {
            contender: group.contender,
            security: terms.security,
            flows: group.senders.len(),
            millis: terms.time.as_millis() as u64,
            sample_millis: terms.sample.as_millis() as u64,
            buffer: terms.buffer,
            seed: Token::new()?.0,
            token: Token::new()?.0,
        };
        job.check()?;
        let cores = cpu::cores();
        let mut receiver = self.end(0, cores - 1, "receiver")?;
        let port = receiver.listen(&Request::ReceiveFlows(job.clone()))?;
        let to = SocketAddr::new(self.lab.host(0).ipv4().into(), port);
        let mut senders = Vec::new();
        for (index, &host) in group.senders.iter().enumerate() {
            let mut sender = self.end(host, sender_core(index, cores), "sender")?;
            sender.tell(&Request::SendFlow {
                to,
                job: job.clone(),
            })?;
            senders.push(sender);
        }
        Ok(Running {
            contender: group.contender,
            receiver,
            senders,
        })
    }

    /// A process in a host, on a core.
    fn end(&self, host: usize, core: usize, name: &'static str) -> Result<Peer> {
        let program = std::env::current_exe().context("where is this program?")?;
        let namespace = self.lab.host(host);
        let mut command = namespace.command(program);
        command
            .args(["bench", "end", "--bind"])
            .arg(namespace.ipv4().to_string())
            .arg("--core")
            .arg(core.to_string());
        let mut peer = Peer::spawn(name, command, &self.interrupt)?;
        peer.greet()?;
        Ok(peer)
    }
}

/// Where a group's sender of this index runs. Several take turns on all cores: in a network each has a
/// machine of its own, and eight beside the emulator on one core would be measured for what is left of
/// that, while the receiver's is half idle.
fn sender_core(index: usize, cores: usize) -> usize {
    (NETWORK_CORE + index) % cores
}

/// A group under way.
struct Running {
    contender: Contender,
    receiver: Peer,
    senders: Vec<Peer>,
}

impl Running {
    fn finish(mut self) -> Result<Vec<Flow>> {
        // A receiver's word counts first: see `Ends::once`.
        let arrived = self.receiver.arrived()?;
        let sent = self.senders.iter_mut().map(Peer::sent);
        let flows = arrived.into_iter().zip(sent);
        flows
            .map(|(arrived, sent)| {
                Ok(Flow {
                    contender: self.contender,
                    arrived,
                    sent: sent?,
                })
            })
            .collect()
    }
}

/// Lets TCP's buffers grow as far as a long path needs, and keeps it from
/// remembering the path of an earlier run.
fn tune_tcp() -> Result<()> {
    let set = |name: &str, value: String| {
        let path = format!("/proc/sys/net/ipv4/{name}");
        fs::write(&path, value).with_context(|| format!("writing {path}"))
    };
    set("tcp_rmem", format!("4096 131072 {TCP_BUFFER_BYTES}"))?;
    set("tcp_wmem", format!("4096 65536 {TCP_BUFFER_BYTES}"))?;
    set("tcp_no_metrics_save", "1".into())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn sender_core__one_beside_the_network_several_everywhere() {
        assert_eq!(sender_core(0, 2), NETWORK_CORE);
        let used: Vec<usize> = (0..8).map(|index| sender_core(index, 4)).collect();
        assert_eq!(used, [0, 1, 2, 3, 0, 1, 2, 3]);
    }
}
