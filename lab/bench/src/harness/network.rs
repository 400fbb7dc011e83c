//! Sets up an emulated network, and the processes in it.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use netlab::lab::{Lab, LabConfig, LabStats};
use netlab::netns;
use netsim::link::LinkConfig;

use zerolane_cli::interrupt::Interrupt;
use zerolane_cli::lab;

use super::end;
use super::peer::Peer;
use super::runs::{Ends, Run, out_of_turn};
use crate::contender;
use crate::cpu;
use crate::job::name::Name;
use crate::job::settings::Protection;
use crate::job::{Flows, Job, Work, fresh};

/// Host 1 receives, the others send.
#[derive(Debug)]
pub(crate) struct Network {
    lab: Lab,
    security: Protection,
    interrupt: Interrupt,
}

/// Flows of one contender to one receiver.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) contender: Name,
    /// The sending hosts, from 1: host 0 receives.
    pub(crate) senders: Vec<usize>,
}

/// What came of some flows at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Group by group, in the order of its senders.
    pub(crate) runs: Vec<Run>,
    /// What the network did meanwhile.
    pub(crate) network: LabStats,
}

/// Contenders that can, and those that cannot with the reason.
pub(crate) type Able = (Vec<Name>, Vec<(Name, String)>);

/// The network runs here, and goes before all else: it takes half a core. A lone sender does, too, for
/// receiving costs more than sending; of several, see [`sender_core`].
const NETWORK_CORE: usize = 0;

/// What TCP may use for its buffers, so that they are not what limits it: one
/// flow of 10 Gb/s over 50 ms.
const TCP_BUFFER_BYTES: usize = 64 << 20;

impl Network {
    /// A network whose first host receives and whose others send; `security` is of Zerolane's connections.
    pub(crate) fn set_up(
        config: LabConfig,
        security: Protection,
        interrupt: &Interrupt,
    ) -> Result<Network> {
        ensure!(
            netns::is_permitted(),
            "the emulated network needs network namespaces, which this process may not create: run it as root"
        );
        lab::sweep();
        let lab = Lab::start(LabConfig {
            prefix: "bench".into(),
            core: Some(NETWORK_CORE),
            ..config
        })?;
        for host in lab.hosts() {
            host.enter_thread(tune_tcp)??;
        }
        Ok(Network {
            lab,
            security,
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

    /// Those of `contenders` that can do such flows here, and the others, with why.
    pub(crate) fn able(&self, contenders: &[Name], flows: Flows) -> Result<Able> {
        let job = Job::of(Work::Flows(flows));
        let able = self.lab.host(0).enter_thread(|| {
            let able = |&it: &Name| contender::of(it).able(&job).map_err(|why| (it, why));
            let (mut named, mut left_out) = (Vec::new(), Vec::new());
            for (contender, able) in contenders.iter().map(|it| (*it, able(it))) {
                match able {
                    Ok(()) => named.push(contender),
                    Err(why) => left_out.push(why),
                }
            }
            (named, left_out)
        })?;
        let why = || able.1.iter().map(|it| it.1.as_str()).collect::<Vec<_>>();
        ensure!(!able.0.is_empty(), "{}", why().join("; "));
        Ok(able)
    }

    /// Fails once the emulator has ended: what is measured without it says nothing of a contender.
    pub(crate) fn check(&self) -> Result<()> {
        self.lab.check().context("the emulated network")
    }

    /// Runs the flows of all groups at the same time.
    pub(crate) fn run(&self, groups: &[Group], flows: Flows) -> Result<Outcome> {
        self.settle();
        let before = self.lab.stats();
        self.lab.reset_lateness();
        let mut running = Vec::new();
        for group in groups {
            let job = self.job(group, flows)?;
            let mut ends = self.ends(group)?;
            ends.begin(group.contender, &job)?;
            running.push(ends);
        }
        let mut runs = Vec::new();
        for mut ends in running {
            runs.extend(ends.finish(&mut out_of_turn)?);
        }
        Ok(Outcome {
            runs,
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

    /// The flows of a group, with content of their own.
    fn job(&self, group: &Group, flows: Flows) -> Result<Job> {
        let flows = Flows {
            initiators: group.senders.len(),
            seed: fresh()?,
            ..flows
        };
        let job = Job {
            security: self.security,
            ..Job::of(Work::Flows(flows))
        };
        job.check()?;
        Ok(job)
    }

    fn ends(&self, group: &Group) -> Result<Ends> {
        let cores = cpu::cores();
        let receiver = self.end(0, cores - 1, "receiver")?;
        let senders = group.senders.iter().enumerate();
        let senders = senders
            .map(|(index, &host)| self.end(host, sender_core(index, cores), "sender"))
            .collect::<Result<_>>()?;
        Ok(Ends::new(senders, receiver, self.lab.host(0).ipv4().into()))
    }

    /// A process in a host, on a core.
    fn end(&self, host: usize, core: usize, name: &'static str) -> Result<Peer> {
        let program = std::env::current_exe().context("cannot find this program's file")?;
        let namespace = self.lab.host(host);
        let mut command = namespace.command(program);
        end::arguments(&mut command, namespace.ipv4().into(), core, None);
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
